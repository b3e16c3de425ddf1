"""The training reward: correctness with a little format, less what a long answer costs."""

from vade_jax.rewards import verify


def reward(verdict: verify.Verdict, format_weight: float = 0.1) -> float:
    """Returns (1 - w) * correct + w * well_formed.

    Only for advantages. The counts of a Beta posterior are `verdict.correct`: they are Bernoulli.
    """
    if not 0 <= format_weight <= 1:
        raise ValueError(f"format_weight={format_weight} must be in 0 .. 1")
    correct, well_formed = float(verdict.correct), float(verdict.well_formed)
    return (1 - format_weight) * correct + format_weight * well_formed


def overlong_penalty(length: int, max_tokens: int, buffer: int) -> float:
    """Returns what an answer's length costs, in -1 .. 0 (arXiv 2503.14476, Eq. 13).

    0 up to max_tokens - buffer, then linear, -1 at max_tokens. The end token counts. An answer that
    was cut off has max_tokens tokens, so it costs -1.

    Args:
        length: tokens of the answer.
        max_tokens: the most that an answer may have.
        buffer: tokens before the limit in which the cost grows; 0 for no cost at all.

    Raises:
        ValueError: the buffer is not in 0 .. max_tokens - 1.
    """
    if not 0 <= buffer < max_tokens:
        raise ValueError(f"buffer={buffer} must be in 0 .. {max_tokens - 1}")
    if not buffer:
        return 0.0
    return max(-1.0, min(0.0, (max_tokens - buffer - length) / buffer))
