"""Draws a number of questions from each published data set, in a seeded order, and checks each.

Rows are checked until enough are kept, so a large data set costs no more than a small one. The result does
not depend on the number of threads.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm
from scipy import sparse
from scipy.sparse import csgraph

from experiments.vade_9k import audit, published, texts
from experiments.vade_9k.settings import Subset
from vade_jax import types
from vade_jax.data import columns, images, pictures
from vade_jax.data.loading import Threads

_CHUNK = 256  # rows in memory
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
    """What became of a subset."""

    name: str  # uids start with it
    subset: Subset  # what was wanted
    num_rows: int  # that it has
    num_seen: int  # rows that were looked at before there were enough
    other_turns: int  # questions of rows looked at that gave enough without them
    # One row of `arrow_files.SCHEMA` each, but for its images, and "pictures" (the names of their
    # files, by content) and "dhash".
    kept: list[dict[str, Any]]
    rejects: list[Reject]  # all others that were looked at

    @property
    def counts(self) -> dict[str, int]:
        """Rejects by reason."""
        found = collections.Counter(reject.reason for reject in self.rejects)
        return dict(sorted(found.items()))


class Drawer:
    """Draws subsets one after the other; a question about the same image is taken once in all.

    Args:
        check: item -> prompt; raises `columns.RejectedItem`.
        pictures: an empty directory for the images of what is kept, which are too many for memory.
        seed: of the order.
        per_row: questions taken of one row at most.
        pool: threads that check.
        asked: question -> uid of the benchmark's item that asks it too, and None where it may be taken.
    """

    def __init__(
        self,
        check: Check,
        pictures: pathlib.Path,
        *,
        seed: int,
        per_row: int,
        pool: Threads,
        asked: Callable[[audit.Entry], str | None],
    ):
        self._asked = asked
        self._check, self._pictures, self._pool = check, pictures, pool
        self._seed, self._per_row = seed, per_row
        self._taken: dict[tuple, str] = {}  # question and pictures -> uid

    def draw(self, name: str, subset: Subset, rows: published.Shards) -> Drawn:
        """Returns what is taken of `rows`."""
        form = published.detect(rows.columns, rows.name)
        # All rows are read in the order of the files, each row group once.
        is_part = 0 < subset.take < len(rows)
        order = (
            generator(self._seed, name).permutation(len(rows)) if is_part else np.arange(len(rows))
        )
        labels = {"subset": name, "domain": subset.domain}
        work = functools.partial(
            self._read, labels, subset, form, _names(rows, form), rows.directory
        )
        kept, rejects, seen, others = [], [], 0, 0
        # Threads check rows ahead of the order; what is taken is decided here, one row at a time.
        read = self._pool.stream(work, _in_order(rows, order))
        bar = tqdm.tqdm(read, f"looking through {name}", len(rows), delay=5, leave=False)
        for found, refused, not_looked_at in bar:
            if subset.take and len(kept) >= subset.take:
                break
            seen, others = seen + 1, others + not_looked_at
            rejects += refused
            for row, files in found:
                if subset.take and len(kept) >= subset.take:
                    others += 1
                elif (first := self._first_of(row)) != row["uid"]:
                    detail = f"the same as {first}"
                    rejects.append(Reject(row["uid"], name, "duplicate", detail))
                else:
                    for picture, data in zip(row["pictures"], files, strict=True):
                        (self._pictures / picture).write_bytes(data)
                    kept.append(row)
        return Drawn(name, subset, len(rows), seen, others, kept, rejects)

    def _first_of(self, row: Mapping[str, Any]) -> str:
        """Returns the uid of the first row that asks the same about the same pictures."""
        words = texts.key(row["question"], signs=True)
        key = (tuple(row["pictures"]), words, tuple(sorted(row["choices"] or ())))
        return self._taken.setdefault(key, row["uid"])

    def _read(self, labels, subset, form, names, directory, numbered):
        """Returns what is taken of a row if no other row has it, and what is rejected.

        The first is a list of (row, files of its images); the third result is how many questions
        were not looked at.
        """
        index, row = numbered
        uid = f"{labels['subset']}:{names[index]}"
        kept, rejects, looked = [], [], 0

        def reject(uid, error):
            rejects.append(Reject(uid, labels["subset"], error.reason, error.detail))

        try:
            samples = form.read(row)
        except columns.RejectedItem as error:
            reject(uid, error)
            return kept, rejects, 0
        for number in generator(self._seed, uid).permutation(len(samples)):
            if len(kept) == self._per_row:
                break
            sample, looked = samples[number], looked + 1
            if subset.solutions and sample.answer_is == "turn":
                sample = dataclasses.replace(sample, answer_is="solution")
            full = uid if sample.turn is None else f"{uid}:{sample.turn}"
            try:
                made, files = self._checked(full, sample, directory)
                kept.append(({"uid": full, **labels, **made}, files))
            except columns.RejectedItem as error:
                reject(full, error)
        return kept, rejects, len(samples) - looked

    def _checked(
        self, uid: str, sample: texts.Sample, directory: pathlib.Path
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Returns a row of the data set and its images, once a prompt was built of it."""
        if not sample.images:
            raise texts.Refused("no_image", "the row has no image")
        made = texts.normalise(sample)
        try:
            files = [pictures.image_bytes(image, directory) for image in sample.images]
        except (OSError, TypeError, ValueError) as error:
            raise texts.Refused("bad_image", f"an image cannot be read: {error}") from error
        try:
            opened = tuple(map(images.opened, files))
        except (OSError, ValueError) as error:
            detail = f"an image cannot be opened: {images.why_not(error)}"
            raise texts.Refused("bad_image", detail) from error
        prompt = self._check(
            types.Item(uid, made["question"], opened, made["answer"], made["kind"])
        )
        digests = [hashlib.sha256(file).hexdigest() for file in files]
        said = [sample.question, sample.answer, list(sample.choices or ())]
        whole = "".join([json.dumps(said), *digests])
        hashes = tuple(audit.dhash(image) for image in prompt.images)
        entry = audit.Entry(uid, texts.key(made["question"]), hashes)
        if found := self._asked(entry):
            raise texts.Refused("in_benchmark", f"{found} asks it too")
        grids = [images.grid(image, prompt.patch) for image in prompt.images]
        return {
            **made,
            **sample.more,
            "pictures": digests,
            "sha256": hashlib.sha256(whole.encode()).hexdigest(),
            "num_tokens": prompt.length,
            "num_patches": sum(4 * rows * cols for rows, cols in grids),
            "dhash": hashes,
        }, files


def _in_order(rows: published.Shards, order: np.ndarray) -> Iterator[tuple[int, Mapping]]:
    """Yields rows in `order`; files are read in theirs, a chunk at a time."""
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK].tolist()
        found = dict(rows.take(chunk))
        yield from ((index, found.pop(index)) for index in chunk)


def _names(rows: published.Shards, form: published.Form) -> list[str]:
    """Returns what each row is called: its id, with its number where others have that id too."""
    column = next((name for name in form.id_columns.split() if name in rows.columns), None)
    if column is None:
        return [str(number) for number in range(len(rows))]
    # As an item's id has to be, with room for the names of the subset and the turn.
    ids = [str(name or "")[:_LONGEST_ID] for name in rows.column(column)]
    ids = [name if name.isprintable() else "" for name in ids]
    count = collections.Counter(ids)
    return [
        name if name and count[name] == 1 else f"{name}@{number}" for number, name in enumerate(ids)
    ]


# ------------------------------------------------------------------------------ the split
def split(rows: Sequence[Mapping[str, Any]], *, share: float, seed: int) -> tuple[list, list]:
    """Returns training and validation rows, each in a seeded order; a picture is in one of them alone.

    Rows that share pictures stay together: they go to validation in a seeded order until it has
    its share, rounded, or as near below as whole groups come. The order of the rows mixes subsets,
    so that the first thousand are a sample of all.
    """
    groups = _by_picture(rows)
    wanted, held = round(share * len(rows)), set()
    for number in generator(seed, "split").permutation(len(groups)):
        if len(held) + len(groups[number]) <= wanted:
            held |= {row["uid"] for row in groups[number]}
    by_uid = sorted(rows, key=lambda row: row["uid"])
    mixed = [by_uid[number] for number in generator(seed, "order").permutation(len(rows))]
    train = [row for row in mixed if row["uid"] not in held]
    return train, [row for row in mixed if row["uid"] in held]


def _by_picture(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Returns rows in groups that no picture connects, in the order of their first uid."""
    if not rows:
        return []
    rows = sorted(rows, key=lambda row: row["uid"])
    number = {}  # of each picture: a node of a graph, in which a row joins its pictures
    nodes = [[number.setdefault(name, len(number)) for name in row["pictures"]] for row in rows]
    start, end = np.array([(of_row[0], node) for of_row in nodes for node in of_row]).T
    graph = sparse.coo_array((np.ones(len(start)), (start, end)), (len(number),) * 2)
    _, group_of = csgraph.connected_components(graph, directed=False)
    groups = collections.defaultdict(list)
    for row, of_row in zip(rows, nodes, strict=True):
        groups[group_of[of_row[0]]].append(row)
    return list(groups.values())
