"""What a step does about the groups that the selector drops. Only sizes and places: no rollouts."""

import dataclasses

import numpy as np

CHOICES = {
    "ask": ("batch", "missing", "estimate"),
    "at_cap": ("fewer", "repeat", "stop"),
    "surplus": ("discard", "train"),
}
MARGIN, LEAST = 1.25, 64  # of "estimate", as in GRESO's code


@dataclasses.dataclass(frozen=True)
class Refill:
    """What a step does about the groups that the selector drops.

    Attributes:
        max_rounds: the cap; 1 never asks again.
        ask: how many prompts a later round rolls out: a whole "batch" (DAPO), what is "missing"
            (VCRL), or as many more as this step's share of dropped groups makes likely to be needed
            ("estimate", GRESO): a quarter on top, at least 64, never more than a batch.
        at_cap: with fewer groups than a batch, train on "fewer", "repeat" those in order, or "stop".
        surplus: groups kept beyond a batch: "discard" those that came last, or "train" on all.
    """

    max_rounds: int = 1
    ask: str = "batch"
    at_cap: str = "fewer"
    surplus: str = "discard"

    def __post_init__(self):
        if self.max_rounds < 1:
            raise ValueError(f"refill.max_rounds={self.max_rounds}: must be at least 1")
        for name, options in CHOICES.items():
            if (value := getattr(self, name)) not in options:
                raise ValueError(
                    f"refill.{name}={value!r}: one of {', '.join(options)}"
                )

    def size(self, num_prompts: int, kept: int, generated: int) -> int:
        """Returns how many prompts the next round asks for, 1 to `num_prompts`."""
        missing = num_prompts - kept
        if self.ask == "missing":
            return missing
        if self.ask == "batch" or kept == 0:
            return num_prompts
        likely = int(missing * generated / kept * MARGIN)
        return min(max(likely, LEAST), num_prompts)

    def learned(self, keep_M: np.ndarray, num_prompts: int) -> np.ndarray:
        """Returns the groups that the policy is given: see `StepData.learned_M`.

        Empty places are filled with the first dropped groups, so that the shapes stay.
        """
        kept, dropped = np.flatnonzero(keep_M), np.flatnonzero(~keep_M)
        missing = num_prompts - len(kept)
        if len(kept) == 0:
            return kept
        if missing <= 0:
            return kept if self.surplus == "train" else kept[:num_prompts]
        if self.at_cap == "repeat":
            return np.resize(kept, num_prompts)
        return np.sort(np.concatenate([kept, dropped[:missing]]))
