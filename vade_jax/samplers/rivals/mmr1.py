"""MMR1's variance-aware sampling (arXiv 2509.21268): half of a batch by variance, half uniform.

An item's weight is outcome_weight P (1 - P) + diversity_weight D, where P is its pass rate and D the
diversity of its answers. floor(mixture B) prompts are drawn in proportion to the weights, the others
uniformly. The paper computes the weights in passes over all items (`Collector.measure`), so the answers of a
step do not change them.

Departures from the paper and its code:
- No item occurs twice in a batch; both draw with replacement.
- The code takes D = self-BLEU, so that similar answers win, and stretches the weights to [0, 1]. Here D is
  the paper's, 1 - self-BLEU, and the weights are as they are.
- Until an item has answers, its P (1 - P) is the mean of the items that have some, and 1/4 at first.
"""

import dataclasses
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class Mmr1Options(base.Options):
    mixture: float = fields.fraction(0.5)  # lambda, the share of a batch that is drawn by weight
    outcome_weight: float = fields.number(0.8, at_least=0)  # alpha, the weight of P (1 - P)
    diversity_weight: float = fields.number(0.2, at_least=0)  # beta, the weight of D


@chex.dataclass(frozen=True)
class Mmr1State(types.Pytree):
    """The latest measurement of every item, and the weights computed from it."""

    pass_rate_I: Array  # float32, of the latest group
    measured_I: Array  # bool, whether the item has had answers
    self_bleu_I: Array  # float32, of the latest group; 1 if unknown
    weight_I: Array  # float32


def selector(options: Mmr1Options) -> base.Sampler:
    """Returns the MMR1 selector.

    `init` takes earlier measurements. If one is left out, a pass over all items has to measure it. Until
    then, every pass rate is unknown and every self-BLEU is 1.
    """

    def weights(state: Mmr1State) -> Array:
        variance_I = state.pass_rate_I * (1 - state.pass_rate_I)
        total = jnp.nansum(jnp.where(state.measured_I, variance_I, 0.0))
        count = jnp.sum(state.measured_I)
        mean = jnp.where(count > 0, total / jnp.maximum(count, 1), 0.25)
        weight_I = options.outcome_weight * jnp.where(state.measured_I, variance_I, mean)
        return weight_I + options.diversity_weight * (1 - state.self_bleu_I)

    def init(
        num_items: int, *, pass_rate: Array | None = None, self_bleu: Array | None = None
    ) -> Mmr1State:
        measured_I = np.full(num_items, pass_rate is not None)
        pass_rate = np.full(num_items, 0.5) if pass_rate is None else pass_rate
        self_bleu = np.ones(num_items) if self_bleu is None else self_bleu
        state = Mmr1State(
            pass_rate_I=per_item.rates("mmr1", "pass_rate", pass_rate, num_items),
            measured_I=measured_I,
            self_bleu_I=per_item.rates("mmr1", "self_bleu", self_bleu, num_items),
            weight_I=np.zeros(num_items, np.float32),
        )
        return state.replace(weight_I=weights(state))

    def propose(state: Mmr1State, key: jax.Array, num_prompts: int) -> types.Proposal:
        gumbel_key, uniform_key, tie_key = jax.random.split(key, 3)
        score_I = ranking.gumbel_scores(jnp.log(state.weight_I), gumbel_key)
        num_uniform = num_prompts - ranking.share_of(options.mixture, num_prompts)
        score_I = ranking.mix_uniform(score_I, uniform_key, num_uniform)
        return ranking.best(score_I, tie_key, num_prompts, options.num_rollouts)

    def update(state: Mmr1State, feedback: types.Feedback) -> Mmr1State:
        if not base.is_pass(feedback, len(state.weight_I)):
            return state
        index_M, asked_M = feedback.index_M, feedback.trials_M > 0

        def put(old_I: Array, new_M: Array) -> jax.Array:
            return jnp.asarray(old_I).at[index_M].set(jnp.where(asked_M, new_M, old_I[index_M]))

        rate_M = feedback.successes_M / jnp.maximum(feedback.trials_M, 1)
        bleu_M = None if feedback.extra_M is None else feedback.extra_M["self_bleu"]
        new = state.replace(
            pass_rate_I=put(state.pass_rate_I, rate_M),
            measured_I=put(state.measured_I, asked_M),
            self_bleu_I=state.self_bleu_I if bleu_M is None else put(state.self_bleu_I, bleu_M),
        )
        return new.replace(weight_I=weights(new))

    bleu = base.PerItem("self_bleu", "measured" if options.diversity_weight > 0 else "optional")
    needs = base.Needs(items=(base.PerItem("pass_rate", "measured"), bleu))
    return base.compiled(init, propose, update, needs=needs)


# T, the steps between passes in the paper's main run. The options' defaults are those of its code.
SPEC = base.Spec("mmr1", Mmr1Options, selector, goes_with={"measure.every": 35})


# This runs on the host, in NumPy: answers have different lengths, and passes are rare.
ORDERS = (1, 2, 3)
SMOOTHING = 0.1  # replaces 0 matches of bigrams and trigrams (Chen and Cherry 2014, method 1)


def self_bleu(token_NT: Array, length_N: Array, group_N: Array, num_groups: int) -> np.ndarray:
    """Returns the mean BLEU of the answers of each group against the others in the group, [num_groups].

    This is BLEU-3 with equal weights, as in MMR1. It is 1 if all answers are the same and have at least 3
    tokens, and in a group with fewer than two answers. As in MMR1's code, an order that is longer than the
    answer is smoothed like one without a match: of the same single token it is 0.1^(2/3) = 0.22, of the same
    two 0.46.
    """
    groups = [[] for _ in range(num_groups)]
    for token_T, length, m in zip(token_NT, length_N, group_N, strict=True):
        groups[int(m)].append(np.asarray(token_T[:length], np.int64))
    means = [np.mean(bleu(group)) if len(group) > 1 else 1.0 for group in groups]
    return np.array(means, np.float32)


def bleu(answers: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the BLEU (Papineni et al. 2002) of each answer with the others as its references, [G].

    It uses clipped precisions, and the brevity penalty against the reference of the closest length; of two,
    the shorter.
    """
    length_G = np.array([len(answer) for answer in answers])
    log_G = np.zeros(len(answers))
    for order in ORDERS:
        match_G = matches(answers, order)
        match_G = np.where(match_G > 0, match_G, SMOOTHING)
        log_G += np.log(match_G / np.maximum(length_G - order + 1, 1)) / len(ORDERS)
    distance_GG = np.abs(length_G[:, None] - length_G) * 1.0
    np.fill_diagonal(distance_GG, np.inf)
    # A fraction below 1/2 makes ties go to the shorter; lengths are integers, so it changes nothing else.
    shorter_G = length_G / (length_G.max() + 1.0) / 2
    closest_G = length_G[np.argmin(distance_GG + shorter_G, axis=1)]
    brevity_G = np.minimum(0, 1 - closest_G / np.maximum(length_G, 1))
    # Without a token in common, BLEU is 0.
    return np.where(matches(answers, 1) > 0, np.exp(log_G + brevity_G), 0.0)


def matches(answers: Sequence[np.ndarray], order: int) -> np.ndarray:
    """Returns the number of n-grams of each answer that another one has, with n = `order`, [G].

    Each counts at most as often as it occurs in any one of the other answers.
    """
    radix = 1 + max(int(answer.max(initial=0)) for answer in answers)
    owners, numbers = [], []
    for owner, answer in enumerate(answers):  # each n-gram becomes one number in base `radix`
        width = max(len(answer) - order + 1, 0)
        numbers.append(sum(answer[i : i + width] * radix**i for i in range(order)))
        owners += [owner] * width
    names, place_Q = np.unique(np.concatenate(numbers), return_inverse=True)
    count_GU = np.zeros((len(answers), len(names)), int)
    np.add.at(count_GU, (owners, place_Q), 1)
    others_GU = [np.delete(count_GU, i, 0).max(0) for i in range(len(answers))]
    return np.minimum(count_GU, others_GU).sum(1)
