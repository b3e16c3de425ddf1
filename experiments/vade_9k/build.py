"""Builds the data set: a directory with both splits, an index, and a report of what was rejected."""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.evals import benchmarks
from experiments.vade_9k import arrow_files, audit, draw, published
from experiments.vade_9k.settings import TABLE_3, Build, Subset
from vade_jax import tables
from vade_jax.data import loading, prompts, tokens

Splits = Mapping[str, Sequence[Mapping[str, Any]]]  # rows of "train" and "validation"
INDEX = ("uid", "subset", "domain", "kind", "sha256", "num_tokens", "num_patches")
_HEAD = ("subset", "rows", "looked at", "rejected", "kept", "train", "validation")


def build(settings: Build, target: str | os.PathLike) -> None:
    """Writes `target` atomically, or raises ValueError."""
    target = pathlib.Path(target)
    if target.exists():
        raise ValueError(f"--target={target} exists: remove it or name another")
    sources = open_sources(settings)
    limits = dataclasses.asdict(settings.data)
    limits["max_length"] = limits.pop("max_prompt_length")
    check = prompts.PromptBuilder(tokens.Tokenizer.load(settings.checkpoint), **limits)
    unfinished = _empty(target)
    asked = _asked(settings)  # after quicker checks, as it reads every picture of the benchmarks
    order = {"seed": settings.seed, "per_row": settings.per_row}
    drawn = []
    with loading.threads(settings.num_threads) as in_threads:
        drawer = draw.Drawer(check, in_threads=in_threads, asked=asked, **order)
        for name, (subset, source) in sources.items():
            drawn.append(one := drawer.draw(name, subset, source))
            print(f"{name}: {len(one.kept):,} kept, rejected {one.counts}")
    rows = [row for one in drawn for row in one.kept]
    train, held = draw.split(rows, share=settings.validation, seed=settings.seed)
    splits = {"train": train, "validation": held}
    # Before errors about missing questions, because the report explains them.
    _write_report(unfinished / "report", drawn, splits)
    _check_enough(settings, drawn, splits, unfinished / "report")
    for name, rows in splits.items():
        with_images = (row | {"images": row["images"]()} for row in rows)
        arrow_files.write(unfinished / f"{name}.arrow", with_images)
    _write_index(unfinished / "index.json", settings, splits)
    os.rename(unfinished, target)
    if warning := unlike_the_paper(drawn):
        print(warning)


def _empty(target: pathlib.Path) -> pathlib.Path:
    """Makes the directory that becomes `target` when complete; raises ValueError if it cannot."""
    unfinished = target.with_name(f"{target.name}.tmp")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a build that was stopped
        (unfinished / "report").mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"--target={target} cannot be written: {error}") from error
    return unfinished


def open_sources(settings: Build) -> dict[str, tuple[Subset, published.Source]]:
    """Returns each subset and its files by name, all of them opened and of a known form."""
    # In the order of their names: the first subset keeps questions shared by two.
    subsets = {n: s for n, s in sorted(settings.subsets.items()) if s.path}
    for path in settings.own:
        name = pathlib.Path(path).stem
        if name in subsets:
            raise ValueError(f"own={path!r}: a subset is called {name!r} already")
        subsets[name] = Subset(path, domain="own")
    if not subsets:
        raise ValueError("nothing is to be taken: name a subsets.NAME.path or own")
    root = pathlib.Path(settings.source)
    missing = [s.path for s in subsets.values() if not (root / s.path).exists()]
    if missing:
        raise ValueError(
            f"--source={settings.source} has no {', '.join(map(repr, missing))}: put the files "
            "there, or leave a subset out with --config.subsets.NAME.path=''"
        )
    sources = {n: (s, published.open_source(root / s.path)) for n, s in subsets.items()}
    for name, (subset, source) in sources.items():
        num_rows = source.table.size
        print(f"{name}: {num_rows:,} rows in the form of {source.form.name}")
        if subset.take > num_rows * settings.per_row:
            raise ValueError(
                f"subsets.{name}.take={subset.take}: {root / subset.path} has only {num_rows} rows, "
                f"and per_row={settings.per_row}"
            )
    return sources


def _asked(settings: Build) -> Callable[[audit.Entry], str | None]:
    """Returns a function from a question to the uid of a benchmark's item with the same question, or None."""
    if not settings.exclude:
        return lambda entry: None
    paths = settings.benchmarks
    if absent := [name for name, path in paths.items() if not path]:
        print(f"what {', '.join(absent)} ask is not left out: --config.benchmarks.NAME=FILE")
    limits = {name: getattr(settings.data, name) for name in ("min_pixels", "max_pixels")}
    entries = []
    for name, path in paths.items():
        entries += audit.read(benchmarks.BENCHMARKS[name], path, **limits) if path else []
    return audit.asks(entries)


def unlike_the_paper(drawn: Sequence[draw.Drawn]) -> str:
    """Returns a warning if a subset does not give the questions that Table 3 counts, "" if all do."""
    kept = {one.name: len(one.kept) for one in drawn}
    unlike = [
        f"{name} {number:,} of {TABLE_3[name]:,}"
        for name, number in kept.items()
        if number != TABLE_3.get(name, number)
    ]
    unlike += [f"no {name}" for name in TABLE_3 if name not in kept]
    start = "WARNING: these are not the counts of the paper's Table 3: "
    return start + ", ".join(unlike) if unlike else ""


def _check_enough(
    settings: Build, drawn: Sequence[draw.Drawn], splits: Splits, report: pathlib.Path
) -> None:
    """Raises `ValueError` where a subset has too few questions, or a split none."""
    few = [
        f"{x.name} has {len(x.kept)} of {x.subset.take or 'any'}, rejected {x.counts}"
        for x in drawn
        if len(x.kept) < max(1, x.subset.take)
    ]
    if few:
        raise ValueError(
            f"too few usable questions: {'; '.join(few)}. See {report}; take fewer "
            "(subsets.NAME.take), or leave a subset out"
        )
    for name, rows in splits.items():
        if not rows:
            raise ValueError(
                f"validation={settings.validation} of {sum(map(len, splits.values()))} questions "
                f"leaves none for {name} (those about one picture stay together): take more"
            )


# ------------------------------------------------------------------------------ files
def _write_index(path: pathlib.Path, settings: Build, splits: Splits) -> None:
    """Writes one line a question, in the order of the Arrow files."""
    kept = dataclasses.asdict(settings)
    for name in ("source", "checkpoint", "num_threads"):
        del kept[name]  # paths do not affect the result
    # Their questions are left out.
    kept["benchmarks"] = sorted(name for name, path in settings.benchmarks.items() if path)
    tokenizer = pathlib.Path(settings.checkpoint) / "tokenizer.json"
    kept["tokenizer"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    lines = [f'{{"settings": {json.dumps(kept, sort_keys=True)}']
    for split, rows in splits.items():
        entries = ({name: row[name] for name in INDEX} for row in rows)
        listed = ",\n".join(map(json.dumps, entries))
        lines.append(f'"{split}": [\n{listed}\n]')
    path.write_text(",\n".join(lines) + "}\n")


def _write_report(directory: pathlib.Path, drawn: Sequence[draw.Drawn], splits: Splits) -> None:
    """Writes report.md, report.json and rejects.jsonl.

    Every question of a checked row is kept, rejected, or counted in other_turns.
    """
    counts = {}
    for one in drawn:
        uids = {row["uid"] for row in one.kept}
        counts[one.name] = {
            "rows": one.num_rows,
            "looked_at": one.num_seen,
            "wanted": one.subset.take,
            "kept": len(one.kept),
            "rejected": one.counts,
            "other_turns": one.other_turns,
            **{s: sum(r["uid"] in uids for r in rows) for s, rows in splits.items()},
        }
    (directory / "report.json").write_text(json.dumps(counts, indent=2) + "\n")
    parts = filter(None, (_table(counts), unlike_the_paper(drawn)))
    (directory / "report.md").write_text("\n\n".join(parts) + "\n")
    with (directory / "rejects.jsonl").open("w") as file:
        for reject in (reject for one in drawn for reject in one.rejects):
            file.write(json.dumps(reject._asdict(), ensure_ascii=False) + "\n")


def _table(counts: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a Markdown table with a row a subset, a sum, and a list of reasons."""
    table = {}
    for name, one in counts.items():
        seen = (one["rows"], one["looked_at"], sum(one["rejected"].values()))
        table[name] = (*seen, one["kept"], one["train"], one["validation"])
    table["all"] = [sum(column) for column in zip(*table.values(), strict=True)]
    rows = [[name, *(f"{n:,}" for n in numbers)] for name, numbers in table.items()]
    lines = [tables.markdown(_HEAD, rows), "", "Rejected, each listed in rejects.jsonl:", ""]
    for name, one in counts.items():
        reasons = ", ".join(f"{why} {n:,}" for why, n in one["rejected"].items())
        lines.append(f"- {name}: {reasons or 'none'}")
    return "\n".join(lines)
