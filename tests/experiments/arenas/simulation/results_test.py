"""Numbers of a report by hand."""

import numpy as np
import pytest

from experiments.arenas.simulation import arena, results
from experiments.arenas.simulation.selectors import Shape

SHAPE = Shape(num_items=10, num_prompts=2, num_rollouts=4, rollouts=100)


def result():
    """Two seeds, four rounds; a step takes two rounds of the second seed."""
    paid_U = np.array([28, 36, 44, 52])
    trains_SU = np.array([[1, 1, 1, 1], [0, 1, 0, 1]], bool)
    used_SU = np.array([[1.0, 0.5, 0.5, 0.0], [0.0, 1.0, 0.0, 0.5]])
    rounds = {
        "used": used_SU,
        "trains": trains_SU,
        "mixed": np.array([[0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0]], float),
        "predicted": np.array([[0.5, 1, 0.5, 1], [1, 1, 1, 1]], float),
        "regret": np.full((2, 4), 0.25),
        "progress": np.array([[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.6]]),
        "start": np.array([[0.05], [0.05]]),
        "tokens": 1e6 * np.array([[1, 2, 3, 4], [1, 2, 3, 4]]),
    }
    return arena.Result(paid_U, rounds, {"steps": np.array([4, 2])}, 1.0, 2.0)


def test_summary_by_hand():
    played = results.summary(result(), SHAPE)
    values = played["values"]
    assert values["effective"] == pytest.approx([0.5, 0.75])
    assert values["effective_last"] == pytest.approx([0.0, 0.5])
    # 2 groups of a round and 4 rollouts each, of 52 paid: 20 of them were a measurement.
    assert values["useful"] == pytest.approx([2 * 8 / 52, 1.5 * 8 / 52])
    assert values["forecast_gap"] == pytest.approx([0.25, 0.5])
    assert values["forecast_bias"] == pytest.approx([-0.25, -0.5])
    # Two values 0.2 apart: sd 0.1414, its error 0.1, t(1) = 12.706.
    progress = results.mean(played, "progress")
    assert (progress.mean, progress.half) == pytest.approx((0.5, 1.2706), rel=1e-4)


def test_where_answers_differ_in_length_progress_is_compared_at_equal_tokens():
    """Of 4 million tokens, 3.25 are halfway between .3 and .5, of the third and the last round."""
    cell = results.summary(result(), SHAPE)
    cheap = results.summary(result(), SHAPE)
    cheap["values"]["tokens"] = np.array([3.5e6, 3.5e6])
    cheap["curves"]["tokens"] = [0.5e6, 1e6, 2e6, 3.5e6]
    assert results.at_equal_tokens({"a": cell, "b": cell}) == {}
    found = results.at_equal_tokens({"a": cell, "cheap": cheap})
    assert found == {"a": pytest.approx(0.4), "cheap": pytest.approx(0.5)}
