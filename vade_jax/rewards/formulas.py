r"""Reads sums, products, powers and functions into trees.

    sum       [sign] product {sign product}
    product   power {[\\times | /] power}
    power     primary {"!" | degree} ["^" power]

A degree sign within sin, cos or tan means degrees; without one, the argument is in radians.
"""

import re
from collections.abc import Callable

from vade_jax.rewards import units
from vade_jax.rewards.tokens import LETTERS, Unread
from vade_jax.rewards.values import Tree

_LONGEST = 4000  # digits
TRIG = {"sin", "cos", "tan", "cot", "sec", "csc"}
_OTHERS = "sinh cosh tanh ln lg log exp"
FUNCTIONS = {*TRIG, *(f"arc{name}" for name in TRIG), *_OTHERS.split()}
CONSTANTS = {"\\pi": "pi", "\\infty": "oo", "\\inf": "oo"}
_NAMES = FUNCTIONS | LETTERS
_FACTORS = {"(", "[", "{", "\\frac", "\\sqrt", "\\surd", "\\binom", *CONSTANTS}
_FACTORS |= {f"\\{name}" for name in _NAMES}
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_MEANS = {"|": "abs", "\\lfloor": "floor", "\\lceil": "ceiling"}
_ADDED = ("+", "-", "\\pm", "\\mp")


class FormulaReader(units.UnitReader):
    """Reads formulas; a plus or minus is read twice, once for each sign."""

    is_upper, is_signed, in_point = True, False, False

    def summed(self) -> Tree:
        tree = self._signed(self._product)
        while self.peek() in _ADDED:
            tree = ("+", tree, self._signed(self._product))
        return tree

    def _signed(self, read: Callable[[], Tree]) -> Tree:
        sign = self.accept(*_ADDED)
        self.is_signed |= sign in ("\\pm", "\\mp")
        is_minus = sign == ("\\mp" if self.is_upper else "\\pm") or sign == "-"
        return ("-", read()) if is_minus else read()

    def _product(self) -> Tree:
        tree = self._power()
        while True:
            if self.unit and self.peek() == "/" and self.suffix(look=True):  # $18/day
                return tree
            if self.in_trig < 2 and self.accept("\\times"):  # \sin x \cdot y is y \sin x
                tree = ("*", tree, self._signed(self._power))
            elif self.accept("/"):
                tree = ("/", tree, self._signed(self._power))
            elif self._is_factor() and not self.suffix(look=True):
                tree = ("*", tree, self._power())
            else:
                return tree

    def _is_factor(self) -> bool:
        """Returns whether a factor without a sign starts here; a number does not, except in 2^n 3^n."""
        text, kind = self.peek(), self.kind()
        if self.in_trig > 1 and (text.strip("\\") in FUNCTIONS or text in ("(", "\\frac")):
            return False
        if kind == "number":
            return self.peek(1) == "^" and self.tokens[self.at - 1].kind != "number"
        return text in _FACTORS or kind == "name" or (kind == "letters" and not self.ends())

    def _power(self) -> Tree:
        tree = self._primary()
        if self.accept("!"):
            tree = ("!", tree)
        if self.peek() == "\\degree" and (self.in_trig or not self.suffix(look=True)):
            self.take()
            if self.in_trig:
                tree = ("*", tree, ("/", ("c", "pi"), ("n", "180")))
            else:
                self.unit = units.UNITS["degree"]
        return ("^", tree, self._signed(self._power)) if self.accept("^") else tree

    def _primary(self) -> Tree:
        kind, text = self.kind(), self.peek()
        is_word = kind == "letters" and text in (*FUNCTIONS, "pi", "sqrt") and not self.offset
        if kind == "letters" and not is_word:
            if self.ends() or self._is_in_words():
                raise Unread
            return self._indexed(self.step())
        self.take()
        if kind == "number" and len(text) <= _LONGEST:
            return ("n", text)
        name = text.strip("\\")
        if kind == "name":
            return ("v", text)
        if text in _CLOSING:
            tree = self._between(_CLOSING[text])
            return (_MEANS[text], tree) if text in _MEANS else tree
        if name in ("frac", "binom"):
            top, bottom = self._argument(), self._argument()
            match name, top, bottom:
                case "frac", ("*", ("v", "d"), ("v", y)), ("*", ("v", "d"), ("v", x)):
                    return ("v", f"d{y}/d{x}")
            return ("/" if name == "frac" else "binom", top, bottom)
        if name in ("sqrt", "surd"):
            return self._root()
        if name in FUNCTIONS:
            return self._function(name)
        if name == "pi" or text in CONSTANTS:
            return ("c", CONSTANTS[f"\\{name}"])
        if name in _NAMES:
            return self._indexed(name)
        raise Unread

    def _is_in_words(self) -> bool:
        """Returns whether letters are a word: upright, at least four, or two next to two others."""
        token = self.tokens[self.at]
        if self.offset or len(token.text) == 1 or token.text.isupper():
            return token.roman and len(token.text) > 1 and not self.offset
        near = self.tokens[max(self.at - 1, 0) : self.at + 2]
        in_words = sum(one.kind == "letters" and len(one.text) > 1 for one in near) > 1
        return token.roman or len(token.text) > 3 or in_words

    def _indexed(self, letter: str) -> Tree:
        """Returns a name with its index and primes; e and i alone are the numbers."""
        name = letter
        if self.accept("_"):
            closer = "}" if self.accept("{") else ""
            name += "_" + ("" if closer else self.take())
            while closer and not self.accept(closer):
                name += self.take()
        while self.accept("'"):
            name += "'"
        return ("c" if name in ("e", "i") else "v", name)

    def _between(self, closer: str) -> Tree:
        r"""Reads a sum, or a \choose b, and its closing bracket; the opening one is consumed already."""
        trig, self.in_trig = self.in_trig, min(self.in_trig, 1)
        tree = self.summed()
        if self.accept("\\choose"):
            tree = ("binom", tree, self.summed())
        self.in_trig = trig
        self.take(closer)
        return tree

    def _argument(self) -> Tree:
        r"""Reads {a}, or the first letter or digit, as in \frac72."""
        if self.kind() == "number":
            if not self.peek().isdecimal():
                raise Unread
            return ("n", self.step())
        return self._between("}") if self.accept("{") else self._primary()

    def _root(self) -> Tree:
        degree = self._between("]") if self.accept("[") else None
        tree = self._between(")") if self.accept("(") else self._argument()
        if degree is None:
            return ("sqrt", tree)
        if tree[0] == "-" and re.fullmatch(r"\d*[13579]", str(degree[1])):
            return ("-", ("root", tree[1], degree))  # the real root; SymPy would take a complex one
        return ("root", tree, degree)

    def _function(self, name: str) -> Tree:
        power = base = None
        for _ in range(2):
            if self.accept("^"):
                power = self._signed(self._argument)
            if name == "log" and self.accept("_"):
                base = self._argument()
        angle = self.in_trig
        if self.peek() in ("(", "{") or name == "exp":
            self.in_trig = 1 if name in TRIG else 0
            tree = self._between(_CLOSING[self.take("(", "{")])
        else:
            self.in_trig = 2  # an argument without brackets ends before the next function
            tree = self._signed(self._product)
        self.in_trig = angle
        if power == ("-", ("n", "1")) and name in TRIG:
            name, power = f"arc{name}", None
        tree = (name, tree) if base is None else (name, tree, base)
        return tree if power is None else ("^", tree, power)
