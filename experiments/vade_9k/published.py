"""Published training data: the rows of local files, and the forms that they come in.

`open_source` reads the training split of what `sources` reads. `detect` tells a form by its columns:
LLaVA-OneVision-Data, ChartQA (HuggingFaceM4's and the original files), ScienceQA, or your own rows, as
training reads them (EasyR1's and verl's among them). A form reads a row as questions.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.vade_9k import texts
from vade_jax.data import columns, pictures, row_files, sources

Row = Mapping[str, Any]
CHARTQA_TOLERANCE = 0.05  # of its own score


class Source(NamedTuple):
    """The rows of one published data set."""

    directory: pathlib.Path  # that paths of images are relative to
    table: row_files.Table
    form: "Form"

    def read(self, index: int) -> list[texts.Sample]:
        """Returns the questions of a row.

        Raises:
            RejectedItem: it has no usable question; "bad_row" if it is broken or has values of wrong types,
                such as a text instead of a list.
        """
        try:
            return self.form.parse(self.table.read(index))
        except columns.RejectedItem:
            raise
        except columns.BROKEN as error:
            detail = f"no row of {self.form.name}: {error!s:.200}"
            raise texts.Refused("bad_row", detail) from error


def open_source(path: pathlib.Path) -> Source:
    """Opens a file, or the files of the training split in a directory; `ValueError` if it cannot."""
    files = sources.files_of(path, "train")
    table = row_files.open_files(files)
    if not table.size:
        raise ValueError(f"{path} has no rows")
    return Source(files[0].parent, table, detect(table.columns or (), str(path)))


class Form(NamedTuple):
    """One published form."""

    name: str
    columns: Sequence[str]  # names with spaces between; those of one text must all be there
    parse: Callable[[Row], list[texts.Sample]]
    id_columns: str = ""  # the first of them names a row; none: rows are numbered


def detect(columns: Sequence[str], where: str) -> Form:
    """Returns the form that has these columns; raises ValueError if none has."""
    for form in FORMS:
        if any(set(columns).issuperset(names.split()) for names in form.columns):
            return form
    known = "; ".join(f"{form.name}: {' or '.join(form.columns)}" for form in FORMS)
    raise ValueError(
        f"{where} has the columns {sorted(columns)}, which no known form has. Known are {known}"
    )


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not columns.is_label(value) or not str(value).strip():
        raise texts.Refused("missing_field", f"{name} is {value!r:.60}, no text")
    return str(value).strip()


def _llava(row: Row) -> list[texts.Sample]:
    """A sample a turn: (human, gpt) pairs about one image."""
    turns = row.get("conversations") or []
    speakers = [turn["from"] for turn in turns]
    if not turns or speakers != ["human", "gpt"] * (len(turns) // 2):
        raise texts.Refused("bad_turns", f"turns of {speakers} are not questions and answers")
    spoken = [turn["value"] or "" for turn in turns]
    if not all(isinstance(text, str) for text in spoken):
        raise texts.Refused("bad_turns", f"{spoken!r:.60} has more than texts")
    images = pictures.listed(row.get("image"))
    marks = sum(text.count("<image>") for text in spoken[::2])
    if images and marks not in (0, len(images)):
        raise texts.Refused("image_count", f"{marks} <image> marks, {len(images)} images")
    return [
        texts.Sample(texts.unmarked(question), answer, images, turn=turn, answer_is="turn")
        for turn, (question, answer) in enumerate(zip(spoken[::2], spoken[1::2], strict=True))
    ]


def _chartqa(row: Row) -> list[texts.Sample]:
    """Numbers are right within 5 % as in its score, except years, for which it also allows 5 %."""
    label = row.get("label")
    if isinstance(label, list) and len(label) != 1:
        raise texts.Refused("several_answers", f"{label!r:.60} is not one answer")
    label = label[0] if isinstance(label, list) else label
    images = pictures.listed(row.get("image")) or [f"png/{_text(row, 'imgname')}"]
    answer = _text({"label": label}, "label")
    options: dict[str, Any] = {"choices": (), "tolerance": CHARTQA_TOLERANCE}
    return [texts.Sample(_text(row, "query"), answer, images, **options)]


def _scienceqa(row: Row) -> list[texts.Sample]:
    choices, answer = row.get("choices") or [], row.get("answer")
    if len(choices) < 2 or not all(isinstance(c, str) and c.strip() for c in choices):
        raise texts.Refused("bad_choices", f"choices are {choices!r:.60}")
    if not isinstance(answer, int) or not 0 <= answer < len(choices):
        detail = f"answer {answer!r} is not an index of {len(choices)} choices"
        raise texts.Refused("bad_gold", detail)
    hint = " ".join((row.get("hint") or "").split())  # one line, which `texts.key` leaves out
    context = f"Context: {hint}\n" if hint else ""
    question = context + _text(row, "question")
    return [
        texts.Sample(question, chr(65 + answer), pictures.listed(row.get("image")), tuple(choices))
    ]


def _own(row: Row) -> list[texts.Sample]:
    """A row as training reads it: the question is unchanged."""
    row = columns.named(row)
    more = columns.metadata("", row)
    choices = more.pop("choices", None)
    # Groups have names, also those that the file numbers.
    more |= {name: str(more[name]) for name in ("subset", "domain", "level") if name in more}
    return [
        texts.Sample(
            _text(row, "question"),
            _text(row, "answer"),
            row["images"],
            tuple(choices) if choices else None,
            kind=row.get("kind"),
            tolerance=more.pop("tolerance", None),
            own_words=True,
            more=more,
        )
    ]


_OWN = ("question answer", "problem answer", "prompt reward_model")  # the last are verl's
FORMS = (
    Form("LLaVA-OneVision", ("conversations image",), _llava, "id"),
    Form("ChartQA", ("query label image", "query label imgname"), _chartqa),
    Form("ScienceQA", ("question choices answer image hint",), _scienceqa),
    Form("rows of your own", _OWN, _own, "id uid"),
)
