"""Ours and others', with the same weights, prompts and answers: TRL, Tunix, prefix_grouper, transformers.

An update is ours, TRL's and Tunix's own, which have a row for each answer, and torch's with prompts once by
prefix_grouper (arXiv 2506.05433), the fair peer; of a model with linear layers it is ours, with prompts once
and with a row for each answer. Decoding is ours and transformers' `generate`. The models are small, their
weights random. torch has attention by SDPA, and the GPU if there is one. Absent peers are left out.
"""

import dataclasses
import functools
import importlib.util
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
import optax

from configs import tiny_grpo
from experiments.bench import device, timing, workload
from experiments.bench.programs import DECODE, UPDATE
from vade_jax.data import images
from vade_jax.models.qwen import config, files, flops, presets
from vade_jax.run import build
from vade_jax.types import Prompt, Rollouts

OURS, PLAIN = "ours, prompts once", "ours, one row an answer"
TRL, TUNIX, GROUPER, GENERATE = "TRL", "Tunix", "prefix_grouper", "transformers' generate"
# Of about 3 M parameters; in the last, three in four layers are linear.
YARDSTICK, PICTURE, HYBRID = "yardstick", "yardstick with pictures", "hybrid"
SIZES = {  # the model, tokens of prompt and answer, prompts, answers to each
    UPDATE: [
        *[(YARDSTICK, 2048, 64, 2, 8), (YARDSTICK, 512, 64, 4, 8), (YARDSTICK, 128, 64, 4, 8)],
        *[(PICTURE, 2048, 64, 2, 8), (HYBRID, 512, 64, 4, 8)],
    ],
    DECODE: [(YARDSTICK, 512, 64, 4, 8), (YARDSTICK, 128, 64, 4, 8)],
}
_TEXT = config.TextConfig(2048, 256, 4, 8, 2, 688, (16, 0, 0))
_SEEING = dataclasses.replace(_TEXT, mrope_section=(4, 6, 6))
_TOWER = config.VisionConfig(depth=2, width=128, num_heads=4, mlp_width=344, full_blocks=(1,))
_LINEAR = config.LinearConfig(4, 8, 32, 32)
_HYBRID = dataclasses.replace(_TEXT, bias=False, qk_norm=True, linear=_LINEAR, interval=4)
presets.PRESETS[YARDSTICK] = config.Config(_TEXT, None, tie_embeddings=True)
presets.PRESETS[PICTURE] = config.Config(_SEEING, _TOWER, True, 2047, 2046, 2045, 2044)
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
            for peer, package, make in PEERS.get((name, preset), ()):
                if (peer, P) == (TUNIX, 2048):
                    title += "; the scores of Tunix take more than 20 GB"
                elif importlib.util.find_spec(package):
                    cases[peer] = make(ready.run, directory, ready.prompts, ready.rollouts)
                else:
                    title += f"; {peer} is not installed"
            times = timing.interleaved(cases, rounds=2 if quick else 5)
        lengths = np.full(M, P), np.full(M * G, T), np.repeat(np.arange(M), G)
        passes = flops.BACKWARD if name == UPDATE else 1
        work = flops.decoder(policy.shape.text, *lengths)
        if tower := policy.shape.vision:
            image = 4 * math.prod(workload.largest(ready.run).cells)
            work += flops.vision(tower, policy.shape.text.width, M * image, image_patches=image)
        yield timing.Table(title, times, passes * work / timing.matmul_flops())


def small(preset: str, prompt: int, answer: int, num_prompts: int, num_rollouts: int) -> dict:
    """Returns the settings of an update, or call of the engine; a picture takes half of its prompt."""
    c = tiny_grpo.get_config("smoke")
    c.model.preset, c.model.dtype = preset, "float32"
    c.num_prompts, c.num_rollouts = num_prompts, num_rollouts
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = num_prompts
    c.engine.prompts_per_call, c.batch.remat = num_prompts, False  # peers store activations too
    c.data.max_prompt_length = c.data.length_multiple = prompt
    c.data.min_pixels = c.data.max_pixels = prompt // 2 * images.cell_side(images.PATCH) ** 2
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
def _load(directory: str, kind: str = "AutoModelForCausalLM"):
    """Returns the model of a directory, on the GPU if torch sees one, with attention by SDPA."""
    import torch
    import transformers

    torch.backends.cuda.matmul.allow_tf32 = False
    loaded = getattr(transformers, kind).from_pretrained(
        directory, dtype="float32", attn_implementation="sdpa"
    )
    return loaded.to("cuda" if torch.cuda.is_available() else "cpu")


def _rows(prompts: Sequence[Prompt], rollouts: Rollouts) -> dict[str, np.ndarray]:
    """Returns prompts of one length and answers, a row for each answer, as TRL and Tunix name them."""
    prompt_MP = np.stack([prompt.token_P for prompt in prompts]).astype(np.int64)
    prompt_NP = prompt_MP[rollouts.group_N]
    return {
        "prompt_ids": prompt_NP,
        "prompt_mask": np.ones_like(prompt_NP),
        "completion_ids": rollouts.token_NT.astype(np.int64),
        "completion_mask": np.ones_like(rollouts.token_NT, np.int64),
        "advantages": workload.advantages(rollouts),
        "old_per_token_logps": rollouts.logp_NT,
    }


def _generate(run, directory: str, prompts, rollouts) -> Callable:
    """Returns `generate` for answers of exactly the run's length, with a cache."""
    import torch

    loaded, length = _load(directory).eval(), run.sampling.max_tokens
    ids_NP = torch.from_numpy(_rows(prompts, rollouts)["prompt_ids"]).to(loaded.device)
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
    inputs = _rows(prompts, rollouts) | {"num_items_in_batch": np.array(rollouts.token_NT.size)}
    inputs = {name: torch.from_numpy(x).to(loaded.device) for name, x in inputs.items()}
    loss = lambda: trainer.compute_loss(loaded, inputs)
    return lambda: _torch_step(loss(), loaded, optimizer, run.optimizer.clip_norm)


def _tunix(run, directory: str, prompts, rollouts) -> Callable:
    """Returns a step of Tunix's trainer with its GRPO loss, on its own model."""
    from tunix.models.qwen2 import model, params
    from tunix.rl import algo_core, common
    from tunix.rl.grpo import grpo_learner
    from tunix.sft import peft_trainer

    text, tuned = presets.PRESETS[run.model.preset].text, run.optimizer
    shape = model.ModelConfig(
        num_layers=text.num_layers,
        vocab_size=text.vocab_size,
        embed_dim=text.width,
        hidden_dim=text.mlp_width,
        num_heads=text.num_heads,
        head_dim=text.head_width,
        num_kv_heads=text.num_kv_heads,
        rope_theta=text.rope_theta,
        norm_eps=text.norm_eps,
        use_tied_embedding=True,
    )
    devices = jax.make_mesh((1, 1), ("fsdp", "tp"), 2 * (jax.sharding.AxisType.Auto,))
    loaded = params.create_model_from_safe_tensors(directory, shape, devices)
    clip = optax.clip_by_global_norm(tuned.clip_norm)
    adamw = optax.adamw(tuned.learning_rate, weight_decay=tuned.weight_decay)
    loss = grpo_learner.GRPOConfig(beta=0.0, epsilon=run.loss.clip_low, loss_agg_mode="token-mean")
    loss.temperature = 1.0
    # No id marks padding or an end.
    of_rows = lambda policy, rows: algo_core.grpo_loss_fn(policy, rows, loss, -1, -1)
    required = peft_trainer.TrainingConfig(eval_every_n_steps=1)
    trainer = peft_trainer.PeftTrainer(loaded, optax.chain(clip, adamw), required)
    trainer.with_loss_fn(of_rows, has_aux=True).with_gen_model_input_fn(lambda x: {"rows": x})
    step, _ = trainer.jit_train_and_eval_step()
    rows = common.TrainExample(**_rows(prompts, rollouts), ref_per_token_logps=None)
    return functools.partial(step, jax.device_put(rows))


def _grouper(run, directory: str, prompts, rollouts) -> Callable[[], float]:
    """Returns a GRPO update of a text model whose prompts run once, by prefix_grouper."""
    import prefix_grouper
    import torch
    import transformers

    transformers.AttentionInterface.register("prompts_once", _attend)
    shape, G = presets.PRESETS[run.model.preset], run.num_rollouts
    loaded = _load(directory, f"AutoModelFor{'ImageTextToText' if shape.vision else 'CausalLM'}")
    decoder = loaded.train().get_decoder()
    decoder.config._attn_implementation = "prompts_once"  # of the decoder alone
    put = lambda x: torch.from_numpy(x).to(loaded.device)
    rows = {name: put(x) for name, x in _rows(prompts, rollouts).items()}
    prompt_MP, ones_MP = rows["prompt_ids"][::G], rows["prompt_mask"][::G]
    answer_NT, old_NT = rows["completion_ids"], rows["old_per_token_logps"]
    advantage_N1, ones_NT = rows["advantages"][:, None], rows["completion_mask"]
    grouper = prefix_grouper.PrefixGrouper.from_ungrouped_masks(
        prefix_mask=ones_MP, suffix_mask=ones_NT, group_sizes=G, padding_mode="right"
    )
    token_MS = grouper.concat_input(prompt_MP, ones_MP, answer_NT, ones_NT)
    position_PX = prompts[0].position_PX  # the same of all
    after_TX = position_PX.max() + 1 + np.arange(answer_NT.shape[1])[:, None] + np.zeros(3, int)
    position_SX = np.concatenate([position_PX, np.tile(after_TX, (G, 1))]).astype(np.int64)
    position_XMS = put(position_SX.T)[:, None].repeat(1, len(prompts), 1)
    pictures = [picture for prompt in prompts for picture in prompt.images]
    if pictures:
        cut = transformers.Qwen2VLImageProcessor(do_resize=False)
        seen = cut(pictures, return_tensors="pt").to(loaded.device)
    rates = {"lr": run.optimizer.learning_rate, "weight_decay": run.optimizer.weight_decay}
    optimizer = torch.optim.AdamW(loaded.parameters(), **rates)

    def loss():
        embedded_MSD = loaded.get_input_embeddings()(token_MS)
        if pictures:
            features = loaded.model.get_image_features(**seen).pooler_output
            places = (token_MS == shape.image_token_id)[..., None]
            embedded_MSD = embedded_MSD.masked_scatter(places, torch.cat(features))
        out = decoder(
            inputs_embeds=embedded_MSD,
            position_ids=position_XMS if pictures else position_XMS[0],
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


_GROUPER = (GROUPER, "prefix_grouper", _grouper)
PEERS = {  # by program and model: name, package, and what makes a call
    (UPDATE, YARDSTICK): ((TRL, "trl", _trl), (TUNIX, "tunix", _tunix), _GROUPER),
    (UPDATE, PICTURE): (_GROUPER,),
    (DECODE, YARDSTICK): ((GENERATE, "transformers", _generate),),
}
