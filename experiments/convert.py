"""Converts a policy between Hugging Face files and orbax, and GGUF to Hugging Face; the source decides.

    python -m experiments.convert --source=HF_DIRECTORY --target=DIR
    python -m experiments.convert --source=runs/tiny_gspo --target=DIR [--step=100]
    python -m experiments.convert --source=MODEL.gguf --target=DIR     (pip install torch 'vade_jax[gguf]')

vade_jax/run/convert.py describes which files are read and written.
"""

from collections.abc import Sequence

import jax
from absl import app, flags, logging

from experiments import commands, errors, paths
from vade_jax.run import convert

SOURCE = paths.define(
    "source",
    None,
    "A Hugging Face directory, an orbax checkpoint, a run directory or a GGUF file.",
    required=True,
)
TARGET = paths.define("target", None, "A new directory.", required=True)
DTYPE = flags.DEFINE_enum(
    "dtype", "float32", ["float32", "bfloat16"], "dtype of the parameters that are written."
)
STEP = flags.DEFINE_integer("step", None, "The step of a run's checkpoint; default: the latest.")
MODEL = paths.define(
    "model", None, "The Hugging Face model (directory or name) that an orbax source started from."
)


def main(_: Sequence[str]) -> None:
    """Converts the source that the flags name."""
    logging.set_verbosity(logging.WARNING)  # orbax logs every operation at INFO
    jax.config.update("jax_platforms", "cpu")  # the host's memory holds a 7B
    with errors.user_errors():
        source, target = SOURCE.value, TARGET.value
        convert.convert(source, target, DTYPE.value, STEP.value, MODEL.value)
    print("in", target)


if __name__ == "__main__":
    app.run(main, flags_parser=commands.parse)
