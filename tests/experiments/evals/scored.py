"""Four items of two groups, answered twice: 62.5 % right."""

import dataclasses

import numpy as np

from experiments.evals import results

CORRECT = np.array([[1, 0], [1, 1], [0, 0], [1, 1]], bool)


def result(name="chartqa", label="mine", profile="paper", correct=CORRECT, **changes):
    found = results.Result(
        label=label,
        benchmark=name,
        profile=profile,
        uids=tuple(f"{name}:{i}" for i in range(len(correct))),
        correct_MG=np.asarray(correct, bool),
        extracted=[["1", None]] * len(correct),
        groups=[{"type": ("human",)}, {"type": ("augmented",)}] * (len(correct) // 2),
        clusters=[f"{name}:{i}" for i in range(len(correct))],
    )
    return dataclasses.replace(found, **changes)
