"""The forms in which training data are published, told apart by their columns.

LLaVA-OneVision-Data, ChartQA (HuggingFaceM4's and the original files), ScienceQA, verl's parquet, and
rows of one's own (EasyR1's among them).
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vade_jax.data import questions, sources
from vade_jax.data.normalise import Refused, Sample

CHARTQA_TOLERANCE = 0.05  # of its own score
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Schema:
    """One published form.

    Attributes:
      name: of the form.
      columns: sets of column names; one of them must be there whole.
      read: row -> its questions; raises `Refused`.
      id_column: that names a row; None: rows have no name but their number.
    """

    name: str
    columns: Sequence[frozenset[str]]
    read: Callable[[Row], list[Sample]]
    id_column: str | None = None


def detect(columns: Sequence[str], where: str) -> Schema:
    """Returns the form that has these columns.

    Raises:
      ValueError: none has.
    """
    for schema in SCHEMAS:
        if any(form <= set(columns) for form in schema.columns):
            return schema
    known = "; ".join(
        f"{s.name}: {' or '.join(', '.join(sorted(f)) for f in s.columns)}"
        for s in SCHEMAS
    )
    raise ValueError(
        f"{where} has the columns {sorted(columns)}, which no known form has. Known are "
        f"{known}"
    )


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not sources.is_label(value) or not str(value).strip():
        raise Refused("missing_field", f"{name} is {value!r:.60}, no text")
    return str(value).strip()


def _images(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    value = value if isinstance(value, list) else [value]
    return [image for image in value if image is not None]


def _unmarked(texts: Sequence[str], images: Sequence[Any]) -> list[str]:
    """Returns texts without marks; if there are any, there must be one an image."""
    marks = sum(text.count("<image>") for text in texts)
    if images and marks not in (0, len(images)):
        raise Refused("image_count", f"{marks} <image> marks, {len(images)} images")
    return [questions.unmarked(text) for text in texts]


# ------------------------------------------------------------------------------ each form
def _llava(row: Row) -> list[Sample]:
    """A sample a turn: (human, gpt) pairs about one image."""
    turns = row.get("conversations") or []
    try:
        said = [(turn["from"], turn["value"] or "") for turn in turns]
    except (TypeError, KeyError) as error:
        raise Refused("bad_turns", f"no from and value in {turns!r:.60}") from error
    speakers = [who for who, _ in said]
    if not said or speakers != ["human", "gpt"] * (len(said) // 2):
        raise Refused("bad_turns", f"turns of {speakers} are no questions and answers")
    images = _images(row, "image")
    questions = _unmarked([text for _, text in said[::2]], images)
    pairs = zip(questions, said[1::2], strict=True)
    return [
        Sample(
            question=question, answer=answer, images=images, turn=turn, answer_is="turn"
        )
        for turn, (question, (_, answer)) in enumerate(pairs)
    ]


def _chartqa(row: Row) -> list[Sample]:
    """Numbers are right within 5 % as in its score; years, which it forgives too, are not."""
    label = row.get("label")
    if isinstance(label, list) and len(label) != 1:
        raise Refused("several_answers", f"{label!r:.60} is not one answer")
    label = label[0] if isinstance(label, list) else label
    images = _images(row, "image") or [f"png/{_text(row, 'imgname')}"]
    return [
        Sample(
            question=_text(row, "query"),
            answer=_text({"label": label}, "label"),
            images=images,
            choices=(),
            tolerance=CHARTQA_TOLERANCE,
        )
    ]


def _scienceqa(row: Row) -> list[Sample]:
    choices, answer = row.get("choices") or [], row.get("answer")
    if len(choices) < 2 or not all(isinstance(c, str) and c.strip() for c in choices):
        raise Refused("bad_choices", f"choices are {choices!r:.60}")
    if not isinstance(answer, int) or not 0 <= answer < len(choices):
        detail = f"answer {answer!r} is no index of {len(choices)} choices"
        raise Refused("bad_gold", detail)
    hint = (row.get("hint") or "").strip()
    context = f"Context: {hint}\n" if hint else ""
    return [
        Sample(
            question=context + _text(row, "question"),
            answer=chr(65 + answer),
            images=_images(row, "image"),
            choices=tuple(choices),
        )
    ]


def _verl(row: Row) -> list[Sample]:
    """The user's turn; a run has its own instruction, so a system turn is left out."""
    turns = [t for t in row.get("prompt") or [] if t.get("role") != "system"]
    if [turn.get("role") for turn in turns] != ["user"]:
        raise Refused("bad_turns", f"{len(turns)} turns are not one question")
    truth = (row.get("reward_model") or {}).get("ground_truth")
    images = _images(row, "images")
    (question,) = _unmarked([_text(turns[0], "content")], images)
    answer = _text({"ground_truth": truth}, "ground_truth")
    return [Sample(question=question, answer=answer, images=images)]


def _own(row: Row) -> list[Sample]:
    """A user's row, as `sources.rows` reads it: the question stays as it is written."""
    found = {k: v for k, v in row.items() if v is not None}
    question = "question" if "question" in found else "problem"
    try:
        more = sources.metadata("", found)
    except sources.RejectedItem as rejected:
        raise Refused(rejected.reason, rejected.detail) from rejected
    choices = more.pop("choices", None)
    return [
        Sample(
            question=_text(found, question),
            answer=_text(found, "answer"),
            images=_images(found, "images" if "images" in found else "image"),
            choices=tuple(choices) if choices else None,
            kind=found.get("kind"),
            tolerance=more.pop("tolerance", None),
            own_words=True,
            more=more,
        )
    ]


def digest_text(sample: Sample) -> str:
    """Returns the texts of a sample in one, the same for the same sample."""
    return json.dumps([sample.question, sample.answer, list(sample.choices or ())])


SCHEMAS = (
    Schema("LLaVA-OneVision", (frozenset({"conversations", "image"}),), _llava, "id"),
    Schema(
        "ChartQA",
        (
            frozenset({"query", "label", "image"}),
            frozenset({"query", "label", "imgname"}),
        ),
        _chartqa,
    ),
    Schema(
        "ScienceQA",
        (frozenset({"question", "choices", "answer", "image", "hint"}),),
        _scienceqa,
    ),
    Schema("verl", (frozenset({"prompt", "reward_model", "images"}),), _verl),
    Schema(
        "rows of your own",
        (frozenset({"question", "answer"}), frozenset({"problem", "answer"})),
        _own,
        "id",
    ),
)
