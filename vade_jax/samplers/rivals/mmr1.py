"""MMR1's variance-aware sampling (arXiv 2509.21268): half a batch by variance, half uniform.

An item's weight is outcome_weight P (1 - P) + diversity_weight D, P its pass rate, D the diversity of its
answers; floor(mixture B) prompts are drawn in proportion to it, the others evenly. The paper makes the
weights from passes over all items (`trainer.passes`), so a step's own answers change nothing.

Departures: no item twice in a batch, where both draw with replacement; until an item has answers its
P (1 - P) is the mean of those that have, 1/4 at first.
"""

import dataclasses
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, types
from vade_jax.samplers import base
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class Mmr1Options(base.Options):
    """The hyperparameters of MMR1, as in its public code."""

    mixture: float = fields.fraction(0.5)  # lambda, the share of a batch drawn by weight
    outcome_weight: float = fields.number(0.8, at_least=0)  # alpha
    diversity_weight: float = fields.number(0.2, at_least=0)  # beta
    # How much of the old weights a pass leaves; of those before the first one, nothing.
    momentum: float = fields.fraction(0.0)
    # The "paper" has D = 1 - self-BLEU and the weights as they are; the "code" has D = self-BLEU, so
    # that monotony wins, and weights stretched over [0, 1].
    variant: str = fields.choice("paper", "code")

    def __post_init__(self):
        super().__post_init__()
        total = self.outcome_weight + self.diversity_weight
        fields.Interval(above=0).check("the sum of both weights", total)


@chex.dataclass(frozen=True)
class Mmr1State(types.Pytree):
    """What was last measured of every item, and the weights made from it."""

    pass_rate_I: jax.Array  # float32, of the latest group
    measured_I: jax.Array  # bool
    self_bleu_I: jax.Array  # float32
    weight_I: jax.Array  # float32


def selector(options: Mmr1Options) -> base.Sampler:
    """Returns the selector of MMR1.

    `init(num_items, pass_rate=..., self_bleu=...)` takes what was measured before (see `self_bleu`). What
    is left out has to come with the feedback of a pass over the data: before it, all items count as
    unknown and monotonous.
    """

    def weights(state: Mmr1State) -> Array:
        bleu_I = state.self_bleu_I
        variance_I = outcome_variance(state.pass_rate_I, state.measured_I)
        weight_I = options.outcome_weight * variance_I
        if options.variant == "code":
            return stretched(weight_I + options.diversity_weight * bleu_I)
        return weight_I + options.diversity_weight * (1 - bleu_I)

    def init(
        num_items: int,
        *,
        pass_rate: Array | None = None,
        self_bleu: Array | None = None,
    ) -> Mmr1State:
        measured_I = np.full(num_items, pass_rate is not None)
        pass_rate = np.full(num_items, 0.5) if pass_rate is None else pass_rate
        self_bleu = np.ones(num_items) if self_bleu is None else self_bleu
        base.check_rates("mmr1", "pass_rate", pass_rate, num_items)
        base.check_rates("mmr1", "self_bleu", self_bleu, num_items)
        state = Mmr1State(
            pass_rate_I=jnp.asarray(pass_rate, jnp.float32),
            measured_I=jnp.asarray(measured_I),
            self_bleu_I=jnp.asarray(self_bleu, jnp.float32),
            weight_I=jnp.zeros(num_items, jnp.float32),
        )
        return state.replace(weight_I=weights(state))

    def propose(state: Mmr1State, key: jax.Array, num_prompts: int) -> types.Proposal:
        gumbel_key, uniform_key, tie_key = jax.random.split(key, 3)
        score_I = base.gumbel_scores(jnp.log(state.weight_I), gumbel_key)
        num_uniform = num_prompts - base.share_of(options.mixture, num_prompts)
        score_I = base.mix_uniform(score_I, uniform_key, num_uniform)
        index_M = base.top_b(score_I, tie_key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: Mmr1State, feedback: types.Feedback) -> Mmr1State:
        if not base.is_pass(feedback, len(state.weight_I)):
            return state
        old_I = state.weight_I
        # Weights from before the first pass are nobody's measurement: none of them stays.
        stays = jnp.where(jnp.any(state.measured_I), options.momentum, 0.0)
        state = measured(state, feedback)
        return state.replace(weight_I=stays * old_I + (1 - stays) * weights(state))

    items = (
        base.PerItem("pass_rate", "measured"),
        base.PerItem("self_bleu", "measured" if options.diversity_weight > 0 else "optional"),
    )
    return base.compiled(init, propose, update, needs=base.Needs(items=items))


SPEC = base.Spec(
    "mmr1",
    Mmr1Options,
    selector,
    goes_with={"measure.every": 35},  # T of its main run
)


# ------------------------------------------------------------------------------ weights
def measured(state: Mmr1State, feedback: types.Feedback) -> Mmr1State:
    """Returns the state with the latest pass rates and, where they were measured, self-BLEUs."""
    index_M, asked_M = feedback.index_M, feedback.trials_M > 0
    rate_M = feedback.successes_M / jnp.maximum(feedback.trials_M, 1)
    rate_M = jnp.where(asked_M, rate_M, state.pass_rate_I[index_M])
    measured_M = asked_M | state.measured_I[index_M]
    bleu_I = state.self_bleu_I
    if feedback.extra_M is not None:
        bleu_M = jnp.where(asked_M, feedback.extra_M["self_bleu"], bleu_I[index_M])
        bleu_I = bleu_I.at[index_M].set(bleu_M)
    return state.replace(
        pass_rate_I=state.pass_rate_I.at[index_M].set(rate_M),
        measured_I=state.measured_I.at[index_M].set(measured_M),
        self_bleu_I=bleu_I,
    )


def outcome_variance(pass_rate_I: Array, measured_I: Array) -> jax.Array:
    """Returns P (1 - P); items without answers have the mean of the others, 1/4 if there is none."""
    variance_I = pass_rate_I * (1 - pass_rate_I)
    total = jnp.nansum(jnp.where(measured_I, variance_I, 0.0))
    count = jnp.sum(measured_I)
    mean = jnp.where(count > 0, total / jnp.maximum(count, 1), 0.25)
    return jnp.where(measured_I, variance_I, mean)


def stretched(weight_I: Array) -> Array:
    """Returns the weights moved and scaled onto [0, 1]; all 0 if they are equal."""
    low, high = jnp.nanmin(weight_I), jnp.nanmax(weight_I)
    return (weight_I - low) / jnp.maximum(high - low, 1e-12)


# ------------------------------------------------------------------------------ self-BLEU
# On the host, from tokens: answers are ragged, and there are few passes.
ORDERS = (1, 2, 3)
SMOOTHING = 0.1  # stands for 0 matches from bigrams on (Chen and Cherry 2014, method 1)


def self_bleu(token_NT: Array, length_N: Array, group_N: Array, num_groups: int) -> np.ndarray:
    """Returns the mean BLEU of each answer against the others of its group, [num_groups].

    BLEU-3 with equal weights, as MMR1's; padding does not count here. 1: all answers say the same, in
    3 tokens or more. As in its code, an order that an answer is too short for is smoothed, as one without
    a match: the same single token in all answers has 0.1^(2/3) = 0.22, the same two have 0.46. A group of
    fewer than two answers has 1: nothing in it differs.
    """
    groups = [[] for _ in range(num_groups)]
    for token_T, length, m in zip(token_NT, length_N, group_N, strict=True):
        groups[int(m)].append(np.asarray(token_T[:length], np.int64))
    means = [np.mean(bleu(group)) if len(group) > 1 else 1.0 for group in groups]
    return np.array(means, np.float32)


def bleu(answers: Sequence[np.ndarray]) -> np.ndarray:
    """Returns BLEU (Papineni et al. 2002) of each of the answers, the others its references, [G].

    Clipped precisions and the brevity penalty against the reference of the closest length.
    """
    length_G = np.array([len(answer) for answer in answers])
    log_G = np.zeros(len(answers))
    found = [matches(answers, order) for order in ORDERS]
    some_G = found[0] > 0  # without a single word in common BLEU is 0
    for order, match_G in zip(ORDERS, found, strict=True):
        match_G = np.where(match_G > 0, match_G, SMOOTHING)
        log_G += np.log(match_G / np.maximum(length_G - order + 1, 1)) / len(ORDERS)
    brevity_G = np.minimum(0, 1 - closest(length_G) / np.maximum(length_G, 1))
    return np.where(some_G, np.exp(log_G + brevity_G), 0.0)


def matches(answers: Sequence[np.ndarray], order: int) -> np.ndarray:
    """Returns how many runs of `order` tokens of each answer another one has as often, [G]."""
    num_answers = len(answers)
    radix = 1 + max(int(answer.max(initial=0)) for answer in answers)
    runs = []
    for answer in answers:  # each run of tokens as one number
        width = max(len(answer) - order + 1, 0)
        runs.append(sum(answer[i : i + width] * radix**i for i in range(order)))
    names, place_Q = np.unique(np.concatenate(runs), return_inverse=True)
    if not len(names):
        return np.zeros(num_answers)
    owner_Q = np.repeat(np.arange(num_answers), [len(x) for x in runs])
    count_GU = np.bincount(
        owner_Q * len(names) + place_Q, minlength=num_answers * len(names)
    ).reshape(num_answers, len(names))
    # Clipping needs, of every run, the most that one of the *others* has. That is the most of all,
    # but for the answer that has it: there it is the second most.
    second_U, most_U = np.partition(count_GU, (-2, -1), axis=0)[-2:]
    others_GU = np.where(count_GU == most_U, second_U, most_U)
    return np.minimum(count_GU, others_GU).sum(1)


def closest(length_G: np.ndarray) -> np.ndarray:
    """Returns the length of another answer that is nearest, of two the shorter, [G]."""
    distance_GG = np.abs(length_G[:, None] - length_G) * 1.0
    np.fill_diagonal(distance_GG, np.inf)
    # A tie goes to the shorter: lengths are whole, so a fraction of one decides nothing else.
    shorter_G = length_G / (length_G.max() + 1.0) / 2
    return length_G[np.argmin(distance_GG + shorter_G, axis=1)]
