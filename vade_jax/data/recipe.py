"""Draws a data set from published ones: so many of each, in a seeded order, checked one by one.

The order is of the rows of a subset; they are looked at until enough are kept, so a large subset costs
no more than a small one. Nothing depends on the number of threads.
"""

import collections
import dataclasses
import hashlib
import io
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from vade_jax import types
from vade_jax.data import (
    arrow,
    images,
    normalise,
    overlap,
    questions,
    schemas,
    shards,
    sources,
    splits,
)
from vade_jax.data.loading import Pool
from vade_jax.data.normalise import Refused, Sample

_CHUNK = 256  # rows in memory
Check = Callable[[types.Item], types.Prompt]


@dataclasses.dataclass(frozen=True)
class Subset:
    """What is taken of one data set.

    Attributes:
      name: of the subset; uids start with it.
      take: how many questions; 0: all that are usable.
      domain: that it stands for in tables.
      solutions: its answers are whole solutions, the gold stands in the last sentence.
    """

    name: str
    take: int = 0
    domain: str = ""
    solutions: bool = False


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
      num_rows: that it has.
      num_seen: rows that were looked at before there were enough.
      other_turns: questions of rows looked at that gave enough without them.
      kept: one row of `arrow.SCHEMA` each, with "places" of its images for "images", and "dhash".
      rejects: all others that were looked at.
    """

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

    def __init__(
        self, check: Check, spool: arrow.Spool, *, seed: int, per_row: int, pool: Pool
    ):
        self._check, self._spool, self._pool = check, spool, pool
        self._seed, self._per_row = seed, per_row
        self._taken: dict[tuple, str] = {}

    def draw(self, subset: Subset, rows: shards.Shards) -> Drawn:
        """Returns what is taken of `rows`."""
        schema = schemas.detect(rows.columns, rows.name)
        names = _names(rows, schema)
        work = lambda found: self._questions(subset, schema, names, *found)
        kept, rejects, seen, others = [], [], 0, 0
        for made in self._pool.stream(work, _in_order(rows, self._order(subset, rows))):
            if subset.take and len(kept) >= subset.take:
                break
            seen, others = seen + 1, others + made.others
            rejects += made.rejects
            for one in made.kept:
                if subset.take and len(kept) >= subset.take:
                    others += 1
                elif reject := self._duplicate(one):
                    rejects.append(reject)
                else:
                    kept.append(self._put(one))
        return Drawn(subset, len(rows), seen, others, kept, rejects)

    def _order(self, subset, rows) -> np.ndarray:
        return splits.rng(self._seed, subset.name).permutation(len(rows))

    def _questions(self, subset, schema, names, index, directory, row):
        """Returns the questions that are taken of a row if no other row has them."""
        uid = f"{subset.name}:{names[index]}"
        try:
            samples = schema.read(row)
        except Refused as refused:
            return _Made([], [Reject(uid, subset.name, refused.reason, str(refused))])
        kept, rejects, looked = [], [], 0
        for number in splits.rng(self._seed, uid).permutation(len(samples)):
            if len(kept) == self._per_row:
                break
            sample, looked = samples[number], looked + 1
            turn = "" if sample.turn is None else f":{sample.turn}"
            try:
                kept.append(self._row(f"{uid}{turn}", subset, sample, directory))
            except sources.RejectedItem as error:
                found = Reject(error.uid, subset.name, error.reason, error.detail)
                rejects.append(found)
        return _Made(kept, rejects, len(samples) - looked)

    def _row(self, uid, subset, sample: Sample, directory) -> dict[str, Any]:
        """Returns a checked row of the data set, its images as bytes."""
        if subset.solutions and sample.answer_is == "turn":
            sample = dataclasses.replace(sample, answer_is="solution")
        if not sample.images:
            raise sources.RejectedItem(uid, "no_image", "the row has no image")
        try:
            made = normalise.normalise(sample)
        except Refused as refused:
            raise sources.RejectedItem(uid, refused.reason, str(refused)) from refused
        files = [_file(uid, image, directory) for image in sample.images]
        prompt = self._check(_item(uid, made, files))
        digests = [hashlib.sha256(file).hexdigest() for file in files]
        texts = schemas.digest_text(sample)
        return {
            **{"uid": uid, "subset": subset.name, "domain": subset.domain},
            **made,
            **sample.more,
            "images": files,
            "pictures": digests,
            "sha256": hashlib.sha256("".join([texts, *digests]).encode()).hexdigest(),
            "num_tokens": prompt.length,
            "num_patches": sum(4 * rows * cols for rows, cols in _grids(prompt)),
            "dhash": [overlap.dhash(image) for image in prompt.images],
        }

    def _duplicate(self, row: Mapping[str, Any]) -> Reject | None:
        """Returns why a row is not taken: another one asks the same about the same pictures."""
        words = questions.key(row["question"])
        key = (tuple(row["pictures"]), words, tuple(sorted(row["choices"] or ())))
        first = self._taken.setdefault(key, row["uid"])
        if first == row["uid"]:
            return None
        return Reject(row["uid"], row["subset"], "duplicate", f"the same as {first}")

    def _put(self, row: dict[str, Any]) -> dict[str, Any]:
        row["places"] = [self._spool.put(file) for file in row.pop("images")]
        return row


@dataclasses.dataclass(frozen=True)
class _Made:
    """What a row gave."""

    kept: list[dict[str, Any]]
    rejects: list[Reject]
    others: int = 0


def _in_order(rows: shards.Shards, order: np.ndarray) -> Iterator[tuple]:
    """Yields rows in `order`, read a chunk at a time."""
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK].tolist()
        found = {taken[0]: taken for taken in rows.take(chunk)}
        yield from (found.pop(index) for index in chunk)


def _names(rows: shards.Shards, schema: schemas.Schema) -> list[str]:
    """Returns what each row is called: its id, with its number where others have that id too."""
    if schema.id_column not in rows.columns:
        return [str(number) for number in range(len(rows))]
    ids = rows.column(schema.id_column)
    count = collections.Counter(map(str, ids))
    alone = lambda name: name is not None and count[str(name)] == 1
    return [
        str(name) if alone(name) else f"{name or ''}@{number}"
        for number, name in enumerate(ids)
    ]


def _file(uid: str, image: Any, directory: pathlib.Path) -> bytes:
    try:
        return sources.image_bytes(image, directory)
    except (OSError, TypeError, ValueError) as error:
        detail = f"an image cannot be read: {error}"
        raise sources.RejectedItem(uid, "bad_image", detail) from error


def _item(uid: str, made: Mapping[str, Any], files: Sequence[bytes]) -> types.Item:
    try:
        opened = tuple(Image.open(io.BytesIO(file)) for file in files)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        detail = f"an image cannot be opened: {images.why_not(error)}"
        raise sources.RejectedItem(uid, "bad_image", detail) from error
    return types.Item(uid, made["question"], opened, made["answer"], made["kind"])


def _grids(prompt: types.Prompt) -> list[tuple[int, int]]:
    return [images.grid(image) for image in prompt.images]
