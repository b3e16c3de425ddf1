"""One optimizer update of the policy: an objective, its gradient over micro-batches, and AdamW.

An objective turns the policy's log-probs into a scalar that is divided by the token and sequence counts of
the *entire* mini-batch. So the gradients of micro-batches add up to the gradient of one large batch.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from vade_jax import settings
from vade_jax.losses import importance, kl, policy, ratios
from vade_jax.models import logprobs
from vade_jax.trainer import mesh, minibatches, precision
from vade_jax.types import Array, Batch, Metrics, Params, TrainState

T = TypeVar("T")


class Totals(NamedTuple):
    """Counts over every micro-batch of the update."""

    num_tokens: Array
    num_sequences: Array


Forward = Callable[[Params, Batch], logprobs.Tokens]
Objective = Callable[[jax.Array, Batch, Totals], tuple[jax.Array, Metrics]]
Update = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


# ------------------------------------------------------------------------------ objectives
def group_rl(loss: settings.Loss, max_tokens: int | None = None) -> Objective:
    """Returns clipped policy loss + kl_coef x KL to the reference, both aggregated the same way.

    GRPO is `loss.ratio` "token" with "token-mean", as in verl; its paper averages each answer first, which
    is "seq-mean-token-mean". GSPO is "sequence" with "seq-mean-token-mean" and bounds near 3e-4.

    Args:
        loss: the settings. A weight of `importance` needs old log-probs from the trainer.
        max_tokens: the limit of an answer, which is the constant of "seq-mean-token-sum-norm".
    """
    log_ratio = {"token": ratios.token, "sequence": ratios.sequence}[loss.ratio]
    clip = functools.partial(
        policy.clipped,
        clip_low=loss.clip_low,
        clip_high=loss.clip_high,
        dual_clip=loss.dual_clip or None,
    )
    aggregate = functools.partial(policy.aggregate, how=loss.aggregate, scale=max_tokens)
    weigh, divergence, kl_coef = None, kl.ESTIMATORS[loss.kl], loss.kl_coef
    if loss.importance not in settings.UNWEIGHTED:
        weigh = functools.partial(importance.weights, loss.importance, cap=loss.importance_cap)

    def objective(logp_NT: Array, batch: Batch, totals: Totals) -> tuple[jax.Array, Metrics]:
        old_NT, mask_NT = batch.old_logp_NT, batch.mask_NT
        reduce = lambda x_NT: aggregate(x_NT, mask_NT, **totals._asdict())
        clipped = clip(log_ratio(logp_NT, old_NT, mask_NT), batch.advantage_N)
        loss_NT, token_NT = clipped.loss_NT, ratios.token(logp_NT, old_NT)
        metrics = policy.metrics(clipped, token_NT, mask_NT, totals.num_tokens)
        metrics |= agreement(logp_NT, batch, totals)
        if weigh is not None:
            weight_NT = weigh(old_NT, batch.rollout_logp_NT, mask_NT)
            loss_NT *= weight_NT
            metrics |= importance.metrics(weight_NT, mask_NT, totals.num_tokens)
        metrics["actor/pg_loss"] = policy_loss = reduce(loss_NT)
        if not kl_coef:  # without it the batch has no reference log-probs
            return policy_loss, metrics
        metrics["actor/kl_loss"] = reduce(divergence(logp_NT, batch.ref_logp_NT))
        return policy_loss + kl_coef * metrics["actor/kl_loss"], metrics

    return objective


def agreement(logp_NT: Array, batch: Batch, totals: Totals) -> Metrics:
    """Returns the differences between trainer and engine, in probability and in log-probability.

    They are rounding errors in the first mini-batch of a step, when both have the same weights.
    """
    metrics, engine_NT = {}, batch.rollout_logp_NT
    differences = {"probs": jnp.exp(logp_NT) - jnp.exp(engine_NT), "logprobs": logp_NT - engine_NT}
    for name, difference_NT in differences.items():
        distance_NT = jnp.abs(difference_NT) * batch.mask_NT
        metrics[f"training/rollout_{name}_diff_mean"] = jnp.sum(distance_NT) / totals.num_tokens
        metrics[f"training/rollout_{name}_diff_max"] = jnp.max(distance_NT)
    return metrics


def likelihood(logp_NT: Array, batch: Batch, totals: Totals) -> tuple[jax.Array, Metrics]:
    """Returns the mean negative log-likelihood of the answers' tokens; an `Objective`."""
    return -jnp.sum(logp_NT * batch.mask_NT) / totals.num_tokens, {}


# ------------------------------------------------------------------------------ programs
def make_logp(
    merge: Callable[[Params], Any],
    *,
    banned: tuple[int, ...],
    temperature: float = 1.0,
    chunk: int = 1024,
    remat: bool = True,
) -> Forward:
    """Returns `logp(params, batch) -> logprobs.Tokens`, in which each prompt is computed once for its group.

    Args:
        merge: params -> a model with `answer_hidden`, `head` and `place`.
        banned: tokens that cannot be sampled.
        temperature: of the sampling: the log-probs are those of the draws.
        chunk: the number of tokens whose logits exist at once on a device.
        remat: recompute the activations in the backward pass, see `layers.checkpoint`.
    """
    selected = functools.partial(
        logprobs.selected, temperature=temperature, banned=banned, chunk=chunk
    )

    def logp(params: Params, batch: Batch) -> logprobs.Tokens:
        model = merge(params)
        hidden_NTD = model.answer_hidden(batch.prompts, batch.token_NT, remat=remat)
        return selected(hidden_NTD, model.head(jnp.float32), batch.token_NT, place=model.place)

    return logp


def make_logprobs(logp: Forward) -> Callable[[Params, Batch], jax.Array]:
    """Returns (params, batch) -> `logp_ANT` over the micro-batches, without gradients."""

    def of_batch(params: Params, batch: Batch) -> jax.Array:
        width = batch.mask_NT.shape[-1]

        def one(micro):
            logp_NT = logp(params, micro).logp_NT
            # The branches of `in_shortest` must agree in shape.
            return jnp.pad(logp_NT, [(0, 0), (0, width - logp_NT.shape[1])])

        # One micro-batch after another, so that only one has activations in memory.
        return jax.lax.map(skip_empty(minibatches.in_shortest(one)), batch)

    return of_batch


def make(
    logp: Forward,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    learning_rate: optax.Schedule | None = None,
    whole: Callable[[Params, Params], Params] = lambda params, frozen: params,
) -> Update:
    """Returns `update(state, batch) -> (state, metrics)`; jit it with donation at the edge.

    `metrics` are scalars: those of the objective summed over micro-batches, `actor/loss`,
    `actor/entropy` (nats, the mean over the answers' tokens), `actor/grad_norm` (before the clip),
    `actor/param_norm` (of the new parameters) and `actor/lr`. The caller must check that they are finite
    before it uses the state again.

    Args:
        logp: log-probs of a micro-batch, and entropies.
        objective: the function to minimise.
        optimizer: turns its gradient into an update.
        learning_rate: the schedule, to report the rate; None: not reported.
        whole: (trained parameters, the state's frozen ones) -> all parameters, which `logp` takes.
    """

    def loss(params, frozen, micro, totals):
        tokens = logp(whole(params, frozen), micro)
        # A masked token may be banned, with log-prob -inf under the policy, the engine, the old policy and
        # the reference, and -inf x 0 is not 0.
        counted = lambda x_NT: jnp.where(micro.mask_NT > 0, x_NT, 0)
        names = ("rollout_logp_NT", "old_logp_NT", "ref_logp_NT")
        others = micro.replace(**{name: counted(getattr(micro, name)) for name in names})
        value, metrics = objective(counted(tokens.logp_NT), others, totals)
        entropy = jnp.sum(tokens.entropy_NT * micro.mask_NT) / totals.num_tokens
        return value, {"actor/loss": value, "actor/entropy": entropy, **metrics}

    gradient = jax.grad(loss, has_aux=True)

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        totals = count(batch.mask_NT)  # over all micro-batches, so that gradients add up
        of_micro = lambda micro: gradient(state.params, state.frozen, micro, totals)
        grads, metrics = _sum_over_microbatches(minibatches.in_shortest(of_micro), batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        metrics["actor/grad_norm"] = optax.tree.norm(grads)
        if learning_rate is not None:
            metrics["actor/lr"] = jnp.asarray(learning_rate(state.step), jnp.float32)
        # An optimizer of bfloat16 weights returns the new ones.
        is_new = isinstance(opt_state, precision.State)
        params = updates if is_new else optax.apply_updates(state.params, updates)
        metrics["actor/param_norm"] = optax.tree.norm(precision.to_float32(params))
        state = state.replace(params=params, opt_state=opt_state, step=state.step + 1)
        return state, metrics

    return update


def count(mask_ANT: Array) -> Totals:
    """Returns the numbers of tokens and of sequences with at least one token."""
    return Totals(jnp.sum(mask_ANT), jnp.sum(jnp.any(mask_ANT > 0, axis=-1)))


def skip_empty(run: Callable[[Batch], T]) -> Callable[[Batch], T]:
    """Returns `run` with a shortcut: a micro-batch without a valid token gives zeros and is not computed."""

    def unless_empty(micro: Batch) -> T:
        zeros = lambda micro: optax.tree.zeros_like(jax.eval_shape(run, micro))
        return jax.lax.cond(jnp.any(micro.mask_NT > 0), run, zeros, micro)

    return unless_empty


def _sum_over_microbatches(run, batch):
    """Returns the sums of gradients (float32) and metrics over micro-batches, computed one after another."""
    # Tracing a large model takes seconds. It would happen three times below; under jit it happens once.
    run, first = jax.jit(run), jax.tree.map(lambda x: x[0], batch)
    if batch.mask_NT.shape[0] == 1:  # without a scan there is no second copy of the gradients
        grads, metrics = run(first)
        return precision.to_float32(grads), metrics

    def add(total, micro):
        (grads, metrics), (more_grads, more_metrics) = total, skip_empty(run)(micro)
        # A metric named *_max, of values >= 0, keeps the larger.
        summed = {
            name: (jnp.maximum if name.endswith("_max") else jnp.add)(x, more_metrics[name])
            for name, x in metrics.items()
        }
        # Gradients of bfloat16 weights are bfloat16 until they are added: the sum is float32, because in
        # bfloat16 it would lose small terms.
        return (jax.tree.map(jnp.add, grads, more_grads), summed), None

    grads, metrics = optax.tree.zeros_like(jax.eval_shape(run, first))
    return jax.lax.scan(add, (precision.to_float32(grads), metrics), batch)[0]


# ------------------------------------------------------------------------------ optimizer
def make_optimizer(
    config: settings.Optimizer, param_dtype: str = "float32"
) -> optax.GradientTransformation:
    """Returns AdamW after clipping by the global norm, as in verl's recipe for Qwen2.5-VL.

    Weight decay is decoupled and applies to every parameter, as in torch's AdamW, except the decay rates of
    linear layers. For bfloat16 weights it is a `precision.of_bfloat16`.
    """

    def decays(params: Params) -> Params:
        is_rate = lambda path: mesh.path_name(path).endswith(("delta/log_rate", "delta/rate_bias"))
        return jax.tree_util.tree_map_with_path(lambda path, _: not is_rate(path), params)

    adamw = optax.adamw(
        schedule(config),
        config.b1,
        config.b2,
        weight_decay=config.weight_decay,
        mask=decays,
        mu_dtype=param_dtype,
    )
    clipped = optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)
    return precision.of_bfloat16(clipped) if param_dtype == "bfloat16" else clipped


def schedule(config: settings.Optimizer) -> optax.Schedule:
    """Returns the learning rate as a function of the number of earlier updates."""
    peak, warmup, decay = config.learning_rate, config.warmup_steps, config.decay_steps
    first = 0.0 if warmup else peak
    if not decay:
        return optax.warmup_constant_schedule(first, peak, warmup)
    return optax.warmup_cosine_decay_schedule(first, peak, warmup, warmup + decay, 0.1 * peak)
