"""Finds training questions that are also in a benchmark: the same words about a similar picture.

A difference hash of 64 bits says whether each pixel of a 9 x 8 thumbnail is brighter than its right
neighbour. Plain drawings on white differ in few bits, so a similar picture alone is not enough: the words
must also match.
"""

import collections
from collections.abc import Callable, Sequence
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
    """The compared parts of a question."""

    uid: str
    key: str  # of `texts.key`
    hashes: tuple[int, ...]  # `dhash` of each picture


def asks(entries: Sequence[Entry]) -> Callable[[Entry], str | None]:
    """Returns a function from a question to the uid of the first entry with the same question, or None."""
    by_key = collections.defaultdict(list)
    for entry in entries:
        by_key[entry.key].append(entry)

    def asked(question: Entry) -> str | None:
        for entry in by_key.get(question.key, ()) if question.key else ():
            bits = [(a ^ b).bit_count() for a in question.hashes for b in entry.hashes]
            if min(bits, default=65) <= MOST_BITS:
                return entry.uid
        return None

    return asked


def read(benchmark: Benchmark, path: str, *, min_pixels: int, max_pixels: int) -> list[Entry]:
    """Returns the questions of a benchmark's file; raises ValueError if it is not such a file."""
    entries, sizes = [], {"min_pixels": min_pixels, "max_pixels": max_pixels}
    for item in tqdm.tqdm(benchmark.read(path), f"reading {path}", delay=5, leave=False):
        try:
            pixels = [images.load(image, patch=images.PATCH, **sizes) for image in item.images]
        except ValueError as error:
            raise ValueError(f"{path}: {item.uid}: {error}") from error
        for image in item.images:
            image.close()  # the picture stays open, its pixels are not needed
        entries.append(Entry(item.uid, texts.key(item.question), tuple(map(dhash, pixels))))
    return entries
