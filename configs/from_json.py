"""The config of an earlier run, or any other config in a JSON file: repeats that run.

    python -m experiments.train --config=configs/from_json.py:runs/a/run.json --workdir=runs/b

On the same machine the new run has the same metrics and the same policy.
"""

import json
import pathlib

from ml_collections import ConfigDict

from vade_jax import settings


def get_config(arg=None):
    """Returns the config in the file `arg`; fields that the file lacks get their defaults.

    Raises:
        OSError: there is no such file.
        ValueError: it is not JSON, or not a config.
    """
    path = pathlib.Path(arg or "").expanduser()
    try:
        values = json.loads(path.read_bytes())
        run = settings.Run.from_dict(values.get("settings", values))  # of a run directory, or bare
    except (ValueError, AttributeError) as error:  # ml_collections cannot re-create json's errors
        raise ValueError(f"{path} holds no config: {error}") from None
    return ConfigDict(run.to_dict())
