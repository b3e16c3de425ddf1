"""Compares two numbers, formulas, names or words; `matching` compares what is made of them.

Numbers, names and words are compared here. SymPy, in a worker of `pool`, compares formulas.
"""

import dataclasses
from fractions import Fraction

from vade_jax.rewards import answers, pool, units, values
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Tree, Value, Words

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
    lists: bool = False  # brackets do not matter, and a comma alone keeps the order
    ordered: bool | None = None  # whether the order of a list counts; None: its kind says so
    formulas: bool = True  # whether a formula may stand for a number; then a percent sign counts
    exact: bool = False  # of the steps of a chain: no percent sign may be left out
    clock: pool.Clock = dataclasses.field(default_factory=pool.Clock)  # of this answer


def same(given: Value, key: Value, rules: Rules) -> bool:
    """Returns whether two single values are equal; relations and collections are `matching.same`'s."""
    if isinstance(given, Words) or isinstance(key, Words):
        return _words_of(given) == _words_of(key)
    one, other = values.name_of(given), values.name_of(key)
    if one is not None and other is not None:
        return one == other
    if not isinstance(given, Formula) or not isinstance(key, Formula):
        return False
    if not rules.formulas and isinstance(key, Number) and not isinstance(given, Number):
        return False
    may_ask = rules.formulas or not isinstance(key, Number)
    for x, y in _in_one_unit(given, key):
        # Of two numbers, one may have been turned from degrees into radians.
        if isinstance(x, Number) and isinstance(y, Number):
            if _same_number(x, y, rules):
                return True
        elif may_ask and _same_tree(x, y, rules):
            return True
    return False


def _words_of(value: Value) -> tuple[str, ...]:
    """Returns the words of prose or of a name, to compare SAS with Sas."""
    if isinstance(value, Words):
        return value.spelled
    return answers.signed_words(values.name_of(value) or "\\")


def ends(value: Value) -> tuple[Fraction, ...] | None:
    """Returns the ends of the range 10 to 20, also written 10-20 or 10-20%, like a difference, else None."""
    if isinstance(value, Collection) and value.kind is Kind.RANGE:
        both = [x.value for x in value.items if isinstance(x, Number)]
        return tuple(both) if len(both) == 2 else None
    tree = value.tree if isinstance(value, Formula) else ()
    if tree[:1] == ("/",) and tree[2] == ("n", "100"):
        tree = tree[1]
    match tree:
        case ("+", ("n", low), ("-", ("n", high))) if Fraction(low) < Fraction(high):
            return Fraction(low), Fraction(high)
    return None


def _in_one_unit(given: Formula, key: Formula):
    """Yields both in comparable units; nothing if they measure different things."""
    mine, right = (x.unit if x.unit and x.unit.bases else None for x in (given, key))
    if getattr(given, "percent", False) and right or getattr(key, "percent", False) and mine:
        return  # 45% is not 45 degrees
    degree = units.UNITS["degree"]
    if mine == right or None in (mine, right):
        yield given, key
        if {mine, right} == {None, degree}:  # 60 degrees are pi/3
            to_radians = ("/", ("c", "pi"), ("n", "180"))
            yield tuple(
                Formula(("*", x.tree, to_radians)) if unit else x
                for x, unit in ((given, mine), (key, right))
            )
    elif mine.bases == right.bases:
        factor = mine.factor / right.factor
        tree = ("*", given.tree, _tree_of(factor))
        if isinstance(given, Number):
            # What was rounded in another unit stands for no exact value: no digits.
            yield dataclasses.replace(given, value=given.value * factor, tree=tree, digits=0), key
        else:
            yield Formula(tree), key


def _same_number(given: Number, key: Number, rules: Rules) -> bool:
    """Returns whether two numbers are the same, exactly or as near as the rules say.

    50% is 0.5. The sign may be left out of a key that is no share of one: 50 is right for 50%. It may be set
    behind a whole or decimal key where numbers are asked for: 50% is right for 50.
    """
    if given.percent == key.percent:
        return abs(given.value - key.value) <= _room(given, key, rules)
    is_written = not rules.formulas and (key.last is not None or key.value.denominator == 1)
    may_differ = not rules.exact and abs(key.value if given.percent else given.value) >= 1
    if may_differ and (key.percent or is_written):
        if abs(given.value - key.value) <= _room(given, key, rules):
            return True
    places = -2 if given.percent else 2
    last = None if given.last is None else given.last + places
    moved = dataclasses.replace(given, value=given.value * Fraction(10) ** places, last=last)
    return abs(moved.value - key.value) <= _room(moved, key, rules)


def _room(given: Number, key: Number, rules: Rules) -> Fraction:
    """Returns the largest allowed distance from the right number."""
    if rules.tolerance is not None:
        return abs(key.value) * rules.tolerance
    if key.last is not None and rules.decimals:
        return Fraction(10) ** key.last / 2
    if 1 in (given.value.denominator, key.value.denominator):
        return Fraction(0)
    return _rounding(given, key) or Fraction(0)


def _rounding(given: Formula, key: Formula) -> Fraction | None:
    """Returns half a unit of the last digit of a decimal that is compared with an exact value, else None."""
    decimals = [x for x in (given, key) if isinstance(x, Number) and x.last is not None]
    if len(decimals) != 1 or decimals[0].digits < _ENOUGH or decimals[0].value.denominator == 1:
        return None
    return Fraction(10) ** (decimals[0].last or 0) / 2


def _same_tree(given: Formula, key: Formula, rules: Rules) -> bool:
    """Returns whether SymPy finds two formulas equal; a decimal only has to be near an exact value."""
    if given == key:
        return True
    room = _rounding(given, key)
    x, y = values.exact(given.tree), values.exact(key.tree)
    if x is not None and y is not None:
        return abs(x - y) <= (room or 0)
    return ask(rules, key.tree, given.tree, room=room)


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
