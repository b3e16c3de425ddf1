"""Reward functions in files, as users write them."""

import itertools
import textwrap

from vade_jax.rewards.functions import UserFunction
from vade_jax.types import Item

ITEM = Item(
    uid="row 3",
    question="<image>How many?",
    images=(),
    answer="7",
    kind="int",
    metadata={"level": 2},
    columns={"answer": 7, "source": "mine", "level": None},
)
TEXTS = [r"\boxed{7}", "no idea", r"\boxed{8}"]
_number = itertools.count()


def of_file(directory, code, *names, timeout_s=20.0, concurrency=1):
    """Returns the functions of a file with this code: `f`, or those of `names`."""
    path = directory / f"own_{next(_number)}.py"
    path.write_text(code)
    places = [f"{path}:{name}" for name in names or ["f"]]
    functions = [UserFunction(place, place, timeout_s, concurrency) for place in places]
    return functions if names else functions[0]


def of_body(directory, body, **options):
    """Returns a function of `completions`, `texts` and all other columns, in `columns`."""
    code = "import math, sys, time\n\ndef f(completions, **columns):\n"
    code += "    texts = [chat[-1]['content'] for chat in completions]\n"
    return of_file(directory, code + textwrap.indent(body, "    "), **options)


def rewards(function, answers=TEXTS, item=ITEM):
    return [one.reward for one in function(item, answers, None)]
