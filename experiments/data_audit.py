"""Compares a built data set with the benchmarks that are present."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax import atomic
from vade_jax.data import arrow, images, overlap, questions
from vade_jax.evals.benchmarks import Benchmark
from vade_jax.types import Item


def check(paths: Mapping[str, str]) -> None:
    """Checks that there is something to compare with.

    Raises:
      ValueError: no benchmark has a file, or one of them does not exist.
    """
    if not any(paths.values()):
        raise ValueError(
            "--audit: no benchmark has a file: give one at least, such as "
            "--config.benchmarks.mathvista=testmini.parquet"
        )
    for name, path in paths.items():
        if path and not os.path.exists(path):
            raise ValueError(f"benchmarks.{name}={path} does not exist")


def audit(
    target: pathlib.Path, paths: Mapping[str, str], known: Mapping[str, Benchmark]
) -> str:
    """Writes audit.json (with every match) and audit.md into target/report, and returns the table.

    Raises:
      ValueError: `target` is no built data set, or a file is not of its benchmark.
    """
    index = _index(target)
    train = entries(target, index)
    limits = {n: index["settings"]["data"][n] for n in ("min_pixels", "max_pixels")}
    found = {}
    for name in filter(paths.get, paths):
        asked = [_entry(item, limits) for item in known[name].read(paths[name])]
        found[name] = overlap.compare(train, asked)
    table = overlap.table(found, len(train))
    if absent := [name for name, path in paths.items() if not path]:
        table += f"\n\nNot compared, for want of a file: {', '.join(absent)}."
    report = {name: dataclasses.asdict(one) for name, one in found.items()}
    directory = target / "report"
    atomic.write_text(directory / "audit.json", json.dumps(report, indent=1) + "\n")
    atomic.write_text(directory / "audit.md", table + "\n")
    return table


def _index(target: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads((target / "index.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"--target={target} is no built data set: {error}") from error


def entries(target: pathlib.Path, index: Mapping[str, Sequence]) -> list[overlap.Entry]:
    """Returns the questions of both splits; no image is read, their hashes are in the index."""
    found = []
    for name in ("train", "validation"):
        table = arrow.table(target / f"{name}.arrow")
        texts = table.column("question").to_pylist()
        for row, text in zip(index[name], texts, strict=True):
            hashes = tuple(int(h, 16) for h in row["dhash"])
            key = questions.key(text)
            found.append(overlap.Entry(row["uid"], key, hashes))
    return found


def _entry(item: Item, limits: Mapping[str, int]) -> overlap.Entry:
    pixels = [images.load(image, **limits) for image in item.images]
    for image in item.images:
        image.close()  # a benchmark's pictures are held, their pixels need not be
    hashes = tuple(map(overlap.dhash, pixels))
    return overlap.Entry(item.uid, questions.key(item.question), hashes)
