r"""The numeric value of a LaTeX expression, without `eval`: bounded in time whatever the text.

It follows what MathVision's official scorer gets from latex2sympy and Python: numbers with
thousands commas, + - * / : ^ !, \frac, \sqrt, \pi, logarithms and angles in radians. An implicit
product binds before a division, powers and factorials apply from the left, what follows a closing
bracket too many is ignored, and a name without a value makes the whole expression unreadable.
"""

import math
import re

MAX_LENGTH = 200  # characters
_MAX_EXPONENT = 1000  # bits of a power
_SPACE = re.compile(r"[$~]|\\,|\\(?:left|right|quad|qquad|displaystyle)(?![a-z])")
_TOKEN = re.compile(
    r"\s*(\d+(?:,\d{3})*(?:\.\d*)?|\.\d+|\\[a-z]+|\\[{}%]|e(?=\^)|[-+*/:^!(){}\[\]_.])"
)
_TIMES = ("*", "\\times", "\\cdot")
_OVER = ("/", ":", "\\div")
_CLOSE = {"(": ")", "{": "}", "[": "]", "\\{": "\\}"}
_ENDS = ("", "_", ".", *_CLOSE.values())
_FUNCTIONS = {
    "\\sin": math.sin,
    "\\cos": math.cos,
    "\\tan": math.tan,
    "\\arcsin": math.asin,
    "\\arccos": math.acos,
    "\\arctan": math.atan,
    "\\log": math.log10,
}


class _UnreadableError(ValueError):
    pass


def value(text: str, *, functions: bool = True) -> int | float | None:
    r"""Returns the value of `text`, or None if it is no closed numeric expression.

    Args:
      text: LaTeX, lower case. A whole decimal such as 1.0 is an int.
      functions: whether roots, \pi, e, logarithms and angles have values.
    """
    if len(text) > MAX_LENGTH:
        return None
    try:
        parser = _Parser(_SPACE.sub(" ", text), functions)
        result = parser.sum()
    except (_UnreadableError, ArithmeticError, ValueError, RecursionError):
        return None
    return result if parser.peek() in _ENDS else None


def _tokens(text: str) -> list[str]:
    """Returns the tokens up to an unknown sign, "?" there, and "" behind the last."""
    found, end = [], 0
    while match := _TOKEN.match(text, end):
        found.append(match[1])
        end = match.end()
    return [*found, "?"] if text[end:].strip() else [*found, ""]


class _Parser:
    """Recursive descent: sum, product, signs, implicit product, postfix, atom."""

    def __init__(self, text: str, functions: bool):
        self._tokens, self._next = _tokens(text), 0
        self._functions = functions

    def peek(self) -> str:
        """Returns the next token, "" behind the last one."""
        return self._tokens[self._next]

    def _take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token not in expected):
            raise _UnreadableError(f"{token!r} where one of {expected} should be")
        self._next += 1
        return token

    def sum(self):
        total = self._product()
        while self.peek() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            total = total + sign * self._product()
        return total

    def _product(self):
        result = self._signed()
        while self.peek() in _TIMES + _OVER:
            if self._take() in _TIMES:
                result = result * self._signed()
            else:
                result = result / self._signed()
        return result

    def _signed(self):
        if self.peek() in ("+", "-"):
            return (1 if self._take() == "+" else -1) * self._signed()
        return self._implicit()

    def _implicit(self):
        result = self._postfix()
        while self._starts_atom():
            result = result * self._postfix()
        return result

    def _starts_atom(self) -> bool:
        token = self.peek()
        if token in (*_TIMES, *_OVER, *_ENDS):
            return False
        return token in _CLOSE or token[0] in {"\\", ".", "e", *"0123456789"}

    def _postfix(self):
        base = self._atom()
        while self.peek() in ("!", "^"):
            if self._take() == "!":
                base = _factorial(base)
            else:
                base = _power(base, self._atom())
        return base

    def _atom(self):
        token = self.peek()
        if token in _CLOSE:
            return self._group()
        self._take()
        if token.strip(".")[:1].isdigit():
            number = float(token.replace(",", ""))
            if self.peek() == "\\%" and self._take():
                return number / 100
            return int(number) if number.is_integer() else number
        if token in ("\\frac", "\\dfrac", "\\tfrac"):
            return self._group() / self._group()
        if self._functions:
            return self._named(token)
        raise _UnreadableError(f"{token!r} has no value")

    def _group(self):
        closing = _CLOSE[self._take(*_CLOSE)]
        inside = self.sum()
        self._take(closing)
        return inside

    def _named(self, name: str):
        if name in ("\\pi", "e"):
            return math.pi if name == "\\pi" else math.e
        if name == "\\sqrt":
            index = self._group() if self.peek() == "[" else 2
            return _power(self._group(), 1 / index)
        if name not in _FUNCTIONS:
            raise _UnreadableError(f"{name} has no value")
        if name == "\\log" and self.peek() == "_":
            self._take()
            base = self._atom()
            return math.log(self._operand(), base)
        exponent = self._atom() if self.peek() == "^" and self._take() else 1
        return _power(_FUNCTIONS[name](self._operand()), exponent)

    def _operand(self):
        """Returns what a function applies to: what is in parentheses, or the product behind it."""
        return self._group() if self.peek() == "(" else self._product()


def _factorial(base: int | float) -> int:
    if not isinstance(base, int) or not 0 <= base <= 100:
        raise _UnreadableError(f"{base}! is not counted")
    return math.factorial(base)


def _power(base: int | float, exponent: int | float) -> int | float:
    if abs(exponent) * math.log2(max(2, abs(base))) > _MAX_EXPONENT:
        raise _UnreadableError(f"{base}^{exponent} is too large")
    result = base**exponent
    if isinstance(result, complex):
        raise _UnreadableError(f"{base}^{exponent} is not real")
    return result
