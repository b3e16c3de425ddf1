r"""The paper's runs (arXiv 2511.18902, Table 4): Qwen2.5-VL-Instruct on 4 x H200 with 141 GB.

    python -m experiments.train --config=configs/qwen7b_gspo.py --workdir=runs/qwen7b_gspo \
        --config.model.checkpoint=DIR --config.data.train=FILE --config.data.validation=FILE

Arguments: `uniform` (the baseline of VADE, which is the default) or `selector=kalman`; `seed=3`; a
layout (below); `bf16`, weights in bfloat16, for GPUs of 80 GB; `lora`, which trains an adapter of rank 32 on
the decoder instead of all weights; `smoke` (the tiny model, for tests). To see how much memory a run needs on
each device before you start it:

    python -m experiments.bench --suite=plan --config=configs/qwen7b_gspo.py --target=h200 --devices=4

Layouts, which GPU does what (docs/scale_out.md):

colocated (the default): every GPU trains and serves, in turns. Two replicas of vLLM on two GPUs each keep
    `layout.serve_memory` of every GPU, JAX takes `layout.train_memory`. `layout.sleep` frees vLLM's share
    while the policy learns; JAX can use it only with XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async.
`single`: the same on one GPU: the 3B on an H200, or adapters (`lora`) of the 3B and the 7B on an H100.
`split`: GPUs 0 and 1 train, GPUs 2 and 3 serve, each with nearly all of its memory; each half waits for the
other. It is for prompts or models that are too large for the colocated layout. `local`: no vLLM. The built-in
engine decodes with the trainer's own arrays, on GPU or TPU. elsewhere: `--config.engine.url=http://host:8000`
uses a server that already runs. Both sides read
    `engine.sync_directory`; on one node /dev/shm/NAME is faster and takes 16 GB for the 7B.

configs/qwen3vl_*.py and qwen3_5_*.py have the same values; `grpo` is that loss. Their models have no default
system prompt, unlike Qwen2.5-VL: to compare them, give both the same one. Qwen3.5 is read from the hub.

No training of this size has been run yet; docs/scale_out.md has the planned memory. The paper
reports these averages over its five benchmarks, in the order untrained, VADE + GRPO, VADE + GSPO: 58.63,
64.75 and 64.57 for the 7B; 50.65, 57.32 and 56.38 for the 3B.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from configs import arguments, default, tiny


def base(
    arg: str | None = None, size: str = "7b", selector: str = "vade", loss: str = "grpo", **more
) -> ConfigDict:
    """Returns the run of a checkpoint of `size`: "3b", "qwen2.5-1.5b" or, on the hub, "Qwen/Qwen3.5-2B".

    `selector` is used if `arg` names none; `more` are further words of the caller. Every value of Table 4
    is set here, even where it equals the default.
    """
    words = ("single", "split", "local", "lora", "bf16", "grpo")
    args = arguments.of_run(arg, selector, **dict.fromkeys(words, False), **more)
    layouts = {"single": single, "split": split, "local": local}
    layout = next((layouts[word] for word in layouts if args[word]), colocated)
    c = default.get_config()
    c.seed = args.seed
    c.num_epochs = 15.0
    c.num_prompts = 512
    c.num_rollouts = 8
    c.model.checkpoint = size if "/" in size else ""
    c.model.size = size.rpartition("/")[2].lower()
    c.data.max_prompt_length = 8192
    c.sampling.max_tokens = c.eval.max_tokens = 2048
    c.optimizer.learning_rate = 1e-6
    c.loss.kl_coef = 0.01
    c.batch.prompts_per_minibatch = 128
    c.batch.prompts_per_microbatch = 8  # 64 answers, 16 on each device
    layout(c)
    if args.bf16:
        bfloat16(c, layout)
    if args.lora:
        lora(c)
    default.selector(c, args.selector)
    if args.smoke:
        tiny.smoke(c)
    default.loss(c, "grpo" if args.grpo else loss)
    return c


def bfloat16(c: ConfigDict, layout: Callable[[ConfigDict], None]) -> None:
    """Keeps weights in bfloat16, for GPUs of 80 GB.

    If the same GPUs train and serve, their memory is divided so that the 7B fits on four, and the 3B on one
    without a KL term (its reference takes 7.5 GB).
    """
    c.model.param_dtype = "bfloat16"
    if layout is single:
        c.layout.train_memory, c.layout.serve_memory = 0.85, 0.12
    elif layout is colocated:
        c.batch.prompts_per_microbatch = 4  # one on each device
        c.layout.train_memory, c.layout.serve_memory = 0.74, 0.25


def lora(c: ConfigDict) -> None:
    """Trains an adapter, at ten times the learning rate for all weights; the paper uses no adapter."""
    c.lora.rank, c.lora.alpha = 32, 32.0
    c.optimizer.learning_rate = 1e-5


def colocated(c: ConfigDict) -> None:
    """Sets two replicas of vLLM on two GPUs each, the same four GPUs that train."""
    c.engine.name = "vllm_server"
    c.engine.data_parallel, c.engine.tensor_parallel = 2, 2
    c.layout.train_memory, c.layout.serve_memory = 0.68, 0.3


def single(c: ConfigDict) -> None:
    """Sets vLLM on the single GPU that also trains."""
    c.engine.name = "vllm_server"
    c.batch.prompts_per_microbatch = 1
    c.layout.train_memory, c.layout.serve_memory = 0.71, 0.25


def split(c: ConfigDict) -> None:
    """Sets vLLM on GPUs 2 and 3; GPUs 0 and 1 train."""
    c.engine.name = "vllm_server"
    c.engine.tensor_parallel = 2
    c.layout.train, c.layout.serve = "0,1", "2,3"
    c.layout.train_memory, c.layout.serve_memory = 0.92, 0.9


def local(c: ConfigDict) -> None:
    """Sets the built-in engine, which decodes on the trainer's devices with its arrays."""
    c.engine.name = "local"
    c.engine.prompts_per_call = 32  # with 64, decoding takes more memory than the update
    c.layout.train_memory = 0.92  # JAX would leave a quarter of a GPU unused
