r"""VADE + GSPO on Qwen3-VL-4B-Instruct on one GPU of 80 GB, an adapter. See configs/qwen.py.

    python -m experiments.train --config=configs/qwen3vl_4b.py:single,lora --workdir=runs/qwen3vl_4b \
        --config.model.checkpoint=DIR --config.data.train=FILE --config.data.validation=FILE

The values are those of VADE's Table 4, whose paper did not train Qwen3-VL. The words are those of
configs/qwen.py, and `grpo` for GRPO's loss. Qwen3-VL has no default system prompt, unlike Qwen2.5-VL: who
compares the two gives both the same one. Not run yet.
"""

from configs import qwen


def get_config(arg=None):
    """Returns the config; `arg` as in configs/qwen.py, or with the word `grpo`."""
    return qwen.of_qwen3vl(arg, "qwen3vl-4b")
