r"""The paper's runs (arXiv 2511.18902, Table 4): Qwen2.5-VL-Instruct, 4 x H200 with 141 GB.

    python -m experiments.train --config=configs/qwen7b_gspo.py --workdir=runs/qwen7b_gspo \
        --config.model.checkpoint=DIR --config.data.train=FILE --config.data.validation=FILE

Arguments: `vade` (the default selector) or `uniform` (the baseline), `seed=3`, `smoke` (the tiny
model, for tests).
"""

from ml_collections import ConfigDict

from configs import arguments, default, tiny


def base(arg: str | None, size: str) -> ConfigDict:
    """Returns everything but the loss, for a checkpoint of `size` "3b" or "7b".

    Table 4 is spelled out, also where it agrees with the defaults.
    """
    args = arguments.of_run(arg)
    c = default.get_config()
    c.seed = args.seed
    c.num_steps = 240  # 15 "epochs" of 16 batches
    c.num_prompts = 512
    c.num_rollouts = 8
    c.model.size = size
    c.data.max_prompt_length = 8192
    c.sampling.max_tokens = c.eval.max_tokens = 2048
    c.optimizer.learning_rate = 1e-6
    c.loss.kl_coef = 0.01
    c.batch.prompts_per_minibatch = 128
    c.batch.prompts_per_microbatch = 8  # 64 answers: 16 a device
    if args.uniform:
        default.uniform(c)
    if args.smoke:
        tiny.smoke(c)
    return c
