r"""Reads a text into a value, once and whole, by one grammar.

    list      item {("," | ";" | "or" | "and" | "&") item}
    item      side {("=" | "<" | "\le" | "\in" | "\approx" | ...) side}
    side      name | bracketed {"\cup" bracketed} | sum [unit]
    sum       [sign] product {sign product}
    product   power {[\times | /] power}
    power     primary {"!" | "'" | degree} ["^" power]

What the grammar does not read whole is words, if it is prose; a formula for SymPy's own reader, if it has sums,
integrals or the like; or else nothing. It looks ahead a bounded number of tokens, so it takes linear time.
"""

import functools
import itertools
import re
from collections.abc import Callable

from vade_jax.rewards import answers, tokens, units, values
from vade_jax.rewards.values import (
    Both,
    Collection,
    Formula,
    Latex,
    Name,
    Number,
    Relation,
    Tree,
    Value,
    Words,
)

_DEEPEST = 25  # brackets within brackets
_MOST = 20_000  # characters of a key; an answer has at most `answers.MAX_LENGTH`
_LONGEST = 150  # operations in a formula
_LEAD = re.compile(r"(?:the )?(?:final |correct )?answer(?: is\s*:?|\s*:)\s*", re.IGNORECASE)
_SEPARATORS = {",": ",", ";": ",", "&": ",", "or": "or", "and": "and", ":": ":"}
_RELATIONS = {"=", "<", ">", "<=", ">=", "!=", "\\approx", "\\in", "\\notin", "\\cong", "\\sim", "\\equiv"}
_RELATIONS |= {"\\parallel", "\\perp", "\\pmod", "\\to", "\\propto", "\\subset", "\\subseteq"}
_CLOSERS = {")", "]", "}", "\\}"}
_OPENERS = {"(": "()]", "[": "[])", "\\{": "\\}", "{": "}"}
_TRIG = ("sin", "cos", "tan", "cot", "sec", "csc")
_FUNCTIONS = {
    *_TRIG,
    *(f"arc{name}" for name in _TRIG),
    "sinh",
    "cosh",
    "tanh",
    "ln",
    "lg",
    "log",
    "exp",
}
_CONSTANTS = {"\\pi": "pi", "\\infty": "oo", "\\inf": "oo"}
_GREEK = set(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho".split()
)
_GREEK |= set(
    "sigma tau phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar".split()
)
_MARKED = {"\\vec", "\\hat", "\\bar", "\\overline", "\\tilde", "\\widehat"}
_SHAPES = {"\\angle", "\\triangle", "angle", "triangle", "\\odot", "\\overline", "\\vec"}
_ADVANCED = {
    "\\int",
    "\\sum",
    "\\prod",
    "\\lim",
    "\\iint",
    "\\oint",
    "\\partial",
    "\\setminus",
    "\\cap",
    "\\cup",
}
_KNOWN = {*_CONSTANTS, *_MARKED, *_SHAPES, *_RELATIONS, *_OPENERS, *_CLOSERS, "\\frac", "\\sqrt", "\\times"}
_KNOWN |= {f"\\{name}" for name in (*_FUNCTIONS, *_GREEK, "pm", "mp", "degree", "binom", "emptyset", "mathbb")}
_DENIALS = {"not", "no", "nor", "never", "neither", "except", "without"}
_ENDS = {*_CLOSERS, *_RELATIONS, *_SEPARATORS, "\\\\", "\\end"}
_CURRENCIES = {"\\$", "\\€", "\\£", "\\¥"}
_PLAIN = re.compile(r"(-?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,99})(?:\.[0-9]{1,99})?)(?:/([0-9]{1,99}))?")


class _Unread(Exception):  # noqa: N818 (says what happened)
    """The rest of the text is not in the grammar."""


class _Senseless(Exception):  # noqa: N818 (says what happened)
    """The text divides by zero, or nobody can calculate it."""


def lead(text: str) -> str:
    """Returns `text` without "the answer is" before it."""
    return _LEAD.sub("", text.strip(), count=1)


@functools.lru_cache(maxsize=16384)  # a key is read once, as are answers that a group shares
def read(text: str, *, numeric: bool = False, thousands: bool | None = None) -> Value | None:
    """Returns the value of a whole text, None if it has none that can be read with certainty.

    Args:
        text: of an answer or a key, as LaTeX or plain.
        numeric: a number is expected: a letter behind it is a unit (5 m) or a factor (2.5M), and no name.
        thousands: whether a comma before three digits belongs to a number; by default it does, but not in
            "(3,100)", where no other comma has a space behind.
    """
    if (plain := _PLAIN.fullmatch(text)) and len(text) < 100 and (thousands is not False or "," not in text):
        return _plain(*plain.groups())
    if len(text) > _MOST:
        return None
    text = tokens.clean(lead(text))
    if thousands is None:
        thousands = ", " in text or not text.startswith(("(", "[", "\\{", "\\left"))
    cut = tokens.cut(text, thousands=thousands)
    try:
        reader = _Reader(text, cut, numeric)
        value = reader.listed()
        if reader.peek():
            raise _Unread
        return value
    except _Unread:
        return _otherwise(text, cut)
    except _Senseless:
        return None


def _plain(sign: str, top: str, bottom: str | None) -> Number | None:
    """Returns what the grammar says of digits alone, twenty times as fast."""
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
    ends = list(
        itertools.accumulate((token.text in _OPENERS) - (token.text in _CLOSERS) for token in cut)
    )
    if len(cut) > 1 and cut[0].text in _OPENERS and cut[-1].text in _CLOSERS and 0 not in ends[:-1]:
        cut = cut[1:-1]
    parts, depth = [[]], 0
    for token in cut:
        depth += (token.text in _OPENERS) - (token.text in _CLOSERS)
        if depth == 0 and token.text in _SEPARATORS:
            if parts[-1] or token.text not in ("and", "or"):  # "red, blue, and green"
                parts.append([])
        else:
            parts[-1].append(token)
    found = [text[part[0].start : part[-1].end] if part else "" for part in parts]
    return is_set, found if any(found) else []


def _otherwise(text: str, cut: list[tokens.Token]) -> Value | None:
    """Returns what is no sentence of the grammar: words, or a formula with signs that SymPy may know."""
    if answers.is_prose(plain := answers.plain(text)):
        return Words(plain)
    if len(text) > answers.MAX_LENGTH or not _is_balanced(cut):
        return None
    is_worded = any(len(token.text) > 3 or token.roman for token in cut if token.kind == "letters")
    is_advanced = not is_worded and any(token.text in _ADVANCED for token in cut)
    if not is_advanced and all(token.text[0] != "\\" or token.text in _KNOWN for token in cut):
        return None
    return Latex(text, tuple(token.text for token in cut), is_advanced)


def _is_balanced(cut: list[tokens.Token]) -> bool:
    opened = []
    for token in cut:
        if token.text in _OPENERS:
            opened.append(token.text)
        elif token.text in _CLOSERS and (not opened or token.text not in _OPENERS[opened.pop()]):
            return False
    return not opened


class _Reader:
    """A place in the tokens of one text, and what can be read from there."""

    def __init__(self, text: str, cut: list[tokens.Token], numeric: bool):
        self._text, self._tokens, self._numeric = text, cut, numeric
        self._at, self._offset = 0, 0  # a token, and how many of its letters are read
        self._depth, self._in_trig, self._unit, self._length = 0, 0, None, 0

    # -------------------------------------------------------------------------- tokens
    def peek(self, ahead: int = 0) -> str:
        """Returns the text of a token, "" behind the last."""
        at = self._at + ahead
        text = self._tokens[at].text if at < len(self._tokens) else ""
        return text[self._offset :] if ahead == 0 else text

    def _kind(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].kind if at < len(self._tokens) else ""

    def _take(self, *expected: str) -> str:
        text = self.peek()
        if not text or (expected and text not in expected):
            raise _Unread
        self._at, self._offset = self._at + 1, 0
        return text

    def _mark(self) -> tuple:
        """Returns the place and the state, for `_reset`."""
        return self._at, self._offset, self._depth, self._in_trig, self._unit

    def _reset(self, mark: tuple) -> None:
        self._at, self._offset, self._depth, self._in_trig, self._unit = mark

    def _accept(self, *expected: str) -> str:
        return self._take() if self.peek() in expected else ""

    def _ends(self, ahead: int = 0) -> bool:
        """Returns whether a side ends here."""
        text = self.peek(ahead)
        return not text or text in _ENDS

    # -------------------------------------------------------------------------- lists and relations
    def listed(self) -> Value:
        """Reads items with separators between them."""
        items, between = [self._item()], set()
        while self.peek() in _SEPARATORS:
            between.add(_SEPARATORS[self._take()])
            if self.peek() in ("and", "or"):  # "red, blue, and green"
                between.add(self._take())
            items.append(self._item())
        if not between:
            return items[0]
        if ":" in between and len(between) > 1:
            raise _Unread
        return Collection("or" if "or" in between else ":" if ":" in between else "", tuple(items))

    def _item(self) -> Value:
        """Reads a relation, or else the words up to the next separator."""
        mark = self._mark()
        try:
            value = self._relation()
            if not self._ends():
                raise _Unread
            return value
        except _Unread:
            self._reset(mark)
            return self._words()

    def _words(self) -> Words:
        start = self._at
        while self.peek() and self.peek() not in _SEPARATORS and self.peek() not in _CLOSERS:
            if self.peek() in _OPENERS or self.peek() == "\\begin":
                raise _Unread
            self._at += 1
        if self._at == start:
            raise _Unread
        text = answers.plain(self._text[self._tokens[start].start : self._tokens[self._at - 1].end])
        if not (answers.is_prose(text) or (text.isalnum() and text[0].isalpha())):  # as H2O
            raise _Unread
        return Words(text)

    def _relation(self) -> Value:
        if self._at == 0 and self.peek() in ("=", "\\approx"):  # "\approx 2.5"
            self._take()
        sides, signs = [self._side()], []
        while self.peek() in _RELATIONS:
            signs.append(self._take())
            sides.append(self._side())
        if not signs:
            return sides[0]
        both = [side.items if isinstance(side, Both) else (side, side) for side in sides]
        found = [Relation(tuple(signs), one) for one in zip(*both, strict=True)]
        return found[0] if found[0] == found[1] else Both("or", tuple(found))

    def _side(self) -> Value:
        if name := self._name():
            return name
        self._length = 0
        if self._kind() == "based":
            return self._based()
        mark = self._mark()
        if (found := self._bracketed()) is not None:
            return found
        self._reset(mark)
        minus = self.peek() == "-" and self.peek(1) in _CURRENCIES and self._take()
        if self.peek() in _CURRENCIES:
            self._unit = units.UNITS[self._take()]
        tree = self._sum()
        return self._measured(("-", tree) if minus else tree)

    def _based(self) -> Value:
        """Reads digits in a base, which are spelled; base 10 is the number."""
        digits, _, base = self._take().replace("{", "").replace("}", "").partition("_")
        if len(digits) > values.DIGITS or not 2 <= int(base) <= 16 or any(int(digit, 16) >= int(base) for digit in digits):
            raise _Unread
        digits = digits.lstrip("0") or "0"
        return (
            _calculated(("n", digits), "", None, False)
            if base.strip() == "10"
            else Name(f"{digits}_{base}")
        )

    def _measured(self, tree: Tree) -> Value:
        """Reads what is behind a number or a formula, and makes the value of both."""
        scale, unit, percent = self._behind() or ("", None, False)
        unit, self._unit = self._unit if unit is None else unit, None
        if values.has(tree, "pm", "mp"):
            both = (values.expanded(tree, upper) for upper in (True, False))
            return Both("or", tuple(_calculated(one, scale, unit, percent, full=True) for one in both))
        return _calculated(tree, scale, unit, percent)

    # -------------------------------------------------------------------------- names
    def _name(self) -> Value | None:
        r"""Reads letters that are spelled and stand alone on their side: \angle ABC, SAS, "the area"."""
        start = self._at
        self._at += self.peek() == "m" and self.peek(1) == "\\angle"
        shape = self._take().strip("\\") if self.peek() in _SHAPES else ""
        braced = bool(shape) and self._accept("{")
        count = 0
        while self._kind(count) == "letters" and not self._ends(count):
            count += 1
        letters = [self._tokens[self._at + i] for i in range(count)]
        if shape and not count and self._kind() == "number":
            letters, count = [self._tokens[self._at]], 1  # angle 1
        self._at += count
        marks = "'" * len(list(iter(lambda: self._accept("'"), "")))
        closed = not braced or self._accept("}")
        text = "".join(token.text for token in letters)
        if (
            count
            and closed
            and self._ends()
            and (found := self._named(shape, letters, text + marks))
        ):
            return found
        self._at, self._offset = start, 0
        return None

    def _named(self, shape: str, letters: list[tokens.Token], text: str) -> Value | None:
        if shape:
            turns = shape in ("angle", "overline")  # the angle CBA is ABC, the side BA is AB
            spelled = min(text, text[::-1]) if turns and text.isalpha() else text
            return Name(f"{shape} {spelled}")
        words = " ".join(token.text for token in letters)
        if self.peek() == "=" and not _DENIALS.intersection(words.casefold().split()):
            is_worded = len(words) > 2 and (letters[0].roman or len(letters[0].text) > 3)
            return Name(words) if len(letters) <= 4 and (is_worded or _is_capital(text)) else None
        if len(letters) > 1 or letters[0].text in _FUNCTIONS:
            return None
        if _is_capital(text):
            return Name(text)
        is_product = len(text) == 3 and list(text) == sorted(text.lower()) and not letters[0].roman  # abc, xyz
        if len(text) < 3 or not text.isalpha():
            return None
        product = functools.reduce(lambda x, y: ("*", x, y), (_symbol(c) for c in text))
        return Words(text, product if is_product else None)

    # -------------------------------------------------------------------------- brackets
    def _bracketed(self) -> Value | None:
        r"""Reads a list in brackets that is a whole side, intervals with \cup between, or a matrix."""
        found = [self._group()]
        while found[-1] is not None and self._accept("\\cup"):
            found.append(self._group())
        if None in found or not self._ends():
            return None
        return found[0] if len(found) == 1 else Collection("u", tuple(found))

    def _group(self) -> Value | None:
        if self.peek() == "\\mathbb":
            return self._reals()
        if self.peek() == "\\emptyset":
            self._take()
            return Collection("{}", ())
        if self.peek() not in (*_OPENERS, "\\begin") or self._depth >= _DEEPEST:
            return None
        self._depth += 1
        try:
            if self.peek() == "\\begin":
                return self._environment()
            opener = self._take()
            inside = None if self.peek() in _CLOSERS else self._inside(opener)
            closer = self._take(*(_OPENERS[opener] if opener != "\\{" else ("\\}",)))
        except _Unread:
            return None
        finally:
            self._depth -= 1
        return _in_brackets(opener, inside, closer)

    def _inside(self, opener: str) -> Value:
        if opener == "\\{" and self._kind() == "letters" and self.peek(1) in ("|", ":"):
            self._at += 2  # \{x \mid x > 5\} is x > 5
        return self.listed()

    def _reals(self) -> Value:
        self._take("\\mathbb")
        braced = self._accept("{")
        self._take("R")
        if braced:
            self._take("}")
        return Collection("()", (Formula(("-", values.INFINITY.tree)), values.INFINITY))

    def _environment(self) -> Value:
        r"""Reads \begin{...} rows \end{...}: a matrix, or equations that hold together."""
        kinds = {"matrix": "rows", "pmatrix": "rows", "bmatrix": "rows", "cases": "", "aligned": ""}
        self._take("\\begin")
        self._take("{")
        name = self._take(*kinds)
        self._take("}")
        rows = [self._row()]
        while self._accept("\\\\"):
            if self.peek() != "\\end":
                rows.append(self._row())
        for expected in ("\\end", "{", name, "}"):
            self._take(expected)
        return Collection(kinds[name], tuple(rows))

    def _row(self) -> Value:
        row = self.listed()
        return (
            Collection("rows", row.items)
            if isinstance(row, Collection) and not row.brackets
            else row
        )

    # -------------------------------------------------------------------------- sums and products
    def _sum(self) -> Tree:
        tree = self._signed(self._product)
        while sign := self._accept("+", "-", "\\pm", "\\mp"):
            tree = self._joined("+", tree, _with_sign(sign, self._product()))
        return tree

    def _joined(self, op: str, left: Tree, right: Tree) -> Tree:
        self._length += 1
        if self._length > _LONGEST:
            raise _Unread
        return (op, left, right)

    def _deeper(self, read: Callable[[], Tree]) -> Tree:
        """Reads what may hold itself again."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unread
        tree = read()
        self._depth -= 1
        return tree

    def _signed(self, read: Callable[[], Tree]) -> Tree:
        return _with_sign(self._accept("+", "-", "\\pm", "\\mp"), read())

    def _product(self) -> Tree:
        tree = self._power()
        while True:
            if self._accept("\\times") or self._is_cross(tree):
                tree = self._joined("*", tree, self._signed(self._power))
            elif self._accept("/"):
                tree = self._joined("/", tree, self._signed(self._power))
            elif self._is_factor() and not self._behind(look=True):
                tree = self._joined("*", tree, self._power())
            else:
                return tree

    def _is_cross(self, tree: Tree) -> bool:
        """Takes the x of 1.6 x 10^{-19}, and says whether it was there."""
        is_cross = tree[0] == "n" and [self.peek(i) for i in range(3)] == ["x", "10", "^"]
        self._at += is_cross
        return is_cross

    def _is_factor(self) -> bool:
        """Returns whether a factor without a sign before it begins here; a second number is none."""
        text, kind = self.peek(), self._kind()
        if self._in_trig > 1 and (text.strip("\\") in _FUNCTIONS or text in ("(", "\\frac")):
            return False
        if kind == "sign":
            return text in (
                "(",
                "[",
                "{",
                "\\frac",
                "\\sqrt",
                "\\surd",
                "\\binom",
                "\\angle",
                "\\triangle",
            ) or (text in _CONSTANTS or text in _MARKED or text[1:] in _FUNCTIONS | _GREEK)
        return kind == "letters" and not self._ends()

    def _power(self) -> Tree:
        tree = self._postfixed()
        if not self._accept("^"):
            return tree
        return ("^", tree, self._deeper(lambda: self._signed(self._power)))

    def _postfixed(self) -> Tree:
        tree = self._deeper(self._primary)
        if self._accept("!"):
            tree = ("!", tree)
        if self.peek() == "\\degree" and (self._in_trig or not self._behind(look=True)):
            self._take()
            if self._in_trig:
                return ("*", tree, ("/", ("c", "pi"), ("n", "180")))
            self._unit = "degree"
        return tree

    # -------------------------------------------------------------------------- what a formula is made of
    def _primary(self) -> Tree:
        kind, text = self._kind(), self.peek()
        if kind == "number":
            return self._number()
        if kind == "letters":
            return self._letters()
        if text in ("(", "[", "{"):
            return self._between(self._take(), {"(": ")", "[": "]", "{": "}"}[text])
        if text == "|":
            return ("abs", self._between(self._take(), "|"))
        self._take()
        if text in _CONSTANTS:
            return ("c", _CONSTANTS[text])
        if text in ("\\lfloor", "\\lceil"):
            tree = self._sum()
            self._take(text.replace("\\l", "\\r"))
            return ("floor" if "floor" in text else "ceiling", tree)
        if text in ("\\frac", "\\binom"):
            return ("/" if text == "\\frac" else "binom", *self._two())
        if text in ("\\sqrt", "\\surd"):
            return self._root(text)
        if text[1:] in _FUNCTIONS:
            return self._function(text[1:])
        if text in _MARKED or text in _SHAPES:
            return ("v", f"{text[1:]} {self._spelled()}")
        if text[1:] in _GREEK:
            return self._marked(text[1:])
        raise _Unread

    def _number(self) -> Tree:
        text = self._take()
        if len(text) > values.DIGITS:
            raise _Senseless
        if "." in text or "/" in text or "e" in text:
            return ("n", text)
        if self.peek() == "\\frac":  # 3\frac{1}{2}
            start = self._at
            self._take()
            top, bottom = self._two()
            part = (top[1], bottom[1]) if top[0] == bottom[0] == "n" else None
            if part is None:
                self._at, self._offset = start, 0
                return ("n", text)
        elif self._kind() == "number" and self.peek(1) == "/" and self._kind(2) == "number":
            part = self._take(), self._take("/") and self._take()
            if self.peek() in ("^", "!"):
                raise _Unread
        else:
            return ("n", text)
        if not all(map(str.isdecimal, part)) or not int(part[0]) < int(part[1]):
            raise _Unread  # 3\frac{5}{2}: a sum or a product?
        return ("n", str(int(text) + values.Fraction("/".join(part))))

    def _letters(self) -> Tree:
        token, text = self._tokens[self._at], self.peek()
        is_whole = self._offset == 0
        if is_whole and text in ("pi", "sqrt"):
            self._take()
            return ("c", "pi") if text == "pi" else self._root("\\surd")
        if is_whole and text in _FUNCTIONS:
            return self._function(self._take())
        if self._ends() or (is_whole and self._is_word(token)):
            raise _Unread
        self._offset += 1
        if self._offset == len(token.text):
            self._at, self._offset = self._at + 1, 0
        if text in "fghFGHP" and self.peek() == "(":
            return ("v", f"{text}({self._spelled()})")
        return self._marked(text[0])

    def _is_word(self, token: tokens.Token) -> bool:
        """Returns whether letters are a word: upright, four of them, or two beside two others."""
        if len(token.text) == 1 or token.text.isupper():
            return token.roman and len(token.text) > 1
        beside = (
            self._tokens[i] for i in (self._at - 1, self._at + 1) if 0 <= i < len(self._tokens)
        )
        in_words = any(one.kind == "letters" and len(one.text) > 1 for one in beside)
        return token.roman or len(token.text) > 3 or in_words

    def _marked(self, letter: str) -> Tree:
        """Returns a name with what is below it and its primes; e and i alone are the numbers."""
        below = ""
        if self._accept("_"):
            below = "_" + self._spelled()
        marks = ""
        while (self.peek() == "^" and self.peek(1) == "'") or self.peek() == "'":
            self._at += self.peek() == "^"
            marks += self._take()
        if self.peek() == "^" and self.peek(1) == "{" and self.peek(2) == "'":
            self._at += 2
            marks += "".join(iter(lambda: self._accept("'"), ""))
            self._take("}")
        if marks and letter in "fghFGHP" and self.peek() == "(":
            return ("v", f"{letter}{marks}({self._spelled()})")
        return _symbol(letter + below + marks)

    def _spelled(self) -> str:
        """Reads a group, or one letter or digit, as letters."""
        closer = {"(": ")", "{": "}"}.get(self.peek())
        if closer is None:
            if self._kind() not in ("letters", "number"):
                raise _Unread
            return self._take()
        self._take()
        parts = []
        while self.peek() != closer:
            if self._kind() == "sign" and self.peek() not in ("+", "-", ",", "\\theta", "\\alpha", "\\triangle"):
                raise _Unread
            parts.append(self._take())
        self._take()
        return "".join(parts)

    def _between(self, opener: str, closer: str) -> Tree:
        trig, self._in_trig = self._in_trig, min(self._in_trig, 1)
        tree = self._sum()
        self._in_trig = trig
        self._take(closer)
        return tree

    def _two(self) -> tuple[Tree, Tree]:
        r"""Reads both arguments of \frac{a}{b}, \frac ab or \frac72."""
        text = self.peek()
        if self._kind() == "number" and len(text) > 1:
            if len(text) != 2:
                raise _Unread
            self._take()
            return ("n", text[0]), ("n", text[1])
        return self._argument(), self._argument()

    def _argument(self) -> Tree:
        if self._accept("{"):
            return self._between("{", "}")
        if self._kind() == "number":
            if len(self.peek()) > 1:
                raise _Unread
            return ("n", self._take())
        return self._deeper(self._primary)

    def _root(self, command: str) -> Tree:
        degree = self._between(self._take(), "]") if self.peek() == "[" else None
        if self._kind() == "number" and command == "\\surd":  # √12
            tree = ("n", self._take())
        elif self._accept("("):
            tree = self._between("(", ")")
        else:
            tree = self._argument()
        return ("sqrt", tree) if degree is None else ("root", tree, degree)

    def _function(self, name: str) -> Tree:
        power = base = None
        for _ in range(2):
            if self._accept("^"):
                power = self._signed(self._argument)
            if name == "log" and self._accept("_"):
                base = self._argument()
        if self.peek() == "\\degree":
            raise _Unread
        inverse = power == ("-", ("n", "1")) and name in _TRIG
        angle = self._in_trig
        if self.peek() in ("(", "{") or name == "exp":
            self._in_trig = 1 if name in _TRIG else 0
            tree = self._between(
                self._take("(", "{"), ")" if self._tokens[self._at - 1].text == "(" else "}"
            )
        else:
            self._in_trig = 2  # an argument without brackets ends before the next function
            tree = self._signed(self._product)
        self._in_trig = angle
        if base is not None:
            tree = ("log", tree, base)
        else:
            tree = (f"arc{name}" if inverse else name, tree)
        return tree if power is None or inverse else ("^", tree, power)

    # -------------------------------------------------------------------------- units
    def _behind(self, *, look: bool = False) -> tuple[str, str | None, bool] | None:
        """Reads (scale, unit, whether a percent sign) up to the end of the side; None if it is not that.

        Args:
            look: whether to stay before it.
        """
        if self._ends() or self._offset:
            return None
        start, scale = self._at, ""
        found = None
        try:
            if self.peek() in units.SCALES and self._may_stand(self.peek()):
                scale = self._take()
            percent = bool(self._accept("%", "percent"))
            unit = self._unit_phrase()
            found = (scale, unit, percent) if self._ends() and self._at > start else None
        except _Unread:
            pass
        if look or found is None:
            self._at, self._offset = start, 0
        return found

    def _may_stand(self, word: str) -> bool:
        """Returns whether a word is a unit or a scale here, and no product of letters."""
        token = self._tokens[self._at]
        if self._numeric or token.roman or token.kind == "sign":
            return True
        if [self.peek(i) for i in range(3)] == ["m", "/", "s"]:
            return token.spaced
        if word in units.PRODUCTS or len(word) < 2:
            return False
        return token.spaced or len(word) > 2 or word in ("cm", "mm", "km", "kg", "ft")

    def _unit_phrase(self) -> str | None:
        """Reads units with powers and fractions, up to the end of the side: cm^2, km/h, feet per second."""
        parts, sign, power = [], "*", ""
        for _ in itertools.repeat(None, 12):
            if self._accept("square", "sq"):
                self._accept(".")
                power = "**2"
            elif self._accept("cubic"):
                power = "**3"
            word = self.peek()
            name = units.UNITS.get(word, units.LONG.get(word.lower()))
            if name is None or not (parts or self._may_stand(word)):
                break
            self._take()
            self._accept(".")
            if word == "\\degree" and self.peek() in ("C", "F"):
                name = "degC" if self._take() == "C" else "degF"
            if exponent := self._unit_power():
                power = f"**{exponent}"
            parts.append((sign, f"({name}){power}" if name and power else name))
            power, sign = "", "*"
            if self._accept("/", "per"):
                sign = "/"
            else:
                self._accept("\\times")
        if sign == "/" or power:
            raise _Unread
        known = "".join(sign + name for sign, name in parts if name).lstrip("*")
        return f"1{known}" if known.startswith("/") else known if parts else None

    def _unit_power(self) -> str:
        if self.peek() in ("squared", "cubed"):
            return "2" if self._take() == "squared" else "3"
        if self.peek() != "^":
            return ""
        at = self._at
        self._take()
        braced = self._accept("{")
        sign = self._accept("-")
        exponent = self._take() if self.peek() in ("1", "2", "3") else ""
        if not exponent or (braced and not self._accept("}")):
            self._at = at
            return ""
        return sign + exponent


# ------------------------------------------------------------------------------ values of trees
def _with_sign(sign: str, tree: Tree) -> Tree:
    return {"": tree, "+": tree, "-": ("-", tree), "\\pm": ("pm", tree), "\\mp": ("mp", tree)}[sign]


def _symbol(name: str) -> Tree:
    return ("c", name) if name in ("e", "i") else ("v", name)


def _is_capital(text: str) -> bool:
    letters = text.rstrip("'")
    return len(letters) > 1 and letters.isalpha() and letters.isupper()


def _in_brackets(opener: str, inside: Value | None, closer: str) -> Value:
    brackets = opener.strip("\\") + closer.strip("\\")
    if inside is None:
        return Collection(brackets, ())
    if isinstance(inside, Collection) and inside.brackets in ("", "or"):
        return (
            inside
            if inside.brackets == "or" and opener == "("
            else Collection(brackets, inside.items)
        )
    if opener in ("(", "{") or isinstance(inside, Relation):
        return inside
    return Collection(brackets, (inside,))


def _calculated(
    tree: Tree, scale: str, unit: str | None, percent: bool, full: bool = False
) -> Value:
    """Returns the number or the formula of a tree and of what is behind it; a sum is a number if `full`."""
    if not values.is_sane(tree):
        raise _Senseless
    if values.has(tree, ("c", "oo")) and tree not in (values.INFINITY.tree, ("-", values.INFINITY.tree)):
        raise _Senseless
    if percent and unit:
        raise _Unread
    found = values.literal(tree)
    if full and found is None and (value := values.exact(tree)) is not None:
        found = value, None, 0
    if found is None:
        if scale:
            raise _Unread
        return Formula(("/", tree, ("n", "100")) if percent else tree, unit)
    value, last, digits = found
    if scale:
        zeros = units.SCALES[scale]
        value, tree = value * 10**zeros, ("*", tree, ("^", ("n", "10"), ("n", str(zeros))))
        last = None if last is None else last + zeros
    return Number(value, tree, last, digits, unit, percent, scale)
