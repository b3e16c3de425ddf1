"""MMR1's variance-aware sampling (arXiv 2509.21268): half a batch by variance, half uniform."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import types
from vade_jax.samplers import base, checks
from vade_jax.types import Array

VARIANTS = ("paper", "code")
REFRESHES = ("all", "visits")


@chex.dataclass(frozen=True)
class State:
    """What was last measured of every item, and the weights made from it some steps ago."""

    pass_rate_I: Array  # float32, of the latest group
    measured_I: Array  # bool
    self_bleu_I: Array  # float32
    weight_I: Array  # float32
    step: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    mixture: float = 0.5,
    outcome_weight: float = 0.8,
    diversity_weight: float = 0.2,
    refresh: str = "all",
    update_every: int = 35,
    momentum: float = 0.0,
    variant: str = "paper",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the selector of MMR1 (arXiv 2509.21268), options as in its public code.

    A weight is outcome_weight P (1 - P) + diversity_weight D, P the pass rate, D the diversity of
    the answers; floor(mixture B) prompts are drawn in proportion to it, the others evenly.
    Departures: no item twice in a batch, where both draw with replacement; until an item has
    answers its P (1 - P) is the mean of those that have, 1/4 at first.

    `init(num_items, pass_rate=..., self_bleu=...)` takes what was measured before (see
    `diversity.self_bleu`). What is left out has to come with the `Feedback` of a pass over the data
    (`trainer.measure`): before it, all items count as unknown and monotonous.

    Args:
        num_rollouts: G, answers to a prompt.
        mixture: lambda, the share of a batch drawn by weight.
        outcome_weight: alpha.
        diversity_weight: beta.
        refresh: when weights are made anew, and from what. "all", the paper's: from a `Feedback`
            over all items, all at once, nothing from the steps between. "visits": every
            `update_every` updates, P from the answers trained on.
        update_every: T of "visits"; that of "all" is how often the trainer measures.
        momentum: how much of the old weights stays then; of those first measured against, nothing.
        variant: the "paper" has D = 1 - self-BLEU and the weights as they are; the "code" has
            D = self-BLEU, so that monotony wins, and weights stretched over [0, 1].
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.fraction("mixture", mixture)
    checks.at_least("outcome_weight", outcome_weight, 0)
    checks.at_least("diversity_weight", diversity_weight, 0)
    checks.positive("the sum of both weights", outcome_weight + diversity_weight)
    checks.option("refresh", refresh, REFRESHES)
    checks.at_least("update_every", update_every, 1)
    checks.fraction("momentum", momentum)
    checks.option("variant", variant, VARIANTS)

    def weights(state: State) -> jax.Array:
        bleu_I = state.self_bleu_I
        weight_I = outcome_weight * outcome_variance(
            state.pass_rate_I, state.measured_I
        )
        if variant == "code":
            return stretched(weight_I + diversity_weight * bleu_I)
        return weight_I + diversity_weight * (1 - bleu_I)

    def first(
        num_items: int, pass_rate_I: jax.Array, measured_I: jax.Array, bleu_I: jax.Array
    ) -> State:
        state = State(
            pass_rate_I=pass_rate_I,
            measured_I=measured_I,
            self_bleu_I=bleu_I,
            weight_I=jnp.zeros(num_items, jnp.float32),
            step=jnp.zeros((), jnp.int32),
        )
        return state.replace(weight_I=weights(state))

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        gumbel_key, uniform_key, tie_key = jax.random.split(key, 3)
        # The largest of log w + Gumbel noise are a draw by w without replacement.
        gumbel_I = jax.random.gumbel(gumbel_key, state.weight_I.shape)
        score_I = jnp.log(state.weight_I) + gumbel_I
        num_uniform = num_prompts - int(mixture * num_prompts)
        place = {"mesh": mesh, "axis": axis}
        score_I = base.mix_uniform(score_I, uniform_key, num_uniform, **place)
        index_M = base.top_b(score_I, tie_key, num_prompts, **place)
        return base.same_num_rollouts(index_M, num_rollouts)

    def update(state: State, feedback: types.Feedback) -> State:
        whole = len(feedback.index_M) == len(state.weight_I)
        if refresh == "all" and not whole:
            return state
        old_I = state.weight_I
        known = jnp.any(state.measured_I)
        state = measured(state, feedback)
        if refresh == "all":
            stays = jnp.where(known, momentum, 0.0)
            return state.replace(weight_I=stays * old_I + (1 - stays) * weights(state))
        new_I = momentum * old_I + (1 - momentum) * weights(state)
        now = state.step % update_every == 0
        return state.replace(weight_I=jnp.where(now, new_I, old_I))

    def measured(state, feedback):
        index_M, asked_M = feedback.index_M, feedback.trials_M > 0
        rate_M = feedback.successes_M / jnp.maximum(feedback.trials_M, 1)
        rate_M = jnp.where(asked_M, rate_M, state.pass_rate_I[index_M])
        measured_M = asked_M | state.measured_I[index_M]
        bleu_I = state.self_bleu_I
        if feedback.extra_M is not None:
            bleu_M = feedback.extra_M["self_bleu"]
            bleu_M = jnp.where(asked_M, bleu_M, bleu_I[index_M])
            bleu_I = bleu_I.at[index_M].set(bleu_M)
        return state.replace(
            pass_rate_I=state.pass_rate_I.at[index_M].set(rate_M),
            measured_I=state.measured_I.at[index_M].set(measured_M),
            self_bleu_I=bleu_I,
            step=state.step + 1,
        )

    sampler = base.assemble(first, propose, update, mesh=mesh, axis=axis)

    def init(
        num_items: int,
        *,
        pass_rate: Array | None = None,
        self_bleu: Array | None = None,
    ) -> State:
        """Raises ValueError unless what is given has a value for every item."""
        has_rate = pass_rate is not None
        pass_rate = pass_rate if has_rate else np.full(num_items, 0.5)
        bleu = self_bleu if self_bleu is not None else np.ones(num_items)
        checks.per_item("mmr1", "pass_rate", pass_rate, num_items)
        checks.per_item("mmr1", "self_bleu", bleu, num_items)
        float32 = lambda x: np.asarray(x, np.float32)
        measured_I = np.full(num_items, has_rate)
        return sampler.init(num_items, float32(pass_rate), measured_I, float32(bleu))

    measures = ("pass_rate",) * (refresh == "all") + ("self_bleu",) * (
        diversity_weight > 0
    )
    return sampler._replace(init=init, measures=measures)


def outcome_variance(pass_rate_I: Array, measured_I: Array) -> jax.Array:
    """Returns P (1 - P); items without answers have the mean of the others, 1/4 if there is none."""
    variance_I = pass_rate_I * (1 - pass_rate_I)
    total = jnp.nansum(jnp.where(measured_I, variance_I, 0.0))
    count = jnp.sum(measured_I)
    mean = jnp.where(count > 0, total / jnp.maximum(count, 1), 0.25)
    return jnp.where(measured_I, variance_I, mean)


def stretched(weight_I: Array) -> jax.Array:
    """Returns the weights moved and scaled onto [0, 1]; all 0 if they are equal."""
    low, high = jnp.nanmin(weight_I), jnp.nanmax(weight_I)
    return (weight_I - low) / jnp.maximum(high - low, 1e-12)
