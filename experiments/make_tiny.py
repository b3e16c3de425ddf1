"""Writes a tiny random Qwen2.5-VL checkpoint with a tokenizer of its own.

python -m experiments.make_tiny --directory=runs/tiny_model
"""

import os
from collections.abc import Sequence

from absl import app, flags

from experiments import errors, paths
from vade_jax.models.qwen import tiny_checkpoint

DIRECTORY = paths.define("directory", None, "Where it goes.", required=True)
SEED = flags.DEFINE_integer("seed", 0, "Of the random weights.")


def main(words: Sequence[str]) -> None:
    """Writes what the flags name."""
    with errors.user_errors():
        errors.check_all_flags(words)
        if os.path.isdir(DIRECTORY.value) and os.listdir(DIRECTORY.value):
            raise ValueError(f"--directory={DIRECTORY.value} exists: give a new directory")
        tiny_checkpoint.write(DIRECTORY.value, SEED.value)


if __name__ == "__main__":
    app.run(main)
