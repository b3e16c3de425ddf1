"""Compares two values that `reading` has read: one function, whatever their forms.

Numbers, names and words are compared here. Formulas are asked of SymPy, in a worker of `pool`, and so is an
equation: it equals another one up to a constant factor. What cannot be compared is different.
"""

import dataclasses
import functools
from fractions import Fraction

from vade_jax.rewards import answers, pool, units, values
from vade_jax.rewards.values import (
    Collection,
    Formula,
    Latex,
    Name,
    Number,
    Relation,
    Tree,
    Value,
    Words,
)

_NOISE = Fraction(1, 10**9)  # relative, of two decimals that were calculated in different ways
_ENOUGH = 3  # significant digits of a decimal that stands for an exact value
_REPLIES: dict[tuple, str] = {}  # of SymPy: the answers of a group are often the same
_MOST_REPLIES = 16384
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_STANDARD = (
    {"x", "y"},
    {"x", "y", "z"},
    {"a", "b"},
    {"a", "b", "c"},
)  # in this order also without names


class Failed(Exception):  # noqa: N818 (says what happened)
    """SymPy has come to no verdict: the reason is "timeout" or "crash"."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """What differs between kinds of answers."""

    tolerance: Fraction | None = None  # relative, around any number
    decimals: bool = False  # a decimal key stands for half a unit of its last digit
    percents: bool = True  # a percent sign may be left out
    lists: bool = False  # brackets do not matter, and a comma alone keeps the order
    ordered: bool | None = None  # whether the order of a list counts; None: its brackets say so
    formulas: bool = True  # whether a formula may stand for a number
    clock: pool.Clock = dataclasses.field(default_factory=pool.Clock)  # of this answer


def same(given: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two values are the same.

    Args:
        given: the answer.
        key: the right one.
        rules: of its kind.

    Raises:
        Failed: SymPy did not say.
        RuntimeError: math-verify or pint is not there.
    """
    if isinstance(given, Relation) or isinstance(key, Relation):
        return _same_relation(given, key, rules)
    if isinstance(given, Collection) or isinstance(key, Collection):
        return _same_collection(given, key, rules)
    if isinstance(given, Words) and isinstance(key, Formula) and given.tree:
        given = Formula(given.tree)
    if isinstance(key, Words) and isinstance(given, Formula) and key.tree:
        key = Formula(key.tree)
    if isinstance(given, Name) and isinstance(key, Name):
        return given == key
    if isinstance(given, Name | Words) and isinstance(key, Name | Words):
        return answers.signed_words(given.text) == answers.signed_words(key.text)
    if isinstance(given, Number | Formula | Latex) and isinstance(key, Number | Formula | Latex):
        return _same_quantity(given, key, rules)
    return False


# ------------------------------------------------------------------------------ numbers and formulas
def _same_quantity(given: Value, key: Value, rules: Rules) -> bool:
    if isinstance(given, Number) and isinstance(key, Number):
        return any(_same_number(x, y, rules) for x, y in _in_one_unit(given, key))
    if not rules.formulas and isinstance(key, Number):
        return False
    return any(_same_tree(x, y, rules) for x, y in _in_one_unit(given, key))


def _in_one_unit(given: Value, key: Value):
    """Yields both as they are to be compared; nothing if they measure different things."""
    given, key = _meant(given, key), _meant(key, given)
    mine, wanted = (getattr(x, "unit", None) or None for x in (given, key))
    if mine == wanted or None in (mine, wanted):
        yield given, key
        if {mine, wanted} == {None, "degree"}:  # 60 degrees are pi/3
            yield tuple(_in_radians(x) for x in (given, key))
    elif isinstance(given, Number):
        if (value := units.convert(given.value, mine, wanted)) is not None:
            last = _moved(given.last, value / given.value) if given.last and given.value else None
            yield dataclasses.replace(given, value=value, tree=_tree_of(value), last=last), key
    elif factor := units.convert(Fraction(1), mine, wanted):
        yield Formula(("*", given.tree, _tree_of(factor))), key


def _moved(last: int, factor: Fraction) -> int | None:
    """Returns the place of the last decimal times a power of ten, None (it is exact) times anything else."""
    zeros = len(str(max(factor.numerator, factor.denominator))) - 1
    zeros = zeros if factor >= 1 else -zeros
    return last + zeros if factor == Fraction(10) ** zeros else None


def _meant(value: Value, other: Value) -> Value:
    """Returns 40 M as metres, and 300 K as kelvins, beside what is measured so."""
    if not isinstance(value, Number) or value.unit or not getattr(other, "unit", None):
        return value
    unit = units.MEANT.get(value.scale)
    if unit is None or units.convert(Fraction(1), unit, other.unit) is None:
        return value
    less = Fraction(1, 10 ** units.SCALES[value.scale])
    last = None if value.last is None else value.last - units.SCALES[value.scale]
    plain = value.value * less
    return dataclasses.replace(
        value, value=plain, tree=_tree_of(plain), last=last, unit=unit, scale=""
    )


def _in_radians(value: Value) -> Value:
    if getattr(value, "unit", None) != "degree":
        return value
    return Formula(("*", value.tree, ("/", ("c", "pi"), ("n", "180"))))


def _same_number(given: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two numbers are the same, or two trees where one was turned into radians.

    A percent sign may be left out: 50% is 0.5, and 50 where the number is no share of one.
    """
    if not (isinstance(given, Number) and isinstance(key, Number)):
        return rules.formulas and _same_tree(given, key, rules)
    x, y, share = given.value, key.value, Fraction(1, 100)
    if given.percent == key.percent:
        return _near(x, y, given, key, rules)
    bare = rules.percents and abs(y if given.percent else x) >= 1 and _near(x, y, given, key, rules)
    scaled = (x * share, y) if given.percent else (x * 100, y)
    return bare or abs(scaled[0] - scaled[1]) <= _room(given, key, rules, y, exact_given=True)


def _near(x: Fraction, y: Fraction, given: Number, key: Number, rules: Rules) -> bool:
    return abs(x - y) <= _room(given, key, rules, y)


def _room(
    given: Number, key: Number, rules: Rules, y: Fraction, exact_given: bool = False
) -> Fraction:
    """Returns how far a number may be from the right one."""
    both_decimal = given.last is not None and key.last is not None
    noise = abs(y) * _NOISE if both_decimal or rules.tolerance is not None else Fraction(0)
    if rules.tolerance is not None:
        return abs(y) * rules.tolerance + noise
    if key.last is not None and rules.decimals:
        return Fraction(10) ** key.last / 2 + noise
    if both_decimal or y.denominator == 1 or given.value.denominator == 1:
        return noise
    one = next(
        (one for one in (given, key) if one.last is not None and one.digits >= _ENOUGH), None
    )
    return Fraction(10) ** one.last / 2 if one and not exact_given else noise


def _same_tree(given: Value, key: Value, rules: Rules, enough: int = _ENOUGH) -> bool:
    """Returns whether SymPy says that two formulas are equal, a decimal beside an exact one nearly so."""
    if isinstance(given, Formula) and given == key:
        return True
    if any(isinstance(x, Latex) and not x.asks for x in (given, key)) or (
        isinstance(given, Latex) and isinstance(key, Latex) and given.spelled == key.spelled
    ):
        return isinstance(given, Latex) and isinstance(key, Latex) and given.spelled == key.spelled
    left, right = _sent(given), _sent(key)
    values_ = [
        values.exact(x.tree) if isinstance(x, Number | Formula) else None for x in (given, key)
    ]
    decimal = [x for x in (given, key) if isinstance(x, Number) and x.last is not None]
    room = None
    if len(decimal) == 1 and decimal[0].digits >= enough and decimal[0].value.denominator != 1:
        room = Fraction(10) ** decimal[0].last / 2
    if None not in values_:
        return abs(values_[0] - values_[1]) <= (room or 0)
    return _ask(rules, right, left, room=room)


def _sent(value: Value) -> Tree | str:
    return value.text if isinstance(value, Latex) else value.tree


def _tree_of(value: Fraction) -> Tree:
    tree = ("n", str(abs(value)))
    return ("-", tree) if value < 0 else tree


def _ask(rules: Rules, key, given, question: str = "equal", room: Fraction | None = None) -> bool:
    """Returns what SymPy says of two trees, or two relations (sign, left, right)."""
    request = key, given, question, room and (str(room.numerator), str(room.denominator))
    reason = _REPLIES.get(request)
    if reason is None:
        if rules.clock.left <= 0:
            raise Failed("timeout")
        reason = pool.SHARED.check(*request, clock=rules.clock)
        if reason in ("timeout", "crash"):
            raise Failed(reason)  # and so it is not remembered
        if len(_REPLIES) >= _MOST_REPLIES:
            _REPLIES.clear()
        _REPLIES[request] = reason
    return reason == "ok"


def forget() -> None:
    """Forgets what SymPy has said."""
    _REPLIES.clear()


# ------------------------------------------------------------------------------ equations and inequalities
def named(value: Value, rules: Rules) -> tuple[str, Value] | None:
    """Returns the name that a relation gives a value, and the value; "" of a true chain of constants.

    That is x = 5, 5 = x, AB = 5, f(x) = x + 1, and x = 14/2 = 7 where the rest is equal; None of all others.
    """
    if not isinstance(value, Relation) or not {"=", "\\approx"}.issuperset(value.signs):
        return None
    sides = list(value.sides)
    if _name_of(sides[0]) is None and len(sides) == 2 and _name_of(sides[1]) is not None:
        sides.reverse()
    name = _name_of(sides[0]) or ""
    rest = sides[1:] if name else sides
    if name and any(name in values.names(side.tree) for side in rest if isinstance(side, Formula)):
        return None
    exactly = dataclasses.replace(
        rules, tolerance=None, decimals=False, formulas=True, percents=False
    )
    signs = value.signs[len(value.signs) - len(rest) + 1 :]
    for sign, left, right in zip(signs, rest, rest[1:], strict=False):
        if not _chained(sign, left, right, exactly):
            return None
    return name, (rest[0] if rules.formulas or isinstance(rest[0], Number) else rest[-1])


def _chained(sign: str, left: Value, right: Value, rules: Rules) -> bool:
    """Returns whether a side equals the next one, which may be its value to any number of decimals."""
    if not all(isinstance(side, Number | Formula) for side in (left, right)):
        return False
    if same(left, right, rules):
        return True
    if not isinstance(right, Number):
        return False
    last = right.last if right.last is not None else 0 if sign == "\\approx" else None
    if last is None:
        return False
    if isinstance(left, Number):
        return abs(left.value - right.value) <= Fraction(10) ** last / 2
    return _ask(rules, left.tree, right.tree, room=Fraction(10) ** last / 2)


def _name_of(side: Value) -> str | None:
    if isinstance(side, Name):
        return side.text
    return side.tree[1] if isinstance(side, Formula) and side.tree[0] == "v" else None


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
    if one.signs == ("\\in",) and _name_of(one.sides[0]) and isinstance(other, Collection):
        return _same_collection(
            *((one.sides[1], other) if one is given else (other, one.sides[1])), rules
        )
    found = named(one, rules)
    if found is None:
        return False
    return same(found[1], other, rules) if one is given else same(other, found[1], rules)


def _same_equation(given: Relation, key: Relation, rules: Rules) -> bool:
    """Returns whether all sides correspond, or an equation of two sides is the other by a factor."""
    if len(given.sides) != len(key.sides):
        return False
    signs, sides = given.signs, given.sides
    if key.signs != signs and tuple(_FLIPPED.get(sign, sign) for sign in signs[::-1]) == key.signs:
        signs, sides = key.signs, sides[::-1]
    if key.signs != signs:
        return False
    if len(sides) == 2 and all(isinstance(side, Number | Formula) for side in (*sides, *key.sides)):
        parts = [(signs[0], *(side.tree for side in pair)) for pair in (key.sides, sides)]
        return _ask(rules, *parts, "relation")
    pairs = list(zip(sides, key.sides, strict=True))
    turned = list(zip(sides[::-1], key.sides, strict=True)) if set(signs) == {"="} else pairs
    return any(all(same(x, y, rules) for x, y in each) for each in (pairs, turned))


def _interval(value: Value) -> tuple[str, Collection] | None:
    r"""Returns (name or "", intervals) of 0 <= x < 1, x \in [0, 1), x != 3, and of what is one already."""
    if isinstance(value, Collection):
        if value.brackets == "u" or _is_interval(value):
            return "", value
        found = [_interval(item) for item in value.items]
        if value.brackets != "or" or None in found or len({name for name, _ in found}) != 1:
            return None
        return found[0][0], Collection("u", tuple(one for _, one in found))
    if not isinstance(value, Relation):
        return None
    signs, sides = value.signs, value.sides
    if len(sides) == 2 and _name_of(sides[0]) is None:
        sides, signs = sides[::-1], tuple(_FLIPPED.get(sign, "") for sign in signs)
    name = _name_of(sides[len(sides) > 2])
    if name is None or any(
        values.names(x.tree) for x in sides if isinstance(x, Formula) and _name_of(x) is None
    ):
        return None
    return _bounded(name, signs, sides)


def _bounded(
    name: str, signs: tuple[str, ...], sides: tuple[Value, ...]
) -> tuple[str, Collection] | None:
    minus = Formula(("-", values.INFINITY.tree))
    match signs:
        case ("\\in",) if isinstance(sides[1], Collection):
            return name, sides[1]
        case ("<",) | ("<=",):
            return name, Collection("(" + ("]" if "=" in signs[0] else ")"), (minus, sides[1]))
        case (">",) | (">=",):
            return name, Collection(
                ("[" if "=" in signs[0] else "(") + ")", (sides[1], values.INFINITY)
            )
        case ("!=",):
            below, above = (
                Collection("()", (minus, sides[1])),
                Collection("()", (sides[1], values.INFINITY)),
            )
            return name, Collection("u", (below, above))
        case ((">" | ">="), (">" | ">=")):
            return _bounded(name, tuple(_FLIPPED[sign] for sign in signs[::-1]), sides[::-1])
        case (("<" | "<="), ("<" | "<=")):
            brackets = ("[" if "=" in signs[0] else "(") + ("]" if "=" in signs[1] else ")")
            return name, Collection(brackets, (sides[0], sides[2]))
    return None


def _is_interval(value: Collection) -> bool:
    return len(value.items) == 2 and value.brackets[:1] in "[(" and value.brackets[1:] in ("]", ")")


# ------------------------------------------------------------------------------ collections
def _same_collection(given: Value, key: Value, rules: Rules) -> bool:
    found = _interval(given), _interval(key)
    if None not in found and (found[0][0] or found[1][0]):  # x < -1 or x > 3
        return _same_relation(given, key, rules)
    given, key = _flat(given), _flat(key)
    if not isinstance(key, Collection) or not isinstance(given, Collection):
        return _same_single(given, key, rules)
    given, key = _unnamed(given, key, rules), _unnamed(key, given, rules)
    if given is None or key is None:
        return False
    if len(given.items) != len(key.items) or not (
        rules.lists or _fits(given.brackets, key.brackets)
    ):
        return False
    if _counts_order(key.brackets, rules):
        return all(same(x, y, rules) for x, y in zip(given.items, key.items, strict=True))
    return _matched(given.items, key.items, rules)


def _flat(value: Value) -> Value:
    r"""Returns a collection with the values of 3, \pm 5 one after the other."""
    if not isinstance(value, Collection) or value.brackets not in ("", "or", "{}"):
        return value
    nested = [
        x.items if isinstance(x, Collection) and x.brackets == "or" else (x,) for x in value.items
    ]
    items = tuple(x for part in nested for x in part)
    return Collection(value.brackets, items)


def _same_single(given: Value, key: Value, rules: Rules) -> bool:
    """Compares a value with a collection of one."""
    one, other = (given, key) if isinstance(given, Collection) else (key, given)
    if len(one.items) != 1 or not (rules.lists or one.brackets == "{}"):
        return False
    return same(one.items[0], other, rules) if one is given else same(other, one.items[0], rules)


def _unnamed(value: Collection, other: Collection, rules: Rules) -> Collection | None:
    """Returns the values of x = 3, x = -5, or of x = 1, y = 2 as a pair, beside values without names.

    None if the names cannot be left out: {3, -5} is not x = 3, y = -5.
    """
    if any(isinstance(item, Relation) for item in other.items):
        return value
    found = [named(item, rules) for item in value.items]
    if value.brackets == ":" or not found or None in found:
        return value
    names = [name for name, _ in found]
    if len({name.partition("_")[0] for name in names}) == 1:
        return Collection(value.brackets, tuple(x for _, x in found))
    if (
        set(names) not in _STANDARD
        or len(set(names)) != len(names)
        or other.brackets in ("or", "{}")
    ):
        return None
    return Collection("()", tuple(x for _, x in sorted(found, key=lambda one: one[0])))


def _fits(given: str, key: str) -> bool:
    """Returns whether these brackets may stand for those of the key."""
    loose = ("", "or", "{}")
    return given == key or (given in loose and key in loose)


def _counts_order(brackets: str, rules: Rules) -> bool:
    if rules.ordered is not None:
        return rules.ordered
    return brackets not in (("or", "{}", "u") if rules.lists else ("", "or", "{}", "u"))


def _matched(given: tuple[Value, ...], key: tuple[Value, ...], rules: Rules) -> bool:
    """Returns whether each right value has a given one of its own (by augmenting paths)."""
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
