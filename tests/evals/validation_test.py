"""Validation by an engine whose answers are known: of a run's own items, and of benchmarks' files."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.evals.benchmarks import files
from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.evals import validation
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.fake import FakeEngine
from vade_jax.trainer import scoring
from vade_jax.types import Item, Prompt

SAMPLING = Sampling(temperature=0.5, max_tokens=3)
TEXTS = ["How many? Answer the question with a single word.", r"\boxed{10}"]


class Engine(FakeEngine):
    """Remembers what it was asked for; a prompt without a pass rate is always answered right."""

    def generate(self, prompts, num_rollouts_M, key, version, sampling, on_group):
        self.prompts, self.sampling = prompts, sampling
        self.counts = list(num_rollouts_M)
        self.pass_rate = {p.uid: 1.0 for p in prompts} | self.pass_rate
        return super().generate(prompts, num_rollouts_M, key, version, on_group=on_group)


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
    return Prompt(uid=item.uid, text="", token_P=empty, position_PX=empty[:, None], images=())


def _score(item, answers):
    return [scoring.Scored("", None, reward=tokens[0] + 9, correct=tokens[0]) for tokens in answers]


score = scoring.Scorer(_score)


def own(families):
    return validation.of_items(
        "mine", items(families), build_prompt, score, num_samples=4, sampling=SAMPLING
    )


def test_the_mean_over_items_and_samples_and_of_each_family():
    engine = Engine({"0": 1.0, "1": 1.0, "2": 0.0}, version=7)
    metrics, _ = own(["bars", "dots", "bars"])(engine, jax.random.key(0), 7, frozenset())
    assert metrics == {
        "val/mine/acc/mean@4": np.float32(8 / 12).item(),
        "val-aux/mine/bars/acc/mean@4": 0.5,
        "val-aux/mine/dots/acc/mean@4": 1.0,
    }
    assert [p.uid for p in engine.prompts] == ["0", "1", "2"]
    assert (engine.counts, engine.sampling) == ([4, 4, 4], SAMPLING)


def test_what_was_right_every_time_and_is_mostly_wrong_is_forgotten():
    validate, known = own(["bars", "dots", "bars"]), frozenset()

    def ask(**rates):
        engine = Engine({uid[1:]: rate for uid, rate in rates.items()}, version=7)
        return validate(engine, jax.random.key(0), 7, known)

    metrics, known = ask(_0=1.0, _1=1.0, _2=0.0)
    assert known == {"mine/0", "mine/1"} and not any("forgotten" in name for name in metrics)
    metrics, known = ask(_0=0.0, _1=1.0, _2=1.0)
    assert known == {"mine/0", "mine/1", "mine/2"}
    assert metrics["val-aux/mine/forgotten"] == 1 / 2
    assert metrics["val-aux/mine/bars/forgotten"] == 1
    assert metrics["val-aux/mine/dots/forgotten"] == 0


def test_what_is_right_half_of_the_time_is_not_forgotten():
    """Item 0 twice of four, item 1 once."""

    def right(item, answers):
        times = {"0": 2, "1": 1}[item.uid]
        return [scoring.Scored("", None, 0.0, float(n < times)) for n in range(len(answers))]

    validate = validation.of_items(
        "mine",
        items(["bars", "dots"]),
        build_prompt,
        scoring.Scorer(right),
        num_samples=4,
        sampling=SAMPLING,
    )
    metrics, _ = validate(Engine({}), jax.random.key(0), 0, frozenset({"mine/0", "mine/1"}))
    found = [metrics[f"val-aux/mine/{name}forgotten"] for name in ("", "bars/", "dots/")]
    assert found == [1 / 2, 0, 1]


# ------------------------------------------------------------------------------ files of a run
@pytest.fixture
def path(tmp_path):
    rows = [files.chartqa(answer=answer) for answer in ("B", "no", "7")]
    return files.save(tmp_path / "chart.parquet", *rows)


def make_run(benchmarks, max_prompt_length=512, **changes):
    return settings.Run(
        data=settings.Data(min_pixels=3136, max_prompt_length=max_prompt_length),
        eval=settings.Eval(benchmarks=benchmarks, max_tokens=9, **changes),
    )


def test_accuracy_by_the_benchmarks_own_rules_beside_the_runs_own_items(
    path, tmp_path, monkeypatch
):
    rows = [files.mathvista("1"), files.mathvista("2", answer="135°")]
    vista = files.save(tmp_path / "vista.parquet", *rows)
    run = make_run(f"chartqa:{path},mathvista:{vista}", benchmark_items=2, num_samples=4)
    tokenizer = tokens.build(tmp_path / "tokens", TEXTS, 512)
    found = validation.read(run.eval)
    assert [len(items) for items in found.values()] == [2, 2]
    made = validation.make(run, tokenizer, found)
    validate = validation.together([own([""]), *made])
    # the fake engine's token 1 stands for what is right for the first items
    say = lambda ids: r"so \boxed{B}" if ids[0] == 1 else "who knows"
    monkeypatch.setattr(tokenizer, "decode", say)
    for rate, right in ((1.0, 0.5), (0.0, 0.0)):
        uids = [item.uid for items in found.values() for item in items]
        engine = Engine({"0": 0.0} | dict.fromkeys(uids, rate), version=7)
        metrics, _ = validate(engine, jax.random.key(0), 7, frozenset())
        assert metrics == {
            "val/mine/acc/mean@4": 0.0,  # without families there is one number
            "val/chartqa/acc/mean@4": right,
            "val/mathvista/acc/mean@4": right,
        }
    assert engine.sampling == Sampling(temperature=run.eval.temperature, max_tokens=9)
    first = engine.prompts[0]
    assert "Hint: Answer by" in first.text and r"\boxed{}." in first.text
    assert first.images[0].dtype == np.uint8
    small = dataclasses.replace(run, data=settings.Data(max_prompt_length=8))
    with pytest.raises(ValueError, match=r"chartqa:chart:0 makes no prompt \(too_long"):
        validation.make(small, tokenizer, found)


def test_pictures_of_benchmarks_are_not_kept_decoded(path, tmp_path):
    run = make_run(f"chartqa:{path}")
    found = validation.read(run.eval)
    validation.make(run, tokens.build(tmp_path / "tokens", TEXTS, 512), found)
    images = [image for item in found["chartqa"] for image in item.images]
    assert len(images) == 3
    assert not any(image.fp is None for image in images)  # Pillow lets the file go once it is read


@pytest.mark.parametrize(
    ("benchmarks", "message"),
    [
        ("chart:x", "'chart:x': write BENCHMARK:FILE; benchmarks are mathvista, "),
        ("chartqa", "'' does not exist"),
        ("chartqa:gone.parquet", "'gone.parquet' does not exist"),
        ("mathvista_binary:{path}", "mathvista_binary has no rules"),
        ("chartqa:{path},chartqa:{path}", "chartqa is there twice"),
    ],
)
def test_mistakes_in_the_settings(path, benchmarks, message):
    with pytest.raises(ValueError, match=message):
        validation.paths(make_run(benchmarks.format(path=path)).eval)


def test_no_benchmark_is_the_default_and_the_profile_is_checked_all_the_same():
    assert validation.read(settings.Eval()) == {}
    with pytest.raises(ValueError, match="profile='chain' is unknown"):
        validation.paths(settings.Eval(profile="chain"))
