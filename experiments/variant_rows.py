"""One row of a user's data: its other wordings and hints from a server, and itself as JSON."""

import base64
import dataclasses
import functools
import io
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image

from vade_jax.data import images, sources, wordings
from vade_jax.evals.chat import Chat, Unanswered
from vade_jax.rewards import verify
from vade_jax.rollout import vllm_requests
from vade_jax.types import Item

COLUMNS = ("paraphrases", "steps")
_MIN_PIXELS = 3136  # of an image that is shown
Ask = Callable[[str, int], str]  # text, seed -> reply
Found = tuple[list[str], list[tuple[str, str]]]  # kept; (reason, detail) of the others


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is made of every row.

    Attributes:
      paraphrases, steps: at most so many; 0 leaves the column as it is.
      tries: answers to each paraphrase, most of which have to be right, and solutions that hints are
        sought in; 0 trusts paraphrases.
      temperature, max_tokens: of every reply.
      max_pixels: of an image that is shown.

    Raises:
      ValueError: a number is below 0, or nothing is wanted.
    """

    paraphrases: int = 5
    steps: int = 5
    tries: int = 3
    temperature: float = 0.7
    max_tokens: int = 2048
    max_pixels: int = 1003520

    def __post_init__(self):
        for name in ("paraphrases", "steps", "tries"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0")
        if not self.paraphrases + self.steps:
            raise ValueError("paraphrases=0 and steps=0 ask for nothing: raise one")


@dataclasses.dataclass(frozen=True)
class Made:
    """A row with its variants.

    Attributes:
      uid: of the row.
      row: as JSON; None if it cannot be used.
      rejects: (column, or "row" for all of it; reason; detail).
    """

    uid: str
    row: dict[str, Any] | None
    rejects: list[tuple[str, str, str]]


def make(
    source: sources.Rows,
    chat: Chat,
    wanted: Wanted,
    directory: pathlib.Path,
    index: int,
) -> Made:
    """Returns row `index` with its variants; its images' paths become relative to `directory`."""
    try:
        item = source[index]
        _check(item)
        urls = [_shown(item, image, wanted.max_pixels) for image in item.images]
    except sources.RejectedItem as error:
        return Made(error.uid, None, [("row", error.reason, error.detail)])
    fields = {"temperature": wanted.temperature, "max_tokens": wanted.max_tokens}
    ask = functools.partial(_ask, chat, urls, fields)
    row, rejects = portable(source, index, directory) | {"id": item.uid}, []
    for column, find in zip(COLUMNS, (paraphrases, steps), strict=True):
        if getattr(wanted, column):
            row[column], others = find(item, ask, getattr(wanted, column), wanted.tries)
            rejects += [(column, *why) for why in others]
    return Made(item.uid, row, rejects)


def _ask(chat, urls, fields, text, seed):
    return chat.ask([wordings.message(text, urls)], seed=seed, **fields)


def _check(item):
    """Rejects an item that nothing can be verified of."""
    verdict = verify.verify_item(f"\\boxed{{{item.answer}}}", item)
    if not verdict.correct:
        detail = f"{item.answer!r} is no {item.kind} answer ({verdict.reason})"
        raise sources.RejectedItem(item.uid, "bad_answer", detail)
    marks = item.question.count("<image>")
    if marks and marks != len(item.images):
        detail = f"{marks} <image> marks, {len(item.images)} images"
        raise sources.RejectedItem(item.uid, "image_count", detail)


# ------------------------------------------------------------------------------ variants
def paraphrases(item: Item, ask: Ask, count: int, tries: int) -> Found:
    """Returns the wordings whose question is answered as the gold says in most of `tries`."""
    try:
        reply = ask(wordings.rephrase(item, count), 0)
    except Unanswered as error:
        return [], [("unanswered", str(error))]
    found, reasons = wordings.read_wordings(reply, item, count)
    kept, others = [], [(reason, "") for reason in reasons]
    for text in found:
        try:
            if _is_confirmed(text, item, ask, tries):
                kept.append(text)
            else:
                others.append(("not_confirmed", text))
        except Unanswered as error:
            others.append(("unanswered", str(error)))
    return kept, others


def _is_confirmed(text, item, ask, tries) -> bool:
    """Asks no more often than it takes to know."""
    right = wrong = 0
    while 2 * right <= tries and 2 * wrong < tries:
        answered = wordings.is_answered(ask(wordings.solve(text), right + wrong), item)
        right, wrong = right + answered, wrong + (not answered)
    return 2 * right > tries or not tries


def steps(item: Item, ask: Ask, count: int, tries: int) -> Found:
    """Returns the hints of the first solution that is right, of `tries` (and of one at least)."""
    text, reason = wordings.hint(item, count), ""
    for seed in range(max(1, tries)):
        try:
            kept, reason = wordings.read_steps(ask(text, seed), item, count)
        except Unanswered as error:
            return [], [("unanswered", str(error))]
        if kept:
            return kept, []
    return [], [(reason, "")]


# ------------------------------------------------------------------------------ images
def _shown(item, image, max_pixels) -> str:
    """Returns the pixels that a policy with the same limit gets."""
    try:
        pixels = images.load(image, min_pixels=_MIN_PIXELS, max_pixels=max_pixels)
    except ValueError as error:
        raise sources.RejectedItem(item.uid, "bad_image", str(error)) from error
    return vllm_requests.data_url(pixels)


def portable(
    source: sources.Rows, index: int, directory: pathlib.Path
) -> dict[str, Any]:
    """Returns a row as JSON holds it: paths relative to `directory`, bytes as data URLs.

    Raises:
      ValueError: a column has what JSON cannot hold.
    """
    row = dict(source.row(index))
    for name in ("image", "images"):
        if row.get(name) is not None:
            found = row[name] if isinstance(row[name], list) else [row[name]]
            row[name] = [
                _written(image, source.directory, directory) for image in found
            ]
    try:
        return json.loads(json.dumps(row, default=_as_text))
    except TypeError as error:
        raise ValueError(f"row {index} of the source: {error}") from error


def _written(image, old, new):
    if isinstance(image, Mapping):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes):
        kind = Image.open(io.BytesIO(image)).format.lower()
        return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    if image.startswith("data:") or os.path.isabs(image):
        return image
    return os.path.relpath(os.path.join(old, image), new)


def _as_text(value):
    """Dates and decimals become text."""
    if isinstance(value, bytes):
        raise TypeError("it has bytes besides its images: leave that column out")
    return str(value)
