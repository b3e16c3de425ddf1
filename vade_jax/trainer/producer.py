"""Makes what a step learns from: prompts, answers and rewards; and the posterior updated by them.

One object owns the choice of prompts, the engine and the reward. The loop owns the weights, and passes in the
posterior, which is part of a checkpoint.
"""

from collections.abc import Callable

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
    """

    def __init__(
        self,
        choose: ChoosePrompts,
        engine: Engine,
        score: Scorer,
        *,
        key: jax.Array,
        num_prompts: int,
        advantage: Advantage = scoring.group_normalized,
        refill: settings.Refill = settings.Refill(),  # noqa: B008 (frozen)
        measure: settings.Measure = settings.Measure(),  # noqa: B008
    ):
        self.choose, self.engine, self.score = choose, engine, score
        self.key, self.num_prompts = key, num_prompts
        self.advantage, self.refill, self.measure = advantage, refill, measure
        self._ahead = Lookahead(choose)

    def __enter__(self) -> "Producer":
        self._ahead.__enter__()
        return self

    def __exit__(self, *reason) -> None:
        self._ahead.__exit__(*reason)

    @property
    def selector(self) -> samplers.Sampler:
        return self.choose.selector

    @property
    def num_items(self) -> int:
        return len(self.choose.items)

    def metrics(self) -> Metrics:
        """Returns what engine and reward have counted since the last call: retries, failures, costs."""
        return self.engine.metrics() | self.score.metrics()

    def start(self, posterior: samplers.State, step: int) -> None:
        """Begins to choose the prompts of `step` in a thread; after a pass, if one changes the posterior."""
        if not self.pass_is_due(step):
            self._start(posterior, step)

    def _start(self, posterior, step):
        self._ahead.start(posterior, rng.step_keys(self.key, step).select, self.num_prompts)

    def chosen(self) -> Chosen:
        """Waits for the prompts that `start` has begun to choose."""
        return self._ahead.result()

    def roll_out(
        self, chosen: Chosen, posterior: samplers.State, step: int, clock: Clock
    ) -> tuple[StepData, samplers.State]:
        """Returns the answers that a step learns from, and the posterior updated by them.

        The paper updates the posterior after the policy. The posterior needs no weights: updated here, it
        lets the next prompts be chosen while the policy learns.

        Args:
            chosen: the prompts of the first round.
            posterior: the selector's state before the step.
            step: the RL step, from 1.
            clock: of the step.

        Raises:
            EngineFailure: the engine makes no more answers.
            RewardFailure: a reward function failed.
            BatchNotFilled: too few groups were kept, and `refill` says to stop.
            NotFinite: a number of the answers is NaN or infinite; the message names it.
        """
        selector, keys = self.selector, rng.step_keys(self.key, step)
        gathering = Gathering(self.num_prompts, self.refill)
        while chosen.items:
            number = len(gathering.rounds)
            processes.agree(f"the prompts of step {step}, round {number + 1}", chosen.identity())
            key = rng.round_key(keys.rollouts, number)
            rollouts, scores = rounds.answer(self.engine, self.score, chosen, key, step - 1, clock)
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
        return passes.is_due(self.measure, self.selector, step - 1)

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
