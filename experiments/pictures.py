"""The items of a run's training data found again by uid, for the pictures of its report."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vade_jax.data import procedural, sources
from vade_jax.types import Item

Find = Callable[[str], Item | None]


def finder(items: Sequence[Item]) -> Find:
    """Returns uid -> item, or None where no item has it or its row cannot be read.

    A uid usually ends in the item's place, so that one item is looked at; a file's own ids are read
    once, without opening an image.
    """
    ids: dict[str, int] = {}

    def find(uid: str) -> Item | None:
        place = re.search(r"(\d+)$", uid)
        if place and (item := _item(items, int(place[1]))) and item.uid == uid:
            return item
        if not ids:
            ids.update(_ids(items))
        item = _item(items, ids[uid]) if uid in ids else None
        return item if item and item.uid == uid else None

    return find


def of_config(config: Mapping[str, Any]) -> Find | None:
    """Returns uid -> item of the data that a config names, None where they are not here."""
    data = config.get("data")
    if not isinstance(data, Mapping) or not isinstance(data.get("train"), str):
        return None
    try:
        return finder(_items(data, config))
    except (ValueError, OSError, TypeError, KeyError):
        return None  # the page says how many pictures are missing


def _items(data: Mapping[str, Any], config: Mapping[str, Any]) -> Sequence[Item]:
    if data["train"] != "procedural":
        return sources.rows(data["train"])
    items = procedural.Procedural(config["seed"], data["num_train"])
    share = data.get("wrong_golds", 0.0)
    return procedural.Mislabelled(items, share, config["seed"]) if share else items


def _item(items: Sequence[Item], place: int) -> Item | None:
    """Returns an item, None where the row is no item."""
    try:
        return items[place] if place < len(items) else None
    except (ValueError, OSError):
        return None


def _ids(items: Sequence[Item]) -> dict[str, int]:
    """Returns the rows of a file that have an id of their own."""
    found: dict[str, int] = {}
    if not isinstance(items, sources.Rows):
        return found
    for place in range(len(items)):
        try:
            row = items.row(place)
            name = row.get("id", row.get("uid"))
        except (json.JSONDecodeError, AttributeError):
            continue  # no item
        if name is not None:
            found.setdefault(str(name), place)
    return found
