"""Published training data: the rows of local files, and the forms that they come in.

`open_shards` reads .parquet, .arrow, .jsonl and .json files by row number and leaves other splits than
the training one out. `detect` tells a form by its columns: LLaVA-OneVision-Data, ChartQA (HuggingFaceM4's
and the original files), ScienceQA, verl's parquet, or rows of one's own (EasyR1's among them). A form
reads a row as questions.
"""

import bisect
import contextlib
import functools
import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.vade_9k import texts
from vade_jax import lfs
from vade_jax.data import columns, pictures, row_files, sources

Row = Mapping[str, Any]
CHARTQA_TOLERANCE = 0.05  # of its own score
_INSIDE = ("", "train", "data")  # where publishers put the files of a split


class Part(NamedTuple):
    """Rows that are read together: a row group of a .parquet file, the whole of any other file.

    `read(columns)` returns a function from the number of a row to the row; None is all columns.
    """

    path: pathlib.Path
    columns: Sequence[str]
    size: int
    read: Callable[[list[str] | None], Callable[[int], Row]]


class Shards:
    """Rows over files of one form; made by `open_shards`.

    Attributes:
        columns: names; those of .parquet and .arrow files are the same in every file.
        name: of where they come from, for messages.
        directory: that has the files.
    """

    def __init__(self, name: str, parts: Sequence[Part]):
        self.name, self._parts = name, parts
        first = parts[0].path
        self.directory = first.parent
        self.columns = list(dict.fromkeys(c for part in parts for c in part.columns))
        for part in parts:
            # In JSON a missing column is a row without a value, not a fault.
            is_typed = part.path.suffix not in (".jsonl", ".json")
            if is_typed and set(part.columns) != set(self.columns):
                raise ValueError(
                    f"{part.path} has the columns {sorted(part.columns)}, "
                    f"{first.name} has {sorted(self.columns)}: the files of "
                    "one data set need the same"
                )
        self._ends = list(itertools.accumulate(part.size for part in parts))

    def __len__(self) -> int:
        return self._ends[-1]

    def column(self, name: str) -> list[Any]:
        """Returns one column of all rows; nothing else is read."""
        found = []
        for part in self._parts:
            with _named(part.path):
                row = part.read([name])
                found += [row(i).get(name) for i in range(part.size)]
        return found

    def take(self, indices: Iterable[int]) -> Iterator[tuple[int, Row]]:
        """Yields (index, row) in the order of the files, each row group read once."""

        def number_of(index):
            return bisect.bisect_right(self._ends, index)

        for number, group in itertools.groupby(sorted(indices), number_of):
            part = self._parts[number]
            start = self._ends[number] - part.size
            with _named(part.path):
                row = part.read(None)
            for index in group:
                yield index, row(index - start)


def open_shards(path: str | pathlib.Path) -> Shards:
    """Opens a file or a directory (or `train`, `data` in it) of .parquet, .arrow, .jsonl or .json.

    Where file names tell splits, only those of the training split are opened.

    Raises:
        ValueError: there is no such file, none of the training split, two forms, a file that cannot
            be read, other columns in another file, or no row.
    """
    path = pathlib.Path(path)
    files = _find_files(path)
    for file in files:
        lfs.refuse_pointer(file)
    suffixes = {file.suffix for file in files}
    if len(suffixes) > 1:
        raise ValueError(f"{path} has {sorted(suffixes)} files: keep one form")
    parts = [part for file in files for part in _OPEN[file.suffix](file) if part.size]
    if not parts:
        raise ValueError(f"{path} has no rows")
    return Shards(str(path), parts)


def _find_files(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the data files of the training split, by name."""
    if path.is_file() and path.suffix in _OPEN:
        return [path]
    for directory in (path / inside for inside in _INSIDE):
        files = sorted(directory.iterdir()) if directory.is_dir() else []
        files = [file for file in files if file.suffix in _OPEN]
        # A .json file without a split in its name is dataset_info.json and the like.
        files = [file for file in files if file.suffix != ".json" or sources.split_of(file)]
        if files:
            break
    else:
        raise ValueError(f"{path} is no {', '.join(_OPEN)} file or directory of them")
    splits = [sources.split_of(file) for file in files]
    if not any(splits):
        return files
    if not all(splits):
        other = files[splits.index(None)].name
        raise ValueError(
            f"{directory}: {other} is of no split, other files are: is it for training? Move "
            "it, or name it train_..."
        )
    kept = [file for file, split in zip(files, splits, strict=True) if split == "train"]
    if not kept:
        raise ValueError(
            f"{directory} has no training split, only {files[0].name} and the like: "
            "other splits are not trained on"
        )
    return kept


@contextlib.contextmanager
def _named(path: pathlib.Path) -> Iterator[None]:
    """Names the file in what pyarrow and json raise."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _parquet(path: pathlib.Path) -> list[Part]:
    from pyarrow import parquet

    with _named(path):
        file = parquet.ParquetFile(path, memory_map=True)

    def read(group, columns):
        return row_files.row_of(file.read_row_group(group, columns))

    names, groups = file.schema_arrow.names, range(file.num_row_groups)
    sizes = [file.metadata.row_group(group).num_rows for group in groups]
    return [Part(path, names, sizes[g], functools.partial(read, g)) for g in groups]


def _arrow(path: pathlib.Path) -> list[Part]:
    table = row_files.open_arrow(path)  # mapped into memory, so there is nothing to read later

    def read(columns):
        return row_files.row_of(table if columns is None else table.select(columns))

    return [Part(path, table.schema.names, len(table), read)]


def _json(path: pathlib.Path) -> list[Part]:
    """A list of objects, or an object a line; the columns are those of all rows."""
    is_lines = path.suffix == ".jsonl"
    with _named(path):
        rows = row_files.json_lines(path) if is_lines else json.loads(path.read_bytes())
    rows = rows if isinstance(rows, list) else [rows]
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"{path}: row {number} is no object: {row!r:.60}")
    names = dict.fromkeys(name for row in rows for name in row)
    return [Part(path, list(names), len(rows), lambda columns: rows.__getitem__)]


_OPEN = {".parquet": _parquet, ".arrow": _arrow, ".jsonl": _json, ".json": _json}


# ------------------------------------------------------------------------------ forms
class Form(NamedTuple):
    """One published form."""

    name: str
    columns: Sequence[str]  # names with spaces between; those of one text must all be there
    parse: Callable[[Row], list[texts.Sample]]
    id_columns: str = ""  # the first of them names a row; none: a row has no name but its number

    def read(self, row: Row) -> list[texts.Sample]:
        """Returns the questions of a row.

        Raises:
            RejectedItem: it has none that can be used; "bad_row" if values are of other types than
                the form has, a text in place of a list, say.
        """
        try:
            return self.parse(row)
        except columns.RejectedItem:
            raise
        except columns.BROKEN as error:
            raise texts.Refused("bad_row", f"no row of {self.name}: {error!s:.200}") from error


def detect(found: Sequence[str], where: str) -> Form:
    """Returns the form that has these columns.

    Raises:
        ValueError: none has.
    """
    for form in FORMS:
        if any(set(found).issuperset(names.split()) for names in form.columns):
            return form
    known = "; ".join(
        f"{form.name}: {' or '.join(', '.join(sorted(x.split())) for x in form.columns)}"
        for form in FORMS
    )
    raise ValueError(
        f"{where} has the columns {sorted(found)}, which no known form has. Known are {known}"
    )


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not columns.is_label(value) or not str(value).strip():
        raise texts.Refused("missing_field", f"{name} is {value!r:.60}, no text")
    return str(value).strip()


def _images(row: Row, name: str) -> list[Any]:
    return pictures.listed(row.get(name))


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
    if others := [text for _, text in said if not isinstance(text, str)]:
        raise texts.Refused("bad_turns", f"{others[0]!r:.60} is no text")
    shown: dict[str, Any] = {"images": _images(row, "image"), "answer_is": "turn"}
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
    answer = _text({"label": label}, "label")
    options: dict[str, Any] = {"choices": (), "tolerance": CHARTQA_TOLERANCE}
    return [texts.Sample(_text(row, "query"), answer, images, **options)]


def _scienceqa(row: Row) -> list[texts.Sample]:
    choices, answer = row.get("choices") or [], row.get("answer")
    if len(choices) < 2 or not all(isinstance(c, str) and c.strip() for c in choices):
        raise texts.Refused("bad_choices", f"choices are {choices!r:.60}")
    if not isinstance(answer, int) or not 0 <= answer < len(choices):
        detail = f"answer {answer!r} is no index of {len(choices)} choices"
        raise texts.Refused("bad_gold", detail)
    hint = " ".join((row.get("hint") or "").split())  # one line, which `texts.key` leaves out
    context = f"Context: {hint}\n" if hint else ""
    question = context + _text(row, "question")
    return [texts.Sample(question, chr(65 + answer), _images(row, "image"), tuple(choices))]


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
    """A user's row under the names of `sources.rows`: the question stays as it is written."""
    found = columns.named(row)
    more = columns.metadata("", found)
    choices = more.pop("choices", None)
    # Groups have names, also those that the file numbers.
    more |= {name: str(more[name]) for name in ("subset", "domain", "level") if name in more}
    return [
        texts.Sample(
            _text(found, "question"),
            _text(found, "answer"),
            _images(found, "images"),
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
    Form("rows of your own", ("question answer", "problem answer"), _own, "id uid"),
)
