"""The published models by name, and tiny ones of each family for tests and examples.

Each is a file of `sizes/`, in the form of the config.json that a checkpoint of the model has.
"""

import json
import pathlib

from vade_jax.models.qwen import config_json

_SIZES = pathlib.Path(__file__).with_name("sizes")
# Tiny models come first; "7b" is Qwen2.5-VL's. Two of tiny_qwen3_5's four layers have attention: with the
# last layer alone it never learned which shape has which color.
_FILES = sorted(_SIZES.glob("*.json"), key=lambda x: (not x.stem.startswith("tiny"), x.stem))
PRESETS = {path.stem: config_json.read(json.loads(path.read_text())) for path in _FILES}
# Its trained weights are part of the package: `tiny_checkpoint`.
PRESETS["tiny_reader"] = PRESETS["tiny"]
