"""The items that a run trains and validates on, and how they become prompts."""

import collections
import dataclasses
import json
import pathlib
import re
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from vade_jax import settings
from vade_jax.data import columns, loading, procedural, prompts, sources, tokens
from vade_jax.trainer import processes
from vade_jax.types import Item


@dataclasses.dataclass(frozen=True, eq=False)
class Subset(Sequence):
    """The rows of a source that passed the audit, read on demand."""

    source: sources.Source
    index: np.ndarray
    notes: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, prompts.NOTE))

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.notes["checksum"].tobytes())

    def where(self, chosen: np.ndarray | slice) -> "Subset":
        """Returns the rows with these indices, in this order."""
        return Subset(self.source, self.index[chosen], self.notes[chosen])

    def teachable(self, max_tokens: int) -> "Subset":
        """Returns the rows with an answer of at most `max_tokens` tokens."""
        length_I = self.notes["length"]
        return self.where(np.flatnonzero((length_I > 0) & (length_I <= max_tokens)))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Item:
        return self.source[int(self.index[i])]

    def fields(self, i: int) -> dict[str, Any]:
        """Returns the metadata of an item: for a file's row all columns, without opening images."""
        index = int(self.index[i])
        if isinstance(self.source, sources.Rows):
            row = self.source.row(index)
            return {"uid": f"row {index}", **row}
        item = self.source[index]
        return {"uid": item.uid, **item.metadata}


@dataclasses.dataclass(frozen=True)
class Datasets:
    """The data of a run; `arrays` is what the selector's `init` gets about the training items."""

    train: Subset
    validation: Subset
    build_prompt: prompts.PromptBuilder
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def identity(self) -> dict[str, int]:
        """Returns the checksums that `directory.begin` compares."""
        both = self.train, self.validation
        details = [zlib.crc32(of.notes["details"].tobytes()) for of in both]
        return {
            "items": self.train.checksum,
            "questions": self.validation.checksum,
            "details": zlib.crc32(" ".join(map(str, details)).encode()),
            "pictures": zlib.crc32(b"".join(of.notes["asked"].tobytes() for of in both)),
        }


def load(
    data: settings.Data,
    checkpoint: str,
    workdir: str,
    stream: loading.Map = map,
    *,
    seed: int,
    reward: settings.Reward,
    arrays: Mapping[str, str] = MappingProxyType({}),
) -> Datasets:
    """Returns the usable items of both splits; each item is checked once, with the checkpoint's tokenizer.

    Args:
        data: where the rows are, and how they become prompts.
        checkpoint: a Hugging Face directory; only its tokenizer is read.
        workdir: the lists of rejected rows are written here.
        stream: maps a function over the items, for example in threads.
        seed: of the built-in data.
        reward: says whether rules judge, and whether reward functions need all columns.
        arrays: the values of each item for the selector, see `per_item`.

    Raises:
        ValueError: a file cannot be read, no row in it is usable, or an item lacks a field of `arrays`.
    """
    build_prompt = prompt_builder(data, tokens.Tokenizer.load(checkpoint))

    def usable(split: str) -> Subset:
        source = _source(data, split, seed, reward, arrays)
        kept, notes, rejects = prompts.audit(
            source, build_prompt, stream, has_rules=reward.has_rules, form=reward.format
        )
        processes.agree(f"data.{split}={getattr(data, split)!r}, its usable rows", kept.tolist())
        if processes.is_leader():
            listing = pathlib.Path(workdir) / f"rejects_{split}.jsonl"
            _list_rejects(listing, split, rejects, len(source))
        if not len(kept):
            raise ValueError(
                f"data.{split}={getattr(data, split)!r}: none of its {len(source)} rows is usable, the "
                f"first for: {rejects[0]['detail']}"
            )
        return Subset(source, kept, notes)

    train = usable("train")
    train, held_out = (train, usable("validation")) if data.validation else _parted(train, data)
    return Datasets(train, held_out, build_prompt, per_item(train, arrays))


def _source(
    data: settings.Data, split: str, seed: int, reward: settings.Reward, arrays: Mapping[str, str]
) -> sources.Source:
    """Returns the rows of a split; prints a note on unused columns."""
    path, size = getattr(data, split), getattr(data, f"num_{split}")
    if path == "procedural":
        share = data.wrong_golds if split == "train" else 0.0
        return procedural.Procedural(seed, size, split, data.mixture, share)
    source = sources.rows(
        path,
        split=split,
        has_rules=reward.has_rules,
        keeps_rows=bool(reward.functions),
        kind=data.kind,
        image_root=data.image_root,
    )
    if 0 < size < len(source):
        print(f"{split}: the first {size} of {len(source)} rows (data.num_{split})")
        source = dataclasses.replace(source, table=source.table._replace(size=size))
    if split == "train" and not reward.functions:
        of_arrays = re.split(r"[,|]", ",".join(arrays.values()))
        names = [x for x in source.table.columns if not columns.is_read(x) and x not in of_arrays]
        if names:
            print(f"train: unused columns: {', '.join(names):.200}")
    return source


def _parted(rows: Subset, data: settings.Data) -> tuple[Subset, Subset]:
    """Returns the training rows and the held-out rows, a share of `data.validation_share`.

    The hash of a row's question and pictures decides. So rows with the same question are in the same part,
    and a row is in the same part in every run.

    Raises:
        ValueError: there are too few different questions.
    """
    asked = rows.notes["asked"]
    different = np.unique(asked)
    num_held_out = max(1, round(data.validation_share * len(different)))
    if num_held_out >= len(different):
        raise ValueError(
            f"data.validation_share={data.validation_share}: data.train={data.train!r} has {len(different)} "
            "different questions, of which none would be left to train on: give data.validation"
        )
    # Hashes in order: a random share of the questions.
    is_held_out = asked < different[num_held_out]
    print(f"validation: {is_held_out.sum()} of {len(rows)} rows of data.train are held out")
    return rows.where(~is_held_out), rows.where(is_held_out)


def per_item(items: Subset, arrays: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Returns an array for each name: numbers unchanged, other values as a code for each distinct value.

    `arrays` maps a name to fields, separated by commas; items that differ in one of them get different
    codes. Of several such lists, separated by bars, the first one that fits the first item is used.

    Raises:
        ValueError: an item lacks a field, or a value is neither text nor a number.
    """
    if not arrays:
        return {}
    first = items.fields(0)
    names = {name: _first_present(value, first) for name, value in arrays.items()}
    rows = {name: [] for name in names}
    for i in range(len(items)):  # one row in memory at a time: it may hold images
        row = items.fields(i)
        for name, of_name in names.items():
            rows[name].append(_values(name, row, of_name))
    return {name: _numbered(values) for name, values in rows.items()}


def _first_present(value: str, row: Mapping[str, Any]) -> list[str]:
    lists = [names.split(",") for names in value.split("|")]
    complete = [names for names in lists if all(row.get(x) is not None for x in names)]
    return (complete or lists)[0]


def _values(name: str, row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Returns the values of some fields of a row; a "category" may be text, and a "pass_rate" missing."""
    kinds = {"category": str | int | float, "pass_rate": float | int | None}.get(name, int | float)
    for field in names:
        if not isinstance(value := row.get(field), kinds):
            present = ", ".join(sorted(row.keys() - {"uid"})) or "nothing"
            raise ValueError(
                f"selector.arrays.{name}={','.join(names)!r}: {row['uid']} has {field}={value!r:.80}, which is not "
                f"a {'text or a ' * (name == 'category')}number; it has {present:.200}"
            )
    return tuple(row.get(field) for field in names)


def _numbered(rows: Sequence[tuple[Any, ...]]) -> np.ndarray:
    if len(rows[0]) == 1 and not any(isinstance(row[0], str) for row in rows):
        return np.array([row[0] for row in rows])
    order = lambda row: [(isinstance(x, str), x) for x in row]  # numbers first
    number = {row: i for i, row in enumerate(sorted(set(rows), key=order))}
    return np.array([number[row] for row in rows], np.int32)


def prompt_builder(data: settings.Data, tokenizer: tokens.Tokenizer) -> prompts.PromptBuilder:
    """Returns the function that makes an item's prompt."""
    return prompts.PromptBuilder(
        tokenizer,
        instruction=data.instruction,
        template=data.template,
        min_pixels=data.min_pixels,
        max_pixels=data.max_pixels,
        max_length=data.max_prompt_length,
    )


def _list_rejects(listing: pathlib.Path, split: str, rejects, num_rows: int) -> None:
    listing.unlink(missing_ok=True)
    if not rejects:
        return
    listing.write_text("".join(json.dumps(row) + "\n" for row in rejects))
    counts = dict(collections.Counter(row["reason"] for row in rejects))
    print(f"{split}: {len(rejects)} of {num_rows} rows rejected {counts}, listed in {listing}")
