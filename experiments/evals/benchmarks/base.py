r"""The definition of a benchmark: how files are read, questions asked and answers scored.

There are two profiles, and a table holds only one of them. "paper" is the protocol behind the
published numbers: each benchmark's own prompt and rules. "cot" lets the policy think and box its
answer, takes what is in the box, and compares it as the benchmark does.

A score over fewer items cannot be compared with a published one, so the reader never drops a row: it
gathers the bad ones, and reports them in one error with file, row and column.
"""

import dataclasses
import operator
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from vade_jax import types
from vade_jax.data import images, pictures, row_files, sources
from vade_jax.rewards import answers

PROFILES = ("paper", "cot")
BOXED = r"Think step by step, then put the final answer in \boxed{}."
BOXED_LETTER = r"Think step by step, then put the letter of the right option in \boxed{}."

Groups = Mapping[str, tuple[str, ...]]  # breakdown -> the values that an item has in it


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How answers are sampled: how many, whether greedily, and to what length in tokens."""

    num_samples: int
    greedy: bool
    max_tokens: int


SAMPLED = Protocol(num_samples=4, greedy=False, max_tokens=2048)
DIRECT = Protocol(num_samples=1, greedy=True, max_tokens=16)


@dataclasses.dataclass(frozen=True)
class JudgePrompts:
    """The prompts for a judge model, and how its replies are read: None is unreadable."""

    # (text, item) -> prompt, for a text that the rules cannot read; reply -> what was extracted.
    extraction_prompt: Callable[[str, types.Item], str]
    read_extraction: Callable[[str], str | None]
    # (extracted, item) -> prompt, for an answer that the rules cannot score; reply -> right or wrong.
    judge_prompt: Callable[[str, types.Item], str] | None = None
    read_judgement: Callable[[str], bool | None] | None = None
    max_tokens: int = 256  # of a reply


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One benchmark under one scorer."""

    name: str  # the key in `BENCHMARKS`, in files and on the command line
    title: str  # in tables
    num_items: int  # of the split that the paper reports
    # path -> items; their metadata hold what prompt, score and groups need.
    read: Callable[[str], list[types.Item]]
    # (item, profile) -> the text of the question; images are the item's.
    prompt: Callable[[types.Item, str], str]
    # (text, item, profile="paper") -> the answer in it, None: ask the judge.
    extract: Callable[..., str | None]
    # (extracted, item, profile="paper") -> right or wrong, None: ask the judge.
    score: Callable[..., bool | None]
    # item -> its values in each published breakdown, several where it has several skills.
    groups: Callable[[types.Item], Groups]
    paper: Protocol = SAMPLED  # of the profile "paper"; that of "cot" is `SAMPLED`
    judge: JudgePrompts | None = None  # None when rules decide everything
    # item -> a label that it shares with items that are right or wrong together.
    cluster: Callable[[types.Item], str] = operator.attrgetter("uid")


# ------------------------------------------------------------------------------ texts
def asked(query: str, profile: str) -> str:
    """Returns a published query; under "cot" it also asks for a box."""
    return f"{query}\n{BOXED}" if profile == "cot" else query


def boxed(text: str) -> str | None:
    r"""Returns the plain content of the last \boxed{} of `text`, None without one."""
    content = answers.extract_boxed(text)
    return None if content is None else answers.plain(content)


def spelled(content: str | None, choices: Sequence[str]) -> str | None:
    """Returns the choice whose plain text is `content`, None unless exactly one matches."""
    same = [choice for choice in choices if answers.plain(choice) == content]
    return same[0] if len(same) == 1 else None


def letters(choices: Sequence[Any]) -> list[str]:
    """Returns A, B, ... for each choice."""
    return [chr(ord("A") + i) for i in range(len(choices))]


def lines(choices: Sequence[str], form: str) -> str:
    """Returns a line for each choice in a form such as "{}. {}", each with a newline in front."""
    pairs = zip(letters(choices), choices, strict=True)
    return "".join("\n" + form.format(letter, text) for letter, text in pairs)


# ------------------------------------------------------------------------------ files
@dataclasses.dataclass(frozen=True)
class FileRow:
    """One row, numbered over all shards: `row[column]` is its value, None if null or absent.

    Its methods return the value of a column as one type, or raise ValueError.
    """

    file: pathlib.Path
    index: int
    values: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.values.get(column)

    def bad(self, column: str, problem: str) -> ValueError:
        return ValueError(f"{self.file.name}, row {self.index}, column {column}: {problem}")

    def text(self, column: str, *, may_be_empty: bool = False) -> str:
        """Returns a text (a number is written out), by default one with content."""
        value = "" if may_be_empty and self[column] is None else self[column]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.bad(column, f"{value!r} is not a text")
        if not may_be_empty and not str(value).strip():
            raise self.bad(column, "is empty; splits with hidden answers cannot be scored")
        return str(value)

    def texts(self, column: str) -> tuple[str, ...]:
        """Returns a list of texts, () for null."""
        value = [] if self[column] is None else self[column]
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.bad(column, f"{value!r} is not a list of texts")
        return tuple(value)

    def one_of(self, column: str, known: Sequence[Any]) -> Any:
        """Returns a value that is one of the known ones, of the same type: 1.0 and True are not 1."""
        if not any(self[column] == one and type(self[column]) is type(one) for one in known):
            raise self.bad(column, f"{self[column]!r} is not one of {list(known)}")
        return self[column]

    def fields(self, column: str, names: Sequence[str]) -> dict[str, Any]:
        """Returns the named fields of a struct."""
        value = self[column]
        if not isinstance(value, Mapping):
            raise self.bad(column, f"{value!r} is not a struct")
        if missing := [name for name in names if value.get(name) is None]:
            raise self.bad(column, f"has no field {missing[0]!r}")
        return {name: value[name] for name in names}

    def image(self, *names: str) -> Image.Image:
        """Returns the image of the first column that has one, after decoding it once as a check."""
        column = next((name for name in names if not pictures.is_empty(self[name])), None)
        if column is None:
            raise self.bad(names[0], "no image")
        try:
            file = pictures.image_bytes(self[column], self.file.parent)
            images.opened(file).load()
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            raise self.bad(column, f"the image cannot be decoded: {error}") from error
        # Opened again: the decoded pixels of thousands of images would not fit into memory.
        return images.opened(file)


def read_items(
    path: str | pathlib.Path,
    forms: Sequence[Sequence[str]],
    build: Callable[[FileRow], types.Item],
) -> list[types.Item]:
    """Returns the item of every row of a file, or of a directory of shards.

    Args:
        path: as `sources.rows` takes them; image paths are relative to the file.
        forms: the columns of each published form; the columns of one form must all be present.
        build: row -> item; raises ValueError.

    Raises:
        ValueError: a file cannot be read, a column is missing, rows are bad (all of them are
            counted, some are shown), or two rows have one uid.
    """
    items, problems, size = {}, [], 0
    for file in sources.files_of(pathlib.Path(path), ""):
        table = row_files.open_files([file])
        missing = [[c for c in form if c not in (table.columns or ())] for form in forms]
        if table.size and (nearest := min(missing, key=len)):
            raise ValueError(
                f"{file} has no column {nearest[0]!r} among {sorted(table.columns or ())}; it is not in "
                "the published form"
            )
        for index in range(table.size):
            size += 1
            try:
                row = _row(table, index, file, size - 1)
                item = build(row)
            except ValueError as error:
                problems.append(str(error))
                continue
            if item.uid in items:
                raise ValueError(
                    f"{path}: row {row.index} of {file.name} has the id of an earlier row: {item.uid}; "
                    "remove one"
                )
            items[item.uid] = item
    if problems:
        shown = "; ".join(problems[:5]) + (" ..." if len(problems) > 5 else "")
        raise ValueError(f"{path}: {len(problems)} of {size} rows are bad: {shown}")
    if not items:
        raise ValueError(f"{path} has no rows")
    return list(items.values())


def _row(table: row_files.Table, index: int, file: pathlib.Path, number: int) -> FileRow:
    try:
        values = table.read(index)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.name}, row {number}: {error!s:.200}") from error
    if not isinstance(values, Mapping):
        raise ValueError(f"{file.name}, row {number}: {values!r:.60} is not an object")
    return FileRow(file, number, values)
