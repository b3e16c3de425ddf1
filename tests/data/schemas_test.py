"""Rows of each form as samples, and what no form allows."""

import pytest

from tests.data import published
from vade_jax.data import schemas
from vade_jax.data.normalise import Refused


def read(row):
    return schemas.detect(list(row), "a file").read(row)


def test_forms_are_told_apart_by_their_columns():
    found = {
        schema.names[i]: schemas.detect(schema.names, "x").name
        for schema, i in [
            *((published.LLAVA, 2), (published.CHARTQA, 1), (published.SCIENCEQA, 4)),
            *((published.VERL, 1), (published.EASYR1, 1)),
        ]
    }
    assert found == {
        **{"conversations": "LLaVA-OneVision", "query": "ChartQA", "hint": "ScienceQA"},
        **{"prompt": "verl", "problem": "rows of your own"},
    }
    columns = ["question", "answer", "choices", "image"]
    assert schemas.detect(columns, "x").name == "rows of your own"
    with pytest.raises(ValueError, match=r"x has the columns \['ask'\].*verl: images"):
        schemas.detect(["ask"], "x")


def test_turns_share_the_image_and_only_the_first_has_the_mark():
    samples = read(published.llava("a", ("One?", "Yes"), ("Two?", "No")))
    assert [(s.turn, s.question, s.answer) for s in samples] == [
        (0, "One?", "Yes"),
        (1, "Two?", "No"),
    ]
    assert samples[0].images is samples[1].images and len(samples[0].images) == 1
    assert {s.answer_is for s in samples} == {"turn"}


def test_the_original_files_of_chartqa():
    row = {"imgname": "7.png", "query": "How many?", "label": "1,200"}
    (sample,) = read(row)
    assert sample.images == ["png/7.png"] and sample.answer == "1,200"
    assert sample.tolerance == 0.05


def test_verl_leaves_the_system_turn_out():
    (sample,) = read(published.verl("<image>Find y.", "4", system=True))
    assert (sample.question, sample.answer) == ("Find y.", "4")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (published.llava("a"), "bad_turns"),
        (published.llava("a", ("q", "a")) | {"conversations": [{"from": "gpt", "value": "a"}]}, "bad_turns"),
        (published.llava("a", ("q", "a")) | {"conversations": [{"who": "human"}]}, "bad_turns"),
        (published.llava("a", ("q<image>", "a")), "image_count"),
        (published.chartqa("q", ["1", "2"]), "several_answers"),
        (published.chartqa("q", []), "several_answers"),
        (published.chartqa("q", ""), "missing_field"),
        (published.scienceqa("q", ["a"], 0), "bad_choices"),
        (published.scienceqa("q", ["a", ""], 0), "bad_choices"),
        (published.scienceqa("q", ["a", "b"], -1), "bad_gold"),
        (published.scienceqa("q", ["a", "b"], None), "bad_gold"),
        (published.verl("q", None), "missing_field"),
        (published.verl("q", "1") | {"reward_model": None}, "missing_field"),
        (published.verl("q", "1") | {"prompt": []}, "bad_turns"),
        ({"question": "q", "answer": None}, "missing_field"),
        ({"question": "q", "answer": float("nan")}, "missing_field"),
        ({"question": " ", "answer": "1"}, "missing_field"),
        ({"question": "q", "answer": "1", "tolerance": "5%"}, "bad_tolerance"),
        ({"question": "q", "answer": "1", "steps": "one"}, "bad_steps"),
    ],
)  # fmt: skip
def test_bad_rows_have_a_reason(row, reason):
    with pytest.raises(Refused) as refused:
        read(row)
    assert refused.value.reason == reason
