"""A reward for models that answer in plain words: the last number of the answer is what it says."""

import re

from vade_jax.rewards import functions

NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def last_number(completions, answer, **kwargs):
    """Pays 1 where the last number of the text is the answer, and 0 otherwise."""
    found = [NUMBER.findall(text) for text in functions.texts(completions)]
    last = [float(x[-1].replace(",", "")) if x else None for x in found]
    return [float(x == float(right)) for x, right in zip(last, answer, strict=True)]
