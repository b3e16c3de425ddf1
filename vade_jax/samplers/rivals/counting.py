"""What selectors share that rank by one Beta posterior of every pass rate, and forget at visits alone."""

from collections.abc import Callable

import jax

from vade_jax import rng, types
from vade_jax.samplers import base, beta


def selector(
    propose: Callable[[beta.BetaState, rng.SelectionKeys, int], types.Proposal], *, decay: float
) -> base.Sampler:
    """Returns a selector that counts answers and proposes by the counts; a visit leaves `decay` of an item's.

    The counts leave out the prior's 1, so the decay acts on the distance to the prior, Beta(1, 1). A prompt
    without valid answers keeps its posterior.
    """

    def keyed(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        return propose(state, rng.selection_keys(key), num_prompts)

    def update(state: beta.BetaState, feedback: types.Feedback) -> beta.BetaState:
        return beta.counted(state, feedback, decay_selected=decay, decay_rest=1.0)

    return base.compiled(beta.no_counts, keyed, update, believe=beta.believe)
