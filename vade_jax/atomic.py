"""Atomic writes: a file is complete or does not exist."""

import contextlib
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary path in the same directory; when the block succeeds, it replaces `path`.

    Readers see the old file or the new one, never a part of it. If the block raises, the old file stays
    as it was. The directory of `path` is made if needed.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two processes or threads may write the same path: the last one wins, and its file is complete.
    owner = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f"{path.name}.{owner}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:  # else a power cut could leave an empty file
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # still there only if the block failed


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file atomically; a lone surrogate, which UTF-8 cannot encode, becomes "?"."""
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8", errors="replace")


@contextlib.contextmanager
def replacing_directory(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a new directory next to `path`, which it replaces when the block succeeds.

    Only one process may write the directory. A reader may find no directory for a moment, but never a
    partial one. If `path` is a link, its target is replaced.
    """
    path = pathlib.Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Fixed names, so that the next call finds what a killed process left.
    fresh, old = (path.with_name(f".{path.name}.{end}") for end in ("new", "old"))
    for stray in (fresh, old):
        shutil.rmtree(stray, ignore_errors=True)
    fresh.mkdir()
    try:
        yield fresh
        # Two renames, because a directory cannot replace one that is not empty.
        if path.exists():
            path.rename(old)
            fresh.rename(path)
            shutil.rmtree(old)
        else:
            fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def remove_strays(directory: str | os.PathLike[str]) -> None:
    """Removes the temporary files of `replacing` that a killed process left directly in `directory`.

    No process may be writing there. What `replacing_directory` left is removed by its next call.
    """
    for path in pathlib.Path(directory).glob("*.[0-9]*-[0-9]*.tmp"):
        path.unlink()
