"""Finds the pictures of a row in any of the usual columns, and reads their files.

A row's pictures are those of the first of these places that has any: `images` or `image`; numbered columns,
image_1 and so on; a column with another usual name, such as image_path; the chat. A row without pictures is
refused if another column holds one, because it would be trained on without it.
"""

import base64
import json
import math
import os
import pathlib
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from vade_jax import lfs
from vade_jax.data import images

CHATS = ("messages", "message", "conversations", "conversation", "prompt")
_MAX_FILE = 1 << 28  # most bytes of an image file
_NUMBERED = re.compile(r"(?:image|img|picture)_?([0-9]+)", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:decoded_)?(?:image|img|picture)s?(?:_?(?:path|file|file_?name|url|bytes|base64|b64)s?)?|file_name",
    re.IGNORECASE,
)
# Keys of a mapping; the first one with a value has the picture, or another mapping.
_KEYS = (
    *("bytes", "path", "image", "image_url", "url", "base64", "data", "source"),
    *("image_path", "file_name"),
)
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
_FEW = 8  # number of first values of a list that are checked for a picture


# ------------------------------------------------------------------------------ where they are
def is_empty(value: Any) -> bool:
    """Returns whether a table's value means "no image": null, NaN, "", or a struct of nulls and ""."""
    if isinstance(value, Mapping):
        return bool(value) and all(x is None or x == "" for x in value.values())
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def listed(value: Any) -> list[Any]:
    """Returns the images in a column's value, one or a list, without empty ones."""
    return [x for x in (value if isinstance(value, list) else [value]) if not is_empty(x)]


def is_column(name: str) -> bool:
    """Returns whether a column with this name may have pictures."""
    return bool(name in CHATS or _NUMBERED.fullmatch(name) or _NAMED.fullmatch(name))


def elsewhere(row: Mapping[str, Any]) -> list[Any]:
    """Returns the pictures of numbered columns, in order, else of another column, else of the chat."""
    numbers = {int(match[1]): name for name in row if (match := _NUMBERED.fullmatch(name))}
    numbered = [x for number in sorted(numbers) for x in listed(row[numbers[number]])]
    named = (listed(row[name]) for name in row if _NAMED.fullmatch(name))
    return numbered or next(filter(None, named), None) or asked(row)[1]


def asked(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Returns the text of the user's last turn in a row's chat, with <image> marks, and its pictures.

    A chat is a list of {"role", "content"} or of {"from", "value"}, or such a list as JSON, or the user's
    text alone. A content is a text, or a list of {"type": "text", "text"}, {"type": "image", "image"} and
    the like. A part may stand for a picture that is in a column, as TRL has it.

    Raises:
        ValueError: it begins like JSON and is not.
    """
    chat = next((row[name] for name in CHATS if row.get(name)), [])
    if isinstance(chat, str):
        if not chat.lstrip().startswith("[{"):
            return chat, []
        chat = json.loads(chat)
    turns = [turn for turn in chat if isinstance(turn, Mapping)] if isinstance(chat, list) else []
    users = [turn for turn in turns if (turn.get("role") or turn.get("from")) in ("user", "human")]
    content = (users[-1].get("content") or users[-1].get("value") or "") if users else ""
    parts = [content] if isinstance(content, str) else [x for x in content if x is not None]
    texts = [part.get("text") if isinstance(part, Mapping) else str(part) for part in parts]
    shown = [part for part, text in zip(parts, texts, strict=True) if text is None]
    marked = "".join("<image>" if text is None else text for text in texts)
    return marked, [part for part in shown if inside(part) is not None]


def unseen(row: Mapping[str, Any], directory: pathlib.Path) -> str | None:
    """Returns the first column of a row that holds a picture but is never read, or None."""
    others = (name for name in row if not is_column(name))
    return next((name for name in others if _is_shown(row[name], directory)), None)


def _is_shown(value: Any, directory: pathlib.Path) -> bool:
    """Returns whether a value is certainly a picture: its bytes, or a path to a file."""
    if isinstance(value, list):
        return any(_is_shown(one, directory) for one in value[:_FEW])
    value = inside(value)
    if isinstance(value, bytes):
        return images.is_picture(value)
    if not isinstance(value, str):
        return False
    if value.startswith("data:image/") or _is_base64(value):
        return True
    return value.lower().endswith(_SUFFIXES) and os.path.isfile(directory / value)


# ------------------------------------------------------------------------------ their files
def image_bytes(image: Any, directory: pathlib.Path, root: str = "") -> bytes:
    """Returns the content of an image file.

    Args:
        image: a row's value: bytes, a path or file:// URL, a data URL, base64, or a mapping that holds one of
            these under one of `_KEYS`.
        directory: paths are relative to it and may not leave it, not even through a link.
        root: another directory that paths may point into; "": none.

    Raises:
        OSError, TypeError, ValueError: there is no such file, it is outside the directories, or too large.
    """
    value = inside(image)
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{image!r:.80} is not a path, bytes, or a mapping with one of {_KEYS}")
    if value.startswith("data:") or _is_base64(value):
        return base64.b64decode("".join(value.rpartition(",")[2].split()), validate=True)
    if value.startswith("file://"):
        value = urllib.parse.unquote(urllib.parse.urlsplit(value).path)
    place = pathlib.Path(os.path.realpath(directory / value))
    allowed = [os.path.realpath(x) for x in (directory, root) if x != ""]
    if not any(map(place.is_relative_to, allowed)):
        raise ValueError(
            f"{value!r:.200} is outside the data's directory: if you trust the data, allow "
            "it with data.image_root"
        )
    if not os.path.isfile(place):  # reading a pipe or a device might never end
        raise FileNotFoundError(f"there is no file {value!r:.200}")
    if os.path.getsize(place) > _MAX_FILE:
        raise ValueError(f"{value!r:.200} has over {_MAX_FILE >> 20} MB")
    file = place.read_bytes()
    if lfs.is_pointer(file):
        raise ValueError(f"{value!r:.200} is a Git LFS pointer, not the picture: git lfs pull")
    return file


def inside(image: Any) -> Any:
    """Returns the content of a picture's mapping or {"image_url": {"url": ...}}; other values unchanged."""
    while isinstance(image, Mapping):
        image = next((image[key] for key in _KEYS if image.get(key)), None)
    return image


def _is_base64(text: str) -> bool:
    """Returns whether a text begins like an image file in base64."""
    try:
        return images.is_picture(base64.b64decode(text.lstrip()[:32], validate=True))
    except ValueError:
        return False
