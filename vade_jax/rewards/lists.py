r"""Compares lists: [2007, 2008], (1, -2), \{3, 5\}, "red, blue and green"."""

import re

from vade_jax.rewards import answers, expressions, scalars

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def is_set(text: str) -> bool:
    """Returns whether `text` is written as a set: the order of its elements does not count."""
    return _ascii(text).startswith("{")


def elements(text: str, *, thousands: bool | None = None) -> list[str]:
    """Returns what stands between the outermost commas, brackets around all of it removed.

    Args:
      text: of the list.
      thousands: whether a comma before three digits is one within a number; by default it is
        where other commas have a space behind, as in "1,000, 2,000".
    """
    text = _inside(_ascii(text))
    ends = ";" if ";" in text else ","
    thousands = ", " in text if thousands is None else thousands
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == ends and depth == 0 and not (thousands and _in_number(text, i)):
            parts.append(text[start:i])
            start = i + 1
    parts = [part.strip() for part in (*parts, text[start:])]
    return _split_and(parts) if any(parts) else []


def listing(
    given: str,
    key: str,
    *,
    ordered: bool | None = None,
    tolerance: float | None = None,
    **_,
) -> str:
    r"""Returns the reason for an answer that is a list, numbers within the relative `tolerance`.

    By default the order counts if `key` is not written \{...\}.
    """
    right = elements(key)
    if not right or not all(right):
        return "bad_key"
    if not elements(given):
        return "unreadable"
    match = (
        _match_in_order if (not is_set(key) if ordered is None else ordered) else _match
    )
    readings = [elements(given, thousands=thousands) for thousands in (False, True)]
    is_equal = any(
        len(reading) == len(right) and match(reading, right, tolerance)
        for reading in readings
    )
    return "ok" if is_equal else "different"


def _match_in_order(given: list[str], right: list[str], tolerance) -> bool:
    return all(_is_same(x, y, tolerance) for x, y in zip(given, right, strict=True))


def _match(given: list[str], right: list[str], tolerance) -> bool:
    """Returns whether each right element takes away one given element, and none is left."""
    left = list(given)
    for y in right:
        found = next((x for x in left if _is_same(x, y, tolerance)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is_same(given: str, key: str, tolerance) -> bool:
    """Compares two elements by what the right one looks like."""
    if answers.number(key) is not None:
        is_whole = tolerance is None and re.fullmatch(r"[-+]?[0-9,]+", key)
        compare = scalars.integer if is_whole else scalars.real
    elif key[:1] in _PAIRS and len(elements(key)) > 1:
        compare = listing
    else:
        compare = expressions.expression if re.search(r"[\\^]", key) else scalars.text
    return compare(given, key, tolerance=tolerance) == "ok"


def _ascii(text: str) -> str:
    r"""Returns plain text in which \{ is a bracket like the others."""
    text = re.sub(r"\\(?:left|right)(?![a-z])", "", text)
    text = re.sub(r"\\l?r?brace(?![a-z])|\\([{}])", r"\1", text)
    return answers.formula(text).replace(r"\%", "%").strip()


def _inside(text: str) -> str:
    """Returns `text` without the one pair of brackets that encloses all of it."""
    if not text or _PAIRS.get(text[0]) != text[-1]:
        return text
    depth = 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            return text[1:-1].strip() if i == len(text) - 1 else text
    return text


def _in_number(text: str, comma: int) -> bool:
    """Returns whether the character at `comma` may separate thousands."""
    behind = re.match(r"[0-9]{3}(?![0-9])", text[comma + 1 : comma + 5])
    return (
        text[comma] == "," and behind is not None and text[comma - 1 : comma].isdigit()
    )


def _split_and(parts: list[str]) -> list[str]:
    """Splits the last element at its "and"."""
    last = re.sub(r"^and\s+", "", re.sub(r"\\text\s?\{\s?and\s?\}", "and", parts[-1]))
    return [*parts[:-1], *re.split(r"\s+and\s+", last)]
