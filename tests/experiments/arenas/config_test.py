"""configs/sweep.py: every job, and what its runs differ in."""

import dataclasses

import pytest

from configs import arenas, sweep
from experiments.arenas import runs


def of_config(arg, **fields):
    """The runs of seed 0."""
    c = sweep.get_config(arg)
    c.update({"seeds": "0", **fields})
    return c, runs.planned(c, "w")


def planned(arg, **fields):
    """The settings of each arm; of several losses the last one's."""
    return {run.arm: run.settings for run in of_config(arg, **fields)[1]}


def test_table_1_is_the_default():
    c, found = of_config("smoke")
    assert (c.name, c.baseline) == ("table1", "uniform")
    assert {run.group for run in found} == {"clean/gspo", "clean/grpo"}
    assert {"dapo", "kalman", "vade_greedy"} <= {run.arm for run in found}


@pytest.mark.parametrize("name", arenas.ARENAS)
def test_the_controls_run_by_default(name):
    found = planned(name)
    assert list(found) == ["uniform", "dose", "oracle", "stability"]
    base, dose, oracle, again = found.values()
    assert base.num_prompts == 4 * base.batch.prompts_per_minibatch  # as in Table 4
    assert dose.num_prompts == 3 * base.num_prompts == 4 * dose.batch.prompts_per_minibatch
    assert (dose.num_steps, dose.max_rollouts) == (base.num_steps, 0)
    assert (oracle.selector.name, oracle.measure.every) == ("strata", 10)
    assert oracle.num_prompts == base.num_prompts == (8 if name == "smollm" else 16)
    # Nothing but the order of a sum differs.
    micro = base.batch.prompts_per_microbatch // 2
    batch = dataclasses.replace(base.batch, prompts_per_microbatch=micro)
    assert again == dataclasses.replace(base, batch=batch)


def test_cero_plans_for_the_steps_of_the_run():
    assert planned("frontier,steps=30", arms="cero")["cero"].selector.options["steps"] == 30


def test_each_loss_is_as_its_authors_set_it_whatever_the_job_has():
    c = sweep.get_config("base=configs/tiny_grpo.py:smoke")
    c.arms, c.losses = "uniform,vade", "gspo,grpo,dapo,dr_grpo"
    c.seeds, c.run.sampling.max_tokens = "0", 40  # as an override of the command would
    found = {(run.arm, run.name.split("/")[1]): run.settings for run in runs.planned(c, "w")}
    assert {arm for arm, _ in found} == {"uniform", "vade"} and len(found) == 8
    set_to = lambda s: (
        *(s.loss.ratio, s.loss.clip_high, s.loss.aggregate),
        *(s.scale_by_std, s.reward.overlong_buffer),
    )
    assert {loss: set_to(s) for (arm, loss), s in found.items() if arm == "vade"} == {
        "gspo": ("sequence", 4e-4, "seq-mean-token-mean", True, 0),
        "grpo": ("token", 0.2, "token-mean", True, 0),
        "dapo": ("token", 0.28, "token-mean", True, 8),
        "dr_grpo": ("token", 0.2, "seq-mean-token-sum-norm", False, 0),
    }
