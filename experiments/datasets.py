"""From a config to the items that are trained and validated on, and their prompts."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from experiments import checks
from vade_jax.data import procedural, prompts, sources, tokens
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


@dataclasses.dataclass(frozen=True)
class Datasets:
    """What a run reads."""

    train: Subset
    validation: Subset
    build_prompt: prompts.PromptBuilder


def load(c: ConfigDict, checkpoint: str, workdir: str) -> Datasets:
    """Returns the usable items of both splits, looked through once with the checkpoint's tokenizer.

    Raises:
        ValueError: a file cannot be read, nothing in it is usable, or a batch is larger than it.
    """
    build_prompt = prompt_builder(c, tokens.Tokenizer.load(checkpoint))
    train = _usable(c, "train", build_prompt, workdir)
    checks.data_size(c, len(train))
    validation = _usable(c, "validation", build_prompt, workdir)
    return Datasets(train, validation, build_prompt)


def prompt_builder(c: ConfigDict, tokenizer: tokens.Tokenizer) -> prompts.PromptBuilder:
    """Returns item -> prompt."""
    return prompts.PromptBuilder(
        tokenizer,
        instruction=c.data.instruction,
        min_pixels=c.data.min_pixels,
        max_pixels=c.data.max_pixels,
        max_length=c.data.max_prompt_length,
    )


def _usable(c, split, build_prompt, workdir) -> Subset:
    path, size = c.data[split], c.data[f"num_{split}"]
    if path == "procedural":
        source = procedural.Procedural(c.seed, size, split)
    else:
        source = sources.rows(path)
    kept, report = prompts.audit(source, build_prompt)
    processes.agree(f"data.{split}={path!r}, its usable rows", kept)
    if processes.is_leader():
        _list_rejects(pathlib.Path(workdir) / f"rejects_{split}.jsonl", split, report)
    _check_too_long(c, split, report)
    if path != "procedural" and size:
        kept = kept[:size]
    if not len(kept):
        raise ValueError(
            f"data.{split}={path!r}: none of its {report.num_items} rows is usable"
        )
    return Subset(source, kept)


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
