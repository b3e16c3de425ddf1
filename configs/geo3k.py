r"""Geometry3K with GRPO, on Qwen2.5-VL-3B or Qwen3-VL-4B: the usual arena of selectors. 4 x H200.

    pip install -e '.[train,cuda,vllm]'
    python -m experiments.train --config=configs/geo3k.py --workdir=runs/geo3k

2,101 questions to train on and 601 to validate, from `hiyouga/geometry3k` on the hub. Files of verl's
`examples/data_preprocess/geo3k.py` can be read directly (`--config.data.train=train.parquet`, ...).

B, G, the clip, the KL and the length of answers are those of DPS's code for the 3B (arXiv 2603.10887);
MoPPS (2507.04632) has the same B and G. EasyR1's own recipe has 5 answers of up to 2,048 tokens. Numbers
are compared as numbers, and formulas by SymPy (`data.kind`); these libraries use mathruler for both.

Arguments: `uniform`, `selector=dapo`, `selector=dps` or any other selector that does
not need categories of rows (`sec` and `strata` need them, and so does `pooled` without
`--config.selector.arrays={}`); the layouts and other arguments of configs/qwen.py. `qwen3vl` takes
Qwen3-VL-4B-Instruct instead of Qwen2.5-VL-3B-Instruct. Not run yet. A sweep, where all rows are one category:

    python -m experiments.sweep --config=configs/sweep.py:base=configs/geo3k.py --workdir=runs/geo3k \
        --config.arms=uniform,dapo,vade,pooled_blind --config.baseline=uniform --config.seeds=0,1,2
"""

from configs import qwen


def get_config(arg=None):
    """Returns the config; all words except `qwen3vl` are as in configs/qwen.py."""
    is_qwen3vl = "qwen3vl" in (arg or "").split(",")
    c = qwen.base(arg, "qwen3vl-4b" if is_qwen3vl else "3b", qwen3vl=False)
    c.loss.clip_high = 0.28
    if c.model.preset:  # smoke: built-in questions
        return c
    c.num_epochs, c.num_steps = 0.0, 100
    c.num_prompts, c.num_rollouts = 512, 8
    c.model.checkpoint = f"Qwen/{'Qwen3-VL-4B' if is_qwen3vl else 'Qwen2.5-VL-3B'}-Instruct"
    c.data.train = "hiyouga/geometry3k:train"
    c.data.validation = "hiyouga/geometry3k:test"
    c.data.kind = "expr"
    c.data.max_prompt_length = 2048
    c.sampling.max_tokens = c.eval.max_tokens = 1024
    c.eval.every = 10
    return c
