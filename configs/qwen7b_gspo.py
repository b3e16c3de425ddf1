r"""VADE + GSPO on Qwen2.5-VL-7B-Instruct with Table 4's values: 4 x H200. See configs/qwen.py.

    python -m experiments.train --config=configs/qwen7b_gspo.py --workdir=runs/qwen7b_gspo \
        --config.model.checkpoint=DIR --config.data.train=FILE --config.data.validation=FILE

Not run yet; the paper reports an average of 64.57 over its five benchmarks.
"""

from configs import default, qwen


def get_config(arg=None):
    """Returns the config; `arg` as in configs/qwen.py."""
    return qwen.base(arg, "7b", loss=default.gspo)
