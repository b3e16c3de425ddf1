"""The checks of a run. Every mistake gets one sentence with the field, its value and the fix.

In the order in which `job.train` calls them:

    config      names, files, and settings that depend on each other, before anything is built
    selector    what the selector needs from the run
    machine     packages, GPUs and their memory
    place       whether the directory of the run is free or this run's
    model       the checkpoint against mesh and settings, without reading weights
    data        rows, validation and rewards
    beginning   what a resumed run started with
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
    """A mistake in the settings or in the user's files; its message is one clear line."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns the errors that name a user's mistake into `UserError`.

    It wraps everything before the first training step. After that step a traceback is more useful.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
