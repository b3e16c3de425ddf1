"""What a config's reward and loss options become."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from configs import tiny_gspo
from tests.trainer import small
from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.models.qwen import files, presets, tiny_tokenizer
from vade_jax.run import build, checks
from vade_jax.trainer.policy import compute_dtype
from vade_jax.types import Item


def score(**reward):
    c = tiny_gspo.get_config()
    c.reward.update(reward)
    tokenizer = types.SimpleNamespace(decode=lambda tokens: "\\boxed{7}")
    run = settings.Run.from_dict(c.to_dict())
    return build.make_scorer(run, types.SimpleNamespace(tokenizer=tokenizer))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ({}, [1, 1, 1]),
        ({"overlong_buffer": 4}, [1, 0.5, 0]),
        ({"overlong_buffer": 4, "overlong_factor": 0.5}, [1, 0.75, 0.5]),
    ],
)
def test_answers_near_the_limit_of_8_tokens_cost(reward, expected):
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    answers = [np.zeros(length, int) for length in (4, 6, 8)]
    scored = score(**reward).score(item, answers)
    assert [answer.reward for answer in scored] == expected
    assert [answer.correct for answer in scored] == [1, 1, 1]


def thinking(directory, opening="<think>\\n"):
    """Writes a tokenizer whose template opens the tag, as those of reasoning models do; returns it."""
    tiny_tokenizer.build(directory, ["3 + 4?"], 400)
    path = directory / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant\\n'", f"assistant\\n{opening}'"))
    return tokens.Tokenizer.load(directory)


@pytest.mark.parametrize(
    ("opening", "text", "reward"),
    [
        ("<think>\\n", "Seven.\n</think>\n\n\\boxed{7}", 1),
        ("<think>", "Seven.</think>\\boxed{7}", 1),
        ("<think>\\n", "<think>Seven.</think>\\boxed{7}", 1),  # once more, as it was taught
        ("<think>\\n", "Seven.\n<think></think>\\boxed{7}", 0.75),
        ("<think>\\n", "\\boxed{7}", 0),  # among thoughts that do not end
        ("<think>\\n\\n</think>\\n\\n", "\\boxed{7}", 0.75),  # no tag is open
        ("", "Seven.\n</think>\n\n\\boxed{7}", 0.75),
        ("", "<think>Seven.</think>\\boxed{7}", 1),
    ],
)
@pytest.mark.parametrize("function", ["", "rules"])
def test_the_tag_that_a_template_opens_counts_for_the_format(
    tmp_path, opening, text, reward, function
):
    tokenizer = thinking(tmp_path, opening)
    options = {"format": "think_boxed", "format_weight": 0.25, "function": function}
    run = settings.Run.from_dict({"reward": options})
    score = build.make_scorer(run, types.SimpleNamespace(tokenizer=tokenizer))
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    (scored,) = score.score(item, [np.array(tokenizer.encode(text))])
    assert scored.reward == reward and scored.text == text


def test_the_probe_gives_a_function_what_a_policy_writes_behind_an_open_tag(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from vade_jax.rewards import functions\n\n"
        "def pay(completions, **kwargs):\n"
        "    texts = functions.texts(completions)\n"
        "    return [float(text == '</think>\\n\\n\\\\boxed{7}') for text in texts]\n"
    )
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    prompt = types.SimpleNamespace(tokenizer=thinking(tmp_path))
    data = types.SimpleNamespace(train=[item], build_prompt=prompt)
    reward = {"function": f"{tmp_path}/mine.py:pay,rules", "format": "think_boxed"}
    checks.check_reward(settings.Run.from_dict({"reward": reward}), data)
    assert "the data's own answers get 2 on average, empty ones 0" in capsys.readouterr().out


@pytest.mark.parametrize(("platform", "dtype"), [("cpu", "float32"), ("tpu", "bfloat16")])
def test_the_devices_of_the_mesh_choose_the_dtype(platform, dtype):
    """Not the process's: a TPU's program can be compiled where there is only a CPU."""
    devices = types.SimpleNamespace(
        devices=np.array([types.SimpleNamespace(platform=platform)], object)
    )
    given = lambda dtype: types.SimpleNamespace(dtype=dtype)
    assert compute_dtype(given("auto"), devices) == jnp.dtype(dtype)
    assert compute_dtype(given("float32"), devices) == jnp.float32


def test_more_tokens_than_the_model_has_positions_are_refused(small_checkpoint):
    c = tiny_gspo.get_config()
    c.data.max_prompt_length, c.eval.max_tokens = 4000, 97  # of 4,096
    with pytest.raises(
        ValueError, match=r"max_prompt_length=4000 and answers of 97 .* than the 4096 pos"
    ):
        checks.check_model(settings.Run.from_dict(c.to_dict()), str(small_checkpoint))
    c.eval.max_tokens = 96
    checks.check_model(settings.Run.from_dict(c.to_dict()), str(small_checkpoint))


def test_a_tiny_model_is_written_anew_at_every_start(tmp_path, monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    c = tiny_gspo.get_config("smoke")
    path = tmp_path / "tiny_model" / "tokenizer.json"
    path.parent.mkdir()
    path.write_text("{")  # a start was killed
    identities = []
    for c.seed in (0, 1, 1):
        directory = build.checkpoint_of(settings.Run.from_dict(c.to_dict()), str(tmp_path))
        tokens.Tokenizer.load(directory)
        identities.append(files.identity(directory))
    assert identities[0] != identities[1] == identities[2]
