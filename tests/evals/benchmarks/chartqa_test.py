"""ChartQA: five per cent, and nothing cut off an answer."""

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import chartqa
from vade_jax.types import Item


def item(answer, **metadata):
    return Item(
        uid="",
        question="How many?",
        images=(),
        answer=answer,
        kind="text",
        metadata=metadata,
    )


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("10.51", "10", False),
        ("10.5", "10", True),
        ("0.0", "0", False),
        ("0.5", "50%", True),
        ("50", "50%", False),
        ("0.5%%", "0.005", True),
        ("1,000", "1,000", True),
        ("2019", "2010", True),
        ("$10", "10", False),
        ("1e1", "10", True),
        ("1_0", "10", True),
        ("inf", "10", False),
        ("nan", "nan", False),
        ("YES", "Yes", True),
        ("Yes ", "Yes", False),
        ("-10", "10", False),
    ],
)
def test_relaxed_accuracy(text, answer, right):
    assert chartqa.score(chartqa.extract(text, item(answer)), item(answer)) is right


@pytest.mark.parametrize(
    ("text", "answer", "paper", "cot"),
    [
        (r"So \boxed{10}", "10", False, True),
        (r"\boxed{3} no, \boxed{\text{Yes}}.", "Yes", False, True),
        (r"\boxed{50\%}", "0.5", False, True),
        ("10", "10", True, False),
    ],
)
def test_boxes_count_under_cot_only(text, answer, paper, cot):
    for profile, right in (("paper", paper), ("cot", cot)):
        extracted = chartqa.extract(text, item(answer), profile)
        assert chartqa.score(extracted, item(answer), profile) is right


def test_prompts():
    direct = "How many?\nAnswer the question with a single word."
    assert chartqa.prompt(item(""), "paper") == direct
    cot = chartqa.prompt(item(""), "cot")
    assert cot.startswith("How many?\n") and r"\boxed{}" in cot and direct not in cot
    with pytest.raises(ValueError, match=r"profile='direct' is unknown"):
        chartqa.prompt(item(""), "direct")


def test_the_form_of_the_training_repository(tmp_path):
    rows = [
        {
            "image": files.struct(),
            "query": "How many?",
            "label": [label],
            "human_or_machine": who,
        }
        for who, label in enumerate(["3", "4"])
    ]
    items = chartqa.read(files.save(tmp_path / "a.parquet", *rows))
    assert [i.answer for i in items] == ["3", "4"]
    assert [chartqa.groups(i) for i in items] == [
        {"type": ("human",)},
        {"type": ("augmented",)},
    ]


def test_the_raw_form_is_two_files_and_a_folder(tmp_path):
    (tmp_path / "png").mkdir()
    (tmp_path / "png/a.png").write_bytes(files.picture())
    row = {"imgname": "a.png", "query": "How many?", "label": "3"}
    human = files.save(tmp_path / "test_human.json", row)
    files.save(tmp_path / "test_augmented.json", row)
    items = chartqa.read(tmp_path)
    assert [i.metadata["type"] for i in items] == ["human", "augmented"]
    assert len({i.uid for i in items}) == 2
    assert len(chartqa.read(human)) == 1
    odd = files.save(tmp_path / "png/test.json", row | {"imgname": "../a.png"})
    with pytest.raises(ValueError, match=r"neither human nor augmented|decoded"):
        chartqa.read(odd)
