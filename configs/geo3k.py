r"""Geometry3K on Qwen2.5-VL-3B-Instruct with GRPO: where most selectors for VLMs are compared. 4 x H200.

    pip install -e '.[train,hub]'
    python -m experiments.train --config=configs/geo3k.py --workdir=runs/geo3k

2,101 questions to train on, 601 to validate, `hiyouga/geometry3k` of the hub; its own rows are EasyR1's form, and
files that verl's `examples/data_preprocess/geo3k.py` makes are read as they are:

    --config.data.train=train.parquet --config.data.validation=test.parquet

B, G, the clip, the KL and the length of answers are those of DPS's code for the 3B (arXiv 2603.10887); MoPPS
(2507.04632) has the same B and G. EasyR1's own recipe has 5 answers of up to 2,048 tokens. Numbers are compared as
numbers and formulas by math-verify (`data.kind`); these libraries take mathruler for both.

Arguments: `vade` (the default), `uniform`, `selector=dapo`, `selector=dps` or any other; the layouts and the rest
of configs/qwen.py. What it takes, before anything is bought:

    python -m experiments.bench --suite=plan --config=configs/geo3k.py --target=h200 --devices=4

Not run yet.
"""

from configs import default, qwen


def get_config(arg=None):
    """Returns the config; `arg` as in configs/qwen.py."""
    c = qwen.base(arg, "3b")
    default.grpo(c)
    c.loss.clip_high = 0.28
    if c.model.preset:  # smoke: built-in questions
        return c
    c.num_epochs, c.num_steps = 0.0, 100
    c.num_prompts, c.num_rollouts = 512, 8
    c.model.checkpoint = "Qwen/Qwen2.5-VL-3B-Instruct"
    c.data.train = "hiyouga/geometry3k:train"
    c.data.validation = "hiyouga/geometry3k:test"
    c.data.kind = "expr"
    c.data.max_prompt_length = 2048
    c.sampling.max_tokens = c.eval.max_tokens = 1024
    c.eval.every = 10
    return c
