"""Three items of two families, answered by an engine whose answers are known."""

import jax
import numpy as np
import pytest

from tests.evals.benchmarks import files
from vade_jax.evals import runner
from vade_jax.evals.benchmarks import BENCHMARKS
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.fake import FakeEngine
from vade_jax.trainer import scoring
from vade_jax.types import Item, Prompt

SAMPLING = Sampling(temperature=0.5, max_tokens=3)


class Engine(FakeEngine):
    """Remembers what it was asked for."""

    def generate(self, prompts, num_rollouts_M, key, version, sampling, on_group):
        self.asked = [p.uid for p in prompts], list(num_rollouts_M), sampling
        return super().generate(
            prompts, num_rollouts_M, key, version, on_group=on_group
        )


def items(families):
    return [
        Item(
            uid=str(i),
            question="?",
            images=(),
            answer="1",
            kind="int",
            metadata={"family": family} if family else {},
        )
        for i, family in enumerate(families)
    ]


def build_prompt(item):
    empty = np.zeros(0, np.int32)
    return Prompt(
        uid=item.uid, text="", token_P=empty, position_PX=empty[:, None], images=()
    )


def judge(item, answers):
    return [
        scoring.Judged("", None, reward=tokens[0] + 9, correct=tokens[0])
        for tokens in answers
    ]


def validate(families, rates):
    engine = Engine(dict(zip("012", rates, strict=False)), version=7)
    run = runner.make(
        "mine", items(families), build_prompt, judge, num_samples=4, sampling=SAMPLING
    )
    return run(engine, jax.random.key(0), 7), engine


def test_the_mean_over_items_and_samples_and_of_each_family():
    metrics, engine = validate(["bars", "dots", "bars"], [1.0, 1.0, 0.0])
    assert metrics == {
        "val/mine/acc/mean@4": np.float32(8 / 12).item(),
        "val-aux/mine/bars/acc/mean@4": 0.5,
        "val-aux/mine/dots/acc/mean@4": 1.0,
    }
    assert engine.asked == (["0", "1", "2"], [4, 4, 4], SAMPLING)


def test_items_without_a_family_have_one_number():
    metrics, _ = validate(["", ""], [0.0, 1.0])
    assert metrics == {"val/mine/acc/mean@4": 0.5}


def benchmark_validation(tmp_path, name="mathvista", profile="cot", **changes):
    """Returns a validation of two items, and the prompts that were built."""
    rows = [files.mathvista("1"), files.mathvista("2", answer="135°")]
    found = BENCHMARKS["mathvista"].read(files.save(tmp_path / "vista.parquet", *rows))
    seen = []

    def build(item):
        seen.append(item.question)
        return build_prompt(item)

    # the fake engine's token 1 stands for a right answer to the first item
    decode = lambda tokens: r"so \boxed{B}" if tokens[0] == 1 else "who knows"
    run = runner.of_benchmark(
        BENCHMARKS[name],
        profile,
        found,
        build,
        decode,
        num_samples=4,
        sampling=SAMPLING,
        **changes,
    )
    return run, seen


def test_a_benchmark_scores_by_its_own_rules(tmp_path):
    run, seen = benchmark_validation(tmp_path)
    engine = Engine({"mathvista:1": 1.0, "mathvista:2": 1.0}, version=7)
    assert run(engine, jax.random.key(0), 7) == {"val/mathvista/acc/mean@4": 0.5}
    assert all(text.endswith(r"\boxed{}.") and "Hint:" in text for text in seen)
    engine = Engine({"mathvista:1": 0.0, "mathvista:2": 0.0}, version=7)
    assert run(engine, jax.random.key(0), 7) == {"val/mathvista/acc/mean@4": 0.0}


def test_several_validations_join_their_metrics(tmp_path):
    run, _ = benchmark_validation(tmp_path)
    rates = {"0": 1.0, "mathvista:1": 1.0, "mathvista:2": 0.0}
    engine = Engine(rates, version=7)
    own = runner.make(
        "mine", items([""]), build_prompt, judge, num_samples=4, sampling=SAMPLING
    )
    assert runner.together([own, run])(engine, jax.random.key(0), 7) == {
        "val/mine/acc/mean@4": 1.0,
        "val/mathvista/acc/mean@4": 0.5,
    }


def test_a_benchmark_that_needs_a_judge_says_so_before_anything_is_asked(tmp_path):
    with pytest.raises(ValueError, match="mathvista_binary has no rules"):
        benchmark_validation(tmp_path, "mathvista_binary")
