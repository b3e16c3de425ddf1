"""Which training questions a benchmark asks too: alike pictures, or the same words.

A difference hash of 64 bits says whether each pixel of a 9 x 8 thumbnail is brighter than its right
neighbour. Plain drawings on white have few bits that differ, so a picture alone is a hint and picture
and words together are a finding.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

MOST_BITS = 4  # that alike pictures differ in


def dhash(image: np.ndarray) -> int:
    """Returns the hash of a uint8 [height, width, 3] image, rows first, the first bit highest."""
    gray = Image.fromarray(image).convert("L")
    thumbnail = np.asarray(gray.resize((9, 8), Image.Resampling.BOX), np.int16)
    bits = (thumbnail[:, :-1] > thumbnail[:, 1:]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A question as far as it is compared.

    Attributes:
      uid: of the item.
      key: of `normalise.question_key`.
      hashes: `dhash` of each picture.
    """

    uid: str
    key: str
    hashes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Overlap:
    """What a data set shares with one benchmark.

    Attributes:
      num_items: of the benchmark.
      same_question, alike_picture, both: training questions with such a benchmark item; `both` is
        of one and the same item.
      matches: {"uid", "benchmark_uid", "bits", "same_question"} for each with any: the item that
        has both, else the nearest picture, else the question.
    """

    num_items: int
    same_question: int
    alike_picture: int
    both: int
    matches: list[dict[str, Any]]


def compare(train: Sequence[Entry], benchmark: Sequence[Entry]) -> Overlap:
    """Returns what `train` shares with `benchmark`."""
    nearest = _distances(train, benchmark)
    counts, matches = {"question": 0, "picture": 0, "both": 0}, []
    asked: dict[str, list[int]] = {}
    for j, entry in enumerate(benchmark):
        if entry.key:
            asked.setdefault(entry.key, []).append(j)
    for entry, bits_J in zip(train, nearest, strict=True):
        same = asked.get(entry.key, [])
        alike = bits_J.size and bits_J.min() <= MOST_BITS
        both = [j for j in same if bits_J[j] <= MOST_BITS]
        counts["question"] += bool(same)
        counts["picture"] += bool(alike)
        counts["both"] += bool(both)
        if same or alike:
            best = both[0] if both else int(bits_J.argmin()) if alike else same[0]
            matches.append(_match(entry, benchmark[best], int(bits_J[best])))
    return Overlap(len(benchmark), *counts.values(), matches)


def _match(entry: Entry, other: Entry, bits: int) -> dict[str, Any]:
    found = {"uid": entry.uid, "benchmark_uid": other.uid}
    return found | {"bits": bits, "same_question": entry.key == other.key}


def _distances(train, benchmark):
    """Yields, for each training entry, int [benchmark]: bits between the nearest pictures, else 65."""
    owner = [(j, h) for j, entry in enumerate(benchmark) for h in entry.hashes]
    hashes = np.array([h for _, h in owner], np.uint64)
    index = np.array([j for j, _ in owner], np.int64)
    for entry in train:
        bits_J = np.full(len(benchmark), 65)
        for h in entry.hashes:
            np.minimum.at(bits_J, index, np.bitwise_count(hashes ^ np.uint64(h)))
        yield bits_J


def table(overlaps: Mapping[str, Overlap], num_train: int) -> str:
    """Returns a Markdown table of what each benchmark shares with `num_train` questions."""
    lines = [
        "| benchmark | its items | same question | alike picture | both |",
        "|---|---|---|---|---|",
    ]
    for name, found in overlaps.items():
        cells = (found.num_items, found.same_question, found.alike_picture, found.both)
        lines.append(f"| {name} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    head = f"Of {num_train:,} questions, pictures within {MOST_BITS} bits of 64:"
    return "\n".join([head, "", *lines])
