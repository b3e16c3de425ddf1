"""Which runs a sweep is made of, and with which configs."""

import dataclasses

import pytest

from configs import sweep as sweep_config
from experiments.arenas import runs
from vade_jax.store import run_file


def sweep(**fields):
    c = sweep_config.get_config("smoke")
    c.update({"arms": "uniform,vade", "losses": "gspo", "seeds": "0", **fields})
    return c


def planned(c, workdir="w"):
    return runs.planned(c, workdir)


def test_every_combination_lies_where_its_name_says():
    c = sweep(losses="gspo,grpo", data="clean,wrong10", seeds="3,1")
    found = planned(c)
    assert len(found) == 16 and {run.seed for run in found[:8]} == {3}
    assert found[0].name == "clean/gspo/uniform_seed3"
    assert found[0].directory == "w/clean/gspo/uniform_seed3"
    assert found[0].log == "w/clean/gspo/uniform_seed3.log"
    last = found[-1]
    assert last.name == "wrong10/grpo/vade_seed1"
    assert (last.settings.seed, last.settings.data.wrong_golds) == (1, 0.1)
    model = last.settings.model
    assert (model.checkpoint, model.preset) == ("w/warm_start_seed1", "")
    assert (last.settings.loss.ratio, found[0].settings.loss.ratio) == (
        "token",
        "sequence",
    )


def test_a_seed_has_one_warm_start_and_none_without_lessons():
    c = sweep(seeds="3,1", data="clean,wrong10")
    starts = {run.seed: run.start for run in planned(c)}
    for run in planned(c):
        assert run.start == starts[run.seed]
    assert (starts[1].directory, starts[1].lessons.num_steps) == ("w/warm_start_seed1", 2)
    model = starts[1].settings.model
    assert (starts[1].settings.seed, model.preset, model.checkpoint) == (1, "tiny", "")
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


def test_an_arm_may_have_a_learning_rate_of_its_own():
    same, other = planned(sweep(arms="vade,vade@5e-5"))
    assert (other.arm, other.name) == ("vade@5e-5", "clean/gspo/vade@5e-5_seed0")
    assert other.settings.optimizer.learning_rate == 5e-5
    rate = same.settings.optimizer.learning_rate
    back = dataclasses.replace(other.settings.optimizer, learning_rate=rate)
    assert dataclasses.replace(other.settings, optimizer=back) == same.settings


def test_what_all_runs_share_is_changed_in_one_place():
    c = sweep()
    c.run.num_steps = 7
    assert {run.settings.num_steps for run in planned(c)} == {7}
    assert c.run.selector.name == "vade"  # the sweep's own is left as it is


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arms": "unifrom"}, r"arms='unifrom': did you mean 'uniform'\? known are "),
        ({"arms": "unifrom@1e-4"}, r"arms='unifrom': did you mean 'uniform'\?"),
        ({"arms": "vade@fast"}, r"arms='vade@fast': a learning rate after the @, such as 5e-5"),
        ({"arms": "vade@-1"}, r"clean/gspo/vade@-1_seed0: optimizer.learning_rate=-1"),
        ({"baseline": "unifrom"}, r"baseline='unifrom': did you mean 'uniform'\? known are "),
        ({"baseline": "vade@fast"}, r"baseline='vade@fast': a learning rate after the @"),
        ({"losses": "ppo"}, r"losses='ppo': .*known are .*gspo"),
        ({"data": "dirty"}, r"data='dirty': .*known are clean, wrong10"),
        ({"arms": " "}, r"arms is empty: some of "),
        ({"seeds": "0-4"}, r"seeds='0-4': numbers with commas between"),
        ({"seeds": "-1"}, r"seed=-1: must be in"),
        ({"run": {"num_prompts": 3}}, r"batch.prompts_per_m"),
        ({"run": {"seed": 7}}, r"run.seed=7: a sweep has seeds, such as --config.seeds"),
        ({"lessons": {"num_steps": -1}}, r"lessons.num_steps=-1: must be in"),
        ({"lessons": {"noise": {"color_3": 0.5}}}, r"noise='color_3': did you mean 'color_[01]'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(fields, message):
    with pytest.raises((ValueError, KeyError), match=message):
        planned(sweep(**fields))


def test_a_config_of_one_run_is_no_sweep():
    with pytest.raises(ValueError, match=r"give a sweep, such as configs/sweep"):
        planned(sweep_config.get_config().run)


def finish(folder, config, num_steps=2):
    """Leaves what a finished run leaves."""
    folder.mkdir(parents=True)
    totals = {"step": num_steps, "rollouts_total": 16 * num_steps, "num_items": 16}
    run_file.write(folder, {"state": "done", **totals, "settings": config.to_dict()})


def test_a_sweep_may_be_moved(tmp_path):
    """The model that its runs began from has another place then."""
    c = sweep(arms="vade")
    run = planned(c, str(tmp_path / "a"))[0]
    finish(tmp_path / "a/clean/gspo/vade_seed0", run.settings)
    (tmp_path / "a").rename(tmp_path / "b")
    assert planned(c, str(tmp_path / "b"))[0].is_finished()


def test_a_finished_run_is_reused_if_it_is_of_the_same_config(tmp_path):
    c = sweep(arms="vade")
    run = planned(c, str(tmp_path))[0]
    assert not run.is_finished()
    finish(tmp_path / "clean/gspo/vade_seed0", run.settings)
    assert planned(c, str(tmp_path))[0].is_finished()
    c.run.data.num_threads = 1  # changes no number
    assert planned(c, str(tmp_path))[0].is_finished()
    c.run.num_steps = 3  # goes on
    assert not planned(c, str(tmp_path))[0].is_finished()
    before = (tmp_path / "clean/gspo/vade_seed0/run.json").read_text()
    shorter, judged, wider = c.copy_and_resolve_references(), sweep(arms="vade"), sweep(arms="vade")
    shorter.run.num_steps, judged.run.eval.every, wider.run.num_rollouts = 1, 1, 8
    differing = {
        "num_steps: 2 there, 1 now": shorter,
        "eval.every": judged,
        "4 there, 8 now": wider,
    }
    for message, other in differing.items():  # would stand beside it in one table
        with pytest.raises(ValueError, match=message):
            planned(other, str(tmp_path))
    assert (tmp_path / "clean/gspo/vade_seed0/run.json").read_text() == before
