"""MathVerse testmini: 788 geometry problems in five versions, from all in text to all in picture.

A model extracts the answer, without seeing the question; a model judges it against the gold. The
text-only version does not count in the total of 3,940. The benchmark has two queries a problem:
`query_cot` asks for reasoning, `query_wo` for the answer alone (`DIRECT` in the registry).
"""

import dataclasses
import functools
import pathlib

from vade_jax import types
from vade_jax.evals.benchmarks import base, mathverse_judge, rows

VERSIONS = (
    "Text Dominant",
    "Text Lite",
    "Vision Intensive",
    "Vision Dominant",
    "Vision Only",
)
_COLUMNS = ("sample_index", "problem_index", "problem_version", "question", "image")
FORMS = ((*_COLUMNS, "answer", "question_type", "metadata", "query_wo", "query_cot"),)


def read(path: str | pathlib.Path) -> list[types.Item]:
    """Returns the items of testmini; metadata "problem" is one number for five versions.

    A version whose question is in the picture alone is judged by `question_for_eval`.
    """
    return rows.items(path, FORMS, _item)


def _item(row: rows.Row) -> types.Item:
    version = row.one_of("problem_version", VERSIONS)
    question = row.text("question", may_be_empty=True)
    judged = row.text("question_for_eval", may_be_empty=True) or question
    if version == "Vision Only" and not judged:
        raise row.bad("question_for_eval", "is empty, so its answer cannot be judged")
    answer = row.text("answer").strip()
    question_type = row.one_of("question_type", ("multi-choice", "free-form"))
    is_letter = question_type == "multi-choice" and len(answer) == 1
    return types.Item(
        uid=f"mathverse:{row.text('sample_index')}",
        question=question,
        images=(row.image("image"),),
        answer=answer,
        kind="choice" if is_letter else "text",
        metadata={
            "problem": row.text("problem_index"),
            "version": version,
            "question_type": question_type,
            "query_wo": row.text("query_wo"),
            "query_cot": row.text("query_cot"),
            "question_for_eval": judged,
            **row.fields("metadata", ("subject", "subfield")),
        },
    )


def prompt(item: types.Item, profile: str, query: str = "query_cot") -> str:
    """Returns the published query; "cot" asks for a box too."""
    cot = base.check_profile(profile) == "cot"
    return item.metadata[query] + (f"\n{base.BOXED}" if cot else "")


def extract(text: str, item: types.Item, profile: str = "paper") -> str | None:
    """Returns None, for a model to extract; under "cot" what is in the box, if there is one."""
    return base.boxed(text) or None if profile == "cot" else None


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool | None:
    """Returns None, for a model to judge; under "cot" True if the texts are equal."""
    if profile == "cot" and extracted.strip("() ").lower() == item.answer.lower():
        return True
    return None


def groups(item: types.Item) -> base.Groups:
    """Returns version, subject, and subfield within its subject."""
    subject = item.metadata["subject"]
    return {
        "version": (item.metadata["version"],),
        "subject": (subject,),
        "subfield": (f"{subject}, {item.metadata['subfield']}",),
    }


BENCHMARK = base.Benchmark(
    name="mathverse",
    title="MathVerse",
    num_items=3940,
    read=read,
    prompt=prompt,
    extract=extract,
    score=score,
    groups=groups,
    protocols={"paper": base.SAMPLED, "cot": base.SAMPLED},
    judge=mathverse_judge.JUDGE,
    cluster=lambda item: item.metadata["problem"],
)
DIRECT = dataclasses.replace(
    BENCHMARK,
    name="mathverse_direct",
    prompt=functools.partial(prompt, query="query_wo"),
)
