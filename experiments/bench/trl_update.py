"""TRL's own GRPO update on the same weights, tokens and loss."""

import importlib.metadata
import importlib.util
import tempfile
import time
from collections.abc import Sequence

import jax
import numpy as np

from experiments.bench import hugging_face, workload
from vade_jax.models.qwen import config
from vade_jax.types import Batch, Params, Prompt, Rollouts

REQUIREMENT = "trl==1.16.0"
VERSION = importlib.util.find_spec("trl") and importlib.metadata.version("trl")
NAME = f"TRL {VERSION or '1.16.0'}"


class Step:
    """A GRPOTrainer on fixed micro-batches: each call does forward, loss, backward, clip and AdamW.

    The set-up favours TRL: attention by SDPA, and no gradient checkpointing (TRL's default) unless memory
    requires it.

    Args:
        directory: the model and its weights.
        inputs: micro-batches under TRL's names.
        group_size: answers to a prompt.
        dtype: of weights, optimizer and computation.
        remat: whether to use gradient checkpointing.
    """

    memory = "transformers, torch"

    def __init__(
        self,
        directory: str,
        inputs: list[dict],
        *,
        group_size: int,
        clip_norm: float,
        clip_low: float,
        clip_high: float,
        kl_coef: float,
        learning_rate: float,
        weight_decay: float,
        dtype: str = "float32",
        remat: bool = False,
        **_,
    ):
        import datasets
        import torch
        import trl

        self._clip_norm = clip_norm
        num_rows, length = inputs[0]["completion_ids"].shape
        on_gpu = torch.cuda.is_available()
        with tempfile.TemporaryDirectory() as output:
            self._trainer = trl.GRPOTrainer(
                model=directory,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=trl.GRPOConfig(
                    output_dir=output,
                    per_device_train_batch_size=num_rows,
                    num_generations=group_size,
                    max_completion_length=length,
                    beta=kl_coef,
                    epsilon=clip_low,
                    epsilon_high=clip_high,
                    loss_type="dapo",
                    use_bias_correction_kl=False,
                    learning_rate=learning_rate,
                    weight_decay=weight_decay,
                    gradient_checkpointing=remat,
                    model_init_kwargs={"dtype": dtype, "attn_implementation": "sdpa"},
                    use_cpu=not on_gpu,
                    bf16=False,  # no autocast: the weights already have this dtype
                    report_to=[],
                ),
                train_dataset=datasets.Dataset.from_dict({"prompt": ["a"]}),
                processing_class=_tokenizer(),
            )
        self._trainer.current_gradient_accumulation_steps = 1
        self._model = self._trainer.model.to("cuda" if on_gpu else "cpu").train()
        if remat:
            self._model.gradient_checkpointing_enable({"use_reentrant": False})
        self._optimizer = self._trainer.create_optimizer()
        move = lambda x: x.to(self._model.device) if isinstance(x, torch.Tensor) else x
        self._inputs = [{name: move(x) for name, x in one.items()} for one in inputs]
        self.loss = self()

    def __call__(self) -> float:
        import torch

        total = 0.0
        for inputs in self._inputs:
            loss = self._trainer.compute_loss(self._model, inputs)
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.gradient = float(norm)
        return float(total)


def of_text(
    shape: config.Config, params: Params, batch: Batch, sizes: workload.Sizes, **options
) -> Step:
    """Returns TRL's update of a text-only decoder on the rows of `workload.plain_batch`."""
    import torch

    tensor = jax.tree.map(lambda x: torch.from_numpy(np.array(x)), batch)
    prompt_ids = tensor.prompts.token_MP[:, : -sizes.answer].long()
    inputs = {
        "prompt_ids": prompt_ids,
        "prompt_mask": torch.ones_like(prompt_ids),
        "completion_ids": tensor.token_NT.long(),
        "completion_mask": tensor.mask_NT.long(),
        "advantages": tensor.advantage_N,
        "old_per_token_logps": tensor.old_logp_NT,
        "ref_per_token_logps": tensor.ref_logp_NT,
        "num_items_in_batch": tensor.mask_NT.sum(),
    }
    with tempfile.TemporaryDirectory() as directory:
        # From files, because the trainer also loads the reference by the name of the model.
        hugging_face.text_model(shape, params).save_pretrained(directory)
        return Step(directory, [inputs], group_size=sizes.group_size, **options)


def seconds_with_pictures(
    directory: str,
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    per_microbatch: int,
    rounds: int,
    **options,
) -> dict:
    """Returns the shortest time of an update on these prompts and answers, and its loss."""
    step = Step(directory, _with_pictures(prompts, rollouts, per_microbatch), **options)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        loss = step()  # a number on the host, so this waits for the GPU
        times.append(time.perf_counter() - start)
    return {"seconds": min(times), "loss": loss, "name": NAME}


def _with_pictures(
    prompts: Sequence[Prompt], rollouts: Rollouts, per_microbatch: int
) -> list[dict]:
    """Returns micro-batches of `per_microbatch` prompts under TRL's names."""
    import torch

    N, T = rollouts.token_NT.shape
    G, made = N // len(prompts), []
    advantage_N = np.random.default_rng(2).standard_normal(N).astype(np.float32)
    for first in range(0, len(prompts), per_microbatch):
        some = prompts[first : first + per_microbatch]
        rows = slice(first * G, (first + per_microbatch) * G)
        answer_NT = torch.from_numpy(rollouts.token_NT[rows].astype(np.int64))
        given = hugging_face.inputs(some, G)
        inputs = {
            "prompt_ids": given.pop("input_ids"),
            "prompt_mask": given.pop("attention_mask"),
            "completion_ids": answer_NT,
            "completion_mask": torch.ones_like(answer_NT),
            "advantages": torch.from_numpy(advantage_N[rows]),
            "old_per_token_logps": torch.from_numpy(rollouts.logp_NT[rows]),
            "num_items_in_batch": torch.tensor(N * T),
        }
        if given:
            types = given["mm_token_type_ids"]
            given["mm_token_type_ids"] = torch.cat(
                [types, torch.zeros_like(answer_NT, dtype=types.dtype)], 1
            )
            inputs |= given | {"num_images": [1] * len(answer_NT)}
        made.append(inputs)
    return made


def _tokenizer():
    """Returns a tokenizer, which the trainer requires but the update never uses."""
    import tokenizers
    import transformers

    words = {f"w{i}": i for i in range(8)}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0")),
        pad_token="w1",
        eos_token="w2",
    )
