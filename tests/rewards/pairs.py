"""Pairs of a key and an answer whose verdict is known: the answer in other words, or with one part changed.

A pair is made from parts (numbers, names, signs), not from texts. SymPy calculates what the parts mean, apart
from how a text is read; so a change that changes nothing, such as the order of a sum, is known to be right.
"""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import sympy

X, Y, PI = sympy.Symbol("x"), sympy.Symbol("y"), sympy.pi
UNITS = {"mm": 1, "cm": 10, "m": 1000, "km": 10**6, "s": "time", "kg": "mass"}


@dataclasses.dataclass(frozen=True)
class Pair:
    """An answer to a key; `right` says whether they mean the same."""

    kind: str
    key: str
    given: str
    right: bool


@dataclasses.dataclass(frozen=True)
class Sort:
    """One sort of answers: parts are drawn, changed, written in some way, and have a meaning."""

    kind: str
    draw: Callable[[random.Random], list]
    write: Callable[[random.Random, list], str]
    mean: Callable[[list], Any]


def pairs(count: int, seed: int):
    """Yields pairs; two in three have one part changed."""
    rng = random.Random(seed)
    for _ in range(count):
        sort = rng.choice(SORTS)
        parts = sort.draw(rng)
        given = _changed(rng, parts) if rng.random() < 2 / 3 else parts
        right = _equal(sort.mean(parts), sort.mean(given))
        yield Pair(sort.kind, sort.write(rng, parts), sort.write(rng, given), right)


def _changed(rng: random.Random, parts: list) -> list:
    """Returns the parts with another digit, sign, name, unit or order."""
    parts = list(parts)
    place = rng.randrange(len(parts))
    old = parts[place]
    if isinstance(old, int):
        digits = list(str(abs(old)))
        digit = rng.randrange(len(digits))
        digits[digit] = rng.choice("123456789".replace(digits[digit], ""))
        changed = int("".join(digits)) * (-1 if old < 0 else 1)
        parts[place] = rng.choice([changed, -old, changed])
    elif old in UNITS:
        parts[place] = rng.choice([unit for unit in UNITS if unit != old])
    elif len(old) > 1:
        parts[place] = "".join(rng.sample(old, len(old)))
    else:
        parts[place] = rng.choice([one for one in _LIKE[old] if one != old])
    return parts


_LIKE = {
    **dict.fromkeys("xy", "xy"), **dict.fromkeys("+-", "+-"), **dict.fromkeys("<>≤≥", "<>≤≥"),
    **dict.fromkeys("[(", "[("), **dict.fromkeys("])", "])"),
}  # fmt: skip


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr):
        return sympy.simplify(left - right) == 0
    return left == right


def _nonzero(rng: random.Random, most: int = 30) -> int:
    return rng.choice([-1, 1, 1]) * rng.randint(1, most)


def _digits(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


# ------------------------------------------------------------------------------ numbers
def _write_fraction(rng, parts):
    a, b = parts
    forms = [
        f"\\frac{{{a}}}{{{b}}}",
        f"{a}/{b}" if b > 0 else f"\\dfrac{{{a}}}{{{b}}}",
        f"\\tfrac{{{a}}}{{{b}}}",
    ]
    if 0 < abs(b) < abs(a) and a % b and a * b > 0:
        whole, rest = divmod(abs(a), abs(b))
        forms += [f"{whole}\\frac{{{rest}}}{{{abs(b)}}}", f"{whole} {rest}/{abs(b)}"]
    return rng.choice(forms)


def _write_scientific(rng, parts):
    a, exponent = parts
    mantissa = f"{a / 100:.2f}"
    times = rng.choice(["\\times ", "\\cdot ", "×", "*", " x "])
    forms = [
        f"{mantissa}{times}10^{{{exponent}}}",
        f"{mantissa}e{exponent}",
        f"{mantissa}E{exponent}",
    ]
    return rng.choice(forms)


def _write_measured(rng, parts):
    a, unit, power = parts
    raised = f"^{abs(power)}" if abs(power) > 1 else ""
    forms = [
        "{a}\\text{{ {u}}}{p}",
        "{a}\\,\\mathrm{{{u}}}{p}",
        "{a}~\\text{{{u}}}{p}",
        "{a}{{\\rm {u}}}{p}",
        "{a} {u}{p}",
    ]
    return rng.choice(forms).format(a=a, u=unit, p=raised)


def _mean_measured(parts):
    a, unit, power = parts
    size = UNITS[unit]
    power = abs(power)
    return (a, unit, power) if isinstance(size, str) else (a * size**power, "length", power)


# ------------------------------------------------------------------------------ formulas
def _write_root(rng, parts):
    a, n = parts
    root = rng.choice(["\\sqrt{{{n}}}", "√{n}", "sqrt({n})", "\\sqrt({n})", "{n}^{{1/2}}"]).format(
        n=abs(n)
    )
    if root[0].isdigit():
        return f"{a}\\cdot {root}"
    return rng.choice(["{a}{r}", "{a}\\cdot {r}", "{a} \\times {r}"]).format(a=a, r=root)


def _write_angle(rng, parts):
    a, degrees = parts
    angle = rng.choice(
        ["{d}^\\circ", "({d}°)", "\\left({d}^{{\\circ}}\\right)", "{d}^{{\\circ}}"]
    ).format(d=abs(degrees))
    return f"{a}\\sin {angle}"


def _write_line(rng, parts):
    a, x, sign, b = parts
    b = abs(b)
    right = rng.choice(
        [
            f"{a}{x}{sign}{b}",
            f"{'-' if sign == '-' else ''}{b}+{_digits(a)}{x}",
            f"({a}{x} {sign} {b})",
        ]
    )
    return right


def _mean_line(parts):
    a, x, sign, b = parts
    return a * sympy.Symbol(x) + (abs(b) if sign == "+" else -abs(b))


def _write_circle(rng, parts):
    a, b, r = parts
    left, right = f"(x{-a:+d})^2", f"(y{-b:+d})^2"
    forms = [f"{left}+{right}={r * r}", f"{right}+{left}={r * r}", f"{r * r}={left} + {right}"]
    rest = a * a + b * b - r * r
    return rng.choice([*forms, f"x^2+y^2{-2 * a:+d}x{-2 * b:+d}y{rest:+d}=0" if rest else forms[0]])


def _write_equation(rng, parts):
    a, x, sign, b, y, c = parts
    b = abs(b)
    scale = rng.choice([1, 1, 2, -1])
    if scale == 1:
        return f"{a}{x}{sign}{b}{y}={c}"
    flipped = sign if scale > 0 else "+-"[sign == "+"]
    return f"{scale * a}{x} {flipped} {abs(scale) * b}{y} = {scale * c}"


def _mean_equation(parts):
    a, x, sign, b, y, c = parts
    left = a * sympy.Symbol(x) + (1 if sign == "+" else -1) * abs(b) * sympy.Symbol(y) - c
    content = left.as_content_primitive()[1] if left else left
    return frozenset([sympy.expand(content), sympy.expand(-content)])


def _write_interval(rng, parts):
    opener, a, b, closer = parts
    forms = [f"{opener}{a},{b}{closer}", f"\\left{opener}{a}, {b}\\right{closer}"]
    low, high = ("\\le" if opener == "[" else "<"), ("\\leq" if closer == "]" else "<")
    return rng.choice([*forms, f"{a} {low} x {high} {b}", f"x \\in {forms[0]}"])


def _write_half_line(rng, parts):
    sign, a = parts
    latex = {"<": "<", ">": ">", "≤": "\\le ", "≥": "\\geq "}[sign]
    turned = {"<": ">", ">": "<", "≤": "\\ge ", "≥": "\\leq "}[sign]
    closed = "[]" if sign in "≤≥" else "()"
    interval = f"(-\\infty,{a}{closed[1]}" if sign in "<≤" else f"{closed[0]}{a},\\infty)"
    return rng.choice([f"x{latex}{a}", f"{a}{turned}x", f"x {sign} {a}", interval])


def _write_set(rng, parts):
    shown = rng.sample(parts, len(parts))
    forms = [
        "\\{" + ", ".join(map(str, shown)) + "\\}",
        " \\text{ or } ".join(f"x={a}" for a in shown),
    ]
    return rng.choice([*forms, " or ".join(map(str, shown))])


def _write_pair(rng, parts):
    a, b = parts
    return rng.choice(["({a},{b})", "(p, q) = ({a}, {b})", "p={a}, q={b}"]).format(a=a, b=b)


def _write_ratio(rng, parts):
    return rng.choice(["{}:{}", "AB:CD={}:{}", "AB : CD = {} : {}"]).format(*map(abs, parts))


def _write_pairs(rng, parts):
    a, b, c, d = parts
    both = rng.sample([f"({a},{b})", f"({c},{d})"], 2)
    return rng.choice(["{}, {}", "{} \\text{{ and }} {}", "(p,q)={} \\text{{ or }} {}"]).format(
        *both
    )


def _write_name(rng, parts):
    return rng.choice(["{}", "\\text{{{}}}"]).format(parts[0])


def _write_angle_name(rng, parts):
    return rng.choice(["\\angle {}", "∠{}", "\\angle{{{}}}"]).format(
        rng.choice([parts[0], parts[0][::-1]])
    )


SORTS = (
    Sort("int", lambda rng: [_nonzero(rng, 99999)], lambda rng, p: rng.choice(["{}", "{:,}", "{}.0"]).format(p[0]), tuple),
    Sort("expr", lambda rng: [_nonzero(rng), _nonzero(rng)], _write_fraction, lambda p: sympy.Rational(*p)),
    Sort("float", lambda rng: [rng.randint(1, 30), rng.randint(1, 30)], _write_fraction, lambda p: sympy.Rational(*p)),
    Sort("expr", lambda rng: [rng.randint(101, 999), rng.randint(-40, 40)], _write_scientific,
         lambda p: sympy.Rational(p[0], 100) * sympy.Integer(10) ** p[1]),
    Sort("int", lambda rng: [rng.randint(1, 999), rng.choice(list(UNITS)), rng.randint(1, 3)], _write_measured, _mean_measured),
    Sort("expr", lambda rng: [_nonzero(rng), rng.randint(2, 60)], _write_root, lambda p: p[0] * sympy.sqrt(abs(p[1]))),
    Sort("expr", lambda rng: [rng.randint(2, 9), rng.randint(1, 89)], _write_angle,
         lambda p: p[0] * sympy.sin(abs(p[1]) * PI / 180)),
    Sort("expr", lambda rng: [rng.randint(2, 9), rng.choice("xy"), rng.choice("+-"), rng.randint(1, 20)], _write_line, _mean_line),
    Sort("expr", lambda rng: [_nonzero(rng, 9), _nonzero(rng, 9), rng.randint(1, 9)], _write_circle,
         lambda p: (p[0], p[1], abs(p[2]))),
    Sort("expr", lambda rng: [rng.randint(2, 9), "x", rng.choice("+-"), rng.randint(2, 9), "y", _nonzero(rng, 20)],
         _write_equation, _mean_equation),
    Sort("expr", lambda rng: [rng.choice("[("), rng.randint(-20, -1), rng.randint(1, 20), rng.choice("])")], _write_interval, tuple),
    Sort("expr", lambda rng: [rng.choice("<>≤≥"), _nonzero(rng)], _write_half_line, tuple),
    Sort("list", lambda rng: rng.sample(range(-50, 50), rng.randint(2, 4)), _write_set, lambda p: tuple(sorted(p))),
    Sort("expr", lambda rng: [_nonzero(rng), _nonzero(rng)], _write_pair, tuple),
    Sort("expr", lambda rng: [rng.randint(1, 99), rng.randint(1, 99)], _write_ratio, lambda p: (abs(p[0]), abs(p[1]))),
    Sort("expr", lambda rng: [_nonzero(rng, 9), _nonzero(rng, 9), _nonzero(rng, 9), _nonzero(rng, 9)], _write_pairs,
         lambda p: sorted([(p[0], p[1]), (p[2], p[3])])),
    Sort("expr", lambda rng: ["".join(rng.choices("AST", k=3))], _write_name, tuple),
    Sort("expr", lambda rng: ["".join(rng.sample("ABCD", 3))], _write_angle_name, lambda p: min(p[0], p[0][::-1])),
    Sort("expr", lambda rng: [int("".join(rng.choices("1234", k=4))), rng.randint(5, 9)],
         lambda rng, p: rng.choice(["{}_{}", "{}_{{{}}}"]).format(abs(p[0]), abs(p[1])), lambda p: (abs(p[0]), abs(p[1]))),
    Sort("float", lambda rng: [rng.randint(1, 999), rng.choice("kM")], lambda rng, p: _write_scaled(rng, p),
         lambda p: p[0] * {"k": 10**3, "M": 10**6}[p[1]]),
)  # fmt: skip
_LIKE |= dict.fromkeys("kM", "kM")


def _write_scaled(rng, parts):
    a, scale = parts
    words = {"k": "thousand", "M": "million"}[scale]
    zeros = {"k": 3, "M": 6}[scale]
    return rng.choice(
        [
            f"{a}{scale}",
            f"{a} {words}",
            f"{a * 10**zeros}",
            f"\\${a}{scale}",
            f"{a} \\times 10^{zeros}",
        ]
    )
