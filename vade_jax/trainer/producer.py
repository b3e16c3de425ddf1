"""Makes what a step learns from: prompts, answers and rewards; and the posterior updated by them.

One object owns the choice of prompts, the engine and the reward. The loop owns the weights, and passes in the
posterior, which is part of a checkpoint.

**Lag.** With lag L the batch of step t is made by version max(0, t - 1 - L) of the weights: while the policy
learns from batch t, the engine makes batch t + L with the weights that it has, of step t - 1. Whole batches
are made, one after another and in order, and no weights are sent meanwhile. So the version is a function of
the step alone, nothing is under way between two steps, and a checkpoint with the batches that wait resumes
exactly. L = 1 has all the speed; more is for studying lag.
"""

import dataclasses
from collections.abc import Callable
from concurrent import futures

import jax
import numpy as np

from vade_jax import rng, samplers, settings
from vade_jax.rollout.engine import Engine
from vade_jax.trainer import passes, processes, rounds, scoring
from vade_jax.trainer.choosing import ChoosePrompts, Chosen, Lookahead
from vade_jax.trainer.rounds import Gathering, Round, StepData
from vade_jax.trainer.scoring import Advantage, Scorer
from vade_jax.trainer.timing import Clock
from vade_jax.types import Feedback, Metrics


@dataclasses.dataclass(frozen=True)
class Made:
    """A batch of rollouts for one step."""

    step: int  # that learns from it
    data: StepData
    clock: Clock  # of its making

    @property
    def version(self) -> int:
        """The version of the weights that made it."""
        return int(self.data.rollouts.params_version)

    @property
    def num_answers(self) -> int:
        """The number of its answers, in all rounds."""
        return len(self.data.feedback.length_N)

    def metrics(self) -> Metrics:
        """Returns how many steps older its weights are than those that learn from it, by verl's name."""
        staleness = self.step - 1 - self.version
        return {"training/off_policy/trajectory_staleness/mean": staleness}


@dataclasses.dataclass(frozen=True)
class Stock:
    """The batches that wait to be learned from, in order, and the posterior after the last of them."""

    posterior: samplers.State
    queue: tuple[Made, ...]
    made: int  # the step that the last batch ever made is for
    rollouts_total: int  # answers ever made, those of passes included

    def add(self, one: Made, posterior: samplers.State) -> "Stock":
        """Returns the stock with one more batch, and the posterior updated by it."""
        total = self.rollouts_total + one.num_answers
        return Stock(posterior, (*self.queue, one), one.step, total)

    def take(self) -> tuple[Made, "Stock"]:
        """Returns the batch that waits longest, and the rest."""
        return self.queue[0], dataclasses.replace(self, queue=self.queue[1:])


class Producer:
    """Rolls out steps and passes over all items. Use it in a `with` statement.

    Args:
        choose: asks the selector, and builds the prompts.
        engine: makes the answers.
        score: rewards them.
        key: of the whole run. Draws depend only on it and on the step's number.
        num_prompts: B, prompts a step.
        advantage: compares the answers of a group (Eq. 2).
        refill: what a step does about the groups that the selector drops.
        measure: when all items are rolled out for the selector alone.
        lag: L, the most steps between the weights that answer and those that learn.
        overlaps: whether batches are made in a thread, while the policy learns. Otherwise the two take turns,
            with the same numbers.
        engine_devices: devices that only the engine has, to count what a step costs.
    """

    def __init__(
        self,
        choose: ChoosePrompts,
        engine: Engine,
        score: Scorer,
        *,
        key: jax.Array,
        num_prompts: int,
        advantage: Advantage = scoring.usual_advantage,
        refill: settings.Refill = settings.Refill(),  # noqa: B008 (frozen)
        measure: settings.Measure = settings.Measure(),  # noqa: B008
        lag: int = 0,
        overlaps: bool = False,
        engine_devices: int = 0,
    ):
        self.choose, self.engine, self.score = choose, engine, score
        self.key, self.num_prompts = key, num_prompts
        self.advantage, self.refill, self.measure = advantage, refill, measure
        self.lag, self._overlaps = lag, overlaps and lag > 0
        self.engine_devices = engine_devices
        self._ahead = Lookahead(choose)
        self._thread = futures.ThreadPoolExecutor(1, "producer")
        self._under_way: futures.Future[Stock] | None = None

    def __enter__(self) -> "Producer":
        self._ahead.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest) -> None:
        # What is under way ends first; but Ctrl-C closes the engine next, which ends it.
        self._thread.shutdown(wait=kind is None or issubclass(kind, Exception))
        self._ahead.__exit__(kind, *rest)

    @property
    def selector(self) -> samplers.Sampler:
        return self.choose.selector

    @property
    def num_items(self) -> int:
        return len(self.choose.items)

    @property
    def passes(self) -> passes.Passes:
        return passes.Passes(self.measure, self.selector, self.num_items)

    def metrics(self) -> Metrics:
        """Returns what engine and reward have counted since the last call: retries, failures, costs."""
        return self.engine.metrics() | self.score.metrics()

    def start(self, posterior: samplers.State, step: int) -> None:
        """Begins to choose the prompts of `step` in a thread.

        Before a pass, which changes the posterior, it does nothing: the pass begins the choice itself.
        """
        if not self.pass_is_due(step):
            self._start(posterior, step)

    def _start(self, posterior, step):
        self._ahead.start(posterior, rng.step_keys(self.key, step).select, self.num_prompts)

    def chosen(self) -> Chosen:
        """Waits for the prompts that `start` has begun to choose."""
        return self._ahead.result()

    # -------------------------------------------------------------------------- batches
    def supply(self, stock: Stock, step: int, may_make: Callable[[Stock], bool]) -> Stock:
        """Returns the stock with the batch of `step` in it, and with those that are made before its update.

        The engine has the weights of `step` - 1. `may_make` says whether a batch after that of `step` may be
        made.

        Raises:
            EngineFailure: the engine makes no more answers.
            RewardFailure: a reward function failed.
            BatchNotFilled: too few groups were kept, and `refill` says to stop.
            NotFinite: a number of the answers is NaN or infinite; the message names it.
        """
        # With a lag and a thread, `begin` makes the last one.
        ahead = self.lag - 1 if self._overlaps else self.lag
        return self._make(stock, step, ahead, may_make)

    def begin(self, stock: Stock, step: int, may_make: Callable[[Stock], bool]) -> None:
        """Begins to make the batch of `step` + L in a thread, where producer and learner overlap."""
        if self._overlaps:
            self._under_way = self._thread.submit(self._make, stock, step, self.lag, may_make)

    def finished(self, stock: Stock, clock: Clock) -> Stock:
        """Waits for what `begin` has begun; returns the stock with it. Raises what `supply` does."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return stock
        with clock("wait_rollouts"):
            return under_way.result()

    def _make(self, stock, step, ahead, may_make) -> Stock:
        """Returns the stock with the batches up to that of `step` + `ahead`."""
        while stock.made < step or (stock.made < step + ahead and may_make(stock)):
            next_step, clock = stock.made + 1, Clock()
            with clock("select"):
                chosen = self.chosen()
            data, posterior = self.roll_out(chosen, stock.posterior, next_step, step - 1, clock)
            stock = stock.add(Made(next_step, data, clock), posterior)
            if may_make(stock):
                self.start(posterior, next_step + 1)
        return stock

    def roll_out(
        self, chosen: Chosen, posterior: samplers.State, step: int, version: int, clock: Clock
    ) -> tuple[StepData, samplers.State]:
        """Returns the answers that a step learns from, and the posterior updated by them.

        The paper updates the posterior after the policy. The posterior needs no weights: updated here, it
        lets the next prompts be chosen while the policy learns.

        Args:
            chosen: the prompts of the first round.
            posterior: the selector's state before the step.
            step: the RL step, from 1.
            version: of the weights that have to answer.
            clock: of the batch.

        Raises:
            EngineFailure, RewardFailure, BatchNotFilled, NotFinite: as in `supply`.
        """
        selector, keys = self.selector, rng.step_keys(self.key, step)
        gathering = Gathering(self.num_prompts, self.refill)
        while chosen.items:
            number = len(gathering.rounds)
            processes.agree(f"the prompts of step {step}, round {number + 1}", chosen.identity())
            key = rng.round_key(keys.rollouts, number)
            rollouts, scores = rounds.answer(self.engine, self.score, chosen, key, version, clock)
            with clock("adv"):
                feedback = scoring.collect(chosen.proposal, rollouts, scores, self.advantage)
                scoring.check_answers(f"step {step}", chosen.prompts, rollouts, feedback)
                keep_M = np.asarray(selector.keep(posterior, feedback))
                belief = jax.device_get(selector.believe(posterior, chosen.proposal))
                gathering.add(Round(chosen, rollouts, scores, feedback, keep_M, belief))
                posterior = selector.update(posterior, feedback)
            if not (missing := gathering.num_missing()):
                break
            # Some groups were dropped: other prompts take their places.
            with clock("select"):
                select_key = rng.round_key(keys.select, number + 1)
                chosen = self.choose(posterior, select_key, missing, gathering.used)
        return gathering.finish(step), posterior

    # -------------------------------------------------------------------------- passes
    def pass_is_due(self, step: int) -> bool:
        """Returns whether a pass over all items comes before `step`."""
        return self.passes.is_due(step - 1)

    def roll_out_all(
        self, posterior: samplers.State, step: int, stop: Callable[[], bool]
    ) -> tuple[Feedback, samplers.State] | None:
        """Rolls out all items before `step`; returns their feedback and the posterior updated by it.

        Returns None if `stop()` was true between two batches. Raises what `roll_out` does.
        """
        feedback = passes.roll_out_all(
            self.choose,
            self.engine,
            self.score,
            self.advantage,
            self.measure,
            key=self.key,
            step=step,
            stop=stop,
        )
        if feedback is None:
            return None
        posterior = self.selector.update(posterior, feedback)
        self._start(posterior, step)
        return feedback, posterior
