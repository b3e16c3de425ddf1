"""Soft punishment of answers that come near the limit of their length (DAPO)."""


def penalty(length: int, max_tokens: int, buffer: int) -> float:
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
