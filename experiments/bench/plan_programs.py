"""A run's programs, compiled for shapes: the memory that one device needs, by purpose.

Nothing is allocated. The update, the log-probs and the decoding are lowered for `jax.ShapeDtypeStruct`s of
the largest batch that the settings allow, and compiled for a mesh of described devices (targets.py).
"""

import contextlib
import dataclasses
import os
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from experiments.bench import operations, targets, traffic
from experiments.bench.operations import Operations
from vade_jax import arrays, settings
from vade_jax.data import images
from vade_jax.models.qwen import lora, presets
from vade_jax.rollout import local
from vade_jax.rollout.engine import Sampling
from vade_jax.run import build
from vade_jax.trainer import policy as policies
from vade_jax.trainer.policy import Policy, compute_dtype
from vade_jax.trainer import mesh
from vade_jax.types import Batch, Images, Prompts

TYPICAL = {"prompt": 1300, "answer": 500, "pixels": 1024 * 1024}
UPDATE, SCORE, DECODE = "update", "log-probs", "prefill and decode"
BEYOND = "log-probs or decoding, beyond the update"
LARGE_COPY = 2**26  # bytes
# Warnings of the compilers about a bad program.
WARNINGS = ("Involuntary full rematerialization", "Can't reduce memory use below")


# ------------------------------------------------------------------------------ shapes
class Lengths(NamedTuple):
    """The sizes of a prompt and of each answer to it."""

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
    cells = image_cells(run.data.max_pixels, patch_size(run))
    return Lengths(length, run.sampling.max_tokens, cells)


def typical(run: settings.Run) -> Lengths:
    """Returns a typical prompt, with a picture of a megapixel, within the settings' limits."""
    return Lengths(
        min(TYPICAL["prompt"], run.data.max_prompt_length),
        min(TYPICAL["answer"], run.sampling.max_tokens),
        image_cells(min(TYPICAL["pixels"], run.data.max_pixels), patch_size(run)),
    )


def patch_size(run: settings.Run) -> int:
    """Returns the pixels per side of a patch of the run's model; Qwen2.5-VL's for a model without images."""
    shape = presets.PRESETS.get(run.model.preset or run.model.size)
    return shape.vision.patch_size if shape and shape.vision else images.PATCH


def image_cells(num_pixels: int, patch: int) -> tuple[int, int]:
    """Returns rows and columns of the image with the most cells; of several, the squarest."""
    cells = max(1, num_pixels // images.cell_side(patch) ** 2)
    rows = np.arange(max(1, int((cells / 2) ** 0.5)), int(cells**0.5) + 1)
    best = rows[(rows * (cells // rows) == (rows * (cells // rows)).max())][-1]
    return int(best), int(cells // best)


def num_microbatches(run: settings.Run) -> int:
    """Returns the number of micro-batches of an update."""
    return run.batch.prompts_per_minibatch // run.batch.prompts_per_microbatch


def abstract_policy(run: settings.Run, devices: Sequence) -> Policy:
    """Returns the policy of a run on these devices, with shapes instead of arrays.

    Raises:
        ValueError: the model's size is not known, or the devices do not divide it.
    """
    name = run.model.preset or run.model.size
    if name not in presets.PRESETS:
        raise ValueError(
            f"model.size={run.model.size!r}: a plan needs one of {', '.join(presets.PRESETS)}"
        )
    shape = presets.PRESETS[name]
    devices = mesh.make(**run.mesh.to_dict(), devices=devices)
    special = ("vision_start", "vision_end", "image", "video")
    dtype = compute_dtype(run.model, devices)
    banned = tuple(getattr(shape, f"{name}_token_id") for name in special)
    param_dtype = jnp.dtype(run.model.param_dtype)
    policy = policies.abstract_policy(shape, devices, dtype, run.lora, param_dtype)
    return dataclasses.replace(policy, tokenizer=types.SimpleNamespace(banned_ids=banned))


def abstract_prompts(
    policy: Policy, num_prompts: int, lengths: Lengths, ways: int, *leading: int
) -> Prompts:
    """Returns the shapes of a batch of prompts, padded as `batching` pads them."""

    def put(*shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct((*leading, *shape), dtype)

    M, P = num_prompts, lengths.prompt
    B = arrays.bucket(num_prompts, 1)
    B += -B % ways
    slots = (B, arrays.bucket(lengths.windows, 1), images.SLOTS)
    patch = policy.shape.vision.patch_size if policy.shape.vision else images.PATCH
    return Prompts(
        token_MP=put(M, P),
        length_M=put(M),
        position_MPX=put(M, P, 3),
        next_position_M=put(M),
        cell_MP=put(M, P),
        images=Images(
            patch_BWSE=put(*slots, 3 * patch * patch, dtype=jnp.uint8),
            row_BWS=put(*slots),
            col_BWS=put(*slots),
            valid_BWS=put(*slots, dtype=jnp.bool_),
        ),
    )


def abstract_batch(run: settings.Run, policy: Policy, lengths: Lengths) -> Batch:
    """Returns the shapes of a mini-batch, as `minibatches.split` makes it from groups of G answers."""
    shape = build.batch_shape(run, policy.mesh)
    size, leading = shape.prompts_per_microbatch, num_microbatches(run)
    num_rows = shape.rows_per_microbatch or size
    num_rows += -num_rows % shape.ways
    uneven = shape.rows_per_microbatch > 0
    if uneven and leading > 1:  # room for groups that take more rows than others
        leading = arrays.bucket(leading, 2 * leading)
    N, T = num_rows * shape.answers_per_row, lengths.answer

    def put(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct((leading, *shape), dtype)

    names = [f.name for f in dataclasses.fields(Batch) if f.name.endswith("_NT")]
    of_tokens = {name: put(N, T) for name in names}
    of_tokens["token_NT"] = put(N, T, dtype=jnp.int32)
    return Batch(
        prompts=abstract_prompts(policy, size, lengths, shape.ways, leading),
        group_R=put(num_rows, dtype=jnp.int32) if uneven else None,
        advantage_N=put(N),
        **of_tokens,
    )


# ------------------------------------------------------------------------------ programs
class TooLargeError(Exception):
    """The compiler refuses a program because it needs more than the memory of a device."""

    def __init__(self, program: str, said: str):
        super().__init__(f"{program}: {said}")
        self.program = program


class Program(NamedTuple):
    """The bytes that a compiled program takes on one device, and what it sends."""

    inputs: int
    outputs: int  # without those that reuse donated inputs
    temporary: int
    collectives: list[traffic.Collective]
    seconds: float  # to compile
    remarks: list[str]  # on what it should not do
    operations: Operations = Operations(0, 0, 0.0)  # that it launches; of decoding, in one step

    @property
    def bytes(self) -> int:
        return self.inputs + self.outputs + self.temporary

    @property
    def sent(self) -> dict[str, float]:
        """The bytes that one device sends, by kind of collective."""
        return traffic.total(self.collectives)


def compiled(run: settings.Run, policy: Policy, lengths: Lengths) -> dict[str, Program]:
    """Returns what each program of a run needs; decoding is that of the built-in engine.

    Raises:
        TooLargeError: a TPU's compiler refuses a program. (CUDA's compiler says what it would need.)
    """
    found = {}
    with tqdm.tqdm(total=len(names(run)), unit=" programs") as bar:  # one can take minutes
        for name in names(run):
            bar.set_description(f"compiling {name}")
            try:
                found[name] = measure(lowered(run, policy, lengths, name), policy, name)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                raise TooLargeError(name, str(error).partition(": ")[2]) from error
            bar.update()
    return found


def names(run: settings.Run) -> list[str]:
    """Returns the names of the programs that a run has."""
    scores = run.loss.kl_coef or run.loss.old_logp == "trainer"
    return [UPDATE, *[SCORE] * bool(scores), *[DECODE] * (run.engine.name == "local")]


def lowered(run: settings.Run, policy: Policy, lengths: Lengths, name: str):
    """Returns a program of a run, traced for its shapes but not yet compiled."""
    if name == DECODE:
        return _decoding(run, policy, lengths)
    transform, shardings = build.make_optimizer(run, policy)
    state = build.abstract_state(policy, transform)
    improve, score = build.make_programs(run, policy, transform, shardings)
    batch = abstract_batch(run, policy, lengths)
    if name == SCORE:
        return score.lower(policy.base, policy.params, batch)
    return improve.lower(policy.base, state, batch)


def _decoding(run: settings.Run, policy: Policy, lengths: Lengths):
    """Returns the program of prefill and decoding loop, as the built-in engine calls it."""
    ways = mesh.batch_size(policy.mesh)
    size = run.engine.prompts_per_call
    size += -size % ways
    # One row for each prompt, or as many rows as groups of uneven size may need.
    uneven = build.num_rows(run, run.engine.prompts_per_call)
    num_rows = uneven + -uneven % ways or size
    where = local.rows_sharding(policy.mesh)
    split = lambda x: _placed(x, where)
    params = lora.together(policy.base, policy.params)
    shardings = lora.together(policy.base_shardings, policy.shardings)
    params = jax.tree.map(_placed, params, shardings)
    apart = local.Apart(policy.merge)
    layer, ends = apart.layer.lower(params, np.int32(0)), apart.ends.lower(params)
    layer, weights = (
        jax.tree.map(_placed, x.out_info, x.compile().output_shardings) for x in (layer, ends)
    )
    weights = weights._replace(layers=[layer] * policy.shape.text.num_layers)
    decode = local.compile_answers(
        policy.merge,
        policy.mesh,
        stop_ids=(0,),
        banned_ids=policy.tokenizer.banned_ids,
    )
    return decode.lower(
        params,
        weights,
        jax.tree.map(split, abstract_prompts(policy, size, lengths, ways)),
        split(jax.ShapeDtypeStruct((num_rows,), jnp.int32)) if uneven else None,
        split(jax.ShapeDtypeStruct((num_rows * build.answers_per_row(run),), jnp.int32)),
        jax.eval_shape(lambda: jax.random.key(0)),
        sampling=Sampling(**run.sampling.to_dict()),
    )


def _placed(x, sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def measure(lowered, policy: Policy, name: str) -> Program:
    """Compiles a program with the compiler of its devices."""
    devices, start = policy.mesh, time.perf_counter()
    platform = targets.platform_of(devices)
    with _warnings() as warnings:
        found = lowered.compile(compiler_options=targets.OPTIONS.get(platform))
    seconds, sizes, text = time.perf_counter() - start, found.memory_analysis(), found.as_text()
    collectives = traffic.collectives(text, devices.size)
    inputs, outputs, temporary = parts(sizes, platform)
    return Program(
        inputs=inputs,
        outputs=outputs,
        temporary=temporary,
        collectives=collectives,
        seconds=seconds,
        remarks=_remarks(policy, text, collectives, warnings),
        operations=(operations.of_longest_loop if name == DECODE else operations.of)(text),
    )


def parts(sizes, platform: str) -> tuple[int, int, int]:
    """Returns the bytes of inputs, of outputs that do not reuse donated inputs, and of temporaries.

    `sizes` is a compiled program's `memory_analysis()`. On a TPU, temporaries may use the memory of a later
    output and then count in both sizes. Its peak counts every byte once, and is what the compiler compares
    with the memory of a chip; so the temporaries there are the peak less inputs and outputs.
    """
    inputs = sizes.argument_size_in_bytes
    outputs = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    if platform == "tpu":
        return inputs, outputs, sizes.peak_memory_in_bytes - inputs - outputs
    return inputs, outputs, sizes.temp_size_in_bytes


@contextlib.contextmanager
def _warnings():
    """Yields a list that gets the lines written to file descriptor 2: compilers bypass sys.stderr."""
    lines, sys_stderr = [], os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(sys_stderr, 2)
            os.close(sys_stderr)
            file.seek(0)
            lines += file.read().splitlines()


def _remarks(policy, text, collectives, warnings) -> list[str]:
    """Returns remarks on what a program does and should not do."""
    shape, whole, found = policy.shape, _whole_matrices(policy), []
    for x in collectives:
        if x.kind in ("all-gather", "all-reduce") and (x.dtype, _sides(x.shape)) in whole:
            found.append(f"{x.kind} of a whole {x.dtype}{list(x.shape)}, {x.times} times")
    layers = {shape.text.num_layers}
    if shape.vision:
        layers.add(shape.vision.depth)
    for kind, size in traffic.copies(text, layers, LARGE_COPY):
        found.append(f"copy of a stack of layers, {kind}: {size / 1e9:.2f} GB")
    for message in WARNINGS:
        lines = [line for line in warnings if message in line]
        if lines:
            found.append(f"{len(lines)} x {lines[0][lines[0].index(message) :][:160]}")
    return found


def _whole_matrices(policy: Policy) -> set[tuple[str, tuple[int, ...]]]:
    """Returns ("f32", sides) of every matrix of a layer that `fsdp` splits, as it is after the gather."""
    found = set()
    for _, x, sharding in _parameters(policy):
        if "fsdp" in sharding.spec:
            gathered = P(*[None if axis == "fsdp" else axis for axis in sharding.spec])
            gathered = NamedSharding(policy.mesh, gathered)
            found.add(("f32", _sides(gathered.shard_shape(x.shape)[-2:])))
    return found


def _sides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the sorted dimensions without 1s, equal for a matrix and its transpose (as of a tied head)."""
    return tuple(sorted(x for x in shape if x > 1))


def _parameters(policy: Policy) -> Iterator[tuple[str, Any, NamedSharding]]:
    """Yields the path, the shape and the sharding of every parameter, those of an adapter's base included."""
    params = lora.together(policy.base, policy.params)
    shardings = jax.tree.leaves(lora.together(policy.base_shardings, policy.shardings))
    for (path, x), sharding in zip(jax.tree.leaves_with_path(params), shardings, strict=True):
        yield mesh.path_name(path), x, sharding


def floor(policy: Policy, num_microbatches: int, *, backward: bool) -> float:
    """Returns the bytes that a device must at least send for weights and gradients, given their sharding.

    For each micro-batch, every matrix is gathered over `fsdp` once in the forward and once in the backward
    pass, in the compute dtype, and its gradient is reduced and scattered once, in that dtype (the head's in
    float32). Over `data` the parts of the gradients are summed. The base of an adapter has no gradients.
    Exchanges of activations are not counted: those of looked-up rows are small, those over `tensor` are not.
    """
    fsdp, data = policy.mesh.shape["fsdp"], policy.mesh.shape["data"]
    dtype = jnp.dtype(policy.dtype).itemsize
    head = "embedding" if policy.shape.tie_embeddings else "lm_head/kernel"
    sent = 0.0
    for name, x, sharding in _parameters(policy):
        own = int(np.prod(sharding.shard_shape(x.shape)))
        learns = backward and (policy.adapter is None or lora.NAME in name.split("/"))
        if name == "embedding" and name != head:
            continue  # rows are looked up without gathering it
        split = any("fsdp" in (axes or ()) for axes in sharding.spec)
        gradient = 4 if name == head or not split else dtype
        if split:
            sent += own * (fsdp - 1) * ((1 + backward) * dtype + learns * gradient)
        elif learns:
            sent += 2 * own * gradient * (fsdp - 1) / fsdp
        sent += learns * 2 * own * gradient * (data - 1) / data
    return sent * num_microbatches


def memory(run: settings.Run, policy: Policy, programs: dict[str, Program]) -> dict[str, float]:
    """Returns the bytes of one device by purpose, at the worst moment of a step."""
    transform, shardings = build.make_optimizer(run, policy)
    state = build.abstract_state(policy, transform)
    weights = local_bytes(state.params, shardings.params)
    moments = local_bytes(state.opt_state, shardings.opt_state)
    base = local_bytes(policy.base, policy.base_shardings)
    model = base + weights
    reference = 0
    if run.loss.kl_coef:
        # In the compute dtype; for an adapter, the adapter's initial values in float32.
        reference = local_bytes(policy.params, policy.shardings)
        if policy.adapter is None:
            stored = jnp.dtype(run.model.param_dtype).itemsize
            reference = reference * min(policy.dtype.itemsize, stored) // stored
    # With offload the reference is in the host's memory, except while its log-probs are computed.
    waits = reference if run.layout.offload else 0
    improve = programs[UPDATE]
    found = {
        **({"base of the adapter": base} if base else {}),
        "weights": weights,
        "optimizer": moments,
        "reference policy": reference - waits,
        "temporaries of the update, gradients among them": improve.temporary,
        "inputs and outputs of the update": improve.inputs + improve.outputs - model - moments,
    }
    # The other programs run at other times, while state and reference stay in memory. Their inputs are the
    # weights, but for an untied head, of which decoding has a copy.
    params = lora.together(policy.base, policy.params)
    places = lora.together(policy.base_shardings, policy.shardings)
    unread = local_bytes(params.get("lm_head", {}), places.get("lm_head", {}))
    rest = moments + reference
    others = [
        rest + x.bytes + (unread if name == DECODE else 0)
        for name, x in programs.items()
        if name != UPDATE
    ]
    if (more := max(others, default=0) - sum(found.values())) > 0:
        found[BEYOND] = more
    return found


def local_bytes(tree, shardings) -> int:
    """Returns the bytes that one device holds of arrays with these shardings, without those on the host."""

    def size(x, sharding):
        if sharding.memory_kind == mesh.HOST:
            return 0
        return int(np.prod(sharding.shard_shape(x.shape))) * x.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree.map(size, tree, shardings)))
