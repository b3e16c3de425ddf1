r"""Geometry3K on Qwen2.5-VL-3B-Instruct with GRPO: where most selectors for VLMs are compared. 4 x H200.

    pip install -e '.[train,cuda,vllm,hub]'
    python -m experiments.train --config=configs/geo3k.py --workdir=runs/geo3k

2,101 questions to train on, 601 to validate, `hiyouga/geometry3k` of the hub; its own rows are EasyR1's
form, and files that verl's `examples/data_preprocess/geo3k.py` makes are read as they are:

    --config.data.train=train.parquet --config.data.validation=test.parquet

B, G, the clip, the KL and the length of answers are those of DPS's code for the 3B (arXiv 2603.10887);
MoPPS (2507.04632) has the same B and G. EasyR1's own recipe has 5 answers of up to 2,048 tokens. Numbers
are compared as numbers and formulas by math-verify (`data.kind`); these libraries take mathruler for
both.

Arguments: `vade` (the default), `uniform`, `selector=dapo`, `selector=dps` or any other that needs no
category of the rows (`sec` and `strata` do; so does `pooled`, but for
`--config.selector.arrays={}`); the layouts and the rest of configs/qwen.py. `arms` makes it a sweep over
uniform, dapo, vade and pooled, every arm of configs/sweep.py at hand:

    python -m experiments.sweep --config=configs/geo3k.py:arms --workdir=runs/geo3k --config.seeds=0,1,2

What a run takes, before anything is bought (with `'.[train,cuda]'`, in an environment of its own):

    python -m experiments.bench --suite=plan --config=configs/geo3k.py --target=h200 --devices=4

Not run yet.
"""

from configs import arguments, arms, default, qwen

ARMS = "uniform,dapo,vade,pooled"
BY_CATEGORY = ("pooled",)  # can do without


def get_config(arg=None):
    """Returns the config, or with the word `arms` a sweep; the rest of `arg` as in configs/qwen.py.

    Raises:
        ValueError: an unknown word, or a selector beside `arms`.
    """
    is_sweep, words = arguments.without(arg, "arms")
    run = _run(words)
    if not is_sweep:
        return run
    if run.selector.name != "vade":
        raise ValueError(f"config argument {arg!r}: name no selector, --config.arms says which")
    known = arms.rivals(run) | arms.variants(run)
    # The rows name no family: all of them are one category.
    for name in BY_CATEGORY:
        known[name]["selector"].update(arrays={})
    return arms.make(run, "geo3k", arms=known, chosen=ARMS, losses={"grpo": {}}, baseline="uniform")


def _run(arg):
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
