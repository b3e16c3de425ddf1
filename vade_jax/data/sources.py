"""Where items come from: a protocol, and a user's own files."""

from typing import Protocol

from vade_jax import types


class RejectedItem(ValueError):
    """A row that cannot be trained on.

    Attributes:
      uid: of the row.
      reason: a short code, counted in reports.
      detail: what is wrong, in words.
    """

    def __init__(self, uid: str, reason: str, detail: str):
        super().__init__(f"{uid}: {detail} [{reason}]")
        self.uid, self.reason, self.detail = uid, reason, detail


class Source(Protocol):
    """Items by row number: random access, because a selector chooses the order as it goes.

    `source[i]` raises `RejectedItem` for a row that cannot be read.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> types.Item: ...
