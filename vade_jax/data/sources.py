"""Sources of items: the protocol, and the source for a user's own rows.

An item is made only when it is read, because selectors access the data in any order, and all images
together would not fit into memory. A row that cannot become an item raises a `RejectedItem` with a reason.
This does not happen in the middle of a run, because an audit (`prompts.audit`) reads every row once before
training.
"""

import operator
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vade_jax import fields, types
from vade_jax.data import columns, hub, row_files

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "eval", "evaluation"), "validation"),
    **dict.fromkeys(("test", "testing", "testmini"), "test"),
}
_SPLIT = re.compile(rf"(?<![a-z])({'|'.join(_SPLITS)})(?![a-z])", re.IGNORECASE)


class Source(Protocol):
    """Items by row number. Access is random, because a selector chooses the order during the run.

    `source[i]` raises `RejectedItem` for a row that cannot become an item.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> types.Item: ...


def rows(
    path: str | pathlib.Path,
    *,
    all_columns: bool = False,
    split: str = "",
    has_rules: bool = True,
    keeps_rows: bool = False,
    kind: str = "",
    image_root: str = "",
) -> "Rows":
    """Opens a user's data: a .jsonl, .parquet or .arrow file, a directory of them, or a name on the hub.

    A directory must have files of one format only. For names on the Hugging Face hub see `hub`.

    Required columns: question (or problem), and answer. Optional columns: images (or image), kind, id. An
    image is a path, a data URL, bytes, or {"bytes", "path"}; a row has one or a list of them. Paths are
    relative to the file and must not leave its directory. More optional columns go into the metadata:
    choices, tolerance, ordered, paraphrases (other wordings of the question), steps (hints, in order), and
    subset, domain and level, by which a run's report groups the questions.

    The files of MATH and GSM8K, and the rows of verl's data sets (prompt, reward_model, extra_info), can be
    read without changes.

    Args:
        path: of the file or directory, or a name on the hub.
        all_columns: also keep columns with other names, for `Rows.row`.
        split: which split to read, from the hub or from a directory with files of several splits
            (train.arrow, validation.arrow).
        has_rules: whether the built-in rules judge. If not, a row needs no answer and no known kind.
        keeps_rows: items get all columns that are kept, for reward functions.
        kind: the kind of rows that name none, and whose answer could be of several kinds.
        image_root: another directory that paths of images may lead to.

    Raises:
        ValueError: there is no such file, it cannot be read or has no rows, a column is missing, or it is
            not clear which files of a directory belong to the split.
    """
    options = {"has_rules": has_rules, "keeps_rows": keeps_rows, "kind": kind, "root": image_root}

    def wanted(name):
        return all_columns or columns.is_read(name)

    path = fields.at_home("the path", str(path))
    if name := hub.parse(path):
        table = row_files.of_table(hub.table(name, split or "train"), wanted)
        return _of(table, str(name), hub.cache(), name.repo, options)
    path = pathlib.Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix in row_files.OPEN)
        files = _of_split(path, files, split)
    if not files or not all(file.is_file() for file in files):
        raise ValueError(_missing(path))
    suffixes = {file.suffix for file in files}
    if len(suffixes) > 1 or not suffixes <= set(row_files.OPEN):
        raise ValueError(f"{path} has {sorted(suffixes)} files; give one of {list(row_files.OPEN)}")
    table = row_files.OPEN[suffixes.pop()](files, wanted)
    return _of(table, str(path), files[0].parent, path.stem, options)


def _missing(path: pathlib.Path) -> str:
    known = f"a {', '.join(row_files.OPEN)} file, a directory of them, or a name on the Hugging Face hub"
    if path.exists():
        return f"{path} has no rows: give {known}"
    there = [x.name for x in path.parent.iterdir()] if path.parent.is_dir() else []
    return f"{path} does not exist: {fields.did_you_mean(path.name, there)}give {known}"


def is_of_one_split(name: str) -> bool:
    """Returns whether a setting stands for the same rows, whichever split is asked for.

    That is so for a file, a directory whose file names contain no splits, and a name on the hub with a split.
    """
    if found := hub.parse(name):
        return bool(found.split)
    path = pathlib.Path(name)
    if path.is_dir():
        return not any(split_of(file) for file in path.iterdir() if file.suffix in row_files.OPEN)
    return path.is_file()


def split_of(file: pathlib.Path) -> str | None:
    """Returns "train", "validation" or "test" if the file's name says so, as in geo_test.jsonl, else None."""
    match = _SPLIT.search(file.stem)
    return match and _SPLITS[match[1].lower()]


def _of_split(
    path: pathlib.Path, files: Sequence[pathlib.Path], split: str | None
) -> Sequence[pathlib.Path]:
    """Returns the files of one split if the file names distinguish several, else all files.

    Raises:
        ValueError: it is not clear which files belong to this split; or all files are for training and
            another split is asked for, or the other way round. (Files called test may be read for
            validation if there are no others.)
    """
    found = [split_of(file) for file in files]
    if len(set(found)) == 1:
        only = found[0]
        if only and split and (only == "train") != (split == "train"):
            raise ValueError(
                f"{path}: all of its files are called {only}, such as {files[0].name}, and {split} was asked "
                f"for: name a file, or a directory with files of {split}"
            )
        return files
    if not any(found):
        return files
    kept = [file for file, name in zip(files, found, strict=True) if name == split]
    if not kept or None in found:
        names = ", ".join(file.name for file in files[:4])
        raise ValueError(f"{path} holds {names}{', ...' * (len(files) > 4)}: name one of them")
    return kept


def _of(
    table: row_files.Table,
    label: str,
    directory: pathlib.Path,
    name: str,
    options: Mapping[str, Any],
) -> "Rows":
    """Returns the rows of a table; `label` names the table in messages.

    Raises:
        ValueError: a column is missing, or there are no rows.
    """
    if table.columns is not None:
        columns.check(label, table.columns, has_rules=options["has_rules"])
    if table.size == 0:
        raise ValueError(f"{label} has no rows")
    return Rows(table.read, table.size, directory, name, **options)


class Rows:
    """A `Source` of the items that `read(index) -> row` gives; made by `rows`.

    Attributes:
        directory: the directory that paths of images are relative to.
    """

    def __init__(
        self,
        read: Callable[[int], Mapping[str, Any]],
        size: int,
        directory: pathlib.Path,
        name: str,
        *,
        has_rules: bool = True,
        keeps_rows: bool = False,
        kind: str = "",
        root: str = "",
    ):
        self._read, self._size = read, size
        self._has_rules, self._keeps_rows, self._kind = has_rules, keeps_rows, kind
        self.directory, self._name, self._root = directory, name, root

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> types.Item:
        index = operator.index(index)
        if not 0 <= index < self._size:
            raise IndexError(f"index {index} is outside 0 .. {self._size - 1}")
        uid = f"{self._name}:{index}"
        try:
            whole = self._read(index)
            row = columns.named(whole)
        except columns.BROKEN as error:
            detail = f"the row cannot be read: {error!s:.200}"
            raise columns.RejectedItem(uid, "bad_row", detail) from error
        uid = columns.id_of(row, uid)
        question = columns.question_of(uid, row, has_rules=self._has_rules)
        if self._has_rules:
            answer, kind = columns.answer_of(uid, row, question, self._kind)
        else:
            answer, kind = str(row.get("answer", "")), str(row.get("kind", ""))
        return types.Item(
            uid=uid,
            question=question,
            images=columns.images_of(uid, row, self.directory, self._root),
            answer=answer,
            kind=kind,
            metadata=columns.metadata(uid, row),
            columns=whole if self._keeps_rows else {},
        )

    def row(self, index: int) -> Mapping[str, Any]:
        """Returns a row as the file has it; a row of verl also has our names."""
        row = self._read(index)
        return {**columns.of_verl(row), **row} if columns.is_verl(row) else row
