r"""The numeric value of a LaTeX expression, without `eval` and in bounded time whatever the text.

It follows what MathVision's official scorer gets from latex2sympy and Python: numbers with
thousands commas, + - * / : ^ !, \frac, \sqrt, \pi, logarithms and angles in radians. Where that
differs from school, it is kept: an implicit product binds before a division, powers and factorials
apply from the left, what follows a closing bracket too many is ignored, and a name without a value
makes the whole expression unreadable.
"""

import math
import re

# Answers come from a model: "9^{9^{9}}" or a thousand brackets must cost nothing.
MAX_LENGTH = 200  # characters
_MAX_BITS = 1000  # of a power
_LARGEST = 1e300  # a whole number above it could be neither written out nor compared with a float
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
        text: LaTeX, lower case.
        functions: whether roots, \pi, e, logarithms and angles have values.

    Returns:
        The value, of at most 1e300 either way; a whole number such as 1.0 is an int.
    """
    if len(text) > MAX_LENGTH:
        return None
    try:
        parser = _Parser(_SPACE.sub(" ", text), functions)
        result = _bounded(parser.sum())
    except (_UnreadableError, ArithmeticError, ValueError, RecursionError):
        return None
    return result if parser.peek() in _ENDS else None


def _bounded(result: int | float) -> int | float:
    if not abs(result) <= _LARGEST:  # nan is not either
        raise _UnreadableError("the value is too large")
    return result


def _tokens(text: str) -> list[str]:
    """Returns the tokens up to an unknown sign, "?" there, and "" after the last."""
    found, end = [], 0
    while match := _TOKEN.match(text, end):
        found.append(match[1])
        end = match.end()
    return [*found, "?"] if text[end:].strip() else [*found, ""]


class _Parser:
    """Recursive descent, a method for each level of binding from the loosest to the tightest."""

    def __init__(self, text: str, functions: bool):
        self._tokens, self._next = _tokens(text), 0
        self._functions = functions

    def peek(self) -> str:
        """Returns the next token, "" after the last one."""
        return self._tokens[self._next]

    def _take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token not in expected):
            raise _UnreadableError(f"{token!r} where one of {expected} should be")
        self._next += 1
        return token

    def sum(self):
        """Reads terms after + and -."""
        total = self._product()
        while self.peek() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            total = total + sign * self._product()
        return total

    def _product(self):
        """Reads factors after signs of multiplication and division, from the left."""
        result = self._signed()
        while self.peek() in _TIMES + _OVER:
            result = result * self._signed() if self._take() in _TIMES else result / self._signed()
        return result

    def _signed(self):
        if self.peek() in ("+", "-"):
            return (1 if self._take() == "+" else -1) * self._signed()
        return self._implicit()

    def _implicit(self):
        """Reads factors with no sign between them; 1/2x is 1/(2x)."""
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
        """Reads powers and factorials from the left: 3^2^2 is 81, 2^3! is 8!."""
        base = self._atom()
        while self.peek() in ("!", "^"):
            base = _factorial(base) if self._take() == "!" else _power(base, self._atom())
        return base

    def _atom(self):
        """Reads a number, a bracket, a fraction or a name."""
        token = self.peek()
        if token in _CLOSE:
            return self._group()
        self._take()
        if token.strip(".")[:1].isdigit():
            number = float(token.replace(",", ""))
            if self.peek() == "\\%":
                self._take()
                return number / 100
            return int(number) if number.is_integer() else number
        if token in ("\\frac", "\\dfrac", "\\tfrac"):
            return self._group() / self._group()
        if self._functions:
            return self._named(token)
        raise _UnreadableError(f"{token!r} has no value")

    def _group(self):
        """Reads a sum in brackets of any kind, with the closing bracket that fits."""
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
        exponent = 1
        if self.peek() == "^":  # \sin^2(x) is (\sin x)^2
            self._take()
            exponent = self._atom()
        return _power(_FUNCTIONS[name](self._operand()), exponent)

    def _operand(self):
        """Returns what a function applies to: what is in parentheses, or the product after it."""
        return self._group() if self.peek() == "(" else self._product()


def _factorial(base: int | float) -> int:
    if not isinstance(base, int) or not 0 <= base <= 100:
        raise _UnreadableError(f"{base}! is not counted")
    return math.factorial(base)


def _power(base: int | float, exponent: int | float) -> int | float:
    if abs(exponent) * math.log2(max(2, abs(base))) > _MAX_BITS:
        raise _UnreadableError(f"{base}^{exponent} is too large")
    result = base**exponent
    if isinstance(result, complex):
        raise _UnreadableError(f"{base}^{exponent} is not real")
    return result
