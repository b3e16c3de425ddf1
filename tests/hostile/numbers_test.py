"""Numbers that are none, and runs at the edges: a step says what is wrong with it, or goes well."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import hooks
from tests.run.selectors_test import NAMES, POLICY, fake_parts, smoke  # noqa: F401 (a fixture)
from tests.trainer import fakes, small, update_test
from vade_jax import settings
from vade_jax.data import procedural
from vade_jax.rollout import fake
from vade_jax.run import checks, datasets, engines, job
from vade_jax.trainer import objectives, scoring, update
from vade_jax.types import TrainState

STEPS = (1, 7)
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
