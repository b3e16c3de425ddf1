import jax
import numpy as np
import pytest

from tests.trainer import fakes
from vade_jax.rollout import fake


def test_answers_are_right_as_often_as_they_should_be():
    engine = fake.FakeEngine({"0": 0.0, "1": 0.25, "2": 1.0})
    none, quarter, always = map(fakes.build_prompt, fakes.items(3))

    def run(seed, version=0):
        counts = np.array([5, 3, 4000])
        return engine.generate([always, none, quarter], counts, jax.random.key(seed), version)

    found = run(0)
    right_N = found.token_NT[:, 0] == fake.RIGHT
    np.testing.assert_array_equal(np.bincount(found.group_N), [5, 3, 4000])
    assert right_N[:5].all() and not right_N[5:8].any()
    assert abs(right_N[8:].mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)
    np.testing.assert_array_equal(found.token_NT, run(0).token_NT)
    assert (found.token_NT != run(1).token_NT).any()
    engine.sync({}, 3)
    assert run(0, 3).params_version == 3
    with pytest.raises(ValueError, match=r"weights 2 were asked for.*version 3"):
        run(0, 2)
