"""From chat messages to the prompt that the engine sees: the checkpoint's template, resized pictures.

Pictures come inside the request, as data URLs. Nothing is downloaded and no file is read.
"""

import base64
import binascii
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from experiments.serving.api_error import ApiError, bad
from vade_jax.data import images, prompts, tokens
from vade_jax.types import Prompt

ROLES = ("system", "user", "assistant")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)


class Conversation:
    """Turns messages into a prompt.

    Args:
      tokenizer: of the checkpoint.
      min_pixels, max_pixels: area limits of a resized picture, as in training.
      max_length: the longest prompt in tokens, those of pictures included.
      image_pixels: the largest area of a picture as it comes.
    """

    def __init__(
        self,
        tokenizer: tokens.Tokenizer,
        *,
        min_pixels: int,
        max_pixels: int,
        max_length: int,
        image_pixels: float,
    ):
        self._limits = {"min_pixels": min_pixels, "max_pixels": max_pixels}
        self._build = prompts.PromptBuilder(
            tokenizer, instruction="", max_length=max_length, **self._limits
        )
        self._tokenizer, self._image_pixels = tokenizer, image_pixels

    def __call__(self, messages: Sequence[Any]) -> Prompt:
        """Returns the prompt.

        Raises:
          ApiError: 400, names the message that does not do.
        """
        pictures: list[np.ndarray] = []
        turns = [
            self._turn(f"messages[{i}]", message, pictures)
            for i, message in enumerate(messages)
        ]
        try:
            return self._build.of_chat("", turns, pictures)
        except jinja2.TemplateError as error:
            message = f"messages: the checkpoint's chat template refuses them: {error}"
            raise bad("messages", message) from error
        except prompts.RejectedItem as error:
            message = f"messages: {error.detail}: shorten them, or send fewer pictures"
            raise bad("messages", message, "context_length_exceeded") from error

    # ------------------------------------------------------------------------- messages
    def _turn(self, where, message, pictures):
        """Returns a turn as templates take it, and puts its pictures behind `pictures`."""
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ROLES:
            raise bad(where, f"{where}.role={role!r}: one of {', '.join(ROLES)}")
        content = message.get("content")
        if isinstance(content, str):
            return {"role": role, "content": self._clean(where, content)}
        if not isinstance(content, list):
            raise bad(where, f"{where}.content: give a text or a list of parts")
        parts = [
            self._part(f"{where}.content[{i}]", role, part, pictures)
            for i, part in enumerate(content)
        ]
        return {"role": role, "content": parts}

    def _part(self, where, role, part, pictures):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            return {"type": "text", "text": self._clean(where, part["text"])}
        if kind != "image_url":
            message = (
                f"{where}: give {{type: text, text}} or {{type: image_url, image_url}}"
            )
            raise bad(where, message)
        if role != "user":
            raise bad(where, f"{where}: only the user's turns may have pictures")
        pictures.append(self._picture(where, part.get("image_url")))
        return {"type": "image"}

    def _clean(self, where, text):
        """Returns the text without control tokens."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise bad(where, f"{where}: no text of Unicode: {error}") from error
        return self._tokenizer.clean(text)

    # ------------------------------------------------------------------------- pictures
    def _picture(self, where, given):
        url = given.get("url") if isinstance(given, Mapping) else given
        try:
            return images.load(self._open(where, url), **self._limits)
        except ValueError as error:
            raise bad(where, f"{where}: {error}", "invalid_image") from error

    def _open(self, where, url):
        try:
            image = Image.open(io.BytesIO(_bytes(where, url)), formats=FORMATS)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            message = f"{where} cannot be read as {', '.join(FORMATS)}"
            message = f"{message}: {images.why_not(error)}"
            raise bad(where, message, "invalid_image") from error
        if image.width * image.height > self._image_pixels:
            raise ValueError(
                f"{image.width} x {image.height} pixels, the limit is "
                f"{self._image_pixels:.0f}: send a smaller picture"
            )
        return image


def _bytes(where, url) -> bytes:
    """Returns the file in a data URL; any other URL is refused."""
    if not isinstance(url, str) or not (head := _DATA_URL.match(url)):
        message = (
            f"{where}: image_url must be data:image/png;base64,... (or another picture "
            f"format), not {url!r:.80}: nothing is downloaded and no file is read"
        )
        raise ApiError(400, message, where, "invalid_image_url")
    try:
        return base64.b64decode(url[head.end() :], validate=True)
    except binascii.Error as error:
        raise bad(where, f"{where}: no base64: {error}", "invalid_image") from error
