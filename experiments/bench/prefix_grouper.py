"""A GRPO update in torch whose prompts run once, by the package prefix_grouper (arXiv 2506.05433).

It is the fair peer of our grouped forward: transformers' model, SDPA attention, and the same loss.
"""

import importlib.metadata
import importlib.util

import jax
import numpy as np

from experiments.bench import hugging_face, workload
from vade_jax.models.qwen import config
from vade_jax.types import Batch, Params

REQUIREMENT = "prefix_grouper==0.0.1.post1"
VERSION = importlib.util.find_spec("prefix_grouper") and importlib.metadata.version(
    "prefix_grouper"
)
NAME = f"prefix_grouper {VERSION or '0.0.1.post1'}"


class Step:
    """Each call does forward, loss, backward, clip and AdamW on the same answers.

    Args:
        shape: sizes of the text model.
        params: its weights.
        batch: of `workload.grouped_batch`, whose prompts and answers all have full length.
        sizes: of the batch.
        **options: the loss and the optimizer, as for `trl_update.Step`.
    """

    memory = "transformers, torch"

    def __init__(
        self, shape: config.Config, params: Params, batch: Batch, sizes: workload.Sizes, **options
    ):
        import prefix_grouper
        import torch
        import transformers

        transformers.AttentionInterface.register("prompts_once", _attend)
        self._model = hugging_face.text_model(shape, params).train()
        self._model.set_attn_implementation("prompts_once")
        self._options, self._sizes = options, sizes
        tensor = jax.tree.map(lambda x: torch.from_numpy(np.array(x)), batch)
        self._batch, self._answers = tensor, tensor.token_NT.long()
        prompts = tensor.prompts.token_MP[:, : sizes.prompt].long()
        ones = torch.ones_like(prompts)
        self._grouper = prefix_grouper.PrefixGrouper.from_ungrouped_masks(
            prefix_mask=ones,
            suffix_mask=torch.ones_like(self._answers),
            group_sizes=sizes.group_size,
            padding_mode="right",
        )
        self._tokens = self._grouper.concat_input(
            prompts, ones, self._answers, torch.ones_like(self._answers)
        )
        of_answer = torch.arange(sizes.prompt, sizes.prompt + sizes.answer)
        position = torch.cat([torch.arange(sizes.prompt), of_answer.repeat(sizes.group_size)])
        self._position = position.repeat(sizes.num_prompts, 1)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=options["learning_rate"],
            weight_decay=options["weight_decay"],
        )
        self.loss = self()

    def __call__(self) -> float:
        import torch

        loss = self._grpo()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._options["clip_norm"])
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.gradient = float(norm)
        return float(loss.detach())

    def _grpo(self):
        """Returns the clipped loss and the KL, averaged over tokens; written out in torch."""
        import torch

        given, options = self._batch, self._options
        out = self._model.model(
            input_ids=self._tokens,
            position_ids=self._position,
            attention_mask=None,
            use_cache=False,
            prefix_grouper=self._grouper,
        )
        _, _, hidden, _ = self._grouper.split_output(out.last_hidden_state, include_prefix_last=1)
        logits = self._model.lm_head(hidden[:, :-1])  # only of answers, as ours
        logp = torch.log_softmax(logits, -1).gather(-1, self._answers[..., None])[..., 0]
        ratio, advantage = torch.exp(logp - given.old_logp_NT), given.advantage_N[:, None]
        clipped = ratio.clamp(1 - options["clip_low"], 1 + options["clip_high"])
        policy = -torch.minimum(ratio * advantage, clipped * advantage)
        x = given.ref_logp_NT - logp
        return (policy + options["kl_coef"] * (torch.exp(x) - x - 1)).mean()


def _attend(module, query, key, value, attention_mask, *, prefix_grouper, scaling, **_):
    """Attends as transformers' SDPA does; the package's own registration is for flash attention alone."""
    import torch

    def attend(q, k, v, *_):
        k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
        num_queries, num_keys = q.shape[2], k.shape[2]
        if num_queries == num_keys:
            how = {"is_causal": True}
        else:  # an answer after its prompt
            mask = torch.ones(num_queries, num_keys, dtype=torch.bool)
            how = {"attn_mask": mask.tril(num_keys - num_queries)}
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling, **how)
        return attended.transpose(1, 2)

    return prefix_grouper.forward(attend, query, key, value), None
