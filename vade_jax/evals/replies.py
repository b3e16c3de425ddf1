"""A file of a server's replies, found again by the hash of what was asked."""

import hashlib
import io
import json
import os
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

_LONGEST = 200  # characters of a data URL that is kept as it is


def key(request: Mapping[str, Any]) -> str:
    """Returns the hash of a request's content, whatever the order of its fields."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Replies:
    """Raw replies, one JSON line each: {"key", "request", "reply"}.

    A line is appended at once, so a process that is killed has lost at most the one it was writing.
    Images inside requests are replaced by their hash. Threads may share it.

    Args:
        path: of the file; it is made, and so is its directory.

    Attributes:
        damaged: lines that cannot be read; what they answered is asked again.
    """

    def __init__(self, path: str | os.PathLike):
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._lock = threading.Lock()
        self._place: dict[str, tuple[int, int]] = {}
        self.damaged = 0
        self._index()

    def __len__(self) -> int:
        return len(self._place)

    def get(self, key: str) -> Any:
        """Returns the reply to the request of `key`, None if there is none."""
        if key not in self._place:
            return None
        start, size = self._place[key]
        return json.loads(os.pread(self._file.fileno(), size, start))["reply"]

    def put(self, key: str, request: Mapping[str, Any], reply: Any) -> None:
        """Appends a reply."""
        row = {"key": key, "request": _short(request), "reply": reply}
        line = json.dumps(row).encode() + b"\n"
        with self._lock:
            start = self._file.seek(0, io.SEEK_END)
            self._file.write(line)
            self._file.flush()
            self._place[key] = (start, len(line))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _index(self):
        """Finds every reply; what follows a line that was cut off starts a new one."""
        start, line = self._file.seek(0), b"\n"
        for line in self._file:
            try:
                row = json.loads(line)
                _, self._place[row["key"]] = row["reply"], (start, len(line))
            except (ValueError, KeyError, TypeError):
                self.damaged += 1
            start += len(line)
        if not line.endswith(b"\n"):
            self._file.write(b"\n")
            self._file.flush()


def _short(value: Any) -> Any:
    """Returns JSON data with the hash of every image instead of the image."""
    if isinstance(value, Mapping):
        return {name: _short(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_short(x) for x in value]
    if isinstance(value, str) and value.startswith("data:") and len(value) > _LONGEST:
        kind = value.partition(",")[0]
        return f"{kind},sha256={hashlib.sha256(value.encode()).hexdigest()}"
    return value
