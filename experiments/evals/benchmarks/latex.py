r"""The numeric value of a LaTeX expression, without `eval` and in bounded time whatever the text.

It follows what MathVision's official scorer gets from latex2sympy and Python: numbers with
thousands commas, + - * / : ^ !, \frac, \sqrt, \pi, logarithms and angles in radians. Its unusual rules are
kept: an implicit product binds before a division, powers and factorials apply from the left, text after an
extra closing bracket is ignored, and a name without a value makes the expression unreadable.
"""

import math
import re

# Answers come from a model: "9^{9^{9}}" or a thousand brackets must cost nothing.
MAX_LENGTH = 200  # characters
_MAX_BITS = 1000  # of a power
_LARGEST = 1e300  # a larger integer could be neither written out nor compared with a float
_SPACE = re.compile(r"[$~]|\\,|\\(?:left|right|quad|qquad|displaystyle)(?![a-z])")
_TOKEN = re.compile(
    r"\s*(\d+(?:,\d{3})*(?:\.\d*)?|\.\d+|\\[a-z]+|\\[{}%]|e(?=\^)|[-+*/:^!(){}\[\]_.])"
)
_CLOSE = {"(": ")", "{": "}", "[": "]", "\\{": "\\}"}
_ENDS = ("", "_", ".", *_CLOSE.values())
# Precedence of signs; a sum is 1, an implicit product 4.
_BINDS = {
    **dict.fromkeys(("+", "-"), 1),
    **dict.fromkeys(("*", "\\times", "\\cdot", "/", ":", "\\div"), 2),
    **dict.fromkeys(("^", "!"), 5),
    **dict.fromkeys(_ENDS, 0),
}
_SUM, _PRODUCT, _SIGNED, _IMPLICIT = range(1, 5)
_FUNCTIONS = {
    **{"\\sin": math.sin, "\\cos": math.cos, "\\tan": math.tan},
    **{"\\arcsin": math.asin, "\\arccos": math.acos, "\\arctan": math.atan},
    "\\log": math.log10,
}


class _UnreadableError(ValueError):
    pass


def value(text: str, *, functions: bool = True) -> int | float | None:
    r"""Returns the value of `text`, or None if it is not a closed numeric expression.

    Args:
        text: LaTeX, lower case.
        functions: whether roots, \pi, e, logarithms and angles have values.

    Returns:
        The value, at most 1e300 in magnitude; an integer such as 1.0 is an int.
    """
    if len(text) > MAX_LENGTH:
        return None
    try:
        parser = _Parser(_SPACE.sub(" ", text), functions)
        result = parser.read()
    except (ArithmeticError, ValueError, RecursionError):
        return None
    # nan is not at most the largest either
    return result if abs(result) <= _LARGEST and parser.peek() in _ENDS else None


class _Parser:
    """Reads operators by how tightly they bind; an unknown sign is the token "?"."""

    def __init__(self, text: str, functions: bool):
        self._tokens, self._next, end = [], 0, 0
        while match := _TOKEN.match(text, end):
            self._tokens.append(match[1])
            end = match.end()
        self._tokens.append("?" if text[end:].strip() else "")
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

    def _has(self, *tokens: str) -> bool:
        """Takes the next token if it is one of these, and returns whether it was."""
        is_there = self.peek() in tokens
        self._next += is_there
        return is_there

    def read(self, bound: int = 0):
        """Reads all that binds more tightly than `bound`, from the left: 3^2^2 is 81, 1/2x is 1/(2x)."""
        if self.peek() in ("+", "-"):
            result = (1 if self._take() == "+" else -1) * self.read(_SIGNED)
        else:
            result = self._atom()
        while (binds := self._binds()) > bound:
            sign = self._take() if binds != _IMPLICIT else ""
            match sign:
                case "!":
                    result = _factorial(result)
                case "^":
                    result = _power(result, self._atom())
                case "+" | "-":
                    result = result + (1 if sign == "+" else -1) * self.read(_SUM)
                case "/" | ":" | "\\div":
                    result = result / self.read(_PRODUCT)
                case _:
                    result = result * self.read(binds)
        return result

    def _binds(self) -> int:
        token = self.peek()
        is_atom = token in _CLOSE or token[:1] in {"\\", ".", "e", *"0123456789"}
        return _BINDS.get(token, _IMPLICIT if is_atom else 0)

    def _atom(self):
        """Reads a number, a bracket, a fraction or a name."""
        if self.peek() in _CLOSE:
            return self._group()
        token = self._take()
        if token.strip(".")[:1].isdigit():
            number = float(token.replace(",", ""))
            if self._has("\\%"):
                return number / 100
            return int(number) if number.is_integer() else number
        if token in ("\\frac", "\\dfrac", "\\tfrac"):
            return self._group() / self._group()
        if not self._functions:
            raise _UnreadableError(f"{token!r} has no value")
        if token in ("\\pi", "e"):
            return math.pi if token == "\\pi" else math.e
        if token == "\\sqrt":
            index = self._group() if self.peek() == "[" else 2
            return _power(self._group(), 1 / index)
        return self._applied(token)

    def _group(self):
        """Reads a sum in brackets of any kind, with the closing bracket that fits."""
        closing = _CLOSE[self._take(*_CLOSE)]
        inside = self.read()
        self._take(closing)
        return inside

    def _applied(self, name: str):
        """Applies a function to what is in parentheses, or to the product after it."""
        if name not in _FUNCTIONS:
            raise _UnreadableError(f"{name} has no value")
        base = self._atom() if name == "\\log" and self._has("_") else None
        exponent = self._atom() if base is None and self._has("^") else 1  # \sin^2(x) is (\sin x)^2
        operand = self._group() if self.peek() == "(" else self.read(_SUM)
        return (
            _power(_FUNCTIONS[name](operand), exponent) if base is None else math.log(operand, base)
        )


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
