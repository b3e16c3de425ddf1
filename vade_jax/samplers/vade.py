"""VADE (arXiv 2511.18902): Thompson draws of every pass rate, scored by information gain.

Algorithm 1, with the lines that `propose` and `update` implement:

    for every item i                                    # warm-up
        alpha_i, beta_i <- right and wrong of G answers
    for step t = 1 ... T
        p_i ~ Beta(alpha_i + 1, beta_i + 1)             # propose: a Thompson draw for every item
        I_i = p_i (1 - p_i)^2                           #          Eq. 4
        the B items with the largest I_i                #
        G answers to each, r_i right; update the policy # the training loop
        i chosen: alpha_i <- lambda_1 alpha_i + r_i     # update:  Eq. 5
                  beta_i  <- lambda_1 beta_i + G - r_i
        the rest: alpha_i <- lambda_2 alpha_i           #          Eq. 6
                  beta_i  <- lambda_2 beta_i

The paper's warm-up rolls out the entire data set before step 1 and trains on none of it: that is
`warmup="measured"`.

Departures from the paper:
- The default, `warmup="full"`, warms up in ordinary steps, which train, and in which counts decay as in
  any other step. Items never visited come first, in random order.
- The greedy ratio of an item without counts, 0/0 in the paper, is 1/2.
- A prompt without valid answers counts as one of the rest in Eq. 6, but the warm-up does not visit it again.
- `per="token"` divides I_i by the tokens that an answer to item i is expected to take.
- An item with a pass rate known before step 1 begins with counts and needs no warm-up.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, precedence, ranking
from vade_jax.types import Array


# ------------------------------------------------------------------------------ the p that is scored
def greedy(key: jax.Array, alpha_I: Array, beta_I: Array) -> jax.Array:
    """Returns alpha / (alpha + beta), or 1/2 without counts: the paper's greedy ablation."""
    del key
    total_I = alpha_I + beta_I
    # The inner `where` avoids 0/0, the outer one gives 1/2: with a NaN an item would lose every top B.
    ratio_I = alpha_I / jnp.where(total_I == 0, 1, total_I)
    return jnp.where(total_I == 0, 0.5, ratio_I)


def mean(key: jax.Array, alpha_I: Array, beta_I: Array) -> Array:
    """Returns the posterior means; not in the paper."""
    del key
    return beta.posterior_mean(alpha_I, beta_I)


# Thompson draws explore: now and then the draw of an uncertain item is high enough to be chosen.
DRAWS = {"thompson": beta.draw, "greedy": greedy, "mean": mean}


# ------------------------------------------------------------------------------ the selector
@dataclasses.dataclass(frozen=True)
class VadeOptions(beta.CountingOptions):
    """The hyperparameters of VADE. The last three are not in the paper; their defaults turn them off."""

    # lambda_1 of Eq. 5: share of its counts that a chosen item keeps after a step
    decay_selected: float = fields.fraction(0.2)
    # lambda_2 of Eq. 6: share of its counts that any other item keeps after a step
    decay_rest: float = fields.fraction(0.999)
    # I(p) of Eq. 4: the information gain of an item with pass rate p
    info_gain: str = fields.choice("p(1-p)^2", *beta.INFO_GAINS)
    # The pass rate p that is scored: a Thompson draw, the greedy ratio, or the posterior mean
    draw: str = fields.choice("thompson", *DRAWS)
    # "two_scale": the decays of Eq. 5 and 6. "last_update": only the latest answers to a prompt count, as
    # with decays of 0 and 1.
    history: str = fields.choice("two_scale", "last_update")
    # What comes before Thompson selection. "full": every item is visited once, in steps that train.
    # "measured": a pass over all items that does not train, as in the paper. "none": nothing.
    warmup: str = fields.choice("full", "measured", "none")
    # Steps in a row after which an item is left out of the next step; a step then has one round; 0: no limit
    max_consecutive: int = fields.number(0, at_least=0)
    # Share of a batch that is drawn uniformly from all items
    uniform_share: float = fields.fraction(0.0)
    # Unit of the information gain: per answer, or per expected token of an answer
    per: str = fields.choice("answer", "token")


@chex.dataclass(frozen=True)
class VadeState(types.Pytree):
    """Decayed counts of every item; the posterior of its pass rate is Beta(alpha + 1, beta + 1)."""

    alpha_I: jax.Array = per_item.starts(0.0)  # right answers
    beta_I: jax.Array = per_item.starts(0.0)  # wrong answers
    unseen_I: jax.Array  # bool, not yet visited by the warm-up
    streak_I: jax.Array | None = None  # int32, latest steps in a row that chose it; None: no limit
    # float32, tokens of the answers that alpha and beta count, decayed like them; None: not counted
    token_I: jax.Array | None = None


def selector(options: VadeOptions) -> base.Sampler:
    """Returns VADE, Eq. 4 to 6. Warm-up, uniform share, streaks and lengths are in `precedence`."""
    draw_pass_rate = DRAWS[options.draw]
    info_gain = beta.INFO_GAINS[options.info_gain]
    decays = {"decay_selected": options.decay_selected, "decay_rest": options.decay_rest}
    if options.history == "last_update":
        decays = {"decay_selected": 0.0, "decay_rest": 1.0}

    def init(num_items: int, *, pass_rate: Array | None = None) -> VadeState:
        if pass_rate is not None and options.warmup == "measured":
            raise ValueError("pass_rate: warmup='measured' measures every pass rate: leave out one")
        rules = precedence.init(options, num_items)
        state = beta.begin(VadeState, options, num_items, pass_rate=pass_rate, **rules)
        # An item with a known pass rate needs no warm-up.
        return state.replace(unseen_I=state.unseen_I & (state.alpha_I + state.beta_I == 0))

    def propose(state: VadeState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        # p_i ~ Beta(alpha_i + 1, beta_i + 1)
        p_I = draw_pass_rate(keys.draw, state.alpha_I, state.beta_I)
        # Eq. 4: I_i = p_i (1 - p_i)^2
        score_I = info_gain(p_I)
        # Not in the paper: +inf for items not yet visited or drawn uniformly, -inf for items that rest
        score_I = precedence.override(options, state, score_I, keys, num_prompts)
        # The B items with the largest I_i
        index_M = ranking.top_b(score_I, keys.ties, num_prompts)
        proposal = ranking.same_num_rollouts(index_M, options.num_rollouts)
        return proposal.replace(p_M=p_I[index_M])

    def update(state: VadeState, feedback: types.Feedback) -> VadeState:
        # Eq. 5 for the items chosen, Eq. 6 for the rest
        counted = beta.counted(state, feedback, **decays)
        return counted.replace(**precedence.update(state, feedback, decays))

    needs = base.Needs(
        items=(beta.PASS_RATE,),
        # The update after a second round would end the streaks of the items that the first round chose.
        rounds=1 if options.max_consecutive else None,
        passes="first" if options.warmup == "measured" else "any",
        lengths=options.per == "token",
        removed_by={"rounds": "max_consecutive=0 of vade", "passes": "warmup='none' of vade"},
    )
    return base.compiled(init, propose, update, believe=beta.believe, needs=needs)


SPEC = base.Spec("vade", VadeOptions, selector)
