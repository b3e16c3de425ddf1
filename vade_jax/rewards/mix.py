"""The training reward: correctness with a little format."""

from vade_jax.rewards import verify


def reward(verdict: verify.Verdict, format_weight: float = 0.1) -> float:
    """Returns (1 - w) * correct + w * well_formed.

    Only for advantages. The counts of a Beta posterior are `verdict.correct`: they are Bernoulli.
    """
    if not 0 <= format_weight <= 1:
        raise ValueError(f"format_weight={format_weight} must be in 0 .. 1")
    correct, well_formed = float(verdict.correct), float(verdict.well_formed)
    return (1 - format_weight) * correct + format_weight * well_formed
