"""The policy's hidden states at the end of each prompt: features for a selector that learns from them.

They come from one forward pass of all prompts before the first step, which samples no answers. The states of
the first weights are kept for the entire run: in pilot runs of one arena they predicted the pass rates of the
last epoch as well as the states of the last weights did.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import samplers, settings
from vade_jax.data import batching, loading
from vade_jax.models.qwen import model
from vade_jax.run.datasets import Datasets
from vade_jax.trainer import mesh, processes
from vade_jax.trainer.policy import Policy
from vade_jax.types import Array, Params, Prompts

NUM_FEATURES = 64  # random directions of a state; a selector keeps the components that vary most


def for_selector(
    run: settings.Run,
    selector: samplers.Sampler,
    policy: Policy,
    data: Datasets,
    map: loading.Map,
    *,
    resumes: bool,
) -> dict[str, np.ndarray]:
    """Returns the values of every item for the selector: those of the data, and the policy's states.

    With `resumes` the states are zeros of the right shape, because the checkpoint has them.
    """
    missing = [name for name in selector.needs.named("states") if name not in data.arrays]
    feature_IE = np.zeros((len(data.train), NUM_FEATURES), np.float32)
    if missing and not resumes:
        feature_IE = of_prompts(run, policy, data, map)
        print(f"states of {len(feature_IE):,} prompts")
    return {**data.arrays, **dict.fromkeys(missing, feature_IE)}


def of_prompts(run: settings.Run, policy: Policy, data: Datasets, map: loading.Map) -> np.ndarray:
    """Returns float32 `feature_IE`, a vector for each training prompt, on the host; `map` maps over items."""
    where, ways = mesh.batch_sharding(policy.mesh), mesh.batch_size(policy.mesh)
    size = run.engine.prompts_per_call
    size += -size % ways
    everywhere = jax.sharding.NamedSharding(policy.mesh, jax.sharding.PartitionSpec())
    width = policy.shape.text.width
    # Read here, or the program would keep the arrays of the policy alive.
    merge, whole = policy.merge, policy.whole

    @functools.partial(jax.jit, out_shardings=everywhere)
    def states(base: Params, params: Params, prompts: Prompts) -> Array:
        hidden_MPD = merge(whole(params, base)).hidden(prompts, remat=False)
        state_MD = model.last_state(hidden_MPD, prompts.length_M).astype(jnp.float32)
        # A fixed key, so that runs with different seeds have the same features of the same weights.
        direction_DE = jax.random.normal(jax.random.key(0), (width, NUM_FEATURES))
        return state_MD @ direction_DE / math.sqrt(width)

    features = []
    for start in range(0, len(data.train), size):
        places = range(start, min(start + size, len(data.train)))
        prompts = [*map(lambda i: data.build_prompt(data.train[i]), places)]
        # Repeats of the last prompt fill the last call up to the fixed shape.
        prompts = [*prompts, *[prompts[-1]] * (size - len(prompts))]
        sizes = batching.shapes(prompts, multiple=run.data.length_multiple, ways=ways)
        batch = batching.collate(prompts, **sizes)
        feature_ME = states(policy.base, policy.params, processes.put(batch, where))
        features.append(np.asarray(feature_ME)[: len(places)])
    return np.concatenate(features)
