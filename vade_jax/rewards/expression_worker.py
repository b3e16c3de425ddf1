"""Compares expressions (trees of `values`) in a worker of `process`; only this file imports SymPy."""

import operator
import resource
import signal
import sys
from fractions import Fraction
from typing import Any

import sympy

_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}
# The base of \log without one: some mean e, others 10.
_BASE = sympy.Symbol("base of the logarithm", positive=True)
_TRIG = ("sin", "cos", "tan", "cot", "sec", "csc")
_SAME_NAME = "sin cos tan cot sec csc sinh cosh tanh exp sqrt root floor ceiling"
_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(sympy, name) for name in _SAME_NAME.split()},
    **{f"arc{name}": getattr(sympy, f"a{name}") for name in _TRIG},
    **{"abs": sympy.Abs, "binom": sympy.binomial, "ln": sympy.log, "!": sympy.factorial},
    **{"+": operator.add, "*": operator.mul, "/": operator.truediv, "^": operator.pow},
    **{"-": operator.neg, "lg": lambda x: sympy.log(x, 10)},
    "log": lambda x, base=_BASE: sympy.log(x, base),
    **{"()": sympy.Interval.open, "[]": sympy.Interval, "{}": sympy.FiniteSet},
    **{"(]": sympy.Interval.Lopen, "[)": sympy.Interval.Ropen},
    **{"or": sympy.Union, "and": sympy.Intersection, "in": lambda name, region: region},
    **{"cup": sympy.Union, "cap": sympy.Intersection, "setminus": sympy.Complement},
}
_RELATIONS = ("=", "!=", "<", "<=")
_ALARM = 10.0  # seconds; a second limit after that of `process`, in case the run is dead
_POINTS = 8  # points at which both formulas are evaluated
_FARTHEST = 10**6  # constants beyond it are ignored in the choice of points
_CONSTANTS_SEEN = 3  # constants with points next to them
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)


def prepare(memory: int) -> None:
    """Limits the memory of the worker, and imports what comparisons need."""
    square = ("^", ("+", ("v", "x"), ("n", "1")), ("n", "2"))
    compare(square, ("*", ("sqrt", ("n", "12")), ("sin", ("v", "x"))), Fraction(0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def compare(key, response, tolerance: Fraction) -> bool:
    """Returns whether two trees differ by at most `tolerance`, or two relations by a constant factor.

    If one cannot be evaluated, they differ.
    """
    signal.setitimer(signal.ITIMER_REAL, _ALARM)  # the default action ends the process
    try:
        if key[0] in _RELATIONS:
            sides = [[one[0], *map(_built, one[1:])] for one in (key, response)]
            return _is_multiple(*sides)
        right, value = _built(key), _built(response)
        if not tolerance:
            return _is_equal(right, value)
        apart = sympy.Abs(right - value)
        largest = sympy.Rational(tolerance.numerator, tolerance.denominator)
        return not apart.free_symbols and bool(apart.evalf(50) <= largest)
    except Exception:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _built(tree) -> Any:
    """Returns the expression or set of a tree; a relation becomes the set of its symbol's values."""
    op, *parts = tree
    if op == "n":
        value = Fraction(parts[0])
        return sympy.Rational(value.numerator, value.denominator)
    if op == "v":
        return sympy.Symbol(parts[0], real=True)
    if op == "c":
        return _CONSTANTS[parts[0]]
    parts = list(map(_built, parts))
    if op not in _RELATIONS:
        return _FUNCTIONS[op](*parts)
    left, right = parts
    if op in ("=", "!="):
        point = sympy.FiniteSet(right if left.is_Symbol else left)
        return point if op == "=" else sympy.Reals - point
    if left.is_Symbol:
        return sympy.Interval(-sympy.oo, right, True, op == "<")
    return sympy.Interval(left, sympy.oo, op == "<", True)


# ------------------------------------------------------------------------------ equality
def _is_equal(x: Any, y: Any) -> bool:
    """Returns whether two expressions are equal wherever they are real, or two sets have the same edges."""
    if x == y and not x.has(sympy.nan, sympy.zoo):
        return True
    if isinstance(x, sympy.Set):
        return isinstance(y, sympy.Set) and (x ^ y).is_empty is True
    if any(one.has(sympy.nan, sympy.zoo) or one.is_infinite for one in (x, y)):
        return False
    symbols: list[Any] = sorted(x.free_symbols | y.free_symbols, key=str)
    is_complex = x.has(sympy.I) and y.has(sympy.I)
    agree = lambda point: _agree(x.subs(point), y.subs(point), is_complex, 150 if symbols else 500)
    seen = {agree(point) for point in _points(symbols, x, y)}
    if symbols and seen == {None}:  # (-1)^n is only real at integers
        integers = ({s: k + i * (k % 2 + 1) for i, s in enumerate(symbols)} for k in range(2, 6))
        seen = set(map(agree, integers))
    if False in seen or True not in seen:
        return False
    # Evaluation cannot show this difference: x + 10^{-999} is not x.
    difference = sympy.expand(x - y)
    is_polynomial = bool(symbols) and difference.is_polynomial(*symbols)
    if is_polynomial and all(c.is_Rational for c in sympy.Poly(difference, *symbols).coeffs()):
        return difference == 0
    return difference == 0 or not difference.is_Rational


def _points(symbols: list, *formulas: Any):
    """Yields points of both signs near 0, beyond all constants of the formulas, and next to some constants.

    For example, |x - 5| is 5 - x only below 5.
    """
    for k in range(_POINTS if symbols else 1):
        point = {}
        for i, symbol in enumerate(symbols):
            sign = (-1) ** ((k - 4) * (i + 1) // 2) if k > 4 else 1
            top, bottom = _PRIMES[(3 * i + k) % 10] + i, _PRIMES[(i + 2 * k + 1) % 10]
            point[symbol] = sympy.Rational(sign * top, bottom)
        yield point
    constants = sorted({abs(c) for one in formulas if symbols for c in one.atoms(sympy.Rational)})
    near = [c + sympy.Rational(1, 3) for c in constants if 2 < c <= _FARTHEST][:_CONSTANTS_SEEN]
    for size in (*near, *(2 * min(c, _FARTHEST) + 3 for c in constants[-1:])):
        for sign in (1, -1):
            yield {s: sign * (size + sympy.Rational(i, 11)) for i, s in enumerate(symbols)}


def _agree(x: Any, y: Any, is_complex: bool, digits: int) -> bool | None:
    """Returns whether two constants are equal; None if neither is a number of the required kind."""
    undefined = [
        one.has(sympy.nan, sympy.zoo, sympy.oo)
        or not (is_complex or _is_zero(sympy.im(one), digits))
        for one in (x, y)
    ]
    if any(undefined):
        return None if all(undefined) else False
    return _is_zero(x - y, digits)


def _is_zero(x: Any, digits: int = 150) -> bool:
    """Returns whether a constant is zero: its first `digits` digits are all 0."""
    parts: Any = x.evalf(50, maxn=digits).as_real_imag()
    if not all(part.is_Number for part in parts):
        raise ValueError(f"{x} has no value")
    return all(part == 0 or part._prec < 60 for part in parts)


def _is_multiple(right: list, value: list) -> bool:
    """Returns whether one relation is the other times a constant, which must be positive for inequalities.

    Equations are first multiplied by their denominators: y = -6/x is xy = -6.
    """
    sign, f, g = right[0], right[1] - right[2], value[1] - value[2]
    if sign == "=":
        f, g = (sympy.fraction(sympy.together(side))[0] for side in (f, g))
    f, g = sympy.expand(f), sympy.expand(g)
    if f.free_symbols != g.free_symbols or not f.free_symbols:
        return False
    for point in _points(sorted(f.free_symbols, key=str)):
        x, y = f.subs(point), g.subs(point)
        if not any(one.has(sympy.nan, sympy.zoo, sympy.oo) or _is_zero(one) for one in (x, y)):
            is_turned = sign not in ("=", "!=") and not (x / y).evalf(50) > 0
            return not is_turned and _is_equal(f * y, g * x)
    return False
