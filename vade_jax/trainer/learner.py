"""One RL step of the policy: old and reference log-probs, then an update per mini-batch."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from vade_jax.trainer import minibatches
from vade_jax.trainer.update import Update
from vade_jax.types import Batch, Metrics, Params, Prompt, Rollouts, TrainState

LogProbs = Callable[[Params, Batch], jax.Array]


@dataclasses.dataclass(frozen=True)
class Learner:
    """Improves the policy on a batch of rollouts.

    Attributes:
        update: the compiled update.
        score: the compiled log-probs of a batch.
        layout: how a batch is cut; the keyword arguments of `minibatches.split`.
        reference: parameters of the reference policy; None when no KL is asked for.
        old_logp: "behaviour" takes the engine's log-probs for the old policy's, exact when the
            engine computes as the trainer does; "trainer" computes them again, as verl does.
        put: places a batch on the mesh (`processes.put`); leaves that are there stay. Done for each
            mini-batch in turn: one at a time is on the devices.
    """

    update: Update
    score: LogProbs
    layout: dict
    reference: Params | None = None
    old_logp: str = "behaviour"
    put: Callable[[Batch], Batch] = lambda batch: batch

    def __call__(
        self,
        state: TrainState,
        prompts: Sequence[Prompt],
        rollouts: Rollouts,
        advantage_N: np.ndarray,
    ) -> tuple[TrainState, Metrics]:
        """Returns the new state and verl-named metrics, the mean over the mini-batches.

        A mini-batch without a valid answer is no update: momentum and weight decay would move the
        weights all the same. `actor/updates` counts the others; without any there are no metrics.
        `training/*` compares engine and trainer at the same weights: of the first mini-batch alone.
        """
        cut = minibatches.split(prompts, rollouts, advantage_N, **self.layout)
        cut = [batch for batch in cut if batch.mask_NT.any()]
        if not cut:
            return state, {}
        batches = [self._with_logprobs(state.params, batch) for batch in cut]
        history = []
        for batch in batches:
            state, metrics = self.update(state, self.put(batch))
            history.append(metrics)
        metrics = _over_minibatches(jax.device_get(history))
        metrics["actor/updates"] = len(history)
        return state, metrics | minibatches.padding(cut)

    def _with_logprobs(self, params, batch):
        if self.old_logp != "trainer" and self.reference is None:
            return batch
        placed = self.put(batch)
        if self.old_logp == "trainer":
            batch = batch.replace(old_logp_NT=self.score(params, placed))
        if self.reference is not None:
            batch = batch.replace(ref_logp_NT=self.score(self.reference, placed))
        return batch


def _over_minibatches(history):
    of_first = lambda name: name.startswith("training/")
    return {
        name: float(
            value if of_first(name) else np.mean([later[name] for later in history])
        )
        for name, value in history[0].items()
    }
