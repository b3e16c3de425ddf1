"""Measures what a step costs the host: reading, resizing and cutting images, and judging answers."""

import functools
import importlib.util
import io
import os
import pathlib
import tempfile
from collections.abc import Iterator

import jax
import numpy as np
from PIL import Image

from configs import tiny_gspo
from experiments.bench import timing
from experiments.vade_9k import arrow_files
from vade_jax import samplers, settings
from vade_jax.data import batching, loading, prompts, sources, tokens
from vade_jax.rewards import process, reading, verify
from vade_jax.run import warm_start
from vade_jax.trainer import choosing

# ------------------------------------------------------------------------------ --suite=data
SIZE = (1200, 900)  # of an image in a file; resized, it has just under 1 MP
LIMITS = dict(min_pixels=3136, max_pixels=1003520)
STEP = 512  # prompts of a step, in the paper's recipe
MICRO = 16  # prompts of a micro-batch


def images(quick: bool) -> Iterator[timing.Table]:
    """Yields a table of the parts of a prompt, and one of many steps."""
    num_rows, num_steps = (4, 10) if quick else (64, 1000)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "train.arrow")
        arrow_files.write(path, map(_row, range(num_rows)))
        run = settings.Run.from_dict(tiny_gspo.get_config().to_dict())
        build = prompts.PromptBuilder(
            tokens.Tokenizer.load(warm_start.untrained(run, directory)),
            instruction="",
            max_length=8192,
            **LIMITS,
        )
        source = sources.rows(path)
        with loading.Threads(os.cpu_count()) as pool:
            yield _speed(source, build, pool.map, 2 if quick else 5)
            yield _steps(source, build, pool.map, num_steps)


def _row(number: int) -> dict:
    """Returns a question about a smooth picture, a JPEG that is different for each number."""
    rng = np.random.default_rng(number)
    rough = rng.integers(0, 256, (24, 32, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(rough).resize(SIZE, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return {
        **dict.fromkeys(arrow_files.SCHEMA.names),
        "uid": str(number),
        "question": "What is shown?",
        "images": [file.getvalue()],
        "answer": "7",
        "kind": "int",
    }


def _speed(source, build, threads: loading.Map, rounds: int) -> timing.Table:
    """Returns the times of building prompts with and without threads, of cutting patches, and of decoding."""
    numbers = range(len(source))

    def make(i):
        return build(source[i])

    def decode(i):
        return source[i].images[0].load()

    built = list(map(make, numbers))
    micro = [built[i : i + MICRO] for i in numbers[::MICRO]]
    cases = {
        f"prompts, {os.cpu_count()} threads": lambda: threads(make, numbers),
        "prompts, one after the other": lambda: list(map(make, numbers)),
        "cut to patches, in threads": lambda: threads(batching.collate, micro),
        "decoded alone, in threads": lambda: threads(decode, numbers),
    }
    times, _ = timing.interleaved(cases, rounds=rounds, num_bytes=2**20)
    decoded = times["decoded alone, in threads"]
    count = len(source)
    return timing.table(
        f"{count} prompts with a JPEG of {SIZE[0]} x {SIZE[1]} each",
        times,
        {name: decoded for name in times if "cut" not in name},
        "the same files decoded in the same threads, not resized",
        notes={
            name: f"{count / time:.0f} images/s, {STEP} in {STEP * time / count:.1f} s"
            for name, time in times.items()
        },
    )


def _steps(source, build, threads: loading.Map, num_steps: int) -> timing.Table:
    """Chooses, builds and cuts batches as a run does, and compares the memory early and at the end."""
    # This is the host's share of a run's steps, without a policy.
    selector = samplers.SAMPLERS["uniform"](num_rollouts=2)
    posterior = selector.init(len(source))
    choose = choosing.ChoosePrompts(selector, source, build, threads)

    def run(steps: range) -> None:
        for step in steps:
            batching.collate(choose(posterior, jax.random.key(step), num_prompts=4).prompts)

    early = num_steps // 10
    start = timing.seconds(lambda: run(range(early)))
    before = memory()
    rest = timing.seconds(lambda: run(range(early, num_steps)))
    grown = (memory() - before) / 2**20
    name = f"{num_steps:,} steps of 4"
    note = f"{before / 2**20:.0f} MB after {early} steps, {grown:+.1f} MB at the end"
    return timing.table(
        "chosen, built and cut, step after step",
        {name: start + rest},
        {},
        "none; memory is the process's own, without files that are mapped (Linux)",
        notes={name: note},
        facts={name: {"early_bytes": before, "grown_mb": grown}},
    )


def memory() -> int:
    """Returns the bytes in memory that belong to this process alone; 0 on systems other than Linux."""
    statm = pathlib.Path("/proc/self/statm")
    if not statm.exists():
        return 0
    _, resident, shared, *_ = map(int, statm.read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------------------ --suite=verify
NUM_ANSWERS = 4096  # of a step, in the paper's recipe: 512 x 8
NUM_FORMULAS = 256
THOUGHTS = "The side is twice the other one, so both add up to three of it. " * 24

# kind: (the gold, answers of a policy: right, right in other words, wrong)
ANSWERS = {
    "choice": ("B", ("B", "(b)", "C")),
    "yesno": ("yes", ("yes", "Yes.", "no")),
    "int": ("1200", ("1200", "1,200", "1201")),
    "float": ("2.50", ("2.50", "5/2", "2.6")),
    "text": ("isosceles", ("isosceles", r"\text{Isosceles}", "equilateral")),
    "list": ("1, 2, 3", ("1, 2, 3", "1,2,3", "1, 2")),
}
# kind: (the gold, an answer); {0} is a number that makes each pair different
VARIED = {
    "choice": ("B", "(B) {0}"),
    "yesno": ("yes", "Yes, all {0}"),
    "int": ("{0}", "{0}.0"),
    "float": ("{0}.5", r"{0}\frac{{1}}{{2}}"),
    "text": ("number {0}", r"\text{{Number {0}}}"),
    "list": ("{0}, 2, 3", r"[{0}, 2, 3]"),
    "expr": (r"{0}\sqrt{{3}}", r"\sqrt{{3}} \cdot {0}"),
    "expr, equation": (r"y={0}x+1", "{0}x-y+1=0"),
}
FORMULAS = (r"2\sqrt{3}", (r"2\sqrt{3}", r"\sqrt{12}", r"3\sqrt{2}"))


def verdicts(quick: bool) -> Iterator[timing.Table]:
    """Yields a table for the answers of a step, which repeat, and a table by kind, where none repeats."""
    share = 64 if quick else 1
    plain = [
        (_reply(text), answer, kind) for kind, (answer, said) in ANSWERS.items() for text in said
    ]
    formulas = [(_reply(text), FORMULAS[0], "expr") for text in FORMULAS[1]]
    cases, numbers = {}, {}
    for number, what, answers in (
        (NUM_ANSWERS // share, "answers, no formulas", plain),
        (NUM_FORMULAS // share, "formulas, a worker", formulas),
    ):
        name = f"{number:,} {what}"
        asked = [answers[i % len(answers)] for i in range(number)]
        cases[name], numbers[name] = functools.partial(_verify, asked), number
    times, _ = timing.interleaved(cases, rounds=2 if quick else 9, num_bytes=2**20)
    yield timing.table(
        f"answers of {len(_reply('')):,} characters, judged in one thread",
        times,
        {},
        "none",
        notes={name: f"{1e6 * time / numbers[name]:.0f} us each" for name, time in times.items()},
    )

    yield _by_kind(4 if quick else 64)


def _by_kind(count: int) -> timing.Table:
    """Returns times of each kind, and of math-verify on it; no answer repeats, and no cache helps."""
    cases, has_peer = {}, importlib.util.find_spec("math_verify") is not None
    for kind, (answer, given) in VARIED.items():
        asked = [(_reply(given.format(n)), answer.format(n), kind) for n in range(101, 101 + count)]
        cases[kind] = functools.partial(_verify_anew, asked)
        if has_peer:
            cases[f"{kind}, math-verify"] = functools.partial(_math_verify, asked)
    times, _ = timing.interleaved(cases, rounds=2, num_bytes=2**20, budget=5.0)
    return timing.table(
        f"{count} answers of each kind, all different, judged in one thread"
        + "; math-verify is not installed" * (not has_peer),
        times,
        {},
        "none",
        notes={name: f"{count / time:,.0f} answers/s" for name, time in times.items()},
    )


def _verify_anew(asked: list[tuple[str, str, str]]) -> None:
    reading.read.cache_clear()
    process.ask.cache_clear()
    _verify(asked)


def _math_verify(asked: list[tuple[str, str, str]]) -> None:
    """Calls math-verify as its own examples do: it parses gold and answer, and compares them."""
    import math_verify  # of the extra "test"

    for text, answer, _ in asked:
        math_verify.verify(math_verify.parse(f"${answer}$"), math_verify.parse(text))


def _reply(said: str) -> str:
    return f"<think>{THOUGHTS}</think> \\boxed{{{said}}}"


def _verify(asked: list[tuple[str, str, str]]) -> None:
    for text, answer, kind in asked:
        verify.verify(text, answer, kind.partition(",")[0], form="think_boxed")
