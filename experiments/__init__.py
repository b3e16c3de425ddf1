"""The commands: `python -m experiments.NAME`, from the root of the repository."""

import importlib.util
import sys

if missing := [x for x in ("absl", "flax", "ml_collections") if not importlib.util.find_spec(x)]:
    sys.exit(f"error: {missing[0]} is not installed: pip install -e '.[train]'")
