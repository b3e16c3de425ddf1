"""Validation of a run's own items by an engine whose answers are known."""

import jax
import numpy as np

from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.fake import FakeEngine
from vade_jax.trainer import scoring, validation
from vade_jax.types import Item, Prompt

SAMPLING = Sampling(temperature=0.5, max_tokens=3)


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
