"""VADE (arXiv 2511.18902) and group-based RL of vision-language models in JAX."""

import os
from importlib import metadata

__version__ = "0.2.0"  # CITATION.cff has it too; docs/changelog.md lists the changes

# YNNPACK fusions in jaxlib 0.10 have a race on CPUs with more than two threads: one update in three got
# different gradients. With 0.11 and 0.12, 60 updates gave the same bits, on 4 and on 8 threads.
# XLA reads its flags when the first device is used, so setting them here is early enough. jaxlib itself is
# not imported: rewards do without it.
_FLAG = "--xla_cpu_experimental_ynn_fusion_type="
_JAXLIB = next((x.version for x in metadata.distributions(name="jaxlib")), "none")
if _JAXLIB.startswith("0.10.") and _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()
