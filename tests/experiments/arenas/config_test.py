"""configs/sweep.py: every job and what its runs differ in, and words that do not go together."""

import pytest

from configs import arenas, sweep
from experiments.arenas import runs
from vade_jax.data import procedural


def planned(arg, **fields):
    """The runs of seed 0 by arm; of several losses the last one's."""
    return {run.arm: run.settings for run in of_config(sweep.get_config(arg), **fields)}


def of_config(c, **fields):
    c.update({"seeds": "0", **fields})
    return runs.planned(c, "w")


# ------------------------------------------------------------------------------ the tiny job and its arenas
def test_table_1_is_the_default():
    c = sweep.get_config("smoke")
    found = of_config(c)
    assert (c.name, c.baseline) == ("table1", "uniform")
    assert {run.group for run in found} == {"clean/gspo", "clean/grpo"}
    assert {"dapo", "kalman", "vade_greedy"} <= {run.arm for run in found}


@pytest.mark.parametrize("name", arenas.ARENAS)
def test_the_controls_run_by_default(name):
    found = planned(name)
    assert list(found) == ["uniform", "dose", "oracle"]
    base, dose, oracle = found.values()
    assert base.num_prompts == 4 * base.batch.prompts_per_minibatch  # as in Table 4
    assert dose.num_prompts == 3 * base.num_prompts == 4 * dose.batch.prompts_per_minibatch
    assert (dose.num_steps, dose.max_rollouts) == (base.num_steps, 0)
    assert (oracle.selector.name, oracle.measure.every) == ("strata", 10)
    assert oracle.num_prompts == base.num_prompts == (8 if name == "smollm" else 16)


def test_an_arena_begins_from_what_pretraining_left():
    run = planned("smollm,pool=64", arms="informed")["informed"]
    assert run.model.checkpoint == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert run.data.num_train == 64
    source = procedural.Procedural(0, 64, mixture=run.data.mixture)
    assert not any(item.images for item in map(source.__getitem__, range(64)))
    with pytest.raises(ValueError, match="'model' is unknown"):
        sweep.get_config("smollm,model=tiny_6m")


def test_words_change_the_sizes():
    c = sweep.get_config("frontier,pool=4096,prompts=32,rollouts=4,model=tiny_6m")
    uniform, dose, _ = of_config(c)
    run = uniform.settings
    assert (run.data.num_train, run.num_prompts, run.num_rollouts) == (4096, 32, 4)
    assert dose.settings.num_prompts == 96
    assert uniform.start.settings.model.preset == "tiny_6m"
    assert uniform.start.lessons.noise["letter_0"] == arenas.SHY
    run = planned("digits,updates=8")["uniform"]
    assert (run.batch.prompts_per_minibatch, run.optimizer.decay_steps) == (2, 480)
    with pytest.raises(ValueError, match="prompts=16: no multiple of updates=3"):
        sweep.get_config("digits,updates=3")


def test_a_word_runs_the_grid_of_decays():
    found = planned("frontier,decays,smoke")
    pairs = {
        (run.selector.options["decay_selected"], run.selector.options["decay_rest"])
        for run in found.values()
    }
    assert len(found) == len(pairs) == 16 and (0.2, 0.999) in pairs


def test_selectors_are_arms_too():
    found = planned("ladder,smoke", arms="uniform,vade,kgps,vade_measured")
    assert found["kgps"].selector.name == "kgps"


# ------------------------------------------------------------------------------ any other job
def test_ablations_are_of_any_job():
    c = sweep.get_config("base=configs/tiny_grpo.py:smoke")
    found = of_config(c)
    assert {run.group for run in found} == {"clean/grpo"}
    assert {run.settings.loss.ratio for run in found} == {"token"}
    assert {run.settings.num_steps for run in found} == {2}
    of = {run.arm: run.settings.selector.options for run in found}
    assert of["vade_full_warmup"]["warmup"] == "full"
    assert of["vade_decay_selected"]["decay_rest"] == 1.0  # that decay alone
    assert of["vade_decay_selected"]["decay_selected"] == of["vade"]["decay_selected"]
    assert c.baseline == "vade" and "uniform" in of
    assert set(sweep.get_config("base=configs/qwen7b_gspo.py:split").known.arms)


def test_the_loss_is_that_of_the_job_whatever_its_file_is_called():
    of = lambda base: sweep.get_config(f"base=configs/{base}").losses
    assert of("geo3k.py") == "grpo"  # with another clip
    assert (of("math_text.py"), of("tiny_dapo.py:selector=vade")) == ("gspo", "dapo")


@pytest.mark.parametrize(("base", "own"), [("tiny_gspo.py", "none"), ("geo3k.py:local", "full")])
def test_a_variant_that_changes_nothing_of_the_job_does_not_run(base, own):
    c = sweep.get_config(f"base=configs/{base}")
    found = [run.settings.selector.options for run in of_config(c)]
    assert len(found) == 13 and found.count(found[0]) == 1
    own = {"none": "no_warmup", "full": "full_warmup"}[own]
    assert f"vade_{own}" not in c.arms and f"vade_{own}" in c.known.arms


def test_a_grid_over_both_decays():
    c = sweep.get_config("decays,base=configs/tiny_grpo.py:smoke")
    found = {run.arm: run.settings.selector.options for run in of_config(c)}
    assert len(found) == 16 and c.baseline in found and c.name == "decays"
    decays = {(o["decay_selected"], o["decay_rest"]) for o in found.values()}
    assert len(decays) == 16 and (0.2, 0.999) in decays
    options = found["decay_0_950"]
    assert (options["decay_selected"], options["decay_rest"]) == (0, 0.95)
    assert options["warmup"] == "none"  # what the run had


def test_losses_in_the_manner_of_ppo():
    """Whatever loss the job has, each of the four is as its authors set it."""
    c = sweep.get_config("losses,base=configs/tiny_grpo.py:smoke")
    found = {(run.arm, run.name.split("/")[1]): run.settings for run in of_config(c)}
    assert {arm for arm, _ in found} == {"uniform", "vade"} and len(found) == 8
    set_to = lambda s: (s.loss.ratio, s.loss.clip_high, s.loss.aggregate, s.scale_by_std)
    assert {loss: set_to(s) for (arm, loss), s in found.items() if arm == "vade"} == {
        "gspo": ("sequence", 4e-4, "seq-mean-token-mean", True),
        "grpo": ("token", 0.2, "token-mean", True),
        "dapo": ("token", 0.28, "token-mean", True),
        "dr_grpo": ("token", 0.2, "seq-mean-token-sum-norm", False),
    }


def test_dapos_buffer_follows_the_limit_of_answers():
    c = sweep.get_config("losses,base=configs/tiny_grpo.py:smoke")
    c.run.sampling.max_tokens = 40  # as an override of the command would
    buffer = {run.name.split("/")[1]: run.settings.reward.overlong_buffer for run in of_config(c)}
    assert buffer == {"gspo": 0, "grpo": 0, "dapo": 8, "dr_grpo": 0}


# ------------------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("forntier", r"'forntier' is unknown: did you mean 'frontier'\?"),
        ("prompts=32", r"'prompts' is unknown"),  # of an arena alone
        (
            "frontier,prompts=64,smoke,pool=9",
            r"smoke has sizes of its own, leave out prompts=64,pool=9$",
        ),
        ("frontier,ladder", r"'frontier,ladder': give one job, frontier, ladder or base=FILE"),
        ("frontier,base=configs/tiny_gspo.py", r"give one job, frontier or base=FILE"),
        ("decays,losses", r"'decays,losses': give decays or losses"),
        ("controls", r"'controls': controls are of an arena, one of frontier, ladder, digits"),
        ("smoke,base=configs/tiny_gspo.py", r"smoke is for the base, base=FILE:smoke"),
        (
            "losses,base=configs/tiny_dapo.py:selector=vade",
            r"losses are of a base with GRPO or GSPO",
        ),
        ("configs/tiny_grpo.py", r"'configs/tiny_grpo.py' is unknown: known are .*base, "),
        ("base=configs/none.py", "base='configs/none.py:get_config': .* does not exist"),
        ("base=", "base=':get_config': write"),
        ("base=configs/tiny_gspo.py:uniform", r"give a run with VADE"),
    ],
)
def test_words_that_name_no_sweep(arg, message):
    with pytest.raises(ValueError, match=message):
        sweep.get_config(arg)
