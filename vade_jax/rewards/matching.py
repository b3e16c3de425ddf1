"""Compares two values from `reading` with one function, whatever their forms.

`quantities` compares what is one number, formula or name. An equation equals another one up to a constant
factor. Values that cannot be compared are different.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from vade_jax.rewards import quantities, relations, values
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import LOOSE, Both, Collection, Formula, Kind, Relation, Value, Words

_LINEAR = {"=", "!=", "<", "<=", ">", ">="}  # no x \sim y
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
        RuntimeError: SymPy is not installed.
    """
    if right := quantities.ends(key):
        written = {x.unit for x in (given, key) if isinstance(x, Formula)} - {None}
        return quantities.ends(given) == right and len(written) < 2
    left, right = relations.region(given), relations.region(key)
    if left and right and (left.is_certain or right.is_certain) and not rules.lists:
        if len({left.name, right.name} - {""}) > 1 or len({left.unit, right.unit} - {None}) > 1:
            return False
        return left.tree == right.tree or quantities.ask(rules, right.tree, left.tree)
    if isinstance(given, Relation) and isinstance(key, Relation):
        mine, wanted = relations.named(given, rules), relations.named(key, rules)
        if mine and wanted and (mine.name == wanted.name or None in (mine.name, wanted.name)):
            return same(mine.value, wanted.value, rules)
        return _same_equation(given, key, rules)
    for one, other in ((given, key), (key, given)):
        if isinstance(one, Relation) and not _has_relation(_table(other)):
            found = relations.named(one, rules)
            pair = (found.value, other) if found and one is given else (other, found and found.value)
            return None not in pair and same(*pair, rules)
    if isinstance(given, Collection) or isinstance(key, Collection):
        return _same_collection(given, key, rules)
    return quantities.same(given, key, rules)


def _same_equation(given: Relation, key: Relation, rules: Rules) -> bool:
    """Returns whether all sides correspond, or an equation of two sides is the other by a factor."""
    if len(given.sides) != len(key.sides):
        return False
    signs, sides = given.signs, given.sides
    if key.signs != signs:
        signs, sides = relations.turned(signs), sides[::-1]
    if key.signs != signs:
        return False
    trees = [side.tree for side in (*key.sides, *sides) if isinstance(side, Formula)]
    if len(sides) == 2 and signs[0] in _LINEAR and len(trees) == 4:
        return quantities.ask(
            rules, (signs[0], *trees[:2]), (signs[0], *trees[2:]), question="relation"
        )
    pairs = list(zip(sides, key.sides, strict=True))
    swapped = list(zip(sides[::-1], key.sides, strict=True)) if set(signs) == {"="} else pairs
    return any(all(same(x, y, rules) for x, y in each) for each in (pairs, swapped))


# ------------------------------------------------------------------------------ several values
class _Table(NamedTuple):
    """Rows of values, the columns of which may have names: x = 1, y = 2 is one row, x = 1 or x = 2 are two."""

    kind: Kind
    rows: tuple[tuple[Value, ...], ...]
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()  # 1 and 2 of x_1 = 1, x_2 = 2, whose one column is x


def _same_collection(given: Value, key: Value, rules: Rules) -> bool:
    left, right = _table(given), _table(key)
    mine, wanted = _named(left, rules), _named(right, rules)
    if mine and wanted:
        is_other = mine.numbers and wanted.numbers and mine.numbers != wanted.numbers
        if is_other or sorted(mine.names) != sorted(wanted.names):
            return False
        is_point = Kind.OPEN in (mine.kind, wanted.kind)
        right = wanted._replace(kind=mine.kind) if is_point else wanted
        left = _ordered(mine, wanted.names)
    elif mine and not _has_relation(right):
        left, right = _beside(mine, right, rules, is_key=False)
    elif wanted and not _has_relation(left):
        right, left = _beside(wanted, left, rules, is_key=True)
    if left is None or right is None or not _may_match(left, right, rules):
        return False
    is_set = right.kind in (Kind.OR, Kind.SET) or (right.kind in LOOSE and not rules.lists)
    is_ordered = not is_set if rules.ordered is None else rules.ordered
    return _same_rows(left.rows, right.rows, rules, is_ordered)


def _table(value: Value) -> _Table:
    """Returns the values as a column; those of a plus or minus one after the other."""
    if not isinstance(value, Collection):
        return _Table(Kind.SET, ((value,),))
    nested = [x.items if isinstance(x, Both) else (x,) for x in value.items]
    items = itertools.chain.from_iterable(nested) if value.kind in LOOSE else value.items
    return _Table(value.kind, tuple((item,) for item in items))


def _has_relation(table: _Table) -> bool:
    return any(isinstance(row[0], Relation) for row in table.rows)


def _named(table: _Table, rules: Rules) -> _Table | None:
    """Returns a column of named values as columns with these names; None where some have none."""
    found = [relations.named(row[0], rules) for row in table.rows]
    found = [x for x in found if x is not None and x.name is not None]
    if not found or len(found) < len(table.rows) or table.kind not in LOOSE:
        return None
    if len(found) == 1 and isinstance(found[0].value, Collection) and found[0].value.kind in LOOSE:
        return _table(found[0].value)._replace(names=(found[0].name,))  # x = {1, 2}
    if len({x.columns for x in found}) == 1 and found[0].columns:  # (x, y) = (1, 2) or (x, y) = ...
        rows = tuple(x.value.items for x in found if isinstance(x.value, Collection))
        return _Table(Kind.OPEN if len(rows) == 1 else table.kind, rows, found[0].columns)
    names = [str(x.name) for x in found]
    bases, numbers = zip(*(name.partition("_")[::2] for name in names), strict=True)
    is_numbered = {*bases} in ({"x"}, {"t"}) and all(n.isdecimal() for n in numbers if n)
    column = tuple((x.value,) for x in found)
    if is_numbered and (len(names) < 3 or not all(numbers)):
        return _Table(table.kind, column, bases[:1], tuple(sorted(filter(None, numbers))))
    size = len(set(names))
    if size > 1 and (table.kind is Kind.OR or names != names[:size] * (len(names) // size)):
        return _Table(table.kind, (), tuple(names))  # is nothing else
    cells = [x.value for x in found]
    rows = (tuple(cells[i : i + size]) for i in range(0, len(cells), size))
    return _Table(table.kind, tuple(rows), tuple(names[:size]))


def _ordered(table: _Table, names: Sequence[str]) -> _Table:
    order = [table.names.index(name) for name in names]
    return table._replace(names=names, rows=tuple(tuple(row[i] for i in order) for row in table.rows))


def _beside(
    named: _Table, other: _Table, rules: Rules, is_key: bool
) -> tuple[_Table | None, _Table | None]:
    """Returns both with the same columns, to compare x = 1, y = 2 with (1, 2); None if the order is not clear."""
    size = len(named.names)
    if size < 2:
        return named, other
    cells = [row[0] for row in other.rows]
    points = [x.items for x in cells if isinstance(x, Collection) and x.kind is Kind.OPEN]
    is_bare = other.kind in (Kind.LIST, Kind.AND) or (rules.lists and other.kind is Kind.CLOSED)
    if other.kind is Kind.OPEN or (is_bare and len(points) < len(cells)):
        points = [tuple(cells)]
    elif len(points) < len(cells):
        return None, None
    else:
        is_bare = False
    if any(len(point) != size for point in points):
        return None, None
    is_point, names = named.kind is Kind.OPEN, sorted(named.names)
    if is_point and is_bare:
        return None, None
    if names != list(named.names) and not is_point and not (is_bare and is_key):
        if is_bare or set(names) not in _STANDARD:
            return None, None
        named = _ordered(named, names)
    return named._replace(kind=other.kind), other._replace(rows=tuple(points))


def _may_match(given: _Table, key: _Table, rules: Rules) -> bool:
    """Returns whether the brackets, and the words between values, may mean the same."""
    pair = {given.kind, key.kind}
    if Kind.OR in pair and len(pair) > 1:
        items = [row[0] for row in key.rows if row]
        spelled = (isinstance(x, Words) or values.name_of(x) is not None for x in items)
        if any(spelled) or any(map(relations.is_inequality, items)):
            return False  # A or C for A, C
    return rules.lists or len(pair) == 1 or pair <= LOOSE


Rows = tuple[tuple[Value, ...], ...]


def _same_rows(given: Rows, key: Rows, rules: Rules, is_ordered: bool) -> bool:
    """Returns whether each right row has a given one of its own (by augmenting paths)."""
    if len(given) != len(key):
        return False

    @functools.cache
    def is_same(i: int, j: int) -> bool:
        cells = zip(given[j], key[i], strict=True)
        return len(given[j]) == len(key[i]) and all(same(x, y, rules) for x, y in cells)

    if is_ordered:
        return all(is_same(i, i) for i in range(len(key)))
    taken: dict[int, int] = {}  # given: right

    def place(i: int, seen: set[int]) -> bool:
        for j in range(len(given)):
            if j not in seen and is_same(i, j):
                seen.add(j)
                if j not in taken or place(taken[j], seen):
                    taken[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(key)))
