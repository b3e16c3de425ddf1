"""Times Beta draws against numpy's and jax.random's, and every selector's step against a training step."""

import tempfile
from collections.abc import Iterator
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from configs import tiny_gspo
from experiments.arenas.simulation import arena
from experiments.bench import timing
from vade_jax import samplers, settings, types
from vade_jax.run import build, job, states, warm_start
from vade_jax.samplers import beta, per_item, ranking
from vade_jax.trainer import loop, producer

# ------------------------------------------------------------------------------ --suite=draws
DRAW_BYTES = 12  # for each item: two counts in, one draw out
PROPOSE_BYTES = 9  # for each item: two counts and a flag in


def draws(quick: bool) -> Iterator[timing.Table]:
    """Yields a table of draws for each range of counts, then one of proposals for each size of data set."""
    num_items, rounds = (20_000, 2) if quick else (1_000_000, 15)
    highest, sizes = ((8,), (2_000,)) if quick else ((0, 8, 10_000), (10_000, num_items))
    for high in highest:
        yield draw(num_items, high, rounds)
    for size in sizes:
        yield propose(size, min(512, size // 4), rounds)


def draw(num_items: int, highest: float, rounds: int) -> timing.Table:
    """Returns the times of draws from Beta(alpha + 1, beta + 1), with counts uniform up to `highest`."""
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
    return _by_bytes(title, cases, num_items, DRAW_BYTES, rounds)


def propose(num_items: int, num_prompts: int, rounds: int) -> timing.Table:
    """Returns the times of draw, score and top-B, and of the same done with numpy or jax.random.beta."""
    alpha_I, beta_I = _counts(num_items, 8)
    selector, key = samplers.SAMPLERS["vade"](warmup="none"), jax.random.key(2)
    state = selector.init(num_items).replace(alpha_I=alpha_I, beta_I=beta_I)
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
        "vade.propose": lambda: selector.propose(state, key, num_prompts),
        "numpy beta, argpartition": with_numpy,
        "jax.random.beta, top_k": lambda: with_jax(key, alpha_I, beta_I),
    }
    title = f"propose, {num_prompts} of {num_items:,} items, counts up to 8"
    return _by_bytes(title, cases, num_items, PROPOSE_BYTES, rounds)


def _by_bytes(title, cases, num_items, bytes_per_item, rounds) -> timing.Table:
    """Returns the times of cases; the floor is the time to read or write each item's numbers once."""
    num_bytes = num_items * bytes_per_item
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=num_bytes)
    return timing.table(
        title,
        times,
        dict.fromkeys(times, num_bytes / machine.bandwidth),
        f"{bytes_per_item} bytes an item, moved by an in-place negation at "
        f"{machine.bandwidth / 1e9:.1f} GB/s",
    )


def _counts(num_items: int, highest: float) -> jax.Array:
    uniform_2I = jax.random.uniform(jax.random.key(1), (2, num_items), jnp.float32)
    return highest * uniform_2I


# ------------------------------------------------------------------------------ --suite=selectors
STEP = "a step of configs/tiny_gspo.py"
NUM_ROLLOUTS, NUM_CATEGORIES = 8, 16


def steps(quick: bool) -> Iterator[timing.Table]:
    """Yields one table of each selector over a million items, and of a training step."""
    # An odd number, as of real data: XLA on CPU vectorises a round one better
    num_items, num_prompts, rounds = (2_001, 16, 2) if quick else (1_000_001, 512, 9)
    cases, floors = {}, {}
    rivals = ["mmr1", "sec"] if quick else sorted(set(samplers.SAMPLERS) - {"vade"})
    for name in ["vade", *rivals]:
        one = Selector(name, num_items, num_prompts)
        cases |= {f"{name} propose": one.propose, f"{name} update": one.update}
        floors |= dict(zip(list(cases)[-2:], one.num_bytes(), strict=True))
    cases[STEP] = TinyStep("smoke" if quick else None)
    most = max(floors.values())
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=most)
    floors = {name: size / machine.bandwidth for name, size in floors.items()}
    notes = {n: f"{t / times[STEP]:.1%} of that step" for n, t in times.items() if n != STEP}
    yield timing.table(
        f"selectors, {num_prompts} of {num_items:,} items, {NUM_ROLLOUTS} answers each",
        times,
        floors,
        "propose: every array over the items read once; update: those that change read and "
        f"written; by an in-place negation at {machine.bandwidth / 1e9:.1f} GB/s",
        notes=notes,
    )


_answer = jax.jit(arena.answer, static_argnames="total")


class Selector:
    """A selector after a few steps of a run."""

    def __init__(self, name: str, num_items: int, num_prompts: int):
        options = {"warmup": "none"} if name == "vade" else {}
        self._sampler = samplers.SAMPLERS[name](num_rollouts=NUM_ROLLOUTS, **options)
        self._num_prompts = num_prompts
        rng = np.random.default_rng(0)
        arrays = {
            x: rng.integers(0, NUM_CATEGORIES, num_items)
            for x in self._sampler.needs.named("required")
        }
        arrays |= {
            x: rng.random(num_items, np.float32) for x in self._sampler.needs.named("measured")
        }
        arrays |= {
            x: rng.standard_normal((num_items, states.NUM_FEATURES), np.float32)
            for x in self._sampler.needs.named("states")
        }
        self._state = self._sampler.init(num_items, **arrays)

        def answer(index_M):
            """Returns feedback with half of the answers right, on the host as in the training loop."""
            proposal = ranking.same_num_rollouts(np.asarray(index_M), NUM_ROLLOUTS)
            p_I = np.full(num_items, 0.5, np.float32)
            found = _answer(
                jax.random.key(1), p_I, 200 * p_I, proposal, total=NUM_ROLLOUTS * num_prompts
            )
            return jax.device_get(found)

        for index_M in rng.permutation(num_items)[: 4 * num_prompts].reshape(4, -1):
            self._state = self._sampler.update(self._state, answer(index_M.astype(np.int32)))
        self._feedback = answer(self.propose().index_M)

    def propose(self) -> types.Proposal:
        return self._sampler.propose(self._state, jax.random.key(2), self._num_prompts)

    def update(self):
        return self._sampler.update(self._state, self._feedback)

    def num_bytes(self) -> tuple[int, int]:
        """Returns the bytes that `propose` reads and that `update` moves, of the arrays over all items."""
        of_items = {
            n: x for n, x in per_item.leaves(self._state).items() if per_item.is_per_item(n)
        }
        after = per_item.leaves(self.update())
        read = sum(x.nbytes for x in of_items.values())
        changed = [x.nbytes for n, x in of_items.items() if not np.array_equal(x, after[n])]
        few = 4 * self._num_prompts  # for a selector without such arrays: only the prompts
        return max(read, few), max(2 * sum(changed), few)


class TinyStep:
    """The tiny job without warm start, files and validation; each call takes one step."""

    def __init__(self, words: str | None):
        self._directory = tempfile.TemporaryDirectory()
        workdir, c = self._directory.name, tiny_gspo.get_config(words)
        c.warm_start.num_steps = 0
        run = settings.Run.from_dict(c.to_dict())
        model = warm_start.untrained(run, workdir)
        data = build.load_data(run, model, workdir)
        ready = job.prepare(run, build.load_policy(run, model), data, workdir)
        ready.recorder.close()
        self._parts, self._progress = ready.loop, ready.progress

    def __call__(self):
        nothing = lambda *_, **__: None
        parts, made = self._parts, self._parts.producer
        # A producer's threads end with its loop.
        again = producer.Producer(
            made.choose, made.engine, made.score, key=made.key, num_prompts=made.num_prompts
        )
        one_more = loop.Loop(
            again,
            parts.learn,
            validate=lambda *_: ({}, frozenset()),
            recorder=SimpleNamespace(step=nothing, save=nothing),
            num_steps=self._progress.step + 1,
            eval_every=1,
        )
        self._progress = one_more.run(self._progress)
        return self._progress.state.step
