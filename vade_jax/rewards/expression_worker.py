"""Compares expressions for `pool`: `python expression_worker.py DEADLINE MEMORY`.

One JSON request a line comes in, one line with the reason goes out. It is started by its path:
nothing of vade_jax, and so no jax, is imported. Whatever happens in here, the parent keeps the
deadline; the alarm is for the case that the parent is gone.
"""

import json
import logging
import os
import re
import resource
import signal
import sys

import latex2sympy2_extended
import math_verify
import sympy
from sympy.parsing import sympy_parser

# No units: everything in a last \\text{} would be taken for one.
_NORMAL = latex2sympy2_extended.NormalizationConfig(
    units=False, malformed_operators=True, nits=True, boxed="none"
)
_ANY_LATEX = [
    math_verify.LatexExtractionConfig(boxed_match_priority=-1, normalization_config=_NORMAL)
]
# Modules of sympy that are first imported now read their own constants by `eval`.
_WARM_UP = (
    *((r"\frac{1}{2}", "0.5"), (r"(x+1)^2", "x^2+2x+1"), (r"\sqrt{12}", "3.46")),
    *(("x>5", r"(5,\infty)"), ("y=2x+1", "2x-y=-1"), (r"\sin^2 x+\cos^2 x", "1")),
)


def main(deadline: float, memory: int) -> None:
    """Answers requests until there are no more, or one takes too long or too much memory."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no reply
    logging.disable(logging.CRITICAL)
    for gold, given in _WARM_UP:
        compare(gold, given)
    _without_eval()
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, 2 * deadline)  # the default action ends us
        print(compare(*json.loads(line)), file=replies, flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0)


def compare(gold: str, given: str) -> str:
    """Returns "ok", "different", "unreadable" or "bad_key"; both texts are LaTeX."""
    try:
        right, value = _parse(gold), _parse(given)
        if not right or not value:
            return "unreadable" if right else "bad_key"
        is_equal = math_verify.verify(right, value, timeout_seconds=None)
    except (Exception, math_verify.errors.TimeoutException):
        return "unreadable"
    return "ok" if is_equal else "different"


def _parse(text: str) -> list:
    """Returns the one parsed expression of a whole text, or none; it is never evaluated."""
    return math_verify.parse(
        f"${text}$",
        extraction_config=_ANY_LATEX,
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )


def _without_eval() -> None:
    """Takes `eval` away from sympy, which reads even "7" by it, and reads plain numbers without it."""
    sympy_parser.parse_expr = _literal
    sympy_parser.eval_expr = _refuse


def _literal(text: str, **_) -> sympy.Number:
    if not re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", text, re.ASCII):
        return _refuse(text)
    return sympy.Float(text) if "." in text else sympy.Integer(text)


def _refuse(*_):
    raise ValueError("answers are never evaluated as Python")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
