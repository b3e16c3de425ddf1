"""DIVA from a config: what is wrong with one, the advantages of a proposal, the variants."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import default
from experiments import diva
from vade_jax import samplers
from vade_jax.data import procedural, prompts, sources, tokens
from vade_jax.losses import diva as losses
from vade_jax.types import Item


def config(**options):
    c = default.get_config()
    c.sampler.name, c.sampler.options = "diva", ConfigDict()
    c.num_prompts, c.num_rollouts = 8, 4
    c.data.train = "procedural"
    c.data.min_pixels = c.data.max_pixels = 112 * 112
    c.data.max_prompt_length = 400
    c.diva = ConfigDict(
        dict(
            changes=("rotate", "write", "gaussian", "blur"),
            norm="sequence",
            weight=0.1,
            weighted="global",
            balance="range",
            local_share=1.0,
            global_share=1.0,
        )
    )
    c.update(options)
    return c


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("norm", "best", "diva.norm='best': choose one of sequence, code, off"),
        ("weighted", "local", "diva.weighted='local': choose one of global, both"),
        ("balance", "none", "diva.balance='none': choose one of range"),
        ("changes", ("rotate", "crop"), "diva.changes=.*no 'crop', choose from rotate"),
    ],
)
def test_an_unknown_option_is_an_error_before_the_run(field, value, message):
    c = config()
    c.diva[field] = value
    with pytest.raises(ValueError, match=message):
        diva.check(c)


def test_a_batch_is_whole_problems():
    diva.check(config())
    c = config(num_prompts=9)
    with pytest.raises(ValueError, match=r"num_prompts=9.*multiple of 2"):
        diva.check(c)
    c.sampler.options.num_variants = 2
    diva.check(c)
    c.num_prompts, c.sampler.name = 7, "uniform"
    diva.check(c)


def propose(num_variants, num_prompts=8):
    sampler = samplers.SAMPLERS["diva"](num_rollouts=4, num_variants=num_variants)
    state = sampler.init(20)
    return jax.device_get(sampler.propose(state, jax.random.key(0), num_prompts))


@pytest.mark.parametrize("num_variants", [0, 1, 3])
def test_the_advantages_are_those_of_the_proposals_problems(num_variants):
    c, rng = config(), np.random.default_rng(0)
    proposal = propose(num_variants)
    group_N = np.repeat(np.arange(8), 4)
    reward_N = rng.choice([0, 0.1, 1], 32).astype(np.float32)
    valid_N = rng.random(32) < 0.9
    ours_N = diva.advantage(c)(
        reward_N, group_N, 8, valid_N, np.ones(32, np.int32), proposal
    )
    expected_N = losses.two_level(
        jnp.asarray(reward_N),
        jnp.asarray(group_N),
        jnp.arange(8) // (1 + num_variants),
        jnp.asarray(proposal.extra_M["difficulty"]),
        valid_N=jnp.asarray(valid_N),
    )
    np.testing.assert_allclose(ours_N, expected_N, rtol=1e-5, atol=1e-6)


def test_the_norm_of_the_code_pads_to_the_longest_answer_that_may_be():
    c = config()
    c.diva.norm, c.sampling.max_tokens = "code", 50
    reward_N, group_N = np.array([1.0, 0, 1, 0], np.float32), np.array([0, 0, 1, 1])
    length_N, valid_N = np.array([3, 9, 4, 8], np.int32), np.ones(4, bool)
    proposal = propose(1, 2)
    args = (reward_N, group_N, 2, valid_N, length_N, proposal)
    first_N = np.asarray(diva.advantage(c)(*args))
    c.sampling.max_tokens = 500
    assert np.all(np.abs(diva.advantage(c)(*args)) > np.abs(first_N) * 1.5)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    texts = [item.question for item in procedural.Procedural(0, 50)]
    return tokens.build(tmp_path_factory.mktemp("tokens"), texts, 512)


def test_built_in_items_have_variants_and_long_ones_give_way(tokenizer):
    c, item = config(), procedural.Procedural(0, 1, mixture={("count", 1): 1})[0]
    limits = {"min_pixels": 112 * 112, "max_pixels": 112 * 112, "instruction": ""}
    long, short = (
        diva.vary(c, prompts.PromptBuilder(tokenizer, max_length=n, **limits))
        for n in (400, 60)
    )
    hinted, difficulty = long(item, 9.0, 2.0, np.random.default_rng(0))
    assert "steps help" in hinted.question and difficulty == 2
    same, difficulty = short(item, 9.0, 2.0, np.random.default_rng(0))
    assert same.question == item.question and difficulty == 9
    assert short.counts["too_long"] == 1


def test_a_users_rows_bring_their_texts(tmp_path, tokenizer, capsys):
    rows = [
        {
            "question": "1+1?",
            "answer": "2",
            "paraphrases": ["1 + 1 = ?"],
            "steps": ["A"],
        },
        {"question": "1+2?", "answer": "3", "paraphrases": ["1 + 2 = ?"]},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    c = config()
    c.data.train = str(path)
    source = sources.rows(path)
    items = [source[0], source[1]]
    diva.check_texts(c, items)
    assert "'steps': 1" in capsys.readouterr().out
    builder = prompts.PromptBuilder(
        tokenizer, instruction="", min_pixels=3136, max_pixels=9999, max_length=400
    )
    variant, difficulty = diva.vary(c, builder)(
        items[0], 5.0, 4.0, np.random.default_rng(0)
    )
    assert variant.question.endswith(" A") and difficulty == 4


def test_rows_without_texts_are_an_error_that_names_the_command():
    c = config()
    c.data.train = "rows.jsonl"
    rows = [Item("a", "Why?", (), "1", "int")]
    with pytest.raises(ValueError, match=r"'paraphrases'.*experiments\.make_variants"):
        diva.check_texts(c, rows)
    c.sampler.name = "uniform"
    diva.check_texts(c, rows)  # it makes no variants
