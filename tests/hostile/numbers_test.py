"""Numbers that are none, and runs at the edges: a step says what is wrong with it, or goes well."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

from experiments import hooks, train
from tests.run.selectors_test import NAMES, POLICY, fake_parts, smoke  # noqa: F401 (a fixture)
from tests.trainer import fakes, small, update_test
from vade_jax import settings
from vade_jax.data import procedural
from vade_jax.rollout import fake
from vade_jax.run import checks, datasets, engines, job
from vade_jax.store import metrics
from vade_jax.trainer import objectives, scoring, update
from vade_jax.types import TrainState

STEPS = np.random.default_rng(3).integers(1, 12, 3)
NONE = [np.nan, np.inf, -np.inf]


# ------------------------------------------------------------------------------ of the answers
def put(x_N, value, n=5):
    x_N = np.array(x_N, np.float32)
    x_N[n] = value
    return x_N


def poisoned(what, value, at):
    """Returns the options of a run in which one number of step `at` is `value`."""

    class Engine(fakes.Engine):
        def generate(self, prompts, num_rollouts_M, key, version, *args, **kwargs):
            found = super().generate(prompts, num_rollouts_M, key, version, *args, **kwargs)
            self.is_bad = version + 1 == at
            if what == "log-probs" and self.is_bad:
                return found.replace(logp_NT=put(found.logp_NT, value))
            return found

    engine = Engine()

    def score(item, answers):
        found = fakes.score.score(item, answers)
        if what == "reward" and engine.version + 1 == at:
            found[0] = scoring.Scored("", None, reward=value, correct=1.0)
        return found

    def learn(state, *args):
        state, losses = fakes.learn(state, *args)
        # What the update says where the gradient, or a new parameter, is none: see below.
        poison = what in ("gradient", "weight") and engine.version + 1 == at
        name = {"gradient": "actor/grad_norm", "weight": "actor/param_norm"}.get(what, "actor/lr")
        return state, losses | {name: value if poison else 1.0}

    def advantage(*args):
        found_N = scoring.usual_advantage(*args)
        return put(found_N, value) if what == "advantage" and engine.is_bad else found_N

    return {
        "engine": engine,
        "score": scoring.Scorer(score),
        "learn": learn,
        "advantage": advantage,
    }


NAMED = {
    "reward": r"the reward of an answer to \d+: ",
    "log-probs": r"the log-probs, as the engine says, of an answer to \d+: ",
    "advantage": r"the advantage of an answer to \d+: ",
    "gradient": r"actor/grad_norm",
    "weight": r"actor/param_norm",
}


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("value", NONE, ids=str)
@pytest.mark.parametrize("what", NAMED)
def test_a_number_that_is_none_ends_the_run_at_its_step(what, value, at):
    if what == "reward" and np.isnan(value):
        pytest.skip("a reward of NaN is an answer without a verdict: see loop_test")
    options = poisoned(what, value, at)
    recorder = fakes.Recorder()
    with pytest.raises(scoring.NotFinite, match=rf"^step {at}: .*{NAMED[what]}.*last checkpoint"):
        fakes.run("vade", 12, recorder=recorder, **options)
    assert [step for step, _ in recorder.saved] == list(range(1, at))
    # What the update made of the step stands beside its answers; a bad answer never gets that far.
    assert sorted(recorder.metrics) == list(range(at + (what in ("gradient", "weight"))))


# ------------------------------------------------------------------------------ of the update
BATCH = update_test.split(small.rollouts(np.full(4, 4)), np.zeros(16, np.float32))
ADAM = update.make_optimizer(settings.Optimizer(learning_rate=0.1, weight_decay=0.0))


GRPO = objectives.group_rl(small.GRPO)


def step(state, objective=GRPO, optimizer=ADAM, batch=BATCH):
    return update.make(update_test.table_logp, objective, optimizer)(state, batch)


def start(optimizer=ADAM, **params):
    params = {"w": jnp.asarray(update_test.TABLE), **params}
    return TrainState(params=params, opt_state=optimizer.init(params), step=jnp.int32(0))


def broken_gradient(logp_NT, batch, totals):
    """A finite loss whose gradient is none: the square root of 0 has an infinite one."""
    return jnp.sum(jnp.sqrt(jnp.square(logp_NT) * 0)), {}


def broken_update(value):
    return optax.stateless(lambda updates, _: jax.tree.map(lambda x: x + value, updates))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"objective": broken_gradient}, "actor/grad_norm"),
        *(({"optimizer": broken_update(value)}, "actor/param_norm") for value in NONE),
        *(({"state": start(unread=jnp.array([value]))}, "actor/param_norm") for value in NONE),
        *(
            ({"batch": BATCH.replace(**{name: getattr(BATCH, name) + value})}, "actor/loss")
            for name in ("advantage_N", "old_logp_NT", "ref_logp_NT")
            for value in NONE[:1]
        ),
    ],
)
def test_the_update_tells_of_what_is_none(options, named):
    """An optimizer's moments that are none make parameters that are; a weight may be read by nobody."""
    state = options.pop("state", None) or start(options.get("optimizer", ADAM))
    _, losses = step(state, **options)
    with pytest.raises(scoring.NotFinite, match=rf"step 7: .*'{named}': (nan|inf)"):
        scoring.check_losses("step 7", losses)


def test_fifty_steps_without_any_advantage_leave_the_policy_as_it_is():
    state = first = start()
    plain = objectives.group_rl(small.loss("token", 0.2, 0.2, "token-mean"))
    compiled = jax.jit(functools.partial(step, objective=plain))
    for _ in range(50):
        state, losses = compiled(state)
        scoring.check_losses("", losses)
    np.testing.assert_array_equal(state.params["w"], first.params["w"])
    assert losses["actor/grad_norm"] == 0


# ------------------------------------------------------------------------------ at the edges
EDGES = {  # name: changes of the smoke config, steps, the pass rate of all items
    "all right": ({}, 50, 1.0),
    "all wrong": ({}, 50, 0.0),
    "groups of two": ({"num_rollouts": 2}, 8, 0.5),
    "a batch of all items": ({"num_prompts": 8, "data.num_train": 8}, 8, 0.5),
    "a batch of all items but one": ({"num_prompts": 8, "data.num_train": 9}, 8, 0.5),
    "one prompt": (
        {
            "num_prompts": 1,
            "data.num_train": 1,
            "batch.prompts_per_minibatch": 1,
            "batch.prompts_per_microbatch": 1,
        },
        8,
        0.5,
    ),
}
QUICK = ("vade", "dapo")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(x, marks=pytest.mark.slow) for x in NAMES if x not in QUICK)]
)
@pytest.mark.parametrize("edge", EDGES)
def test_every_selector_at_the_edges(edge, name, fake_parts, monkeypatch):  # noqa: F811
    changes, num_steps, rate = EDGES[edge]
    c = smoke(name)
    c.update_from_flattened_dict({"num_steps": num_steps, **changes})
    if name == "vcrl" and c.data.num_train < 2 * c.num_prompts:
        c.selector.options.replay = "next_step"  # its second round would have no items
        c.refill.max_rounds = 1
    run, size = settings.Run.from_dict(c.to_dict()), c.data.num_train
    checks.check(run, hooks.ALL)
    checks.check_size(run, size)
    make = lambda *_, **__: fake.FakeEngine({f"train-0-{i}": rate for i in range(size)})
    monkeypatch.setattr(engines, "make", make)
    items = datasets.Subset(procedural.Procedural(0, size), range(size))
    arrays = datasets.per_item(items, run.selector.arrays)
    data = datasets.Datasets(items, items, fakes.build_prompt, arrays)
    loop, progress = job.prepare(run, POLICY, data=data, workdir="")
    progress = loop.run(progress)
    assert progress.step == num_steps and 1 <= np.count_nonzero(progress.visited_I) <= size
    for number, record in fake_parts.metrics.items():
        assert all(np.isfinite(x) for x in record.values() if x is not None), (number, record)
    if num_steps == 50:
        assert not any(r.get("vade/effective_ratio") for r in fake_parts.metrics.values())
    for x in jax.tree.leaves(progress.posterior):
        assert not np.issubdtype(x.dtype, np.floating) or not np.isnan(x).any()


class Answers:
    """An engine whose answers are all changed."""

    def __init__(self, engine, change):
        self._engine, self._change = engine, change

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, prompts, num_rollouts_M, *args, on_group, **kwargs):
        found = self._change(self._engine.generate(prompts, num_rollouts_M, *args, **kwargs))
        for m in range(len(prompts)):
            of_m = found.group_N == m
            pairs = zip(found.token_NT[of_m], found.length_N[of_m], strict=True)
            on_group(m, [tokens[:length] for tokens, length in pairs])
        return found


def end_at_once(rollouts):
    token_NT, logp_NT = np.zeros_like(rollouts.token_NT), rollouts.logp_NT.copy()
    token_NT[:, 0], logp_NT[:, 1:] = small.STOP[0], 0
    ones_N = np.ones(len(token_NT), np.int32)
    return rollouts.replace(
        token_NT=token_NT, logp_NT=logp_NT, length_N=ones_N, finished_N=ones_N.astype(bool)
    )


def cut_off(rollouts):
    return rollouts.replace(finished_N=np.zeros(len(rollouts.token_NT), bool))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "masked", "kl_coef", "skipped"),
    [
        (end_at_once, False, 0.01, 0),
        (end_at_once, False, 0.0, 3),
        (cut_off, False, 0.01, 0),
        (cut_off, True, 0.01, 3),
    ],
)
def test_a_run_of_nothing_but(
    change, masked, kl_coef, skipped, tmp_path, one_device, small_checkpoint, monkeypatch
):
    """Empty answers, or answers that were all cut off: three steps of the whole program.

    All are wrong, so their advantages are 0. The weights stay where no KL pulls, or no answer counts.
    """
    make = engines.make
    monkeypatch.setattr(engines, "make", lambda *args, **kw: Answers(make(*args, **kw), change))
    c = smoke("vade")
    c.model.preset, c.model.checkpoint = "", str(small_checkpoint)
    c.eval.every, c.checkpoint.every = 9, 9
    c.loss.kl_coef, c.loss.mask_cut_off = kl_coef, masked
    train.main(c, str(tmp_path / "run"))
    records = metrics.read(tmp_path / "run")
    assert [record["step"] for record in records] == [0, 1, 2, 3]
    assert records[-1]["vade/skipped_updates"] == skipped
    assert records[-1]["response_length/clip_ratio"] == float(change is cut_off)
    assert np.isfinite([x for r in records for x in r.values() if isinstance(x, float)]).all()
    start, end = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (small_checkpoint, tmp_path / "run" / "policy")
    )
    moved = [name for name in start if not np.array_equal(start[name], end[name])]
    assert bool(moved) == (skipped == 0), moved
