"""Reads what an equation or an inequality says of a name: its value, or the region that it lies in."""

from fractions import Fraction
from typing import NamedTuple

from vade_jax.rewards import quantities, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Relation, Tree, Unit, Value

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "\\in": "\\ni"}
_REALS = ("()", ("-", values.INFINITY), values.INFINITY)
_PARTS = set("mnpqrs")  # whose sum is a whole answer: m+n = 113


# ------------------------------------------------------------------------------ the value of a name
class Named(NamedTuple):
    """A value and its name; a true chain of constants gives one without a name."""

    name: str | None
    value: Value
    columns: tuple[str, ...] = ()  # x and y of (x, y)


def named(value: Value, rules: Rules) -> Named | None:
    """Returns the name that a relation gives a value, and the value.

    That is x = 5, 5 = x, |AB| = 5, A:B = 1:2, (p, q) = (3, 2), f(x) = x + 1, and x = 14/2 = 7 where the rest
    is equal; None of all others.
    """
    if not isinstance(value, Relation):
        return None
    signs, sides = value.signs, list(value.sides)
    name = _label(sides[0])
    if signs == ("\\in",) and isinstance(sides[1], Collection) and sides[1].kind is Kind.SET:
        return Named(name, sides[1]) if name else None  # x \in \{1, 2\}
    if not {"=", "\\approx"}.issuperset(signs):
        return None
    if len(sides) == 2 and not name and not values.names(sides[0]) and _label(sides[1]):
        sides.reverse()  # 5 = x, but not a + b = c
        name = _label(sides[0])
    first, rest = sides[0], sides[1:] if name else sides
    if name and any(values.names(first) & values.names(side) for side in rest):
        return None
    items = first.items if isinstance(first, Collection) else ()
    for side in rest:
        is_ratio = isinstance(first, Collection) and first.kind is Kind.RATIO
        is_as_long = isinstance(side, Collection) and len(side.items) == len(items)
        if items and not is_as_long and not (is_ratio and isinstance(side, Formula)):  # A:B = 1
            return None
    exactly = Rules(exact=True, clock=rules.clock)
    steps = zip(signs[len(signs) - len(rest) + 1 :], rest, rest[1:], strict=False)
    if not all(_follows(sign, left, right, exactly) for sign, left, right in steps):
        return None
    columns = tuple(str(_label(item)) for item in items) if name else ()
    is_first = isinstance(rest[0], Number) or rules.formulas
    return Named(name, rest[0 if is_first else -1], columns)


def counted(value: Value | None) -> Value | None:
    r"""Returns the number of m+n = 113 or x \equiv 3 \pmod 7, which a whole number may be given as."""
    if not isinstance(value, Relation):
        return None
    if value.signs in (("\\equiv", "\\pmod"), ("\\pmod",)):
        is_named = len(value.sides) == 2 or values.name_of(value.sides[0])
        return value.sides[-2] if is_named else None
    tree = value.sides[0].tree if isinstance(value.sides[0], Formula) else ()
    leaves = [node for node in values.nodes(tree) if node[:1] != ("+",)]
    is_sum = len(leaves) > 1 and all(node[0] == "v" and node[1] in _PARTS for node in leaves)
    return value.sides[1] if value.signs == ("=",) and is_sum else None


def _follows(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value to any number of decimals."""
    if not isinstance(left, Formula) or not isinstance(right, Formula):
        return False
    if quantities.same(left, right, rules):
        return True
    last = right.last if isinstance(right, Number) else None
    if last is None and not (sign == "\\approx" and isinstance(right, Number)):
        return False
    room = Fraction(10) ** (last or 0) / 2
    if isinstance(left, Number) and isinstance(right, Number):
        return abs(left.value - right.value) <= room
    return quantities.ask(rules, left.tree, right.tree, room=room)


def _label(side: Value | Tree) -> str | None:
    """Returns the name that a side only is: x_1, AB, |AB|, NO/BO, A:B, (p, q)."""
    if isinstance(side, Collection):
        is_named = side.kind in (Kind.OPEN, Kind.RATIO) and side.items
        op, parts = side.kind.value if is_named else "", side.items
    elif isinstance(side, Formula):
        return None if side.unit else _label(side.tree)
    else:
        op, parts = (side[0], side[1:]) if isinstance(side, tuple) else ("", ())
    if op == "v":
        return parts[0]
    labels = [_label(part) or "" for part in parts] if op in ("()", ":", "*", "/", "abs") else []
    segment = all(len(x) == 1 and x.isupper() for x in labels) if op == "*" else True
    is_points = op != "abs" or len(labels[0]) > 3
    return f"{op}{','.join(labels)}" if labels and all(labels) and segment and is_points else None


# ------------------------------------------------------------------------------ regions
class Region(NamedTuple):
    """A set of numbers, for SymPy."""

    name: str  # of what lies in it, or ""
    unit: Unit | None
    tree: Tree
    is_certain: bool  # (0, 1) may also be a point, and 0, 1 a list


def region(value: Value) -> Region | None:
    r"""Returns the region of 0 <= x < 1, x != 3, x \in [0, 1), x < 1 and x != 0, [0, 1) or {1, 2}, else None."""
    if isinstance(value, Relation):
        return _half_lines(value)
    if not isinstance(value, Collection):
        return None
    kind, items = value.kind, value.items
    op = {Kind.OR: "cup", Kind.AND: "cap", Kind.LIST: "cap"}.get(kind, kind.value)
    if op in ("cup", "cap", "setminus"):
        parts = [part for part in map(region, items) if part is not None]
        is_list = kind is Kind.LIST and not all(map(is_inequality, items))
        names, measures = ({part[i] for part in parts} - {"", None} for i in (0, 1))
        if len(parts) < len(items) or is_list or len(names) > 1 or len(measures) > 1:
            return None
        tree = parts[0].tree
        for part in parts[1:]:
            tree = (op, tree, part.tree)
        is_certain = kind.value == op or any(part.is_certain for part in parts)
        return Region("".join(names), next(iter(measures), None), tree, is_certain)
    if kind is not Kind.SET and (kind not in values.PAIRS or len(items) != 2):
        return None
    if (found := _constants(*items)) is None:
        return None
    is_infinite = any(values.INFINITY in values.nodes(tree) for tree in found[1])
    return Region("", found[0], (op, *found[1]), is_infinite or op in ("[)", "(]"))


def _constants(*ends: Value) -> tuple[Unit | None, tuple[Tree, ...]] | None:
    """Returns the unit and the trees of numbers without names; None of anything else."""
    formulas = [end for end in ends if isinstance(end, Formula) and not values.names(end)]
    measures = {end.unit for end in formulas} - {None}
    if len(formulas) < len(ends) or len(measures) > 1:
        return None
    return next(iter(measures), None), tuple(end.tree for end in formulas)


def _half_lines(value: Relation) -> Region | None:
    signs, sides = value.signs, value.sides
    if values.name_of(sides[0]) is None if len(sides) == 2 else signs[0] in (">", ">="):
        signs, sides = turned(signs), sides[::-1]
    name = values.name_of(sides[len(sides) > 2])
    if name and signs == ("\\in",):
        inside = region(sides[1])
        return inside and Region(name, inside.unit, inside.tree, True)
    found = _constants(*(side for side in sides if values.name_of(side) is None))
    if not name or found is None or len(found[1]) != len(signs):
        return None
    opener, closer = "[" if "=" in signs[0] else "(", "]" if "=" in signs[-1] else ")"
    match [*(sign[0] for sign in signs), *found[1]]:
        case ["=", end]:
            return Region(name, found[0], ("{}", end), False)
        case ["!", end]:
            tree = ("setminus", _REALS, ("{}", end))
        case ["<", end]:
            tree = ("(" + closer, _REALS[1], end)
        case [">", end]:
            tree = (opener + ")", end, _REALS[2])
        case ["<", "<", start, end]:
            tree = (opener + closer, start, end)
        case _:
            return None
    return Region(name, found[0], tree, True)


def turned(signs: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the signs of a relation that is read from right to left."""
    return tuple(_FLIPPED.get(sign, sign) for sign in signs[::-1])


def is_inequality(value: Value) -> bool:
    """Returns whether a relation bounds or excludes something."""
    signs = value.signs if isinstance(value, Relation) else ()
    return not {"<", "<=", ">", ">=", "!=", "\\in"}.isdisjoint(signs)
