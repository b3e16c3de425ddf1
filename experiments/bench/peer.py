"""Times our update and decoding, then TRL's update and transformers' generate, on the same model and shapes.

The shapes are the largest that the settings allow, as in `--suite=device`; weights are random. Each side runs
in a separate process, so that each has the whole memory of the device. TRL gets one row for each answer,
micro-batches with the same number of prompts, and weights, gradients and moments in our compute dtype.
"""

import json
import tempfile

import jax.numpy as jnp

from experiments.bench import device, full_size, hugging_face, plan_programs, trl_update
from experiments.bench.plan_programs import DECODE, UPDATE
from vade_jax import atomic, settings, tables
from vade_jax.models.qwen import files


def run(values: dict, rounds: int, path: str | None) -> None:
    """Prints the seconds of both sides, and writes them to `path` if it is given."""
    found = {}
    for name in (UPDATE, DECODE):
        (found[name],) = full_size.alone(device.measure_program, values, name, rounds)
        with tempfile.TemporaryDirectory() as directory:
            full_size.alone(_save, values, directory)
            theirs = _their_update if name == UPDATE else _their_decoding
            found[name]["peer"] = full_size.alone(theirs, values, directory, rounds)
    rows = [_row(name, one) for name, one in found.items()]
    one = found[UPDATE]
    lengths = plan_programs.Lengths(**one["lengths"])
    print(
        tables.for_terminal(
            f"{one['prompts']} prompts x {one['num_rollouts']} answers, prompt {lengths.prompt}, answer "
            f"{lengths.answer}, {one['device']}",
            ["", "ours, s", "theirs, s", "theirs / ours", ""],
            rows,
            "decoding: transformers' generate with its cache, every answer with a prompt of its own",
            left=(0, 4),
        )
    )
    if path:
        atomic.write_text(path, json.dumps(found, indent=2) + "\n")


def _row(name: str, one: dict) -> list[str]:
    ours, theirs = one["seconds"], one["peer"].get("seconds")
    if theirs is None:
        return [name, f"{ours:.4g}", "-", "-", one["peer"]["note"]]
    return [name, f"{ours:.4g}", f"{theirs:.4g}", f"{theirs / ours:.2f}", one["peer"]["name"]]


def _save(values: dict, directory: str) -> None:
    """Writes the weights that both sides use."""
    policy = full_size.policy(settings.Run.from_dict(values))
    files.save(directory, policy.shape, policy.params, policy.dtype)


def _workload(values: dict, num_prompts: int):
    """Returns the run, the model's dtype, and the same prompts and answers that our side gets."""
    run = settings.Run.from_dict(values)
    policy, lengths = plan_programs.abstract_policy(run, None), plan_programs.largest(run)
    prompts = full_size.full_prompts(policy.shape, lengths, num_prompts)
    rollouts = full_size.full_rollouts(policy.shape, num_prompts, run.num_rollouts, lengths.answer)
    return run, jnp.dtype(policy.dtype).name, prompts, rollouts


def _their_update(values: dict, directory: str, rounds: int) -> dict:
    if not trl_update.VERSION:
        return {"note": f"not installed: pip install {trl_update.REQUIREMENT}"}
    num_prompts = settings.Run.from_dict(values).batch.prompts_per_minibatch
    run, dtype, prompts, rollouts = _workload(values, num_prompts)
    return trl_update.seconds_with_pictures(
        directory,
        prompts,
        rollouts,
        run.batch.prompts_per_microbatch,
        rounds,
        group_size=run.num_rollouts,
        clip_norm=run.optimizer.clip_norm,
        clip_low=run.loss.clip_low,
        clip_high=run.loss.clip_high,
        kl_coef=0.0,
        learning_rate=run.optimizer.learning_rate,
        weight_decay=run.optimizer.weight_decay,
        dtype=dtype,
        remat=run.batch.remat,
    )


def _their_decoding(values: dict, directory: str, rounds: int) -> dict:
    num_prompts = settings.Run.from_dict(values).engine.prompts_per_call
    run, dtype, prompts, rollouts = _workload(values, num_prompts)
    length = rollouts.token_NT.shape[1]
    seconds = hugging_face.generate_seconds(
        directory, prompts, run.num_rollouts, length, rounds, dtype
    )
    return {"seconds": seconds, "name": "transformers' generate"}
