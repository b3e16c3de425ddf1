"""What images cost the host: reading, resizing and cutting them, and whether memory stays flat."""

import functools
import io
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from PIL import Image

from configs import tiny_gspo
from experiments.benchmarks import tables, timing
from vade_jax import samplers, types
from vade_jax.data import batching, loading, prompts, row_files, sources, tokens
from vade_jax.run import warm_start
from vade_jax.trainer import choosing

SIZE = (1200, 900)  # of a file; resized, an image has just under 1 MP
LIMITS = dict(min_pixels=3136, max_pixels=1003520)
STEP = 512  # prompts of a step, in the paper's recipe
MICRO = 16  # prompts of a micro-batch


def run(quick: bool) -> Iterator[tables.Table]:
    """Yields a table of the parts of a prompt, and one of many steps."""
    num_rows, num_steps = (4, 20) if quick else (64, 1000)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "train.arrow")
        row_files.write_arrow(path, map(_row, range(num_rows)))
        build = _builder(directory)
        source = sources.rows(path)
        with loading.Pool(os.cpu_count()) as pool:
            yield _speed(source, build, pool.map, 2 if quick else 5)
            yield _steps(source, build, pool.map, num_steps)


def _row(number: int) -> dict:
    """A question about a smooth picture that no other number has, as a JPEG."""
    rng = np.random.default_rng(number)
    rough = rng.integers(0, 256, (24, 32, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(rough).resize(SIZE, Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=90
    )
    return {
        **dict.fromkeys(row_files.SCHEMA.names),
        "uid": str(number),
        "question": "What is shown?",
        "images": [file.getvalue()],
        "answer": "7",
        "kind": "int",
    }


def _builder(directory: str) -> prompts.PromptBuilder:
    base = warm_start.untrained(tiny_gspo.get_config(), directory)
    tokenizer = tokens.Tokenizer.load(base)
    return prompts.PromptBuilder(tokenizer, instruction="", max_length=8192, **LIMITS)


def _speed(source, build, over: loading.Map, rounds: int) -> tables.Table:
    """Prompts by threads and without, micro-batches of them, and a decoder alone."""
    numbers = range(len(source))
    make = lambda i: build(source[i])
    built = list(map(make, numbers))
    micro = [built[i : i + MICRO] for i in numbers[::MICRO]]
    decode = lambda i: source[i].images[0].load()
    cases = {
        f"prompts, {os.cpu_count()} threads": functools.partial(over, make, numbers),
        "prompts, one after the other": lambda: list(map(make, numbers)),
        "cut to patches, in threads": functools.partial(over, batching.collate, micro),
        "decoded alone, in threads": functools.partial(over, decode, numbers),
    }
    times, _ = timing.interleaved(cases, rounds=rounds, num_bytes=2**20)
    decoded = times["decoded alone, in threads"]
    return tables.Table.of(
        f"{len(source)} prompts with a JPEG of {SIZE[0]} x {SIZE[1]} each",
        times,
        {name: None if "cut" in name else decoded for name in times},
        floor="the same files decoded in the same threads, not resized",
        notes={name: _speed_of(len(source), time) for name, time in times.items()},
    )


def _speed_of(number, seconds):
    return f"{number / seconds:.0f} images/s, {STEP} in {STEP * seconds / number:.1f} s"


def _steps(source, build, over: loading.Map, num_steps: int) -> tables.Table:
    """Plans and cuts batches, as a run does, and reads the memory early and at the end."""
    run = Steps(source, build, over)
    early = num_steps // 10
    start = timing.seconds(lambda: run(range(early)))
    before = memory()
    rest = timing.seconds(lambda: run(range(early, num_steps)))
    grown = (memory() - before) / 2**20
    name = f"{num_steps:,} steps of {run.num_prompts}"
    note = f"{before / 2**20:.0f} MB after {early} steps, {grown:+.1f} MB at the end"
    return tables.Table.of(
        "chosen, built and cut, step after step",
        {name: start + rest},
        {name: None},
        floor="none; memory is the process's own, without files that are mapped (Linux)",
        notes={name: note},
        facts={name: {"early_bytes": before, "grown_mb": grown}},
    )


class Steps:
    """The host's share of a run's steps, without a policy."""

    num_prompts = 4

    def __init__(self, items: Sequence[types.Item], build, over: loading.Map):
        sampler = samplers.SAMPLERS["uniform"](num_rollouts=2)
        self._selector = sampler.init(len(items))
        self._choose = choosing.Chooser(sampler, items, build, over)

    def __call__(self, steps: Sequence[int]) -> None:
        for step in steps:
            key = jax.random.key(step)
            chosen = self._choose(self._selector, key, self.num_prompts)
            batching.collate(chosen.prompts)


def memory() -> int:
    """Returns the bytes that are in memory and belong to this process alone; 0 but on Linux."""
    statm = pathlib.Path("/proc/self/statm")
    if not statm.exists():
        return 0
    _, resident, shared, *_ = map(int, statm.read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
