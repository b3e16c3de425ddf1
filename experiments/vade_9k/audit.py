"""Finds training questions that are also in a benchmark: similar pictures, or the same words.

A difference hash of 64 bits says whether each pixel of a 9 x 8 thumbnail is brighter than its right
neighbour. Plain drawings on white have few bits that differ, so a picture alone is a hint; picture and
words together are a finding.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm
from PIL import Image

from experiments.evals.benchmarks.base import Benchmark
from experiments.vade_9k import texts
from vade_jax import atomic, tables
from vade_jax.data import images, row_files

MOST_BITS = 4  # in which similar pictures may differ


def dhash(image: np.ndarray) -> int:
    """Returns the hash of a uint8 [height, width, 3] image, rows first, the first bit highest."""
    gray = Image.fromarray(image).convert("L")
    thumbnail = np.asarray(gray.resize((9, 8), Image.Resampling.BOX), np.int16)
    bits = (thumbnail[:, :-1] > thumbnail[:, 1:]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


class Entry(NamedTuple):
    """A question as far as it is compared."""

    uid: str
    key: str  # of `texts.key`
    hashes: tuple[int, ...]  # `dhash` of each picture


class Asked:
    """The questions of a benchmark, to compare others with."""

    def __init__(self, entries: Sequence[Entry]):
        self.entries = entries
        owner = [(j, h) for j, entry in enumerate(entries) for h in entry.hashes]
        self._hashes = np.array([h for _, h in owner], np.uint64)
        self._owner = np.array([j for j, _ in owner], np.int64)
        self._by_key: dict[str, list[int]] = {}
        for j, entry in enumerate(entries):
            if entry.key:
                self._by_key.setdefault(entry.key, []).append(j)

    def same(self, entry: Entry) -> list[int]:
        """Returns which items ask in the same words."""
        return self._by_key.get(entry.key, [])

    def bits(self, entry: Entry) -> np.ndarray:
        """Returns int [items]: bits between the nearest pictures, 65 where there is none."""
        bits_J = np.full(len(self.entries), 65)
        for h in entry.hashes:
            np.minimum.at(bits_J, self._owner, np.bitwise_count(self._hashes ^ np.uint64(h)))
        return bits_J

    def shared(self, entry: Entry, how: str) -> str | None:
        """Returns the uid of an item that asks the same, "both" in words and picture or in "either"."""
        same = set(self.same(entry))
        alike = set(np.flatnonzero(self.bits(entry) <= MOST_BITS).tolist())
        items = same & alike if how == "both" else same | alike
        return self.entries[min(items)].uid if items else None


def compare(train: Sequence[Entry], benchmark: Sequence[Entry]) -> dict[str, Any]:
    """Returns what `train` shares with `benchmark`.

    Returns:
        num_items: of the benchmark.
        same_question: training questions that an item of the benchmark asks in the same words.
        alike_picture: training questions with a picture like an item's.
        both: training questions of which one and the same item has both.
        matches: {"uid", "benchmark_uid", "bits", "same_question"} for each with any: the item that
            has both, else the nearest picture, else the question.
    """
    asked, matches = Asked(benchmark), []
    shared = {"same_question": 0, "alike_picture": 0, "both": 0}
    for entry in train:
        same, bits_J = asked.same(entry), asked.bits(entry)
        alike = bool(bits_J.size and bits_J.min() <= MOST_BITS)
        both = [j for j in same if bits_J[j] <= MOST_BITS]
        for name, is_shared in zip(shared, (same, alike, both), strict=True):
            shared[name] += bool(is_shared)
        if same or alike:
            best = both[0] if both else int(bits_J.argmin()) if alike else same[0]
            other, bits = benchmark[best], int(bits_J[best])
            match = {"uid": entry.uid, "benchmark_uid": other.uid, "bits": bits}
            matches.append(match | {"same_question": entry.key == other.key})
    return {"num_items": len(benchmark), **shared, "matches": matches}


def table(overlaps: Mapping[str, Mapping[str, Any]], num_train: int) -> str:
    """Returns a Markdown table of what each benchmark shares with `num_train` questions."""
    rows = [
        [name, *(f"{number:,}" for what, number in overlap.items() if what != "matches")]
        for name, overlap in overlaps.items()
    ]
    header = ["benchmark", "its items", "same question", "alike picture", "both"]
    title = f"Of {num_train:,} questions, pictures within {MOST_BITS} bits of 64:"
    return f"{title}\n\n{tables.markdown(header, rows)}"


def audit(target: pathlib.Path, paths: Mapping[str, str], known: Mapping[str, Benchmark]) -> str:
    """Writes audit.json (with every match) and audit.md into target/report, and returns the table.

    `paths` has the file of each of the benchmarks `known` by name; one without a file is not compared.
    """
    try:
        index = json.loads((target / "index.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"--target={target} is no built data set: {error}") from error
    train = _trained_on(target, index)
    limits = {name: index["settings"]["data"][name] for name in ("min_pixels", "max_pixels")}
    present = {name: path for name, path in paths.items() if path}
    overlaps = {
        name: compare(train, read(known[name], path, **limits)) for name, path in present.items()
    }
    text = table(overlaps, len(train))
    if absent := [name for name in paths if name not in present]:
        text += f"\n\nNot compared, for want of a file: {', '.join(absent)}."
    atomic.write_text(target / "report" / "audit.json", json.dumps(overlaps, indent=1) + "\n")
    atomic.write_text(target / "report" / "audit.md", f"{text}\n")
    return text


def load(path: str) -> dict[str, str]:
    """Returns training uid -> uid of the item that asks the same about an alike picture, of an audit.json."""
    try:
        overlaps = json.loads(pathlib.Path(path).read_text())
        return {
            match["uid"]: match["benchmark_uid"]
            for overlap in overlaps.values()
            for match in overlap["matches"]
            if match["same_question"] and match["bits"] <= MOST_BITS
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"exclude={path}: not the audit.json that --audit writes to report/: "
            f"{type(error).__name__}: {error}"
        ) from error


def read(benchmark: Benchmark, path: str, *, min_pixels: int, max_pixels: int) -> list[Entry]:
    """Returns the questions of a benchmark's file; raises ValueError if it is none of it."""
    entries, sizes = [], {"min_pixels": min_pixels, "max_pixels": max_pixels}
    for item in tqdm.tqdm(benchmark.read(path), f"reading {path}", delay=5, leave=False):
        try:
            pixels = [images.load(image, patch=images.PATCH, **sizes) for image in item.images]
        except ValueError as error:
            raise ValueError(f"{path}: {item.uid}: {error}") from error
        for image in item.images:
            image.close()  # a benchmark's pictures are held, their pixels need not be
        entries.append(Entry(item.uid, texts.key(item.question), tuple(map(dhash, pixels))))
    return entries


def _trained_on(target: pathlib.Path, index: Mapping[str, Sequence]) -> list[Entry]:
    """Returns the questions of both splits; no image is read, their hashes are in the index."""
    entries = []
    for name in ("train", "validation"):
        questions = row_files.open_arrow(target / f"{name}.arrow").column("question").to_pylist()
        for row, question in zip(index[name], questions, strict=True):
            hashes = tuple(int(h, 16) for h in row["dhash"])
            entries.append(Entry(row["uid"], texts.key(question), hashes))
    return entries
