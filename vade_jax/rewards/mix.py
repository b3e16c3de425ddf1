"""The built-in reward: correctness with a little format.

The penalty for long answers is subtracted from any reward, also from that of a user's functions.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Sequence

from vade_jax.rewards import verify

if typing.TYPE_CHECKING:  # types imports jax, which rewards do without
    import numpy as np

    from vade_jax import types


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The judgement of one answer by one judge."""

    reward: float  # NaN: no verdict
    # 0 or 1; NaN: no verdict, whatever other judges say; None: this judge gives only rewards.
    correct: float | None
    extracted: str | None = None  # what was compared with the gold answer
    reason: str = ""  # such as those of `verify.Verdict`

    @property
    def is_known(self) -> bool:
        """Whether the answer has both numbers."""
        return not (math.isnan(self.reward) or self.correct is None or math.isnan(self.correct))


UNKNOWN = Judgement(math.nan, math.nan, reason="no_verdict")
Texts = Sequence[str]
Tokens = Sequence["np.ndarray | Sequence[int]"] | None
# (item, texts of all answers to it, their tokens) -> a judgement of each
Judge = Callable[["types.Item", Texts, Tokens], list[Judgement]]


def by_rules(form: str, format_weight: float, opening: str = "") -> Judge:
    """Returns the rule-based judge: `verify` and `reward`.

    Args:
        form: the required format, a key of `answers.FORMATS`.
        format_weight: its share of the reward.
        opening: a tag at the end of the prompt; the answer continues after it, or repeats it.
    """

    def judged(item: "types.Item", text: str) -> Judgement:
        text = text if text.lstrip().startswith(opening.strip()) else opening + text
        verdict = verify.verify_item(text, item, form=form)
        value = reward(verdict, format_weight)
        return Judgement(value, float(verdict.correct), verdict.extracted, verdict.reason)

    return lambda item, texts, tokens: [judged(item, text) for text in texts]


def reward(verdict: verify.Verdict, format_weight: float = 0.1) -> float:
    """Returns (1 - w) * correct + w * well_formed.

    It is used only for advantages. A Beta posterior counts `verdict.correct`, which is Bernoulli.
    """
    return (1 - format_weight) * verdict.correct + format_weight * verdict.well_formed


def overlong_penalty(length: int, max_tokens: int, buffer: int) -> float:
    """Returns the penalty for an answer's length in tokens, in -1 .. 0 (arXiv 2503.14476, Eq. 13).

    0 up to max_tokens - buffer, then linear, -1 at max_tokens; with a buffer of 0 no length costs anything.
    The end token counts. An answer that was cut off has max_tokens tokens, so it costs -1.
    """
    if not buffer:
        return 0.0
    return max(-1.0, min(0.0, (max_tokens - buffer - length) / buffer))
