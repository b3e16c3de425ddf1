r"""Reads a text into a value, once and whole, by one grammar.

    list      item {("," | ";" | "or" | "and" | "&") item}
    item      side {("=" | "<" | "\\le" | "\\in" | "\\approx" | ...) side}
    side      part {":" part}
    part      name | bracketed {"\\cup" bracketed} | sum [unit]     (sums are read in `formulas`)

A text outside this grammar is words if it is prose, or LaTeX with other commands, which is compared by
spelling or left to SymPy's own reader; otherwise it is nothing. No bracket is read more than twice, so
reading takes linear time.
"""

import dataclasses
import functools
import itertools
import re
from typing import TypeGuard

from vade_jax.rewards import answers, formulas, tokens, units, values
from vade_jax.rewards.tokens import CLOSERS, OPENERS, SEPARATORS, Cursor, Senseless, Unread
from vade_jax.rewards.values import Both, Collection, Formula, Number, Relation, Value, Words

_MOST = 20_000  # characters of a key; an answer has at most `answers.MAX_LENGTH`
_LEAD = re.compile(r"(?:the )?(?:final |correct )?answer(?: is\s*:?|\s*:)\s*", re.IGNORECASE)
_PLAIN = re.compile(
    r"(-?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,99})(?:\.[0-9]{1,99})?)(?:/([0-9]{1,99}))?"
)
_ADVANCED = {
    f"\\{name}"
    for name in ("int", "iint", "oint", "sum", "prod", "lim", "partial", "setminus", "cap", "cup")
}
_KNOWN = {*tokens.RELATIONS, *OPENERS, *CLOSERS, *formulas.SHAPES, *formulas.FACTORS}
_KNOWN |= {"\\times", "\\pm", "\\mp", "\\degree", "\\emptyset", "\\mathbb"}
_DENIALS = {"not", "no", "nor", "never", "neither", "except", "without"}
_CURRENCIES = {"\\$", "\\€", "\\£", "\\¥"}


def lead(text: str) -> str:
    """Returns `text` without "the answer is" before it."""
    return _LEAD.sub("", text.strip(), count=1)


@functools.lru_cache(maxsize=16384)  # cached: a key is read once, like equal answers of a group
def read(text: str, *, numeric: bool = False, thousands: bool | None = None) -> Value | None:
    """Returns the value of a whole text; None if no value can be read with certainty.

    Args:
        text: of an answer or a key, as LaTeX or plain.
        numeric: a number is expected: a letter after it is a unit (5 m) or a factor (2.5M), and no name.
        thousands: whether a comma before three digits belongs to a number; by default it does, but not in
            "(3,100)", where no other comma has a space after it.
    """
    plain = _PLAIN.fullmatch(text)
    if plain and len(text) < 100 and (thousands is not False or "," not in text):
        return _plain(*plain.groups())
    if len(text) > _MOST:
        return None
    text = tokens.clean(lead(text))
    if thousands is None:
        thousands = ", " in text or not text.startswith(("(", "[", "\\{", "\\left"))
    cut = tokens.cut(text, thousands=thousands)
    try:
        c = Cursor(text, _with_condition(cut), numeric)
        value = listed(c)
        if c.peek():
            raise Unread
        return value
    except Unread:
        return _otherwise(text, cut)
    except Senseless:
        return None


def _with_condition(cut: list[tokens.Token]) -> list[tokens.Token]:
    """Returns the tokens with a condition in brackets behind as an item: y = 2x (x > 0) is y = 2x, x > 0."""
    levels = itertools.accumulate((x.text in CLOSERS) - (x.text in OPENERS) for x in cut[::-1])
    at = len(cut) - 1 - next((i for i, level in enumerate(levels) if not level), len(cut))
    if at < 1 or (cut[at].text, cut[-1].text) != ("(", ")"):
        return cut
    if cut[at - 1].text in (*OPENERS, *SEPARATORS, *tokens.RELATIONS):
        return cut
    before, inside = ({x.text for x in part} for part in (cut[:at], cut[at + 1 : -1]))
    # P(X > 2) has none.
    is_apart = cut[at - 1].kind != "letters" or cut[at].spaced or before & tokens.RELATIONS
    if not is_apart or not inside & tokens.RELATIONS:
        return cut
    return [*cut[:at], dataclasses.replace(cut[at], text=","), *cut[at + 1 : -1]]


def _plain(sign: str, top: str, bottom: str | None) -> Number | None:
    """Returns the value of plain digits, as the grammar would, twenty times as fast."""
    top = top.replace(",", "")
    tree = ("n", top) if bottom is None else ("/", ("n", top), ("n", bottom))
    tree = ("-", tree) if sign else tree
    found = values.literal(tree)
    return found and Number(found[0], tree, *found[1:])


def elements(text: str) -> tuple[bool, list[str]]:
    """Returns whether a list is written as a set, and the texts of its elements."""
    text = tokens.clean(text)
    cut = tokens.cut(text, thousands=", " in text)
    is_set = bool(cut) and cut[0].text in ("{", "\\{")
    levels = [(token.text in OPENERS) - (token.text in CLOSERS) for token in cut]
    if levels and levels[0] == 1 and 0 not in list(itertools.accumulate(levels))[:-1]:
        cut, levels = cut[1:-1], levels[1:-1]
    parts = [[]]
    for token, depth in zip(cut, itertools.accumulate(levels), strict=True):
        if depth or token.text not in SEPARATORS:
            parts[-1].append(token)
        elif parts[-1] or token.text not in ("and", "or"):  # "red, blue, and green"
            parts.append([])
    found = [text[part[0].start : part[-1].end] if part else "" for part in parts]
    return is_set, found if any(found) else []


def _otherwise(text: str, cut: list[tokens.Token]) -> Value | None:
    """Returns the value of a text outside the grammar: words, or a formula that SymPy may know."""
    if answers.is_prose(plain := answers.plain(text)):
        return Words(plain)
    if len(text) > answers.MAX_LENGTH or not _is_balanced(cut):
        return None
    is_worded = any(len(token.text) > 3 or token.roman for token in cut if token.kind == "letters")
    commands = {token.text for token in cut if token.text[0] == "\\"}
    is_other = bool(commands - _KNOWN) or any(token.roman for token in cut)
    is_advanced = not is_worded and commands & _ADVANCED and commands <= _KNOWN | _ADVANCED
    if not is_advanced and not is_other:
        return None
    return values.Latex(text, tuple(token.text for token in cut), bool(is_advanced))


def _is_balanced(cut: list[tokens.Token]) -> bool:
    opened = []
    for text in (token.text for token in cut):
        if text in OPENERS:
            opened.append(text)
        elif text in CLOSERS and (not opened or text not in OPENERS[opened.pop()]):
            return False
    return not opened


# ------------------------------------------------------------------------------ lists, sides and names
def listed(c: Cursor) -> Value:
    """Reads items with separators between them."""
    items, between = [_item(c)], set()
    while c.peek() in SEPARATORS:
        between.add(SEPARATORS[c.take()])
        if c.peek() in ("and", "or"):  # "red, blue, and green"
            between.add(c.take())
        items.append(_item(c))
    if not between:
        return items[0]
    holds_all = between == {"and"} and all(map(_is_inequality, items))
    return Collection("or" if "or" in between else "and" * holds_all, tuple(items))


def _is_inequality(value: Value) -> bool:
    return isinstance(value, Relation) and not {"<", "<=", ">", ">="}.isdisjoint(value.signs)


def _item(c: Cursor) -> Value:
    """Reads a relation, or else the words up to the next separator."""
    start = c.at
    try:
        value = _relation(c)
        if not c.ends():
            raise Unread
        return value
    except Unread:
        c.reset(start)
        return _words(c)


def _words(c: Cursor) -> Words:
    start = c.at
    while c.peek() and c.peek() not in (*SEPARATORS, *CLOSERS, ":"):
        if c.peek() in OPENERS or c.peek() == "\\begin":
            raise Unread
        c.at += 1
    if c.at == start:
        raise Unread
    text = answers.plain(c.text[c.tokens[start].start : c.tokens[c.at - 1].end])
    if not (answers.is_prose(text) or (text.isalnum() and text[0].isalpha())):  # as H2O
        raise Unread
    return Words(text)


def _relation(c: Cursor) -> Value:
    if c.at == 0 and c.peek() in ("=", "\\approx"):  # "\approx 2.5"
        c.take()
    sides, signs = [_side(c)], []
    while c.peek() in tokens.RELATIONS:
        signs.append(c.take())
        is_set = signs[-1] in ("\\in", "\\notin") and c.peek() in ("R", "Z", "N", "Q")
        sides.append(_numbers(c.take()) if is_set and c.ends(1) else _side(c))
    if not signs:
        return sides[0]
    both = [side.items if isinstance(side, Both) else (side, side) for side in sides]
    found = [Relation(tuple(signs), one) for one in zip(*both, strict=True)]
    return found[0] if found[0] == found[1] else Both("or", tuple(found))


def _side(c: Cursor) -> Value:
    parts = [_part(c)]
    while c.accept(":"):
        parts.append(_part(c))
    return parts[0] if len(parts) == 1 else Collection(":", tuple(parts))


def _part(c: Cursor) -> Value:
    if name := _name(c):
        return name
    c.length = 0
    if c.kind() == "based":
        return _based(c)
    if [c.kind(), c.peek(1), c.kind(2), c.peek(3)] == ["number", "\\degree", "number", "'"]:
        return _minutes(c)
    start = c.at
    if (found := _bracketed(c) or _point(c)) is not None:
        return found
    c.reset(start)
    minus = c.peek() == "-" and c.peek(1) in _CURRENCIES and c.take()
    if c.peek() in _CURRENCIES:
        c.unit = units.UNITS[c.take()]
    tree = formulas.summed(c)
    return _measured(c, ("-", tree) if minus else tree)


def _based(c: Cursor) -> Value:
    """Reads digits in a base, compared by spelling; base 10 gives a number."""
    digits, _, base = c.take().replace("{", "").replace("}", "").partition("_")
    is_known = len(digits) <= values.DIGITS and 2 <= int(base) <= 16
    if not is_known or any(int(digit, 16) >= int(base) for digit in digits):
        raise Unread
    name = f"{digits.lstrip('0') or '0'}_{int(base)}"
    return _calculated(("n", digits), "", None, False) if int(base) == 10 else Formula(("v", name))


def _minutes(c: Cursor) -> Value:
    r"""Reads degrees and minutes, 22^\circ 30'."""
    degrees, _, minutes, _ = (c.take() for _ in range(4))
    tree = ("+", ("n", degrees), ("/", ("n", minutes), ("n", "60")))
    return _calculated(tree, "", "degree", percent=False, full=True)


def _measured(c: Cursor, tree: values.Tree) -> Value:
    """Reads the unit or sign after a number or formula, and returns the value of both."""
    scale, unit, percent = units.behind(c) or ("", None, False)
    unit, c.unit = c.unit if unit is None else unit, None
    if any(node[0] in ("pm", "mp") for node in values.nodes(tree)):
        both = (values.expanded(tree, upper) for upper in (True, False))
        return Both("or", tuple(_calculated(one, scale, unit, percent, full=True) for one in both))
    return _calculated(tree, scale, unit, percent)


def _name(c: Cursor) -> Value | None:
    r"""Reads letters that are spelled and stand alone on their side: \angle ABC, SAS, "the area"."""
    start = c.at
    c.at += c.peek() == "m" and c.peek(1) == "\\angle"
    shape = c.take().strip("\\") if c.peek() in formulas.SHAPES else ""
    braced = bool(shape) and c.accept("{")
    count = 0
    while c.kind(count) == "letters" and not c.ends(count):
        count += 1
    letters = [c.tokens[c.at + i] for i in range(count)]
    if shape and not count and c.kind() == "number":
        letters, count = [c.tokens[c.at]], 1  # angle 1
    c.at += count
    marks = c.primes()
    closed = not braced or c.accept("}")
    text = "".join(token.text for token in letters)
    if count and closed and c.ends():
        if name := _named(c, shape, letters, text + marks):
            return Formula(("v", name))
        is_word = count == 1 and not shape and text not in formulas.FUNCTIONS and c.peek() != "="
        if is_word and len(text) > 2 and not marks:
            return Words(text)  # red is no product
    c.at, c.offset = start, 0
    return None


def _named(c: Cursor, shape: str, letters: list[tokens.Token], text: str) -> str | None:
    """Returns the spelling of letters that are a name; None if they are words or a product."""
    if shape:
        turns = shape in ("angle", "overline")  # the angle CBA is ABC, the side BA is AB
        return f"{shape} {min(text, text[::-1]) if turns and text.isalpha() else text}"
    is_capital = len(text.rstrip("'")) > 1 and text.isupper()
    if c.peek() != "=":
        return text if is_capital and len(letters) == 1 else None
    words = " ".join(token.text for token in letters)
    is_worded = len(words) > 2 and (letters[0].roman or len(letters[0].text) > 3)
    is_denied = bool(_DENIALS.intersection(words.casefold().split()))
    return words if (is_worded or is_capital) and len(letters) <= 4 and not is_denied else None


def _bracketed(c: Cursor) -> Value | None:
    r"""Reads a list in brackets that is a whole side, intervals with \cup between, or a matrix."""
    found = [_group(c)]
    while found[-1] is not None and c.accept("\\cup"):
        found.append(_group(c))
    groups = [group for group in found if group is not None]
    if len(groups) < len(found) or not c.ends():
        return None
    return groups[0] if len(groups) == 1 else Collection("u", tuple(groups))


def _point(c: Cursor) -> Relation | None:
    """Reads a point with its name, A(2, 3), as A = (2, 3)."""
    if c.kind() != "letters" or not re.fullmatch("[A-Z]", c.peek()) or c.peek(1) != "(":
        return None
    name, place = Formula(("v", c.take())), _group(c)
    if not isinstance(place, Collection) or place.brackets != "()" or len(place.items) < 2:
        return None
    if not c.ends() or c.peek() in tokens.RELATIONS:
        return None
    return Relation(("=",), (name, place))


def _group(c: Cursor) -> Value | None:
    if c.accept("\\emptyset"):
        return Collection("{}", ())
    if c.accept("\\mathbb"):
        return _numbers(formulas.spelled(c))
    if c.peek() not in (*OPENERS, "\\begin") or c.depth >= formulas.DEEPEST:
        return None
    c.depth += 1
    try:
        if c.peek() == "\\begin":
            return _environment(c)
        opener = c.take()
        # A system, with \right. behind; \{ \begin{pmatrix} is a set of matrices
        is_system = c.peek(2) in ("array", "cases", "aligned")
        if opener == "\\{" and c.peek() == "\\begin" and is_system:
            system = _environment(c, is_system=True)
            c.accept("\\}", ".")
            return system
        if opener == "\\{" and c.kind() == "letters" and c.peek(1) in ("|", ":"):
            c.at += 2  # \{x \mid x > 5\} is x > 5
        inside = None if c.peek() in CLOSERS else listed(c)
        closer = c.take(*OPENERS[opener])
    except Unread:
        return None
    finally:
        c.depth -= 1
    return _in_brackets(opener, inside, closer)


def _numbers(letter: str) -> Value:
    r"""Returns \mathbb{R} as an interval, and other sets of numbers as names."""
    if letter != "R":
        return Formula(("v", f"set {letter}"))
    return Collection("()", (Formula(("-", values.INFINITY.tree)), values.INFINITY))


def _environment(c: Cursor, is_system: bool = False) -> Value:
    r"""Reads \begin{...} rows \end{...}: a matrix, or a system of equations that hold together."""
    c.take("\\begin")
    c.take("{")
    name = c.take("matrix", "pmatrix", "bmatrix", "array", "cases", "aligned")
    c.take("}")
    if name == "array":
        formulas.spelled(c)  # how its columns are set
    is_system |= name in ("cases", "aligned")
    if is_system:
        _bare(c)
    rows = [listed(c)]
    while c.accept("\\\\"):
        if c.peek() != "\\end":
            rows.append(listed(c))
    for expected in ("\\end", "{", name, "}"):
        c.take(expected)
    if is_system:
        return Collection("", tuple(rows))
    cells = (row.items if _is_list(row) else (row,) for row in rows)
    return Collection("rows", tuple(Collection("rows", row) for row in cells))


def _bare(c: Cursor) -> None:
    """Drops the signs that only align the equations of a system, or end its lines."""
    end = next((i for i in range(c.at, len(c.tokens)) if c.tokens[i].text == "\\end"), c.at)
    texts = [token.text for token in c.tokens] + [""]

    def is_needed(i: int) -> bool:
        if texts[i] in (",", ";", "."):
            return texts[i + 1] not in ("\\\\", "\\end")
        return texts[i] != "&" or tokens.RELATIONS.isdisjoint((texts[i - 1], texts[i + 1]))

    c.tokens[c.at : end] = [c.tokens[i] for i in range(c.at, end) if is_needed(i)]


def _is_list(value: Value | None) -> TypeGuard[Collection]:
    return isinstance(value, Collection) and value.brackets in ("", "or")


def _in_brackets(opener: str, inside: Value | None, closer: str) -> Value:
    brackets = opener.strip("\\") + closer.strip("\\")
    if inside is None:
        return Collection(brackets, ())
    if _is_list(inside):
        is_pair = inside.brackets == "or" and opener == "("  # (3 or 4)
        return inside if is_pair else Collection(brackets, inside.items)
    is_matrix = isinstance(inside, Collection) and inside.brackets == "rows"
    if opener in ("(", "{") or isinstance(inside, Relation) or is_matrix:
        return inside
    return Collection(brackets, (inside,))


def _calculated(
    tree: values.Tree, scale: str, unit: str | None, percent: bool, full: bool = False
) -> Value:
    """Returns the number or the formula of a tree and of what follows it; a sum is a number if `full`."""
    if values.size(tree) is None:
        raise Senseless
    infinite = values.INFINITY.tree
    if infinite in values.nodes(tree) and tree not in (infinite, ("-", infinite)):
        raise Senseless
    if percent and unit:
        raise Unread
    found = values.literal(tree)
    if full and found is None and (value := values.exact(tree)) is not None:
        found = value, None, 0
    if found is None:
        if scale:
            raise Unread
        return Formula(("/", tree, ("n", "100")) if percent else tree, unit)
    value, last, digits = found
    if scale:
        zeros = units.SCALES[scale]
        value, tree = value * 10**zeros, ("*", tree, ("^", ("n", "10"), ("n", str(zeros))))
        last = None if last is None else last + zeros
    return Number(value, tree, last, digits, unit, percent)
