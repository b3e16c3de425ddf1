"""The learner: the first state, the compiled programs, and what a step does with its rollouts.

Programs are jitted here, at the edge; everything below is plain functions of arrays.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vade_jax.losses import importance
from vade_jax.trainer import mesh, update
from vade_jax.trainer.policy import Policy
from vade_jax.types import Batch, Metrics, Params, Prompt, Rollouts, TrainState


@dataclasses.dataclass(frozen=True)
class Learner:
    """Trains the policy on a step's rollouts.

    Attributes:
        update: the compiled update.
        logprobs: the compiled log-probs of a batch, from trained and frozen parameters.
        split: cuts prompts, rollouts and advantages into batches, such as `minibatches.split`.
        reference: parameters of the reference policy; None without a KL term.
        old_logp: "behaviour" uses the engine's log-probs as the old policy's, which is exact if the engine
            computes like the trainer; "trainer" computes them again, as verl does.
        mask_cut_off: leave out answers that were cut off; they still count in their group's mean.
        put: places a batch on the mesh (`processes.put`), one at a time.
        utilisation: computes metrics from prompts, rollouts and the seconds of learning.
    """

    update: update.Update
    logprobs: Callable[[Params, Params, Batch], jax.Array]
    split: Callable[[Sequence[Prompt], Rollouts, np.ndarray], list[Batch]]
    reference: Params | None = None
    old_logp: str = "behaviour"
    mask_cut_off: bool = False
    put: Callable[[Batch], Batch] = lambda batch: batch
    utilisation: Callable[[Sequence[Prompt], Rollouts, float], Metrics] = lambda *_: {}

    def __call__(
        self,
        state: TrainState,
        prompts: Sequence[Prompt],
        rollouts: Rollouts,
        advantage_N: np.ndarray,
    ) -> tuple[TrainState, Metrics]:
        """Returns the new state and verl-named metrics, the mean over the mini-batches.

        The update deletes the arrays of the old state; the built-in engine shares its parameters until it is
        synced.

        A mini-batch without a signal (no valid answer, or all advantages 0 and no KL term) is skipped,
        because momentum and weight decay would still move the weights. `actor/updates` counts the others; if
        all are skipped, there are no metrics.
        """
        start = time.perf_counter()
        if self.mask_cut_off:
            rollouts = rollouts.replace(valid_N=rollouts.valid_N & rollouts.finished_N)
        cut = [x for x in self.split(prompts, rollouts, advantage_N) if self._teaches(x)]
        if not cut:
            return state, {}
        # All old log-probs are computed before the first update: with the weights that made the answers or,
        # if these were made ahead, with newer ones.
        batches = [self._with_logprobs(state, batch) for batch in cut]
        history = []
        for batch in batches:
            state, metrics = self.update(state, self.put(batch))
            history.append(metrics)
        # Fetched once, after the last update: fetching earlier would wait for every update.
        metrics = importance.effective_size(_mean_over_minibatches(jax.device_get(history)))
        metrics["actor/updates"] = len(history)
        metrics |= self.utilisation(prompts, rollouts, time.perf_counter() - start)
        return state, metrics

    def _teaches(self, batch: Batch) -> bool:
        # Decided on the host, from data that every process has: this compiles no program.
        pulled_AN = (self.reference is not None) | (batch.advantage_N != 0)
        return bool(np.any(batch.mask_NT.any(-1) & pulled_AN))

    def _with_logprobs(self, state: TrainState, batch: Batch) -> Batch:
        if self.old_logp != "trainer" and self.reference is None:
            return batch
        placed = self.put(batch)
        if self.old_logp == "trainer":
            batch = batch.replace(old_logp_NT=self.logprobs(state.params, state.frozen, placed))
        if self.reference is not None:
            batch = batch.replace(ref_logp_NT=self.logprobs(self.reference, state.frozen, placed))
        return batch


def _mean_over_minibatches(history: Sequence[Metrics]) -> Metrics:
    """Returns the means, or the largest value of metrics named *_max.

    `training/*`, which compares engine and trainer, is taken from the first mini-batch: later ones are
    scored with weights that the engine does not have.
    """
    means = {}
    for name in history[0]:
        values = [of_one[name] for of_one in history[: 1 if name.startswith("training/") else None]]
        means[name] = float(np.max(values) if name.endswith("_max") else np.mean(values))
    return means


# ------------------------------------------------------------------------------ the first state
def first_state(
    policy: Policy, optimizer: optax.GradientTransformation, *, copy: bool = False
) -> TrainState:
    """Returns the first state. An update deletes its arrays: the policy's or, with `copy`, copies of them."""
    where = jax.tree.map(lambda x: x.sharding, abstract_state(policy, optimizer))
    init = lambda params: (optimizer.init(params), jnp.int32(0))
    opt_state, step = jax.jit(init, out_shardings=(where.opt_state, where.step))(policy.params)
    params = policy.params
    if copy:  # `jnp.copy` would compile a program for each shape
        params = jax.device_put(params, policy.shardings, may_alias=False)
    return TrainState(params=params, opt_state=opt_state, step=step, frozen=policy.base)


def abstract_state(policy: Policy, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the shapes of the first state, each with its sharding; the policy may be abstract."""

    def state(params: Params, frozen: Params) -> TrainState:
        opt_state = optimizer.init(params)
        return TrainState(params=params, opt_state=opt_state, step=jnp.int32(0), frozen=frozen)

    shapes = jax.eval_shape(state, policy.params, policy.base)
    place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    return jax.tree.map(place, shapes, mesh.shardings(policy.mesh, shapes))


def reference_params(policy: Policy) -> Params:
    """Returns the reference's weights in the compute dtype; the policy's own arrays if they have it already.

    An adapter has no effect at first, so its first values make the reference equal to the base.
    """
    is_stored = all(x.dtype in (policy.dtype, jnp.bfloat16) for x in jax.tree.leaves(policy.params))
    if is_stored or policy.adapter is not None:
        return policy.params
    cast = lambda params: jax.tree.map(lambda x: x.astype(policy.dtype), params)
    return jax.jit(cast, out_shardings=policy.shardings)(policy.params)


# ------------------------------------------------------------------------------ programs
def compile_update(step: update.Update, policy: Policy, state: TrainState) -> update.Update:
    """Returns the jitted update of states placed like `state`. It donates: the new one takes its memory."""
    where = jax.tree.map(lambda x: x.sharding, state)
    return jax.jit(
        step,
        in_shardings=(where, mesh.batch_sharding(policy.mesh, axis=1)),
        out_shardings=(where, None),
        donate_argnums=0,
    )


def compile_logprobs(logp: update.Forward, policy: Policy):
    """Returns the jitted function (params, frozen, batch) -> `logp_ANT`."""
    batch_sharding = mesh.batch_sharding(policy.mesh, axis=1)
    whole, of_batch = policy.whole, update.make_logprobs(logp)
    return jax.jit(
        lambda params, frozen, batch: of_batch(whole(params, frozen), batch),
        in_shardings=(policy.shardings, policy.base_shardings, batch_sharding),
        out_shardings=batch_sharding,
    )
