import jax
import numpy as np
import pytest

from vade_jax.rollout import fake
from vade_jax.types import Prompt


def prompt(uid):
    empty = np.zeros(0, np.int32)
    return Prompt(uid=uid, text="", token_P=empty, position_PX=empty[:, None], images=())


def test_answers_are_right_as_often_as_they_should_be():
    engine = fake.FakeEngine({"a": 0.0, "b": 0.25, "c": 1.0})
    prompts = [prompt("c"), prompt("a"), prompt("b")]
    found = engine.generate(prompts, np.array([5, 3, 4000]), jax.random.key(0), 0)
    right_N = found.token_NT[:, 0] == fake.RIGHT
    np.testing.assert_array_equal(np.bincount(found.group_N), [5, 3, 4000])
    assert right_N[:5].all() and not right_N[5:8].any()
    assert abs(right_N[8:].mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)
    assert (found.length_N == 2).all()


def test_the_key_decides_and_the_version_is_checked():
    engine = fake.FakeEngine({"a": 0.5})
    run = lambda seed, version=0: engine.generate(
        [prompt("a")], np.array([64]), jax.random.key(seed), version
    )
    np.testing.assert_array_equal(run(0).token_NT, run(0).token_NT)
    assert (run(0).token_NT != run(1).token_NT).any()
    engine.sync({}, 3)
    assert run(0, 3).params_version == 3
    with pytest.raises(ValueError, match=r"weights 2 were asked for.*version 3"):
        run(0, 2)
