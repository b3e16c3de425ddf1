"""Reads what an equation or an inequality says of a name: its value, or the region that it lies in."""

from fractions import Fraction
from typing import NamedTuple

from vade_jax.rewards import quantities, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Relation, Tree, Unit, Value

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "\\in": "\\ni"}
_ORDERS = {"<", "<=", ">", ">="}
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
    sides = list(value.sides)
    if value.signs == ("\\in",) and getattr(sides[1], "kind", None) is Kind.SET:  # x \\in \\{1, 2\\}
        return Named(name, sides[1]) if (name := values.name_of(sides[0])) else None
    if not {"=", "\\approx"}.issuperset(value.signs):
        return None
    is_turned = len(sides) == 2 and _label_of(sides[0]) is None and _label_of(sides[1]) is not None
    if is_turned and not values.names(sides[0]):
        sides.reverse()  # 5 = x, but not a + b = c
    name = _label_of(sides[0])
    if len(sides) == 2 and getattr(sides[0], "tree", None) == ("c", "e"):
        name = "e"  # of an ellipse, where only a value follows
    rest = sides if name is None else sides[1:]
    own = values.names(sides[0]) if name is not None else set()
    if any(own & values.names(side) for side in rest):
        return None
    if isinstance(sides[0], Collection) and not all(_is_as_long(side, sides[0]) for side in rest):
        return None
    exactly = Rules(exact=True, clock=rules.clock)
    signs = value.signs[len(value.signs) - len(rest) + 1 :]
    for sign, left, right in zip(signs, rest, rest[1:], strict=False):
        if not _chained(sign, left, right, exactly):
            return None
    is_difference = len(rest) > 1 and quantities.ends(rest[0]) is not None  # -3 = 4-7 is no range
    is_first = isinstance(rest[0], Number) or (rules.formulas and not is_difference)
    first = sides[0] if isinstance(sides[0], Collection) and sides[0].kind is Kind.OPEN else None
    columns = tuple(map(str, map(_label_of, first.items))) if name and first else ()
    return Named(name, rest[0 if is_first else -1], columns)


def counted(value: Value) -> Value | None:
    r"""Returns the number of m+n = 113 or x \equiv 3 \pmod 7, which a whole number may be given as."""
    if not isinstance(value, Relation):
        return None
    if value.signs == ("\\equiv", "\\pmod") and values.name_of(value.sides[0]):
        return value.sides[1]
    if value.signs == ("\\pmod",):
        return value.sides[0]
    tree = value.sides[0].tree if isinstance(value.sides[0], Formula) else ()
    leaves = [node for node in values.nodes(tree) if node[:1] != ("+",)]
    is_sum = len(leaves) > 1 and all(node[0] == "v" and node[1] in _PARTS for node in leaves)
    return value.sides[1] if value.signs == ("=",) and is_sum else None


def _chained(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value to any number of decimals."""
    if not isinstance(left, Formula) or not isinstance(right, Formula):
        return False
    if quantities.same(left, right, rules):
        return True
    if not isinstance(right, Number):
        return False
    last = 0 if right.last is None and sign == "\\approx" else right.last
    if last is None:
        return False
    room = Fraction(10) ** last / 2
    if isinstance(left, Number):
        return abs(left.value - right.value) <= room
    return quantities.ask(rules, left.tree, right.tree, room=room)


def _label_of(side: Value) -> str | None:
    """Returns the name that a side only is: x_1, AB, |AB|, NO/BO, A:B, (p, q)."""
    if isinstance(side, Collection) and side.kind in (Kind.OPEN, Kind.RATIO):
        found = [x for x in map(_label_of, side.items) if x is not None]
        whole = f"({side.kind.value}{','.join(found)})"
        return whole if found and len(found) == len(side.items) else None
    if not isinstance(side, Formula) or side.unit:
        return None
    op, *parts = side.tree
    if op == "abs":
        return f"|{_points(parts[0])}|" if _points(parts[0]) else None
    if op != "/":
        return values.name_of(side)
    labels = [part[1] if part[0] == "v" else _points(part) or "" for part in parts]
    return "/".join(labels) if all(labels) else None


def _points(tree: Tree) -> str | None:
    """Returns the letters of a product of capitals alone, which is a segment or an area."""
    letters = "".join(node[1] for node in values.nodes(tree) if node[0] == "v")
    is_product = {node[0] for node in values.nodes(tree)} == {"*", "v"}
    return letters if is_product and letters.isupper() else None


def _is_as_long(side: Value, names: Collection) -> bool:
    if not isinstance(side, Collection):
        return names.kind is Kind.RATIO and isinstance(side, Formula)  # A:B = 1
    return side.kind is names.kind and len(side.items) == len(names.items)


def turned(signs: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the signs of a relation that is read from right to left."""
    return tuple(_FLIPPED.get(sign, sign) for sign in signs[::-1])


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
    op = {Kind.OR: "cup", Kind.AND: "cap", Kind.LIST: "cap"}.get(value.kind, value.kind.value)
    if op in ("cup", "cap", "setminus"):
        parts = [part for part in map(region, value.items) if part is not None]
        is_mixed = value.kind is Kind.LIST and not all(map(is_inequality, value.items))
        if len(parts) < len(value.items) or is_mixed:
            return None
        return _joined(op, parts, value.kind.value == op)
    is_interval = value.kind in values.PAIRS and len(value.items) == 2
    trees = _constants(*value.items) if is_interval or value.kind is Kind.SET else None
    if trees is None:
        return None
    is_half_open = op in ("[)", "(]") or any(values.INFINITY in values.nodes(x) for x in trees[1])
    return Region("", trees[0], (op, *trees[1]), is_half_open)


def _joined(op: str, parts: list[Region], is_certain: bool) -> Region | None:
    names, measures = ({part[i] for part in parts} - {"", None} for i in (0, 1))
    if len(names) > 1 or len(measures) > 1:
        return None
    tree = parts[0].tree
    for part in parts[1:]:
        tree = (op, tree, part.tree)
    is_certain |= any(part.is_certain for part in parts)
    return Region("".join(names), next(iter(measures), None), tree, is_certain)


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
    if name is None:
        return None
    if signs == ("\\in",):
        inside = region(sides[1])
        return inside and Region(name, inside.unit, inside.tree, True)
    found = _constants(*(side for side in sides if values.name_of(side) is None))
    if found is None or len(found[1]) != len(signs):
        return None
    unit, trees = found
    opener, closer = "[" if "=" in signs[0] else "(", "]" if "=" in signs[-1] else ")"
    match signs:
        case ("=",):
            return Region(name, unit, ("{}", *trees), False)
        case ("!=",):
            return Region(name, unit, ("setminus", _REALS, ("{}", *trees)), True)
        case ("<" | "<=",):
            return Region(name, unit, ("(" + closer, _REALS[1], *trees), True)
        case (">" | ">=",):
            return Region(name, unit, (opener + ")", *trees, _REALS[2]), True)
        case (("<" | "<="), ("<" | "<=")):
            return Region(name, unit, (opener + closer, *trees), True)
    return None


def is_inequality(value: Value) -> bool:
    """Returns whether a relation bounds or excludes something."""
    return isinstance(value, Relation) and not {*_ORDERS, "!=", "\\in"}.isdisjoint(value.signs)
