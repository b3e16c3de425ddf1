"""What it costs to judge a step's answers: the kinds that compare in place, and formulas."""

from collections.abc import Iterator

from experiments.benchmarks import tables, timing
from vade_jax.rewards import verify

NUM_ANSWERS = 4096  # of a step, in the paper's recipe: 512 x 8
NUM_FORMULAS = 256
THOUGHTS = "The side is twice the other one, so both add up to three of it. " * 24

# kind: (the right answer, what a policy writes: right, right in other words, wrong)
ANSWERS = {
    "choice": ("B", ("B", "(b)", "C")),
    "yesno": ("yes", ("yes", "Yes.", "no")),
    "int": ("1200", ("1200", "1,200", "1201")),
    "float": ("2.50", ("2.50", "5/2", "2.6")),
    "text": ("isosceles", ("isosceles", r"\text{Isosceles}", "equilateral")),
    "list": ("1, 2, 3", ("1, 2, 3", "1,2,3", "1, 2")),
}
FORMULAS = (r"2\sqrt{3}", (r"2\sqrt{3}", r"\sqrt{12}", r"3\sqrt{2}"))


def run(quick: bool) -> Iterator[tables.Table]:
    """Yields one table: answers of all kinds but formulas, and formulas in warm workers."""
    share = 64 if quick else 1
    plain = [
        (text, answer, kind)
        for kind, (answer, said) in ANSWERS.items()
        for text in map(_text, said)
    ]
    formulas = [(text, FORMULAS[0], "expr") for text in map(_text, FORMULAS[1])]
    cases = {
        _name(NUM_ANSWERS // share, "answers, no formulas"): _judge(
            plain, NUM_ANSWERS // share
        ),
        _name(NUM_FORMULAS // share, "formulas, a worker"): _judge(
            formulas, NUM_FORMULAS // share
        ),
    }
    times, _ = timing.interleaved(cases, rounds=2 if quick else 9, num_bytes=2**20)
    numbers = (NUM_ANSWERS // share, NUM_FORMULAS // share)
    yield tables.Table.of(
        f"answers of {len(_text('')):,} characters, judged in one thread",
        times,
        dict.fromkeys(times),
        floor="none",
        notes={
            name: f"{1e6 * time / number:.0f} us each"
            for (name, time), number in zip(times.items(), numbers, strict=True)
        },
    )


def _name(number: int, what: str) -> str:
    return f"{number:,} {what}"


def _text(said: str) -> str:
    return f"<think>{THOUGHTS}</think> \\boxed{{{said}}}"


def _judge(cases: list[tuple[str, str, str]], number: int) -> timing.Case:
    """Returns what judges `number` answers, the cases in turn."""
    asked = [cases[i % len(cases)] for i in range(number)]

    def judge() -> None:
        for text, answer, kind in asked:
            verify.verify(text, answer, kind, form="think_boxed")

    return judge
