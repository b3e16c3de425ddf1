r"""DIVA-GRPO (arXiv 2603.01106) on Qwen2.5-VL-7B-Instruct: 64 problems a step, each with a variant. 4 x H200.

    python -m experiments.make_variants --source=train.jsonl --target=variants.jsonl --server=URL --model=NAME
    python -m experiments.train --config=configs/qwen7b_diva.py --workdir=runs/qwen7b_diva \
        --config.model.checkpoint=DIR --config.data.train=variants.jsonl --config.data.validation=FILE

Selector and advantages are the paper's, and the sizes those of its main run: 5 answers to each of 64
problems and 64 variants, one update a step, no KL, 5 epochs. Clip and lengths are those of EasyR1, on which
the paper's code is built. The paper trained on R1-ShareVL-52K.

`uniform` with `--config.num_prompts=64 --config.num_rollouts=10 --config.batch.prompts_per_minibatch=64`
is its baseline. Arguments are as in configs/qwen.py. Not run yet. The paper reports an average of 54.58 over
MathVista, MathVerse, MathVision, OlympiadBench, WeMath and MMK12, and 46.23 before training.
"""

from configs import qwen


def get_config(arg=None):
    """Returns the config; `arg` is as in configs/qwen.py, but the default selector is diva."""
    c = qwen.base(arg, "7b", "diva")
    c.loss.clip_high, c.loss.kl_coef = 0.3, 0.0
    if c.model.preset:  # smoke
        return c
    c.num_prompts, c.num_rollouts = 128, 5
    c.num_epochs = 5.0
    c.batch.prompts_per_minibatch = 128
    c.data.max_pixels = 1024 * 1024
    c.data.max_prompt_length = 2048
    c.sampling.max_tokens = c.eval.max_tokens = 4096
    c.eval.every = 10
    return c
