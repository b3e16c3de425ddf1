"""Measures how much of a step is saved by answering while the policy learns (`engine.max_lag`).

Loop, producer, selector and scoring are those of a run. Engine, learner and sync only sleep. An answer takes
as long as a draw from a lognormal distribution says, and a call as long as its slowest answer, as with real
stragglers. The floor of a step in turns is the sum of the three times, that of a step ahead the longer of
answering and learning, and the sync.
"""

import dataclasses
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import timing
from experiments.bench.long import Items, prompt, score
from vade_jax import samplers
from vade_jax.rollout import fake
from vade_jax.store import metrics
from vade_jax.trainer import choosing, loop, scoring
from vade_jax.trainer.producer import Producer
from vade_jax.types import TrainState

NUM_ITEMS, NUM_PROMPTS = 256, 16
NUM_STEPS = 12
MEDIAN_S, SPREAD = 0.08, 0.5  # of an answer; the slowest of 128 takes 4 times the median
LEARN_S, SYNC_S = 0.3, 0.03


def run(quick: bool) -> Iterator[timing.Table]:
    """Yields a table of steps with and without a lag."""
    scale, num_steps = (0.1, 3) if quick else (1.0, NUM_STEPS)
    selector = samplers.SAMPLERS["vade"]()
    Job(selector, scale=0.0).run(0, num_steps=3)  # compiles
    times, floors = {}, {}
    for name, lag in (("a step ahead", 1), ("in turns", 0)):
        job = Job(selector, scale)
        times[name] = job.run(lag, num_steps) / num_steps
        floors[name] = job.floor(lag) / num_steps
    yield timing.table(
        f"a step of {NUM_PROMPTS} prompts with stragglers, mean of {num_steps}",
        times,
        floors,
        "the sleep of engine, learner and sync; a step ahead, the first two at once",
    )


class Engine(fake.FakeEngine):
    """Sleeps for its slowest answer, and while it takes weights."""

    def __init__(self, scale: float):
        rates = {str(i): rate for i, rate in enumerate(np.linspace(0, 1, NUM_ITEMS))}
        super().__init__(rates, seconds=self._seconds)
        self._scale = scale
        self.slept = []  # seconds of each call

    def _seconds(self, key: jax.Array, number: int) -> np.ndarray:
        normal_N = np.asarray(jax.random.normal(jax.random.fold_in(key, 1), (number,)))
        seconds_N = self._scale * MEDIAN_S * np.exp(SPREAD * normal_N)
        self.slept.append(float(seconds_N.max()))
        return seconds_N

    def sync(self, params, version: int) -> None:
        """See `Engine.sync`."""
        time.sleep(self._scale * SYNC_S)
        super().sync(params, version)


@dataclasses.dataclass(frozen=True)
class Silent:
    """A recorder of a run that is only timed."""

    def step(self, step, metrics, data) -> None: ...

    def add(self, step, metrics) -> None: ...

    def save(self, progress, *, last) -> None: ...


class Job:
    """A run whose engine and learner sleep."""

    def __init__(self, selector: samplers.Sampler, scale: float):
        self._selector, self._scale, self._engine = selector, scale, Engine(scale)

    def run(self, lag: int, num_steps: int) -> float:
        """Returns the seconds of a run of so many steps."""
        choose = choosing.ChoosePrompts(self._selector, Items(NUM_ITEMS), prompt)
        producer = Producer(
            choose,
            self._engine,
            scoring.Scorer(score),
            key=jax.random.key(0),
            num_prompts=NUM_PROMPTS,
            lag=lag,
            overlaps=True,
        )
        state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
        posterior = self._selector.init(NUM_ITEMS)
        start = loop.Progress(state, posterior, np.zeros(NUM_ITEMS, np.int32))
        began = time.perf_counter()
        loop.Loop(
            num_steps=num_steps,
            producer=producer,
            learn=self._learn,
            validate=lambda engine, key, version, known: ({}, known),
            recorder=Silent(),
            eval_every=0,
        ).run(start)
        return time.perf_counter() - began

    def _learn(self, state, prompts, rollouts, advantage_N) -> tuple[TrainState, metrics.Record]:
        time.sleep(self._scale * LEARN_S)
        return state, {"actor/loss": 0.0}

    def floor(self, lag: int) -> float:
        """Returns the seconds that the run had to take: the first answers and the last update are alone."""
        answer_T, learn, sync = self._engine.slept, self._scale * LEARN_S, self._scale * SYNC_S
        syncs = sync * (len(answer_T) + 1)  # one before the first step
        if not lag:
            return sum(answer_T) + learn * len(answer_T) + syncs
        return answer_T[0] + sum(max(seconds, learn) for seconds in answer_T[1:]) + learn + syncs
