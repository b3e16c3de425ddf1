"""Rules that override a selector's scores: a warm-up, a uniform share of the batch, a rest after a streak.

None of them is in the paper of VADE (arXiv 2511.18902). They change the scores just before the top B is
taken, so that `vade.py` itself has only the paper's lines.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from vade_jax import rng, types
from vade_jax.samplers import base, ranking
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class Precedence:
    """The rules of one selector; by default, each is off.

    Attributes:
        visits_all: whether items not yet visited come before all others, in random order.
        uniform_share: share of a batch that is drawn uniformly from all items.
        max_consecutive: after being chosen in this many steps in a row, an item is left out of the next
            step; 0: no limit.
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

    def override(self, state: Any, score_I: Array, keys: rng.SelectionKeys, num_prompts: int):
        """Returns the scores with +inf for items that come first, and -inf for items that rest."""
        score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
        num_uniform = ranking.share_of(self.uniform_share, num_prompts)
        score_I = ranking.mix_uniform(score_I, keys.uniform, num_uniform)
        if self.max_consecutive:
            # Last: an item that has to rest does so even if the uniform share drew it.
            tired_I = state.streak_I >= self.max_consecutive
            score_I = jnp.where(tired_I, -jnp.inf, score_I)
        return score_I

    def update(self, state: Any, feedback: types.Feedback) -> dict[str, Any]:
        """Returns the arrays after a proposal was answered; a pass over all items leaves streaks alone."""
        index_M, streak_I = feedback.index_M, state.streak_I
        if self.max_consecutive and not base.is_pass(feedback, len(streak_I)):
            # A streak is of steps in a row, so it ends for every item that this step left out.
            streak_M = jnp.where(feedback.trials_M > 0, streak_I[index_M] + 1, 0)
            streak_I = jnp.zeros_like(streak_I).at[index_M].set(streak_M)
        return {
            "unseen_I": base.still_unseen(state.unseen_I, feedback),
            "streak_I": streak_I,
        }
