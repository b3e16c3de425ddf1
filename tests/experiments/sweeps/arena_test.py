"""The arenas: each a sweep whose runs can start, with its controls."""

import pytest

from configs import arena
from experiments.sweeps import runs


def planned(arg, **fields):
    c = arena.get_config(arg)
    c.update({"seeds": "0", **fields})
    return {run.arm: run.settings for run in runs.planned(c.to_dict(), "w")}


@pytest.mark.parametrize("name", arena.ARENAS)
def test_the_controls_run_by_default(name):
    found = planned(name)
    assert list(found) == ["vanilla", "dose", "oracle"]
    base, dose, oracle = found.values()
    assert base.num_prompts == 4 * base.batch.prompts_per_minibatch  # as in Table 4
    assert dose.num_prompts == 3 * base.num_prompts == 4 * dose.batch.prompts_per_minibatch
    assert (dose.num_steps, dose.max_rollouts) == (base.num_steps, 0)
    assert (oracle.sampler.name, oracle.measure.every, oracle.num_prompts) == ("strata", 10, 16)


def test_words_change_the_sizes():
    found = planned("frontier,pool=4096,prompts=32,rollouts=4,model=tiny_6m")
    run = found["vanilla"]
    assert (run.data.num_train, run.num_prompts, run.num_rollouts) == (4096, 32, 4)
    assert (run.model.preset, found["dose"].num_prompts) == ("tiny_6m", 96)


def test_a_word_runs_the_grid_of_decays():
    found = planned("frontier,grid,smoke")
    assert len(found) == 17 and found.pop("vanilla").sampler.name == "uniform"
    pairs = {
        (run.sampler.options["decay_selected"], run.sampler.options["decay_rest"])
        for run in found.values()
    }
    assert len(pairs) == 16 and (0.2, 0.999) in pairs


def test_selectors_are_arms_too():
    found = planned("ladder,smoke", arms="vanilla,vade,kgps,vade_measured")
    assert found["kgps"].sampler.name == "kgps"


@pytest.mark.parametrize("arg", [None, "forntier", "smoke"])
def test_an_unknown_arena_is_one_clear_error(arg):
    with pytest.raises(ValueError, match="give an arena, one of frontier, ladder, digits"):
        arena.get_config(arg)


def test_sizes_beside_those_of_smoke_are_one_clear_error():
    with pytest.raises(
        ValueError, match=r"smoke has sizes of its own, leave out prompts=64,pool=9$"
    ):
        arena.get_config("frontier,prompts=64,smoke,pool=9")
