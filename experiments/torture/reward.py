"""A reward that even an untrained policy gets for some answers, so that every step learns."""

from vade_jax.rewards import functions


def odd(completions, **kwargs):
    """Returns 1 for an answer with an odd number of different characters, else 0."""
    return [float(len(set(text)) % 2) for text in functions.texts(completions)]
