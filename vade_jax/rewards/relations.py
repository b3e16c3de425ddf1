"""Reads what an equation or an inequality says of a name: its value, or the interval that it lies in."""

from fractions import Fraction

from vade_jax.rewards import quantities, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Collection, Formula, Number, Relation, Tree, Value

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "\\in": "\\ni"}
_MINUS_INFINITY = Formula(("-", values.INFINITY.tree))


def named(value: Value, rules: Rules) -> tuple[str, Value] | None:
    """Returns the name that a relation gives a value, and the value; "" of a true chain of constants.

    That is x = 5, 5 = x, |AB| = 5, A:B = 1:2, (p, q) = (3, 2), f(x) = x + 1, and x = 14/2 = 7 where the rest
    is equal; None of all others.
    """
    if not isinstance(value, Relation) or not {"=", "\\approx"}.issuperset(value.signs):
        return None
    sides = list(value.sides)
    if _label_of(sides[0]) is None and len(sides) == 2 and _label_of(sides[1]) is not None:
        sides.reverse()
    name = _label_of(sides[0]) or ""
    if len(sides) == 2 and getattr(sides[0], "tree", None) == ("c", "e"):
        name = "e"  # of an ellipse, where only a value follows
    rest = sides[1:] if name else sides
    own = _names_in(sides[0]) if name else set()
    if any(own & _names_in(side) for side in rest):
        return None
    if isinstance(sides[0], Collection) and not all(_is_as_long(side, sides[0]) for side in rest):
        return None
    exactly = Rules(percents=False, ranges=False, clock=rules.clock)
    signs = value.signs[len(value.signs) - len(rest) + 1 :]
    for sign, left, right in zip(signs, rest, rest[1:], strict=False):
        if not _chained(sign, left, right, exactly):
            return None
    is_difference = len(rest) > 1 and quantities.ends(rest[0]) is not None  # -3 = 4-7 is no range
    is_first = isinstance(rest[0], Number) or (rules.formulas and not is_difference)
    return name, rest[0 if is_first else -1]


def _chained(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value to any number of decimals."""
    if not isinstance(left, Number | Formula) or not isinstance(right, Number | Formula):
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


def spread(value: Relation, other: Collection) -> tuple[Relation, ...]:
    r"""Returns (x, y) = (1, 2) as x = 1, y = 2, and x = \{1, 2\} as x = 1, x = 2; () of anything else."""
    left, right = value.sides[0], value.sides[-1]
    if not isinstance(right, Collection):  # A:B = 1
        return ()
    if isinstance(left, Collection):
        lefts, fits = left.items, not other.brackets
    else:
        lefts, fits = [left] * len(right.items), right.brackets in ("", "or", "{}")
    pairs = zip(lefts, right.items, strict=True) if fits else ()
    return tuple(Relation(("=",), pair) for pair in pairs)


def _label_of(side: Value) -> str | None:
    """Returns the name that a side only is: x_1, AB, |AB|, NO/BO, A:B, (p, q)."""
    if isinstance(side, Collection) and side.brackets in ("()", ":"):
        found = [x for x in map(_label_of, side.items) if x is not None]
        return f"({side.brackets}{','.join(found)})" if len(found) == len(side.items) else None
    if not isinstance(side, Formula) or side.unit:
        return values.name_of(side)
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


def _names_in(side: Value) -> set[str]:
    if isinstance(side, Collection):
        return set().union(*map(_names_in, side.items))
    return values.names(side.tree) if isinstance(side, Formula) else set()


def _is_as_long(side: Value, names: Collection) -> bool:
    if not isinstance(side, Collection):
        return names.brackets == ":" and isinstance(side, Number | Formula)  # A:B = 1
    return side.brackets == names.brackets and len(side.items) == len(names.items)


def turned(signs: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the signs of a relation that is read from right to left."""
    return tuple(_FLIPPED.get(sign, sign) for sign in signs[::-1])


def interval(value: Value) -> tuple[str, Collection] | None:
    r"""Returns (name or "", intervals) of 0 <= x < 1, x \in [0, 1), x != 3, and of what is one already."""
    if isinstance(value, Collection):
        is_pair = len(value.items) == 2 and value.brackets in ("()", "[]", "(]", "[)")
        if value.brackets == "u" or is_pair:
            return "", value
        found = [x for x in map(interval, value.items) if x is not None]
        if value.brackets not in ("or", "and") or len(found) < len(value.items):
            return None
        names, parts = {name for name, _ in found}, tuple(one for _, one in found)
        whole = _between(*parts) if value.brackets == "and" else Collection("u", parts)
        return (names.pop(), whole) if len(names) == 1 and whole else None
    if not isinstance(value, Relation):
        return None
    signs, sides = value.signs, value.sides
    if values.name_of(sides[0]) is None if len(sides) == 2 else signs[0] in (">", ">="):
        signs, sides = turned(signs), sides[::-1]
    name = values.name_of(sides[len(sides) > 2])
    rest = [side for side in sides if isinstance(side, Formula) and values.name_of(side) is None]
    if name is None or any(values.names(side.tree) for side in rest):
        return None
    minus, plus = _MINUS_INFINITY, values.INFINITY
    opener, closer = "[" if "=" in signs[0] else "(", "]" if "=" in signs[-1] else ")"
    match signs:
        case ("\\in",) if isinstance(sides[1], Collection):
            return name, sides[1]
        case ("<" | "<=",):
            return name, Collection("(" + closer, (minus, sides[1]))
        case (">" | ">=",):
            return name, Collection(opener + ")", (sides[1], plus))
        case ("!=",):
            ends = (minus, sides[1]), (sides[1], plus)
            return name, Collection("u", tuple(Collection("()", pair) for pair in ends))
        case (("<" | "<="), ("<" | "<=")):
            return name, Collection(opener + closer, (sides[0], sides[-1]))
    return None


def _between(*parts: Collection) -> Collection | None:
    """Returns the interval in which both x > 2 and x < 3 hold; None of anything but two such bounds."""
    if len(parts) != 2 or any(len(part.items) != 2 for part in parts):
        return None
    lower, upper = sorted(parts, key=lambda part: part.items[0] == _MINUS_INFINITY)
    if lower.items[1] != values.INFINITY or upper.items[0] != _MINUS_INFINITY:
        return None
    return Collection(lower.brackets[0] + upper.brackets[1], (lower.items[0], upper.items[1]))
