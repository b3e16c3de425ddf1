"""Turns items into the prompts that engines and trainer see, and rejects items that cannot be used.

The checkpoint's own chat template renders the text, with one image pad per image. Each pad is then repeated
once for every merged cell of its image, and every token gets its M-RoPE position.
"""

import functools
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from vade_jax import types
from vade_jax.data import columns, images, loading, sources, tokens
from vade_jax.rewards import answers, verify

RejectedItem = columns.RejectedItem
UNREAD_MARKS = ("<video>", "<audio>")  # without that content, the question is a different one
_CHARACTERS = 100  # per token; more than in any text
_MUCH = 2  # the factor between two areas of a picture from which a note is printed
_TRIES = 3  # attempts to verify an item's own answer; a busy machine can cause timeouts


def positions(token_P: np.ndarray, grids: Sequence[tuple[int, int]], image_pad: int) -> np.ndarray:
    """Returns M-RoPE positions, int32 [P, 3]: (time, row, column) of each token.

    In text, all three axes count tokens. The cells of an image share one time; their row and column are
    added to the position of the image. The text after it continues max(rows, columns) later.

    Args:
        token_P: token ids, with one image pad per merged cell.
        grids: (rows, columns) of merged cells of each image, in order.
        image_pad: the id of the image pad.
    """
    position_PX = np.empty((len(token_P), 3), np.int32)
    pads = np.flatnonzero(np.asarray(token_P) == image_pad)
    token = position = used = 0  # the next token, its position, and the number of pads so far
    for rows, cols in grids:
        size, first = rows * cols, pads[used]
        text = np.arange(first - token)
        position_PX[token:first] = (position + text)[:, None]
        position += len(text)
        row, col = np.divmod(np.arange(size), cols)
        position_PX[first : first + size] = position + np.stack([0 * row, row, col], -1)
        position += max(rows, cols)
        token, used = first + size, used + size
    position_PX[token:] = (position + np.arange(len(token_P) - token))[:, None]
    return position_PX


class PromptBuilder:
    """Turns items into prompts; raises a `RejectedItem` with a reason for items that cannot become one.

    Args:
        tokenizer: of the checkpoint.
        instruction: a text that follows the question in the user's turn; may be empty.
        template: variables of the chat template.
        min_pixels: smallest area of a resized image; at least two merged cells.
        max_pixels: largest area of a resized image.
        max_length: length of the longest prompt in tokens, image tokens included.

    Raises:
        ValueError: impossible limits.
    """

    def __init__(
        self,
        tokenizer: tokens.Tokenizer,
        *,
        instruction: str,
        template: Mapping[str, Any] = {},
        min_pixels: int,
        max_pixels: int,
        max_length: int,
    ):
        cell = images.cell_side(tokenizer.patch)
        least = 2 * cell**2  # batching recognises an image only if it has at least two cells
        if not least <= min_pixels <= max_pixels:
            raise ValueError(
                f"data.min_pixels={min_pixels} and data.max_pixels={max_pixels}: an image has at least two "
                f"tokens of {cell} x {cell} pixels, so set {least} <= min_pixels <= max_pixels"
            )
        self.tokenizer = tokenizer
        self.max_length = max_length
        limits = {"patch": tokenizer.patch, "min_pixels": min_pixels, "max_pixels": max_pixels}
        self._load = functools.partial(images.load, **limits)
        self._template = dict(template)
        # The tag that the chat template opens for the answer, with its white space; "" without one.
        self.opening = tokenizer.opening(**template)
        # Its control tokens are kept: the author may want them, such as Qwen3's <think>.
        self._instruction = instruction.strip()

    def __call__(self, item: types.Item) -> types.Prompt:
        """Returns the prompt of `item`.

        Raises:
            RejectedItem: the item cannot become a prompt.
            ValueError: the template fails, or it has no place for the item's images.
        """
        if item.images and (why := self.tokenizer.why_no_images):
            raise ValueError(
                f"{item.uid} has {len(item.images)} images, and {why}: of a text model give data without "
                "images, else mend the template, or give another vision-language checkpoint"
            )
        text = self.tokenizer.render([self._message(item)], **self._template)
        # Rejected first, because counting the tokens of such a text would take minutes.
        if len(text) > _CHARACTERS * self.max_length or 2 * len(item.images) > self.max_length:
            raise self._too_long(item, f"{len(text):,} characters, {len(item.images)} images")
        try:
            text.encode()  # fails for a lone surrogate, which JSON can contain
        except UnicodeEncodeError as error:
            detail = f"the text is not Unicode: {error}"
            raise RejectedItem(item.uid, "bad_text", detail) from error
        try:
            pictures = [self._load(image) for image in item.images]
        except ValueError as error:
            raise RejectedItem(item.uid, "bad_image", str(error)) from error
        grids = [images.grid(picture, self.tokenizer.patch) for picture in pictures]
        short = np.asarray(self.tokenizer.encode(text), np.int32)
        is_pad = short == self.tokenizer.image_pad
        if is_pad.sum() != len(grids):
            raise ValueError(
                f"the chat template made {is_pad.sum()} image pads of {len(grids)} images; "
                "it is not a Qwen2-VL template"
            )
        repeat = np.ones(len(short), np.int64)
        repeat[is_pad] = [rows * cols for rows, cols in grids]
        if (length := int(repeat.sum())) > self.max_length:
            raise self._too_long(item, f"{length} tokens")
        token_P = np.repeat(short, repeat)
        return types.Prompt(
            uid=item.uid,
            text=text,
            token_P=token_P,
            position_PX=positions(token_P, grids, self.tokenizer.image_pad),
            images=tuple(pictures),
            patch=self.tokenizer.patch,
        )

    def target(self, answer: str, form: str) -> list[int]:
        """Returns the tokens of an answer in a form of `answers.FORMATS`, the end of the turn included.

        If the chat template opens the thoughts, the answer continues after that tag.
        """
        plain = self.tokenizer.clean(answer.encode("utf-8", "replace").decode())
        text = answers.in_form(plain, form)
        if form != "boxed":
            text = text.removeprefix(self.opening).removeprefix(self.opening.strip())
        return [*self.tokenizer.encode(text), self.tokenizer.im_end]

    def on_pictures(self, size_I4: np.ndarray) -> str:
        """Returns a note if the policy was trained on pictures of a very different size, else "".

        `size_I4` is as in `NOTE`; the picture of median area is compared.
        """
        size_I4 = size_I4[size_I4[:, 0] > 0]
        if self.tokenizer.pixels is None or not len(size_I4):
            return ""
        middle = np.argsort(size_I4[:, 0] * size_I4[:, 1], kind="stable")[len(size_I4) // 2]
        height, width, rows, cols = size_I4[middle].tolist()
        low, high = self.tokenizer.pixels
        taught = min(max(height * width, low), high)
        if taught < _MUCH * rows * cols and rows * cols < _MUCH * taught:
            return ""
        return (
            f"pictures: the median, {width} x {height}, becomes {cols} x {rows}; the policy was taught with areas "
            f"of {low} to {high} pixels: --config.data.min_pixels={low} --config.data.max_pixels={high}"
        )

    def _too_long(self, item: types.Item, length: str) -> RejectedItem:
        detail = f"{length}, the limit is max_prompt_length={self.max_length}"
        return RejectedItem(item.uid, "too_long", detail)

    def _message(self, item: types.Item) -> dict[str, Any]:
        """Returns the user's turn, with images at their "<image>" marks or, without marks, first."""
        if unread := [mark for mark in UNREAD_MARKS if mark in item.question]:
            detail = f"the question has a {unread[0]} mark: only images are read"
            raise RejectedItem(item.uid, "not_an_image", detail)
        parts = [self.tokenizer.clean(part) for part in item.question.split("<image>")]
        if not "".join(parts).strip():
            raise RejectedItem(item.uid, "empty_question", "the question has no text")
        if len(parts) == 1:
            parts = [""] * len(item.images) + parts
        if len(parts) - 1 != len(item.images):
            detail = f"{len(parts) - 1} <image> marks, {len(item.images)} images"
            raise RejectedItem(item.uid, "image_count", detail)
        parts[0], parts[-1] = parts[0].lstrip(), parts[-1].rstrip()
        if self._instruction:
            parts[-1] = f"{parts[-1]}\n{self._instruction}"
        if not item.images:  # templates of text models need a string instead of a list of parts
            return {"role": "user", "content": parts[0]}
        return _user_turn(parts, [{"type": "image"}] * len(item.images))


def message(text: str, image_urls: Sequence[str]) -> dict[str, Any]:
    """Returns a user's turn for a chat server.

    Images are at the "<image>" marks of `text` if there is one for each image, else first.
    """
    parts = text.split("<image>")
    if len(parts) - 1 != len(image_urls):
        parts = [""] * len(image_urls) + [text]
    return _user_turn(parts, [{"type": "image_url", "image_url": {"url": u}} for u in image_urls])


def _user_turn(texts: Sequence[str], pictures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns a message in which one picture follows each text except the last; leaves out empty texts."""
    content = [{"type": "text", "text": texts[0]}]
    for picture, text in zip(pictures, texts[1:], strict=True):
        content += [picture, {"type": "text", "text": text}]
    return {"role": "user", "content": [part for part in content if part.get("text", "image")]}


# ------------------------------------------------------------------------------ the audit
# What an audit records of a row that is kept.
NOTE = np.dtype(
    [
        ("checksum", np.uint32),  # of the id, question and answer
        # Checksum of all else that a verdict may depend on: kind, metadata, texts and numbers in the row.
        ("details", np.uint32),
        # Hash of the question and of its images, as the policy sees them, whatever the id.
        ("asked", np.uint64),
        ("length", np.int32),  # tokens of the row's own answer, see `target`; 0: it has none
        # Height and width of the first image, in its file and as the policy sees it; 0: it has none.
        ("size", np.int32, 4),
    ]
)


def audit(
    source: sources.Source,
    builder: PromptBuilder,
    stream: loading.Map = map,
    *,
    has_rules: bool = True,
    form: str = "boxed",
) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """Returns the indices of the rows that can be trained on, their notes, and the rejected rows.

    These are int32 [kept], `NOTE` [kept], and {"index", "uid", "reason", "detail"} of each.

    A row is kept if it can be read, its prompt can be built, its own answer verifies, and no earlier row
    has the same id. Ids must be unique because rollouts and the report name items by them.

    Args:
        source: the rows.
        builder: the run's prompt builder.
        stream: maps over the rows, for example in threads.
        has_rules: whether each row's own answer is verified. User rewards may accept answers that the
            built-in rules reject.
        form: the required form of an answer, a key of `answers.FORMATS`.
    """

    def usable(index: int) -> tuple[str, tuple[Any, ...]] | RejectedItem:
        try:
            item = source[index]
            prompt = builder(item)
            if has_rules:
                check_answer(item)
            length = len(builder.target(item.answer, form)) if item.answer else 0
            return item.uid, _note(item, prompt.images, length)
        except RejectedItem as error:
            return error

    kept: dict[str, int] = {}  # uid -> index of the row, in the order of the rows
    notes, rejects = [], []
    looked = stream(usable, range(len(source)))
    bar = tqdm.tqdm(looked, "looking through the data", len(source), delay=5, leave=False)
    for index, verdict in enumerate(bar):
        if not isinstance(verdict, RejectedItem):
            uid, note = verdict
            if uid not in kept:
                kept[uid] = index
                notes.append(note)
                continue
            verdict = RejectedItem(uid, "same_id", f"row {kept[uid]} also has this id")
        rejects.append({"index": index, **vars(verdict)})
    return np.array([*kept.values()], np.int32), np.array(notes, NOTE), rejects


def _note(item: types.Item, pictures: Sequence[np.ndarray], length: int) -> tuple[Any, ...]:
    """Returns the `NOTE` of an item with these resized images, and an answer of `length` tokens."""
    checksum = lambda text: zlib.crc32(text.encode("utf-8", "replace"))
    labels = {name: x for name, x in item.columns.items() if columns.is_label(x)}
    asked = hashlib.blake2b(item.question.encode("utf-8", "replace"), digest_size=8)
    for picture in pictures:
        asked.update(f"\n{picture.shape}".encode() + picture.tobytes())
    sizes = [(x.height, x.width, *y.shape[:2]) for x, y in zip(item.images, pictures, strict=True)]
    return (
        checksum(f"{item.uid}\n{item.question}\n{item.answer}"),
        checksum(json.dumps([item.kind, item.metadata, labels], sort_keys=True, default=str)),
        int.from_bytes(asked.digest()),
        length,
        (*sizes, (0, 0, 0, 0))[0],
    )


def check_answer(item: types.Item) -> None:
    """Raises `RejectedItem` if the verifier rejects the item's own answer, so that it cannot be solved."""
    for _ in range(_TRIES):
        try:
            verdict = verify.verify_item(f"\\boxed{{{item.answer}}}", item)
        except ValueError as error:
            raise RejectedItem(item.uid, "bad_answer", str(error)) from error
        if verdict.reason not in ("timeout", "crash"):
            break
    if not verdict.correct:
        detail = f"{item.answer!r:.200} is not a valid {item.kind} ({verdict.reason})"
        raise RejectedItem(item.uid, "bad_answer", detail)
