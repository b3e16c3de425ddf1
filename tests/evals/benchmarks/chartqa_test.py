"""ChartQA: five per cent, and nothing cut off an answer."""

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import chartqa


def item(tmp_path, answer):
    return files.item(tmp_path, "chartqa", answer=answer)


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
def test_relaxed_accuracy(tmp_path, text, answer, right):
    asked = item(tmp_path, answer)
    assert chartqa.score(chartqa.extract(text, asked), asked) is right


@pytest.mark.parametrize(
    ("text", "answer", "paper", "cot"),
    [
        (r"So \boxed{10}", "10", False, True),
        (r"\boxed{3} no, \boxed{\text{Yes}}.", "Yes", False, True),
        (r"\boxed{50\%}", "0.5", False, True),
        ("10", "10", True, False),
    ],
)
def test_boxes_count_under_cot_only(tmp_path, text, answer, paper, cot):
    asked = item(tmp_path, answer)
    for profile, right in (("paper", paper), ("cot", cot)):
        extracted = chartqa.extract(text, asked, profile)
        assert chartqa.score(extracted, asked, profile) is right


def test_prompts(tmp_path):
    asked = item(tmp_path, "3")
    direct = "How many?\nAnswer the question with a single word."
    assert chartqa.prompt(asked, "paper") == direct
    cot = chartqa.prompt(asked, "cot")
    assert cot.startswith("How many?\n") and r"\boxed{}" in cot and direct not in cot
    with pytest.raises(ValueError, match=r"profile='direct' is unknown"):
        chartqa.prompt(asked, "direct")


def test_the_form_of_the_training_repository(tmp_path):
    rows = [
        {"image": files.struct(), "query": "?", "label": [x], "human_or_machine": who}
        for who, x in enumerate(["3", "4"])
    ]
    items = chartqa.read(files.save(tmp_path / "a.parquet", *rows))
    assert [i.answer for i in items] == ["3", "4"]
    types = [chartqa.groups(i)["type"] for i in items]
    assert types == [("human",), ("augmented",)]


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
