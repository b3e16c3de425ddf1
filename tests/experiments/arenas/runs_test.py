"""Which runs a sweep is made of, and which of them are finished."""

import pytest

from configs import sweep as sweep_config
from experiments.arenas import runs
from vade_jax.store import run_file


def sweep(**fields):
    c = sweep_config.get_config("smoke")
    c.update({"arms": "uniform,vade", "losses": "gspo", "seeds": "0", **fields})
    return c


def planned(c, workdir="w"):
    return runs.planned(c, str(workdir))


def test_every_combination_lies_where_its_name_says_and_a_seed_has_one_warm_start():
    c = sweep(losses="gspo,grpo", data="clean,wrong10", seeds="3,1")
    found = planned(c)
    assert len(found) == 16 and {run.seed for run in found[:8]} == {3}
    first, last = found[0], found[-1]
    assert first.name == "clean/gspo/uniform_seed3" and first.directory == f"w/{first.name}"
    assert (last.name, last.settings.seed) == ("wrong10/grpo/vade_seed1", 1)
    assert last.settings.data.wrong_golds == 0.1
    assert (last.settings.loss.ratio, first.settings.loss.ratio) == ("token", "sequence")
    assert {run.start.directory for run in found if run.seed == 1} == {"w/warm_start_seed1"}
    model, taught = last.settings.model, last.start.settings
    assert (model.checkpoint, model.preset) == ("w/warm_start_seed1", "")
    assert (taught.seed, taught.model.preset, last.start.lessons.num_steps) == (1, "tiny", 2)
    c.lessons.num_steps = 0
    assert {(run.start, run.settings.model.preset) for run in planned(c)} == {(None, "tiny")}


def test_an_arm_changes_what_it_names_and_nothing_else():
    base = planned(sweep(arms="vade"))[0].settings.to_dict()
    greedy = planned(sweep(arms="vade_greedy"))[0].settings.to_dict()
    assert greedy["selector"]["options"].pop("draw") == "greedy"
    assert base["selector"]["options"].pop("draw") == "thompson"
    assert greedy == base
    both = planned(sweep(arms="vade_dapo,dapo"))
    options = both[0].settings.selector.options
    assert options["base"] == "vade"
    assert options["base_options"]["warmup"] == base["selector"]["options"]["warmup"]
    assert both[1].settings.selector.options == {}
    limits = [(run.settings.refill.max_rounds, run.settings.budget) for run in both]
    assert limits == [(0, 3), (0, 3)]


def finish(run):
    """Leaves what a finished run leaves."""
    totals = {"step": 2, "rollouts_total": 32, "num_items": 16}
    content = {"state": "done", **totals, "settings": run.settings.to_dict()}
    run_file.write(run.directory, content)


def test_a_finished_run_is_reused_if_it_is_of_the_same_config(tmp_path):
    c = sweep(arms="vade")
    run = planned(c, tmp_path / "a")[0]
    assert not run.is_finished()
    finish(run)
    (tmp_path / "a").rename(tmp_path / "b")  # then the model that it began from has another place
    c.run.data.num_threads = 1  # changes no number
    assert planned(c, tmp_path / "b")[0].is_finished()
    c.run.num_steps = 3  # goes on
    assert not planned(c, tmp_path / "b")[0].is_finished()
    for name, value in (("num_steps", 1), ("eval.every", 1), ("num_rollouts", 8)):
        other = sweep(arms="vade")
        other.run.update_from_flattened_dict({name: value})
        with pytest.raises(ValueError, match=rf"{name}: \d there, {value} now"):
            planned(other, tmp_path / "b")  # would stand next to it in one table
