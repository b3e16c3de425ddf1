"""Fetches models and data sets by their names on the Hugging Face hub.

    Qwen/Qwen2.5-VL-3B-Instruct[@revision]            a model
    hiyouga/geometry3k[/config][@revision][:split]    a data set

A setting of this form is a name on the hub, unless a file or directory of this name exists. Without a
revision it is the newest commit. Files are kept in the hub's own cache (HF_HOME).
"""

import dataclasses
import os
import pathlib
import re
from typing import Any

from vade_jax.data import row_files

WEIGHTS = ("*.json", "*.safetensors", "*.txt", "*.jinja")
_NAME = re.compile(
    r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:/(?P<config>\w[\w.-]*))?"
    r"(?:@(?P<revision>[^:@]+))?(?::(?P<split>\w+))?"
)


@dataclasses.dataclass(frozen=True)
class Name:
    """The name of a model or a data set on the hub."""

    repo: str  # owner/name
    config: str = ""  # of a data set; "": the only one, or the default
    revision: str = ""  # a branch, a tag or a commit; "": the newest commit
    split: str = ""  # of a data set

    def __str__(self) -> str:
        marks = (("/", self.config), ("@", self.revision), (":", self.split))
        return self.repo + "".join(mark + part for mark, part in marks if part)


def parse(text: str) -> Name | None:
    """Returns a setting as a name on the hub; None if it is a path or a plain word."""
    if os.path.exists(text) or row_files.format_of(pathlib.Path(text)):
        return None
    match = _NAME.fullmatch(text)
    return match and Name(**match.groupdict(""))


def model(text: str) -> str:
    """Returns the directory of a model, and downloads it if needed; a path is returned unchanged.

    Raises:
        ValueError: the hub does not have the name, or cannot be reached and no copy is in its cache.
    """
    name = parse(text)
    return text if name is None else _snapshot(name, "model", list(WEIGHTS))


def table(name: Name, split: str) -> row_files.Table:
    """Returns the rows of a data set, of `split` if the name has none; images are not decoded.

    Raises:
        ValueError: as in `model`, or the data set has no such configuration or split.
    """
    with row_files.one_line(_label(name)):
        import datasets

        options: dict[str, Any] = {"revision": name.revision or None, "split": name.split or split}
        rows = datasets.load_dataset(name.repo, name.config or None, **options)
        return row_files.of_table(rows.data.table)


def cache() -> pathlib.Path:
    """Returns the directory of the hub's cache."""
    from huggingface_hub import constants

    return pathlib.Path(constants.HF_HOME)


def _snapshot(name: Name, kind: str, patterns: list[str]) -> str:
    with row_files.one_line(_label(name)):
        import huggingface_hub

        return huggingface_hub.snapshot_download(
            name.repo, repo_type=kind, revision=name.revision or None, allow_patterns=patterns
        )


def _label(name: Name) -> str:
    return f"{name} is not a path here, and as a name on the hub it"
