"""Validation of a run's own items by an engine whose answers are known."""

import jax
import numpy as np

from tests.rollout.fake import FakeEngine
from tests.trainer import fakes
from vade_jax.rewards import functions
from vade_jax.rollout.engine import Sampling
from vade_jax.trainer import validation
from vade_jax.types import Item

SAMPLING = Sampling(temperature=0.5, max_tokens=3)


class Engine(FakeEngine):
    """Remembers what it was asked for."""

    def generate(self, prompts, num_rollouts_M, key, version, sampling, on_group):
        self.prompts = prompts
        self.asked = [p.uid for p in prompts], list(num_rollouts_M), sampling
        return super().generate(prompts, num_rollouts_M, key, version, on_group=on_group)


def own(*families, score=fakes.score):
    items = [
        Item(str(i), "?", (), "1", "int", {"family": family}) for i, family in enumerate(families)
    ]
    return validation.of_items(
        "mine", items, fakes.build_prompt, score, num_samples=4, sampling=SAMPLING
    )


def ask(validate, known, *rates):
    engine = Engine(fakes.pass_rates(rates), version=7)
    return *validate(engine, jax.random.key(0), 7, known), engine


def test_the_mean_over_items_and_samples_and_of_each_family():
    metrics, _, engine = ask(own("bars", "dots", "bars"), frozenset(), 1, 1, 0)
    assert metrics == {
        "val/mine/acc/mean@4": np.float32(8 / 12).item(),
        "val-aux/mine/bars/acc/mean@4": 0.5,
        "val-aux/mine/dots/acc/mean@4": 1.0,
    }
    assert engine.asked == (["0", "1", "2"], [4, 4, 4], SAMPLING)


def test_what_was_right_every_time_and_is_mostly_wrong_is_forgotten():
    validate = own("bars", "dots", "bars")
    metrics, known, _ = ask(validate, frozenset(), 1, 1, 0)
    assert known == {"mine/0", "mine/1"} and not any("forgotten" in name for name in metrics)
    metrics, known, _ = ask(validate, known, 0, 1, 1)
    assert known == {"mine/0", "mine/1", "mine/2"}
    assert metrics["val-aux/mine/forgotten"] == 1 / 2
    assert metrics["val-aux/mine/bars/forgotten"] == 1
    assert metrics["val-aux/mine/dots/forgotten"] == 0


def test_half_right_is_not_forgotten_and_no_verdict_counts_as_wrong():
    """Item 0 is right twice of four, item 1 once; of item 2 there is no verdict."""

    def right(item, texts, answers):
        times = {"0": 2, "1": 1, "2": 4}[item.uid]
        reward = np.nan if item.uid == "2" else 0.0
        return [functions.Judgement(reward, float(n < times)) for n in range(len(answers))]

    known = frozenset({"mine/0", "mine/1"})
    validate = own("bars", "dots", "dots", score=fakes.scorer(right))
    metrics, _, _ = ask(validate, known, 0, 0, 0)
    found = [metrics[f"val-aux/mine/{name}forgotten"] for name in ("", "bars/", "dots/")]
    assert found == [1 / 2, 0, 1]
    assert metrics["val/mine/acc/mean@4"] == 3 / 12
    assert ask(validate, frozenset(), 0, 0, 0)[1] == frozenset()  # none was always right
    assert metrics["val-aux/mine/unknown"] == np.float32(4 / 12)
