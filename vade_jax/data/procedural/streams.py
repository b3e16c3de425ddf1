"""Random streams that a seed and a number name: the same draws on every machine."""

import numpy as np


def philox(seed: int, number: int) -> np.random.Generator:
    """Returns the stream of the Philox key (seed, number); both below 2^64.

    As uint64: a list of Python numbers, one of them 2^63 or more, would be rounded through float64.
    """
    key = np.array([seed, number], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
