"""Published training data: the rows of local files, and the forms that they come in.

`open_shards` reads .parquet, .arrow, .jsonl and .json files by row number and leaves other splits than
the training one out. `detect` tells a form by its columns: LLaVA-OneVision-Data, ChartQA (HuggingFaceM4's
and the original files), ScienceQA, verl's parquet, or rows of one's own (EasyR1's among them). A form
reads a row as questions.
"""

import bisect
import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vade_jax.data import row_files, sources
from vade_jax.recipes.vade_9k import texts

Row = Mapping[str, Any]
CHARTQA_TOLERANCE = 0.05  # of its own score
_SPLIT = re.compile(r"(train|validation|valid|val|dev|testmini|test)(?![a-z])")
_INSIDE = ("", "train", "data")  # where publishers put the files of a split


class Shards:
    """Rows over files of one form; made by `open_shards`.

    Attributes:
        columns: names; those of .parquet and .arrow files are the same in every file.
        name: of where they come from, for messages.
    """

    def __init__(self, name: str, files: Sequence["_File"]):
        self.name, self._files = name, files
        self.columns = list(dict.fromkeys(c for file in files for c in file.columns))
        for file in files:
            if file.is_typed and set(file.columns) != set(self.columns):
                raise ValueError(
                    f"{file.path} has the columns {sorted(file.columns)}, "
                    f"{files[0].path.name} has {sorted(self.columns)}: the files of "
                    "one data set need the same"
                )
        self._ends = list(itertools.accumulate(file.size for file in files))

    def __len__(self) -> int:
        return self._ends[-1]

    def column(self, name: str) -> list[Any]:
        """Returns one column of all rows; nothing else is read."""
        return [value for file in self._files for value in file.column(name)]

    def take(self, indices: Iterable[int]) -> Iterator[tuple[int, pathlib.Path, Row]]:
        """Yields (index, directory, row) in the order of the files, each row group read once."""

        def number_of(index):
            return bisect.bisect_right(self._ends, index)

        for number, group in itertools.groupby(sorted(indices), number_of):
            file = self._files[number]
            start = self._ends[number] - file.size
            for index, row in file.take([index - start for index in group]):
                yield start + index, file.path.parent, row


def open_shards(path: str | pathlib.Path) -> Shards:
    """Opens a file or a directory (or `train`, `data` in it) of .parquet, .arrow, .jsonl or .json.

    Where file names tell splits, only those of the training split are opened.

    Raises:
        ValueError: there is no such file, none of the training split, two forms, a file that cannot
            be read, other columns in another file, or no row.
    """
    path = pathlib.Path(path)
    files = _find_files(path)
    suffixes = {file.suffix for file in files}
    if len(suffixes) > 1:
        raise ValueError(f"{path} has {sorted(suffixes)} files: keep one form")
    opened = [_OPEN[file.suffix](file) for file in files]
    opened = [file for file in opened if file.size]
    if not opened:
        raise ValueError(f"{path} has no rows")
    return Shards(str(path), opened)


def _find_files(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the data files of the training split, by name."""
    if path.is_file() and path.suffix in _OPEN:
        return [path]
    for directory in (path / inside for inside in _INSIDE):
        files = sorted(directory.iterdir()) if directory.is_dir() else []
        files = [file for file in files if file.suffix in _OPEN]
        # A .json file without a split in its name is dataset_info.json and the like.
        files = [f for f in files if f.suffix != ".json" or _SPLIT.match(f.stem)]
        if files:
            break
    else:
        raise ValueError(f"{path} is no {', '.join(_OPEN)} file or directory of them")
    splits = [_SPLIT.match(file.stem) for file in files]
    if not any(splits):
        return files
    if not all(splits):
        other = files[splits.index(None)].name
        raise ValueError(
            f"{directory}: {other} is of no split, other files are: is it for training? Move "
            "it, or name it train_..."
        )
    kept = [f for f, m in zip(files, splits, strict=True) if m[1] == "train"]
    if not kept:
        raise ValueError(
            f"{directory} has no training split, only {files[0].name} and the like: "
            "other splits are not trained on"
        )
    return kept


class _File:
    """One file: its columns, its size and how rows are read."""

    is_typed = True  # a missing column is a fault, not a row without a value

    def __init__(self, path: pathlib.Path, columns: Sequence[str], size: int):
        self.path, self.columns, self.size = path, columns, size

    def column(self, name: str) -> list[Any]:
        raise NotImplementedError

    def take(self, indices: list[int]) -> Iterator[tuple[int, Row]]:
        """Yields (index, row); `indices` ascend."""
        raise NotImplementedError


class _Parquet(_File):
    """Reads whole row groups, one at a time."""

    def __init__(self, path: pathlib.Path):
        from pyarrow import parquet

        with _named(path):
            self._file = parquet.ParquetFile(path, memory_map=True)
        meta = self._file.metadata
        sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        self._ends = list(itertools.accumulate(sizes, initial=0))
        super().__init__(path, self._file.schema_arrow.names, meta.num_rows)

    def column(self, name: str) -> list[Any]:
        with _named(self.path):
            return self._file.read(columns=[name]).column(0).to_pylist()

    def take(self, indices: list[int]) -> Iterator[tuple[int, Row]]:
        def number_of(index):
            return bisect.bisect_right(self._ends, index) - 1

        for number, group in itertools.groupby(indices, number_of):
            with _named(self.path):
                table = self._file.read_row_group(number)
            for index in group:
                row = table.slice(index - self._ends[number], 1)
                yield index, row.to_pylist()[0]


class _Arrow(_File):
    def __init__(self, path: pathlib.Path):
        self._table = row_files.open_arrow(path)
        super().__init__(path, self._table.schema.names, len(self._table))

    def column(self, name: str) -> list[Any]:
        return self._table.column(name).to_pylist()

    def take(self, indices: list[int]) -> Iterator[tuple[int, Row]]:
        for index in indices:
            yield index, self._table.slice(index, 1).to_pylist()[0]


class _Json(_File):
    """A list of objects, or an object a line; the columns are those of all rows."""

    is_typed = False

    def __init__(self, path: pathlib.Path):
        with _named(path):
            if path.suffix == ".jsonl":
                rows = row_files.json_lines(path)
            else:
                rows = json.loads(path.read_text("utf-8"))
        rows = rows if isinstance(rows, list) else [rows]
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise ValueError(f"{path}: row {number} is no object: {row!r:.60}")
        self._rows = rows
        names = dict.fromkeys(name for row in rows for name in row)
        super().__init__(path, list(names), len(rows))

    def column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]

    def take(self, indices: list[int]) -> Iterator[tuple[int, Row]]:
        for index in indices:
            yield index, {name: self._rows[index].get(name) for name in self.columns}


@contextlib.contextmanager
def _named(path: pathlib.Path) -> Iterator[None]:
    """Names the file in what pyarrow and json raise."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


_OPEN = {".parquet": _Parquet, ".arrow": _Arrow, ".jsonl": _Json, ".json": _Json}


# ------------------------------------------------------------------------------ forms
@dataclasses.dataclass(frozen=True)
class Form:
    """One published form.

    Attributes:
        name: of the form.
        columns: names with spaces between; those of one text must all be there.
        read: row -> its questions; raises `texts.Refused`.
        id_column: that names a row; None: rows have no name but their number.
    """

    name: str
    columns: Sequence[str]
    read: Callable[[Row], list[texts.Sample]]
    id_column: str | None = None


def detect(columns: Sequence[str], where: str) -> Form:
    """Returns the form that has these columns.

    Raises:
        ValueError: none has.
    """
    for form in FORMS:
        if any(set(columns).issuperset(names.split()) for names in form.columns):
            return form
    known = "; ".join(
        f"{form.name}: {' or '.join(', '.join(sorted(x.split())) for x in form.columns)}"
        for form in FORMS
    )
    raise ValueError(
        f"{where} has the columns {sorted(columns)}, which no known form has. Known are {known}"
    )


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not sources.is_label(value) or not str(value).strip():
        raise texts.Refused("missing_field", f"{name} is {value!r:.60}, no text")
    return str(value).strip()


def _images(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    value = value if isinstance(value, list) else [value]
    return [image for image in value if image is not None]


def _unmarked(said: Sequence[str], images: Sequence[Any]) -> list[str]:
    """Returns texts without marks; if there are any, there must be one an image."""
    marks = sum(text.count("<image>") for text in said)
    if images and marks not in (0, len(images)):
        raise texts.Refused("image_count", f"{marks} <image> marks, {len(images)} images")
    return [texts.unmarked(text) for text in said]


def _llava(row: Row) -> list[texts.Sample]:
    """A sample a turn: (human, gpt) pairs about one image."""
    turns = row.get("conversations") or []
    try:
        said = [(turn["from"], turn["value"] or "") for turn in turns]
    except (TypeError, KeyError) as error:
        raise texts.Refused("bad_turns", f"no from and value in {turns!r:.60}") from error
    speakers = [who for who, _ in said]
    if not said or speakers != ["human", "gpt"] * (len(said) // 2):
        raise texts.Refused("bad_turns", f"turns of {speakers} are no questions and answers")
    shown = {"images": _images(row, "image"), "answer_is": "turn"}
    questions = _unmarked([text for _, text in said[::2]], shown["images"])
    answers = [text for _, text in said[1::2]]
    return [
        texts.Sample(question, answer, turn=turn, **shown)
        for turn, (question, answer) in enumerate(zip(questions, answers, strict=True))
    ]


def _chartqa(row: Row) -> list[texts.Sample]:
    """Numbers are right within 5 % as in its score; years, which it forgives too, are not."""
    label = row.get("label")
    if isinstance(label, list) and len(label) != 1:
        raise texts.Refused("several_answers", f"{label!r:.60} is not one answer")
    label = label[0] if isinstance(label, list) else label
    images = _images(row, "image") or [f"png/{_text(row, 'imgname')}"]
    return [
        texts.Sample(
            _text(row, "query"),
            _text({"label": label}, "label"),
            images,
            choices=(),
            tolerance=CHARTQA_TOLERANCE,
        )
    ]


def _scienceqa(row: Row) -> list[texts.Sample]:
    choices, answer = row.get("choices") or [], row.get("answer")
    if len(choices) < 2 or not all(isinstance(c, str) and c.strip() for c in choices):
        raise texts.Refused("bad_choices", f"choices are {choices!r:.60}")
    if not isinstance(answer, int) or not 0 <= answer < len(choices):
        detail = f"answer {answer!r} is no index of {len(choices)} choices"
        raise texts.Refused("bad_gold", detail)
    hint = (row.get("hint") or "").strip()
    context = f"Context: {hint}\n" if hint else ""
    return [
        texts.Sample(
            context + _text(row, "question"),
            chr(65 + answer),
            _images(row, "image"),
            tuple(choices),
        )
    ]


def _verl(row: Row) -> list[texts.Sample]:
    """The user's turn; a run has its own instruction, so a system turn is left out."""
    turns = [t for t in row.get("prompt") or [] if t.get("role") != "system"]
    if [turn.get("role") for turn in turns] != ["user"]:
        raise texts.Refused("bad_turns", f"{len(turns)} turns are not one question")
    truth = (row.get("reward_model") or {}).get("ground_truth")
    images = _images(row, "images")
    (question,) = _unmarked([_text(turns[0], "content")], images)
    answer = _text({"ground_truth": truth}, "ground_truth")
    return [texts.Sample(question, answer, images)]


def _own(row: Row) -> list[texts.Sample]:
    """A user's row, as `sources.rows` reads it: the question stays as it is written."""
    found = {k: v for k, v in row.items() if v is not None}
    question = "question" if "question" in found else "problem"
    try:
        more = sources.metadata("", found)
    except sources.RejectedItem as rejected:
        raise texts.Refused(rejected.reason, rejected.detail) from rejected
    choices = more.pop("choices", None)
    return [
        texts.Sample(
            _text(found, question),
            _text(found, "answer"),
            _images(found, "images" if "images" in found else "image"),
            tuple(choices) if choices else None,
            kind=found.get("kind"),
            tolerance=more.pop("tolerance", None),
            own_words=True,
            more=more,
        )
    ]


FORMS = (
    Form("LLaVA-OneVision", ("conversations image",), _llava, "id"),
    Form("ChartQA", ("query label image", "query label imgname"), _chartqa),
    Form("ScienceQA", ("question choices answer image hint",), _scienceqa),
    Form("verl", ("prompt reward_model images",), _verl),
    Form("rows of your own", ("question answer", "problem answer"), _own, "id"),
)
