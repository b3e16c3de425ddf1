"""The paper's five benchmarks by their official rules, and other scorers of the same files.

`BENCHMARKS[name]` is a `base.Benchmark`; the first five are the paper's.
"""

from vade_jax.evals.benchmarks import chartqa, mathverse, mathvision, mathvista, scienceqa
from vade_jax.evals.benchmarks.base import Benchmark

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
# Average of the five benchmarks and, where known, their scores: arXiv 2511.18902, Table 1.
PAPER_SCORES = {
    "7B": {
        "base": {"average": 58.63, "mathverse": 40.36},
        "GRPO": {"average": 61.82},
        "DAPO + GRPO": {"average": 63.67},
        "VADE + GRPO": {"average": 64.75},
        "GSPO": {"average": 62.56},
        "DAPO + GSPO": {"average": 64.37},
        "VADE + GSPO": {"average": 64.57},
    },
    "3B": {
        "base": {"average": 50.65},
        "GRPO": {"average": 55.56},
        "DAPO + GRPO": {"average": 58.51},
        "VADE + GRPO": {"average": 57.32},
        "GSPO": {"average": 56.01},
        "DAPO + GSPO": {"average": 55.10},
        "VADE + GSPO": {"average": 56.38},
    },
}

__all__ = ["BENCHMARKS", "PAPER", "PAPER_SCORES", "Benchmark"]
