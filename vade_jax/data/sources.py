"""Where items come from: a protocol, and a user's own rows.

An item is made when it is asked for: a selector jumps about in the data, and its images together would
not fit into memory. What cannot become an item is a `RejectedItem` with a reason, never a crash in the
middle of a run: an audit (`prompts.audit`) meets every row once before training.
"""

import base64
import math
import operator
import os
import pathlib
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from PIL import Image

from vade_jax import types
from vade_jax.data import hub, images, row_files
from vade_jax.rewards import answers, verify

_ALIASES = {"problem": "question", "image": "images", "uid": "id"}
# What reading a row may raise: lines are parsed, and tables decoded, when they are asked for.
BROKEN = (ValueError, AttributeError, TypeError, LookupError, ArithmeticError, RecursionError)
BROKEN += (pa.ArrowException,)
UNREAD = ("videos", "video", "audios", "audio")  # columns that other frameworks read
_LONGEST_UID = 200
_VERL = ("prompt", "reward_model", "extra_info", "data_source")  # columns of verl's rows
MAX_FILES = 1 << 28  # bytes of a row's images; a file that is larger is no picture
SPLIT = re.compile(r"(train|validation|valid|val|dev|testmini|test)(?![a-z])")
_SPLITS = dict.fromkeys(("validation", "valid", "val", "dev"), "validation") | {
    "train": "train",
    "test": "test",
    "testmini": "test",
}
_LONGEST_TEXT = 40  # characters; longer answers are not compared by spelling
_OPTIONS = re.compile(r"(?:^|[\s(])A\s?[.:)]\s?\S.*[\s(]B\s?[.:)]\s?\S", re.DOTALL)


def is_label(value: Any) -> bool:
    """Returns whether a value is a text or a number; NaN, a table's missing value, is neither."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _is_name(value: Any) -> bool:
    """Returns whether a value is fit for messages: no control characters of a terminal, say."""
    return is_label(value) and len(str(value)) <= _LONGEST_UID and str(value).isprintable()


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


# Kept in an item's metadata, and what they have to be.
_METADATA = {
    "choices": (_are_texts, "is no list of texts"),
    "tolerance": (
        lambda x: isinstance(x, int | float) and 0 <= x < 1,
        "is not in 0 .. 1",
    ),
    "ordered": (lambda x: isinstance(x, bool), "is neither true nor false"),
    "paraphrases": (_are_texts, "is no list of texts"),
    "steps": (_are_texts, "is no list of texts"),
    **dict.fromkeys(("subset", "domain", "level"), (is_label, "is no text or number")),
}
_COLUMNS = ("question", "answer", "solution", "images", "kind", "id", *_METADATA)


class RejectedItem(ValueError):  # noqa: N818 (a verdict on data more than an error)
    """A row that cannot be trained on.

    Attributes:
        uid: of the row.
        reason: a short code, counted in reports.
        detail: what is wrong, in words.
    """

    def __init__(self, uid: str, reason: str, detail: str):
        super().__init__(f"{uid}: {detail} [{reason}]")
        self.uid, self.reason, self.detail = uid, reason, detail


class Source(Protocol):
    """Items by row number: random access, because a selector chooses the order as it goes.

    `source[i]` raises `RejectedItem` for a row that cannot be read.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> types.Item: ...


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
    """Opens a user's data.

    A .jsonl, .parquet or .arrow file, a directory of one sort of them, or a name on the Hugging Face
    hub (`hub`).

    Columns: question (or problem), answer; optional images (or image: paths relative to the file that
    do not leave its directory, data URLs, bytes, or {"bytes", "path"}; one or a list), kind, id, and
    what goes into the metadata: choices, tolerance, ordered, paraphrases (other wordings of the
    question), steps (hints, in order); subset, domain and level, by which a run's report sorts the
    questions. The files of MATH and GSM8K (see `_answered`) and the rows of verl's data sets (prompt,
    reward_model, extra_info) are read as they are.

    Args:
        path: of the file or directory, or the name.
        all_columns: hold columns of other names as well, for `Rows.row`.
        split: in a directory with files of several (train.arrow, validation.arrow), or on the hub, which one.
        has_rules: the built-in rules judge; otherwise no row needs an answer, or one of a known kind.
        keeps_rows: items have all columns that are held, for reward functions.
        kind: of rows that have none, and whose answer may be of several.
        image_root: another directory that paths of images may lead to.

    Raises:
        ValueError: if there is no such file, it cannot be read, a column is missing, or a directory
            has both splits and none is named.
    """
    options = {"has_rules": has_rules, "keeps_rows": keeps_rows, "kind": kind, "root": image_root}

    def wanted(name):
        return all_columns or _ALIASES.get(name, name) in _COLUMNS or name in _VERL

    if name := hub.parse(str(path)):
        table = row_files.of_table(hub.table(name, split or "train"), wanted)
        return _of(table, str(name), hub.cache(), name.repo, options)
    path = pathlib.Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix in row_files.OPEN)
        files = _of_split(path, files, split)
    if not files or not all(file.is_file() for file in files):
        raise ValueError(
            f"{path} is neither a {' or '.join(row_files.OPEN)} file nor a directory of them, nor "
            "a name on the Hugging Face hub"
        )
    suffixes = {file.suffix for file in files}
    if len(suffixes) > 1 or not suffixes <= set(row_files.OPEN):
        raise ValueError(f"{path} has {sorted(suffixes)} files; give one of {list(row_files.OPEN)}")
    table = row_files.OPEN[suffixes.pop()](files, wanted)
    return _of(table, str(path), files[0].parent, path.stem, options)


def is_of_one_split(name: str) -> bool:
    """Returns whether a setting names the same rows for training and for validation.

    That is a file, a directory whose files' names tell no splits apart, or a name on the hub with its split.
    """
    if found := hub.parse(name):
        return bool(found.split)
    path = pathlib.Path(name)
    if path.is_dir():
        return not any(SPLIT.match(f.stem) for f in path.iterdir() if f.suffix in row_files.OPEN)
    return path.is_file()


def _of_split(
    path: pathlib.Path, files: Sequence[pathlib.Path], split: str | None
) -> Sequence[pathlib.Path]:
    """Returns the files of one split where their names tell several apart, else all of them.

    Raises:
        ValueError: which are of this split is not clear, or all are for training and the split is another,
            or the other way round. Files called test may be for validation.
    """
    found = [match and _SPLITS[match[1]] for match in (SPLIT.match(f.stem) for f in files)]
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
    """Returns the rows of a table that has the columns; `label` is what messages call it."""
    if table.columns is not None:
        found = {_ALIASES.get(name, name) for name in table.columns}
        if is_verl(found):
            found |= {"question", "answer"}
        found |= {"answer"} if "solution" in found else set()
        if missing := [name for name in _required(options["has_rules"]) if name not in found]:
            raise ValueError(
                f"{label} has no column {missing[0]!r} among {list(table.columns)}; rename or "
                "add it"
            )
    if table.size == 0:
        raise ValueError(f"{label} has no rows")
    return Rows(table.read, table.size, directory, name, **options)


def _required(has_rules: bool) -> Sequence[str]:
    return ("question", "answer") if has_rules else ("question",)


class Rows:
    """A `Source` over `read(index) -> row`; made by `rows`.

    Attributes:
        directory: that paths of images are relative to.
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
            columns = self._read(index)
            row = _renamed(columns)
            row = _of_verl(row) if is_verl(row) else row
        except BROKEN as error:
            raise RejectedItem(uid, "bad_row", f"not a JSON object: {error!s:.200}") from error
        row = _answered({k: v for k, v in row.items() if v is not None})
        if not _is_name(row.get("id", uid)):
            raise RejectedItem(
                uid, "bad_id", f"{row['id']!r:.80} is no short, plain text or number"
            )
        uid = str(row.get("id", uid))
        missing = [name for name in _required(self._has_rules) if name not in row]
        if missing:
            raise RejectedItem(uid, "missing_field", f"the row has no {missing[0]}")
        if not is_label(row["question"]):
            raise RejectedItem(uid, "bad_question", f"{row['question']!r:.80} is no text")
        question = str(row["question"])
        if self._has_rules:
            answer = _answer(uid, row["answer"])
            _check_index(uid, answer, row)
            kind = _kind(uid, question, answer, row, self._kind)
        else:
            answer, kind = str(row.get("answer", "")), str(row.get("kind", ""))
        if unread := [name for name in UNREAD if row.get(name)]:
            raise RejectedItem(
                uid, "not_an_image", f"the row has {unread[0]}: images are all that is read"
            )
        shown = row.get("images", [])
        shown = shown if isinstance(shown, list) else [shown]
        return types.Item(
            uid=uid,
            question=question,
            images=self._images(uid, shown),
            answer=answer,
            kind=kind,
            metadata=metadata(uid, row),
            columns=columns if self._keeps_rows else {},
        )

    def _images(self, uid: str, shown: Sequence[Any]) -> tuple[Image.Image, ...]:
        """Opens (does not decode) the images of a row."""
        found, room = [], MAX_FILES
        try:
            for image in shown:
                file = image_bytes(image, self.directory, self._root, room)
                room -= len(file)
                found.append(images.opened(file))
            return tuple(found)
        except (OSError, TypeError, ValueError) as error:
            detail = f"an image cannot be opened: {images.why_not(error)}"
            raise RejectedItem(uid, "bad_image", detail) from error

    def row(self, index: int) -> Mapping[str, Any]:
        """Returns a row that is an item, as the file has it; verl's with this project's names, too."""
        row = self._read(index)
        return {**_of_verl(row), **row} if is_verl(row) else row


def is_verl(columns: Container[str]) -> bool:
    """Returns whether rows are in the form of verl's data sets."""
    return "prompt" in columns and "reward_model" in columns


def _of_verl(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row under the names that are used here.

    The question is the bare one, where the row keeps it, else the user's last turn with whatever
    instruction is in it; what it says of the system is left out.
    """
    asked = [turn["content"] for turn in row["prompt"] if turn["role"] == "user"]
    more = {
        "question": (row.get("extra_info") or {}).get("question") or asked[-1],
        "answer": row["reward_model"]["ground_truth"],
        "subset": row.get("data_source"),
    }
    return {name: value for name, value in row.items() if name in _COLUMNS} | more


def image_bytes(
    image: Any, directory: pathlib.Path, root: str = "", max_bytes: int = MAX_FILES
) -> bytes:
    """Returns the file of an image: bytes, a path, a data URL, or {"bytes", "path"}.

    Args:
        image: what a row says.
        directory: that a path is relative to, and may not leave, not by a link either.
        root: another directory that it may lead to; "" is none.
        max_bytes: of the file.

    Raises:
        OSError, TypeError, ValueError: there is none, it is elsewhere or too large.
    """
    if isinstance(image, Mapping):
        image = image.get("bytes") or image.get("path")
    if not isinstance(image, str):
        file = bytes(memoryview(image))
    elif image.startswith("data:"):
        file = base64.b64decode(image.partition(",")[2], validate=True)
    else:
        path = pathlib.Path(os.path.realpath(directory / image))
        allowed = [os.path.realpath(x) for x in (directory, root) if x != ""]
        if not any(map(path.is_relative_to, allowed)):
            raise ValueError(
                f"{image!r:.200} is outside of the data's directory: if you trust the data, allow "
                "it with data.image_root"
            )
        if not path.is_file():  # a pipe or a device would be read for ever
            raise FileNotFoundError(f"there is no file {image!r:.200}")
        with path.open("rb") as opened:
            file = opened.read(max_bytes + 1)
    if len(file) > max_bytes:
        raise ValueError(f"the files of a row's images have over {MAX_FILES >> 20} MB")
    return file


def metadata(uid: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the verifier and the variants of a question may need besides.

    Raises:
        RejectedItem: a value of another type.
    """
    found = {name: row[name] for name in _METADATA if name in row}
    for name, value in found.items():
        is_good, complaint = _METADATA[name]
        if not is_good(value):
            raise RejectedItem(uid, f"bad_{name}", f"{name} {value!r:.200} {complaint}")
    return found


def _renamed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row under the usual names; where it has both names, the other fills an empty column."""
    row = {name: value for name, value in columns.items() if name not in _ALIASES}
    for alias, name in _ALIASES.items():
        if alias in columns and row.get(name) in (None, "", []):
            row[name] = columns[alias]
    return row


def _answered(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with the final answer of a worked solution.

    MATH's rows have a `solution` that ends in a box, GSM8K's an `answer` whose last line is "#### 18".
    """
    answer, boxed = row.get("answer"), _boxed(row)
    if boxed is not None and answer is None:  # a number, or any formula
        return {"kind": "expr"} | row | {"answer": boxed}
    if isinstance(answer, str) and "\n####" in answer:
        return row | {"answer": answer.rpartition("\n####")[2].strip()}
    return row


def _boxed(row: Mapping[str, Any]) -> str | None:
    """Returns what the worked solution of a row ends in, None without one."""
    solution = row.get("solution")
    return answers.extract_boxed(solution) if isinstance(solution, str) else None


def _answer(uid: str, answer: Any) -> str:
    """Returns the answer as text."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if not is_label(answer) or not str(answer).strip():
        raise RejectedItem(uid, "bad_answer", f"{answer!r:.200} is no text or number")
    return str(answer).strip()


def _check_index(uid: str, answer: str, row: Mapping[str, Any]) -> None:
    """Raises RejectedItem for a number that may be the place of an option, as in ScienceQA's rows."""
    options, number = row.get("choices"), answers.number(answer)
    if "kind" in row or not isinstance(options, list) or number is None:
        return
    if 0 <= number[0] <= len(options) and number not in map(answers.number, map(str, options)):
        detail = f"answer {answer!r:.80} may be the place of one of the choices {options!r:.200}"
        fix = "write its letter, and the options into the question; or add a column kind"
        raise RejectedItem(uid, "bad_answer", f"{detail}: {fix}")


def _kind(uid: str, question: str, answer: str, row: Mapping[str, Any], default: str) -> str:
    """Returns the row's kind, the one that its answer certainly has, or the default.

    Without a default, an answer beside a solution that ends in a box is a formula, as in MATH's rows.
    """
    kind = row.get("kind") or _infer_kind(question, answer, "choices" in row) or default
    kind = kind or ("expr" if _boxed(row) is not None else None)
    if kind not in list(verify.KINDS):  # a list of a file, say, cannot be a key
        detail = f"answer {answer!r:.200} is of kind {kind!r:.80}"
        fix = f"add a column kind with one of {list(verify.KINDS)}, or set data.kind"
        raise RejectedItem(uid, "bad_kind", f"{detail}; {fix}")
    return kind


def _infer_kind(question: str, answer: str, has_choices: bool) -> str | None:
    """Returns the kind of an answer, None where a guess could give wrong rewards (formulas)."""
    if re.fullmatch(r"\(?[A-J]\)?\.?", answer):
        return "choice" if has_choices or _OPTIONS.search(question) else "text"
    if answer.casefold().strip(".") in ("yes", "no"):
        return "yesno"
    if (number := answers.number(answer)) is not None:
        whole = number[0] == number[0].to_integral_value() and "." not in answer
        return "int" if whole else "float"
    return "text" if len(answer) <= _LONGEST_TEXT and answers.is_prose(answer) else None
