"""What a config's reward and loss options become."""

import types

import numpy as np
import pytest

from configs import tiny_gspo
from vade_jax import settings
from vade_jax.data import tokens
from vade_jax.models.qwen import tiny_tokenizer
from vade_jax.run import build
from vade_jax.types import Item


def score(**reward):
    c = tiny_gspo.get_config()
    c.reward.update(reward)
    tokenizer = types.SimpleNamespace(decode=lambda tokens: "\\boxed{7}")
    run = settings.Run.from_dict(c.to_dict())
    return build.make_scorer(run, types.SimpleNamespace(tokenizer=tokenizer), "")


@pytest.mark.parametrize(("buffer", "expected"), [(0, [1, 1, 1]), (4, [1, 0.5, 0])])
def test_answers_near_the_limit_of_8_tokens_cost(buffer, expected):
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    answers = [np.zeros(length, int) for length in (4, 6, 8)]
    scored = score(overlong_buffer=buffer)(item, answers)
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
        ("<think>\\n", "Seven.\n<think></think>\\boxed{7}", 0.75),
        ("<think>\\n", "\\boxed{7}", 0),  # among thoughts that do not end
        ("<think>\\n\\n</think>\\n\\n", "\\boxed{7}", 0.75),  # no tag is open
    ],
)
@pytest.mark.parametrize("function", ["", "rules"])
def test_the_tag_that_a_template_opens_counts_for_the_format(
    tmp_path, opening, text, reward, function
):
    tokenizer = thinking(tmp_path, opening)
    options = {"format": "think_boxed", "format_weight": 0.25, "function": function}
    run = settings.Run.from_dict({"reward": options})
    score = build.make_scorer(run, types.SimpleNamespace(tokenizer=tokenizer), tokenizer.opening())
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    (scored,) = score(item, [np.array(tokenizer.encode(text))])
    assert scored.reward == reward and scored.text == text
