"""The selector: Beta draws against numpy's and jax.random's, and a whole `propose`."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import tables, timing
from vade_jax.samplers import SAMPLERS, beta

DRAW_BYTES = 12  # an item: two counts in, one draw out
PROPOSE_BYTES = 9  # an item: two counts and a flag in


def run(quick: bool) -> Iterator[tables.Table]:
    """Yields one table for each range of counts, one for each size of data set."""
    num_items, rounds = (20_000, 2) if quick else (1_000_000, 15)
    highest, sizes = (
        ((8,), (2_000,)) if quick else ((0, 8, 10_000), (10_000, num_items))
    )
    for high in highest:
        yield draw(num_items, high, rounds)
    for size in sizes:
        yield propose(size, min(512, size // 4), rounds)


def draw(num_items: int, highest: float, rounds: int) -> tables.Table:
    """Returns draws of Beta(alpha + 1, beta + 1), counts uniform up to `highest`."""
    alpha_I, beta_I = _counts(num_items, highest)
    a_I, b_I = np.asarray(alpha_I, np.float64) + 1, np.asarray(beta_I, np.float64) + 1
    key, generator = jax.random.key(2), np.random.default_rng(2)
    ours = jax.jit(beta.draw)
    theirs = jax.jit(lambda key, a, b: jax.random.beta(key, a + 1, b + 1))
    cases = {
        "vade_jax.samplers.beta.draw": lambda: ours(key, alpha_I, beta_I),
        "numpy Generator.beta": lambda: generator.beta(a_I, b_I),
        "jax.random.beta": lambda: theirs(key, alpha_I, beta_I),
    }
    title = f"draw, {num_items:,} items, counts up to {highest:,}"
    return _table(title, cases, num_items, DRAW_BYTES, rounds)


def propose(num_items: int, num_prompts: int, rounds: int) -> tables.Table:
    """Returns draw, score and top-B, and the same made of numpy or of jax.random.beta."""
    alpha_I, beta_I = _counts(num_items, 8)
    sampler, key = SAMPLERS["vade"](warmup="none"), jax.random.key(2)
    state = sampler.init(num_items).replace(alpha_I=alpha_I, beta_I=beta_I)
    a_I, b_I = np.asarray(alpha_I, np.float64) + 1, np.asarray(beta_I, np.float64) + 1
    generator = np.random.default_rng(2)

    def with_numpy():
        score_I = beta.info_gain(generator.beta(a_I, b_I))
        return np.argpartition(score_I, -num_prompts)[-num_prompts:]

    @jax.jit
    def with_jax(key, alpha_I, beta_I):
        p_I = jax.random.beta(key, alpha_I + 1, beta_I + 1)
        return jax.lax.top_k(beta.info_gain(p_I), num_prompts)

    cases = {
        "vade.propose": lambda: sampler.propose(state, key, num_prompts),
        "numpy beta, argpartition": with_numpy,
        "jax.random.beta, top_k": lambda: with_jax(key, alpha_I, beta_I),
    }
    title = f"propose, {num_prompts} of {num_items:,} items, counts up to 8"
    return _table(title, cases, num_items, PROPOSE_BYTES, rounds)


def _table(title, cases, num_items, bytes_per_item, rounds) -> tables.Table:
    num_bytes = num_items * bytes_per_item
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=num_bytes)
    return tables.Table.of(
        title,
        times,
        dict.fromkeys(times, num_bytes / machine.bandwidth),
        floor=(
            f"{bytes_per_item} bytes an item, moved by an in-place negation at "
            f"{machine.bandwidth / 1e9:.1f} GB/s"
        ),
    )


def _counts(num_items: int, highest: float) -> jax.Array:
    uniform_2I = jax.random.uniform(jax.random.key(1), (2, num_items), jnp.float32)
    return highest * uniform_2I
