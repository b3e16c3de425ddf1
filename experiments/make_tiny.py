"""Writes a tiny Qwen2.5-VL checkpoint with its own tokenizer.

    python -m experiments.make_tiny --directory=runs/tiny_model              # random weights
    python -m experiments.make_tiny --taught --directory=runs/tiny_reader    # and 1,000 supervised steps

The second command takes minutes. It made the policy of the preset "tiny_reader", which comes with the
package: from seed 0, in float32, by the lessons of configs/tiny.py's `taught`, and written in bfloat16.
"""

import os
import tempfile
from collections.abc import Sequence

import jax.numpy as jnp
from absl import app, flags, logging

from configs import tiny
from experiments import commands, errors, warm_start
from vade_jax import fields, settings
from vade_jax.models.qwen import files, tiny_checkpoint
from vade_jax.run.directory import make

DIRECTORY = flags.DEFINE_string("directory", None, "A new directory for the model.", required=True)
SEED = flags.DEFINE_integer("seed", 0, "Seed of the random weights and of the lessons.")
TAUGHT = flags.DEFINE_bool("taught", False, "Teaches it to read the tiny job's pictures.")


def main(_: Sequence[str]) -> None:
    """Writes the checkpoint that the flags describe."""
    logging.set_verbosity(logging.WARNING)  # orbax logs every operation at INFO
    with errors.user_errors():
        if os.path.isdir(DIRECTORY.value) and os.listdir(DIRECTORY.value):
            raise ValueError(f"--directory={DIRECTORY.value} exists: give a new directory")
        fields.SEED.check("--seed", SEED.value)
        make(DIRECTORY.value, "--directory")  # now, because the lessons take minutes
        if not TAUGHT.value:
            tiny_checkpoint.write(DIRECTORY.value, SEED.value)
            return
    c = tiny.base(f"seed={SEED.value}")
    lessons = warm_start.Lessons.from_dict(tiny.taught(c).to_dict())
    with tempfile.TemporaryDirectory() as directory:
        base, taught = (os.path.join(directory, name) for name in ("base", "taught"))
        tiny_checkpoint.write(base, SEED.value)
        run = settings.Run.from_dict(c.to_dict())
        warm_start.teach(run, lessons, base, taught, rows=None)
        shape, params = files.load(taught)
        files.copy_tokenizer(taught, DIRECTORY.value)
        files.save(DIRECTORY.value, shape, params, jnp.bfloat16)


if __name__ == "__main__":
    app.run(main, flags_parser=commands.parse)
