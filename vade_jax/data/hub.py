"""Models and data by their names on the Hugging Face hub: fetched once, pinned to a commit.

    Qwen/Qwen2.5-VL-3B-Instruct[@revision]            a model
    hiyouga/geometry3k[/config][@revision][:split]    data

What is not a directory or a file here, and looks like that, is such a name. A run pins it: its config.json
has the commit, and going on it reads the same. Files are kept in the hub's own cache (HF_HOME), so a
second run downloads nothing and needs no network. Needs the extra `hub`.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator

import pyarrow as pa

FILES = (".jsonl", ".json", ".parquet", ".arrow")  # what ends so is no name
WEIGHTS = ("*.json", "*.safetensors", "*.txt", "*.jinja")
_NAME = re.compile(
    r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:/(?P<config>\w[\w.-]*))?"
    r"(?:@(?P<revision>[^:@]+))?(?::(?P<split>\w+))?"
)


@dataclasses.dataclass(frozen=True)
class Name:
    """A model or data on the hub."""

    repo: str  # owner/name
    config: str = ""  # of data; "" is the only one, or the default
    revision: str = ""  # a branch, a tag or a commit; "" is the newest
    split: str = ""  # of data

    def __str__(self) -> str:
        marks = (("/", self.config), ("@", self.revision), (":", self.split))
        return self.repo + "".join(mark + part for mark, part in marks if part)

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return re.fullmatch("[0-9a-f]{40}", self.revision) is not None


def parse(text: str) -> Name | None:
    """Returns the name that a setting is, None for a path or a word."""
    if os.path.exists(text) or text.endswith(FILES):
        return None
    match = _NAME.fullmatch(text)
    return (
        Name(**{part: value or "" for part, value in match.groupdict().items()}) if match else None
    )


def pin(text: str, kind: str, earlier: str = "") -> str:
    """Returns a name with the commit that its revision is now; what is no name stays.

    Args:
        text: of a setting.
        kind: "model" or "dataset".
        earlier: the same setting as a run was begun with: its commit is kept.

    Raises:
        ValueError: the hub has no such thing or cannot be reached, and no copy is here.
    """
    name, before = parse(text), parse(earlier)
    if name is None or name.is_pinned:
        return text
    if before and before.is_pinned and dataclasses.replace(before, revision=name.revision) == name:
        return earlier
    snapshot = _snapshot(name, kind, ["README.md"])
    return str(dataclasses.replace(name, revision=pathlib.Path(snapshot).name))


def model(text: str) -> str:
    """Returns the directory of a model, which is fetched if it is not here; a path stays.

    Raises:
        ValueError: as `pin`.
    """
    name = parse(text)
    return text if name is None else _snapshot(name, "model", list(WEIGHTS))


def table(name: Name, split: str) -> pa.Table:
    """Returns the rows of a data set, mapped into memory; images are as they came, not decoded.

    Args:
        name: of the data.
        split: where the name has none.

    Raises:
        ValueError: as `pin`, or it has no such configuration or split.
    """
    with _one_line(name, "dataset"):
        import datasets

        rows = datasets.load_dataset(
            name.repo,
            name.config or None,
            revision=name.revision or None,
            split=name.split or split,
        )
    return rows.data.table


def cache() -> pathlib.Path:
    """Returns the directory that files of the hub are kept in."""
    from huggingface_hub import constants

    return pathlib.Path(constants.HF_HOME)


def _snapshot(name: Name, kind: str, patterns: list[str]) -> str:
    with _one_line(name, kind):
        import huggingface_hub

        return huggingface_hub.snapshot_download(
            name.repo, repo_type=kind, revision=name.revision or None, allow_patterns=patterns
        )


@contextlib.contextmanager
def _one_line(name: Name, kind: str) -> Iterator[None]:
    """Turns what the hub's libraries raise, of many classes, into a line."""
    try:
        yield
    except ImportError as error:
        raise ValueError(
            f"{name} is no path here, and a name on the Hugging Face hub needs the extra: "
            "pip install -e '.[hub]'"
        ) from error
    except Exception as error:
        found = type(error).__name__
        why = {
            "RepositoryNotFoundError": f"the hub has no such {kind}, or it is private: hf auth login",
            "GatedRepoError": "its terms must be accepted on its page, then: hf auth login",
            "RevisionNotFoundError": f"it has no revision {name.revision!r}",
            "LocalEntryNotFoundError": "the hub cannot be reached, and no copy is in its cache",
            "OfflineModeIsEnabled": "the hub is switched off, and no copy is in its cache",
            "ConnectionError": "the hub cannot be reached, and no copy is in its cache",
        }.get(found, f"{found}: {' '.join(str(error).split())}")
        raise ValueError(f"{name} is no path here, and as a name on the hub: {why}") from error
