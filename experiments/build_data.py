r"""Builds a data set of published ones, and looks for what a benchmark asks too.

    python -m experiments.build_data --config=configs/vade_9k.py --source=DIR --target=DIR \
        --checkpoint=DIR
    python -m experiments.build_data --config=configs/vade_9k.py --target=DIR --audit \
        --config.benchmarks.mathvista=testmini.parquet

In TARGET: train.arrow and validation.arrow, index.json (uid, subset, domain, kind, hash, tokens and patches
of every question), and report/ with what was rejected and why. `--config.data.train=TARGET`
trains on it. The same files and seed give the same bytes. TARGET appears when all of it is
written; a build that was stopped leaves TARGET.tmp, which the next one replaces.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from experiments import cli, data_audit, data_report, datasets, errors
from vade_jax.data import arrow, loading, recipe, schemas, shards, splits, tokens
from vade_jax.evals import benchmarks

INDEX = ("uid", "subset", "domain", "kind", "sha256", "num_tokens", "num_patches")


@dataclasses.dataclass(frozen=True)
class Source:
    """A subset and its files."""

    subset: recipe.Subset
    rows: shards.Shards


def build(c: ConfigDict, target: str | os.PathLike) -> None:
    """Writes `target` whole.

    Raises:
      ValueError: a subset's files are missing, cannot be read, have no known form, or do not hold as
        many usable questions as are to be taken; a field is out of its range; or there is a `target`.
    """
    target = pathlib.Path(target)
    if target.exists():
        raise ValueError(f"--target={target} exists: remove it or name another")
    check(c)
    sources = open_sources(c)
    builder = datasets.prompt_builder(c, tokens.Tokenizer.load(c.checkpoint))
    building = _start(target)
    spool = arrow.Spool(building / "images.tmp")
    with loading.Pool(c.num_threads) as pool:
        drawer = recipe.Drawer(
            builder, spool, seed=c.seed, per_row=c.per_row, pool=pool
        )
        drawn = [_draw(drawer, source) for source in sources]
    parts = split(c, drawn)
    data_report.write(building / "report", drawn, parts)
    _check_enough(c, drawn, building)
    _check_parts(c, parts)
    for name, rows in parts.items():
        arrow.write(building / f"{name}.arrow", _with_images(rows, spool))
    spool.close()
    _write_index(building / "index.json", c, parts)
    os.rename(building, target)


def check(c: ConfigDict) -> None:
    """Raises ValueError if a field is out of its range."""
    if not 0 <= c.seed < 2**63:
        raise ValueError(f"seed={c.seed}: must be in 0 .. 2**63 - 1")
    if c.per_row < 1:
        raise ValueError(f"per_row={c.per_row}: must be at least 1")
    if not 0 < c.validation < 1:
        raise ValueError(f"validation={c.validation}: is a share between 0 and 1")


def _start(target: pathlib.Path) -> pathlib.Path:
    """Returns an empty directory to build in, without what a stopped build left."""
    building = target.with_name(f"{target.name}.tmp")
    try:
        if building.exists():
            shutil.rmtree(building)
        (building / "report").mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"--target={target} cannot be written: {error}") from error
    return building


def open_sources(c: ConfigDict) -> list[Source]:
    """Returns the files of each subset, all of them opened and of a known form.

    Raises:
      ValueError: names every subset that is missing, or the first that cannot be read.
    """
    wanted = {n: (s.path, _subset(n, s)) for n, s in c.subsets.items() if s.path}
    for path in c.own:
        name = pathlib.Path(path).stem
        if name in wanted:
            raise ValueError(f"own={path!r}: a subset is called {name!r} already")
        wanted[name] = (path, recipe.Subset(name, domain="own"))
    if not wanted:
        raise ValueError("nothing is to be taken: name a subsets.NAME.path or own")
    root = pathlib.Path(c.source)
    missing = [p for p, _ in wanted.values() if not (root / p).exists()]
    if missing:
        raise ValueError(
            f"--source={c.source} has no {', '.join(map(repr, missing))}: put the files there, "
            "or leave a subset out with --config.subsets.NAME.path=''"
        )
    found = [Source(s, shards.open_shards(root / p)) for p, s in wanted.values()]
    for source in found:
        _check_size(source, c.per_row)
    return found


def _subset(name, settings) -> recipe.Subset:
    if settings.take < 0:
        raise ValueError(f"subsets.{name}.take={settings.take}: must be at least 0")
    return recipe.Subset(name, settings.take, settings.domain, settings.solutions)


def _check_size(source, per_row):
    schema = schemas.detect(source.rows.columns, source.rows.name)
    take, size = source.subset.take, len(source.rows)
    print(f"{source.subset.name}: {size:,} rows in the form of {schema.name}")
    if take > size * per_row:
        raise ValueError(
            f"subsets.{source.subset.name}.take={take}: {source.rows.name} has only {size} rows, "
            f"and per_row={per_row}"
        )


def _draw(drawer, source):
    drawn = drawer.draw(source.subset, source.rows)
    print(f"{source.subset.name}: {len(drawn.kept):,} kept, rejected {drawn.counts}")
    return drawn


def _check_enough(c, drawn, building):
    short = [one for one in drawn if len(one.kept) < max(1, one.subset.take)]
    if c.allow_fewer:
        short = [one for one in short if not one.kept]
    if short:
        listed = "; ".join(
            f"{one.subset.name} has {len(one.kept)} of {one.subset.take or 'any'}, rejected "
            f"{one.counts}"
            for one in short
        )
        raise ValueError(
            f"too few usable questions: {listed}. See {building / 'report'}; take fewer "
            "(subsets.NAME.take), leave a subset out, or set allow_fewer=True"
        )


def split(c: ConfigDict, drawn: Sequence[recipe.Drawn]) -> dict[str, list[dict]]:
    """Returns the rows of train and of validation."""
    rows = [row for one in drawn for row in one.kept]
    parts = splits.split(rows, share=c.validation, seed=c.seed)
    return dict(zip(("train", "validation"), parts, strict=True))


def _check_parts(c, parts):
    for name, found in parts.items():
        if not found:
            raise ValueError(
                f"validation={c.validation} of {sum(map(len, parts.values()))} questions leaves "
                f"none for {name} (those about one picture stay together): take more questions"
            )


def _with_images(rows, spool):
    for row in rows:
        yield row | {"images": [spool.get(place) for place in row["places"]]}


def _write_index(path, c: ConfigDict, parts: Mapping[str, Sequence[Mapping]]) -> None:
    """Writes one line a question, in the order of the Arrow files."""
    settings = c.to_dict()
    for name in ("source", "checkpoint", "benchmarks", "num_threads"):
        del settings[name]  # where things lay changes nothing
    tokenizer = pathlib.Path(c.checkpoint) / "tokenizer.json"
    settings["tokenizer"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    lines = [f'{{"settings": {json.dumps(settings, sort_keys=True)}']
    for name, rows in parts.items():
        entries = ",\n".join(json.dumps(_entry(row)) for row in rows)
        lines.append(f'"{name}": [\n{entries}\n]')
    path.write_text(",\n".join(lines) + "}\n")


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    hashes = [f"{h:016x}" for h in row["dhash"]]
    return {name: row[name] for name in INDEX} | {"dhash": hashes}


# ------------------------------------------------------------------------------ the command
@contextlib.contextmanager
def _stops(target: pathlib.Path) -> Iterator[None]:
    """Ends with one line when Ctrl-C came."""
    try:
        yield
    except KeyboardInterrupt:
        there = "is whole" if target.exists() else "was not made"
        sys.exit(f"error: stopped, {target} {there}")


def main(c: ConfigDict, _: str) -> None:
    """Builds, and audits if it is asked to; an existing TARGET is audited alone."""
    target = pathlib.Path(TARGET.value)
    with errors.user_errors(), _stops(target):
        for name, flag in (("source", SOURCE), ("checkpoint", CHECKPOINT)):
            c[name] = flag.value or c[name]
        if AUDIT.value:
            data_audit.check(c.benchmarks)
        if not (AUDIT.value and target.exists()):
            for name in ("source", "checkpoint"):
                if not c[name]:
                    raise ValueError(f"--{name} is missing: give its directory")
            build(c, target)
            print(f"{(target / 'report' / 'report.md').read_text()}\nin {target}")
        if AUDIT.value:
            print(data_audit.audit(target, c.benchmarks, benchmarks.BENCHMARKS))


if __name__ == "__main__":
    SOURCE = flags.DEFINE_string("source", "", "Where the published files lie.")
    TARGET = flags.DEFINE_string("target", None, "A new directory.", required=True)
    CHECKPOINT = flags.DEFINE_string(
        "checkpoint", "", "A Hugging Face directory: its tokenizer and template."
    )
    AUDIT = flags.DEFINE_bool("audit", False, "Compare with the benchmarks present.")
    cli.run(main)
