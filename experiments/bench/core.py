"""What a step costs apart from the model: draws and selectors, prompts with pictures."""

import functools
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from PIL import Image

from experiments.arenas.simulation import arena
from experiments.bench import timing
from vade_jax import samplers, settings
from vade_jax.data import batching, loading, prompts, sources, tokens
from vade_jax.models.qwen import tiny_checkpoint
from vade_jax.run import states
from vade_jax.samplers import beta, ranking


# ------------------------------------------------------------------------------ --suite=draws
def draws(quick: bool) -> Iterator[timing.Table]:
    """Yields a table of draws from Beta(alpha + 1, beta + 1) for each range of counts."""
    num_items, rounds = (20_000, 2) if quick else (1_000_000, 15)
    ours = jax.jit(beta.draw)
    theirs = jax.jit(lambda key, a, b: jax.random.beta(key, a + 1, b + 1))
    for highest in (8,) if quick else (8, 10_000):
        key, generator = jax.random.key(2), np.random.default_rng(2)
        alpha_I, beta_I = highest * jax.random.uniform(jax.random.key(1), (2, num_items))
        a_I, b_I = np.asarray(alpha_I, np.float64) + 1, np.asarray(beta_I, np.float64) + 1
        cases = {
            "vade_jax.samplers.beta.draw": functools.partial(ours, key, alpha_I, beta_I),
            "numpy Generator.beta": functools.partial(generator.beta, a_I, b_I),
            "jax.random.beta": functools.partial(theirs, key, alpha_I, beta_I),
        }
        title = f"draw, {num_items:,} items, counts up to {highest:,}"
        yield timing.Table(title, timing.interleaved(cases, rounds=rounds))


# ------------------------------------------------------------------------------ --suite=selectors
NUM_ROLLOUTS, NUM_CATEGORIES = 8, 16
_answer = jax.jit(arena.answer, static_argnames="total")


def selectors(quick: bool) -> Iterator[timing.Table]:
    """Yields one table of each selector over a million items, next to VADE."""
    # An odd number, as in real data: XLA on CPU vectorises round numbers better
    num_items, num_prompts, rounds = (2_001, 16, 2) if quick else (1_000_001, 512, 9)
    rivals = ["mmr1", "sec"] if quick else sorted(set(samplers.SAMPLERS) - {"vade"})
    cases = {}
    for name in ["vade", *rivals]:
        propose, update = selector(name, num_items, num_prompts)
        cases[name] = lambda propose=propose, update=update: (propose(), update())
    title = f"propose and update, {num_prompts} of {num_items:,} items, vade"
    yield timing.Table(title, timing.interleaved(cases, rounds=rounds))


def selector(
    name: str, num_items: int, num_prompts: int
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns `propose` and `update` of a selector after a few steps of a run."""
    options = {"warmup": "none"} if name == "vade" else {}
    sampler = samplers.SAMPLERS[name](num_rollouts=NUM_ROLLOUTS, **options)
    rng = np.random.default_rng(0)
    of_items = {
        "required": lambda: rng.integers(0, NUM_CATEGORIES, num_items),
        "measured": lambda: rng.random(num_items, np.float32),
        "states": lambda: rng.standard_normal((num_items, states.NUM_FEATURES), np.float32),
    }
    arrays = {x: make() for how, make in of_items.items() for x in sampler.needs.named(how)}
    state = sampler.init(num_items, **arrays)

    def answer(index_M):
        """Returns feedback with half of the answers right, on the host as in the training loop."""
        proposal = ranking.same_num_rollouts(np.asarray(index_M), NUM_ROLLOUTS)
        p_I = np.full(num_items, 0.5, np.float32)
        total = NUM_ROLLOUTS * num_prompts
        return jax.device_get(_answer(jax.random.key(1), p_I, 200 * p_I, proposal, total=total))

    for index_M in rng.choice(num_items, (4, num_prompts), replace=False).astype(np.int32):
        state = sampler.update(state, answer(index_M))
    propose = lambda: sampler.propose(state, jax.random.key(2), num_prompts)
    feedback = answer(propose().index_M)
    return propose, lambda: sampler.update(state, feedback)


# ------------------------------------------------------------------------------ --suite=data
SIZE = (1200, 900)  # of an image in a file; resized, it has just under 1 MP


def data(quick: bool) -> Iterator[timing.Table]:
    """Yields a table of rows with a JPEG each: read into prompts, by threads or not, and cut to patches."""
    count = 4 if quick else 64
    with tempfile.TemporaryDirectory() as folder, loading.threads(os.cpu_count() or 1) as pool:
        path = pathlib.Path(folder, "rows.jsonl")
        rng = np.random.default_rng(0)
        for number in range(count):
            rough = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
            rough.resize(SIZE, Image.Resampling.BICUBIC).save(f"{folder}/{number}.jpg", quality=90)
        row = {"question": "What is shown?", "answer": "7"}
        rows = [json.dumps(row | {"images": [f"{number}.jpg"]}) for number in range(count)]
        path.write_text("\n".join(rows))
        tokenizer, limits = tokens.Tokenizer.load(tiny_checkpoint.READER_FILES), settings.Data()
        build = prompts.PromptBuilder(
            tokenizer,
            instruction="",
            min_pixels=limits.min_pixels,
            max_pixels=limits.max_pixels,
            max_length=8192,
        )
        source = sources.rows(path)
        make = lambda index: build(source[index])
        built = list(map(make, range(count)))
        cases = {
            f"prompts, {os.cpu_count()} threads": lambda: list(pool(make, range(count))),
            "prompts, one after the other": lambda: list(map(make, range(count))),
            "cut to patches": lambda: [batching.collate(built[i::4]) for i in range(4)],
        }
        times = timing.interleaved(cases, rounds=2 if quick else 5)
    yield timing.Table(f"{count} rows with a JPEG of {SIZE[0]} x {SIZE[1]} each", times)
