"""Pictures of the page: made small, kept beside the run, found again in the data."""

import dataclasses
import io
import json
import types

import pytest
from PIL import Image

from tests.report import report_run
from vade_jax.data import procedural, sources
from vade_jax.report import pictures
from vade_jax.report.run import Prompt


def choose(question, *, uid="train-0-0", gold="7", find=report_run.item, budget=10**6, kept=()):
    """Returns the picture of one prompt, or why it has none."""
    asked = {uid: (Prompt(uid, gold, "text", {}, (None, 0)), question)}
    shown, missing = pictures.choose(asked, dict(kept), find, budget)
    return (shown or missing)[uid]


def test_pictures_come_from_the_data_when_it_is_the_same():
    assert choose("Think first. Which hidden?").num_images == 1
    assert choose("Which shape?", uid="train-0-1", gold="3") == "differs"
    assert choose("Which color?", uid="train-0-2", gold="blue") == "differs"
    assert choose("", find=lambda uid: None) == "not_found"
    assert choose("Which hidden?", budget=100) == "budget"
    text_only = dataclasses.replace(report_run.item("train-0-0"), images=())
    assert choose("Which hidden?", find=lambda uid: text_only) == "no_picture"
    assert pictures.notes({"a": "differs", "b": "differs", "c": "no_picture"}) == [
        "prompts on this page without their picture: 2 (2 have another question in the data now)"
    ]
    assert pictures.notes({"c": "no_picture"}) == []


def test_a_page_runs_no_code_that_a_run_names(tmp_path):
    ran = tmp_path / "ran"
    (tmp_path / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\n")
    run = types.SimpleNamespace(config={"data": {"train": f"{tmp_path}/theirs.py:rows"}})
    assert pictures.of_run(run)("theirs.rows:0") is None and not ran.exists()


def damaged_image():
    """Returns an image whose decoder raises SyntaxError: an AVIF file that was cut short."""
    file = io.BytesIO()
    report_run.item("train-0-0").images[0].save(file, "AVIF")
    image = Image.open(io.BytesIO(file.getvalue()[:-10]))
    with pytest.raises(SyntaxError):
        image.copy()
    return image


def test_a_picture_that_cannot_be_decoded_is_counted():
    item = dataclasses.replace(report_run.item("train-0-0"), images=(damaged_image(),))
    assert choose("Which hidden?", find=lambda uid: item) == "unreadable"


def test_thumbnails_are_small_and_lie_on_white():
    image = Image.new("RGBA", (1000, 500), (255, 0, 0, 0))
    found = pictures.thumbnail(image, 3)
    small = Image.open(io.BytesIO(found.data))
    assert small.size == (pictures.SIDE, pictures.SIDE // 2)
    assert small.convert("RGB").getpixel((5, 5)) == (255, 255, 255)
    assert found.num_images == 3 and found.uri.startswith("data:image/png;base64,")
    assert image.size == (1000, 500)


def lying():
    """Returns an image of 200 x 100, red at its left, whose EXIF says to turn it upright."""
    image, file, exif = Image.new("RGB", (200, 100), "blue"), io.BytesIO(), Image.Exif()
    image.paste("red", (0, 0, 100, 100))
    exif[0x0112] = 6  # by 90 degrees, clockwise
    image.save(file, "JPEG", exif=exif)
    return Image.open(file)


def test_a_thumbnail_is_upright():
    small = Image.open(io.BytesIO(pictures.thumbnail(lying()).data))
    assert small.size == (100, 200) and not small.getexif()
    red, _, blue = small.convert("RGB").getpixel((50, 30))
    assert red > 200 > 50 > blue


def test_pictures_are_kept_beside_the_run(tmp_path):
    assert pictures.read(tmp_path) == ({}, [])
    kept = {"a": pictures.thumbnail(report_run.item("train-0-1").images[0])}
    pictures.keep(tmp_path, kept)
    assert pictures.read(tmp_path) == (kept, [])
    assert choose("anything", uid="a", find=None, kept=kept) == kept["a"]
    pictures.keep(tmp_path, {"a": pictures.Picture(b"<svg>", "image/svg+xml", 1)})
    assert pictures.read(tmp_path) == ({}, [])  # only what we make ourselves


# ------------------------------------------------------------------------------ in the data


def write_rows(path, ids):
    rows = [{"question": f"q{i}", "answer": "1", "id": name} for i, name in ids]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return sources.rows(path)


def test_items_are_found_by_place_or_by_id(tmp_path):
    find = pictures.finder(write_rows(tmp_path / "a.jsonl", [(0, "x1"), (1, "x0")]))
    assert find("x0").question == "q1" and find("x1").question == "q0"
    assert find("x7") is None and find("") is None
    find = pictures.finder(write_rows(tmp_path / "b.jsonl", [(0, None), (1, None)]))
    assert find("b:1").question == "q1" and find("b:2") is None
    built_in = pictures.finder(procedural.Procedural(0, 3))
    assert built_in("train-0-2").uid == "train-0-2"
    assert built_in("train-0-2 rotated") is None and built_in("train-1-2") is None
