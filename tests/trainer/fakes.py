"""What tests of the loop share: items without images, a reward of one token, a recorder."""

import types

import numpy as np

from vade_jax.rollout import fake
from vade_jax.trainer import scoring
from vade_jax.types import Item, Prompt


class Recorder:
    """Implements `loop.Recorder`: keeps what it is given."""

    def __init__(self):
        self.metrics, self.data, self.saved, self.progress = {}, {}, [], []

    def step(self, step, metrics, data):
        self.metrics[step], self.data[step] = metrics, data

    def add(self, step, metrics):
        self.metrics[step] |= metrics

    def save(self, progress, *, last):
        self.saved.append((progress.step, last))
        self.progress.append(progress)

    def close(self):
        pass


def rounds(data):
    """The rounds of a step: what each asked, kept and believed."""
    for number in range(1, data.round_M[-1] + 1):
        of_M = data.round_M == number
        yield types.SimpleNamespace(
            index_M=data.feedback.index_M[of_M],
            keep_M=data.keep_M[of_M],
            belief={name: np.asarray(x)[of_M] for name, x in data.belief.items()},
        )


def items(num_items):
    return [
        Item(uid=str(i), question="?", images=(), answer="1", kind="int") for i in range(num_items)
    ]


def build_prompt(item):
    empty = np.zeros(0, np.int32)
    return Prompt(uid=item.uid, text="", token_P=empty, position_PX=empty[:, None], images=())


def _score(item, answers):
    """The answers of `rollout.fake`."""
    right = [float(tokens[0] == fake.RIGHT) for tokens in answers]
    return [scoring.Scored("", None, reward=x, correct=x) for x in right]


score = scoring.Scorer(_score)
