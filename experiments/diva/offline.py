"""Adds two columns to a user's file with the help of a server: paraphrases and hints.

A paraphrase is kept if the server, with the images, answers it correctly. Hints come from a solution
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
from vade_jax import fields, settings
from vade_jax.data import columns, images, pictures, prompts, sources
from vade_jax.rewards import verify
from vade_jax.rollout.vllm import requests
from vade_jax.types import Item

Ask = Callable[[str, int], str]  # text, seed -> reply
_REJECT = ("index", "uid", "column", "reason", "detail")  # of rejects.jsonl
Texts = tuple[list[str], list[tuple[str, str]]]  # kept; (reason, detail) of the others


@dataclasses.dataclass(frozen=True)
class Wanted(fields.Section):
    """What to make for every row."""

    paraphrases: int = fields.number(5, at_least=0)  # at most; 0 leaves the column unchanged
    steps: int = fields.number(5, at_least=0)  # hints, at most; 0 leaves the column unchanged
    # Answers to each paraphrase, of which most must be right, and solutions that are searched for hints; 0
    # accepts all paraphrases.
    tries: int = fields.number(3, at_least=0)
    temperature: float = 0.7  # of every reply
    max_tokens: int = 2048  # of every reply

    def __post_init__(self):
        super().__post_init__()
        if not self.paraphrases + self.steps:
            raise ValueError("paraphrases=0 and steps=0 ask for nothing: raise one")


class Report(NamedTuple):
    """The outcome for a file."""

    num_rows: int  # written
    kept: collections.Counter[str]  # texts in them, by column
    rejected: collections.Counter[tuple[str, str]]  # others, by (column, or "row"; reason)

    def table(self, counts: Mapping[str, int]) -> str:
        """Returns what was kept and rejected, by reason, and `counts` of the questions asked."""
        lines = []
        for column in ("row", *variants.FIELDS):
            number = self.num_rows if column == "row" else self.kept[column]
            reasons = sorted((why, n) for (of, why), n in self.rejected.items() if of == column)
            listed = ", ".join(f"{why} {n:,}" for why, n in reasons)
            lines.append(f"{column:12} {number:>8,} kept   rejected: {listed or 'none'}")
        asked = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        return "\n".join([*lines, f"{'questions':12} {asked}"])


def replies_directory(target: str) -> pathlib.Path:
    """Returns where replies and rejects of a target are kept."""
    path = pathlib.Path(target)
    return path.with_name(f"{path.stem}_replies")


def write(source: sources.Rows, target: str, chat: Chat, requested: Wanted) -> Report:
    """Writes `target`, unless no text was kept; after a `ServerLost` a later call continues."""
    directory, folder = replies_directory(target), pathlib.Path(target).absolute().parent
    num_rows, kept, rejected = 0, collections.Counter(), collections.Counter()
    work = functools.partial(make_row, source, chat, requested, folder)
    unfinished = directory / "rows.tmp"
    # Half of a surrogate pair, which UTF-8 cannot encode, is written as JSON's escape, \ud83d.
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
    with (
        unfinished.open("w", **text) as rows,
        (directory / "rejects.jsonl").open("w", **text) as rejects,
        contextlib.closing(chat.map(work, range(len(source)))) as results,
    ):
        for index, (uid, row, reasons) in enumerate(tqdm.tqdm(results, total=len(source))):
            if row is not None:
                num_rows += 1
                for column in filter(functools.partial(getattr, requested), variants.FIELDS):
                    kept[column] += len(row[column])
                rows.write(json.dumps(row, ensure_ascii=False) + "\n")
            for reject in reasons:
                rejected[reject[:2]] += 1
                line = dict(zip(_REJECT, (index, uid, *reject), strict=True))
                rejects.write(json.dumps(line, ensure_ascii=False) + "\n")
    if kept.total():
        os.replace(unfinished, target)
    else:
        unfinished.unlink()
    return Report(num_rows, kept, rejected)


# ------------------------------------------------------------------------------ a row
def make_row(
    source: sources.Rows, chat: Chat, requested: Wanted, directory: pathlib.Path, index: int
) -> tuple[str, dict[str, Any] | None, list[tuple[str, str, str]]]:
    """Returns the id of row `index`, the row as JSON with its texts, and what was rejected.

    Paths of images become relative to `directory`. A row that cannot be used is None. A reject is a column
    ("row" for all of it), a reason and a detail.
    """
    try:
        item = source[index]
        prompts.check_answer(item)
        marks = item.question.count("<image>")
        if marks and marks != len(item.images):
            detail = f"{marks} <image> marks, {len(item.images)} images"
            raise columns.RejectedItem(item.uid, "image_count", detail)
        urls = [_shown(item, image) for image in item.images]
    except columns.RejectedItem as error:
        return error.uid, None, [("row", error.reason, error.detail)]

    def ask(text: str, seed: int) -> str:
        sampling = {"temperature": requested.temperature, "max_tokens": requested.max_tokens}
        reply = chat.ask([prompts.message(text, urls)], seed=seed, **sampling)
        return reply.rpartition("</think>")[2]  # thoughts may hold drafts

    row, rejects = portable(source, index, directory) | {"id": item.uid}, []
    for column, find in zip(variants.FIELDS, (find_paraphrases, find_steps), strict=True):
        if count := getattr(requested, column):
            row[column], others = find(item, ask, count, requested.tries)
            rejects += [(column, *why) for why in others]
    return item.uid, row, rejects


def find_paraphrases(item: Item, ask: Ask, count: int, tries: int) -> Texts:
    """Returns the wordings that are answered correctly in most of `tries`."""
    request = wordings.REPHRASE.format(question=item.question.strip(), count=count)
    try:
        texts, reasons = wordings.read_wordings(ask(request, 0), item, count)
    except Unanswered as error:
        return [], [("unanswered", str(error))]
    kept, others = [], [(reason, "") for reason in reasons]
    for text in texts:
        right = wrong = 0
        try:
            # Stops as soon as the majority is decided.
            while 2 * right <= tries and 2 * wrong < tries:
                reply = ask(wordings.SOLVE.format(question=text), right + wrong)
                is_right = verify.verify_item(reply, item).correct
                right, wrong = right + is_right, wrong + (not is_right)
        except Unanswered as error:
            others.append(("unanswered", str(error)))
            continue
        if 2 * right > tries or not tries:
            kept.append(text)
        else:
            others.append(("not_confirmed", text))
    return kept, others


def find_steps(item: Item, ask: Ask, count: int, tries: int) -> Texts:
    """Returns the hints of the first right solution among `tries` (and at least one)."""
    request = wordings.HINT.format(question=item.question.strip(), count=count)
    reason = ""
    for seed in range(max(1, tries)):
        try:
            kept, reason = wordings.read_steps(ask(request, seed), item, count)
        except Unanswered as error:
            return [], [("unanswered", str(error))]
        if kept:
            return kept, []
    return [], [(reason, "")]


def _shown(item: Item, image: Image.Image) -> str:
    """Returns a data URL of the pixels that a policy gets by default."""
    limits = {"min_pixels": settings.Data.min_pixels, "max_pixels": settings.Data.max_pixels}
    try:
        return requests.data_url(images.load(image, patch=images.PATCH, **limits))
    except ValueError as error:
        raise columns.RejectedItem(item.uid, "bad_image", str(error)) from error


def portable(source: sources.Rows, index: int, directory: pathlib.Path) -> dict[str, Any]:
    """Returns a row for JSON: image paths relative to `directory`, others and bytes as data URLs.

    Readers do not follow paths out of the file's directory. Other values become text.
    """

    def written(image: Any) -> str:
        value = pictures.inside(image)
        if isinstance(value, str) and value.startswith("data:"):
            return value
        if isinstance(value, str) and os.path.isfile(file := source.directory / value):
            path = os.path.relpath(file, directory)
            if not path.startswith(os.pardir):
                return path
        content = pictures.image_bytes(image, source.directory)
        kind = str(images.opened(content).format).lower()
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

    row = source.row(index)
    shown = columns.named(row)["images"]
    is_kept = lambda name: name in pictures.CHATS or not pictures.is_column(name)
    row = {name: value for name, value in row.items() if is_kept(name)}
    if shown:
        row["images"] = [written(image) for image in shown]
    return json.loads(json.dumps(row, default=str))
