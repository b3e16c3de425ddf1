"""The policy's states at the end of each prompt, against the plain forward of one prompt at a time."""

import types
from unittest import mock

import jax
import numpy as np
import pytest

from tests.experiments.train_test import killed, smoke
from vade_jax import run, settings
from vade_jax.data import batching
from vade_jax.run import build, datasets, states
from vade_jax.store import metrics


@pytest.fixture(scope="module")
def job(small_checkpoint, tmp_path_factory):
    base = tmp_path_factory.mktemp("states")
    c = smoke(2, small_checkpoint)
    c.selector.name, c.selector.options = "informed", {"dimensions": 3}
    return settings.Run.from_dict(c.to_dict()), base


def test_a_state_is_that_of_the_prompts_last_token(job, small_checkpoint, tmp_path):
    """On eight devices, five prompts a call: the last call is filled up."""
    given, _ = job
    data = datasets.load(
        given.data, str(small_checkpoint), str(tmp_path), seed=given.seed, reward=given.reward
    )
    policy = build.load_policy(given, str(small_checkpoint))
    small = given.to_dict() | {"engine": {"prompts_per_call": 5}}
    small["data"] |= {"length_multiple": 16}
    found = states.of_prompts(
        settings.Run.from_dict(small), policy, data, lambda f, xs: list(map(f, xs))
    )
    width = policy.shape.text.width
    direction_DE = jax.random.normal(jax.random.key(0), (width, states.NUM_FEATURES))
    hidden = jax.jit(lambda params, one: policy.merge(params).hidden(one, remat=False))
    assert found.shape == (len(data.train), states.NUM_FEATURES)
    prompts = {i: data.build_prompt(data.train[i]) for i in (0, 4, len(data.train) - 1)}
    sizes = batching.shapes(*([prompt] for prompt in prompts.values()))
    for i, prompt in prompts.items():
        hidden_MPD = hidden(policy.params, batching.collate([prompt], **sizes))
        last_D = np.asarray(hidden_MPD[0, prompt.length - 1])
        np.testing.assert_allclose(found[i], last_D @ direction_DE / np.sqrt(width), atol=2e-4)


def test_a_resumed_run_has_the_states_of_the_first_weights(job, one_device, capsys):
    given, base = job
    # A page that fails leaves the policy: it would fail again after every resumption.
    page = types.SimpleNamespace(at_start=lambda *_: None, at_end=mock.Mock(side_effect=OSError))
    with pytest.raises(OSError):
        run.train(given, str(base / "whole"), hooks=run.Hooks(page=page))
    assert (base / "whole" / "policy" / "model.safetensors").exists()
    assert capsys.readouterr().out.count("states of 16 prompts") == 1
    assert run.train(given, str(base / "whole"))
    assert "is done already" in capsys.readouterr().out
    killed(base / "whole", base / "resumed", 1)
    assert run.train(given, str(base / "resumed"))
    assert "states of" not in capsys.readouterr().out
    told = [metrics.read(base / name) for name in ("whole", "resumed")]
    for one, other in zip(*told, strict=True):
        for name in ("informed/prior_mean", "critic/score/mean", "vade/posterior_mean"):
            assert one.get(name) == other.get(name)
    assert told[0][2]["informed/prior_mean"] > 0
