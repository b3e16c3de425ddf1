"""Fetches models and data sets by their names on the Hugging Face hub.

    Qwen/Qwen2.5-VL-3B-Instruct[@revision]            a model
    hiyouga/geometry3k[/config][@revision][:split]    a data set

A setting of this form is a name on the hub, unless a file or directory of this name exists. Without a
revision it is the newest commit. Files are kept in the hub's own cache (HF_HOME).
"""

import os
import pathlib
import re
from typing import NamedTuple

from vade_jax.data import row_files

_WEIGHTS = ["*.json", "*.safetensors", "*.txt", "*.jinja"]
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:/(\w[\w.-]*))?(?:@([^:@]+))?(?::(\w+))?")


class Name(NamedTuple):
    """The name of a model or a data set on the hub."""

    repo: str  # owner/name
    config: str | None  # of a data set; None: the only one, or the default
    revision: str | None  # a branch, a tag or a commit; None: the newest commit
    split: str | None  # of a data set


def parse(text: str) -> Name | None:
    """Returns a setting as a name on the hub; None if it is a path or a plain word."""
    if os.path.exists(text) or row_files.format_of(pathlib.Path(text)):
        return None
    match = _NAME.fullmatch(text)
    return match and Name(*match.groups())


def model(text: str) -> str:
    """Returns the directory of a model, and downloads it if needed; a path is returned unchanged.

    Raises:
        ValueError: the hub does not have the name, or cannot be reached and no copy is in its cache.
    """
    if (name := parse(text)) is None:
        return text
    with row_files.one_line(_label(text)):
        import huggingface_hub

        return huggingface_hub.snapshot_download(
            name.repo, revision=name.revision, allow_patterns=_WEIGHTS
        )


def table(name: Name, split: str) -> tuple[row_files.Table, pathlib.Path]:
    """Returns the rows of a data set, of `split` if the name has none, and the hub's cache.

    Images are not decoded; their paths lead to the cache.

    Raises:
        ValueError: as in `model`, or the data set has no such configuration or split.
    """
    with row_files.one_line(_label(name.repo)):
        import datasets
        from huggingface_hub import constants

        split = name.split or split
        rows = datasets.load_dataset(name.repo, name.config, revision=name.revision, split=split)
        return row_files.of_table(rows.data.table), pathlib.Path(constants.HF_HOME)


def _label(text: str) -> str:
    return f"{text} is not a path here, and as a name on the hub it"
