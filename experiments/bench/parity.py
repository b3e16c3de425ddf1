"""Compares our log-probs with transformers', and our attention kernels with each other, on this machine.

The weights are random, in bfloat16; two prompts have pictures. transformers computes in float32 from the same
weights, and its log-probs are taken as the truth. Ours are computed in bfloat16 with the attention of the
hardware, in bfloat16 with our own blocks, and in float32. The gradients are those of the mean of all
log-probs.
"""

import json
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import full_size, hugging_face, plan_programs
from vade_jax import atomic, settings, tables
from vade_jax.models.qwen import files, layers, model
from vade_jax.trainer import mesh, update
from vade_jax.types import Batch

NUM_PROMPTS, NUM_ROLLOUTS, SHOWN = 2, 2, 8
HARDWARE, BLOCKS, FLOAT32 = (
    "attention of the hardware, bfloat16",
    "our blocks, bfloat16",
    "our blocks, float32",
)


def run(values: dict, path: str | None) -> None:
    """Prints the largest differences, and writes all differences to `path` if it is given."""
    found = full_size.alone(compare, values)
    text = tables.for_terminal(
        f"log-probs beside transformers {found['transformers']} in float32, {found['device']}",
        ["", "largest", "mean", "of log-probs to"],
        [
            (name, f"{x['largest']:.2e}", f"{x['mean']:.2e}", f"{x['lowest']:.1f}")
            for name, x in found["logp"].items()
        ],
        f"{found['tokens']} tokens",
    )
    worst = sorted(found["gradients"].items(), key=lambda item: -item[1])[:SHOWN]
    text += tables.for_terminal(
        f"gradients, {HARDWARE}, beside those of {BLOCKS}",
        ["", "norm of the difference / norm"],
        [(name, f"{x:.2e}") for name, x in worst],
        f"the {len(worst)} largest of {len(found['gradients'])} tensors",
    )
    print(text)
    if path:
        atomic.write_text(path, json.dumps(found, indent=2) + "\n")


def compare(values: dict) -> dict:
    """Returns all differences for a run's model, as `run` prints and writes them."""
    changes = {
        "model": {"param_dtype": "bfloat16", "dtype": "bfloat16"},
        "lora": {"rank": 0, "alpha": 32.0, "targets": "", "vision": False},
        "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
        "batch": {
            "prompts_per_minibatch": NUM_PROMPTS,
            "prompts_per_microbatch": NUM_PROMPTS,
            "answers_per_row": 0,
        },
    }
    run = settings.Run.from_dict(
        {
            **values,
            **{section: {**values[section], **change} for section, change in changes.items()},
            "num_prompts": NUM_PROMPTS,
            "num_rollouts": NUM_ROLLOUTS,
        }
    )
    policy, lengths = full_size.policy(run, jax.devices()[:1]), plan_programs.largest(run)
    shape = policy.shape
    prompts = full_size.full_prompts(shape, lengths, NUM_PROMPTS)
    rollouts = full_size.full_rollouts(shape, NUM_PROMPTS, NUM_ROLLOUTS, lengths.answer)
    batch = full_size.full_batch(run, policy, prompts, rollouts)

    def logp_of(dtype, place):
        graph = model.graph(shape, dtype=dtype, place=place)
        return update.make_logp(
            lambda params: model.merge(graph, params), temperature=1.0, banned=(), chunk=1024
        )

    ours = {
        HARDWARE: logp_of(jnp.bfloat16, mesh.Place(policy.mesh)),
        BLOCKS: logp_of(jnp.bfloat16, layers.ANYWHERE),
        FLOAT32: logp_of(jnp.float32, layers.ANYWHERE),
    }
    # A GPU multiplies float32 matrices in TF32, with 11 bits, unless it is told not to.
    with jax.default_matmul_precision("highest"):
        scores = {
            name: np.asarray(jax.jit(update.make_logprobs(logp))(policy.params, batch))[0]
            for name, logp in ours.items()
        }
    gradients = {name: _gradient(ours[name], policy.params, batch) for name in (HARDWARE, BLOCKS)}
    with tempfile.TemporaryDirectory() as directory:
        files.save(directory, shape, policy.params, jnp.bfloat16)
        truth_NT, version = hugging_face.logprobs(directory, prompts, rollouts)
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "transformers": version,
        "tokens": truth_NT.size,
        "logp": {name: _difference(x_NT, truth_NT) for name, x_NT in scores.items()},
        "gradients": {
            mesh.path_name(path): _relative(x, y)
            for (path, x), y in zip(
                jax.tree.leaves_with_path(gradients[HARDWARE]),
                jax.tree.leaves(gradients[BLOCKS]),
                strict=True,
            )
        },
    }


def _gradient(logp: update.Forward, params, batch: Batch):
    micro = jax.tree.map(lambda x: x[0], batch)
    total = lambda params: jnp.mean(logp(params, micro).logp_NT)
    return jax.jit(jax.grad(total))(params)


def _difference(x_NT: np.ndarray, truth_NT: np.ndarray) -> dict[str, float]:
    away_NT = np.abs(x_NT - truth_NT)
    return {
        "largest": float(away_NT.max()),
        "mean": float(away_NT.mean()),
        "lowest": float(truth_NT.min()),
    }


def _relative(x: jax.Array, y: jax.Array) -> float:
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return float(jnp.linalg.norm(x - y) / jnp.maximum(jnp.linalg.norm(y), 1e-30))
