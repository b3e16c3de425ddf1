"""Others beside us, with the same weights, prompts and answers: TRL, prefix_grouper, transformers.

An update is ours with prompts once, ours with one row an answer, TRL's own, which has such rows, and torch's
with prompts once by prefix_grouper (arXiv 2506.05433), the fair peer. Decoding is ours, ours with a prompt an
answer, and transformers' `generate`. Weights are random. torch has attention by SDPA, and the GPU if there is
one; TRL has no gradient checkpointing unless the run has. Peers that are not installed are left out.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from configs import tiny_grpo
from experiments.bench import device, programs, timing, workload
from experiments.bench.programs import DECODE, UPDATE
from vade_jax import settings, tables
from vade_jax.data import images
from vade_jax.models.qwen import config, files, presets, vision
from vade_jax.rollout import local
from vade_jax.rollout.engine import Sampling
from vade_jax.run import build
from vade_jax.types import Prompt, Rollouts

OURS, PLAIN = "ours, prompts once", "ours, one row an answer"
TRL, GROUPER, GENERATE = "TRL", "prefix_grouper", "transformers' generate"
PACKAGES = {TRL: "trl", GROUPER: "prefix_grouper", GENERATE: "transformers"}
YARDSTICK = "yardstick"  # a text model of 3.3 M parameters
presets.PRESETS[YARDSTICK] = config.Config(
    config.TextConfig(2048, 256, 4, 8, 2, 688, (16, 0, 0)), None, tie_embeddings=True
)


# ------------------------------------------------------------------------------ --suite=update, decode
def updates(quick: bool) -> Iterator[timing.Table]:
    """Yields tables of updates of a text model."""
    for sizes in (
        [(16, 8, 2, 2)] if quick else [(1024, 256, 2, 8), (512, 64, 4, 8), (128, 64, 4, 8)]
    ):
        yield compare(UPDATE, (TRL, GROUPER), YARDSTICK, *sizes, rounds=2 if quick else 8)


def decoding(quick: bool) -> Iterator[timing.Table]:
    """Yields tables of whole calls of the engine: the tiny model with a picture, and a text model."""
    cases = [("tiny", 64, 64, 32, 8), ("tiny", 512, 64, 8, 8)]
    cases += [(YARDSTICK, 512, 64, 4, 8), (YARDSTICK, 128, 64, 4, 8)]
    for preset, *sizes in [(YARDSTICK, 16, 8, 2, 2)] if quick else cases:
        peers = (GENERATE,) if preset == YARDSTICK else ()
        yield compare(DECODE, peers, preset, *sizes, rounds=2 if quick else 6)


def compare(
    name: str, peers: Sequence[str], preset: str, P: int, T: int, M: int, G: int, *, rounds: int
) -> timing.Table:
    """Returns the times of a program and of its peers, which take turns in this process."""
    values = small(preset, P, T, M, G)
    cases = {OURS: device.prepare(values, name).call, PLAIN: _plain(values, name)}
    missing = [peer for peer in peers if not workload.is_installed(PACKAGES[peer])]
    with tempfile.TemporaryDirectory() as directory:
        _save(values, directory)
        cases |= {peer: PEERS[peer](values, directory) for peer in peers if peer not in missing}
        times = timing.interleaved(cases, rounds=rounds)
    title = f"{name}, {preset}, {M} prompts x {G} answers, prompt {P}, answer {T}, float32"
    title += "".join(f"; {peer} is not installed" for peer in missing)
    speeds = {x: f"{M * G * T / time:,.0f} tokens/s" for x, time in times.items()}
    return timing.Table(title, times, speeds)


def small(preset: str, prompt: int, answer: int, num_prompts: int, num_rollouts: int) -> dict:
    """Returns the settings of a single update, or call of the engine, of so many tokens."""
    c = tiny_grpo.get_config("smoke")
    c.model.preset, c.model.dtype = preset, "float32"
    c.num_prompts, c.num_rollouts = num_prompts, num_rollouts
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = num_prompts
    c.engine.prompts_per_call = num_prompts
    c.data.max_prompt_length = c.data.length_multiple = prompt
    c.sampling.max_tokens = answer
    c.batch.remat, c.loss.kl_coef, c.loss.dual_clip = False, 0.0, 0.0
    return c.to_dict()


def _plain(values: dict, name: str) -> Callable:
    """Returns our program for prompts that are repeated: each answer has its own."""
    run = settings.Run.from_dict(values)
    policy = workload.random_policy(run)
    prompts, rollouts = programs.full_inputs(run, policy.shape, name)
    prompts = [prompt for prompt in prompts for _ in range(run.num_rollouts)]
    rollouts = rollouts.replace(group_N=np.arange(len(prompts), dtype=np.int32))
    if name == UPDATE:
        program, _ = build.make_programs(run, policy, *build.make_optimizer(run, policy))
    else:
        banned, sampling = policy.tokenizer.banned_ids, Sampling(**run.sampling.to_dict())
        decode = local.compile_answers(policy.merge, policy.mesh, stop_ids=(0,), banned_ids=banned)
        program = functools.partial(decode, sampling=sampling)
    return device.CALLS[name](run, policy, program, prompts, rollouts)


# ------------------------------------------------------------------------------ --suite=peer
def run(values: dict, rounds: int, path: str | None) -> None:
    """Prints a run's update and decoding beside TRL's and transformers'.

    The shapes are the largest that the settings allow, as in `--suite=device`. Each side runs in a separate
    process, so that each has the whole memory of the device.
    """
    measured, rows = {}, []
    for name, peer in ((UPDATE, TRL), (DECODE, GENERATE)):
        (ours,) = workload.alone(device.measure_program, values, name, rounds)
        measured[name], row = ours, [name, f"{ours['seconds']:.4g}", "-", "-", "not installed"]
        if workload.is_installed(PACKAGES[peer]):
            with tempfile.TemporaryDirectory() as directory:
                workload.alone(_save, values, directory)
                seconds = workload.alone(_seconds, peer, values, directory, rounds)
            ours["peer"] = {"name": peer, "seconds": seconds}
            row[2:] = [f"{seconds:.4g}", f"{seconds / ours['seconds']:.2f}", peer]
        rows.append(row)
        timing.write_json(path, measured)
    one = measured[UPDATE]
    print(
        tables.for_terminal(
            f"{one['num_rollouts']} answers a prompt, {one['lengths']}, {one['device']}",
            ["", "ours, s", "theirs, s", "theirs / ours", ""],
            rows,
            "decoding: transformers' generate with its cache, every answer with a prompt of its own",
            left=(0, 4),
        )
    )


def _save(values: dict, directory: str) -> None:
    """Writes the weights that both sides use."""
    policy = workload.random_policy(settings.Run.from_dict(values))
    files.save(directory, policy.shape, policy.params, policy.dtype)


def _seconds(peer: str, values: dict, directory: str, rounds: int) -> float:
    return timing.interleaved({peer: PEERS[peer](values, directory)}, rounds=rounds)[peer]


def _of_run(values: dict, name: str) -> tuple[settings.Run, str, list[Prompt], Rollouts]:
    """Returns the run, the model's dtype, and the prompts and answers that our side gets."""
    run = settings.Run.from_dict(values)
    policy = workload.abstract_policy(run, None)
    return run, jnp.dtype(policy.dtype).name, *programs.full_inputs(run, policy.shape, name)


# ------------------------------------------------------------------------------ transformers
def _load(directory: str, dtype: str):
    """Returns the model of a directory, on the GPU if torch sees one, with attention by SDPA."""
    import torch
    import transformers

    torch.backends.cuda.matmul.allow_tf32 = False
    name = transformers.AutoConfig.from_pretrained(directory).architectures[0]
    loaded = getattr(transformers, name).from_pretrained(
        directory, dtype=dtype, attn_implementation="sdpa"
    )
    return loaded.to("cuda" if torch.cuda.is_available() else "cpu")


def _inputs(prompts: Sequence[Prompt], repeats: int) -> dict:
    """Returns a model's inputs for prompts of one length, each repeated `repeats` times, on the host."""
    import torch

    prompts = [prompt for prompt in prompts for _ in range(repeats)]
    ids_NP = np.stack([prompt.token_P for prompt in prompts]).astype(np.int64)
    inputs = {"input_ids": ids_NP, "attention_mask": np.ones_like(ids_NP)}
    pictures = [x for prompt in prompts for x in prompt.images]
    if pictures:
        patch = prompts[0].patch
        pixels = [np.asarray(vision.normalize(images.patches(x, patch))) for x in pictures]
        # The processor gives a picture as two equal frames, in the order (channel, frame, y, x).
        pixels = np.concatenate(pixels).reshape(-1, 3, 1, patch * patch).repeat(2, 2)
        inputs["pixel_values"] = pixels.reshape(len(pixels), -1)
        grids = [(1, x.shape[0] // patch, x.shape[1] // patch) for x in pictures]
        inputs["image_grid_thw"] = np.array(grids)
        # Image tokens are those with the same time position as a neighbour (`data.batching`).
        same_NP = np.diff([prompt.position_PX[:, 0] for prompt in prompts], axis=1) == 0
        is_image_NP = np.pad(same_NP, [(0, 0), (0, 1)]) | np.pad(same_NP, [(0, 0), (1, 0)])
        inputs["mm_token_type_ids"] = is_image_NP.astype(np.int32)
    return {name: torch.from_numpy(x) for name, x in inputs.items()}


def _generate(values: dict, directory: str) -> Callable:
    """Returns `generate` for answers of exactly the run's length, with a cache."""
    import torch

    run, dtype, prompts, _ = _of_run(values, DECODE)
    loaded, length = _load(directory, dtype).eval(), run.sampling.max_tokens
    inputs = {
        # Pictures in the model's dtype
        name: x.to(loaded.device, loaded.dtype if x.is_floating_point() else None)
        for name, x in _inputs(prompts, run.num_rollouts).items()
    }
    exactly = {"min_new_tokens": length, "max_new_tokens": length}
    call = torch.no_grad(loaded.generate)
    return lambda: call(**inputs, do_sample=True, top_k=0, **exactly).cpu()


# ------------------------------------------------------------------------------ updates in torch
def _torch_step(losses, loaded, optimizer, clip_norm: float) -> float:
    """Adds up the gradients of losses, clips them and updates the weights; returns the sum of the losses."""
    import torch

    total = 0.0
    for loss in losses:
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(loaded.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return float(total)  # on the host, so this has waited for the GPU


def _trl(values: dict, directory: str) -> Callable[[], float]:
    """Returns a step of a GRPOTrainer on fixed micro-batches: forward, loss, backward, clip and AdamW."""
    import datasets
    import tokenizers
    import torch
    import transformers
    import trl

    run, dtype, prompts, rollouts = _of_run(values, UPDATE)
    words = tokenizers.models.WordLevel({f"w{i}": i for i in range(8)}, unk_token="w0")
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as output:
        arguments = trl.GRPOConfig(
            output_dir=output,
            per_device_train_batch_size=run.batch.prompts_per_microbatch * run.num_rollouts,
            num_generations=run.num_rollouts,
            max_completion_length=run.sampling.max_tokens,
            beta=0.0,
            epsilon=run.loss.clip_low,
            epsilon_high=run.loss.clip_high,
            loss_type="dapo",
            learning_rate=run.optimizer.learning_rate,
            weight_decay=run.optimizer.weight_decay,
            gradient_checkpointing=run.batch.remat,
            model_init_kwargs={"dtype": dtype, "attn_implementation": "sdpa"},
            use_cpu=not on_gpu,
            bf16=False,  # no autocast: the weights already have this dtype
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
    if run.batch.remat:
        loaded.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = trainer.create_optimizer()
    cut = [
        {name: x.to(loaded.device) if isinstance(x, torch.Tensor) else x for name, x in one.items()}
        for one in _for_trl(prompts, rollouts, run.batch.prompts_per_microbatch)
    ]
    losses = lambda: (trainer.compute_loss(loaded, one) for one in cut)
    return lambda: _torch_step(losses(), loaded, optimizer, run.optimizer.clip_norm)


def _for_trl(prompts: Sequence[Prompt], rollouts: Rollouts, per_microbatch: int) -> Iterator[dict]:
    """Yields micro-batches of `per_microbatch` prompts under TRL's names."""
    import torch

    G = len(rollouts.length_N) // len(prompts)
    advantage_N = torch.from_numpy(workload.advantages(rollouts))
    for first in range(0, len(prompts), per_microbatch):
        rows = slice(first * G, (first + per_microbatch) * G)
        answer_NT = torch.from_numpy(rollouts.token_NT[rows].astype(np.int64))
        inputs = _inputs(prompts[first : first + per_microbatch], G)
        if "mm_token_type_ids" in inputs:
            kinds = inputs["mm_token_type_ids"]
            added = torch.zeros_like(answer_NT, dtype=kinds.dtype)
            inputs["mm_token_type_ids"] = torch.cat([kinds, added], 1)
            inputs["num_images"] = [1] * len(answer_NT)
        yield {
            "prompt_ids": inputs.pop("input_ids"),
            "prompt_mask": inputs.pop("attention_mask"),
            "completion_ids": answer_NT,
            "completion_mask": torch.ones_like(answer_NT),
            "advantages": advantage_N[rows],
            "old_per_token_logps": torch.from_numpy(rollouts.logp_NT[rows]),
            "num_items_in_batch": torch.tensor(rollouts.token_NT.size),
            **inputs,
        }


def _grouper(values: dict, directory: str) -> Callable[[], float]:
    """Returns a GRPO update of a text model whose prompts run once, by prefix_grouper."""
    import prefix_grouper
    import torch
    import transformers

    run, dtype, prompts, rollouts = _of_run(values, UPDATE)
    transformers.AttentionInterface.register("prompts_once", _attend)
    loaded = _load(directory, dtype).train()
    loaded.set_attn_implementation("prompts_once")
    put = lambda x: torch.from_numpy(x).to(loaded.device)
    prompt_MP, ones_MP = (put(x.numpy()) for x in _inputs(prompts, 1).values())
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

    return lambda: _torch_step([loss()], loaded, optimizer, run.optimizer.clip_norm)


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


PEERS = {TRL: _trl, GROUPER: _grouper, GENERATE: _generate}
