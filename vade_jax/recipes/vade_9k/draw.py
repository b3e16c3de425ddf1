"""Draws so many questions of each published data set, in a seeded order, checked one by one.

Rows are looked at until enough are kept, so a large data set costs no more than a small one. Nothing
depends on the number of threads.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import json
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from vade_jax import types
from vade_jax.data import images, sources
from vade_jax.data.loading import Threads
from vade_jax.recipes.vade_9k import audit, published, texts
from vade_jax.recipes.vade_9k.settings import Subset

_CHUNK = 256  # rows in memory
Check = Callable[[types.Item], types.Prompt]


def generator(seed: int, name: str) -> np.random.Generator:
    """Returns draws that depend on a seed and a name alone."""
    return np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())]))


class Spool:
    """Bytes that wait in a file for their turn to be written elsewhere.

    Args:
        path: of the file; an old one is replaced.
    """

    def __init__(self, path: str | os.PathLike):
        self._path, self._file = pathlib.Path(path), open(path, "w+b")  # noqa: SIM115

    def put(self, data: bytes) -> tuple[int, int]:
        """Returns where `data` lies: what `get` takes."""
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        return start, len(data)

    def get(self, place: tuple[int, int]) -> bytes:
        self._file.seek(place[0])
        return self._file.read(place[1])

    def close(self) -> None:
        """Removes the file."""
        self._file.close()
        self._path.unlink()


@dataclasses.dataclass(frozen=True)
class Reject:
    """A row, or a question of it, that was looked at and not kept."""

    uid: str
    subset: str
    reason: str
    detail: str


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What became of a subset.

    Attributes:
        name: of the subset; uids start with it.
        subset: what was wanted of it.
        num_rows: that it has.
        num_seen: rows that were looked at before there were enough.
        other_turns: questions of rows looked at that gave enough without them.
        kept: one row of `row_files.SCHEMA` each, with "places" of its images for "images", and "dhash".
        rejects: all others that were looked at.
    """

    name: str
    subset: Subset
    num_rows: int
    num_seen: int
    other_turns: int
    kept: list[dict[str, Any]]
    rejects: list[Reject]

    @property
    def counts(self) -> dict[str, int]:
        """Rejects by reason."""
        found = collections.Counter(reject.reason for reject in self.rejects)
        return dict(sorted(found.items()))


class Drawer:
    """Draws subsets one after the other; a question about the same image is taken once in all.

    Args:
        check: item -> prompt; raises `sources.RejectedItem`.
        spool: takes the images.
        seed: of the order.
        per_row: questions taken of one row at most.
        pool: threads that check.
    """

    def __init__(self, check: Check, spool: Spool, *, seed: int, per_row: int, pool: Threads):
        self._check, self._spool, self._pool = check, spool, pool
        self._seed, self._per_row = seed, per_row
        self._taken: dict[tuple, str] = {}  # question and pictures -> uid

    def draw(self, name: str, subset: Subset, rows: published.Shards) -> Drawn:
        """Returns what is taken of `rows`."""
        form = published.detect(rows.columns, rows.name)
        order = generator(self._seed, name).permutation(len(rows))
        work = functools.partial(self._read, name, subset, form, _names(rows, form))
        kept, rejects, seen, others = [], [], 0, 0
        # Threads check rows ahead of the order; what is taken is decided here, one row at a time.
        for made in self._pool.stream(work, _in_order(rows, order)):
            if subset.take and len(kept) >= subset.take:
                break
            seen, others = seen + 1, others + made.others
            rejects += made.rejects
            for row in made.kept:
                if subset.take and len(kept) >= subset.take:
                    others += 1
                elif (first := self._first_of(row)) != row["uid"]:
                    detail = f"the same as {first}"
                    rejects.append(Reject(row["uid"], name, "duplicate", detail))
                else:
                    row["places"] = [self._spool.put(x) for x in row.pop("images")]
                    kept.append(row)
        return Drawn(name, subset, len(rows), seen, others, kept, rejects)

    def _first_of(self, row: Mapping[str, Any]) -> str:
        """Returns the uid of the first row that asks the same about the same pictures."""
        words = texts.key(row["question"])
        key = (tuple(row["pictures"]), words, tuple(sorted(row["choices"] or ())))
        return self._taken.setdefault(key, row["uid"])

    def _read(self, name, subset, form, names, found) -> "_Made":
        """Returns the questions that are taken of a row if no other row has them."""
        index, directory, row = found
        uid = f"{name}:{names[index]}"
        try:
            samples = form.read(row)
        except texts.Refused as refused:
            return _Made([], [Reject(uid, name, refused.reason, str(refused))])
        kept, rejects, looked = [], [], 0
        for number in generator(self._seed, uid).permutation(len(samples)):
            if len(kept) == self._per_row:
                break
            sample, looked = samples[number], looked + 1
            if subset.solutions and sample.answer_is == "turn":
                sample = dataclasses.replace(sample, answer_is="solution")
            full = uid if sample.turn is None else f"{uid}:{sample.turn}"
            labels = {"uid": full, "subset": name, "domain": subset.domain}
            try:
                kept.append(labels | self._checked(full, sample, directory))
            except sources.RejectedItem as error:
                kept_out = Reject(error.uid, name, error.reason, error.detail)
                rejects.append(kept_out)
        return _Made(kept, rejects, len(samples) - looked)

    def _checked(self, uid: str, sample: texts.Sample, directory: pathlib.Path) -> dict[str, Any]:
        """Returns a row of the data set, its images as bytes, once a prompt was built of it."""
        if not sample.images:
            raise sources.RejectedItem(uid, "no_image", "the row has no image")
        try:
            made = texts.normalise(sample)
        except texts.Refused as refused:
            raise sources.RejectedItem(uid, refused.reason, str(refused)) from refused
        try:
            files = [sources.image_bytes(image, directory) for image in sample.images]
        except (OSError, TypeError, ValueError) as error:
            detail = f"an image cannot be read: {error}"
            raise sources.RejectedItem(uid, "bad_image", detail) from error
        try:
            opened = tuple(Image.open(io.BytesIO(file)) for file in files)
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            detail = f"an image cannot be opened: {images.why_not(error)}"
            raise sources.RejectedItem(uid, "bad_image", detail) from error
        prompt = self._check(
            types.Item(uid, made["question"], opened, made["answer"], made["kind"])
        )
        digests = [hashlib.sha256(file).hexdigest() for file in files]
        said = [sample.question, sample.answer, list(sample.choices or ())]
        whole = "".join([json.dumps(said), *digests])
        grids = [images.grid(image) for image in prompt.images]
        return {
            **made,
            **sample.more,
            "images": files,
            "pictures": digests,
            "sha256": hashlib.sha256(whole.encode()).hexdigest(),
            "num_tokens": prompt.length,
            "num_patches": sum(4 * rows * cols for rows, cols in grids),
            "dhash": [audit.dhash(image) for image in prompt.images],
        }


@dataclasses.dataclass(frozen=True)
class _Made:
    """What a row gave; `others` are questions of it that were not looked at."""

    kept: list[dict[str, Any]]
    rejects: list[Reject]
    others: int = 0


def _in_order(rows: published.Shards, order: np.ndarray) -> Iterator[tuple]:
    """Yields rows in `order`; files are read in theirs, a chunk at a time."""
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK].tolist()
        found = {taken[0]: taken for taken in rows.take(chunk)}
        yield from (found.pop(index) for index in chunk)


def _names(rows: published.Shards, form: published.Form) -> list[str]:
    """Returns what each row is called: its id, with its number where others have that id too."""
    if form.id_column not in rows.columns:
        return [str(number) for number in range(len(rows))]
    ids = rows.column(form.id_column)
    count = collections.Counter(map(str, ids))
    return [
        str(name) if name is not None and count[str(name)] == 1 else f"{name or ''}@{number}"
        for number, name in enumerate(ids)
    ]


# ------------------------------------------------------------------------------ the split
def split(rows: Sequence[Mapping[str, Any]], *, share: float, seed: int) -> tuple[list, list]:
    """Returns training and validation rows, each sorted by uid; a picture is in one of them alone.

    Rows that share pictures stay together: they go to validation in a seeded order until it has
    its share, rounded, or as near below as whole groups come.
    """
    groups = _by_picture(rows)
    wanted, held = round(share * len(rows)), set()
    for number in generator(seed, "split").permutation(len(groups)):
        if len(held) + len(groups[number]) <= wanted:
            held |= {row["uid"] for row in groups[number]}
    by_uid = sorted(rows, key=lambda row: row["uid"])
    train = [row for row in by_uid if row["uid"] not in held]
    return train, [row for row in by_uid if row["uid"] in held]


def _by_picture(rows) -> list[list[Mapping[str, Any]]]:
    """Returns rows in groups that no picture connects, in the order of their first uid."""
    root: dict[str, str] = {}  # union-find: a picture -> one nearer to its group's root

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
