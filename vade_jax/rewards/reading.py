r"""Reads a text into a value, once and whole, by one grammar.

    list      item {("," | ";" | "or" | "and" | "&") item}
    item      side {("=" | "<" | "\\le" | "\\in" | "\\approx" | ...) side}
    side      part {":" part}
    part      name | group {("\\cup" | "\\setminus") group} | number unit number unit | sum [unit]

Sums are read in `formulas`, units in `units`. A text outside this grammar is spelled, if it is prose or LaTeX
with other commands; otherwise it is nothing. No bracket is read more than twice, so reading takes linear time.
"""

import functools
import re
from fractions import Fraction

from vade_jax.rewards import answers, formulas, tokens, units, values
from vade_jax.rewards.tokens import CLOSERS, OPENERS, SEPARATORS, Cursor, Senseless, Token, Unread
from vade_jax.rewards.values import LOOSE, Both, Collection, Formula, Kind, Number, Relation
from vade_jax.rewards.values import Tree, Unit, Value, Words

_MOST = 20_000  # characters of a key; an answer has at most `answers.MAX_LENGTH`
_LEAD = re.compile(r"(?:the )?(?:final |correct )?answer(?: is\s*:?|\s*:)\s*", re.IGNORECASE)
_PLAIN = re.compile(
    r"(-?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,99})(?:\.[0-9]{1,99})?)(?:/([0-9]{1,99}))?"
)
_COMPARES = re.compile(r"[<>]|\\(?:leq?|geq?|neq?|in|leqslant|geqslant)(?![a-z])")
_OTHER = {"\\" + name for name in "int iint oint sum prod lim partial cap cup setminus ldots".split()}
_KNOWN = {*tokens.RELATIONS, *OPENERS, *CLOSERS, *formulas.SHAPES, *formulas.FACTORS}
_KNOWN |= {"\\times", "\\pm", "\\mp", "\\degree", "\\emptyset", "\\mathbb"}
_DENIALS = {"not", "no", "nor", "never", "neither", "except", "without"}
_CURRENCIES = {"\\$", "\\€", "\\£", "\\¥"}
_REALS = Collection(Kind.OPEN, (Formula(("-", values.INFINITY)), Formula(values.INFINITY)))
_SYSTEMS = ("cases", "aligned")


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
        thousands = ", " in text or not text.startswith(("(", "[", "\\{"))
    cut = tokens.cut(_with_condition(text), thousands=thousands)
    try:
        c = Cursor(_with_condition(text), cut, numeric)
        value = listed(c)
        if c.peek():
            raise Unread
        return value
    except Unread:
        return _spelled(text, cut)
    except Senseless:
        return None


def _plain(sign: str, top: str, bottom: str | None) -> Number | None:
    """Returns the value of plain digits, as the grammar would, twenty times as fast."""
    top = top.replace(",", "")
    tree = ("n", top) if bottom is None else ("/", ("n", top), ("n", bottom))
    tree = ("-", tree) if sign else tree
    found = values.literal(tree)
    return found and Number(tree, None, *found)


def _with_condition(text: str) -> str:
    """Returns y = 2x (x > 0) as y = 2x, x > 0; P(X > 2) has no condition."""
    head, opener, inside = text.removesuffix(")").rpartition("(")
    is_last = opener and text.endswith(")") and ")" not in inside and _COMPARES.search(inside)
    is_apart = re.search(r"[^a-zA-Z\s(,=<>]\s*$|[^(,=<>]\s$|=.*[^(,=<>]$", head[-50:])
    return f"{head}, {inside}" if is_last and is_apart else text


def _spelled(text: str, cut: list[Token]) -> Words | None:
    """Returns a text outside the grammar as its words, or as its tokens."""
    if answers.is_prose(plain := answers.plain(text)):
        return Words(answers.signed_words(plain))
    if len(text) > answers.MAX_LENGTH or not _is_balanced(cut):
        return None
    commands = {token.text for token in cut if token.text[0] == "\\"}
    is_latex = bool(commands - _KNOWN) or any(token.roman for token in cut)
    return Words(("\\", *(token.text for token in cut))) if is_latex else None


def _is_balanced(cut: list[Token]) -> bool:
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
    kind = next((k for k in (Kind.OR, Kind.AND) if k.value in between), Kind.LIST)
    return Collection(kind, tuple(items))


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
    return Words(answers.signed_words(text))


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
    if set(signs) == {"="}:
        sides = list(map(_length, sides))
    both = [side.items if isinstance(side, Both) else (side, side) for side in sides]
    found = [Relation(tuple(signs), one) for one in zip(*both, strict=True)]
    return found[0] if found[0] == found[1] else Both(Kind.OR, tuple(found))


def _length(side: Value) -> Value:
    r"""Returns the segment \overline{AC} of an equation as its length AC."""
    name = values.name_of(side) or ""
    return Formula(("v", name.removeprefix("overline "))) if name.startswith("overline ") else side


def _side(c: Cursor) -> Value:
    parts = [_part(c)]
    while c.accept(":"):
        parts.append(_part(c))
    if len(parts) == 1 and isinstance(parts[0], Number) and c.accept(*tokens.TO):
        return Collection(Kind.RANGE, (parts[0], _part(c)))
    return parts[0] if len(parts) == 1 else Collection(Kind.RATIO, tuple(parts))


def _part(c: Cursor) -> Value:
    if name := _name(c):
        return name
    c.length = 0
    if c.kind() == "based":
        return _based(c)
    start = c.at
    for read_it in (_bracketed, _point, _compound):
        if (found := read_it(c)) is not None:
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


def _compound(c: Cursor) -> Value | None:
    r"""Reads amounts of one quantity in falling units: 5 ft 6 in, 2小时30分, 22^\circ 30'."""
    parts: list[tuple[str, Unit]] = []
    while c.kind() == "number" and not c.offset:
        digits = c.take()
        if c.peek() == "\\degree" or (parts and c.peek() == "'"):
            unit = Unit(Fraction(1, 1 if c.take() != "'" else 60), units.UNITS["degree"].bases)
        elif (unit := units.single(c)) is None:
            return None
        if parts and not (unit.bases == parts[-1][1].bases and unit.factor < parts[-1][1].factor):
            return None
        parts.append((digits, unit))
    if len(parts) < 2 or not c.ends():
        return None
    first = parts[0][1]
    tree: Tree = ("n", parts[0][0])
    for digits, unit in parts[1:]:
        tree = ("+", tree, ("*", ("n", digits), ("n", str(unit.factor / first.factor))))
    return _calculated(tree, "", first, percent=False, full=True)


def _measured(c: Cursor, tree: Tree) -> Value:
    """Reads the unit or sign after a number or formula, and returns the value of both."""
    scale, unit, percent = units.behind(c) or ("", None, False)
    unit, c.unit = c.unit if unit is None else unit, None
    if any(node[0] in ("pm", "mp") for node in values.nodes(tree)):
        both = (values.expanded(tree, upper) for upper in (True, False))
        return Both(
            Kind.OR, tuple(_calculated(one, scale, unit, percent, full=True) for one in both)
        )
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
    if shape and not count and c.kind() == "number":
        count = 1  # angle 1
    letters = c.tokens[c.at : c.at + count]
    c.at += count
    marks = c.primes()
    closed = not braced or c.accept("}")
    text = "".join(token.text for token in letters)
    if count and closed and c.ends():
        if name := _named(c, shape, letters, text + marks):
            return Formula(("v", name))
        is_word = count == 1 and not shape and text not in formulas.FUNCTIONS and c.peek() != "="
        if is_word and len(text) > 2 and not marks:
            return Words(answers.signed_words(text))  # red is no product
    c.at, c.offset = start, 0
    return None


def _named(c: Cursor, shape: str, letters: list[Token], text: str) -> str | None:
    """Returns the spelling of letters that are a name; None if they are words or a product."""
    if shape:
        turns = shape in ("angle", "overline")  # the angle CBA is ABC, the side BA is AB
        return f"{shape} {min(text, text[::-1]) if turns and text.isalpha() else text}"
    is_capital = len(text.rstrip("'")) > 1 and text.isupper()
    if c.peek() != "=":
        return text if is_capital and len(letters) == 1 else None
    words = " ".join(token.text for token in letters)
    is_worded = len(words) > 2 and (letters[0].roman or len(letters[0].text) > 3)
    is_worded |= re.fullmatch("p[A-Z][a-z]?", words) is not None  # pH
    is_denied = bool(_DENIALS.intersection(words.casefold().split()))
    return words if (is_worded or is_capital) and len(letters) <= 4 and not is_denied else None


def _bracketed(c: Cursor) -> Value | None:
    r"""Reads a list in brackets that is a whole side, sets with \cup, \cap or \setminus between, or a matrix."""
    whole = _group(c)
    while whole is not None and c.peek() in ("\\cup", "\\cap", "\\setminus"):
        kind = Kind(c.take()[1:])
        other = _group(c)
        whole = other and Collection(kind, (whole, other))
    return whole if c.ends() else None


def _point(c: Cursor) -> Relation | None:
    """Reads a point with its name, A(2, 3), as A = (2, 3)."""
    if c.kind() != "letters" or not re.fullmatch("[A-Z]", c.peek()) or c.peek(1) != "(":
        return None
    name, place = Formula(("v", c.take())), _group(c)
    if not isinstance(place, Collection) or place.kind is not Kind.OPEN or len(place.items) < 2:
        return None
    if not c.ends() or c.peek() in tokens.RELATIONS:
        return None
    return Relation(("=",), (name, place))


def _group(c: Cursor) -> Value | None:
    if c.accept("\\emptyset"):
        return Collection(Kind.SET, ())
    if c.accept("\\mathbb"):
        return _numbers(formulas.spelled(c))
    if c.peek() not in (*OPENERS, "\\begin") or c.depth >= formulas.DEEPEST:
        return None
    c.depth += 1
    try:
        if c.peek() == "\\begin":
            return _environment(c)
        opener = c.take()
        if opener == "\\{" and c.peek() == "\\begin" and c.peek(2) in ("array", *_SYSTEMS):
            system = _environment(c, is_system=True)
            c.accept("\\}", ".")
            return system
        builder = opener == "\\{" and _builds(c)
        inside = None if c.peek() in CLOSERS else listed(c)
        closer = c.take(*OPENERS[opener])
    except Unread:
        return None
    finally:
        c.depth -= 1
    return inside if builder else _in_brackets(opener, inside, closer)


def _builds(c: Cursor) -> bool:
    r"""Reads the beginning of \{x \mid x > 5\} or \{x \in \mathbb{R} \mid x > 5\}; both are x > 5."""
    start = c.at
    if c.kind() == "letters" and c.take() and c.accept("\\in"):
        if not (c.accept("R") or (c.accept("\\mathbb") and formulas.spelled(c) == "R")):
            c.at = start
    if c.at > start and c.accept("|", ":"):
        return True
    c.at, c.offset = start, 0
    return False


def _numbers(letter: str) -> Value:
    r"""Returns \mathbb{R} as an interval, and other sets of numbers as names."""
    return _REALS if letter == "R" else Formula(("v", f"set {letter}"))


def _environment(c: Cursor, is_system: bool = False) -> Value:
    r"""Reads \begin{...} rows \end{...}: a matrix, or a system of equations that hold together."""
    c.take("\\begin")
    c.take("{")
    name = c.take("matrix", "pmatrix", "bmatrix", "array", *_SYSTEMS)
    c.take("}")
    if name == "array":
        formulas.spelled(c)  # how its columns are set
    is_system |= name in _SYSTEMS
    if is_system:
        _bare(c)
    rows = [listed(c)]
    while c.accept("\\\\"):
        if c.peek() != "\\end":
            rows.append(listed(c))
    for expected in ("\\end", "{", name, "}"):
        c.take(expected)
    if is_system:
        return Collection(Kind.LIST, tuple(rows))
    cells = (row.items if _is_list(row) else (row,) for row in rows)
    return Collection(Kind.ROWS, tuple(Collection(Kind.ROWS, row) for row in cells))


def _bare(c: Cursor) -> None:
    """Drops what only aligns the lines of a system or ends them, and the "if" of a case."""
    end = next((i for i in range(c.at, len(c.tokens)) if c.tokens[i].text == "\\end"), c.at)
    texts = [token.text for token in c.tokens] + [""]

    def is_needed(i: int) -> bool:
        if texts[i] in (",", ";", "."):
            return texts[i + 1] not in ("\\\\", "\\end", "&")
        is_joint = texts[i] != "&" or tokens.RELATIONS.isdisjoint((texts[i - 1], texts[i + 1]))
        return is_joint and texts[i] not in ("if", "when", "当")

    c.tokens[c.at : end] = [c.tokens[i] for i in range(c.at, end) if is_needed(i)]


def _is_list(value: Value | None) -> bool:
    return isinstance(value, Collection) and value.kind in LOOSE - {Kind.SET}


def _in_brackets(opener: str, inside: Value | None, closer: str) -> Value:
    kind = Kind(opener.strip("\\") + closer.strip("\\"))
    if inside is None:
        return Collection(kind, ())
    if isinstance(inside, Collection) and _is_list(inside):
        if opener == "(" and inside.kind is not Kind.LIST:  # (3 or 4)
            return inside
        if kind in values.PAIRS and any(isinstance(item, Both) for item in inside.items):
            both = (x.items if isinstance(x, Both) else (x, x) for x in inside.items)
            points = (Collection(kind, point) for point in zip(*both, strict=True))
            return Both(Kind.OR, tuple(points))  # (\pm 3, \mp 1)
        return Collection(kind, inside.items)
    is_matrix = isinstance(inside, Collection) and inside.kind is Kind.ROWS
    if opener in ("(", "{") or isinstance(inside, Relation) or is_matrix:
        return inside
    return Collection(kind, (inside,))


def _calculated(
    tree: Tree, scale: str, unit: Unit | None, percent: bool, full: bool = False
) -> Formula:
    """Returns the number or the formula of a tree and of what follows it; a sum is a number if `full`."""
    if values.size(tree) is None:
        raise Senseless
    infinite = values.INFINITY
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
    return Number(tree, unit, value, last, digits, percent)
