"""Whole runs of the tiny model with rollouts of the real vLLM: `make test-vllm`."""

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from experiments import train
from vade_jax.run import build
from vade_jax.store import metrics

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm


def config():
    c = tiny_gspo.get_config("smoke")
    c.num_steps = c.eval.every = 3
    c.num_prompts = c.batch.prompts_per_minibatch = 8
    c.batch.prompts_per_microbatch = 8  # one for each of the tests' fake devices
    c.loss.old_logp = "trainer"
    c.engine.name, c.engine.options = "vllm_server", dict(max_num_seqs=16)
    return c


def test_a_run_logs_agreement_timeline_and_what_the_servers_did(tmp_path):
    train.main(config(), str(tmp_path / "run"))
    rows = metrics.read(tmp_path / "run")
    for row in rows[1:]:
        assert row["training/rollout_probs_diff_max"] <= 1e-3
        assert row["training/rollout_logprobs_diff_mean"] <= 1e-4
        assert "timing_s/update_weights" in row


def test_an_adapter(tmp_path):
    """VLLM gets the sum of base and adapter after every step, and agrees about every token."""
    (tmp_path / "reward.py").write_text(
        "def even(completions, **_):\n    return [len(x[0]['content']) % 2 for x in completions]\n"
    )
    c = config()
    c.lora.rank, c.optimizer.learning_rate, c.optimizer.warmup_steps = 4, 0.02, 0
    c.reward.function = f"{tmp_path / 'reward.py'}:even"  # a random policy's answers differ in it
    c.loss.kl_coef, c.loss.kl = 0.1, "k2"
    train.main(c, str(tmp_path / "run"))
    records = metrics.read(tmp_path / "run")[1:]
    # The first answers are the base's; the last are of a policy that is far from it.
    assert max(r["training/rollout_logprobs_diff_max"] for r in records) < 1e-4
    assert records[-1]["actor/kl_loss"] > 1e-3


class Versions:
    """A learner that compares each batch's log-probs with those of every version of the weights so far."""

    def __init__(self, learner):
        self.learner, self.held, self.seen = learner, [], []

    def __call__(self, state, prompts, rollouts, advantage_N):
        self.held.append(jax.tree.map(np.array, state.params))
        cut = self.learner.split(prompts, rollouts, advantage_N)
        of = lambda params: max(self._gap(params, state.frozen, batch) for batch in cut)
        gaps = [of(params) for params in self.held]
        self.seen.append((int(rollouts.params_version), gaps))
        return self.learner(state, prompts, rollouts, advantage_N)

    def _gap(self, params, frozen, batch):
        logp_NT = np.asarray(self.learner.logprobs(params, frozen, self.learner.put(batch)))
        return np.abs((logp_NT - batch.rollout_logp_NT) * batch.mask_NT).max()


def test_a_step_ahead_every_answer_is_of_the_version_that_it_says(tmp_path, monkeypatch):
    """Answers are made in a thread while the policy learns, and no sync reaches them meanwhile."""
    (tmp_path / "reward.py").write_text(
        "def even(completions, **_):\n    return [len(x[0]['content']) % 2 for x in completions]\n"
    )
    c = config()
    c.num_steps, c.engine.max_lag, c.loss.importance = 4, 1, "token"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 0.01, 0  # versions are far apart
    c.reward.function = f"{tmp_path / 'reward.py'}:even"  # a random policy's answers differ in it
    c.layout.train, c.layout.serve = "0", "1"  # to the checks: a device for each, so they overlap
    made = []

    def spied(*args, make=build.make_learner, **kw):
        state, learner = make(*args, **kw)
        made.append(Versions(learner))
        return state, made[0]

    monkeypatch.setattr(build, "make_learner", spied)
    train.main(c, str(tmp_path / "run"))
    assert [version for version, _ in made[0].seen] == [0, 0, 1, 2]
    for version, gaps in made[0].seen:
        own = gaps.pop(version)
        assert own < 1e-4 and all(gap > 1e-2 for gap in gaps)
    waits = ["timing_s/wait_rollouts" in record for record in metrics.read(tmp_path / "run")]
    assert waits == [False, False, True, True, True]  # for its batch, made during the step before
