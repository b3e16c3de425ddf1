"""Runs other graders' own test vectors through ours, and prints where the verdicts differ.

    python -m tests.rewards.vectors DIRECTORY...

A directory is a checkout of such a project, or its tests. Read are the literal tables of
`pytest.mark.parametrize` whose columns are a gold answer, a prediction and the expected verdict, and
pairs, or completions with an answer, of a test whose name says which verdict is right.
"""

import ast
import collections
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from vade_jax.rewards import verify

COLUMNS = {"gold", "pred", "expected"}


class Vector(NamedTuple):
    file: str
    line: int
    gold: str
    given: str
    right: bool


def vectors(directory: pathlib.Path) -> Iterator[Vector]:
    """Yields the vectors of all Python files below a directory."""
    for path in sorted(directory.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and len(decorator.args) > 1:
                        yield from _of_table(path.name, node.name, *decorator.args[:2])


def _of_table(file: str, test: str, names: ast.expr, table: ast.expr) -> Iterator[Vector]:
    try:
        columns = re.split(r"\W+", ast.literal_eval(names))
    except (ValueError, TypeError):
        return
    columns = ["expected" if name == "result" else name for name in columns]
    is_named = columns in (["output_pair"], ["test_case"])  # the verdict is in the test's name
    if not (is_named or set(columns) >= COLUMNS) or not isinstance(table, ast.List):
        return
    for row in table.elts:
        try:
            values = ast.literal_eval(row)
        except ValueError:  # computed
            continue
        if is_named:
            given, gold = values.values() if isinstance(values, dict) else map(str, values)
            yield Vector(file, row.lineno, gold, given, not re.search("incorrect|invalid", test))
            continue
        found = dict(zip(columns, values, strict=False))
        if all(isinstance(found[name], str) for name in ("gold", "pred")):
            yield Vector(file, row.lineno, found["gold"], found["pred"], bool(found["expected"]))


def bare(text: str) -> str:
    """Returns an answer without the box or the dollar signs around it."""
    boxes = re.findall(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", text)
    if boxes:
        return boxes[-1] if len(boxes) == 1 else ", ".join(boxes)
    formulas = re.findall(r"(?<!\\)\$+([^$]+)(?<!\\)\$+", text)
    return ", ".join(formulas) if formulas else text


def main(directories: list[str]) -> None:
    """Prints the differences and the counts of each file."""
    counts = collections.Counter()
    for directory in directories:
        for vector in vectors(pathlib.Path(directory)):
            said = verify.verify(rf"\boxed{{{bare(vector.given)}}}", bare(vector.gold), "expr")
            same = said.correct == vector.right
            counts[vector.file, same] += 1
            if not same:
                wants = "right" if vector.right else "wrong"
                print(
                    f"{vector.file}:{vector.line}: {vector.given!r} for {vector.gold!r}: "
                    f"theirs {wants}, ours {said.reason}"
                )
    for file in sorted({file for file, _ in counts}):
        same, total = counts[file, True], counts[file, True] + counts[file, False]
        print(f"{file}: {same} of {total} the same")


if __name__ == "__main__":
    main(sys.argv[1:])
