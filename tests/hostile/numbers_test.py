"""Numbers that are none: a step says what is wrong with it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer import fakes, small, update_test
from vade_jax import settings
from vade_jax.rewards import functions
from vade_jax.trainer import scoring, update
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

    def judge(item, texts, answers):
        found = fakes.judge(item, texts, answers)
        if what == "reward" and engine.version + 1 == at:
            found[0] = functions.Judgement(value, 1.0)
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
        "score": fakes.scorer(judge),
        "learn": learn,
        "advantage": advantage,
    }


NAMED = {
    "reward": r"the reward of an answer to \d+: ",
    "log-probs": r"the log-probs reported by the engine of an answer to \d+: ",
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


GRPO = update.group_rl(small.GRPO)


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
