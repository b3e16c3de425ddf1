"""Thumbnails for the page: from the run directory, or from the data, whose items are found by uid."""

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
DRAWN = 4096  # colors at most of an image that may be smaller as PNG
LEFT_OUT = {
    "no_picture": "have no picture",
    "not_found": "are in no data that are here and can be read",
    "differs": "are another question in the data of today",
    "unreadable": "have a picture that cannot be read",
    "budget": "did not fit",
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """One thumbnail, encoded."""

    data: bytes
    mime: str
    num_images: int  # of the item; the first is shown

    @property
    def uri(self) -> str:
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode()}"


def choose(
    asked: Mapping[str, tuple[Prompt, str]], kept: Mapping[str, Picture], find: Find, budget: int
) -> tuple[dict[str, Picture], dict[str, str]]:
    """Returns the pictures of prompts by uid, and why the others have none, a key of `LEFT_OUT`.

    Args:
        asked: prompts and their questions, by uid.
        kept: the pictures in the run directory.
        find: where those come from that are not kept.
        budget: bytes of base64 at most.
    """
    shown, missing = {}, {}
    for uid, (prompt, question) in asked.items():
        found = kept.get(uid) or _make(prompt, question, find(prompt.source))
        if isinstance(found, str):
            missing[uid] = found
        elif len(found.uri) > budget:
            missing[uid] = "budget"
        else:
            budget -= len(found.uri)
            shown[uid] = found
    return shown, missing


def notes(missing: Mapping[str, str]) -> list[str]:
    """Returns how many prompts are shown without a picture, and why."""
    counted = collections.Counter(missing.values())
    counted.pop("no_picture", None)  # nothing is missing
    why = ", ".join(f"{num} {LEFT_OUT[name]}" for name, num in counted.items())
    about = f"prompts on this page without their picture: {counted.total()} ({why})"
    return [about] if counted else []


def _make(prompt: Prompt, question: str, item: Item | None) -> Picture | str:
    if item is None:
        return "not_found"
    # The data may have changed since the run. A variant asks in other words.
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
    """Returns a gold as the run's rules read it: `of_run` has the file's own, a True or spaces around it."""
    return {"True": "yes", "False": "no"}.get(answer.strip(), answer.strip())


def thumbnail(image: Any, num_images: int = 1) -> Picture:
    """Returns an image with sides of `SIDE` pixels at most, as JPEG, or PNG where that is smaller.

    It is as the model sees it: upright, on white.
    """
    page = images.to_rgb(image)
    page.thumbnail((SIDE, SIDE))
    page.info.clear()  # a color profile may be larger than the picture
    ways: dict[str, dict[str, Any]] = {"image/jpeg": {"format": "JPEG", "quality": 80}}
    if page.getcolors(DRAWN):  # None where there are more: then PNG is never smaller
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
    """Returns the pictures kept in a run directory by uid, and what is wrong with them."""
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
    # Nothing but what `thumbnail` makes goes into the page: the file may be anybody's.
    safe = {
        uid: picture
        for uid, picture in kept.items()
        if picture.mime in ("image/png", "image/jpeg") and isinstance(picture.data, bytes)
    }
    return safe, []


def keep(workdir: PathLike, pictures: dict[str, Picture]) -> None:
    """Writes pictures into a run directory, so that the page can be made without the data."""
    import pyarrow.parquet

    rows = [{"uid": uid, **dataclasses.asdict(p)} for uid, p in pictures.items()]
    if rows:
        with atomic.replacing(pathlib.Path(workdir) / FILE) as temporary:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)


# ------------------------------------------------------------------------------ in the data
def of_run(run: Run) -> Find:
    """Returns uid -> item of the data that a run's config names, None where they are not here.

    Data of the hub are looked up in its cache alone, and only where `HF_HUB_OFFLINE` is set: a page is no
    reason to download a data set.
    """
    data: Any = run.config.get("data")
    try:
        if hub.parse(str(data["train"])) and not _hub_is_off():
            return lambda uid: None
        if data["train"] != "procedural":
            # No answer is judged here: rows need no kind that only the run's rules know.
            where: dict[str, Any] = {"split": "train", "image_root": data.get("image_root", "")}
            return finder(sources.rows(data["train"], has_rules=False, **where))
        seed, share = run.config["seed"], data.get("wrong_golds", 0.0)
        items = procedural.Procedural(seed, data["num_train"], mixture=data.get("mixture"))
        return finder(procedural.Mislabelled(items, share, seed) if share else items)
    except (ValueError, OSError, TypeError, KeyError):
        return lambda uid: None  # the page says how many pictures are missing


def _hub_is_off() -> bool:
    """Returns whether the hub's libraries use their cache alone, as they read it themselves."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def finder(items: sources.Source) -> Find:
    """Returns uid -> item, or None where no item has it or its row cannot be read.

    A uid usually ends in the item's place, so that one item is looked at; a file's own ids are read
    once, without opening an image.
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
    """Returns the places of the rows of a file that have an id of their own."""
    found: dict[str, int] = {}
    if not isinstance(items, sources.Rows):
        return found
    for place in range(len(items)):
        try:
            row = items.row(place)
            name = row.get("id", row.get("uid"))
        except columns.BROKEN:
            continue  # not an item
        if name is not None:
            found.setdefault(str(name), place)
    return found
