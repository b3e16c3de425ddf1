"""What a budget of rollouts buys: rounds, and measurements of all items."""

import dataclasses

import numpy as np

from experiments.simulation.contenders import Contender
from vade_jax.samplers import base


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of a run."""

    num_items: int  # I
    num_prompts: int  # B
    num_rollouts: int  # G
    rollouts: int  # the budget

    def check(self) -> None:
        """Raises ValueError unless the budget pays for a round, and the batch fits the pool."""
        base.check_num_rollouts(self.num_rollouts)
        base.check_number(
            "num_prompts", self.num_prompts, at_least=1, at_most=self.num_items
        )
        if self.rollouts < self.of_round:
            raise ValueError(
                f"rollouts={self.rollouts}: a step of {self.num_prompts} prompts with"
                f" {self.num_rollouts} answers takes {self.of_round}; set it to that at least"
            )

    @property
    def of_round(self) -> int:
        """Rollouts of a round."""
        return self.num_prompts * self.num_rollouts

    @property
    def of_measurement(self) -> int:
        """Rollouts of a measurement."""
        return self.num_items * self.num_rollouts


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Before which rounds all items are measured, and what has been paid after each round."""

    measure_U: np.ndarray  # bool
    paid_U: np.ndarray  # rollouts


def schedule(contender: Contender, shape: Shape) -> Schedule:
    """Returns the rounds that the budget pays for.

    Raises:
        ValueError: it does not pay for one round behind the first measurement.
    """
    measure, paid, spent = [], [], 0
    every, first = contender.measure_every, contender.measure_first
    while True:
        again = bool(every and paid and len(paid) % every == 0)
        cost = shape.of_measurement * (again or (not paid and first == "paid"))
        if spent + cost + shape.of_round > shape.rollouts:
            break
        spent += cost + shape.of_round
        measure.append(again or (not paid and bool(first)))
        paid.append(spent)
    if not paid:
        raise ValueError(
            f"rollouts={shape.rollouts}: {contender.label} measures {shape.num_items} items"
            f" first, {shape.of_measurement} rollouts, and a step takes {shape.of_round};"
            f" set it to {shape.of_measurement + shape.of_round} at least"
        )
    return Schedule(np.array(measure), np.array(paid))
