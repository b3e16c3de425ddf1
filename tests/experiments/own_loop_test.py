"""The plain loop equals the trainer, bit for bit."""

import jax
import numpy as np

from configs import tiny_gspo
from experiments import own_loop
from vade_jax import run, settings
from vade_jax.data import procedural
from vade_jax.store import checkpoints, metrics, rollout_log

STEPS = 2
LOSSES = ("actor/loss", "actor/kl_loss", "actor/grad_norm", "actor/entropy", "actor/ppo_kl")


def test_steps_have_the_trainers_prompts_answers_losses_and_weights(
    tmp_path, one_device, monkeypatch
):
    """With a sixteenth of the data and half of the batch."""
    few = procedural.Procedural
    fewer = lambda seed, num_items, *more: few(seed, num_items // 16, *more)
    monkeypatch.setattr(procedural, "Procedural", fewer)
    monkeypatch.setattr(own_loop, "B", 16)
    steps = []
    accuracy = own_loop.main(str(tmp_path), STEPS, on_step=lambda *step: steps.append(step))

    c = tiny_gspo.get_config()
    c.num_steps, c.eval.every = STEPS, 0
    c.num_prompts = c.engine.prompts_per_call = 16
    workdir = str(tmp_path / "trainer")
    assert run.train(settings.Run.from_dict(c.to_dict()), workdir)
    records = {record["step"]: record for record in metrics.read(workdir)}

    for number, batch, losses, _, _ in steps:
        rows = rollout_log.read(rollout_log.path(workdir, number))
        assert rows["uid"] == [batch.items[m].uid for m in batch.rollouts.group_N]
        assert rows["answer"] == [one.text for one in batch.scored]
        assert rows["length"] == batch.rollouts.length_N.tolist()
        assert rows["reward"] == batch.feedback.reward_N.tolist()
        assert {x: records[number][x] for x in LOSSES} == {x: losses[x] for x in LOSSES}
    assert records[STEPS]["val/validation/acc/mean@4"] == accuracy

    *_, state, posterior = steps[-1]
    saved = checkpoints.manager_of(f"{workdir}/checkpoints")
    expected = {
        "policy": state.params,
        "optimizer": {"opt_state": state.opt_state, "step": state.step},
        "selector": {"posterior": posterior, "visited_I": np.zeros(32, np.int32)},
    }
    _, trained = checkpoints.restore(saved, STEPS, expected)
    saved.close()
    del trained["selector"]["visited_I"], expected["selector"]["visited_I"]
    equal = lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    jax.tree.map(equal, trained, expected)
