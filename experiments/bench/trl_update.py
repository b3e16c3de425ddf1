"""TRL's own GRPO update on the same weights, tokens and loss; the one file here that imports torch."""

import importlib.metadata
import importlib.util
import tempfile

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
        **settings,
    ):
        self._clip_norm = clip_norm
        with tempfile.TemporaryDirectory() as directory:
            _model(shape, params).save_pretrained(directory)
            self._trainer = _trainer(directory, shape.text, sizes, **settings)
        self._trainer.current_gradient_accumulation_steps = 1
        self._trainer.model.train()
        self._optimizer = self._trainer.create_optimizer()
        self._inputs = _inputs(batch)
        self.loss = self()

    def __call__(self) -> float:
        import torch

        model = self._trainer.model
        loss = self._trainer.compute_loss(model, self._inputs)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self._clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.gradient = float(norm)
        return float(loss.detach())


def _model(shape: config.Config, params: Params):
    """Returns the decoder as transformers' Qwen2, with the same weights."""
    import torch
    import transformers

    model = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=shape.text.vocab_size,
            hidden_size=shape.text.width,
            intermediate_size=shape.text.mlp_width,
            num_hidden_layers=shape.text.num_layers,
            num_attention_heads=shape.text.num_heads,
            num_key_value_heads=shape.text.num_kv_heads,
            rms_norm_eps=shape.text.norm_eps,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": shape.text.rope_theta,
            },
            tie_word_embeddings=True,
        )
    )
    tensors = {
        name: torch.from_numpy(np.array(x))
        for name, x in weights.from_params(shape, params)
        if name.startswith("model.")
    }
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    return model


def _trainer(directory: str, shape, sizes, *, kl_coef, learning_rate, weight_decay, **clip):
    import datasets
    import trl

    args = trl.GRPOConfig(
        output_dir=directory,
        per_device_train_batch_size=sizes.num_answers,
        num_generations=sizes.group_size,
        max_completion_length=sizes.answer,
        beta=kl_coef,
        epsilon=clip["clip_low"],
        epsilon_high=clip["clip_high"],
        loss_type="dapo",
        use_bias_correction_kl=False,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
        use_cpu=True,
        bf16=False,
        report_to=[],
    )
    return trl.GRPOTrainer(
        model=directory,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a"]}),
        processing_class=_tokenizer(shape.vocab_size),
    )


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


def _inputs(batch: Batch) -> dict:
    """Returns the batch under TRL's names."""
    import torch

    T = batch.token_NT.shape[1]

    def tensor(x):
        return torch.from_numpy(np.array(x))

    prompt_ids = tensor(batch.prompts.token_MP[:, :-T]).long()
    mask_NT = tensor(batch.mask_NT)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": torch.ones_like(prompt_ids),
        "completion_ids": tensor(batch.token_NT).long(),
        "completion_mask": mask_NT.long(),
        "advantages": tensor(batch.advantage_N),
        "old_per_token_logps": tensor(batch.old_logp_NT),
        "ref_per_token_logps": tensor(batch.ref_logp_NT),
        "num_items_in_batch": mask_NT.sum(),
    }
