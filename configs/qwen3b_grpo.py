r"""VADE + GRPO on Qwen2.5-VL-3B-Instruct with Table 4's values: 4 x H200. See configs/qwen.py.

    python -m experiments.train --config=configs/qwen3b_grpo.py --workdir=runs/qwen3b_grpo \
        --config.model.checkpoint=DIR --config.data.train=FILE --config.data.validation=FILE

Not run yet; the paper reports an average of 57.32 over its five benchmarks.
"""

from configs import default, qwen


def get_config(arg=None):
    """Returns the config; `arg` as in configs/qwen.py."""
    return qwen.base(arg, "3b", loss=default.grpo)
