"""Files that are there whole or not at all."""

import contextlib
import os
import pathlib
import re
import shutil
import threading
from collections.abc import Iterable, Iterator

_TEMPORARY = re.compile(r".+\.\d+-\d+\.tmp")  # a name, its process and thread


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, fsync: bool = False) -> Iterator[pathlib.Path]:
    """Yields a temporary path beside `path`, which takes its place when the block succeeds.

    Readers see the old file or the new one, never a part of it. Whatever the block raises leaves
    the old file alone.

    Args:
        path: where the file belongs; its directory is made.
        fsync: wait for the disk before the old file is given up, so that a power cut cannot leave
            an empty one. For what cannot be made again.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two processes or threads may write the same path: the last one wins, with a whole file.
    owner = f"{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f"{path.name}.{owner}.tmp")
    try:
        yield temporary
        if fsync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # still there only if the block failed


def write_text(path: str | os.PathLike[str], text: str, *, fsync: bool = False) -> None:
    """Writes a text file at once; a lone surrogate, which UTF-8 has not, becomes "?"."""
    with replacing(path, fsync=fsync) as temporary:
        temporary.write_text(text, "utf-8", errors="replace")


def remove_strays(directory: str | os.PathLike[str], replaced: Iterable[str] = ()) -> None:
    """Removes what a killed process had half-written in `directory`, when nobody writes there now.

    Files of `replacing` at any depth, and directories right there that were to replace those of the names
    `replaced`: with a dot before the name and `.new` or `.old` behind it. Where the name is a link, they lie
    beside what it points to.
    """
    for path in pathlib.Path(directory).rglob("*.tmp"):
        if _TEMPORARY.fullmatch(path.name) and path.is_file():
            path.unlink()
    for name in replaced:
        path = pathlib.Path(os.path.realpath(pathlib.Path(directory) / name))
        for end in ("new", "old"):
            stray = path.with_name(f".{path.name}.{end}")
            shutil.rmtree(stray, ignore_errors=True)
