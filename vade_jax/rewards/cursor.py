"""A place in the tokens of one text, and the signs that every part of the grammar knows."""

import dataclasses

from vade_jax.rewards.tokens import Token

SEPARATORS = {",": ",", ";": ",", "&": ",", "or": "or", "and": "and"}
RELATIONS = {
    "=",
    "<",
    ">",
    "<=",
    ">=",
    "!=",
    "\\approx",
    "\\in",
    "\\notin",
    "\\cong",
    "\\sim",
    "\\equiv",
}
RELATIONS |= {"\\parallel", "\\perp", "\\pmod", "\\to", "\\propto", "\\subset", "\\subseteq"}
OPENERS = {"(": (")", "]"), "[": (")", "]"), "\\{": ("\\}",), "{": ("}",)}  # what may close each
CLOSERS = {")", "]", "}", "\\}"}
ENDS = {*CLOSERS, *RELATIONS, *SEPARATORS, ":", "\\\\", "\\end"}  # of a side


class Unread(Exception):  # noqa: N818 (says what happened)
    """The rest of the text is not in the grammar."""


class Senseless(Exception):  # noqa: N818 (says what happened)
    """The text divides by zero, or nobody can calculate it."""


@dataclasses.dataclass
class Cursor:
    """What is left of a text, and what is known of where it stands."""

    text: str
    tokens: list[Token]
    numeric: bool  # a number is expected
    at: int = 0  # a token
    offset: int = 0  # how many of its letters are read
    depth: int = 0  # brackets within brackets
    in_trig: int = 0  # 1 in the brackets of sin, cos, tan; 2 in an argument without
    unit: str | None = None  # a currency before the number, or degrees within a sum
    length: int = 0  # operations of this side

    def peek(self, ahead: int = 0) -> str:
        """Returns the text of a token, "" behind the last."""
        at = self.at + ahead
        text = self.tokens[at].text if at < len(self.tokens) else ""
        return text[self.offset :] if ahead == 0 else text

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        text = self.peek()
        if not text or (expected and text not in expected):
            raise Unread
        self.at, self.offset = self.at + 1, 0
        return text

    def accept(self, *expected: str) -> str:
        return self.take() if self.peek() in expected else ""

    def ends(self, ahead: int = 0) -> bool:
        """Returns whether a side ends here."""
        text = self.peek(ahead)
        return not text or text in ENDS

    def marks(self) -> str:
        """Takes and returns the primes that are here."""
        found = ""
        while self.accept("'"):
            found += "'"
        return found

    def mark(self) -> tuple:
        """Returns the place and the state, for `reset`."""
        return self.at, self.offset, self.depth, self.in_trig, self.unit

    def reset(self, mark: tuple) -> None:
        self.at, self.offset, self.depth, self.in_trig, self.unit = mark
