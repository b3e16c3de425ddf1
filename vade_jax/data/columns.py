"""Reads the columns of a row, named as here or as in other projects, into the fields of an item.

Rows come from users' files, which may have been written for verl, TRL or EasyR1, or be those of MATH or
GSM8K. A row that cannot become an item raises a `RejectedItem` with the reason.
"""

import decimal
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from PIL import Image

from vade_jax.data import images, pictures
from vade_jax.rewards import answers, reading, verify
from vade_jax.rewards.values import Number, Relation

# Errors of reading a row: lines are parsed and tables decoded only when a row is read.
BROKEN = (ValueError, AttributeError, TypeError, LookupError, ArithmeticError, RecursionError)
BROKEN += (pa.ArrowException,)
_ALIASES = {"problem": "question", "image": "images", "uid": "id"}
_VERL = ("prompt", "reward_model", "extra_info", "data_source")  # columns of verl's rows
_LONGEST_UID = 200
_LONGEST_TEXT = 40  # characters; "text" (compared by spelling) is not inferred for longer answers
_OPTIONS = re.compile(r"(?:^|[\s(])A\s?[.:)]\s?\S.*[\s(]B\s?[.:)]\s?\S", re.DOTALL)


class RejectedItem(ValueError):  # noqa: N818 (it is a verdict on data rather than an error)
    """A row cannot be trained on.

    Attributes:
        uid: the id of the row.
        reason: a short code, which reports count.
        detail: the error, in words.
    """

    def __init__(self, uid: str, reason: str, detail: str):
        super().__init__(f"{uid}: {detail} [{reason}]")
        self.uid, self.reason, self.detail = uid, reason, detail


def is_label(value: Any) -> bool:
    """Returns whether a value is a text or a finite number. NaN, a table's missing value, is not."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1


# Columns that an item's metadata keep: {name: (required type, its check)}.
_METADATA = {
    **dict.fromkeys(("choices", "paraphrases", "steps"), ("a list of texts", _are_texts)),
    **dict.fromkeys(("subset", "domain", "level"), ("a text or number", is_label)),
    "tolerance": ("in 0 .. 1", _is_share),
    "ordered": ("true or false", lambda value: isinstance(value, bool)),
}
_COLUMNS = ("question", "answer", "solution", "images", "kind", "id", *_METADATA)


def is_read(name: str) -> bool:
    """Returns whether a column with this name is read, under our name or another."""
    return _ALIASES.get(name, name) in (*_COLUMNS, *_VERL) or pictures.is_column(name)


# ------------------------------------------------------------------------------ names
def named(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row under our names, without its empty columns.

    Raises:
        one of `BROKEN`: it is not a row.
    """
    row = {name: value for name, value in columns.items() if name not in _ALIASES}
    for alias, name in _ALIASES.items():  # the alias fills a column that is empty
        if alias in columns and not pictures.listed(row.get(name)):
            row[name] = columns[alias]
    if "prompt" in row and "reward_model" in row:  # of verl
        row["question"] = (row.get("extra_info") or {}).get("question")  # without an instruction
        row["answer"] = (row["reward_model"] or {}).get("ground_truth")
        row["subset"] = row.get("data_source")
    if not row.get("question") and (asked := pictures.asked(columns)[0]):
        row["question"] = asked
    row["images"] = pictures.listed(row.get("images")) or pictures.elsewhere(columns)
    return _answered({name: value for name, value in row.items() if value is not None})


def _answered(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with the final answer of a worked solution, if it has one, as `answer`.

    MATH's rows have a `solution` that ends in a box. GSM8K's have an `answer` that ends in "#### 18".
    """
    answer, boxed = row.get("answer"), _boxed(row)
    if boxed is not None and answer is None:  # "expr", because it may be any formula
        return {"kind": "expr"} | row | {"answer": boxed}
    if isinstance(answer, str) and "\n####" in answer:
        return row | {"answer": answer.rpartition("\n####")[2].strip()}
    return row


def _boxed(row: Mapping[str, Any]) -> str | None:
    """Returns the content of the box in a row's worked solution, or None."""
    solution = row.get("solution")
    return answers.extract_boxed(solution) if isinstance(solution, str) else None


# ------------------------------------------------------------------------------ the fields of an item
def id_of(row: Mapping[str, Any], default: str) -> str:
    """Returns the id of a row, or the default if it has none."""
    name = default if row.get("id") in (None, "") else row["id"]
    if not (is_label(name) and len(str(name)) <= _LONGEST_UID and str(name).isprintable()):
        raise RejectedItem(default, "bad_id", f"{name!r:.80} is not a short, plain text or number")
    return str(name)


def question_of(
    uid: str, columns: Mapping[str, Any], row: Mapping[str, Any], *, has_rules: bool
) -> str:
    """Returns the question of a row; rejects the row if a required column is empty.

    `columns` is the row as the file has it, `row` is it under our names.
    """
    for name in ("question", "answer") if has_rules else ("question",):
        if name not in row:
            detail = (
                f"the row has no {name}, or an empty one; its columns are {list(columns)!s:.200}"
            )
            raise RejectedItem(uid, "missing_field", detail)
    if not is_label(row["question"]):
        raise RejectedItem(uid, "bad_question", f"{row['question']!r:.80} is not a text")
    return str(row["question"])


def images_of(
    uid: str, columns: Mapping[str, Any], row: Mapping[str, Any], directory: pathlib.Path, root: str
) -> tuple[Image.Image, ...]:
    """Opens the images of a row without decoding them; see `pictures.image_bytes` for where they may be.

    Args:
        uid: the row's id.
        columns: the row as the file has it.
        row: the row under our names.
        directory: paths are relative to it.
        root: another directory that paths may point into; "": none.

    Raises:
        RejectedItem: an image cannot be opened, or a column that is not read holds one.
    """
    if not row["images"] and (name := pictures.unseen(columns, directory)):
        detail = f"the column {name!r:.80} holds a picture and is not read: name it images"
        raise RejectedItem(uid, "unread_image", detail)
    try:
        files = (pictures.image_bytes(image, directory, root) for image in row["images"])
        return tuple(map(images.opened, files))
    except (OSError, TypeError, ValueError) as error:
        detail = f"an image cannot be opened: {error!s:.300}"
        raise RejectedItem(uid, "bad_image", detail) from error


def metadata(uid: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the row's columns that an item's metadata keep.

    Raises:
        RejectedItem: a value has the wrong type or range.
    """
    kept = {name: row[name] for name in _METADATA if name in row}
    for name, value in kept.items():
        expected, is_good = _METADATA[name]
        if not is_good(value):
            raise RejectedItem(uid, f"bad_{name}", f"{name} {value!r:.200} is not {expected}")
    return kept


# ------------------------------------------------------------------------------ the answer
def answer_of(
    uid: str, row: Mapping[str, Any], question: str, default_kind: str
) -> tuple[str, str]:
    """Returns the answer of a row and its kind, which decides how the built-in rules compare answers.

    The kind is that in the row, else one that is certain from the answer, else the default. Without a
    default, the answer of a row with a boxed solution is a formula, as in MATH.
    """
    answer = _text(row["answer"])
    if not answer:
        raise RejectedItem(uid, "bad_answer", f"{row['answer']!r:.200} is not a text or number")
    if "kind" not in row and _may_be_an_index(answer, row.get("choices")):
        detail = (
            f"answer {answer!r:.80} may be the index of one of the choices {row['choices']!r:.200}"
        )
        fix = "write its letter, and the options into the question; or add a column kind"
        raise RejectedItem(uid, "bad_answer", f"{detail}: {fix}")
    is_math = _boxed(row) is not None
    inferred = "expr" if is_math and "\\" in answer else _infer_kind(question, answer, row)
    kind = row.get("kind") or inferred or default_kind or ("expr" if is_math else None)
    if kind not in list(verify.KINDS):  # a list, because a row's kind need not be hashable
        detail = f"answer {answer!r:.200} is of kind {kind!r:.80}"
        fix = f"add a column kind with one of {list(verify.KINDS)}, or set data.kind"
        raise RejectedItem(uid, "bad_kind", f"{detail}; {fix}")
    return answer, kind


def _text(answer: Any) -> str:
    """Returns an answer as text; "" if it is neither a text nor a number."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, decimal.Decimal) and answer.is_finite():  # from a table
        return f"{answer:f}"
    return str(answer).strip() if is_label(answer) else ""


def _may_be_an_index(answer: str, options: Any) -> bool:
    """Returns whether an answer is a number that may be the index of an option, as in ScienceQA."""
    number = _number(answer)
    if number is None or not isinstance(options, list):
        return False
    values = [x.value for x in map(_number, map(str, options)) if x]
    return 0 <= number.value <= len(options) and number.value not in values


def _number(text: str) -> Number | None:
    """Returns a text as a number, or None if it is not one. An equation such as x = 5 is not."""
    value = reading.read(text, numeric=True)
    return value if isinstance(value, Number) else None


def _infer_kind(question: str, answer: str, row: Mapping[str, Any]) -> str | None:
    """Returns the kind of an answer; None if a guess could give wrong rewards (formulas)."""
    if re.fullmatch(r"\(?[A-J]\)?", answers.plain(answer)):  # also $D$
        return "choice" if "choices" in row or _OPTIONS.search(question) else "text"
    if answer.casefold().strip(".") in ("yes", "no"):
        return "yesno"
    if (number := _number(answer)) is not None:
        is_whole = number.value.denominator == 1 and "." not in answer
        return "int" if is_whole and "tolerance" not in row else "float"
    if isinstance(reading.read(answer), Relation):
        return "expr"
    return "text" if len(answer) <= _LONGEST_TEXT and answers.is_prose(answer) else None
