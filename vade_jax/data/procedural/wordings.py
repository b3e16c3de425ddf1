"""The built-in questions in other words, and the steps that lead to their answers.

Both are made with the picture, from what is in it. The last step leaves little to do, but something.
"""

from collections.abc import Sequence

from vade_jax.data.procedural import canvas

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
        "All {color} {what} are gone. How many shapes are left?",
        "How many shapes are left without the {color} {what}?",
        "Take away all {color} {what}. How many shapes are left?",
        "How many are left if all {color} {what} are gone?",
        "Count all shapes but the {color} {what}.",
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
    "cell": (
        "Which number is in row {row} column {letter}?",
        "What number is in column {letter} row {row}?",
        "Row {row}, column {letter}: what number is there?",
        "Name the number in row {row} column {letter}.",
        "Column {letter}, row {row}: which number is it?",
    ),
    "sum": (
        "What is the total of column {letter}?",
        "Column {letter}: what is the sum?",
        "What is the sum of all numbers in column {letter}?",
        "Name the sum of column {letter}.",
        "Sum all numbers of column {letter}.",
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


def paraphrases(question: str, **words: str | int) -> tuple[str, ...]:
    """Returns five wordings of a question, a key of the templates, with the same answer."""
    return tuple(text.format(**words) for text in _PARAPHRASES[question])


# ------------------------------------------------------------------------------ steps
def of_one(
    what: str, x: float, y: float, right: str, options: Sequence[str]
) -> tuple[str, ...]:
    """Returns the steps to a property of the one thing `what` at (x, y)."""
    return (
        f"Find the {what}.",
        f"It is in the {_half(y, 'upper', 'lower')} half.",
        f"It is on the {_half(x, 'left', 'right')}.",
        f"It is {_either(right, options)}.",
    )


def of_count(y_of_each: Sequence[float]) -> tuple[str, ...]:
    """Returns the steps to the number of things, from their heights."""
    upper = sum(y < canvas.UNITS / 2 for y in y_of_each)
    lower = len(y_of_each) - upper
    return (
        "Count the upper half, then the lower half.",
        f"The upper half has {upper}.",
        f"The lower half has {lower}.",
        f"The number is {upper} + {lower}.",
    )


def of_compare(
    first: str, num_first: int, second: str, num_second: int
) -> tuple[str, ...]:
    """Returns the steps to which is more."""
    return (
        f"Count the {first}, then the {second}.",
        f"The number of {first} is {num_first}.",
        f"The number of {second} is {num_second}.",
        f"Is {num_first} more than {num_second}?",
    )


def of_subtract(what: str, num_gone: int, num_left: int) -> tuple[str, ...]:
    """Returns the steps to what is left."""
    total = num_gone + num_left
    return (
        f"Count all shapes, then the {what}.",
        f"The number of all shapes is {total}.",
        f"The number of {what} is {num_gone}.",
        f"The number left is {total} - {num_gone}.",
    )


def of_value(letter: str, value: float, labelled: bool) -> tuple[str, ...]:
    """Returns the steps to the value of a bar."""
    near = sorted((value, value + 1 if value < 9 else value - 1))
    where = "is written above it" if labelled else "is where its top is"
    return (
        f"Find {letter} below the bars.",
        f"The value of bar {letter} {where}.",
        f"It is between {near[0] - 1:g} and {near[1] + 1:g}.",
        f"It is {near[0]:g} or {near[1]:g}.",
    )


def of_extreme(
    letters: Sequence[str], values: Sequence[int], which: str
) -> tuple[str, ...]:
    """Returns the steps to the tallest or shortest bar."""
    heights = [f"{k} is {v:g}" for k, v in zip(letters, values, strict=True)]
    half = (len(heights) + 1) // 2
    return (
        "Look at the top of each bar.",
        f"Bar {', '.join(heights[:half])}.",
        f"Bar {', '.join(heights[half:])}.",
        f"Which number is {'largest' if which == 'tallest' else 'smallest'}?",
    )


def of_triangle(first: int, second: int) -> tuple[str, ...]:
    """Returns the steps to the third angle."""
    return (
        "The angles of a triangle sum to 180.",
        f"The other angles are {first} and {second}.",
        f"The sum of both is {first + second}.",
        f"The angle x is 180 - {first + second}.",
    )


def of_cell(
    row: int, column: int, letter: str, numbers: Sequence[int]
) -> tuple[str, ...]:
    """Returns the steps to a number of a table; `column` counts from 0."""
    return (
        f"Find row {row}.",
        f"Row {row} is {', '.join(map(str, numbers))}.",
        f"Find column {letter}.",
        f"It is number {column + 1} of the row.",
    )


def of_sum(letter: str, numbers: Sequence[int]) -> tuple[str, ...]:
    """Returns the steps to the sum of a column."""
    *first, last = numbers
    return (
        f"Find column {letter}.",
        f"Column {letter} is {', '.join(map(str, numbers))}.",
        f"The sum of all but the last is {sum(first)}.",
        f"The sum is {sum(first)} + {last}.",
    )


def of_written(digit: int) -> tuple[str, ...]:
    """Returns the steps to a digit."""
    low, high = (0, 4) if digit < 5 else (5, 9)
    return (
        "Look at the large number.",
        "The number has one digit.",
        f"It is between {low} and {high}.",
        f"It is {_either(str(digit), tuple('0123456789'))}.",
    )


def _half(place, low, high):
    return low if place < canvas.UNITS / 2 else high


def _either(right, options):
    """The right option and the one behind it, in the order of the options."""
    i = options.index(right)
    pair = sorted((i, (i + 1) % len(options)))
    return " or ".join(options[j] for j in pair)
