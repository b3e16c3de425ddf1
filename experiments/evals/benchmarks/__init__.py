"""The paper's five benchmarks by their official rules, MathVision's by a harness too, and MMK12.

`BENCHMARKS[name]` is a `base.Benchmark`; the first five are the paper's.
"""

from experiments.evals.benchmarks import chartqa, mathverse, mathvision, mathvista, mmk12, scienceqa
from experiments.evals.benchmarks.base import Benchmark

_ALL = (
    mathvista.BENCHMARK,
    mathverse.BENCHMARK,
    mathvision.BENCHMARK,
    scienceqa.BENCHMARK,
    chartqa.BENCHMARK,
    mathvision.LMMS_EVAL,
    mmk12.BENCHMARK,
)
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
PAPER = tuple(BENCHMARKS)[:5]
# arXiv 2511.18902, Table 1: the five benchmarks in the order of `PAPER`, and their average.
_TABLE_1 = {
    "7B": {
        "base": (69.30, 40.36, 18.55, 84.53, 80.40, 58.63),
        "GRPO": (72.85, 41.36, 20.71, 90.08, 84.12, 61.82),
        "DAPO + GRPO": (71.80, 47.11, 24.16, 89.54, 85.72, 63.67),
        "VADE + GRPO": (75.10, 45.65, 25.79, 91.67, 85.56, 64.75),
        "GSPO": (71.88, 41.09, 23.29, 91.92, 84.60, 62.56),
        "DAPO + GSPO": (73.35, 47.01, 24.13, 91.32, 86.04, 64.37),
        "VADE + GSPO": (73.45, 45.70, 25.68, 91.77, 86.24, 64.57),
    },
    "3B": {
        "base": (63.15, 23.27, 11.29, 76.70, 78.84, 50.65),
        "GRPO": (63.37, 33.40, 19.16, 85.08, 76.80, 55.56),
        "DAPO + GRPO": (66.88, 38.03, 21.82, 83.64, 82.20, 58.51),
        "VADE + GRPO": (63.62, 37.22, 18.92, 85.37, 81.48, 57.32),
        "GSPO": (62.80, 33.47, 17.55, 84.09, 82.12, 56.01),
        "DAPO + GSPO": (64.70, 32.08, 16.00, 81.36, 81.36, 55.10),
        "VADE + GSPO": (63.82, 32.89, 19.20, 84.58, 81.40, 56.38),
    },
}
PAPER_SCORES = {
    size: {label: dict(zip((*PAPER, "average"), row, strict=True)) for label, row in rows.items()}
    for size, rows in _TABLE_1.items()
}
PAPER_JUDGE = "Qwen/Qwen2.5-72B-Instruct"

__all__ = [
    "BENCHMARKS",
    "PAPER",
    "PAPER_JUDGE",
    "PAPER_SCORES",
    "Benchmark",
]
