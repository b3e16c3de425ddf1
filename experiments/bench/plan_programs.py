"""A run's programs, compiled for shapes: what one device holds, and for what.

Nothing is allocated. The update, the log-probs and the prefill are lowered for `jax.ShapeDtypeStruct`s of
the largest batch that the settings allow, on as many fake CPU devices as the run will have.
"""

import dataclasses
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays, settings
from vade_jax.data import images
from vade_jax.models.qwen25vl import config, model
from vade_jax.run import build
from vade_jax.trainer import mesh, update
from vade_jax.types import Batch, Images, Prompts

TYPICAL = {"prompt": 1300, "answer": 500, "pixels": 1024 * 1024}
UPDATE, SCORE, PREFILL = "update", "log-probs", "prefill"
GRADIENTS = "gradients: their sum and a micro-batch's"
# The compiler for CPUs would widen the saved bfloat16 activations of all layers before the loop over
# them, not in it; and the machine code itself is never run.
COMPILER = {
    "xla_disable_hlo_passes": "while-loop-invariant-code-motion",
    "xla_backend_optimization_level": 0,
}


# ------------------------------------------------------------------------------ shapes
class Lengths(NamedTuple):
    """One prompt, and each answer to it."""

    prompt: int
    answer: int
    cells: tuple[int, int]  # rows and columns of its image

    @property
    def patches(self) -> int:
        return 4 * self.cells[0] * self.cells[1]

    @property
    def windows(self) -> int:
        rows, cols = (-(-side // images.WINDOW) for side in self.cells)
        return rows * cols


def largest(run: settings.Run) -> Lengths:
    """Returns the largest prompt and answer that the settings allow."""
    length = arrays.bucket(run.data.max_prompt_length, run.data.length_multiple)
    return Lengths(length, run.sampling.max_tokens, image_cells(run.data.max_pixels))


def typical(run: settings.Run) -> Lengths:
    """Returns a usual prompt with a picture of a megapixel, within the settings' limits."""
    return Lengths(
        min(TYPICAL["prompt"], run.data.max_prompt_length),
        min(TYPICAL["answer"], run.sampling.max_tokens),
        image_cells(min(TYPICAL["pixels"], run.data.max_pixels)),
    )


def image_cells(num_pixels: int) -> tuple[int, int]:
    """Returns rows and columns of the image with the most cells, and the squarest of those."""
    cells = max(1, num_pixels // images.CELL**2)
    rows = np.arange(max(1, int((cells / 2) ** 0.5)), int(cells**0.5) + 1)
    best = rows[(rows * (cells // rows) == (rows * (cells // rows)).max())][-1]
    return int(best), int(cells // best)


def num_microbatches(run: settings.Run) -> int:
    """Returns the micro-batches of an update."""
    return run.batch.prompts_per_minibatch // run.batch.prompts_per_microbatch


def abstract_policy(run: settings.Run, num_devices: int) -> build.Policy:
    """Returns the policy of a run, with shapes in the place of arrays.

    Raises:
        ValueError: the model's size is not known, or the devices do not divide it.
    """
    name = run.model.preset or run.model.size
    if name not in config.PRESETS:
        raise ValueError(
            f"model.size={run.model.size!r}: a plan needs one of {', '.join(config.PRESETS)}"
        )
    if num_devices > len(jax.devices()):
        raise ValueError(f"--devices={num_devices}: {len(jax.devices())} were started")
    shape = config.PRESETS[name]
    devices = mesh.make(**run.mesh.to_dict(), devices=jax.devices()[:num_devices])
    mesh.check_model(devices, shape)
    params = model.abstract(shape)
    special = ("vision_start", "vision_end", "image", "video")
    banned = tuple(getattr(shape, f"{name}_token_id") for name in special)
    # "auto" is bfloat16 on the hardware that a plan is for, whatever compiles it.
    dtype = jnp.float32 if run.model.dtype == "float32" else jnp.bfloat16
    return build.Policy(
        directory="",
        shape=shape,
        graphdef=model.graph(shape, dtype=dtype, place=mesh.Place(devices)),
        params=params,
        shardings=mesh.shardings(devices, params),
        tokenizer=types.SimpleNamespace(banned_ids=banned),
        mesh=devices,
    )


def abstract_prompts(num_prompts: int, lengths: Lengths, ways: int, *leading: int) -> Prompts:
    """Returns the shapes of a batch of prompts, padded as `batching` pads them."""

    def put(*shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct((*leading, *shape), dtype)

    M, P = num_prompts, lengths.prompt
    B = arrays.bucket(num_prompts, 1)
    B += -B % ways
    slots = (B, arrays.bucket(lengths.windows, 1), images.SLOTS)
    return Prompts(
        token_MP=put(M, P),
        length_M=put(M),
        position_MPX=put(M, P, 3),
        next_position_M=put(M),
        cell_MP=put(M, P),
        images=Images(
            patch_BWSE=put(*slots, images.WIDTH, dtype=jnp.uint8),
            row_BWS=put(*slots),
            col_BWS=put(*slots),
            valid_BWS=put(*slots, dtype=jnp.bool_),
        ),
    )


def abstract_batch(run: settings.Run, policy: build.Policy, lengths: Lengths) -> Batch:
    """Returns the shapes of a mini-batch."""
    size, leading = run.batch.prompts_per_microbatch, num_microbatches(run)
    N, T = size * run.num_rollouts, lengths.answer

    def put(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct((leading, *shape), dtype)

    names = [f.name for f in dataclasses.fields(Batch) if f.name.endswith("_NT")]
    of_tokens = {name: put(N, T) for name in names}
    of_tokens["token_NT"] = put(N, T, dtype=jnp.int32)
    return Batch(
        prompts=abstract_prompts(size, lengths, mesh.batch_size(policy.mesh), leading),
        group_R=None,
        advantage_N=put(N),
        **of_tokens,
    )


# ------------------------------------------------------------------------------ programs
class Program(NamedTuple):
    """Bytes on one device."""

    inputs: int
    outputs: int  # beside donated inputs
    temporary: int


def compiled(run: settings.Run, policy: build.Policy, lengths: Lengths) -> dict[str, Program]:
    """Returns what each program of a run needs; the prefill is the built-in engine's."""
    transform = update.make_optimizer(run.optimizer)
    state = build.abstract_state(policy, transform)
    shardings = mesh.shardings(policy.mesh, state)
    improve, score = build.make_programs(run, policy, transform, shardings)
    batch = abstract_batch(run, policy, lengths)
    found = {UPDATE: _program(improve, state, batch)}
    if run.loss.kl_coef or run.loss.old_logp == "trainer":
        found[SCORE] = _program(score, policy.params, batch)
    if run.engine.name == "local":
        ways = mesh.batch_size(policy.mesh)
        size = run.engine.prompts_per_call
        several = abstract_prompts(size + -size % ways, lengths, ways)
        prefill = jax.jit(
            lambda params, prompts: policy.merge(params).prefill(prompts),
            in_shardings=(policy.shardings, mesh.batch_sharding(policy.mesh)),
        )
        found[PREFILL] = _program(prefill, policy.params, several)
    return found


def _program(function, *given) -> Program:
    sizes = function.lower(*given).compile(compiler_options=COMPILER).memory_analysis()
    return Program(
        inputs=sizes.argument_size_in_bytes,
        outputs=sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        temporary=sizes.temp_size_in_bytes,
    )


def memory(
    run: settings.Run, policy: build.Policy, programs: dict[str, Program]
) -> dict[str, float]:
    """Returns the bytes of one device by what they are for, at the worst moment of a step."""
    state = build.abstract_state(policy, update.make_optimizer(run.optimizer))
    shardings = mesh.shardings(policy.mesh, state)
    weights = local_bytes(state.params, shardings.params)
    moments = local_bytes(state.opt_state, shardings.opt_state)
    reference = 0
    if run.loss.kl_coef:  # in the compute dtype
        reference = local_bytes(policy.params, policy.shardings)
        reference = reference * jnp.dtype(policy.merge(policy.params).dtype).itemsize // 4
    improve = programs[UPDATE]
    gradients = weights * (2 if num_microbatches(run) > 1 else 1)
    io = improve.inputs + improve.outputs - weights - moments
    found = {
        "weights, float32": weights,
        "optimizer, float32": moments,
        "reference policy": reference,
        GRADIENTS: gradients,
        "activations and temporaries of the update": max(improve.temporary - gradients, 0),
        "inputs and outputs of the update": io,
    }
    # The other programs run at other times, with the optimizer's state and the reference beside them.
    kept = moments + reference
    others = [kept + sum(p) for name, p in programs.items() if name != UPDATE]
    if (more := max(others, default=0) - sum(found.values())) > 0:
        found["log-probs or prefill, beyond the update"] = more
    return found


def local_bytes(tree, shardings) -> int:
    """Returns what one device holds of arrays with these shardings."""

    def size(x, sharding):
        return int(np.prod(sharding.shard_shape(x.shape))) * x.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree.map(size, tree, shardings)))
