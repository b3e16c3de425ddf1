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


def test_another_name_of_a_column_fills_it_only_where_it_is_empty(tmp_path):
    (tmp_path / "a.png").write_bytes(files.png())
    path = files.write_jsonl(
        tmp_path / "mine.jsonl",
        {
            "question": "Is 1 odd?",
            "problem": "geometry",
            "answer": "yes",
            "images": ["a.png"],
            "image": None,
        },
        {"problem": "Is 2 odd?", "question": "", "answer": "no", "image": "a.png", "images": []},
    )
    first, second = sources.rows(path)
    assert [first.question, second.question] == ["Is 1 odd?", "Is 2 odd?"]
    assert len(first.images) == len(second.images) == 1


def test_the_files_of_math_and_gsm8k_are_read_as_they_are(tmp_path):
    half = {"problem": "Half?", "solution": r"So \boxed{\frac{1}{2}}.", "level": "Level 5"}
    math = sources.rows(
        files.write_jsonl(tmp_path / "math.jsonl", half, half | {"answer": r"\frac12"})
    )
    assert [(math[i].answer, math[i].kind) for i in range(2)] == [
        (r"\frac{1}{2}", "expr"),
        (r"\frac12", "expr"),
    ]
    assert math[0].metadata == {"level": "Level 5"}
    apples = {"question": "Apples?", "answer": "9 + 9 = <<9+9=18>>18 apples.\n#### 1,018"}
    gsm8k = sources.rows(files.write_jsonl(tmp_path / "gsm8k.jsonl", apples))
    assert (gsm8k[0].answer, gsm8k[0].kind) == ("1,018", "int")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"answer": 3}, "int"), ({"answer": "A cat"}, "text"), ({"answer": "x^2"}, "expr"),
        ({"answer": "y", "kind": "choice", "choices": ["x", "y"]}, "choice"),
    ],
)  # fmt: skip
def test_a_solution_says_nothing_of_an_answer_that_tells_its_kind(tmp_path, row, kind):
    row = {"question": "Which?", "solution": r"So \boxed{y}."} | row
    item = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0]
    assert (item.answer, item.kind) == (str(row["answer"]), kind)


def test_a_solution_hides_no_answer_that_may_be_the_place_of_an_option(tmp_path):
    row = {"question": "?", "answer": 1, "choices": ["x", "y", "z"], "solution": r"\boxed{y}"}
    with pytest.raises(columns.RejectedItem, match="may be the place of one of the choices"):
        sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0]


def test_a_solution_without_a_box_is_no_answer(tmp_path):
    source = sources.rows(
        files.write_jsonl(tmp_path / "math.jsonl", {"problem": "?", "solution": "So 3."})
    )
    with pytest.raises(columns.RejectedItem, match="the row has no answer"):
        source[0]


def test_an_image_as_a_data_url(tmp_path):
    url = f"data:image/png;base64,{base64.b64encode(files.png()).decode()}"
    row = {"question": "q", "answer": "1", "images": [url]}
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))
    assert source[0].images[0].size == (30, 40)


PNG = files.png()
BASE64 = base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    "shown",
    [
        "a.png", {"path": "a.png"}, {"bytes": None, "path": "a.png"}, {"image": "a.png", "max_pixels": 50176},
        {"image": {"path": "a.png"}}, {"image_url": {"url": "a.png"}}, {"type": "image", "url": "file://{here}/a.png"},
        "file://{here}/a.png", "{here}/a.png", BASE64, f"{BASE64[:76]}\n{BASE64[76:]}",
        {"image": f"data:image/png;base64,{BASE64}"}, {"bytes": BASE64}, {"type": "image", "source": {"type": "base64", "data": BASE64}},
    ],
    ids=str,
)  # fmt: skip
def test_a_picture_in_every_usual_form_is_seen(tmp_path, shown):
    (tmp_path / "a.png").write_bytes(PNG)
    shown = json.loads(json.dumps(shown).replace("{here}", str(tmp_path)))
    row = {"question": "q", "answer": "1", "images": [shown]}
    (image,) = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0].images
    assert image.size == (30, 40)


PART = {"type": "image", "image": "a.png"}
TEXT = {"type": "text", "text": "Red?"}
SYSTEM = {"role": "system", "content": "Look."}


@pytest.mark.parametrize(
    ("row", "question", "num_images"),
    [
        ({"question": "q", "image_2": "a.png", "image_10": "b.png", "image_1": "a.png"}, "q", 3),
        *(({"question": "q", name: "a.png"}, "q", 1)
          for name in ("image_path", "Image", "img", "image_file", "file_name", "decoded_image", "image_paths")),
        ({"question": "q", "messages": [SYSTEM, {"role": "user", "content": [PART, TEXT]}]}, "q", 1),
        ({"messages": [SYSTEM, {"role": "user", "content": [TEXT, PART, PART]}]}, "Red?<image><image>", 2),
        ({"message": json.dumps([{"role": "user", "content": [PART, TEXT]}])}, "<image>Red?", 1),
        ({"conversations": [{"from": "human", "value": "<image>\nRed?"}, {"from": "gpt", "value": "yes"}],
          "image": "a.png"}, "<image>\nRed?", 1),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}, TEXT]}], "images": ["a.png"]}, "<image>Red?", 1),
        ({"prompt": "Red?"}, "Red?", 0),
        ({"question": "q", "image": "a.png", "image_url": "http://a/b.png"}, "q", 1),
    ],
    ids=str,
)  # fmt: skip
def test_pictures_and_questions_are_found_where_others_have_them(
    tmp_path, row, question, num_images
):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG)
    item = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row | {"answer": "yes"}))[0]
    assert (item.question, len(item.images)) == (question, num_images)


def test_numbered_pictures_are_in_the_order_of_their_numbers(tmp_path):
    for number in (1, 2, 10):
        Image.new("RGB", (number + 28, 28)).save(tmp_path / f"{number}.png")
    row = {"question": "q", "answer": "1"} | {f"image_{n}": f"{n}.png" for n in (10, 2, 1)}
    item = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0]
    assert [image.width - 28 for image in item.images] == [1, 2, 10]


@pytest.mark.parametrize(
    "shown",
    ["a.png", [{"path": "a.png"}], {"bytes": BASE64}, f"data:image/png;base64,{BASE64}"],
    ids=str,
)
def test_a_row_never_trains_without_the_picture_that_it_has(tmp_path, shown):
    (tmp_path / "a.png").write_bytes(PNG)
    row = {"question": "q", "answer": "1"}
    seen = row | {"figure": shown, "image": "a.png"}
    named = row | {"figure": "none.png"}
    source = sources.rows(
        files.write_jsonl(tmp_path / "a.jsonl", row | {"figure": shown}, seen, named)
    )
    with pytest.raises(
        columns.RejectedItem, match=r"column 'figure' holds a picture.*\[unread_image\]"
    ):
        source[0]
    assert (len(source[1].images), len(source[2].images)) == (1, 0)


@pytest.mark.parametrize(
    "row",
    [
        *({"image": x} for x in ("x" * 10_000, BASE64[:40] * 500, {"foo": "x" * 10_000}, [["x" * 10_000]], "http://" + "x" * 9_999)),
        *({name: "x" * 10_000} for name in ("answer", "id", "choices", "tolerance", "level", "kind")),
        "{" + "x" * 10_000,
    ],
    ids=lambda row: str(row)[:20],
)  # fmt: skip
def test_a_reject_quotes_little_of_the_data(tmp_path, row):
    row = row if isinstance(row, str) else {"question": "q", "answer": "1"} | row
    source = sources.rows(
        files.write_jsonl(tmp_path / "a.jsonl", {"question": "q", "answer": "1"}, row)
    )
    try:
        source[1]
    except columns.RejectedItem as error:
        assert str(error).count("x") < 210 and len(str(error)) < 500


def test_a_picture_that_git_lfs_left_out_is_named(tmp_path):
    (tmp_path / "a.png").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:6\n")
    row = {"question": "q", "answer": "1", "image": "a.png"}
    with pytest.raises(
        columns.RejectedItem, match=r"'a\.png' is a Git LFS pointer, not the picture"
    ):
        sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_metadata_is_what_variants_and_the_verifier_need(tmp_path, suffix):
    known = {"choices": ["x", "y"], "tolerance": 0.05, "ordered": True}
    known |= {"paraphrases": ["p", "r"], "steps": []}
    known |= {"subset": "geo3k", "domain": "mathematics", "level": 3}
    row = {"question": "q", "answer": "1", "kind": "int", "other": "kept in the file"} | known
    path = tmp_path / f"a.{suffix}"
    if suffix == "jsonl":
        files.write_jsonl(path, row)
    else:
        parquet.write_table(pa.Table.from_pylist([row]), path)
    assert sources.rows(path)[0].metadata == known
    assert sources.rows(path).row(0) == row
    assert sources.rows(path).directory == tmp_path


def test_the_rows_of_verl_as_they_are(tmp_path):
    """The form of verl's geo3k; of a set without the bare question, the user's last turn is taken."""
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "<image>Find x. You FIRST think."},
    ]
    row = {
        "data_source": "hiyouga/geometry3k",
        "prompt": asked,
        "images": [{"bytes": files.png(), "path": None}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2 \\sqrt { 221 }"},
        "extra_info": {"split": "train", "index": 0, "question": "<image>Find x.", "answer": "no"},
    }
    bare = row | {"extra_info": {"split": "train", "index": 1, "question": None, "answer": None}}
    for name, rows in (("a", [row]), ("b", [bare])):
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    first = sources.rows(tmp_path / "a.parquet", kind="expr")[0]
    assert (first.question, first.answer, first.kind) == (
        "<image>Find x.",
        "2 \\sqrt { 221 }",
        "expr",
    )
    assert first.images[0].size == (30, 40)
    assert first.metadata == {"subset": "hiyouga/geometry3k"}
    whole = sources.rows(tmp_path / "a.parquet", kind="expr").row(0)
    assert (whole["subset"], whole["ability"]) == ("hiyouga/geometry3k", "math")
    second = sources.rows(tmp_path / "b.parquet", kind="expr")[0]
    assert second.question == "<image>Find x. You FIRST think."
    with pytest.raises(columns.RejectedItem, match=r"or set data\.kind"):
        sources.rows(tmp_path / "a.parquet")[0]


def test_the_rows_of_easyr1_as_they_are(tmp_path):
    """The form of hiyouga/geometry3k; a kind that is sure wins over the default."""
    rows = [
        {
            "images": [{"bytes": files.png(), "path": None}],
            "problem": "<image>Find x.",
            "answer": answer,
        }
        for answer in ("3 \\sqrt { 5 }", "30")
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    source = sources.rows(tmp_path / "train.parquet", kind="expr")
    assert [(item.question, item.kind) for item in (source[0], source[1])] == [
        ("<image>Find x.", "expr"),
        ("<image>Find x.", "int"),
    ]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(6, 2)])
def test_a_gold_of_a_table_has_the_digits_that_were_written(tmp_path, kind):
    """Its tolerance hangs on them: 45.66999816894531 is right for 45.67 alone."""
    wanted = ["45.5"] if kind == pa.float16() else ["45.67", "99.99", "3.14"]
    values = [decimal.Decimal(x) for x in wanted]
    if not pa.types.is_decimal(kind):
        values = np.array(values, kind.to_pandas_dtype())
    golds = pa.array(values, kind)
    table = pa.table({"question": ["q"] * len(wanted), "answer": golds})
    parquet.write_table(table, tmp_path / "a.parquet")
    source = sources.rows(tmp_path / "a.parquet")
    for i, text in enumerate(wanted):
        assert verify.verify_item(f"\\boxed{{{text}}}", source[i]).correct
        assert float(source[i].answer) == float(text)


NOTHING = [
    *(
        None,
        "",
        [],
        [None],
        [""],
        math.nan,
        {"bytes": None, "path": None},
        {"bytes": None, "path": ""},
    ),
    *([{"bytes": None, "path": None}], [{"bytes": None, "path": None}, None]),
]


@pytest.mark.parametrize("name", ["images", "image", "videos"])
@pytest.mark.parametrize("shown", NOTHING, ids=str)
def test_a_row_that_shows_nothing_is_a_row_without_a_picture(tmp_path, name, shown):
    row = {"question": "1 + 1?", "answer": "2", name: shown}
    item = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0]
    assert item.images == ()
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    assert sources.rows(tmp_path / "a.parquet")[0].images == ()


def test_pictures_are_read_beside_empty_places(tmp_path):
    """As columns of several pictures are filled up to one length."""
    (tmp_path / "a.png").write_bytes(files.png())
    row = {"question": "?", "answer": "2", "images": [None, "a.png", ""], "image": None}
    other = row | {"images": [None], "image": "a.png"}
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row, other))
    assert [len(item.images) for item in source] == [1, 1]


@pytest.mark.parametrize(
    "shown", [{"url": "http://a/b.png"}, {"bytes": "", "path": "gone.png"}, {}]
)
def test_a_picture_that_is_not_there_is_not_an_empty_one(tmp_path, shown):
    row = {"question": "?", "answer": "2", "image": shown}
    with pytest.raises(columns.RejectedItem, match="bad_image"):
        sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0]


def test_rows_with_an_empty_id_or_kind_have_none(tmp_path):
    rows = [{"question": "?", "answer": "2", "id": "", "kind": ""}] * 2
    items = [*sources.rows(files.write_jsonl(tmp_path / "a.jsonl", *rows))]
    assert [(item.uid, item.kind) for item in items] == [("a:0", "int"), ("a:1", "int")]


def test_a_video_is_refused_in_every_form_of_file(tmp_path):
    """Read without it, the question would be another one."""
    asked = {"question": "Who?", "answer": "7", "videos": ["a.mp4"]}
    of_verl = {
        "prompt": [{"role": "user", "content": "<video>Who?"}],
        "reward_model": {"ground_truth": "7"},
        "videos": ["a.mp4"],
    }
    for i, row in enumerate((asked, of_verl)):
        parquet.write_table(pa.Table.from_pylist([row]), tmp_path / f"{i}.parquet")
        lines = files.write_jsonl(tmp_path / f"{i}.jsonl", row)
        for path in (tmp_path / f"{i}.parquet", lines):
            with pytest.raises(columns.RejectedItem, match="has videos: images are all"):
                sources.rows(path)[0]


def test_a_broken_row_of_verl_is_rejected(tmp_path):
    prompts = [], None, [{"role": "system", "content": "Be brief."}], 5, [5]
    rows = [{"prompt": prompt, "reward_model": {"ground_truth": "7"}} for prompt in prompts]
    source = sources.rows(files.write_jsonl(tmp_path / "mine.jsonl", *rows))
    for i in range(len(rows)):
        with pytest.raises(columns.RejectedItem, match=r"cannot be read|no question"):
            source[i]


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        ("Which?\n(A) 3\n(B) 4", "B", "choice"), ("Which? A. 3 B. 4", "(B)", "choice"), ("Which? A:3 B:4", "$B$", "choice"),
        ("Which letter is it?", "B", "text"), ("?", "Yes.", "yesno"), ("?", "1,200", "int"),
        ("?", "-3", "int"), ("?", "3.0", "float"), ("?", "1/3", "float"), ("?", "x = 5", "expr"),
        ("?", "14/2=7", "expr"), ("?", "x^2 = 5", "expr"), ("?", "2.5M", "float"), ("?", "10^6", "int"),
        ("?", "dark blue", "text"), ("?", "x-axis", "text"), ("?", "24 cm long", "text"), ("?", "x", "text"),
        ("?", "St. Peter's (Rome)", "text"), ("?", "北京", "text"), ("?", "vitamin C", "text"),
    ],
)  # fmt: skip
def test_kinds_are_inferred_where_they_are_sure(tmp_path, question, answer, kind):
    row = {"question": question, "answer": answer}
    assert sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))[0].kind == kind


def test_a_whole_number_with_a_tolerance_is_a_float(tmp_path):
    row = {"question": "?", "answer": "200", "tolerance": 0.05}
    (item,) = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row))
    assert item.kind == "float"
    assert verify.verify_item("\\boxed{195}", item).correct
    assert not verify.verify_item("\\boxed{189}", item).correct


@pytest.mark.parametrize(
    "formula",
    ["a-b", "x - 3", "2x+y", "a/b", "-x", "x!", "x+1", "2x", "√2", "AB-CD", "f(x)", "1:2"],
)
def test_a_formula_is_not_compared_as_words(tmp_path, formula):
    """Words lose their signs, so x + 3 would be x - 3: the user's kind decides, or the row is rejected."""
    path = files.write_jsonl(tmp_path / "a.jsonl", {"question": "q", "answer": formula})
    assert sources.rows(path, kind="expr")[0].kind == "expr"
    with pytest.raises(columns.RejectedItem, match="add a column kind"):
        sources.rows(path)[0]


def test_a_number_that_may_be_the_place_of_an_option_is_rejected(tmp_path):
    row = {"question": "Which is a mammal?", "choices": ["trout", "dog", "ant"], "answer": 1}
    good = row | {"choices": ["1", "2"]}, row | {"kind": "int"}, row | {"answer": 12}
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", row, *good))
    with pytest.raises(columns.RejectedItem, match="may be the place of one of the choices"):
        source[0]
    assert [source[i].answer for i in (1, 2, 3)] == ["1", "1", "12"]


def test_a_first_row_without_an_answer_is_rejected_alone(tmp_path):
    path = files.write_jsonl(
        tmp_path / "a.jsonl", {"question": "q"}, {"question": "q", "answer": "1"}
    )
    assert sources.rows(path)[1].answer == "1"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{broken", "bad_row"),
        ("[1]", "bad_row"),
        ({"question": "q"}, "missing_field"),
        ({"question": "q", "answer": ""}, "bad_answer"),
        ({"question": "q", "answer": [1]}, "bad_answer"),
        ({"question": "q", "answer": float("nan")}, "bad_answer"),
        ({"question": "q", "answer": "\\frac{x}{2}"}, "bad_kind"),
        ({"question": "q", "answer": "word " * 20}, "bad_kind"),
        ({"question": "q", "answer": "1", "kind": "sum"}, "bad_kind"),
        ({"question": "q", "answer": "1", "image": "none.png"}, "bad_image"),
        ({"question": "q", "answer": "1", "videos": ["a.mp4"]}, "not_an_image"),
        ({"question": "q", "answer": "1", "image": "a.jsonl"}, "bad_image"),
        ({"question": "q", "answer": "1", "image": 5}, "bad_image"),
        ({"question": "q", "answer": "1", "image": "data:image/png"}, "bad_image"),
        ({"question": "q", "answer": "1", "image": "data:,aGk=?"}, "bad_image"),
        ({"question": "q", "answer": "1", "choices": "A"}, "bad_choices"),
        ({"question": "q", "answer": "1", "tolerance": "5%"}, "bad_tolerance"),
        ({"question": "q", "answer": "1", "ordered": "yes"}, "bad_ordered"),
        ({"question": "q", "answer": "1", "paraphrases": "Q"}, "bad_paraphrases"),
        ({"question": "q", "answer": "1", "steps": ["a", 1]}, "bad_steps"),
    ],
)
def test_bad_rows_are_rejected_when_read(tmp_path, row, reason):
    good = {"question": "q", "answer": "1"}
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", good, row))
    assert source[0].answer == "1"
    with pytest.raises(columns.RejectedItem, match=r"^a:1: ") as caught:
        source[1]
    assert caught.value.reason == reason
