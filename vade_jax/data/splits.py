"""Training and validation without a picture that is in both."""

import collections
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def rng(seed: int, name: str) -> np.random.Generator:
    """Returns draws that a seed and a name fix."""
    return np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())]))


def split(
    rows: Sequence[Mapping[str, Any]], *, share: float, seed: int
) -> tuple[list, list]:
    """Returns training and validation rows, each sorted by uid; a picture is in one of them alone.

    Rows that share pictures stay together: they go to validation in a seeded order until it has
    its share, rounded, or as near below as whole groups come.
    """
    groups = _by_picture(rows)
    wanted, chosen = round(share * len(rows)), []
    for number in rng(seed, "split").permutation(len(groups)):
        if len(chosen) + len(groups[number]) <= wanted:
            chosen += groups[number]
    held = {row["uid"] for row in chosen}
    rest = [row for row in rows if row["uid"] not in held]
    by_uid = lambda found: sorted(found, key=lambda row: row["uid"])
    return by_uid(rest), by_uid(chosen)


def _by_picture(rows) -> list[list[Mapping[str, Any]]]:
    """Returns rows in groups that no picture connects, in the order of their first uid."""
    root: dict[str, str] = {}

    def find(name):
        while root.setdefault(name, name) != name:
            root[name] = name = root[root[name]]
        return name

    for row in rows:
        for picture in row["pictures"][1:]:
            root[find(picture)] = find(row["pictures"][0])
    groups = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: row["uid"]):
        groups[find(row["pictures"][0])].append(row)
    return list(groups.values())
