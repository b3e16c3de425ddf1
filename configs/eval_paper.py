"""The paper's five benchmarks: average@4, or greedy where the paper's numbers are.

    python -m experiments.evaluate --config=configs/eval_paper.py --checkpoint=DIR --workdir=DIR \
        --config.benchmarks.mathvista=testmini.parquet --judge_server=URL

Hardware: what the policy needs, and a server for the judge. That is the paper's Qwen2.5-72B-Instruct unless
--judge_model=NAME says another; what it is asked is worded here, and MathVision is scored by rules. What else
can be asked, and how: docs/evaluation.md.

Arguments: `cot` (the policy reasons and boxes its answer; another protocol, other numbers);
`seed=3`. What every field means stands in vade_jax/evals/settings.py.
"""

from ml_collections import ConfigDict

from configs import arguments
from vade_jax.evals.benchmarks import PAPER_JUDGE
from vade_jax.evals.settings import Evaluation


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns what is asked, of whom, and who judges; what no protocol fixes is pinned there."""
    args = arguments.parse(arg, cot=False, seed=0)
    profile = "cot" if args.cot else "paper"  # never in one table
    c = ConfigDict(Evaluation(profile=profile, seed=args.seed).to_dict())
    c.judge.model = PAPER_JUDGE
    return c
