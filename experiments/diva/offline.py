"""Adds two columns to a user's file with the help of a server: paraphrases and hints.

A paraphrase is kept if the server, given the images, answers it with the gold. Hints come from a solution
by the server that ends in the gold. Rejected texts are listed with the reason, next to the raw replies,
which a later call reads again to continue interrupted work.
"""

import base64
import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tqdm
from PIL import Image

from experiments.diva import variants, wordings
from experiments.evals.chat import Chat, Unanswered
from vade_jax import settings
from vade_jax.data import columns, images, pictures, prompts, sources
from vade_jax.rollout.vllm import client
from vade_jax.types import Item

Ask = Callable[[str, int], str]  # text, seed -> reply
Found = tuple[list[str], list[tuple[str, str]]]  # kept; (reason, detail) of the others


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to make for every row.

    Raises:
        ValueError: a number is below 0, or nothing is wanted.
    """

    paraphrases: int = 5  # at most; 0 leaves the column as it is
    steps: int = 5  # hints, at most; 0 leaves the column as it is
    # Answers to each paraphrase, most of which have to be right, and solutions in which hints are
    # sought; 0 trusts paraphrases.
    tries: int = 3
    temperature: float = 0.7  # of every reply
    max_tokens: int = 2048  # of every reply
    max_pixels: int = settings.Data.max_pixels  # of an image that is shown

    def __post_init__(self):
        for name in ("paraphrases", "steps", "tries"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0")
        if not self.paraphrases + self.steps:
            raise ValueError("paraphrases=0 and steps=0 ask for nothing: raise one")


# ------------------------------------------------------------------------------ a file
class Report(NamedTuple):
    """What became of a file."""

    num_rows: int  # written
    kept: collections.Counter[str]  # texts in them, by column
    rejected: collections.Counter[tuple[str, str]]  # others, by (column, or "row"; reason)

    def table(self, counts: Mapping[str, int]) -> str:
        """Returns what was kept and rejected, by reason, and `counts` of the questions asked."""
        lines = []
        for column in ("row", *variants.FIELDS):
            number = self.num_rows if column == "row" else self.kept[column]
            reasons = {why: n for (of, why), n in self.rejected.items() if of == column}
            listed = ", ".join(f"{why} {n:,}" for why, n in sorted(reasons.items()))
            lines.append(f"{column:12} {number:>8,} kept   rejected: {listed or 'none'}")
        asked = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        return "\n".join([*lines, f"{'questions':12} {asked}"])


def open_source(source: str, kind: str = "") -> sources.Rows:
    """Returns the rows of a file that can be written again as JSON; `kind` is as in `sources.rows`.

    Raises:
        ValueError: it is no such file, or has columns that JSON cannot hold.
    """
    opened = sources.rows(source, kind=kind)
    for index in range(len(opened)):
        try:
            opened[index]
        except columns.RejectedItem:
            continue
        portable(opened, index, opened.directory)  # one good row stands for all
        break
    return opened


def replies_directory(target: str) -> pathlib.Path:
    """Returns where replies and rejects of a target are kept."""
    path = pathlib.Path(target)
    return path.with_name(f"{path.stem}_replies")


def write(source: sources.Rows, target: str, chat: Chat, wanted: Wanted) -> Report:
    """Writes `target`, unless not a single text was kept.

    Raises:
        ServerLost: of `chat`; a later call with its memory goes on from there.
    """
    directory, beside = replies_directory(target), pathlib.Path(target).absolute().parent
    num_rows, kept, rejected = 0, collections.Counter(), collections.Counter()
    work = functools.partial(make_row, source, chat, wanted, beside)
    building = directory / "rows.tmp"
    # Half of a surrogate pair, which UTF-8 has not, is written as JSON's own escape, \ud83d.
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
    with (
        building.open("w", **text) as rows,
        (directory / "rejects.jsonl").open("w", **text) as rejects,
        contextlib.closing(chat.map(work, range(len(source)))) as done,
    ):
        bar = tqdm.tqdm(done, total=len(source), unit=" rows")
        for index, made in enumerate(bar):
            if made.row is not None:
                num_rows += 1
                for column in filter(functools.partial(getattr, wanted), variants.FIELDS):
                    kept[column] += len(made.row[column])
                rows.write(json.dumps(made.row, ensure_ascii=False) + "\n")
            for column, reason, detail in made.rejects:
                rejected[column, reason] += 1
                why = {"column": column, "reason": reason, "detail": detail}
                line = {"index": index, "uid": made.uid, **why}
                rejects.write(json.dumps(line, ensure_ascii=False) + "\n")
    if kept.total():
        os.replace(building, target)
    else:
        building.unlink()
    return Report(num_rows, kept, rejected)


# ------------------------------------------------------------------------------ a row
class MadeRow(NamedTuple):
    """A row with its new columns."""

    uid: str
    row: dict[str, Any] | None  # as JSON; None if it cannot be used
    rejects: list[tuple[str, str, str]]  # column, or "row" for all of it; reason; detail


def make_row(
    source: sources.Rows,
    chat: Chat,
    wanted: Wanted,
    directory: pathlib.Path,
    index: int,
) -> MadeRow:
    """Returns row `index` with its texts; its images' paths become relative to `directory`."""
    try:
        item = source[index]
        prompts.check_answer(item)
        marks = item.question.count("<image>")
        if marks and marks != len(item.images):
            detail = f"{marks} <image> marks, {len(item.images)} images"
            raise columns.RejectedItem(item.uid, "image_count", detail)
        if not _is_unicode(item.question):
            raise columns.RejectedItem(item.uid, "bad_text", "the question is no Unicode")
        urls = [_shown(item, image, wanted.max_pixels) for image in item.images]
    except columns.RejectedItem as error:
        return MadeRow(error.uid, None, [("row", error.reason, error.detail)])

    def ask(text: str, seed: int) -> str:
        message = prompts.message(text, urls)
        fields = {"temperature": wanted.temperature, "max_tokens": wanted.max_tokens}
        return chat.ask([message], seed=seed, **fields)

    row, rejects = portable(source, index, directory) | {"id": item.uid}, []
    for column, find in zip(variants.FIELDS, (find_paraphrases, find_steps), strict=True):
        if count := getattr(wanted, column):
            row[column], others = find(item, ask, count, wanted.tries)
            rejects += [(column, *why) for why in others]
    return MadeRow(item.uid, row, rejects)


def find_paraphrases(item: Item, ask: Ask, count: int, tries: int) -> Found:
    """Returns the wordings whose question is answered as the gold says in most of `tries`."""
    try:
        reply = ask(wordings.rephrase(item, count), 0)
    except Unanswered as error:
        return [], [("unanswered", str(error))]
    found, reasons = wordings.read_wordings(reply, item, count)
    kept, others = [], [(reason, "") for reason in reasons]
    for text in found:
        if not _is_unicode(text):
            others.append(("bad_text", text))
            continue
        right = wrong = 0
        try:
            # No more answers than it takes to know what most of them will be.
            while 2 * right <= tries and 2 * wrong < tries:
                reply = ask(wordings.solve(text), right + wrong)
                answered = wordings.is_answered(reply, item)
                right, wrong = right + answered, wrong + (not answered)
        except Unanswered as error:
            others.append(("unanswered", str(error)))
            continue
        if 2 * right > tries or not tries:
            kept.append(text)
        else:
            others.append(("not_confirmed", text))
    return kept, others


def find_steps(item: Item, ask: Ask, count: int, tries: int) -> Found:
    """Returns the hints of the first right solution among `tries` (and at least one)."""
    text, reason = wordings.hint(item, count), ""
    for seed in range(max(1, tries)):
        try:
            kept, reason = wordings.read_steps(ask(text, seed), item, count)
        except Unanswered as error:
            return [], [("unanswered", str(error))]
        if not _is_unicode("".join(kept)):
            kept, reason = [], "bad_text"
        if kept:
            return kept, []
    return [], [(reason, "")]


def _is_unicode(text: str) -> bool:
    """Returns whether no half of a surrogate pair is in a text: a run could not make it a prompt."""
    return text == text.encode("utf-8", "replace").decode()


# ------------------------------------------------------------------------------ images
def _shown(item: Item, image: Image.Image, max_pixels: int) -> str:
    """Returns a data URL of the pixels that a policy with the same limit gets."""
    try:
        pixels = images.load(
            image, patch=images.PATCH, min_pixels=settings.Data.min_pixels, max_pixels=max_pixels
        )
    except ValueError as error:
        raise columns.RejectedItem(item.uid, "bad_image", str(error)) from error
    return client.data_url(pixels)


def portable(source: sources.Rows, index: int, directory: pathlib.Path) -> dict[str, Any]:
    """Returns a row as JSON holds it: image paths relative to `directory`, others and bytes as data URLs.

    A reader does not follow a path out of the directory of its file. Dates and decimals become text.

    Raises:
        ValueError: a column has bytes besides the images.
    """

    def written(image: Any) -> str:
        value = pictures.inside(image)
        if isinstance(value, str) and value.startswith("data:"):
            return value
        if isinstance(value, str) and os.path.isfile(
            place := os.path.join(source.directory, value)
        ):
            path = os.path.relpath(place, directory)
            if not path.startswith(os.pardir):
                return path
        file = pictures.image_bytes(image, source.directory)
        kind = str(images.opened(file).format).lower()
        return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"

    def as_text(value):
        if isinstance(value, bytes):
            raise TypeError("it has bytes besides its images: leave that column out")
        return str(value)

    row = dict(source.row(index))
    shown = columns.named(row)["images"]
    for name in filter(pictures.is_column, list(row)):
        if name not in pictures.CHATS:
            del row[name]
    if shown:
        row["images"] = [written(image) for image in shown]
    try:
        return json.loads(json.dumps(row, default=as_text))
    except TypeError as error:
        raise ValueError(f"row {index} of the source: {error}") from error
