"""The paper's five benchmarks by their official rules, and MathVision also by those of a harness.

`BENCHMARKS[name]` is a `base.Benchmark`; the first five are the paper's.
"""

from experiments.evals.benchmarks import chartqa, mathverse, mathvision, mathvista, scienceqa

_ALL = (
    mathvista.BENCHMARK,
    mathverse.BENCHMARK,
    mathvision.BENCHMARK,
    scienceqa.BENCHMARK,
    chartqa.BENCHMARK,
    mathvision.LMMS_EVAL,
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in _ALL}
PAPER = tuple(BENCHMARKS)[:5]
