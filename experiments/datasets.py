"""From a config to the items that are trained and validated on, and their prompts."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments import checks
from vade_jax.data import loading, procedural, prompts, sources, tokens
from vade_jax.evals import validation as benchmark_validation
from vade_jax.trainer import processes
from vade_jax.types import Item


@dataclasses.dataclass(frozen=True)
class Subset(Sequence):
    """The rows of a source that passed the audit, read on demand."""

    source: sources.Source
    index: Sequence[int]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Item:
        return self.source[int(self.index[i])]

    def fields(self, i: int) -> dict[str, Any]:
        """Returns the metadata of an item; of a file's row, all its columns, no image opened."""
        index = int(self.index[i])
        if isinstance(self.source, sources.Rows):
            row = self.source.row(index)
            return {"uid": f"row {index}", **row}
        item = self.source[index]
        return {"uid": item.uid, **item.metadata}


@dataclasses.dataclass(frozen=True)
class Datasets:
    """What a run reads; `arrays` has what the sampler's init is given of the training items."""

    train: Subset
    validation: Subset
    build_prompt: prompts.PromptBuilder
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    benchmarks: Mapping[str, Sequence[Item]] = dataclasses.field(default_factory=dict)


def load(
    c: ConfigDict, checkpoint: str, workdir: str, over: loading.Map = loading.in_turn
) -> Datasets:
    """Returns the usable items of both splits, looked through once with the checkpoint's tokenizer.

    `over` maps over the items, such as in threads.

    Raises:
        ValueError: a file cannot be read, nothing in it is usable, a batch is larger than it, or
            an item lacks a field of `sampler.arrays`.
    """
    build_prompt = prompt_builder(c, tokens.Tokenizer.load(checkpoint))
    benchmarks = benchmark_validation.read(c.eval)
    train = _usable(c, "train", build_prompt, workdir, over)
    checks.data_size(c, len(train))
    arrays = per_item(train, c.sampler.arrays)
    validation = _usable(c, "validation", build_prompt, workdir, over)
    return Datasets(train, validation, build_prompt, arrays, benchmarks)


def per_item(items: Subset, fields: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Returns one array a name: of one field of numbers these, else the number of each value.

    Args:
        items: a file's rows may have columns of any name, the others have metadata.
        fields: name -> fields behind commas; values that differ in one of them are different.

    Raises:
        ValueError: an item lacks a field, or a value is no text or number.
    """
    if not fields:
        return {}
    names = {name: value.split(",") for name, value in fields.items()}
    rows = [items.fields(i) for i in range(len(items))]
    return {
        name: _numbered([_values(name, row, wanted) for row in rows])
        for name, wanted in names.items()
    }


def _values(name, row, wanted):
    label = f"sampler.arrays.{name}={','.join(wanted)!r}: {row['uid']}"
    if lacking := [x for x in wanted if row.get(x) is None]:
        found = ", ".join(sorted(row.keys() - {"uid"})) or "nothing"
        raise ValueError(
            f"{label} has no {lacking[0]!r} but {found}: name other fields"
        )
    for field in wanted:
        if not isinstance(row[field], str | int | float):
            raise ValueError(f"{label} has {field}={row[field]!r}, no text or number")
    return tuple(row[field] for field in wanted)


def _numbered(rows) -> np.ndarray:
    if len(rows[0]) == 1 and not any(isinstance(row[0], str) for row in rows):
        return np.array([row[0] for row in rows])
    order = lambda row: [(isinstance(x, str), x) for x in row]  # numbers first
    number = {row: i for i, row in enumerate(sorted(set(rows), key=order))}
    return np.array([number[row] for row in rows], np.int32)


def prompt_builder(c: ConfigDict, tokenizer: tokens.Tokenizer) -> prompts.PromptBuilder:
    """Returns item -> prompt."""
    return prompts.PromptBuilder(
        tokenizer,
        instruction=c.data.instruction,
        min_pixels=c.data.min_pixels,
        max_pixels=c.data.max_pixels,
        max_length=c.data.max_prompt_length,
    )


def _usable(c, split, build_prompt, workdir, over) -> Subset:
    path, size = c.data[split], c.data[f"num_{split}"]
    built_in = path == "procedural"
    if built_in:
        source = _built_in(c, split, size)
    else:
        every = bool(c.sampler.arrays)
        source = sources.rows(path, all_columns=every, split=split)
    kept, report = prompts.audit(source, build_prompt, over)
    processes.agree(f"data.{split}={path!r}, its usable rows", kept)
    if processes.is_leader():
        _list_rejects(pathlib.Path(workdir) / f"rejects_{split}.jsonl", split, report)
    _check_too_long(c, split, report)
    if size and not built_in:
        kept = kept[:size]
    if not len(kept):
        raise ValueError(
            f"data.{split}={path!r}: none of its {report.num_items} rows is usable "
            f"{report.counts}, the first for: {report.rejects[0]['detail']}"
        )
    return Subset(source, kept)


def _built_in(c, split, size):
    source = procedural.Procedural(c.seed, size, split)
    if split != "train" or not c.data.wrong_golds:
        return source
    source = procedural.Mislabelled(source, c.data.wrong_golds, c.seed)
    print(f"train: {source.count()} of {size} golds are wrong on purpose")
    return source


def _check_too_long(c, split, report):
    if c.data.drop_too_long or not report.counts.get("too_long"):
        return
    first = next(row for row in report.rejects if row["reason"] == "too_long")
    raise ValueError(
        f"data.{split}={c.data[split]!r}: {report.counts['too_long']} prompts are too long, the "
        f"first is {first['uid']} ({first['detail']}): raise data.max_prompt_length, or set "
        "data.drop_too_long=True to leave them out"
    )


def _list_rejects(listing, split, report):
    listing.unlink(missing_ok=True)
    if not report.rejects:
        return
    listing.write_text("".join(json.dumps(row) + "\n" for row in report.rejects))
    print(
        f"{split}: {len(report.rejects)} of {report.num_items} rows rejected "
        f"{report.counts}, listed in {listing}"
    )
