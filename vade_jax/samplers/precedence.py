"""Who comes first whatever the scores say: a warm-up, an even share of the batch, a rest after a streak.

None of it is in the paper of VADE (arXiv 2511.18902). The rules change the scores of a selector between what
it thinks and its top B, so that the selector itself has the paper's lines alone.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from vade_jax import rng, types
from vade_jax.samplers import base
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class Precedence:
    """The rules of one selector, each left out by its default.

    Attributes:
        visits_all: items not visited yet come before all others, in random order.
        uniform_share: of a batch, drawn evenly from all items.
        max_consecutive: an item chosen in so many steps in a row is left out of the next; 0: none is.
    """

    visits_all: bool = False
    uniform_share: float = 0.0
    max_consecutive: int = 0

    def init(self, num_items: int) -> dict[str, Any]:
        """Returns the arrays that the rules keep in the selector's state."""
        capped = self.max_consecutive > 0
        return {
            "unseen_I": jnp.full(num_items, self.visits_all),
            "streak_I": jnp.zeros(num_items, jnp.int32) if capped else None,
        }

    def scores(self, state: Any, score_I: Array, keys: rng.SelectionKeys, num_prompts: int):
        """Returns the scores with +inf for who comes first, and -inf for who rests."""
        score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
        num_uniform = base.share_of(self.uniform_share, num_prompts)
        score_I = base.mix_uniform(score_I, keys.uniform, num_uniform)
        if self.max_consecutive:
            tired_I = state.streak_I >= self.max_consecutive
            score_I = jnp.where(tired_I, -jnp.inf, score_I)
        return score_I

    def update(self, state: Any, feedback: types.Feedback) -> dict[str, Any]:
        """Returns the arrays after the answers to a proposal, or after a pass, which tires nothing."""
        index_M, streak_I = feedback.index_M, state.streak_I
        if self.max_consecutive and not base.is_pass(feedback, len(streak_I)):
            # Zero for all that this step left out: a streak is of steps in a row.
            streak_M = jnp.where(feedback.trials_M > 0, streak_I[index_M] + 1, 0)
            streak_I = jnp.zeros_like(streak_I).at[index_M].set(streak_M)
        return {
            "unseen_I": base.still_unseen(state.unseen_I, feedback),
            "streak_I": streak_I,
        }
