"""DIVA in a run: the advantages of a proposal, the variants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.diva import advantages, hook
from vade_jax import samplers, settings
from vade_jax.data import procedural, prompts
from vade_jax.models.qwen import tiny_tokenizer


def run(**changes):
    """Returns settings with dotted fields changed."""
    limits = {"min_pixels": 12544, "max_pixels": 12544, "max_prompt_length": 400}
    values = settings.Run(
        selector=settings.Selector(name="diva"),
        data=settings.Data(train="procedural", **limits),
        **{"num_prompts": 8, "num_rollouts": 4, "batch": settings.Batch(8, 8)},
    ).to_dict()
    for name, value in changes.items():
        section, _, field = name.rpartition("__")
        (values[section] if section else values)[field] = value
    return settings.Run.from_dict(values)


def propose(num_variants):
    selector = samplers.SAMPLERS["diva"](num_rollouts=4, num_variants=num_variants)
    state = selector.init(20)
    return jax.device_get(selector.propose(state, jax.random.key(0), 8))


@pytest.mark.parametrize("num_variants", [0, 3])
def test_the_advantages_are_those_of_the_proposals_problems(num_variants):
    rng = np.random.default_rng(0)
    proposal = propose(num_variants)
    group_N = np.repeat(np.arange(8), 4)
    reward_N = rng.choice([0, 0.1, 1], 32).astype(np.float32)
    valid_N = rng.random(32) < 0.9
    ours_N = hook.advantage(run())(reward_N, group_N, 8, valid_N, proposal.extra_M)
    expected_N = advantages.two_level(
        jnp.asarray(reward_N),
        jnp.asarray(group_N),
        jnp.arange(8) // (1 + num_variants),
        jnp.asarray(proposal.extra_M["difficulty"]),
        valid_N=jnp.asarray(valid_N),
    )
    np.testing.assert_allclose(ours_N, expected_N, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    texts = [item.question for item in procedural.Procedural(0, 50)]
    return tiny_tokenizer.build(tmp_path_factory.mktemp("tokens"), texts, 512)


def test_built_in_items_have_variants_and_long_ones_give_way(tokenizer):
    item = procedural.Procedural(0, 1, mixture={"count_1": 1})[0]
    limits = {"min_pixels": 112 * 112, "max_pixels": 112 * 112, "instruction": ""}
    long, short = (
        hook.vary(run(), prompts.PromptBuilder(tokenizer, max_length=n, **limits))
        for n in (400, 60)
    )
    hinted, difficulty = long(item, 9.0, 2.0, np.random.default_rng(0))
    assert "steps help" in hinted.question and difficulty == 2
    same, difficulty = short(item, 9.0, 2.0, np.random.default_rng(0))
    assert same.question == item.question and difficulty == 9
    assert short.counts["too_long"] == 1
