"""The paper's five benchmarks: average@4, or greedy decoding where the paper's numbers are greedy.

    python -m experiments.evaluate --config=configs/eval_paper.py --checkpoint=DIR --workdir=DIR \
        --config.benchmarks.mathvista=testmini.parquet --judge_server=URL

The judge is the paper's Qwen2.5-72B-Instruct unless --judge_model=NAME names another (docs/evaluation.md).
Arguments: `cot` (the policy reasons and boxes its answer: a different protocol with different numbers);
`seed=3`. experiments/evals/settings.py explains every field.
"""

from ml_collections import ConfigDict

from configs import arguments
from experiments.evals.settings import Evaluation


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns the evaluation: benchmarks, protocol and judge; `Evaluation` pins what no protocol fixes."""
    args = arguments.parse(arg, cot=False, seed=0)
    profile = "cot" if args.cot else "paper"  # never mix the two in one table
    c = ConfigDict(Evaluation(profile=profile, seed=args.seed).to_dict())
    c.judge.model = "Qwen/Qwen2.5-72B-Instruct"  # the paper's
    return c
