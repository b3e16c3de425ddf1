"""Compares two numbers, formulas, names or words; `matching` compares what is made of them.

Numbers, names and words are compared here. SymPy, in a worker of `pool`, compares formulas.
"""

import dataclasses
from fractions import Fraction

from vade_jax.rewards import answers, pool, units, values
from vade_jax.rewards.values import Formula, Number, Tree, Value, Words

_ENOUGH = 3  # significant digits of a decimal that stands for an exact value
_REPLIES: dict[tuple, str] = {}  # SymPy's verdicts; the answers of a group are often equal
_MOST_REPLIES = 16384


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
    """Returns whether two single values are equal; relations and collections are `matching.same`'s."""
    one, other = (x.text if isinstance(x, Words) else values.name_of(x) for x in (given, key))
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
    return ask(rules, right, left, room=room)


def _tree_of(value: Fraction) -> Tree:
    tree = ("n", str(abs(value)))
    return ("-", tree) if value < 0 else tree


def ask(rules: Rules, key, given, question: str = "equal", room: Fraction | None = None) -> bool:
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
