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
from vade_jax.rewards.tokens import CLOSERS, OPENERS, SEPARATORS, Token, Unread
from vade_jax.rewards.values import LOOSE, Both, Collection, Formula, Kind, Number, Relation
from vade_jax.rewards.values import Tree, Unit, Value, Words

_MOST = 20_000  # characters of a key; an answer has at most `answers.MAX_LENGTH`
_DEEPEST = 25  # brackets within brackets
_LEAD = re.compile(r"(?:the )?(?:final |correct )?answer(?: is\s*:?|\s*:)\s*", re.IGNORECASE)
_PLAIN = re.compile(
    r"(-?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,99})(?:\.[0-9]{1,99})?)(?:/([0-9]{1,99}))?"
)
_KNOWN = {*tokens.RELATIONS, *OPENERS, *CLOSERS, *formulas.SHAPES, *formulas.FACTORS}
_KNOWN |= {"\\times", "\\pm", "\\mp", "\\degree", "\\emptyset", "\\mathbb"}
_DENIALS = {"not", "no", "nor", "never", "neither", "except", "without"}
_CURRENCIES = {"\\$", "\\€", "\\£", "\\¥"}
_REALS = Collection(Kind.OPEN, (Formula(("-", values.INFINITY)), Formula(values.INFINITY)))


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
    form = _with_condition(tokens.rewritten(text))
    if thousands is None:
        thousands = ", " in text or not form.startswith(("(", "[", "\\{"))
    cut = list(tokens.cut(form, thousands=thousands))
    if (depth := _depth(cut)) is not None and depth > _DEEPEST:
        return None
    reader = _Reader(form, cut, numeric)
    try:
        value = reader.listed()
        if not reader.peek():
            return value
    except Unread:
        pass
    except (ArithmeticError, RecursionError):  # it divides by zero, or is too large
        return None
    return _spelled(text, cut)


def _plain(sign: str, top: str, bottom: str | None) -> Number | None:
    """Returns the value of plain digits, as the grammar would, twenty times as fast."""
    top = top.replace(",", "")
    tree = ("n", top) if bottom is None else ("/", ("n", top), ("n", bottom))
    tree = ("-", tree) if sign else tree
    try:
        found = _calculated(tree)
    except ArithmeticError:
        return None
    return found if isinstance(found, Number) else None


def _with_condition(text: str) -> str:
    """Returns y = 2x (x > 0) as y = 2x, x > 0; P(X > 2) has no condition."""
    head, opener, inside = text.removesuffix(")").rpartition("(")
    is_last = opener and text.endswith(")") and ")" not in inside and tokens.COMPARES.search(inside)
    is_apart = re.search(r"[^a-zA-Z\s(,=<>]\s*$|[^(,=<>]\s$|=.*[^(,=<>]$", head[-50:])
    return f"{head}, {inside}" if is_last and is_apart else text


def _depth(cut: list[Token]) -> int | None:
    """Returns how many brackets are within each other; None if they do not close."""
    opened, deepest = [], 0
    for token in cut:
        if token.text in OPENERS:
            opened.append(token.text)
            deepest = max(deepest, len(opened))
        elif token.text in CLOSERS and (not opened or token.text not in OPENERS[opened.pop()]):
            return None
    return None if opened else deepest


def _spelled(text: str, cut: list[Token]) -> Words | None:
    """Returns a text outside the grammar as its words, or as its tokens."""
    if answers.is_prose(plain := answers.plain(text)):
        return Words(answers.signed_words(plain))
    commands = {token.text for token in cut if token.text[0] == "\\"}
    is_latex = bool(commands - _KNOWN) or any(token.roman for token in cut)
    if len(text) > answers.MAX_LENGTH or _depth(cut) is None or not is_latex:
        return None
    return Words(("\\", *(token.text for token in cut)))


class _Reader(formulas.FormulaReader):
    # -------------------------------------------------------------------------- lists and sides
    def listed(self) -> Value:
        """Reads items with separators between them."""
        items, between = [self._item()], set()
        while self.peek() in SEPARATORS:
            between.add(SEPARATORS[self.take()])
            between.add(self.accept("and", "or"))  # "red, blue, and green"
            items.append(self._item())
        kind = next((k for k in (Kind.OR, Kind.AND) if k.value in between), Kind.LIST)
        return Collection(kind, tuple(items)) if between else items[0]

    def _item(self) -> Value:
        """Reads a relation, or else the words up to the next separator."""
        start, is_upper = self.at, self.is_upper
        try:
            value = self._relation()
            if not self.ends():
                raise Unread
            if not self.is_signed or self.in_point or not is_upper:
                return value
            self.reset(start)  # both values of a plus or minus
            self.is_upper = False
            other = self._relation()
            self.is_upper, self.is_signed = True, False
            return Both(Kind.OR, (value, other))
        except Unread:
            pass
        self.reset(start)
        while self.peek() and self.peek() not in (*SEPARATORS, *CLOSERS, ":"):
            if self.take() in OPENERS:
                raise Unread
        if self.at == start:
            raise Unread
        text = answers.plain(self.text[self.tokens[start].start : self.tokens[self.at - 1].end])
        if not (answers.is_prose(text) or (text.isalnum() and text[0].isalpha())):  # as H2O
            raise Unread
        return Words(answers.signed_words(text))

    def _relation(self) -> Value:
        if self.at == 0:
            self.accept("=", "\\approx")  # "\approx 2.5"
        sides, signs = [self._side()], []
        while self.peek() in tokens.RELATIONS:
            signs.append(self.take())
            is_set = signs[-1] == "\\in" and self.peek() in ("R", "Z", "N", "Q") and self.ends(1)
            sides.append(self._numbers(self.take()) if is_set else self._side())
        if not signs:
            return sides[0]
        if set(signs) == {"="}:  # \overline{AC} = 5 is a length
            names = [(values.name_of(side) or "").removeprefix("overline ") for side in sides]
            sides = [Formula(("v", x)) if x else side for x, side in zip(names, sides, strict=True)]
        return Relation(tuple(signs), tuple(sides))

    def _side(self) -> Value:
        parts = [self._part()]
        while self.accept(":"):
            parts.append(self._part())
        if len(parts) == 1 and isinstance(parts[0], Number) and self.accept(*tokens.TO):
            return Collection(Kind.RANGE, (parts[0], self._part()))
        return parts[0] if len(parts) == 1 else Collection(Kind.RATIO, tuple(parts))

    def _part(self) -> Value:
        start = self.at
        for read_it in (self._name, self._based, self._bracketed, self._compound):
            if (found := read_it()) is not None:
                return found
            self.reset(start)
        minus = self.peek() == "-" and self.peek(1) in _CURRENCIES and self.take()
        if self.peek() in _CURRENCIES:
            self.unit = units.UNITS[self.take()]
        tree = self.summed()
        if self.at - start > answers.MAX_LENGTH:
            raise Unread
        tree = ("-", tree) if minus else tree
        scale, unit, percent = self.suffix() or ("", None, False)
        unit, self.unit = self.unit if unit is None else unit, None
        return _calculated(tree, scale, unit, percent, full=self.is_signed)

    def _based(self) -> Value | None:
        """Reads digits in a base, compared by spelling; base 10 gives a number."""
        if self.kind() != "based":
            return None
        digits, _, base = re.sub("[{}]", "", self.take()).partition("_")
        if not 2 <= int(base) <= 16 or any(int(digit, 16) >= int(base) for digit in digits):
            raise Unread
        name = f"{digits.lstrip('0') or '0'}_{int(base)}"
        return _calculated(("n", digits)) if int(base) == 10 else Formula(("v", name))

    def _compound(self) -> Value | None:
        r"""Reads amounts of one quantity in falling units: 5 ft 6 in, 2小时30分, 22^\circ 30'."""
        tree: Tree = ()
        first = last = Unit(Fraction(0), ())
        while self.kind() == "number" and not self.offset:
            digits = ("n", self.take())
            degree = units.UNITS["degree"]
            unit = Unit(Fraction(1, 60), degree.bases) if self.peek() == "'" else None
            unit = unit or units.named(self.peek())
            if unit is None or not unit.bases:
                return None
            self.take()
            self.accept(".")
            if tree and not (unit.bases == last.bases and unit.factor < last.factor):
                return None
            first, last = first if tree else unit, unit
            share = ("n", str(unit.factor / first.factor))
            tree = ("+", tree, ("*", digits, share)) if tree else digits
        is_whole = tree and tree[0] == "+" and self.ends()
        return _calculated(tree, unit=first, full=True) if is_whole else None

    # -------------------------------------------------------------------------- names
    def _name(self) -> Value | None:
        r"""Reads letters that are spelled and stand alone on their side: \angle ABC, SAS, "the area"."""
        self.at += self.peek() == "m" and self.peek(1) == "\\angle"
        shape = self.take().strip("\\") if self.peek() in formulas.SHAPES else ""
        braced = bool(shape) and self.accept("{")
        start = self.at
        while self.kind() == "letters" and not self.ends():
            self.take()
        if shape and self.at == start and self.kind() == "number":
            self.take()  # angle 1
        letters = self.tokens[start : self.at]
        text = "".join(token.text for token in letters)
        while self.accept("'"):
            text += "'"
        if not letters or (braced and not self.accept("}")) or not self.ends():
            return None
        if shape:
            turns = shape in ("angle", "overline") and text.isalpha()  # the angle CBA is ABC
            return Formula(("v", f"{shape} {min(text, text[::-1]) if turns else text}"))
        is_capital = len(text.rstrip("'")) > 1 and text.isupper()
        is_one = len(letters) == 1
        if self.peek() == "=":
            words = " ".join(token.text for token in letters)
            is_word = len(words) > 2 and (letters[0].roman or len(letters[0].text) > 3)
            is_word |= is_capital or re.fullmatch("p[A-Z][a-z]?", words) is not None  # pH
            is_denied = bool(_DENIALS.intersection(words.casefold().split()))
            return Formula(("v", words)) if is_word and len(letters) < 5 and not is_denied else None
        if is_one and is_capital:
            return Formula(("v", text))
        is_word = is_one and text.isalpha() and len(text) > 2 and text not in formulas.FUNCTIONS
        return Words(answers.signed_words(text)) if is_word else None  # red is no product

    # -------------------------------------------------------------------------- brackets
    def _bracketed(self) -> Value | None:
        r"""Reads a list in brackets that is a whole side, sets with \cup or \setminus between, or a matrix."""
        whole = self._group()
        while whole is not None and self.peek() in ("\\cup", "\\cap", "\\setminus"):
            kind = Kind(self.take()[1:])
            other = self._group()
            whole = other and Collection(kind, (whole, other))
        return whole if self.ends() else None

    def _group(self) -> Value | None:
        if self.accept("\\emptyset"):
            return Collection(Kind.SET, ())
        if self.accept("\\mathbb"):
            return self._numbers(self.spelled())
        if self.peek() not in OPENERS:
            return None
        opener = self.take()
        in_point = self.in_point
        try:
            if opener in ("\\matrix", "\\system"):
                return self._rows(opener)
            builder = opener == "\\{" and self._builds()
            self.in_point = in_point or opener in ("(", "[")  # (\pm 3, \mp 1) are two points
            inside = None if self.peek() in CLOSERS else self.listed()
            closer = self.take(*OPENERS[opener])
        except Unread:
            return None
        finally:
            self.in_point = in_point
        return inside if builder else _in_brackets(opener, inside, closer)

    def _builds(self) -> bool:
        r"""Reads the beginning of \{x \mid x > 5\} or \{x \in \mathbb{R} \mid x > 5\}; both are x > 5."""
        start, is_name = self.at, self.kind() == "letters" and self.take()
        if is_name and self.accept("\\in"):
            is_name = self.accept("R") or (self.accept("\\mathbb") and self.spelled() == "R")
        if is_name and self.accept("|", ":"):
            return True
        self.at = start
        return False

    def _numbers(self, letter: str) -> Value:
        r"""Returns \mathbb{R} as an interval, and other sets of numbers as names."""
        return _REALS if letter == "R" else Formula(("v", f"set {letter}"))

    def _rows(self, opener: str) -> Value:
        """Reads the rows of a matrix, or a system of equations that hold together."""
        rows = [self.listed()]
        while self.accept("\\\\"):
            if self.peek() != "\\end":
                rows.append(self.listed())
        self.take("\\end")
        if opener == "\\system":
            return Collection(Kind.LIST, tuple(rows))
        cells = (row.items if _is_list(row) else (row,) for row in rows)
        return Collection(Kind.ROWS, tuple(Collection(Kind.ROWS, row) for row in cells))


def _is_list(value: Value | None) -> bool:
    return isinstance(value, Collection) and value.kind in LOOSE - {Kind.SET}


def _in_brackets(opener: str, inside: Value | None, closer: str) -> Value:
    kind = Kind(opener.strip("\\") + closer.strip("\\"))
    if inside is None:
        return Collection(kind, ())
    if isinstance(inside, Collection) and _is_list(inside):
        if opener == "(" and inside.kind is not Kind.LIST:  # (3 or 4)
            return inside
        return Collection(kind, inside.items)
    is_matrix = isinstance(inside, Collection) and inside.kind is Kind.ROWS
    if opener in ("(", "{") or isinstance(inside, Relation) or is_matrix:
        return inside
    return Collection(kind, (inside,))


def _calculated(
    tree: Tree, scale: str = "", unit: Unit | None = None, percent=False, full=False
) -> Formula:
    """Returns the number or the formula of a tree and of what follows it; a sum is a number if `full`."""
    infinite = values.INFINITY
    is_sum = infinite in values.nodes(tree) and tree not in (infinite, ("-", infinite))
    if is_sum:
        raise ArithmeticError
    value, found = values.exact(tree), values.literal(tree)
    if full and found is None and value is not None:
        found = None, 0
    if (percent and unit) or (scale and found is None):
        raise Unread
    if found is None:
        return Formula(("/", tree, ("n", "100")) if percent else tree, unit)
    last, digits = found
    if scale:
        zeros = units.SCALES[scale]
        tree = ("*", tree, ("^", ("n", "10"), ("n", str(zeros))))
        last = None if last is None else last + zeros
        value = values.exact(tree)
    return Number(tree, unit, value or Fraction(0), last, digits, percent)
