"""One optimizer update over micro-batches, for any objective.

An objective turns the policy's log-probs into a scalar with the *global* token and sequence
counts as denominators, so the gradients of micro-batches add up to the gradient of the one big
batch.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from vade_jax.models import logprobs
from vade_jax.trainer import lengths
from vade_jax.types import Array, Batch, Metrics, Params, TrainState

T = TypeVar("T")


class Totals(NamedTuple):
    """Counts over every micro-batch of the update."""

    num_tokens: Array
    num_sequences: Array


Logp = Callable[[Params, Batch], jax.Array]
Objective = Callable[[jax.Array, Batch, Totals], tuple[jax.Array, Metrics]]
Update = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def make_logp(
    merge: Callable[[Params], object],
    *,
    temperature: float,
    banned: tuple[int, ...],
    chunk: int,
    remat: bool = True,
) -> Logp:
    """Returns `logp(params, batch) -> logp_NT`: prompts once, answers many.

    Args:
        merge: params -> a model with `answer_hidden`, `head` and `place`.
        temperature: of the sampling.
        banned: tokens that cannot be sampled.
        chunk: tokens whose logits are held at once, on each device.
        remat: recompute each layer's activations in the backward pass.
    """

    def logp(params: Params, batch: Batch) -> jax.Array:
        model = merge(params)
        hidden_NTD = model.answer_hidden(
            batch.prompts, batch.token_NT, batch.group_R, remat=remat
        )
        return logprobs.selected(
            hidden_NTD,
            model.head(jnp.float32),
            batch.token_NT,
            temperature=temperature,
            banned=banned,
            chunk=chunk,
            place=model.place,
        )

    return logp


def make_score(logp: Logp) -> Callable[[Params, Batch], jax.Array]:
    """Returns `score(params, batch) -> logp_ANT` over the micro-batches, without gradients."""

    def score(params: Params, batch: Batch) -> jax.Array:
        width = batch.mask_NT.shape[-1]

        def one(micro):
            logp_NT = logp(params, micro)
            return jnp.pad(logp_NT, [(0, 0), (0, width - logp_NT.shape[1])])

        return jax.lax.map(skip_empty(lengths.in_shortest(one)), batch)

    return score


def make(
    logp: Logp,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    cut: Callable = lengths.in_shortest,
) -> Update:
    """Returns `update(state, batch) -> (state, metrics)`; jit it with donation at the edge.

    Args:
        logp: log-probs of a micro-batch.
        objective: what is minimised.
        optimizer: what is done with its gradient.
        cut: lets a micro-batch of short answers run a shorter program.

    `metrics` are scalars: those of the objective summed over micro-batches, `actor/loss` and
    `actor/grad_norm` (before the clip). A non-finite loss is the caller's to detect, before the
    state is used again.
    """

    def loss(params, micro, totals):
        # A masked token may be a banned one: its log-prob is -inf, and -inf x 0 is not 0.
        logp_NT = jnp.where(micro.mask_NT > 0, logp(params, micro), 0)
        value, metrics = objective(logp_NT, micro, totals)
        return value, {"actor/loss": value, **metrics}

    gradient = jax.grad(loss, has_aux=True)

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        totals = count(batch.mask_NT)
        one = lambda micro: gradient(state.params, micro, totals)
        grads, metrics = _sum_over_microbatches(cut(one), batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        metrics["actor/grad_norm"] = optax.tree.norm(grads)
        params = optax.apply_updates(state.params, updates)
        return state.replace(
            params=params, opt_state=opt_state, step=state.step + 1
        ), metrics

    return update


def skip_empty(run: Callable[[Batch], T]) -> Callable[[Batch], T]:
    """Returns `run`, but zeros for a micro-batch without a token that counts: it is not computed."""

    def unless_empty(micro: Batch) -> T:
        zeros = lambda _: jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, micro)
        )
        return jax.lax.cond(jnp.any(micro.mask_NT > 0), run, zeros, micro)

    return unless_empty


def count(mask_ANT: Array) -> Totals:
    """Returns the tokens, and the sequences that have any."""
    return Totals(jnp.sum(mask_ANT), jnp.sum(jnp.any(mask_ANT > 0, axis=-1)))


def _sum_over_microbatches(one, batch):
    first = jax.tree.map(lambda x: x[0], batch)
    if batch.mask_NT.shape[0] == 1:
        return one(first)
    zeros = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one, first)
    )
    add = lambda total, micro: (_add(total, skip_empty(one)(micro)), None)
    return jax.lax.scan(add, zeros, batch)[0]


def _add(total, more):
    """Adds gradients and metrics; a metric named `*_max`, of values >= 0, keeps the larger."""
    (grads, metrics), (more_grads, more_metrics) = total, more
    combine = lambda name: jnp.maximum if name.endswith("_max") else jnp.add
    return jax.tree.map(jnp.add, grads, more_grads), {
        name: combine(name)(x, more_metrics[name]) for name, x in metrics.items()
    }
