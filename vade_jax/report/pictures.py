"""Thumbnails for the page, from the run directory, or from the data, where items are found by uid."""

import base64
import collections
import dataclasses
import functools
import io
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from vade_jax import atomic
from vade_jax.data import columns, hub, images, procedural, sources
from vade_jax.report.run import Prompt, Run
from vade_jax.types import Item, PathLike

Find = Callable[[str], Item | None]

FILE = "pictures.parquet"
SIDE = 320  # pixels of the longer side, at most
DRAWN = 4096  # colors; an image with more is never tried as PNG
LEFT_OUT = {
    "no_picture": "have no picture",
    "not_found": "are not in the data, or the data cannot be read",
    "differs": "have another question in the data now",
    "unreadable": "have a picture that cannot be read",
    "budget": "did not fit",
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """One thumbnail, encoded."""

    data: bytes
    mime: str
    num_images: int  # images of the item; the first is shown

    @property
    def uri(self) -> str:
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode()}"


def choose(
    asked: Mapping[str, tuple[Prompt, str]], kept: Mapping[str, Picture], find: Find, budget: int
) -> tuple[dict[str, Picture], dict[str, str]]:
    """Returns pictures by uid, and for each uid without one the reason, a key of `LEFT_OUT`.

    Args:
        asked: prompts and their questions, by uid.
        kept: the pictures in the run directory.
        find: finds the item of a prompt without a kept picture.
        budget: bytes of base64, at most.
    """
    shown, missing = {}, {}
    for uid, (prompt, question) in asked.items():
        picture = kept.get(uid) or _make(prompt, question, find(prompt.source))
        if isinstance(picture, str):
            missing[uid] = picture
        elif len(picture.uri) > budget:
            missing[uid] = "budget"
        else:
            budget -= len(picture.uri)
            shown[uid] = picture
    return shown, missing


def notes(missing: Mapping[str, str]) -> list[str]:
    """Returns a note on how many prompts are shown without their picture, and why; [] if none is."""
    counted = collections.Counter(missing.values())
    counted.pop("no_picture", None)  # nothing is missing
    why = ", ".join(f"{num} {LEFT_OUT[name]}" for name, num in counted.items())
    about = f"prompts on this page without their picture: {counted.total()} ({why})"
    return [about] if counted else []


def _make(prompt: Prompt, question: str, item: Item | None) -> Picture | str:
    if item is None:
        return "not_found"
    # The data may have changed since the run: question and gold must still match. A variant's question
    # is worded differently, so it is not compared.
    asked = " ".join(item.question.replace("<image>", " ").split())
    is_asked = prompt.variant or asked in " ".join(question.split())
    if _as_read(item.answer) != _as_read(prompt.gold) or not is_asked:
        return "differs"
    if not item.images:
        return "no_picture"
    try:
        return thumbnail(item.images[0], len(item.images))
    except Exception:  # decoders raise OSError, SyntaxError, struct.error, ...
        return "unreadable"


def _as_read(answer: str) -> str:
    """Returns a gold as the run's rules read it: the rows of `of_run` may have True, or spaces around it."""
    return {"True": "yes", "False": "no"}.get(answer.strip(), answer.strip())


def thumbnail(image: Any, num_images: int = 1) -> Picture:
    """Returns an image with sides of at most `SIDE` pixels, as JPEG, or as PNG if that is smaller.

    The image is as the model sees it: upright, on white.
    """
    page = images.to_rgb(image)
    page.thumbnail((SIDE, SIDE))
    page.info.clear()  # a color profile may be larger than the picture
    ways: dict[str, dict[str, Any]] = {"image/jpeg": {"format": "JPEG", "quality": 80}}
    if page.getcolors(DRAWN):  # None if there are more: PNG is then never smaller
        ways["image/png"] = {"format": "PNG"}
    encoded = {}
    for mime, options in ways.items():
        buffer = io.BytesIO()
        page.save(buffer, optimize=True, **options)
        encoded[mime] = buffer.getvalue()
    mime = min(encoded, key=lambda mime: len(encoded[mime]))
    return Picture(encoded[mime], mime, num_images)


# ------------------------------------------------------------------------------ in the run directory
def read(workdir: PathLike) -> tuple[dict[str, Picture], list[str]]:
    """Returns the pictures kept in a run directory, by uid, and notes on what cannot be read."""
    import pyarrow
    import pyarrow.parquet

    path = pathlib.Path(workdir) / FILE
    if not path.is_file():
        return {}, []
    try:
        rows = pyarrow.parquet.ParquetFile(path).read().to_pylist()
        kept = {row.pop("uid"): Picture(**row) for row in rows}
    except (pyarrow.ArrowException, OSError, TypeError, KeyError) as error:
        return {}, [f"{FILE} cannot be read: {str(error).splitlines()[0]}"]
    # The file is not trusted: only what `thumbnail` can make goes into the page.
    safe = {
        uid: picture
        for uid, picture in kept.items()
        if picture.mime in ("image/png", "image/jpeg") and isinstance(picture.data, bytes)
    }
    return safe, []


def keep(workdir: PathLike, pictures: dict[str, Picture]) -> None:
    """Writes pictures into a run directory, so that the page can be made again without the data."""
    import pyarrow.parquet

    rows = [{"uid": uid, **dataclasses.asdict(p)} for uid, p in pictures.items()]
    if rows:
        with atomic.replacing(pathlib.Path(workdir) / FILE) as temporary:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)


# ------------------------------------------------------------------------------ in the data
def of_run(run: Run) -> Find:
    """Returns uid -> item, from the data in a run's config; always None if they are missing.

    Data of the hub are read only from its cache, and only if `HF_HUB_OFFLINE` is set: making a page must
    not download a data set, nor run the code that a stranger's run directory names.
    """
    data: Any = run.config.get("data")
    try:
        if ".py:" in data["train"] or (hub.parse(str(data["train"])) and not _hub_is_off()):
            return lambda uid: None
        if data["train"] != "procedural":
            # No answer is judged here, so a row may lack an answer, or have one of an unknown kind.
            where: dict[str, Any] = {"split": "train", "image_root": data.get("image_root", "")}
            return finder(sources.rows(data["train"], has_rules=False, **where))
        seed, share = run.config["seed"], data.get("wrong_golds", 0.0)
        size, mixture = data["num_train"], data.get("mixture")
        return finder(procedural.Procedural(seed, size, "train", mixture, share))
    except (ValueError, OSError, TypeError, KeyError):
        return lambda uid: None  # the page says how many pictures are missing


def _hub_is_off() -> bool:
    """Returns whether the hub's libraries use only their cache; reads the variable as they do."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def finder(items: sources.Source) -> Find:
    """Returns uid -> item; None if no item has the uid or its row cannot be read.

    A uid usually ends in the item's index, and then a single item is read. Otherwise the ids in the file
    are read, once, without opening an image.
    """
    ids = functools.cache(lambda: _ids(items))

    def read(place: int | None) -> Item | None:
        try:
            return items[place] if place is not None and place < len(items) else None
        except (ValueError, OSError):
            return None

    def find(uid: str) -> Item | None:
        place = re.search(r"(\d+)$", uid)
        item = read(int(place[1])) if place else None
        if item is None or item.uid != uid:
            item = read(ids().get(uid))
        return item if item and item.uid == uid else None

    return find


def _ids(items: sources.Source) -> dict[str, int]:
    """Returns the indices of a file's rows by id, for rows that have one."""
    by_id: dict[str, int] = {}
    if not isinstance(items, sources.Rows):
        return by_id
    for place in range(len(items)):
        try:
            row = items.row(place)
            name = row.get("id", row.get("uid"))
        except columns.BROKEN:
            continue  # not an item
        if name is not None:
            by_id.setdefault(str(name), place)
    return by_id
