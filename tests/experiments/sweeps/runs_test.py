"""Which runs a sweep is made of, and with which configs."""

import dataclasses
import json
import pathlib
import shutil

import pytest

from configs import ablations, tiny_table1
from experiments.sweeps import runs
from vade_jax.data import hub
from vade_jax.run import job


def sweep(**fields):
    c = tiny_table1.get_config("smoke")
    c.update({"arms": "vanilla,vade", "losses": "gspo", "seeds": "0", **fields})
    return c


def planned(c, workdir="w"):
    return runs.planned(c.to_dict(), workdir)


def test_every_combination_lies_where_its_name_says():
    c = sweep(losses="gspo,grpo", data="clean,wrong10", seeds="3,1")
    found = planned(c)
    assert len(found) == 16 and {run.seed for run in found[:8]} == {3}
    assert found[0].name == "clean/gspo/vanilla_seed3"
    assert found[0].directory == "w/clean/gspo/vanilla_seed3"
    assert found[0].log == "w/clean/gspo/vanilla_seed3.log"
    last = found[-1]
    assert last.name == "wrong10/grpo/vade_seed1"
    assert (last.settings.seed, last.settings.data.wrong_golds) == (1, 0.1)
    assert last.settings.warm_start.directory == "w/warm_start_seed1"
    assert (last.settings.loss.ratio, found[0].settings.loss.ratio) == (
        "token",
        "sequence",
    )


def test_runs_of_a_seed_differ_in_nothing_that_the_warm_start_depends_on():
    c = sweep(arms=",".join(tiny_table1.get_config().known.arms), data="clean,wrong10")
    c.losses = "gspo,grpo"
    found = planned(c)
    assert len(found) == 4 * len(c.known.arms)
    recipes = {json.dumps(job.teaching(run.settings).recipe()) for run in found}
    assert len(recipes) == 1


def test_an_arm_changes_what_it_names_and_nothing_else():
    base = planned(sweep(arms="vade"))[0].settings.to_dict()
    greedy = planned(sweep(arms="vade_greedy"))[0].settings.to_dict()
    assert greedy["sampler"]["options"].pop("draw") == "greedy"
    assert base["sampler"]["options"].pop("draw") == "thompson"
    assert greedy == base
    both = planned(sweep(arms="vade_dapo,dapo"))
    options = both[0].settings.sampler.options
    assert options["base"] == "vade"
    assert options["base_options"]["warmup"] == base["sampler"]["options"]["warmup"]
    assert both[1].settings.sampler.options == {}
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
    assert c.run.sampler.name == "vade"  # the sweep's own is left as it is


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arms": "vannila"}, r"arms='vannila': did you mean 'vanilla'\? known are "),
        ({"arms": "vannila@1e-4"}, r"arms='vannila': did you mean 'vanilla'\?"),
        ({"arms": "vade@fast"}, r"arms='vade@fast': a learning rate after the @, such as 5e-5"),
        ({"arms": "vade@-1"}, r"clean/gspo/vade@-1_seed0: optimizer.learning_rate=-1"),
        ({"baseline": "vanila"}, r"baseline='vanila': did you mean 'vanilla'\? known are "),
        ({"baseline": "vade@fast"}, r"baseline='vade@fast': a learning rate after the @"),
        ({"losses": "ppo"}, r"losses='ppo': .*known are .*gspo"),
        ({"data": "dirty"}, r"data='dirty': .*known are clean, wrong10"),
        ({"arms": " "}, r"arms is empty: some of "),
        ({"seeds": "0-4"}, r"seeds='0-4': numbers with commas between"),
        ({"seeds": "-1"}, r"clean/gspo/vanilla_seed-1: seed=-1: must be in"),
        ({"run": {"num_prompts": 3}}, r"clean/gspo/vanilla_seed0: batch.prompts_per_m"),
        ({"run": {"seed": 7}}, r"run.seed=7: a sweep has seeds, such as --config.seeds"),
        (
            {"run": {"warm_start": {"directory": "a"}}},
            r"run.warm_start.directory='a': a sweep makes",
        ),
        ({"known": {"arms": {"vade": {"sampeler": {}}}}}, "sampeler"),
    ],
)
def test_mistakes_are_found_before_anything_runs(fields, message):
    with pytest.raises((ValueError, KeyError), match=message):
        planned(sweep(**fields))


def test_a_config_of_one_run_is_no_sweep():
    with pytest.raises(ValueError, match=r"give a sweep, such as configs/tiny_table1"):
        planned(tiny_table1.get_config().run)


def finish(folder, config, num_steps=2):
    """Leaves what a finished run leaves."""
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "config.json").write_text("{}")
    lines = [
        json.dumps({"step": step, "vade/rollouts_total": 16 * step, "vade/epochs": step / 4})
        for step in range(num_steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))


def test_a_sweep_may_be_moved(tmp_path):
    """The warm start's directory is another one then; what is in it says what it is of."""
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
    before = (tmp_path / "clean/gspo/vade_seed0/config.json").read_text()
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
    assert (tmp_path / "clean/gspo/vade_seed0/config.json").read_text() == before


def test_names_of_the_hub_are_those_that_a_finished_run_was_made_with(tmp_path, monkeypatch):
    """Every run of a sweep has the same commit, and none needs the network for what is finished."""
    c = sweep(arms="vade,vanilla")
    c.run.data.train = "hiyouga/geometry3k:train"
    pinned = f"hiyouga/geometry3k@{40 * 'a'}:train"
    asked = []
    monkeypatch.setattr(hub, "_snapshot", lambda *args: asked.append(args) or f"/cache/{40 * 'a'}")
    first = runs.pinned(planned(c, str(tmp_path)))
    assert {run.settings.data.train for run in first} == {pinned} and len(asked) == 1
    finish(tmp_path / "clean/gspo/vade_seed0", first[0].settings)
    monkeypatch.setattr(hub, "_snapshot", None)
    again = runs.pinned(planned(c, str(tmp_path)))
    assert [run.is_finished() for run in again[:2]] == [True, False]
    assert {run.settings.data.train for run in again} == {pinned}


def test_data_of_several_names_keep_the_commit_of_their_own_runs(tmp_path, monkeypatch):
    c = sweep(arms="vade")
    c.known.data = {word: {"data": {"train": f"own/{word}:train"}} for word in "ab"}
    c.data = "a,b"
    monkeypatch.setattr(hub, "_snapshot", lambda *_: f"/cache/{40 * 'a'}")
    first = runs.pinned(planned(c, str(tmp_path)))
    for run in first:
        finish(pathlib.Path(run.directory), run.settings)
    monkeypatch.setattr(hub, "_snapshot", lambda *_: f"/cache/{40 * 'b'}")  # it has moved on
    again = runs.pinned(planned(c, str(tmp_path)))
    assert [run.settings for run in again] == [run.settings for run in first]


def test_epochs_end_a_run_without_its_data_being_read(tmp_path):
    c = sweep(arms="vade")
    c.run.num_epochs = 2.5  # of 16 items, 4 a step
    run = planned(c, str(tmp_path))[0]
    assert run.settings.with_items(16).num_steps == 10
    for num_steps, is_finished in ((9, False), (10, True)):
        folder = tmp_path / "clean/gspo/vade_seed0"
        shutil.rmtree(folder, ignore_errors=True)
        finish(folder, run.settings, num_steps)
        assert run.is_finished() is is_finished


def test_ablations_are_of_any_job():
    c = ablations.get_config("base=configs/tiny_grpo.py:smoke")
    found = planned(c)
    assert {run.group for run in found} == {"clean/grpo"}
    assert {run.settings.loss.ratio for run in found} == {"token"}
    assert {run.settings.num_steps for run in found} == {2}
    of = {run.arm: run.settings.sampler.options for run in found if not run.seed}
    assert of["vade_warmup_full"]["warmup"] == "full"
    assert of["vade_decay_selected"]["decay_rest"] == 1.0  # that decay alone
    assert of["vade_decay_selected"]["decay_selected"] == of["vade"]["decay_selected"]
    assert c.baseline == "vade" and "vanilla" in of
    assert set(ablations.get_config("base=configs/qwen7b_gspo.py:split").known.arms)


def test_the_loss_is_that_of_the_job_whatever_its_file_is_called():
    of = lambda base: ablations.get_config(f"base=configs/{base}").losses
    assert of("geo3k.py") == "grpo"  # with another clip
    assert (of("math_text.py"), of("tiny_dapo.py:vade")) == ("gspo", "dapo")


@pytest.mark.parametrize(("base", "own"), [("tiny_gspo.py", "none"), ("geo3k.py:local", "full")])
def test_a_variant_that_changes_nothing_of_the_job_does_not_run(base, own):
    c = ablations.get_config(f"base=configs/{base}")
    found = [run.settings.sampler.options for run in planned(c) if not run.seed]
    assert len(found) == 12 and found.count(found[0]) == 1
    assert f"vade_warmup_{own}" not in c.arms and f"vade_warmup_{own}" in c.known.arms


def test_a_grid_over_both_decays():
    c = ablations.get_config("grid,base=configs/tiny_grpo.py:smoke")
    found = {run.arm: run.settings.sampler.options for run in planned(c) if not run.seed}
    assert len(found) == 16 and c.baseline in found and c.name == "decays"
    decays = {(o["decay_selected"], o["decay_rest"]) for o in found.values()}
    assert len(decays) == 16 and (0.2, 0.999) in decays
    options = found["decay_0_950"]
    assert (options["decay_selected"], options["decay_rest"]) == (0, 0.95)
    assert options["warmup"] == "none"  # what the run had


def test_losses_in_the_manner_of_ppo():
    """Whatever loss the job has, each of the four is as its authors set it."""
    c = ablations.get_config("losses,base=configs/tiny_grpo.py:smoke")
    found = {(run.arm, run.name.split("/")[1]): run.settings for run in planned(c) if not run.seed}
    assert {arm for arm, _ in found} == {"vanilla", "vade"} and len(found) == 8
    set_to = lambda s: (s.loss.ratio, s.loss.clip_high, s.loss.aggregate, s.scale_by_std)
    assert {loss: set_to(s) for (arm, loss), s in found.items() if arm == "vade"} == {
        "gspo": ("sequence", 4e-4, "seq-mean-token-mean", True),
        "grpo": ("token", 0.2, "token-mean", True),
        "dapo": ("token", 0.28, "token-mean", True),
        "dr_grpo": ("token", 0.2, "seq-mean-token-sum-norm", False),
    }


def test_dapos_buffer_follows_the_limit_of_answers():
    c = ablations.get_config("losses,base=configs/tiny_grpo.py:smoke")
    c.run.sampling.max_tokens = 40  # as an override of the command would
    buffer = {run.name.split("/")[1]: run.settings.reward.overlong_buffer for run in planned(c)}
    assert buffer == {"gspo": 0, "grpo": 0, "dapo": 8, "dr_grpo": 0}


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("grid,losses", r"'grid,losses': give grid or losses"),
        ("losses,base=configs/tiny_dapo.py:vade", r"'losses': give a base with GRPO or GSPO"),
        ("configs/tiny_grpo.py", r"'configs/tiny_grpo.py': give base=FILE"),
        ("base=configs/none.py", r"base='configs/none.py': no such file"),
        ("base=configs/tiny_gspo.py:uniform", r"give a run with VADE"),
    ],
)
def test_a_base_that_is_none(arg, message):
    with pytest.raises(ValueError, match=message):
        ablations.get_config(arg)
