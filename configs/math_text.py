r"""Text maths: VADE + GSPO on Qwen2.5-1.5B-Instruct, the kind of model and data in most selection papers.

    python -m experiments.train --config=configs/math_text.py --workdir=runs/math \
        --config.model.checkpoint=DIR --config.data.train=train.jsonl \
        --config.data.validation=math500.jsonl

The files of MATH (problem, solution) and GSM8K (question, answer) can be read directly, .jsonl or .parquet.
Qwen2.5, Qwen2.5-Math and Qwen3 of any size work, for example `--config.model.size=qwen3-4b`; the checkpoint
must have that size. `--config.data.template.enable_thinking=True` lets Qwen3 think at length. Arguments and
layouts are as in configs/qwen.py; `single` is one GPU. `smoke` is a tiny text model, for tests.

Not run at this size yet. The batch is smaller than in Table 4, and the length limits of prompts and answers
suit maths.
"""

from ml_collections import ConfigDict

from configs import qwen


def get_config(arg=None):
    """Returns the config; `arg` as in configs/qwen.py."""
    c = qwen.base(arg, "qwen2.5-1.5b", loss="gspo")
    c.data.template = ConfigDict({"enable_thinking": False})  # Qwen2.5's template ignores this word
    c.reward.format = "boxed"  # a base model does not write think tags unless told to
    c.data.instruction = "Please reason step by step, and put your final answer within \\boxed{}."
    if c.model.preset:  # smoke: the tiny text model, without the built-in data, which are pictures
        c.model.preset = "tiny_qwen2.5"
        c.eval.num_samples = 1
        c.data.train = c.data.validation = ""
        return c
    c.num_prompts, c.batch.prompts_per_minibatch = 256, 64
    c.data.max_prompt_length = 1024
    c.sampling.max_tokens = c.eval.max_tokens = 3072
    return c
