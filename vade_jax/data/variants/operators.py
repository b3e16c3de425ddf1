"""Which changes to a picture make a problem harder by how much.

Every operator has one difference of difficulty, whatever was asked for; two together add theirs.
"""

import dataclasses
import itertools
import math
from collections.abc import Collection, Sequence

import numpy as np

from vade_jax.data.variants import pictures, texts

CHANGES = ("rotate", "write", *pictures.NOISES)  # all that can be done to a picture
TURNS = {  # level: all angles that no lower level has
    1: (90, 180, 270),
    2: tuple(range(45, 360, 90)),
    3: tuple(a for a in range(30, 360, 30) if a % 90),
    4: tuple(a for a in range(1, 360) if a % 15),
}
INTENSITIES = {1: 0.30, 2: 0.35, 3: 0.40, 4: 0.45}  # of noise, by level
_WRITE = 2  # steps that a question in the picture is harder


@dataclasses.dataclass(frozen=True)
class Operator:
    """One or two changes: turning and noise by level (0: not at all), and writing."""

    rotate: int = 0
    noise: int = 0
    write: bool = False

    @property
    def parts(self) -> frozenset[str]:
        """The names of its changes; any kind of noise is "noise"."""
        return frozenset(x for x in ("rotate", "noise", "write") if getattr(self, x))

    @property
    def delta(self) -> int:
        """How much harder it makes a problem."""
        return self.rotate + self.noise + _WRITE * self.write


OPERATORS = tuple(
    operator
    for levels in itertools.product(range(5), range(5), (False, True))
    if 1 <= len((operator := Operator(*levels)).parts) <= 2
)


def check(changes: Collection[str]) -> None:
    """Raises ValueError for a change that is none of `CHANGES`."""
    if unknown := [name for name in changes if name not in CHANGES]:
        raise ValueError(
            f"changes={tuple(changes)}: there is no {unknown[0]!r}, choose from "
            f"{', '.join(CHANGES)}"
        )


def choose(
    delta: int, allowed: Collection[str], rng: np.random.Generator
) -> Operator | None:
    """Returns an operator that makes a problem harder by `delta`, each as likely.

    Where the changes `allowed` (of `CHANGES`) cannot, by as much less as has to be; None if there is
    none.
    """
    parts = {"noise" if name in pictures.NOISES else name for name in allowed}
    options = [o for o in OPERATORS if o.parts <= parts and o.delta <= delta]
    if not options:
        return None
    most = max(operator.delta for operator in options)
    options = [operator for operator in options if operator.delta == most]
    return options[rng.integers(len(options))]


def apply(
    operator: Operator,
    shown: Sequence[np.ndarray],
    question: str,
    allowed: Collection[str],
    rng: np.random.Generator,
) -> tuple[list[np.ndarray], str, str] | None:
    """Returns the pictures, the question about them, and what was done in words.

    Noise comes first, so that a question in the picture can be read; a turn is last, and the question
    says how far it went. None if the question does not fit into the picture.
    """
    shown, done = list(shown), []
    if operator.noise:
        kinds = [kind for kind in pictures.NOISES if kind in allowed]
        kind = kinds[rng.integers(len(kinds))]
        intensity = INTENSITIES[operator.noise]
        shown = [pictures.NOISES[kind](p, intensity, rng) for p in shown]
        done.append(f"{kind} {intensity:.2f}")
    if operator.write:
        text = question.replace("<image>", " ")
        page = pictures.write(shown[0], text, rng.random() < 0.5, _font(operator))
        if page is None:
            return None
        shown = [page]
        question = texts.WRITTEN
        done.append("written")
    if operator.rotate:
        degrees = int(rng.choice(TURNS[operator.rotate]))
        shown = [pictures.rotate(picture, degrees) for picture in shown]
        question = texts.turned(question, degrees, len(shown))
        done.append(f"turned {degrees}")
    return shown, question, " + ".join(done)


def _font(operator):
    """The smallest letters: a turn by less than a quarter shrinks them to 0.71 at least."""
    return math.ceil(pictures.SMALLEST * (math.sqrt(2) if operator.rotate > 1 else 1))
