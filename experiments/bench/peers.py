"""Ours and others', with the same weights, prompts and answers: TRL, prefix_grouper, transformers.

An update is ours, TRL's own, which has a row for each answer, and torch's with prompts once by prefix_grouper
(arXiv 2506.05433), the fair peer; of a model with linear layers it is ours, with prompts once and with a row
for each answer. Decoding is ours and transformers' `generate`. The models are small ones of text with random
weights. torch has attention by SDPA, and the GPU if there is one. Peers that are not installed are left out.
"""

import dataclasses
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from configs import tiny_grpo
from experiments.bench import device, timing, workload
from experiments.bench.programs import DECODE, UPDATE
from vade_jax.models.qwen import config, files, flops, presets
from vade_jax.run import build
from vade_jax.types import Prompt, Rollouts

OURS, PLAIN = "ours, prompts once", "ours, one row an answer"
TRL, GROUPER, GENERATE = "TRL", "prefix_grouper", "transformers' generate"
YARDSTICK, HYBRID = "yardstick", "hybrid"  # of about 3 M parameters; three in four layers linear
SIZES = {  # the model, tokens of prompt and answer, prompts, answers to each
    UPDATE: [
        *[(YARDSTICK, 2048, 64, 2, 8), (YARDSTICK, 512, 64, 4, 8), (YARDSTICK, 128, 64, 4, 8)],
        (HYBRID, 512, 64, 4, 8),
    ],
    DECODE: [(YARDSTICK, 512, 64, 4, 8), (YARDSTICK, 128, 64, 4, 8)],
}
_TEXT = config.TextConfig(2048, 256, 4, 8, 2, 688, (16, 0, 0))
_LINEAR = config.LinearConfig(4, 8, 32, 32)
_HYBRID = dataclasses.replace(_TEXT, bias=False, qk_norm=True, linear=_LINEAR, interval=4)
presets.PRESETS[YARDSTICK] = config.Config(_TEXT, None, tie_embeddings=True)
presets.PRESETS[HYBRID] = config.Config(_HYBRID, None, tie_embeddings=True)


def tables_of(name: str, quick: bool) -> Iterator[timing.Table]:
    """Yields tables of updates, or of whole calls of the engine, and of their peers."""
    for preset, P, T, M, G in [(YARDSTICK, 16, 8, 2, 2)] if quick else SIZES[name]:
        ready = device.prepare(small(preset, P, T, M, G), name)
        policy, cases = ready.policy, {OURS: ready.call}
        title = (
            f"{name} of the {preset}, {M} prompts x {G} answers, prompt {P}, answer {T}, float32"
        )
        if preset == HYBRID:
            cases[PLAIN] = _plain(ready.run, ready.prompts, ready.rollouts)
        with tempfile.TemporaryDirectory() as directory:
            files.save(directory, policy.shape, policy.params, policy.dtype)
            for peer, package, make in PEERS[name] if preset == YARDSTICK else ():
                if importlib.util.find_spec(package):
                    cases[peer] = make(ready.run, directory, ready.prompts, ready.rollouts)
                else:
                    title += f"; {peer} is not installed"
            times = timing.interleaved(cases, rounds=2 if quick else 5)
        lengths = np.full(M, P), np.full(M * G, T), np.repeat(np.arange(M), G)
        passes = flops.BACKWARD if name == UPDATE else 1
        work = passes * flops.decoder(policy.shape.text, *lengths)
        yield timing.Table(title, times, work / timing.matmul_flops())


def small(preset: str, prompt: int, answer: int, num_prompts: int, num_rollouts: int) -> dict:
    """Returns the settings of a single update, or call of the engine, of so many tokens."""
    c = tiny_grpo.get_config("smoke")
    c.model.preset, c.model.dtype = preset, "float32"
    c.num_prompts, c.num_rollouts = num_prompts, num_rollouts
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = num_prompts
    c.engine.prompts_per_call, c.batch.remat = num_prompts, False  # peers store activations too
    c.data.max_prompt_length = c.data.length_multiple = prompt
    c.sampling.max_tokens = answer
    c.loss.kl_coef, c.loss.dual_clip = 0.0, 0.0
    return c.to_dict()


def _plain(run, prompts, rollouts: Rollouts) -> Callable:
    """Returns our update for repeated prompts, one for each answer."""
    policy = workload.random_policy(run)  # a separate one, as an update donates its weights
    prompts = [prompt for prompt in prompts for _ in range(run.num_rollouts)]
    rollouts = rollouts.replace(group_N=np.arange(len(prompts), dtype=np.int32))
    program = build.make_programs(run, policy).update
    return device.CALLS[UPDATE](run, policy, program, prompts, rollouts)


# ------------------------------------------------------------------------------ transformers
def _load(directory: str):
    """Returns the model of a directory, on the GPU if torch sees one, with attention by SDPA."""
    import torch
    import transformers

    torch.backends.cuda.matmul.allow_tf32 = False
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype="float32", attn_implementation="sdpa"
    )
    return loaded.to("cuda" if torch.cuda.is_available() else "cpu")


def _ids(prompts: Sequence[Prompt], repeats: int):
    """Returns the tokens of prompts of one length, each repeated `repeats` times, on the host."""
    import torch

    ids_NP = np.stack([prompt.token_P for prompt in prompts]).astype(np.int64)
    return torch.from_numpy(ids_NP.repeat(repeats, 0))


def _generate(run, directory: str, prompts, rollouts) -> Callable:
    """Returns `generate` for answers of exactly the run's length, with a cache."""
    import torch

    loaded, length = _load(directory).eval(), run.sampling.max_tokens
    ids_NP = _ids(prompts, run.num_rollouts).to(loaded.device)
    inputs = {"input_ids": ids_NP, "attention_mask": torch.ones_like(ids_NP)}
    exactly = {"min_new_tokens": length, "max_new_tokens": length}
    call = torch.no_grad(loaded.generate)
    return lambda: call(**inputs, do_sample=True, top_k=0, **exactly).cpu()


# ------------------------------------------------------------------------------ updates in torch
def _torch_step(loss, loaded, optimizer, clip_norm: float) -> float:
    """Clips the gradients of a loss and updates the weights; returns the loss."""
    import torch

    loss.backward()
    torch.nn.utils.clip_grad_norm_(loaded.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()  # on the host, so this has waited for the GPU


def _trl(run, directory: str, prompts, rollouts) -> Callable[[], float]:
    """Returns a step of a GRPOTrainer on fixed micro-batches: forward, loss, backward, clip and AdamW."""
    import datasets
    import tokenizers
    import torch
    import transformers
    import trl

    words = tokenizers.models.WordLevel({f"w{i}": i for i in range(8)}, unk_token="w0")
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as output:
        arguments = trl.GRPOConfig(
            output_dir=output,
            per_device_train_batch_size=len(rollouts.length_N),
            num_generations=run.num_rollouts,
            max_completion_length=run.sampling.max_tokens,
            beta=0.0,
            epsilon=run.loss.clip_low,
            epsilon_high=run.loss.clip_high,
            loss_type="dapo",
            learning_rate=run.optimizer.learning_rate,
            weight_decay=run.optimizer.weight_decay,
            gradient_checkpointing=False,
            model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
            use_cpu=not on_gpu,
            bf16=False,
            report_to=[],
        )
        trainer = trl.GRPOTrainer(
            model=directory,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["a"]}),
            # The trainer requires a tokenizer, which the update never uses.
            processing_class=transformers.PreTrainedTokenizerFast(
                tokenizer_object=tokenizers.Tokenizer(words), pad_token="w1", eos_token="w2"
            ),
        )
    trainer.current_gradient_accumulation_steps = 1
    loaded = trainer.model.to("cuda" if on_gpu else "cpu").train()
    optimizer = trainer.create_optimizer()
    inputs = {name: x.to(loaded.device) for name, x in _for_trl(prompts, rollouts).items()}
    loss = lambda: trainer.compute_loss(loaded, inputs)
    return lambda: _torch_step(loss(), loaded, optimizer, run.optimizer.clip_norm)


def _for_trl(prompts: Sequence[Prompt], rollouts: Rollouts) -> dict:
    """Returns prompts and answers under TRL's names."""
    import torch

    prompt_NP = _ids(prompts, len(rollouts.length_N) // len(prompts))
    answer_NT = torch.from_numpy(rollouts.token_NT.astype(np.int64))
    return {
        "prompt_ids": prompt_NP,
        "prompt_mask": torch.ones_like(prompt_NP),
        "completion_ids": answer_NT,
        "completion_mask": torch.ones_like(answer_NT),
        "advantages": torch.from_numpy(workload.advantages(rollouts)),
        "old_per_token_logps": torch.from_numpy(rollouts.logp_NT),
        "num_items_in_batch": torch.tensor(rollouts.token_NT.size),
    }


def _grouper(run, directory: str, prompts, rollouts) -> Callable[[], float]:
    """Returns a GRPO update of a text model whose prompts run once, by prefix_grouper."""
    import prefix_grouper
    import torch
    import transformers

    transformers.AttentionInterface.register("prompts_once", _attend)
    loaded = _load(directory).train()
    loaded.set_attn_implementation("prompts_once")
    put = lambda x: torch.from_numpy(x).to(loaded.device)
    prompt_MP = _ids(prompts, 1).to(loaded.device)
    ones_MP = torch.ones_like(prompt_MP)
    answer_NT, old_NT = put(rollouts.token_NT).long(), put(rollouts.logp_NT)
    advantage_N1, ones_NT = put(workload.advantages(rollouts))[:, None], torch.ones_like(answer_NT)
    grouper = prefix_grouper.PrefixGrouper.from_ungrouped_masks(
        prefix_mask=ones_MP,
        suffix_mask=ones_NT,
        group_sizes=run.num_rollouts,
        padding_mode="right",
    )
    token_MS = grouper.concat_input(prompt_MP, ones_MP, answer_NT, ones_NT)
    (M, P), T = prompt_MP.shape, answer_NT.shape[1]
    position_S = np.r_[:P, np.tile(np.r_[P : P + T], run.num_rollouts)]
    position_MS = put(position_S).repeat(M, 1)
    rates = {"lr": run.optimizer.learning_rate, "weight_decay": run.optimizer.weight_decay}
    optimizer = torch.optim.AdamW(loaded.parameters(), **rates)

    def loss():
        out = loaded.model(
            input_ids=token_MS,
            position_ids=position_MS,
            attention_mask=None,
            use_cache=False,
            prefix_grouper=grouper,
        )
        _, _, hidden, _ = grouper.split_output(out.last_hidden_state, include_prefix_last=1)
        logits = loaded.lm_head(hidden[:, :-1])  # only of answers, as ours
        logp_NT = torch.log_softmax(logits, -1).gather(-1, answer_NT[..., None])[..., 0]
        ratio_NT = torch.exp(logp_NT - old_NT)
        clipped_NT = ratio_NT.clamp(1 - run.loss.clip_low, 1 + run.loss.clip_high)
        return -torch.minimum(ratio_NT * advantage_N1, clipped_NT * advantage_N1).mean()

    return lambda: _torch_step(loss(), loaded, optimizer, run.optimizer.clip_norm)


def _attend(module, query, key, value, attention_mask, *, prefix_grouper, scaling, **_):
    """Attends as transformers' SDPA does; the package's own registration is for flash attention alone."""
    import torch

    def attend(q, k, v, *_):
        k, v = (x.repeat_interleave(module.num_key_value_groups, 1) for x in (k, v))
        num_queries, num_keys = q.shape[2], k.shape[2]
        how = {"is_causal": True}
        if num_queries != num_keys:  # an answer after its prompt
            mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=q.device)
            how = {"attn_mask": mask.tril(num_keys - num_queries)}
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling, **how)
        return attended.transpose(1, 2)

    return prefix_grouper.forward(attend, query, key, value), None


PEERS = {  # by program: name, package, and what makes a call
    UPDATE: ((TRL, "trl", _trl), (GROUPER, "prefix_grouper", _grouper)),
    DECODE: ((GENERATE, "transformers", _generate),),
}
