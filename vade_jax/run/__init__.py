"""From settings to a run: what builds the parts that `trainer.loop` is given."""

from vade_jax.run.checks import UserError
from vade_jax.run.job import train

__all__ = ["UserError", "train"]
