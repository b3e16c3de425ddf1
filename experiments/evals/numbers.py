r"""The number in a short text, as scores without a judge have always read it.

`decisions.by_rules` hands it to the rules of a benchmark, which compare it themselves. The verifier of
training reads more (`rewards.reading`); this stays as it is, so that scores stay comparable with older ones.
"""

import decimal
import re

from vade_jax.rewards import answers

_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
_UNIT = (
    r"(?:square |sq\.? |cubic )?(?:[mcdk]?m|inch(?:es)?|in|ft|feet|foot|yards?|yd|miles?|mi|"
    r"(?:centi|milli|kilo)?met(?:er|re)s?|[mk]?g|(?:kilo)?grams?|lbs?|pounds?|oz|ounces?|"
    r"s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?|"
    r"deg|degrees?|units?|dollars?|euros?|cents?|percent|points?|objects?|items?|people)"
    r"\.?(?:\s?(?:\^\s?\{?[23]\}?|²|³))?"
)
_DENIALS = ("!", "<", ">", "not", "\\ne", "≠")  # what "=" is none behind
_FRACTION = re.compile(  # not after a number: 3\\frac{1}{2} is not 31/2
    r"(?<![0-9])(?<![0-9] )\\[dt]?frac\s?\{([^{}]*)\}\s?\{([^{}]*)\}"
)
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_QUANTITY = re.compile(
    rf"(?P<top>{_NUMBER})(?:\s?/\s?(?P<bottom>[0-9]+))?\s?"
    rf"(?P<percent>%)?\s?(?:{_UNIT})?",
    re.IGNORECASE,
)


def number(text: str) -> tuple[decimal.Decimal, bool] | None:
    r"""Returns (value, whether a percent sign follows), or None if `text` is not one number.

    Understands thousands commas, a/b and \frac{a}{b}, "x = 5", currency signs and a unit after the number.
    """
    match = _quantity(text)
    if match is None:
        return None
    value = decimal.Decimal(match["top"])
    if match["bottom"] is not None:
        value /= decimal.Decimal(match["bottom"])
    return value, match["percent"] is not None


def _quantity(text: str) -> re.Match[str] | None:
    """Returns the groups top, bottom and percent of the one number that `text` is, or None."""
    text = answers.plain(_FRACTION.sub(r"\1/\2", text)).strip("{} ").lstrip("€£¥~ ")
    if text.count("=") == 1:
        left, text = (side.strip() for side in text.split("="))
        if left.endswith(_DENIALS) or _contradict(left, text):
            return None
    match = _QUANTITY.fullmatch(_THOUSANDS.sub("", text))
    is_defined = match is not None and (match["bottom"] or "1").strip("0")
    return match if is_defined else None


def _contradict(left: str, right: str) -> bool:
    """Returns whether both are numbers, but not nearly the same: 3 = 7 does, 1/3 = 0.33 not."""
    x, y = number(left), number(right)
    if x is None or y is None or x[1] != y[1]:
        return False
    return abs(x[0] - y[0]) > abs(y[0]) / 50
