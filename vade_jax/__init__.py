"""VADE (arXiv 2511.18902) and group-based RL of vision-language models in JAX."""

import os
from importlib import metadata

__version__ = "0.1.0"  # stated only here; docs/changelog.md lists the changes

# YNNPACK fusions in jaxlib 0.10 have a race on CPUs with more than two threads: one update in three got
# different gradients. With 0.11 and 0.12, 60 updates gave the same bits, on 4 and on 8 threads.
# XLA reads its flags when the first device is used, so setting them here is early enough. The version comes
# from its metadata, as rewards do without JAX.
_FLAG = "--xla_cpu_experimental_ynn_fusion_type="
_HAS_RACE = any(x.version.startswith("0.10.") for x in metadata.distributions(name="jaxlib"))
if _HAS_RACE and _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()
