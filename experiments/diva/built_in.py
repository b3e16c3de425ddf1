"""Paraphrases of the built-in questions and steps to their answers, from what their pictures show.

They are computed by drawing the item again, for the families of the default mixture. The last step leaves a
little to do. A step names the answer only if a part is the total: if one half of a picture has no shapes, the
other half's number is the answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.diva import pictures
from experiments.diva.variants import Texts
from vade_jax.data import procedural
from vade_jax.data.procedural import canvas
from vade_jax.types import Item

_PARAPHRASES = {
    "color": (
        "What is the color of the {shape}?",
        "Which color is the {shape}?",
        "The {shape}: what color is it?",
        "Name the color of the {shape}.",
        "There is one {shape}. What color is it?",
    ),
    "shape": (
        "What is the shape of the {color} one?",
        "Which shape is the {color} one?",
        "The {color} one: what shape is it?",
        "Name the shape of the {color} one.",
        "There is one {color} shape. What shape is it?",
    ),
    "count": (
        "What is the number of {what}?",
        "Count the {what}. How many are there?",
        "The {what}: how many are there?",
        "How many {what} are in the picture?",
        "Count all {what}.",
    ),
    "compare": (
        "Are there fewer {second} than {first}?",
        "Is the number of {first} above that of {second}?",
        "Do the {first} outnumber the {second}?",
        "Count {first} and {second}. Are there more {first}?",
        "Are the {second} fewer than the {first}?",
    ),
    "subtract": (
        "All {color} shapes are gone. How many shapes are left?",
        "How many shapes are left without the {color} shapes?",
        "Take away all {color} shapes. How many shapes are left?",
        "How many are left if all {color} shapes are gone?",
        "Count all shapes but the {color} shapes.",
    ),
    "value": (
        "What value is bar {letter}?",
        "Bar {letter}: what is the value?",
        "What is the height of bar {letter}?",
        "How tall is bar {letter}?",
        "Name the value of bar {letter}.",
    ),
    "extreme": (
        "Which of the bars is {which}?",
        "What is the letter of the {which} bar?",
        "Name the {which} bar.",
        "The {which} bar: which is it?",
        "There is one {which} bar. Which is it?",
    ),
    "triangle": (
        "What is x?",
        "How many degrees is the angle x?",
        "The angle x: what is it?",
        "What is the number of degrees of x?",
        "Name the angle x.",
    ),
    "table": (
        "Which number is in row {row} column {letter}?",
        "What number is in column {letter} row {row}?",
        "Row {row}, column {letter}: what number is there?",
        "Name the number in row {row} column {letter}.",
        "Column {letter}, row {row}: which number is it?",
    ),
    "written": (
        "Which number is written?",
        "What is the written number?",
        "Name the written number.",
        "What number is there?",
        "The written number: which is it?",
    ),
    "hidden": (
        "Which number is hidden?",
        "What is the hidden number?",
        "Name the hidden number.",
        "What number is under the box?",
        "The hidden number: which is it?",
    ),
}
_PLACE = ("It is in the {height} half.", "It is on the {side}.", "It is {two}.")
_STEPS = {
    "color": ("Find the {shape}.", *_PLACE),
    "shape": ("Find the {color} one.", *_PLACE),
    "count": (
        "Count the upper half, then the lower half.",
        "The upper half has {upper}.",
        "The lower half has {lower}.",
        "The number is {upper} + {lower}.",
    ),
    "compare": (
        "Count the {first}, then the {second}.",
        "The number of {first} is {num_first}.",
        "The number of {second} is {num_second}.",
        "Is {num_first} more than {num_second}?",
    ),
    "subtract": (
        "Count all shapes, then the {color} shapes.",
        "The number of all shapes is {total}.",
        "The number of {color} shapes is {num_gone}.",
        "The number left is {total} - {num_gone}.",
    ),
    "value": (
        "Find {letter} below the bars.",
        "The value of bar {letter} {where}.",
        "It is between {below:g} and {above:g}.",
        "It is {low:g} or {high:g}.",
    ),
    "extreme": (
        "Look at the top of each bar.",
        "Bar {first}.",
        "Bar {others}.",
        "Which number is {end}?",
    ),
    "triangle": (
        "The angles of a triangle sum to 180.",
        "The other angles are {first} and {second}.",
        "The sum of both is {sum}.",
        "The angle x is 180 - {sum}.",
    ),
    "table": (
        "Find row {row}.",
        "Row {row} is {listed}.",
        "Find column {letter}.",
        "It is number {column} of the row.",
    ),
    "written": (
        "Look at the large number.",
        "The number has one digit.",
        "It is between {low} and {high}.",
        "It is {two}.",
    ),
}
_GRAINS = {"gaussian", "salt_pepper", "speckle"}
_NEVER = {
    "written": {"rotate"},  # a digit alone does not say which way is up: 6 and 9
    **{family: {"rotate", *_GRAINS} for family in ("read", "spell")},
    # Characters of 11 to 20 pixels are lost in noise: a third of the digits of a noisy table could not be
    # distinguished.
    **{family: _GRAINS for family in ("value", "extreme", "triangle", "table")},
}


def texts(item: Item) -> Texts:
    """Returns the paraphrases and steps of an item of `Procedural`; none for families without.

    An item with a deliberately wrong gold has no steps, because no solution leads to it. Raises ValueError
    for an item that is not built in.
    """
    sample = procedural.draw_again(item)
    asks, facts = item.metadata["family"], sample.facts
    clues = {**facts, **_clues(asks, facts)}
    steps = _STEPS.get(asks, ()) if sample.answer == item.answer else ()
    return Texts(
        paraphrases=tuple(text.format(**facts) for text in _PARAPHRASES.get(asks, ())),
        steps=tuple(text.format(**clues) for text in steps),
    )


def allowed(item: Item) -> frozenset[str]:
    """Returns the changes of the picture that do not change the answer of a built-in item."""
    return frozenset(pictures.CHANGES) - _NEVER.get(item.metadata["family"], set())


def _clues(asks: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the steps' texts other than facts of the picture."""
    middle = canvas.SIDE / 2
    match asks:
        case "color" | "shape":
            x, y = facts["centre"]
            options = tuple(canvas.COLORS) if asks == "color" else canvas.SHAPES
            return {
                "height": "upper" if y < middle else "lower",
                "side": "left" if x < middle else "right",
                "two": _either(facts[asks], options),
            }
        case "count":
            upper = sum(y < middle for y in facts["heights"])
            return {"upper": upper, "lower": len(facts["heights"]) - upper}
        case "subtract":
            return {"total": facts["num_gone"] + facts["num_left"]}
        case "value":
            value = facts["value"]
            low, high = sorted((value, value + 1 if value < 9 else value - 1))
            where = "is written above it" if facts["labelled"] else "is where its top is"
            return {"where": where, "low": low, "high": high, "below": low - 1, "above": high + 1}
        case "extreme":
            heights = [*map("{} is {:g}".format, facts["letters"], facts["values"])]
            half = (len(heights) + 1) // 2
            first, others = ", ".join(heights[:half]), ", ".join(heights[half:])
            end = "largest" if facts["which"] == "tallest" else "smallest"
            return {"first": first, "others": others, "end": end}
        case "triangle":
            first, second = facts["angles"]
            return {"first": first, "second": second, "sum": first + second}
        case "table":
            return {"listed": ", ".join(map(str, facts["numbers"]))}
        case "written":
            low, high = (0, 4) if int(facts["digit"]) < 5 else (5, 9)
            two = _either(facts["digit"], tuple("0123456789"))
            return {"low": low, "high": high, "two": two}
    return {}


def _either(right: str, options: Sequence[str]) -> str:
    """Returns the right option and the one after it, in the order of the options."""
    i = options.index(right)
    pair = sorted((i, (i + 1) % len(options)))
    return " or ".join(options[j] for j in pair)
