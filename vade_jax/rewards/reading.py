r"""Reads a complete text into a value by one grammar.

    list      item {("," | ";" | "or" | "and" | "&") item}
    item      side {("=" | "<" | "\\le" | "\\in" | "\\approx" | ...) side}
    side      part {":" part} | number "to" number
    part      name | group {("\\cup" | "\\setminus") group} | number unit number unit | sum [unit]

Sums are read in `formulas`, units in `units`. Prose or LaTeX outside this grammar is compared by spelling;
any other text has no value. No bracket is read more than four times, so reading takes linear time.
"""

import functools
import itertools
import re

from vade_jax.rewards import answers, formulas, tokens, units, values
from vade_jax.rewards.tokens import CLOSERS, OPENERS, SEPARATORS, Token, Unread
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Relation, Tree, Unit, Value

_MOST = 20_000  # characters of a key; an answer has at most `answers.MAX_LENGTH`
_DEEPEST = 25  # brackets within brackets
_LEAD = re.compile(
    r"(?:the )?(?:(?:final|correct) )*(?:answer|option|choice)(?: is)?(?:\s*:|\s)\s*", re.IGNORECASE
)
_DENIALS = {"not", "no", "nor", "never", "neither", "except", "without"}
_CURRENCIES = {"\\$", "\\€", "\\£", "\\¥"}
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_INFINITE = (("-", values.INFINITY), values.INFINITY)
_REALS = Collection(Kind.OPEN, tuple(map(Formula, _INFINITE)))


def lead(text: str) -> str:
    """Returns `text` without "the answer is" before it."""
    return _LEAD.sub("", text.strip(), count=1)


@functools.lru_cache(maxsize=16384)  # keys and equal answers of a group are read once
def read(text: str, *, numeric: bool = False, thousands: bool | None = None) -> Value | None:
    """Returns the value of a text; None if no value can be read with certainty.

    Args:
        text: an answer or a key, in LaTeX or plain.
        numeric: a number is expected: a letter after it is a unit (5 m) or a factor (2.5M), not a name.
        thousands: whether a comma before three digits belongs to a number; by default it does, but not in
            "(3,100)", where no other comma has a space after it.
    """
    if len(text) > _MOST:
        return None
    try:
        text = tokens.clean(lead(text))
        form = tokens.rewritten(text)
        if thousands is None:
            thousands = ", " in text or not form.startswith(("(", "[", "\\{"))
        reader = _Reader(list(tokens.cut(form, thousands=thousands)), numeric)
        steps = ((x.text in OPENERS) - (x.text in CLOSERS) for x in reader.tokens)
        if max(itertools.accumulate(steps), default=0) > _DEEPEST:
            return None
        value = reader.listed()
        return _spelled(text, reader.tokens) if reader.peek() else value
    except Unread:
        return _spelled(text, reader.tokens)
    except (ArithmeticError, RecursionError):  # division by zero, or too large
        return None


def _spelled(text: str, cut: list[Token]) -> values.Words | None:
    if answers.is_prose(plain := answers.plain(text)):
        return values.Words(answers.signed_words(plain))
    is_latex = any(token.roman or token.text[0] == "\\" for token in cut)
    is_short = len(text) <= answers.MAX_LENGTH
    return values.Words(("\\", *(x.text for x in cut))) if is_latex and is_short else None


def _calculated(
    tree: Tree, scale: str = "", unit: Unit | None = None, percent=False, full=False
) -> Formula:
    """Returns the number or formula of a tree and its suffix; a sum is a number if `full`."""
    if values.INFINITY in values.nodes(tree) and tree not in _INFINITE:
        raise ArithmeticError
    zeros = units.SCALES.get(scale, 0)
    parsed = values.literal(tree)
    if (percent and unit) or (scale and parsed is None):
        raise Unread
    tree = ("*", tree, ("^", ("n", "10"), ("n", str(zeros)))) if scale else tree
    value = values.exact(tree)
    if value is None or (parsed is None and not full):
        return Formula(("/", tree, ("n", "100")) if percent else tree, unit)
    last, digits = parsed or (None, 0)
    return Number(tree, unit, value, None if last is None else last + zeros, digits, percent)


class _Reader(formulas.FormulaReader):
    # -------------------------------------------------------------------------- lists and sides
    def listed(self) -> Value:
        """Reads items with separators between them."""
        items, between = [self._item()], set()
        while self.peek() in SEPARATORS:
            between |= {SEPARATORS[self.take()], self.accept("and", "or")}  # "blue, and green"
            items.append(self._item())
        kind = next((k for k in (Kind.OR, Kind.AND) if k.value in between), Kind.LIST)
        return Collection(kind, tuple(items)) if between else items[0]

    def _item(self) -> Value:
        """Reads a relation, both values of a plus or minus, or else the words up to the next separator."""
        start = self.at
        self.is_signed &= self.in_point
        try:
            value = self._relation()
            if self.is_signed and not self.in_point:
                self.reset(start)
                self.is_upper = self.is_signed = False
                kind = Kind.AND if getattr(value, "signs", ()) == ("!=",) else Kind.OR
                value = Collection(kind, (value, self._relation()))
            if self.ends():
                return value
        except Unread:
            pass
        finally:
            self.is_upper |= not self.in_point
        self.reset(start)
        while self.peek() and self.peek() not in (*SEPARATORS, *CLOSERS, ":"):
            if self.take() in OPENERS:
                raise Unread
        texts = (" " * token.spaced + token.text for token in self.tokens[start : self.at])
        text = answers.plain("".join(texts))
        if not (answers.is_prose(text) or (text.isalnum() and text[0].isalpha())):  # as H2O
            raise Unread
        return values.Words(answers.signed_words(text))

    def _relation(self) -> Value:
        if self.at == 0:
            self.accept("=", "\\approx")  # "\approx 2.5"
        sides: list[Value] = [self._side()]
        signs: list[str] = []
        while self.peek() in tokens.RELATIONS:
            signs.append(self.take())
            sides.append(self._side())
        if set(signs) == {"="}:  # \overline{AC} = 5 is a length
            names = [(values.name_of(side) or "").removeprefix("overline ") for side in sides]
            sides = [Formula(("v", x)) if x else side for x, side in zip(names, sides, strict=True)]
        if {">", ">="}.intersection(signs):  # 5 > x is x < 5
            signs, sides = [_TURNED.get(x, x) for x in signs[::-1]], sides[::-1]
        return Relation(tuple(signs), tuple(sides)) if signs else sides[0]

    def _side(self) -> Value:
        parts = [self._part()]
        while self.accept(":"):
            parts.append(self._part())
        if len(parts) == 1 and isinstance(parts[0], Number) and self.accept(*tokens.TO):
            return Collection(Kind.RANGE, (parts[0], self._part()))
        return parts[0] if len(parts) == 1 else Collection(Kind.RATIO, tuple(parts))

    def _part(self) -> Value:
        start = self.at
        for read_it in (self._name, self._bracketed, self._compound):
            if (parsed := read_it()) is not None:
                return parsed
            self.reset(start)
        minus = self.peek() == "-" and self.peek(1) in _CURRENCIES and self.take()
        if self.peek() in _CURRENCIES:
            self.unit = units.UNITS[self.take()]
        tree = self.summed()
        scale, unit, percent = self.suffix() or ("", None, False)
        unit, self.unit = self.unit if unit is None else unit, None
        return _calculated(("-", tree) if minus else tree, scale, unit, percent, self.is_signed)

    def _compound(self) -> Value | None:
        r"""Reads amounts of one quantity in falling units: 5 ft 6 in, 2小时30分, 22^\circ 30'."""
        parts: list[tuple[Tree, Unit]] = []
        while self.kind() == "number" and not self.offset:
            number, word = ("n", self.take()), self.peek()
            unit = units.MINUTE if word == "'" else units.named(word)
            if unit is None or not unit.bases:
                return None
            parts.append((number, unit))
            self.take()
            self.accept(".")
        factors = [unit.factor for _, unit in parts]
        is_falling = factors == sorted(set(factors), reverse=True)
        if len(parts) < 2 or not is_falling or len({unit.bases for _, unit in parts}) > 1:
            return None
        tree = parts[0][0]
        for number, unit in parts[1:]:
            tree = ("+", tree, ("*", number, ("n", str(unit.factor / factors[0]))))
        return _calculated(tree, unit=parts[0][1], full=True) if self.ends() else None

    def _name(self) -> Value | None:
        """Reads letters that are compared by spelling and are alone on their side: SAS, pH, "the area"."""
        start = self.at
        while self.kind() == "letters" and not self.ends():
            self.take()
        letters = [token.text for token in self.tokens[start : self.at]]
        text = "".join(letters)
        if not letters or not (self.ends() or self.peek() == "'"):
            return None
        while self.accept("'"):
            text += "'"
        is_name = re.fullmatch("[A-Z]{2,}'*", text) is not None
        if self.peek() in ("=", "\\approx"):
            is_word = len(text) > 1 and (self.tokens[start].roman or len(letters[0]) > 3)
            is_word &= len(letters) < 5 and _DENIALS.isdisjoint(" ".join(letters).lower().split())
            is_name |= is_word or re.fullmatch("p[A-Z][a-z]?", text) is not None
        elif len(letters) > 1:
            return None
        elif not is_name and text.isalpha() and len(text) > 2 and text not in formulas.FUNCTIONS:
            return values.Words(answers.signed_words(text))  # red is not a product
        return Formula(("v", text)) if is_name and self.ends() else None

    # -------------------------------------------------------------------------- brackets
    def _bracketed(self) -> Value | None:
        r"""Reads a side that is a list in brackets, sets joined by \cup, or a matrix."""
        parts = self._group()
        while parts is not None and self.peek() in ("\\cup", "\\cap", "\\setminus"):
            kind, other = Kind(self.take()[1:]), self._group()
            parts = other and Collection(kind, (parts, other))
        return parts if self.ends() else None

    def _group(self) -> Value | None:
        if self.accept("\\emptyset"):
            return Collection(Kind.SET, ())
        if self.accept("mathbb R"):
            return _REALS
        if self.peek() not in OPENERS:
            return None
        opener, in_point = self.take(), self.in_point
        try:
            if opener in ("\\matrix", "\\system"):
                return self._rows(opener)
            self.in_point |= opener in ("(", "[")  # (\pm 3, \mp 1) are two points
            inside = None if self.peek() in CLOSERS else self.listed()
            closer = self.take(*OPENERS[opener])
        except Unread:
            return None
        finally:
            self.in_point = in_point
        return _in_brackets(opener, inside, closer)

    def _rows(self, opener: str) -> Value:
        """Reads the rows of a matrix or of a system of equations."""
        rows = [self.listed()]
        while self.accept("\\\\"):
            rows += [self.listed()] if self.peek() != "\\end" else []
        self.take("\\end")
        if opener == "\\system":
            return Collection(Kind.LIST, tuple(rows))
        cells = (row.items if isinstance(row, Collection) else (row,) for row in rows)
        return Collection(Kind.ROWS, tuple(Collection(Kind.ROWS, row) for row in cells))


def _in_brackets(opener: str, inside: Value | None, closer: str) -> Value:
    kind = Kind(opener.strip("\\") + closer.strip("\\"))
    within = inside.kind if isinstance(inside, Collection) else None
    if isinstance(inside, Collection) and within in values.LOOSE - {Kind.SET}:
        is_pair = opener == "(" and within is not Kind.LIST  # (3 or 4)
        return inside if is_pair else Collection(kind, inside.items)
    if inside and (opener in "({" or isinstance(inside, Relation) or within is Kind.ROWS):
        return inside
    return Collection(kind, (inside,) if inside else ())
