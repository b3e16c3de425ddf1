"""Compares two values from `reading` with one function, whatever their forms.

Numbers, names and words are compared here. SymPy, in a worker of `pool`, compares formulas and equations; an
equation equals another one up to a constant factor. Values that cannot be compared are different.
"""

import dataclasses
import functools
import itertools
from fractions import Fraction
from typing import NamedTuple

from vade_jax.rewards import answers, pool, units, values
from vade_jax.rewards.values import Both, Collection, Formula, Number, Relation, Tree, Value, Words

_ENOUGH = 3  # significant digits of a decimal that stands for an exact value
_REPLIES: dict[tuple, str] = {}  # SymPy's verdicts; the answers of a group are often equal
_MOST_REPLIES = 16384
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LOOSE = {"", "or", "{}"}  # brackets that mean the same
_MINUS_INFINITY = Formula(("-", values.INFINITY.tree))
# In the order of the alphabet also without names, however they were written.
_STANDARD = ({"x", "y"}, {"x", "y", "z"}, {"a", "b"}, {"a", "b", "c"})


class Failed(ValueError):  # noqa: N818 (says what happened)
    """SymPy reached no verdict; the reason is "timeout" or "crash"."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of comparison, which depend on the kind of answer."""

    tolerance: Fraction | None = None  # relative, around any number
    decimals: bool = False  # a decimal key stands for half a unit of its last digit
    percents: bool = True  # a percent sign may be left out
    lists: bool = False  # brackets do not matter, and a comma alone keeps the order
    ordered: bool | None = None  # whether the order of a list counts; None: its brackets say so
    formulas: bool = True  # whether a formula may stand for a number
    ranges: bool = True  # whether a right answer 10-20 is a range, and no difference
    clock: pool.Clock = dataclasses.field(default_factory=pool.Clock)  # of this answer


def same(given: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two values are the same.

    Args:
        given: the answer.
        key: the right one.
        rules: of its kind.

    Raises:
        Failed: SymPy reached no verdict.
        RuntimeError: math-verify or pint is not installed.
    """
    if isinstance(given, Relation) or isinstance(key, Relation):
        return _same_relation(given, key, rules)
    if isinstance(given, Collection) or isinstance(key, Collection):
        return _same_collection(given, key, rules)
    one, other = (x.text if isinstance(x, Words) else _name_of(x) for x in (given, key))
    if one is not None and other is not None:
        is_spelled = not isinstance(given, Words) and not isinstance(key, Words)
        read = str if is_spelled else answers.signed_words
        return read(one) == read(other)
    if rules.ranges and (wanted := ends(key)):
        written = {getattr(x, "unit", None) for x in (given, key)}
        return ends(given) == wanted and len(written - {None}) < 2
    if getattr(given, "asks", False) and not getattr(key, "asks", False):
        return False  # the integral that was to be calculated
    if isinstance(given, values.Latex) and given.spelled == getattr(key, "spelled", None):
        return True
    can_ask = all(
        isinstance(x, Number | Formula) or getattr(x, "asks", False) for x in (given, key)
    )
    return can_ask and _same_quantity(given, key, rules)


def ends(value: Value) -> tuple[Fraction, ...] | None:
    """Returns the ends of a range such as 10-20 or 10-20%, which is written like a difference, else None."""
    tree = getattr(value, "tree", None)
    if tree and tree[0] == "/" and tree[2] == ("n", "100"):
        tree = tree[1]
    match tree:
        case ("+", ("n", low), ("-", ("n", high))) if Fraction(low) < Fraction(high):
            return Fraction(low), Fraction(high)
    return None


# ------------------------------------------------------------------------------ numbers and formulas
def _same_quantity(given: Value, key: Value, rules: Rules) -> bool:
    if not rules.formulas and isinstance(key, Number) and not isinstance(given, Number):
        return False
    may_ask = rules.formulas or isinstance(key, Formula)
    for x, y in _in_one_unit(given, key):
        # Of two numbers, one may have been turned from degrees into radians.
        if isinstance(x, Number) and isinstance(y, Number):
            if _same_number(x, y, rules):
                return True
        elif may_ask and _same_tree(x, y, rules):
            return True
    return False


def _in_one_unit(given: Value, key: Value):
    """Yields both in comparable units; nothing if they measure different things."""
    mine, wanted = (getattr(x, "unit", None) or None for x in (given, key))
    if mine == wanted or None in (mine, wanted):
        yield given, key
        if {mine, wanted} == {None, "degree"}:  # 60 degrees are pi/3
            yield tuple(_in_radians(x) for x in (given, key))
    elif isinstance(given, Number):
        if (value := units.convert(given.value, mine, wanted)) is not None:
            # What was rounded in another unit stands for no exact value: no digits.
            yield dataclasses.replace(given, value=value, tree=_tree_of(value), digits=0), key
    elif factor := units.convert(Fraction(1), mine, wanted):
        assert isinstance(given, Formula)  # as it has a unit
        yield Formula(("*", given.tree, _tree_of(factor))), key


def _in_radians(value: Value) -> Value:
    if getattr(value, "unit", None) != "degree":
        return value
    assert isinstance(value, Number | Formula)  # as it has a unit
    return Formula(("*", value.tree, ("/", ("c", "pi"), ("n", "180"))))


def _same_number(given: Number, key: Number, rules: Rules) -> bool:
    """Returns whether two numbers are the same, exactly or as near as the rules say.

    A percent sign may be left out: 50% is 0.5, and 50 where the number is no share of one.
    """
    x, y = given.value, key.value
    if given.percent == key.percent:
        return abs(x - y) <= _room(given, key, rules)
    is_bare = rules.percents and abs(y if given.percent else x) >= 1
    if is_bare and abs(x - y) <= _room(given, key, rules):
        return True
    moved = _moved(given, -2 if given.percent else 2)
    return abs(moved.value - y) <= _room(moved, key, rules)


def _moved(number: Number, places: int) -> Number:
    """Returns a number with its decimal point, and the last of its digits, moved."""
    last = None if number.last is None else number.last + places
    return dataclasses.replace(number, value=number.value * Fraction(10) ** places, last=last)


def _room(given: Number, key: Number, rules: Rules) -> Fraction:
    """Returns the largest allowed distance from the right number."""
    if rules.tolerance is not None:
        return abs(key.value) * rules.tolerance
    if key.last is not None and rules.decimals:
        return Fraction(10) ** key.last / 2
    if 1 in (given.value.denominator, key.value.denominator):
        return Fraction(0)
    return _rounding(given, key) or Fraction(0)


def _rounding(given: Value, key: Value) -> Fraction | None:
    """Returns half a unit of the last digit of a decimal that is compared with an exact value, else None."""
    decimals = [x for x in (given, key) if isinstance(x, Number) and x.last is not None]
    if len(decimals) != 1 or decimals[0].digits < _ENOUGH or decimals[0].value.denominator == 1:
        return None
    assert decimals[0].last is not None
    return Fraction(10) ** decimals[0].last / 2


def _same_tree(given: Value, key: Value, rules: Rules) -> bool:
    """Returns whether SymPy finds two formulas equal; a decimal only has to be near an exact value."""
    if isinstance(given, Formula) and given == key:
        return True
    room = _rounding(given, key)
    x, y = (
        values.exact(side.tree) if isinstance(side, Number | Formula) else None
        for side in (given, key)
    )
    if x is not None and y is not None:
        return abs(x - y) <= (room or 0)
    right, left = (
        getattr(side, "tree", None) or getattr(side, "text", "") for side in (key, given)
    )
    return _ask(rules, right, left, room=room)


def _tree_of(value: Fraction) -> Tree:
    tree = ("n", str(abs(value)))
    return ("-", tree) if value < 0 else tree


def _ask(rules: Rules, key, given, question: str = "equal", room: Fraction | None = None) -> bool:
    """Returns SymPy's verdict on two trees, or two relations (sign, left, right)."""
    request = key, given, question, room and (str(room.numerator), str(room.denominator))
    reason = _REPLIES.get(request)
    if reason is None:
        if rules.clock.left <= 0:
            raise Failed("timeout")
        reason = pool.SHARED.check(*request, clock=rules.clock)
        if reason in ("timeout", "crash"):
            raise Failed(reason)  # so the verdict is not cached
        if len(_REPLIES) >= _MOST_REPLIES:
            _REPLIES.clear()
        _REPLIES[request] = reason
    return reason == "ok"


def forget() -> None:
    """Clears the cache of SymPy's verdicts."""
    _REPLIES.clear()


# ------------------------------------------------------------------------------ equations and inequalities
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
    is_difference = len(rest) > 1 and ends(rest[0]) is not None  # -3 = 4-7 is no range
    is_first = isinstance(rest[0], Number) or (rules.formulas and not is_difference)
    return name, rest[0 if is_first else -1]


def _chained(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value to any number of decimals."""
    if not isinstance(left, Number | Formula) or not isinstance(right, Number | Formula):
        return False
    if same(left, right, rules):
        return True
    if not isinstance(right, Number):
        return False
    last = 0 if right.last is None and sign == "\\approx" else right.last
    if last is None:
        return False
    room = Fraction(10) ** last / 2
    if isinstance(left, Number):
        return abs(left.value - right.value) <= room
    return _ask(rules, left.tree, right.tree, room=room)


def _name_of(side: Value) -> str | None:
    if isinstance(side, Formula) and side.tree[0] == "v" and not side.unit:
        return side.tree[1]
    return None


def _spread(value: Relation, other: Collection) -> tuple[Relation, ...]:
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
        return _name_of(side)
    op, *parts = side.tree
    if op == "abs":
        return f"|{_points(parts[0])}|" if _points(parts[0]) else None
    if op != "/":
        return _name_of(side)
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


def _same_relation(given: Value, key: Value, rules: Rules) -> bool:
    left, right = _interval(given), _interval(key)
    if left is not None and right is not None:
        return len({left[0], right[0]} - {""}) < 2 and _same_collection(left[1], right[1], rules)
    if isinstance(given, Relation) and isinstance(key, Relation):
        mine, wanted = named(given, rules), named(key, rules)
        if mine and wanted and (mine[0] == wanted[0] or not (mine[0] and wanted[0])):
            return same(mine[1], wanted[1], rules)
        return _same_equation(given, key, rules)
    one, other = (given, key) if isinstance(given, Relation) else (key, given)
    assert isinstance(one, Relation)  # one of the two is
    found = named(one, rules)
    if isinstance(other, Collection) and any(isinstance(x, Relation) for x in other.items):
        spread = _spread(one, other) if found else ()
        return bool(spread) and _matched(spread, other.items, rules)
    if one.signs == ("\\in",) and _name_of(one.sides[0]):  # x \in \{1, 2\}
        found = "", one.sides[1]
    if found is None or isinstance(found[1], Relation):
        return False
    return same(found[1], key, rules) if one is given else same(given, found[1], rules)


def _same_equation(given: Relation, key: Relation, rules: Rules) -> bool:
    """Returns whether all sides correspond, or an equation of two sides is the other by a factor."""
    if len(given.sides) != len(key.sides):
        return False
    signs, sides = given.signs, given.sides
    if key.signs != signs and tuple(_FLIPPED.get(sign, sign) for sign in signs[::-1]) == key.signs:
        signs, sides = key.signs, sides[::-1]
    if key.signs != signs:
        return False
    is_linear = len(sides) == 2 and signs[0] in ("=", "!=", *_FLIPPED)  # no x \sim y
    if is_linear and all(isinstance(side, Number | Formula) for side in (*sides, *key.sides)):
        right, left = (
            (signs[0], *(side.tree for side in pair if isinstance(side, Number | Formula)))
            for pair in (key.sides, sides)
        )
        return _ask(rules, right, left, "relation")
    pairs = list(zip(sides, key.sides, strict=True))
    turned = list(zip(sides[::-1], key.sides, strict=True)) if set(signs) == {"="} else pairs
    return any(all(same(x, y, rules) for x, y in each) for each in (pairs, turned))


def _interval(value: Value) -> tuple[str, Collection] | None:
    r"""Returns (name or "", intervals) of 0 <= x < 1, x \in [0, 1), x != 3, and of what is one already."""
    if isinstance(value, Collection):
        is_pair = len(value.items) == 2 and value.brackets in ("()", "[]", "(]", "[)")
        if value.brackets == "u" or is_pair:
            return "", value
        found = [x for x in map(_interval, value.items) if x is not None]
        if value.brackets not in ("or", "and") or len(found) < len(value.items):
            return None
        names, parts = {name for name, _ in found}, tuple(one for _, one in found)
        whole = _between(*parts) if value.brackets == "and" else Collection("u", parts)
        return (names.pop(), whole) if len(names) == 1 and whole else None
    if not isinstance(value, Relation):
        return None
    signs, sides = value.signs, value.sides
    if _name_of(sides[0]) is None if len(sides) == 2 else signs[0] in (">", ">="):
        signs, sides = tuple(_FLIPPED.get(sign, "") for sign in signs[::-1]), sides[::-1]
    name = _name_of(sides[len(sides) > 2])
    rest = [side for side in sides if isinstance(side, Formula) and _name_of(side) is None]
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


# ------------------------------------------------------------------------------ collections
def _same_collection(given: Value, key: Value, rules: Rules) -> bool:
    one, other = _interval(given), _interval(key)
    if one is not None and other is not None and (one[0] or other[0]):  # x < -1 or x > 3
        return _same_relation(given, key, rules)
    mine, wanted = _roots(given, rules), _roots(key, rules)
    if mine and wanted and not rules.lists and _is_numbered(mine, wanted):
        return mine.unknown == wanted.unknown and _matched(mine.values, wanted.values, rules)
    flat, flat_key = _flat(given), _flat(key)
    mine, wanted = _unnamed(flat, flat_key, rules), _unnamed(flat_key, flat, rules, is_key=True)
    if mine is None or wanted is None or len(mine.items) != len(wanted.items):
        return False
    pair = {mine.brackets, wanted.brackets}
    if pair >= {"and", "or"}:
        return False
    if not (rules.lists or len(pair) == 1 or pair <= _LOOSE or pair in ({"", "="}, {"", "and"})):
        return False
    is_set = wanted.brackets in ("or", "and", "{}", "u") or (
        not wanted.brackets and not rules.lists
    )
    is_ordered = not is_set if rules.ordered is None else rules.ordered
    if is_ordered or "=" in pair:
        return all(same(x, y, rules) for x, y in zip(mine.items, wanted.items, strict=True))
    return _matched(mine.items, wanted.items, rules)


class _Roots(NamedTuple):
    """The values of an unknown: x = 1 or x = -3."""

    unknown: str
    numbers: frozenset[str]  # 1 and 2 of x_1 = 1, x_2 = -3; empty without
    values: tuple[Value, ...]


def _roots(value: Value, rules: Rules) -> _Roots | None:
    """Returns the values that all parts give x, or t; None of anything else."""
    found = [named(item, rules) for item in _flat(value).items]
    pairs = [x for x in found if x is not None]
    unknowns = {name.partition("_")[0] for name, _ in pairs}
    if len(pairs) < len(found) or unknowns not in ({"x"}, {"t"}):
        return None
    numbers = {x for name, _ in pairs for x in name.partition("_")[2].split(",") if x}
    if not all(map(str.isdecimal, numbers)):
        return None  # x_{max}
    return _Roots(unknowns.pop(), frozenset(numbers), tuple(item for _, item in pairs))


def _is_numbered(given: _Roots, key: _Roots) -> bool:
    """Returns whether roots are numbered, and so may be named or ordered otherwise: x_1 and x_2, or x.

    More than two that both number may be the unknowns of a system, whose order counts.
    """
    if given.numbers and key.numbers:
        return given.numbers == key.numbers and len(key.values) == 2
    return bool(given.numbers or key.numbers)


def _flat(value: Value) -> Collection:
    r"""Returns a collection with the values of 3, \pm 5 one after the other; one value alone is a set."""
    if not isinstance(value, Collection):
        return Collection("{}", (value,))
    if value.brackets not in _LOOSE:
        return value
    nested = (x.items if isinstance(x, Both) else (x,) for x in value.items)
    return Collection(value.brackets, tuple(itertools.chain.from_iterable(nested)))


def _unnamed(
    value: Collection, other: Collection, rules: Rules, is_key: bool = False
) -> Collection | None:
    """Returns the values of x = 3, x = -5, or of x = 1, y = 2, to compare them with values without names.

    None if the names cannot be left out: {3, -5} is not x = 3, y = -5.
    """
    if any(isinstance(item, Relation) for item in other.items):
        return value
    found = [x for item in value.items if (x := named(item, rules)) is not None]
    if not found or len(found) < len(value.items):
        return value
    names, items = [name for name, _ in found], [item for _, item in found]
    if len({name.partition("_")[0] for name in names}) == 1:
        return Collection(value.brackets, tuple(items))
    size = len(set(names))
    is_set = value.brackets == "or" or other.brackets in ("or", "{}")
    if is_set or names != names[:size] * (len(names) // size):
        return None
    is_bare = not other.brackets and size == len(names)
    order = sorted(range(size), key=names.__getitem__)
    if is_bare and is_key:  # "4, 5" is AB = 4, CD = 5 as the key has them
        order = list(range(size))
    elif order != list(range(size)) and (is_bare or set(names) not in _STANDARD):
        return None
    brackets = "=" if is_bare else "()"
    groups = [
        Collection(brackets, tuple(items[start + i] for i in order))
        for start in range(0, len(items), size)
    ]
    return groups[0] if len(groups) == 1 else Collection("", tuple(groups))


def _matched(given: tuple[Value, ...], key: tuple[Value, ...], rules: Rules) -> bool:
    """Returns whether each right value has a given one of its own (by augmenting paths)."""
    if len(given) != len(key):
        return False
    cached = functools.lru_cache(maxsize=None)(lambda i, j: same(given[j], key[i], rules))
    taken: dict[int, int] = {}  # given: right

    def place(i: int, seen: set[int]) -> bool:
        for j in range(len(given)):
            if j not in seen and cached(i, j):
                seen.add(j)
                if j not in taken or place(taken[j], seen):
                    taken[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(key)))
