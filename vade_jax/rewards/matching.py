"""Compares two values from `reading` with one function, whatever their forms.

`quantities` compares what is one number, formula or name. An equation equals another one up to a constant
factor. Values that cannot be compared are different.
"""

import functools
import itertools
from typing import NamedTuple

from vade_jax.rewards import quantities, relations, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Both, Collection, Formula, Number, Relation, Value

_LOOSE = {"", "or", "{}"}  # brackets that mean the same
# In the order of the alphabet also without names, however they were written.
_STANDARD = ({"x", "y"}, {"x", "y", "z"}, {"a", "b"}, {"a", "b", "c"})


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
    return quantities.same(given, key, rules)


def _same_relation(given: Value, key: Value, rules: Rules) -> bool:
    left, right = relations.interval(given), relations.interval(key)
    if left is not None and right is not None:
        return len({left[0], right[0]} - {""}) < 2 and _same_collection(left[1], right[1], rules)
    if isinstance(given, Relation) and isinstance(key, Relation):
        mine, wanted = relations.named(given, rules), relations.named(key, rules)
        if mine and wanted and (mine[0] == wanted[0] or not (mine[0] and wanted[0])):
            return same(mine[1], wanted[1], rules)
        return _same_equation(given, key, rules)
    one, other = (given, key) if isinstance(given, Relation) else (key, given)
    assert isinstance(one, Relation)  # one of the two is
    found = relations.named(one, rules)
    if isinstance(other, Collection) and any(isinstance(x, Relation) for x in other.items):
        spread = relations.spread(one, other) if found else ()
        return bool(spread) and _matched(spread, other.items, rules)
    if one.signs == ("\\in",) and values.name_of(one.sides[0]):  # x \in \{1, 2\}
        found = "", one.sides[1]
    if found is None or isinstance(found[1], Relation):
        return False
    return same(found[1], key, rules) if one is given else same(given, found[1], rules)


def _same_equation(given: Relation, key: Relation, rules: Rules) -> bool:
    """Returns whether all sides correspond, or an equation of two sides is the other by a factor."""
    if len(given.sides) != len(key.sides):
        return False
    signs, sides = given.signs, given.sides
    if key.signs != signs:
        signs, sides = relations.turned(signs), sides[::-1]
    if key.signs != signs:
        return False
    is_linear = len(sides) == 2 and signs[0] in ("=", "!=", "<", "<=", ">", ">=")  # no x \sim y
    if is_linear and all(isinstance(side, Number | Formula) for side in (*sides, *key.sides)):
        right, left = (
            (signs[0], *(side.tree for side in pair if isinstance(side, Number | Formula)))
            for pair in (key.sides, sides)
        )
        return quantities.ask(rules, right, left, "relation")
    pairs = list(zip(sides, key.sides, strict=True))
    swapped = list(zip(sides[::-1], key.sides, strict=True)) if set(signs) == {"="} else pairs
    return any(all(same(x, y, rules) for x, y in each) for each in (pairs, swapped))


def _same_collection(given: Value, key: Value, rules: Rules) -> bool:
    one, other = relations.interval(given), relations.interval(key)
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
    found = [relations.named(item, rules) for item in _flat(value).items]
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
    found = [x for item in value.items if (x := relations.named(item, rules)) is not None]
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
