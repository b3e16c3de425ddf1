"""A reward that even a policy which knows nothing gets for some answers, so that every step learns."""

from vade_jax.rewards import functions


def odd(completions, **kwargs):
    """Returns 1 for an answer with an odd number of different characters, 0 for the others."""
    return [float(len(set(text)) % 2) for text in functions.texts(completions)]
