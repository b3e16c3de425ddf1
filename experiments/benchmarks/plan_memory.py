"""What one device holds in a run, part by part: programs are compiled, nothing is allocated."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.benchmarks import plan_shapes as shapes
from vade_jax.run import build
from vade_jax.trainer import mesh, update

UPDATE, SCORE, PREFILL = "update", "log-probs", "prefill"
GRADIENTS = "gradients: their sum and a micro-batch's"
# The compiler for CPUs would widen the saved bfloat16 activations of all layers before the loop over
# them, not in it; and the machine code itself is never run.
COMPILER = {
    "xla_disable_hlo_passes": "while-loop-invariant-code-motion",
    "xla_backend_optimization_level": 0,
}


class Program(NamedTuple):
    """Bytes on one device."""

    inputs: int
    outputs: int  # beside donated inputs
    temporary: int


def compiled(
    c: ConfigDict, policy: build.Policy, lengths: shapes.Lengths
) -> dict[str, Program]:
    """Returns what each program of a run needs; the prefill is the built-in engine's."""
    transform = update.make_optimizer(c.optimizer)
    state = build.abstract_state(policy, transform)
    shardings = mesh.shardings(policy.mesh, state)
    improve, score = build.make_programs(c, policy, transform, shardings)
    whole = shapes.batch(c, policy, lengths)
    ways = mesh.batch_size(policy.mesh)
    size = c.engine.prompts_per_call
    size += -size % ways
    prefill = jax.jit(
        lambda params, prompts: policy.merge(params).prefill(prompts),
        in_shardings=(policy.shardings, mesh.batch_sharding(policy.mesh)),
    )
    found = {UPDATE: _program(improve, state, whole)}
    if c.loss.kl_coef or c.loss.old_logp == "trainer":
        found[SCORE] = _program(score, policy.params, whole)
    if c.engine.name == "local":
        several = shapes.prompts(size, lengths, ways)
        found[PREFILL] = _program(prefill, policy.params, several)
    return found


def _program(function, *given) -> Program:
    lowered = function.lower(*given)
    sizes = lowered.compile(compiler_options=COMPILER).memory_analysis()
    return Program(
        inputs=sizes.argument_size_in_bytes,
        outputs=sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        temporary=sizes.temp_size_in_bytes,
    )


def memory(
    c: ConfigDict,
    policy: build.Policy,
    programs: dict[str, Program],
) -> dict[str, float]:
    """Returns the bytes of one device by what they are for, at the worst moment of a step."""
    transform = update.make_optimizer(c.optimizer)
    state = build.abstract_state(policy, transform)
    shardings = mesh.shardings(policy.mesh, state)
    weights = local_bytes(state.params, shardings.params)
    moments = local_bytes(state.opt_state, shardings.opt_state)
    improve = programs[UPDATE]
    gradients = weights * (2 if shapes.num_microbatches(c) > 1 else 1)
    activations = max(improve.temporary - gradients, 0)
    parts = {
        "weights, float32": weights,
        "optimizer, float32": moments,
        "reference policy": reference_bytes(c, policy),
        GRADIENTS: gradients,
        "activations and temporaries of the update": activations,
        "inputs and outputs of the update": improve.inputs
        + improve.outputs
        - weights
        - moments,
    }
    kept = moments + parts["reference policy"]
    others = [kept + sum(p) for name, p in programs.items() if name != UPDATE]
    if (more := max(others, default=0) - sum(parts.values())) > 0:
        parts["log-probs or prefill, beyond the update"] = more
    return parts


def reference_bytes(c: ConfigDict, policy: build.Policy) -> int:
    """Returns the bytes of the reference policy, in the compute dtype."""
    if not c.loss.kl_coef:
        return 0
    itemsize = jnp.dtype(policy.merge(policy.params).dtype).itemsize
    return local_bytes(policy.params, policy.shardings) * itemsize // 4


def local_bytes(tree, shardings) -> int:
    """Returns what one device holds of arrays with these shardings."""
    size = lambda x, s: int(np.prod(s.shard_shape(x.shape))) * x.dtype.itemsize
    return sum(jax.tree.leaves(jax.tree.map(size, tree, shardings)))
