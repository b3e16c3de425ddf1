"""Everything that can be wrong with a run: one sentence each, with the field, its value and the way out.

In the order in which `job.train` looks:

    config      names, files, and what has to go together; before anything is built
    selector    what the selector needs of the run
    machine     packages, GPUs and their memory
    place       the run directory and the warm start's: are they this run's?
    model       the checkpoint against the mesh and the settings; no weight is read
    data        rows, validation, rewards and the teacher's answers
    beginning   what a run that goes on began with
"""

import contextlib
from collections.abc import Iterator

from vade_jax.run.checks import beginning, config, data, machine, model, place, selector
from vade_jax.run.checks.config import check

__all__ = [
    "UserError",
    "beginning",
    "check",
    "config",
    "data",
    "machine",
    "model",
    "place",
    "selector",
    "user_errors",
]


class UserError(ValueError):
    """A mistake in the settings or in the user's files, in one clear line."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns the errors that name a user's mistake into `UserError`.

    Wraps what is done before the first training step. After it, people want the traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
