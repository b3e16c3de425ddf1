"""From settings to a run: what builds the parts of `trainer.loop`."""

try:
    from vade_jax.run.checks import UserError
    from vade_jax.run.hooks import Hooks
    from vade_jax.run.job import train
except ModuleNotFoundError as error:
    fix = f"vade_jax.run needs {error.name}: in the repository, pip install '.[train]'"
    raise ModuleNotFoundError(fix, name=error.name) from error

__all__ = ["Hooks", "UserError", "train"]
