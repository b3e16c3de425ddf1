"""The two splits of a run: how many rows, and none of them in both."""

import json

import pytest

from vade_jax import settings
from vade_jax.models.qwen import tiny_tokenizer
from vade_jax.run import build, checks, datasets


@pytest.fixture
def load(tmp_path):
    """Returns a function from two lists of questions to a run's data."""
    tiny_tokenizer.build(tmp_path / "tokens", ["How many?"], 400, shows_images=False)

    def load(train, validation, sections=(), **data):
        for name, questions in {"train": train, "validation": validation}.items():
            data[name] = str(tmp_path / f"{name}.jsonl") if questions else ""
            rows = [
                {"id": f"{name}{i}", "question": q, "answer": "1"} for i, q in enumerate(questions)
            ]
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        batch = {"prompts_per_minibatch": 1, "prompts_per_microbatch": 1}
        data |= {"kind": "int"}
        run = {"num_prompts": 1, "batch": batch, "data": data, "reward": {"format": "boxed"}}
        run = settings.Run.from_dict({**run, **dict(sections)})
        options = {"seed": 0, "reward": run.reward, "arrays": run.selector.arrays}
        found = datasets.load(run.data, str(tmp_path / "tokens"), str(tmp_path), **options)
        checks.check_data(run, build.make_selector(run), found)
        return found

    return load


def test_questions_in_both_splits_are_counted_whatever_their_ids(load, capsys):
    load(["a?", "b?", "c?"], ["b?", "d?", "c?"])
    assert "validation: 2 of 3 questions are also in the training data" in capsys.readouterr().out
    load(["a?"], ["d?"])
    assert "training data" not in capsys.readouterr().out


def test_a_validation_that_is_trained_on_is_refused(load):
    with pytest.raises(
        ValueError, match=r"data.validation='.*': all of its 2 questions are also in data"
    ):
        load(["a?", "b?", "c?"], ["c?", "a?"])


def test_a_run_that_can_earn_nothing_does_not_start(load):
    length = load(["a?"], ["b?"]).train.notes["length"].item()
    of = lambda size, **reward: {
        "sampling": {"max_tokens": size},
        "reward": {"format": "boxed"} | reward,
    }
    with pytest.raises(ValueError, match=rf"sampling.max_tokens={length - 2} cuts .* all|earned"):
        load(["a?", "x?"], ["b?"], of(length - 2))
    load(["a?", "x?"], ["b?"], of(length - 1))  # the end alone is cut: the box is read
    thoughts = of(length - 1, format="think_boxed")  # and it is right without the empty thought
    load(["a?", "x?"], ["b?"], thoughts)
    thoughts["sampling"]["max_tokens"] -= 1
    with pytest.raises(ValueError, match="so nothing can be earned"):
        load(["a?", "x?"], ["b?"], thoughts)
    load(["a?", "x?"], ["b?"], of(2, function="mine.py:mine"))  # it may pay for anything


def test_rows_that_are_held_out_are_the_same_in_every_run_and_ask_nothing_that_is_trained_on(
    load, capsys
):
    questions = [f"How many {i}?" for i in range(20)] * 2
    first, again = (load(questions, [], validation_share=0.25) for _ in range(2))
    assert "validation: 10 of 40 rows of data.train are held out" in capsys.readouterr().out
    for data in (first, again):
        trained, held_out = ([x.uid for x in of] for of in (data.train, data.validation))
        asked = [{x.question for x in of} for of in (data.train, data.validation)]
        assert (len(trained), len(held_out), len(asked[1])) == (30, 10, 5)
        assert not asked[0] & asked[1] and set(trained).isdisjoint(held_out)
    assert first.identity() == again.identity()
    other = load(questions[::-1], [], validation_share=0.25)
    assert {x.question for x in other.validation} == {x.question for x in first.validation}


def test_one_question_cannot_be_parted(load):
    with pytest.raises(ValueError, match=r"validation_share=0.5: .* has 1 different questions"):
        load(["a?", "a?"], [], validation_share=0.5)
