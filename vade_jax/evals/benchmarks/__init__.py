"""The paper's five benchmarks by their official rules, and other scorers of the same files.

`BENCHMARKS[name]` is a `base.Benchmark`; the first five are the paper's.
"""

from vade_jax.evals.benchmarks import (
    chartqa,
    mathverse,
    mathvision,
    mathvista,
    scienceqa,
)
from vade_jax.evals.benchmarks.base import PROFILES, Benchmark

_ALL = (
    mathvista.BENCHMARK,
    mathverse.BENCHMARK,
    mathvision.BENCHMARK,
    scienceqa.BENCHMARK,
    chartqa.BENCHMARK,
    mathvista.BINARY,
    mathverse.DIRECT,
    mathvision.LMMS_EVAL,
    mathvision.JUDGED,
)
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
PAPER = tuple(BENCHMARKS)[:5]

__all__ = ["BENCHMARKS", "PAPER", "PROFILES", "Benchmark"]
