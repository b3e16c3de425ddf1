"""Sources of items: the protocol, and the source for a user's own rows.

An item is made only when it is read, because selectors access the data in any order, and all images
together would not fit into memory. A row that cannot become an item raises a `RejectedItem` with a reason.
This does not happen in the middle of a run, because an audit (`prompts.audit`) reads every row once before
training.
"""

import operator
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

from vade_jax import fields, types
from vade_jax.data import columns, hub, row_files

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "eval", "evaluation"), "validation"),
    **dict.fromkeys(("test", "testing", "testmini"), "test"),
}
_SPLIT = re.compile(rf"(?<![a-z])({'|'.join(_SPLITS)})(?![a-z])", re.IGNORECASE)
# Files that describe data and hold no rows.
_NO_ROWS = ("dataset_info.json", "dataset_infos.json", "config.json")


class Source(Protocol):
    """Items by row number. Access is random, because a selector chooses the order during the run.

    `source[i]` raises `RejectedItem` for a row that cannot become an item.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> types.Item: ...


def rows(
    path: str | pathlib.Path,
    *,
    split: str = "",
    has_rules: bool = True,
    keeps_rows: bool = False,
    kind: str = "",
    image_root: str = "",
) -> "Rows":
    """Opens a user's data: a file, a directory, or a name on the hub.

    A file is one of `row_files.FORMATS`, JSON and CSV also compressed. A directory is one of `save_to_disk`,
    or holds files of one format, itself or in its folder data/ or in folders named after splits. For names
    on the Hugging Face hub see `hub`.

    Required columns: question (or problem, or a chat), and answer. Optional columns: images (or another
    name, see `pictures`), kind, id. Paths of images are relative to the file and must not leave its
    directory. More optional columns go into the metadata: choices, tolerance, ordered, paraphrases (other
    wordings of the question), steps (hints, in order), and subset, domain and level, by which a run's report
    groups the questions.

    The files of MATH and GSM8K, and the rows of verl's data sets (prompt, reward_model, extra_info), can be
    read without changes.

    Args:
        path: of the file or directory, or a name on the hub.
        split: which split to read, from the hub or from a directory with files of several splits
            (train.arrow, validation.arrow).
        has_rules: whether the built-in rules judge. If not, a row needs no answer and no known kind.
        keeps_rows: items get all columns, for reward functions.
        kind: the kind of rows that name none, and whose answer could be of several kinds.
        image_root: another directory that paths of images may lead to.

    Raises:
        ValueError: there is no such file, it cannot be read or has no rows, a column is missing, or it is
            not clear which files of a directory belong to the split.
    """
    path = fields.at_home("the path", str(path))
    if name := hub.parse(path):
        table, directory, label = hub.table(name, split or "train"), hub.cache(), name.repo
    elif row_files.is_saved(pathlib.Path(path)):
        directory = _saved(pathlib.Path(path), split)
        table, label = row_files.open_saved(directory), pathlib.Path(path).name
    else:
        files = files_of(pathlib.Path(path), split)
        table, directory = row_files.open_files(files), files[0].parent
        label = pathlib.Path(path).stem
    if table.columns is not None:
        columns.check(path, table.columns, has_rules=has_rules)
    if table.size == 0:
        raise ValueError(f"{path} has no rows")
    return Rows(
        table,
        directory,
        label,
        has_rules=has_rules,
        keeps_rows=keeps_rows,
        kind=kind,
        root=image_root,
    )


# ------------------------------------------------------------------------------ which files
def is_of_one_split(name: str) -> bool:
    """Returns whether a setting stands for the same rows, whichever split is asked for.

    That is so for a file, a directory without splits, and a name on the hub with a split.
    """
    if parsed := hub.parse(name):
        return bool(parsed.split)
    path = pathlib.Path(name)
    if row_files.is_saved(path):
        return not row_files.saved_splits(path)
    return not any(_listed(path).values()) if path.is_dir() else path.is_file()


def split_of(file: pathlib.Path) -> str | None:
    """Returns "train", "validation" or "test" if the file's name says so, as in geo_test.jsonl, else None."""
    match = _SPLIT.search(file.name)
    return match and _SPLITS[match[1].lower()]


def _saved(path: pathlib.Path, split: str) -> pathlib.Path:
    """Returns the directory of a split in one that `save_to_disk` wrote, or the path if it has no splits."""
    splits = row_files.saved_splits(path)
    if not splits:
        return path
    if (split or "train") in splits:
        return path / (split or "train")
    raise ValueError(f"{path} has the splits {splits}: name one, such as {path / splits[0]}")


def _listed(path: pathlib.Path) -> dict[pathlib.Path, str | None]:
    """Returns the files of rows in a directory, and the split of each.

    They are in the directory itself, else in its folder data/, else in folders named after splits. Files
    called .json are rows only where there are no others: many describe the rest.
    """
    homes = [home for home in (path, path / "data") if home.is_dir()]
    folders = [x for home in homes for x in home.iterdir() if x.is_dir() and x.name in _SPLITS]
    for places in (*([home] for home in homes), folders):
        inside = sorted(file for place in places for file in place.iterdir())
        listed = [x for x in inside if row_files.format_of(x) and x.is_file()]
        # `datasets` leaves cache-*.arrow where rows were mapped or shuffled.
        listed = [x for x in listed if not x.name.startswith((".", "cache-"))]
        described = [x for x in listed if x.suffix != ".json"]
        if files := described or [x for x in listed if x.name not in _NO_ROWS]:
            inherits = places == folders
            return {x: split_of(x) or (_SPLITS[x.parent.name] if inherits else None) for x in files}
    return {}


def files_of(path: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Returns the files that hold the rows of a split.

    Raises:
        ValueError: there are none, they have several formats, it is not clear which files belong to this
            split, or all files are for training and another split is asked for, or the other way round.
            (Files called test may be read for validation if there are no others.)
    """
    known = f"a {', '.join(row_files.FORMATS)} file, a directory of them, or a name on the Hugging Face hub"
    if not path.exists():
        there = [x.name for x in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ValueError(
            f"{path} does not exist: {fields.did_you_mean(path.name, there)}give {known}"
        )
    found = _of_split(path, split) if path.is_dir() else [path]
    if not found or not all(file.is_file() and row_files.format_of(file) for file in found):
        what = "has no files of rows" if path.is_dir() else "is not a file of rows"
        raise ValueError(f"{path} {what} by name: give {known}")
    if len(formats := sorted({row_files.format_of(file) for file in found})) > 1:
        raise ValueError(f"{path} has {' and '.join(formats)} files: name one of them")
    return found


def _of_split(path: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Returns the files of one split if the names in a directory distinguish several, else all of them."""
    listed = _listed(path)
    files, splits = list(listed), set(listed.values())
    if len(splits) < 2:
        only = next(iter(splits), None)
        if only and split and (only == "train") != (split == "train"):
            raise ValueError(
                f"{path}: all of its files are called {only}, such as {files[0].name}, and {split} was asked "
                f"for: name a file, or a directory with files of {split}"
            )
        return files
    kept = [file for file in files if listed[file] == split]
    if not kept or None in splits:
        names = ", ".join(file.name for file in files[:4])
        raise ValueError(f"{path} holds {names}{', ...' * (len(files) > 4)}: name one of them")
    return kept


class Rows:
    """A `Source` of the items in a table of rows; made by `rows`.

    Attributes:
        directory: the directory that paths of images are relative to.
        columns: the names of the table's columns.
    """

    def __init__(
        self,
        table: row_files.Table,
        directory: pathlib.Path,
        name: str,
        *,
        has_rules: bool = True,
        keeps_rows: bool = False,
        kind: str = "",
        root: str = "",
    ):
        self._table, self.columns = table, table.columns or ()
        self._has_rules, self._keeps_rows, self._kind = has_rules, keeps_rows, kind
        self.directory, self._name, self._root = directory, name, root

    def __len__(self) -> int:
        return self._table.size

    def __getitem__(self, index: int) -> types.Item:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is outside 0 .. {len(self) - 1}")
        uid = f"{self._name}:{index}"
        try:
            whole = self._table.read(index)
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
            images=columns.images_of(uid, whole, row, self.directory, self._root),
            answer=answer,
            kind=kind,
            metadata=columns.metadata(uid, row),
            columns=whole if self._keeps_rows else {},
        )

    def row(self, index: int) -> Mapping[str, Any]:
        """Returns a row as the file has it; a row of verl also has our names."""
        row = self._table.read(index)
        return {**columns.of_verl(row), **row} if columns.is_verl(row) else row
