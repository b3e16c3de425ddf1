r"""What a benchmark is: how its files are read, its questions asked, its answers read and scored.

Two profiles, never mixed in one table. "paper" is the protocol behind the published numbers: each
benchmark's own prompt and rules. "cot" lets a policy think and box its answer, takes the box, and
compares it as the benchmark does.
"""

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vade_jax import types
from vade_jax.rewards import answers

PROFILES = ("paper", "cot")
# Temperatures of a judge's attempts. The first is greedy; when no reply can be read after the last
# one, the answer is wrong and counted as such (the original scripts ask for ever).
TEMPERATURES = (0.0, 0.5, 0.5, 1.0, 1.0)
BOXED = r"Think step by step, then put the final answer in \boxed{}."
BOXED_LETTER = (
    r"Think step by step, then put the letter of the right option in \boxed{}."
)

Groups = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How answers are sampled: how many, whether greedily, and to what length in tokens."""

    num_samples: int
    greedy: bool
    max_tokens: int


SAMPLED = Protocol(num_samples=4, greedy=False, max_tokens=2048)
DIRECT = Protocol(num_samples=1, greedy=True, max_tokens=16)


@dataclasses.dataclass(frozen=True)
class Judge:
    """What a language model is asked about one answer, and how its replies are read.

    Attributes:
      extraction_prompt: (text, item) -> prompt, for a text that the rules cannot read.
      read_extraction: reply -> what was extracted, None to ask again.
      judge_prompt: (extracted, item) -> prompt, for an answer that the rules cannot score.
      read_judgement: reply -> right or wrong, None to ask again.
      max_tokens: of a reply.
    """

    extraction_prompt: Callable[[str, types.Item], str] | None = None
    read_extraction: Callable[[str], str | None] | None = None
    judge_prompt: Callable[[str, types.Item], str] | None = None
    read_judgement: Callable[[str], bool | None] | None = None
    max_tokens: int = 256


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """One benchmark under one scorer.

    Attributes:
      name: in the registry, in files and on the command line.
      title: in tables.
      num_items: of the split that the paper reports.
      read: path -> items; metadata hold what prompt, score and groups need.
      prompt: (item, profile) -> the text of the question; images are the item's.
      extract: (text, item, profile="paper") -> the answer in it, None: ask the judge.
      score: (extracted, item, profile="paper") -> right or wrong, None: ask the judge.
      groups: item -> the values it has in each published breakdown, several for skills.
      protocols: how answers are sampled in each profile.
      judge: None when rules decide everything.
      cluster: item -> what it has in common with items that are right or wrong together.
    """

    name: str
    title: str
    num_items: int
    read: Callable[[str], list[types.Item]]
    prompt: Callable[[types.Item, str], str]
    extract: Callable[..., str | None]
    score: Callable[..., bool | None]
    groups: Callable[[types.Item], Groups]
    protocols: Mapping[str, Protocol]
    judge: Judge | None = None
    cluster: Callable[[types.Item], str] = operator.attrgetter("uid")

    @property
    def needs_judge(self) -> bool:
        """Whether some answers can only be read or scored by a language model."""
        return self.judge is not None


def check_profile(profile: str) -> str:
    """Returns `profile`, or raises ValueError if there is no such one."""
    if profile not in PROFILES:
        raise ValueError(f"profile={profile!r} is unknown; use one of {PROFILES}")
    return profile


def boxed(text: str) -> str | None:
    r"""Returns the plain content of the last \boxed{} of `text`, None without one."""
    content = answers.extract_boxed(text)
    return None if content is None else answers.plain(content)


def spelled(content: str | None, choices: Sequence[str]) -> str | None:
    """Returns the choice whose plain text is `content`, None if not exactly one is."""
    same = [choice for choice in choices if answers.plain(choice) == content]
    return same[0] if len(same) == 1 else None


def letters(choices: Sequence[Any]) -> list[str]:
    """Returns A, B, ... for each choice."""
    return [chr(ord("A") + i) for i in range(len(choices))]


def lines(choices: Sequence[str], form: str) -> str:
    """Returns one line a choice, each preceded by a newline, such as form="{}. {}"."""
    pairs = zip(letters(choices), choices, strict=True)
    return "".join("\n" + form.format(letter, text) for letter, text in pairs)
