r"""MMK12 (arXiv 2503.07365): school questions with pictures, of four subjects; DIVA's paper reports it.

The test split has 2,000 of them, each answered by a letter. Its authors let GPT-4o say whether what is in
the box is the gold. A letter needs no judge, so rules compare it here. The numbers differ from theirs only
where an answer names its letter in words, or in another way that no rule reads. The prompt is ours, since
theirs was not at hand.
"""

import functools
import re

from experiments.evals.benchmarks import base
from vade_jax import types
from vade_jax.rewards import verify

FORMS = (("id", "question", "answer", "subject", "image"),)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def _item(row: base.FileRow) -> types.Item:
    answer = row.text("answer").strip()
    letter = verify.letter(answer)
    if letter is None:
        raise row.bad("answer", f"{answer!r} is no letter; this is the form of the test split")
    return types.Item(
        uid=f"mmk12:{row.text('id')}",
        question=row.text("question"),
        images=(row.image("image"),),
        answer=letter,
        kind="choice",
        metadata={"subject": row.text("subject")},
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the question, which lists its options itself, and asks for a box in both profiles."""
    return f"{item.question}\n{base.BOXED_LETTER}"


def extract(text: str, item: types.Item | None = None, profile: str = "paper") -> str | None:
    """Returns what is between the answer's tags, or else in the last box; None without either."""
    tagged = _TAGGED.search(text)
    return tagged[1].strip() if tagged else base.boxed(text)


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool:
    """Returns whether the answer chooses the gold's letter."""
    return verify.letter(extracted) == item.answer


BENCHMARK = base.Benchmark(
    name="mmk12",
    title="MMK12",
    num_items=2000,
    read=functools.partial(base.read_items, forms=FORMS, build=_item),
    prompt=prompt,
    extract=extract,
    score=score,
    groups=lambda item: {"subject": (item.metadata["subject"],)},
)
