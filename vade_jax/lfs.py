"""Recognises the pointers that Git leaves where the large files of a repository were not fetched."""

import os

_HEAD = b"version https://git-lfs.github.com/spec/"


def is_pointer(content: bytes) -> bool:
    """Returns whether the first bytes of a file are those of a Git LFS pointer."""
    return content.startswith(_HEAD)


def refuse_pointer(path: str | os.PathLike[str]) -> None:
    """Raises ValueError if a file is a Git LFS pointer; a missing file is not checked."""
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        if is_pointer(file.read(len(_HEAD))):
            raise ValueError(f"{path} is a Git LFS pointer, not the file: git lfs pull")
