"""TRL's own GRPO update on the same weights, tokens and loss; the one file here that imports torch."""

import importlib.metadata
import importlib.util
import tempfile

import jax
import numpy as np

from experiments.bench import workload
from vade_jax.models.qwen25vl import config, weights
from vade_jax.types import Batch, Params

REQUIREMENT = "trl==1.16.0"
VERSION = importlib.util.find_spec("trl") and importlib.metadata.version("trl")
NAME = f"TRL {VERSION or '1.16.0'}"


class Step:
    """A GRPOTrainer on one fixed batch: a call is forward, loss, backward, clip and AdamW.

    Set up in TRL's favour: attention by SDPA, no gradient checkpointing (its default is to do it).
    """

    memory = "Qwen2ForCausalLM, torch"

    def __init__(
        self,
        shape: config.Config,
        params: Params,
        batch: Batch,
        sizes: workload.Sizes,
        *,
        clip_norm: float,
        clip_low: float,
        clip_high: float,
        kl_coef: float,
        learning_rate: float,
        weight_decay: float,
        **_,
    ):
        import datasets
        import torch
        import trl

        self._clip_norm = clip_norm
        with tempfile.TemporaryDirectory() as directory:
            # From files: the trainer also loads the reference, by the name of the model.
            _model(shape, params).save_pretrained(directory)
            self._trainer = trl.GRPOTrainer(
                model=directory,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=trl.GRPOConfig(
                    output_dir=directory,
                    per_device_train_batch_size=sizes.num_answers,
                    num_generations=sizes.group_size,
                    max_completion_length=sizes.answer,
                    beta=kl_coef,
                    epsilon=clip_low,
                    epsilon_high=clip_high,
                    loss_type="dapo",
                    use_bias_correction_kl=False,
                    learning_rate=learning_rate,
                    weight_decay=weight_decay,
                    gradient_checkpointing=False,
                    model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
                    use_cpu=True,
                    bf16=False,
                    report_to=[],
                ),
                train_dataset=datasets.Dataset.from_dict({"prompt": ["a"]}),
                processing_class=_tokenizer(shape.text.vocab_size),
            )
        self._trainer.current_gradient_accumulation_steps = 1
        self._model = self._trainer.model.train()
        self._optimizer = self._trainer.create_optimizer()
        tensor = jax.tree.map(lambda x: torch.from_numpy(np.array(x)), batch)
        prompt_ids = tensor.prompts.token_MP[:, : -sizes.answer].long()
        self._inputs = {  # the batch under TRL's names
            "prompt_ids": prompt_ids,
            "prompt_mask": torch.ones_like(prompt_ids),
            "completion_ids": tensor.token_NT.long(),
            "completion_mask": tensor.mask_NT.long(),
            "advantages": tensor.advantage_N,
            "old_per_token_logps": tensor.old_logp_NT,
            "ref_per_token_logps": tensor.ref_logp_NT,
            "num_items_in_batch": tensor.mask_NT.sum(),
        }
        self.loss = self()

    def __call__(self) -> float:
        import torch

        loss = self._trainer.compute_loss(self._model, self._inputs)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.gradient = float(norm)
        return float(loss.detach())


def _model(shape: config.Config, params: Params):
    """Returns the decoder as transformers' Qwen2, with the same weights."""
    import torch
    import transformers

    # What is written for Qwen2.5-VL has Qwen2's names, too. Its rotation of text is the plain one.
    fields = {**shape.to_hf(), "model_type": "qwen2", "rope_scaling": None}
    del fields["vision_config"], fields["architectures"]
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config.from_dict(fields))
    tensors = {
        name: torch.from_numpy(np.array(x))
        for name, x in weights.from_params(shape, params)
        if name.startswith("model.")
    }
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    return model


def _tokenizer(vocab_size: int):
    """Returns a tokenizer that the trainer asks for and the update never uses."""
    import tokenizers
    import transformers

    words = {f"w{i}": i for i in range(vocab_size)}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0")),
        pad_token="w1",
        eos_token="w2",
    )
