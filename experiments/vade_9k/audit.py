"""Finds training questions that a benchmark asks too: in the same words, about an alike picture.

A difference hash of 64 bits says whether each pixel of a 9 x 8 thumbnail is brighter than its right
neighbour. Plain drawings on white have few bits that differ, so a picture alone is a hint; picture and
words together are a finding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tqdm
from PIL import Image

from experiments.evals.benchmarks.base import Benchmark
from experiments.vade_9k import texts
from vade_jax.data import images

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
        self._by_key: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.key:
                self._by_key.setdefault(entry.key, []).append(entry)

    def shared(self, entry: Entry) -> str | None:
        """Returns the uid of the first item that asks in the same words about an alike picture."""
        bits = lambda a, b: (a ^ b).bit_count()
        for item in self._by_key.get(entry.key, ()):
            if any(bits(a, b) <= MOST_BITS for a in entry.hashes for b in item.hashes):
                return item.uid
        return None


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
