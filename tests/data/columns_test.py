"""What the columns of a row say: names, answers, kinds, images, and why a row is no item."""

import base64
import decimal
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.data import files
from vade_jax.data import columns, sources
from vade_jax.rewards import verify

PNG = files.png()
BASE64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
LONG = "x" * 10_000


def read(tmp_path, *rows, form="jsonl", **options):
    """Returns the item of each row, or what it is rejected with; beside the rows lie a.png and b.png."""
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG)
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        files.write_jsonl(path, *rows)
    source, found = sources.rows(path, **options), []
    for index in range(len(source)):
        try:
            found.append(source[index])
        except columns.RejectedItem as error:
            found.append(error)
    return found


# ------------------------------------------------------------------------------ names
HALF = {"problem": "Half?", "solution": r"So \boxed{\frac{1}{2}}.", "level": "Level 5"}
TOLD = {"question": "Which?", "solution": r"So \boxed{y}."}
PART, TEXT = {"type": "image", "image": "a.png"}, {"type": "text", "text": "Red?"}
SYSTEM = {"role": "system", "content": "Look."}
VERL = {
    "data_source": "hiyouga/geometry3k",
    "prompt": [SYSTEM, {"role": "user", "content": "<image>Find x. You FIRST think."}],
    "images": [{"image": "a.png"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": r"2 \sqrt { 221 }"},
    "extra_info": {"split": "train", "index": 0, "question": "<image>Find x.", "answer": "no"},
}
BARE = VERL | {"extra_info": {"split": "train", "index": 1, "question": None, "answer": None}}


def chat(*parts):
    return [SYSTEM, {"role": "user", "content": [*parts]}]


@pytest.mark.parametrize(
    ("row", "question", "answer", "kind", "num_images"),
    [
        ({"problem": "How many?", "answer": 3, "images": ["a.png"]}, "How many?", "3", "int", 1),
        ({"question": "Red?", "answer": True, "image": "a.png", "choices": None}, "Red?", "yes", "yesno", 1),
        # Another name of a column fills it only where it is empty.
        ({"problem": "p", "question": "", "answer": "1", "image": "a.png", "images": []}, "p", "1", "int", 1),
        # MATH and GSM8K. A solution says nothing of an answer that tells its kind.
        (HALF, "Half?", r"\frac{1}{2}", "expr", 0),
        ({"question": "q", "answer": "9 + 9 = <<9+9=18>>18 apples.\n#### 1,018"}, "q", "1,018", "int", 0),
        (TOLD | {"answer": 3}, "Which?", "3", "int", 0),
        # verl: without the bare question, the user's last turn.
        (VERL | {"kind": "expr"}, "<image>Find x.", r"2 \sqrt { 221 }", "expr", 1),
        (BARE | {"kind": "expr"}, "<image>Find x. You FIRST think.", r"2 \sqrt { 221 }", "expr", 1),
        # Pictures and questions where others have them.
        ({"question": "q", "answer": "1", "image_2": "a.png", "image_10": "b.png", "image_1": "a.png"}, "q", "1", "int", 3),
        *(({"question": "q", "answer": "1", name: "a.png"}, "q", "1", "int", 1)
          for name in ("image_path", "Image", "img", "decoded_image")),
        ({"question": "q", "answer": "no", "messages": chat(PART, TEXT)}, "q", "no", "yesno", 1),
        ({"messages": chat(TEXT, PART, PART), "answer": "no"}, "Red?<image><image>", "no", "yesno", 2),
        ({"conversations": [{"from": "human", "value": "<image>\nRed?"}, {"from": "gpt", "value": "yes"}], "image": "a.png",
          "answer": "yes"}, "<image>\nRed?", "yes", "yesno", 1),
        ({"prompt": "Red?", "answer": "no"}, "Red?", "no", "yesno", 0),
        # Pictures beside empty places, as columns of several pictures are filled up to one length.
        ({"question": "q", "answer": "1", "images": [None, "a.png", ""], "image": None}, "q", "1", "int", 1),
    ],
    ids=str,
)  # fmt: skip
def test_rows_are_read_under_the_names_that_others_use(
    tmp_path, row, question, answer, kind, num_images
):
    (item,) = read(tmp_path, row)
    assert (item.question, item.answer, item.kind) == (question, answer, kind)
    assert (item.uid, len(item.images)) == ("rows:0", num_images)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_metadata_is_what_variants_and_the_verifier_need(tmp_path, form):
    known = {"choices": ["x", "y"], "tolerance": 0.05, "ordered": True}
    known |= {"paraphrases": ["p", "r"], "steps": []}
    known |= {"subset": "geo3k", "domain": "mathematics", "level": 3}
    row = {"question": "q", "answer": "1", "kind": "int", "other": "kept in the file"} | known
    (item,) = read(tmp_path, row, form=form)
    assert item.metadata == known
    assert sources.rows(tmp_path / f"rows.{form}").row(0) == row


# ------------------------------------------------------------------------------ pictures
@pytest.mark.parametrize(
    "shown",
    [
        "a.png", {"bytes": None, "path": "a.png"}, {"image": "a.png", "max_pixels": 50176}, {"image_url": {"url": "a.png"}},
        "file://{here}/a.png", BASE64, URL, {"bytes": BASE64},
    ],
    ids=str,
)  # fmt: skip
def test_a_picture_in_every_usual_form_is_seen(tmp_path, shown):
    shown = json.loads(json.dumps(shown).replace("{here}", str(tmp_path)))
    (item,) = read(tmp_path, {"question": "q", "answer": "1", "images": [shown]})
    assert [image.size for image in item.images] == [(30, 40)]


def test_numbered_pictures_are_in_the_order_of_their_numbers(tmp_path):
    for number in (1, 2, 10):
        Image.new("RGB", (number + 28, 28)).save(tmp_path / f"{number}.png")
    row = {"question": "q", "answer": "1"} | {f"image_{n}": f"{n}.png" for n in (10, 2, 1)}
    (item,) = read(tmp_path, row)
    assert [image.width - 28 for image in item.images] == [1, 2, 10]


NOTHING = [
    *(None, "", [], [None], [""], math.nan, {"bytes": None, "path": None}),
    *({"bytes": None, "path": ""}, [{"bytes": None, "path": None}, None]),
]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ["images", "image", "videos"])
def test_a_row_that_shows_nothing_is_a_row_without_a_picture(tmp_path, form, name):
    for shown in NOTHING:
        (item,) = read(tmp_path, {"question": "1 + 1?", "answer": "2", name: shown}, form=form)
        assert item.images == (), shown


# ------------------------------------------------------------------------------ kinds
@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        ("Which?\n(A) 3\n(B) 4", "B", "choice"), ("Which? A. 3 B. 4", "(B)", "choice"),
        ("Which letter is it?", "B", "text"), ("?", "Yes.", "yesno"), ("?", "1,200", "int"), ("?", "3.0", "float"),
        ("?", "1/3", "float"), ("?", "x = 5", "expr"), ("?", "10^6", "int"), ("?", "dark blue", "text"), ("?", "x-axis", "text"),
        ("?", "北京", "text"),
        # Words lose their signs, so x + 3 would be x - 3: the user's kind decides, or the row is rejected.
        *(("?", formula, None) for formula in ("x - 3", "a/b", "2x", "√2", "f(x)", "1:2")),
    ],
)  # fmt: skip
def test_kinds_are_inferred_where_they_are_sure(tmp_path, question, answer, kind):
    row = {"question": question, "answer": answer}
    (item,) = read(tmp_path, row)
    if kind is None:
        assert item.reason == "bad_kind" and "add a column kind" in item.detail
    (told,) = read(tmp_path, row, kind="expr")
    assert told.kind == (kind or "expr") and (kind is None or item.kind == kind)


def test_a_whole_number_with_a_tolerance_is_a_float(tmp_path):
    (item,) = read(tmp_path, {"question": "?", "answer": "200", "tolerance": 0.05})
    assert item.kind == "float"
    assert verify.verify_item("\\boxed{195}", item).correct
    assert not verify.verify_item("\\boxed{189}", item).correct


def test_a_gold_of_a_table_has_the_digits_that_were_written(tmp_path):
    """Its tolerance hangs on them: 45.66999816894531 is right for 45.67 alone."""
    for value in (np.float32(45.67), 45.67, decimal.Decimal("45.67")):
        kind = pa.float32() if isinstance(value, np.float32) else None
        table = pa.table({"question": ["q"], "answer": pa.array([value], kind)})
        parquet.write_table(table, tmp_path / "a.parquet")
        (item,) = sources.rows(tmp_path / "a.parquet")
        assert item.answer == "45.67"


# ------------------------------------------------------------------------------ rejects
GOOD = {"question": "q", "answer": "1"}


@pytest.mark.parametrize(
    ("row", "reason"),  # tests/hostile/files_test.py has a hundred more
    [
        ("{" + LONG, "bad_row"), (GOOD | {"kind": LONG}, "bad_kind"),
        (TOLD | {"answer": 1, "choices": ["x", "y", "z"]}, "bad_answer"),
        *((GOOD | {"image": x}, "bad_image") for x in ("lfs.png", LONG, {"foo": LONG}, "http://" + LONG)),
        (GOOD | {"figure": "a.png"}, "unread_image"),
    ],
    ids=lambda x: str(x)[:60],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_rejected_alone_and_quoted_in_part(tmp_path, row, reason):
    before, error, after = read(tmp_path, GOOD, row, GOOD)
    assert before.answer == after.answer == "1"
    assert (error.uid, error.reason) == ("rows:1", reason)
    assert str(error).count("x") < 210 and len(str(error)) < 500
