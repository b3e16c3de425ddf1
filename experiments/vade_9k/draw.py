"""Draws a number of questions from each published data set, in a seeded order, and checks each.

Rows are checked until enough are kept. The result does not depend on the number of threads.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm
from scipy.cluster.hierarchy import DisjointSet

from experiments.vade_9k import audit, published, texts
from experiments.vade_9k.settings import Subset
from vade_jax import types
from vade_jax.data import columns, images, pictures
from vade_jax.data.loading import Map

_LONGEST_ID = 120  # characters of a row's own id that its item's id keeps
Check = Callable[[types.Item], types.Prompt]


def generator(seed: int, name: str) -> np.random.Generator:
    """Returns draws that depend on a seed and a name alone."""
    return np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())]))


class Reject(NamedTuple):
    """A row or question that was checked and rejected."""

    uid: str
    subset: str
    reason: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The result for a subset."""

    name: str  # uids start with it
    subset: Subset  # the requested subset
    num_rows: int  # rows of the subset
    num_seen: int  # rows checked until there were enough
    other_turns: int  # questions of checked rows that were not needed
    # One row of `arrow_files.SCHEMA` each, with a function instead of its images, and "pictures",
    # the hashes of their files.
    kept: list[dict[str, Any]]
    rejects: list[Reject]  # all others that were checked

    @property
    def counts(self) -> dict[str, int]:
        """Rejects by reason."""
        return dict(sorted(collections.Counter(x.reason for x in self.rejects).items()))


class Drawer:
    """Draws subsets one after the other; a question about the same image is taken once in all.

    `check` makes an item's prompt, at most `per_row` questions are taken of a row, `in_threads` maps over
    rows, and `asked` returns the uid of a benchmark's item that also asks a question, or None.
    """

    def __init__(
        self,
        check: Check,
        *,
        seed: int,
        per_row: int,
        in_threads: Map,
        asked: Callable[[audit.Entry], str | None],
    ):
        self._check, self._asked, self._map = check, asked, in_threads
        self._seed, self._per_row = seed, per_row
        self._taken: dict[tuple, str] = {}  # question and pictures -> uid

    def draw(self, name: str, subset: Subset, source: published.Source) -> Drawn:
        """Returns the questions taken from the rows of `source`."""
        num_rows = source.table.size
        is_part = 0 < subset.take < num_rows
        order = generator(self._seed, name).permutation(num_rows) if is_part else range(num_rows)
        work = functools.partial(self._read, name, subset, source, _names(source))
        kept, rejects, seen, others = [], [], 0, 0
        # Threads check rows in advance; which are taken is decided here, one row at a time.
        rows = self._map(work, map(int, order))
        bar = tqdm.tqdm(rows, f"looking through {name}", num_rows, delay=5, leave=False)
        for usable, refused, not_looked_at in bar:
            if subset.take and len(kept) >= subset.take:
                break
            seen, others = seen + 1, others + not_looked_at
            rejects += refused
            for row in usable:
                if subset.take and len(kept) >= subset.take:
                    others += 1
                elif (first := self._first_of(row)) != row["uid"]:
                    rejects.append(Reject(row["uid"], name, "duplicate", f"the same as {first}"))
                else:
                    kept.append(row)
        return Drawn(name, subset, num_rows, seen, others, kept, rejects)

    def _first_of(self, row: Mapping[str, Any]) -> str:
        """Returns the uid of the first row that asks the same about the same pictures."""
        words = texts.key(row["question"], signs=True)
        key = (tuple(row["pictures"]), words, tuple(sorted(row["choices"] or ())))
        return self._taken.setdefault(key, row["uid"])

    def _read(
        self, name: str, subset: Subset, source: published.Source, names: Sequence[str], index: int
    ) -> tuple[list[dict[str, Any]], list[Reject], int]:
        """Returns the questions taken from a row if no other row has them, and the rejects.

        The third result is the number of its unchecked questions.
        """
        uid = f"{name}:{names[index]}"
        kept, rejects = [], []
        try:
            samples = source.read(index)
        except columns.RejectedItem as error:
            return kept, [Reject(uid, name, error.reason, error.detail)], 0
        for number in generator(self._seed, uid).permutation(len(samples)):
            if len(kept) == self._per_row:
                break
            sample = samples[number]
            if subset.solutions and sample.answer_is == "turn":
                sample = dataclasses.replace(sample, answer_is="solution")
            full = uid if sample.turn is None else f"{uid}:{sample.turn}"
            row = {"uid": full, "subset": name, "domain": subset.domain}
            # All images would not fit into memory: they are read again for writing.
            files = {"images": functools.partial(_files, source, index, number)}
            try:
                kept.append(row | files | self._checked(full, sample, source.directory))
            except columns.RejectedItem as error:
                rejects.append(Reject(full, name, error.reason, error.detail))
        return kept, rejects, len(samples) - len(kept) - len(rejects)

    def _checked(self, uid: str, sample: texts.Sample, directory: pathlib.Path) -> dict[str, Any]:
        """Returns the columns of a row of the data set, once a prompt was built of it."""
        if not sample.images:
            raise texts.Refused("no_image", "the row has no image")
        item = texts.normalise(sample)
        step = "read"
        try:
            files = [pictures.image_bytes(image, directory) for image in sample.images]
            step = "opened"
            opened = tuple(map(images.opened, files))
        except (OSError, TypeError, ValueError) as error:
            detail = f"an image cannot be {step}: {error}"
            raise texts.Refused("bad_image", detail) from error
        prompt = self._check(
            types.Item(uid, item["question"], opened, item["answer"], item["kind"])
        )
        hashes = tuple(audit.dhash(image) for image in prompt.images)
        if other := self._asked(audit.Entry(uid, texts.key(item["question"]), hashes)):
            raise texts.Refused("in_benchmark", f"{other} asks it too")
        digests = [hashlib.sha256(file).hexdigest() for file in files]
        content = json.dumps([sample.question, sample.answer, list(sample.choices or ())])
        grids = [images.grid(image, prompt.patch) for image in prompt.images]
        return {
            **item,
            **sample.more,
            "pictures": digests,
            "sha256": hashlib.sha256("".join([content, *digests]).encode()).hexdigest(),
            "num_tokens": prompt.length,
            "num_patches": sum(4 * rows * cols for rows, cols in grids),
        }


def _files(source: published.Source, index: int, number: int) -> list[bytes]:
    images = source.read(index)[number].images
    return [pictures.image_bytes(image, source.directory) for image in images]


def _names(source: published.Source) -> list[str]:
    """Returns the name of each row: its id, with its number if the id is not unique."""
    known = source.table.columns or ()
    column = next((name for name in source.form.id_columns.split() if name in known), None)
    if column is None:
        return [str(number) for number in range(source.table.size)]
    ids = []
    for number in range(source.table.size):
        try:
            name = str(source.table.read(number).get(column) or "")[:_LONGEST_ID]
        except columns.BROKEN:  # rejected when it is its turn
            name = ""
        ids.append(name if name.isprintable() else "")
    count = collections.Counter(ids)
    return [
        name if name and count[name] == 1 else f"{name}@{number}" for number, name in enumerate(ids)
    ]


def split(rows: Sequence[Mapping[str, Any]], *, share: float, seed: int) -> tuple[list, list]:
    """Returns training and validation rows, each in a seeded order; no picture is in both.

    Rows that share pictures stay together: they go to validation in a seeded order until it has
    its share, rounded, or as near below as whole groups come. The order of the rows mixes subsets,
    so that the first thousand are a sample of all.
    """
    rows = sorted(rows, key=lambda row: row["uid"])
    connected = DisjointSet(name for row in rows for name in row["pictures"])
    groups = collections.defaultdict(list)
    for row in rows:
        for name in row["pictures"]:
            connected.merge(row["pictures"][0], name)
    for row in rows:
        groups[connected[row["pictures"][0]]].append(row["uid"])
    groups = list(groups.values())
    size, held = round(share * len(rows)), set()
    for number in generator(seed, "split").permutation(len(groups)):
        if len(held) + len(groups[number]) <= size:
            held.update(groups[number])
    mixed = [rows[number] for number in generator(seed, "order").permutation(len(rows))]
    train = [row for row in mixed if row["uid"] not in held]
    return train, [row for row in mixed if row["uid"] in held]
