"""Answers that are compared by spelling once they are written in one way: times, dates, chemistry, statements.

Two texts of one canonical form are the same; so nothing is read into them that is not spelled out.
"""

import re

from vade_jax.rewards import answers, tokens

_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?\s?([ap])\.?\s?m", re.IGNORECASE)
_MONTHS = """
january february march april may june july august september october november december
"""
_MONTHS = {name[:3]: name for name in _MONTHS.split()}
_CIRCLED = re.compile("[①-⑳]+")
_BETWEEN = re.compile(rf"[\s,;]|\band\b|\\(?:{tokens.ROMAN})|[{{}}$]")
_DRESS = re.compile(rf"\\(?:{tokens.ROMAN})(?![a-z])|\\[,;! ]|[_{{}}\s~]")
_ARROW = re.compile(r"\\(?:long)?rightarrow|\\to(?![a-z])|\\xrightarrow(?:\[[^]]*\])?\{[^{}]*\}|->")
_ATOMS = r"(?:[A-Z][a-z]?\d*|\((?:[A-Z][a-z]?\d*)+\)\d*)+"
_SPECIES = rf"\d*{_ATOMS}(?:\^\d*[+-])?(?:\((?:s|l|g|aq)\))?"
_CHEMISTRY = re.compile(rf"{_SPECIES}(?:\+{_SPECIES})*(?:→{_SPECIES}(?:\+{_SPECIES})*)?")
_ORBITALS = re.compile(r"(?:\[[A-Z][a-z]\])?(?:\d[spdf]\^?\d\d?)+|sp\^?\d?d?\^?\d?")


def canonical(text: str) -> str | None:
    """Returns the one spelling of a time of day, a date, a formula of chemistry or circled numbers, else None."""
    return _time(text) or _date(text) or _statements(text) or _chemistry(text)


def _time(text: str) -> str | None:
    match = _TIME.fullmatch(answers.plain(text))
    return match and f"{int(match[1])}:{match[2] or '00'} {match[3].lower()}m"


def _date(text: str) -> str | None:
    """Returns month, day and year of "Jan 15, 2020" and "15th of January 2020"."""
    parts = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|[.,]", " ", answers.plain(text).lower()).split()
    months = [_MONTHS[x[:3]] for x in parts if x[:3] in _MONTHS and _MONTHS[x[:3]].startswith(x)]
    numbers = sorted((x for x in parts if x.isdecimal()), key=lambda x: len(x) > 2)
    if len(months) != 1 or not 0 < len(numbers) < len(parts) < 4 or len(numbers) + 1 < len(parts):
        return None
    return " ".join((*months, *(x.lstrip("0") for x in numbers)))


def _statements(text: str) -> str | None:
    """Returns the numbers of the true statements in order: ③② is ②③."""
    bare = _BETWEEN.sub("", tokens.clean(text))
    return "".join(sorted(bare)) if _CIRCLED.fullmatch(bare) else None


def _chemistry(text: str) -> str | None:
    r"""Returns H_2O, \ce{H2O} and \mathrm{H_2O} as H2O, 1s^2 2s^2 as 1s22s2, and a reaction in one order."""
    text = _DRESS.sub("", _ARROW.sub("→", tokens.clean(text)))
    if _ORBITALS.fullmatch(text):
        return text.replace("^", "")
    if not (re.search(r"[\d^→]", text) and _CHEMISTRY.fullmatch(text)):
        return None
    return "→".join("+".join(sorted(re.split(r"(?<!\^)(?<!\^\d)\+", side))) for side in text.split("→"))
