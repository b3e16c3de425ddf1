"""Sources of items: the protocol, and the source for a user's own rows.

An item is made only when it is read, because selectors access the data in any order, and all images
together would not fit into memory. A row that cannot become an item raises a `RejectedItem` with a reason.
This does not happen during training, because an audit (`prompts.audit`) reads every row before.
"""

import dataclasses
import operator
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax import imports, types
from vade_jax.data import columns, hub, row_files

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "eval", "evaluation"), "validation"),
    **dict.fromkeys(("test", "testing", "testmini"), "test"),
}
_SPLIT = re.compile(rf"(?<![a-z])({'|'.join(_SPLITS)})(?![a-z])", re.IGNORECASE)
# Files that describe data and hold no rows.
_NO_ROWS = ("dataset_info.json", "dataset_infos.json", "config.json")


# Items by row number; `source[i]` raises `RejectedItem` for a row that cannot become an item.
Source = Sequence[types.Item]


# ------------------------------------------------------------------------------ a user's rows
@dataclasses.dataclass(frozen=True, eq=False)
class Rows(Sequence[types.Item]):
    """A `Source` of the items in a table of rows; made by `rows`.

    Required columns: question (or problem, or a chat), and answer. Optional columns: images (or another
    name, see `pictures`), kind, id, and those of the metadata (see `columns`). Rows of MATH, GSM8K and verl
    are read as they are.
    """

    table: row_files.Table
    directory: pathlib.Path  # paths of images are relative to it and must not leave it
    name: str  # of the data; prefix of the uid of a row without an id
    has_rules: bool = True  # the built-in rules judge; else rows need neither an answer nor a kind
    keeps_rows: bool = False  # items get all columns, for reward functions
    kind: str = ""  # the kind of rows without one, if their answer fits several kinds
    image_root: str = ""  # another directory that paths of images may lead to

    def __len__(self) -> int:
        return self.table.size

    def __getitem__(self, index: int) -> types.Item:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is outside 0 .. {len(self) - 1}")
        uid = f"{self.name}:{index}"
        try:
            stored = self.table.read(index)
            row = columns.named(stored)
        except columns.BROKEN as error:
            detail = f"the row cannot be read: {error!s:.200}"
            raise columns.RejectedItem(uid, "bad_row", detail) from error
        uid = columns.id_of(row, uid)
        question = columns.question_of(uid, stored, row, has_rules=self.has_rules)
        if self.has_rules:
            answer, kind = columns.answer_of(uid, row, question, self.kind)
        else:
            answer, kind = str(row.get("answer", "")), str(row.get("kind", ""))
        return types.Item(
            uid=uid,
            question=question,
            images=columns.images_of(uid, stored, row, self.directory, self.image_root),
            answer=answer,
            kind=kind,
            metadata=columns.metadata(uid, row),
            columns=stored if self.keeps_rows else {},
        )

    def row(self, index: int) -> Mapping[str, Any]:
        """Returns a row as in the file; a row of verl also has our names."""
        row = self.table.read(index)
        return {**columns.named(row), **row} if "reward_model" in row else row


def rows(path: str | pathlib.Path, *, split: str = "", **options: Any) -> Rows:
    """Opens a user's data: a file, a directory, a name on the hub, or path/to/file.py:FUNCTION.

    A file is one of `row_files.FORMATS`, JSON and CSV also compressed. A directory is one of `save_to_disk`,
    or holds files of one format, itself or in its folders. For names on the Hugging Face hub see `hub`.

    Args:
        path: of the file or directory, a name on the hub, or a function from the split to a list of rows.
        split: which split to read, from the hub or from a directory with files of several splits
            (train.arrow, validation.arrow).
        **options: fields of `Rows`.

    Raises:
        ValueError: there is no such file, it cannot be read or has no rows, or it is not clear which files of
            a directory belong to the split.
    """
    name, place = str(path), pathlib.Path(os.path.expanduser(path))
    if ".py:" in name:
        made = imports.load(name, f"data.{split}")(split)
        table = row_files.Table(len(made), list(*made[:1]), made.__getitem__)
        directory, label = pathlib.Path(), imports.label(name)
    elif parsed := hub.parse(name):
        (table, directory), label = hub.table(parsed, split or "train"), parsed.repo
    # Files of `save_to_disk`, for one data set or several splits.
    elif any((place / mark).is_file() for mark in ("state.json", "dataset_dict.json")):
        table, directory, label = row_files.open_saved(place, split or "train"), place, place.name
    else:
        files = files_of(place, split)
        table, directory, label = row_files.open_files(files), files[0].parent, place.stem
    if table.size == 0:
        raise ValueError(f"{path} has no rows")
    return Rows(table, directory, label, **options)


# ------------------------------------------------------------------------------ which files
def files_of(path: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Returns the files that hold the rows of a split.

    Raises:
        ValueError: there are none, it is not clear which files of a directory belong to this split, or all of
            them are for training and another split is asked for, or the other way round. (Files called test
            may be read for validation if there are no others.)
    """
    listed = _listed(path) if path.is_dir() else {path: None}
    files, splits = list(listed), set(listed.values())
    if not all(file.is_file() and row_files.format_of(file) for file in files or [path]):
        what = "is not a file or directory of rows by name" if path.exists() else "does not exist"
        raise ValueError(
            f"{path} {what}: give a {', '.join(row_files.FORMATS)} file, a directory of them, or a name on the "
            "Hugging Face hub"
        )
    if len(splits) > 1:
        kept = [file for file in files if listed[file] == split and None not in splits]
    else:
        (only,) = splits
        kept = [] if only and split and (only == "train") != (split == "train") else files
    if not kept:
        names = ", ".join(file.name for file in files[:4]) + ", ..." * (len(files) > 4)
        raise ValueError(f"{path} holds {names}: name one of them" + f" for {split}" * bool(split))
    return kept


def _listed(path: pathlib.Path) -> dict[pathlib.Path, str | None]:
    """Returns the files of rows in a directory, and the split in the name or folder of each.

    They are in the directory itself, else in its folders, else in theirs. A .json file has rows only if there
    are no others; many describe the data.
    """
    for pattern in ("[!.]*", "[!.]*/[!.]*", "[!.]*/[!.]*/[!.]*"):
        inside = [x for x in sorted(path.glob(pattern)) if row_files.format_of(x) and x.is_file()]
        described = [x for x in inside if x.suffix != ".json"]
        if files := described or [x for x in inside if x.name not in _NO_ROWS]:
            texts = (" ".join(file.relative_to(path).parts[::-1]) for file in files)
            matches = dict(zip(files, map(_SPLIT.search, texts), strict=True))
            return {file: match and _SPLITS[match[1].lower()] for file, match in matches.items()}
    return {}
