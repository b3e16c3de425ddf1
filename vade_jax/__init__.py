"""VADE (arXiv 2511.18902) and group-based RL of vision-language models in JAX."""

import os

import jaxlib

__version__ = "0.1.0"  # here alone; docs/changelog.md says what is in it

# jaxlib 0.10's YNNPACK fusions race on CPUs with more than two threads: one update in three came
# out with other gradients. Those of 0.11 and 0.12 gave the same bits 60 times, with 4 and 8 threads.
# XLA reads its flags when the first device is used, so here is in time.
_FLAG = "--xla_cpu_experimental_ynn_fusion_type="
if jaxlib.__version__.startswith("0.10.") and _FLAG not in os.environ.get("XLA_FLAGS", ""):  # pyright: ignore[reportPrivateImportUsage]
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()
