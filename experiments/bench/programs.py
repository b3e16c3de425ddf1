"""The programs of a run, compiled for shapes: nothing is allocated, and the devices may be only described."""

import time
from typing import NamedTuple

import jax
import numpy as np

from experiments.bench import targets, workload
from vade_jax import settings
from vade_jax.models.qwen import config, lora
from vade_jax.rollout import local
from vade_jax.rollout.engine import Sampling
from vade_jax.run import build
from vade_jax.trainer import mesh
from vade_jax.trainer.policy import Policy
from vade_jax.types import Prompt, Rollouts

UPDATE, SCORE, DECODE = "update", "log-probs", "decode"


class Program(NamedTuple):
    """The bytes that a compiled program takes on one device."""

    inputs: int
    outputs: int  # without those that reuse donated inputs
    temporary: int
    seconds: float = 1.0  # to compile

    @property
    def bytes(self) -> int:
        return self.inputs + self.outputs + self.temporary


def names(run: settings.Run) -> list[str]:
    """Returns the names of the programs that a run has."""
    scores = run.loss.kl_coef or run.loss.old_logp == "trainer"
    return [UPDATE, *[SCORE] * bool(scores), *[DECODE] * (run.engine.name == "local")]


def lowered(run: settings.Run, policy: Policy, name: str):
    """Returns a program of a run, traced for its shapes but not yet compiled.

    Raises:
        ValueError: groups do not fill their rows.
    """
    if run.batch.answers_per_row not in (0, run.num_rollouts):
        raise ValueError(
            f"batch.answers_per_row={run.batch.answers_per_row}: the bench knows groups that fill a row; "
            "leave it at 0"
        )
    if name == DECODE:
        return _decoding(run, policy)
    learning, batch = build.make_programs(run, policy), workload.abstract_batch(run, policy)
    if name == SCORE:
        return learning.logprobs.lower(policy.params, policy.base, batch)
    return learning.update.lower(learning.state, batch)


def full_inputs(
    run: settings.Run, shape: config.Config, name: str
) -> tuple[list[Prompt], Rollouts]:
    """Returns the largest prompts and answers that a program takes at once."""
    lengths = workload.largest(run)
    size = run.engine.prompts_per_call if name == DECODE else run.batch.prompts_per_minibatch
    prompts = workload.full_prompts(shape, lengths, size)
    return prompts, workload.full_rollouts(shape, size, run.num_rollouts, lengths.answer)


def _decoding(run: settings.Run, policy: Policy):
    """Returns the program of prefill and decoding loop, as the built-in engine calls it."""
    size = run.engine.prompts_per_call
    size += -size % mesh.batch_size(policy.mesh)
    params = lora.together(policy.base, policy.params)
    shardings = lora.together(policy.base_shardings, policy.shardings)
    params = jax.tree.map(_placed, params, shardings)
    apart = local.Apart(policy.merge)
    order = policy.merge(params).text.order
    stacks = {stack: apart.layer.lower(params, stack, np.int32(0)) for stack, _ in order}
    weights, *kinds = (
        jax.tree.map(_placed, x.out_info, x.compile().output_shardings)
        for x in (apart.ends.lower(params), *stacks.values())
    )
    layers = dict(zip(stacks, kinds, strict=True))
    decode = local.compile_answers(
        policy.merge, policy.mesh, stop_ids=(0,), banned_ids=policy.tokenizer.banned_ids
    )
    prompts = workload.full_prompts(policy.shape, workload.largest(run), size)
    inputs = workload.decode_inputs(run, policy, prompts, size * run.num_rollouts)
    where = local.rows_sharding(policy.mesh)
    return decode.lower(
        params,
        weights._replace(layers=[layers[stack] for stack, _ in order]),
        *jax.tree.map(lambda x: _placed(x, where), inputs),
        jax.eval_shape(lambda: jax.random.key(0)),
        sampling=Sampling(**run.sampling.to_dict()),
    )


def _placed(x, sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def measure(lowered, platform: str) -> Program:
    """Compiles a program with the compiler of a target's platform."""
    start = time.perf_counter()
    compiled = lowered.compile(compiler_options=targets.OPTIONS[platform])
    return Program(*parts(compiled.memory_analysis(), platform), time.perf_counter() - start)


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
