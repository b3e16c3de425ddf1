"""Offline texts: where they come from, how many steps are given, what is missing."""

import pytest

from vade_jax.data import variants
from vade_jax.data.variants import texts
from vade_jax.types import Item


def item(question="Why?", num_images=1, **metadata):
    return Item("a:3", question, (None,) * num_images, "1", "int", metadata)


def test_the_lists_of_a_users_row_are_the_texts():
    found = variants.from_metadata(item(paraphrases=[" So? ", ""], steps=["1 + 1."]))
    assert found == texts.Texts(paraphrases=("So?",), steps=("1 + 1.",))
    assert variants.from_metadata(item(steps=None)) == texts.Texts()


@pytest.mark.parametrize("name", ["paraphrases", "steps"])
@pytest.mark.parametrize("value", ["one text", [1, 2]])
def test_what_is_no_list_of_texts_is_an_error_that_names_the_row(name, value):
    with pytest.raises(ValueError, match=rf"a:3: {name}=.*make_variants"):
        variants.from_metadata(item(**{name: value}))


@pytest.mark.parametrize(
    ("question", "num_images", "paraphrase", "good"),
    [
        ("Why?", 1, "So?", True),
        ("<image>Why?", 1, "So?", True),  # a lone image comes first
        ("<image>Why?", 1, "So <image>?", True),
        ("Why?", 1, "<image>So?", False),
        ("Is <image> or <image> red?", 2, "Which is red, <image> or <image>?", True),
        ("Is <image> or <image> red?", 2, "Which is red?", False),
        ("Why <image>?", 2, "So?", False),
    ],
)
def test_a_paraphrase_shows_the_images_where_the_question_does(
    question, num_images, paraphrase, good
):
    found = texts.usable(item(question, num_images), (paraphrase,))
    assert found == ([paraphrase] if good else [])


# ------------------------------------------------------------------------------ hints
def test_the_more_easier_the_more_steps():
    of_five = [texts.num_hints(-k, 5) for k in range(1, 9)]
    assert of_five == [1, 1, 2, 2, 3, 3, 5, 5]
    assert [texts.num_hints(-k, 2) for k in range(1, 9)] == [1, 1, *[2] * 6]


def test_steps_that_are_not_there_make_nothing_easier():
    assert [texts.hint_delta(-k, 4) for k in range(1, 9)] == [*range(-1, -9, -1)]
    assert [texts.hint_delta(-k, 3) for k in (1, 5, 6, 7, 8)] == [-1, -5, -6, -6, -6]
    assert [texts.hint_delta(-k, 1) for k in (1, 2, 8)] == [-1, -2, -2]


def test_hints_stand_behind_the_question():
    text = texts.hinted("Why?", ["First.", "Then."])
    assert text.startswith("Why?\n") and text.endswith(": First. Then.")


# ------------------------------------------------------------------------------ the check
def test_missing_texts_are_counted():
    rows = [
        item(paraphrases=["So?"], steps=["1."]),
        item(paraphrases=["<image><image>"], steps=["1."]),
        item(paraphrases=["So?", "Well?"]),
    ]
    lacking = variants.check(rows, variants.from_metadata)
    assert lacking == {"paraphrases": 1, "steps": 1, "unusable_paraphrases": 1}


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"steps": ["1."]}, "paraphrases"), ({"paraphrases": ["So?"]}, "steps")],
)
def test_data_without_any_is_an_error_that_says_how_to_make_them(metadata, name):
    rows = [item(**metadata)] * 3
    message = f"none of 3 training items has usable '{name}'.*experiments.make_variants"
    with pytest.raises(ValueError, match=message):
        variants.check(rows, variants.from_metadata)
