"""Pictures of the page: made small, kept beside the run, found again in the data."""

import dataclasses
import io
import json

import pytest
from PIL import Image

from tests.report import report_run
from vade_jax.data import procedural, sources
from vade_jax.report import pictures
from vade_jax.report.run import Log, Prompt, Run


def album(**options):
    return pictures.Album({}, options.pop("find", report_run.item), 10**6, **options)


def prompt(uid="train-0-0", gold="7"):
    return Prompt(uid, gold, "text", {}, (None, 0))


def test_pictures_come_from_the_data_when_it_is_the_same():
    found = album()
    found.take(prompt(), "Think first. Which hidden?")
    found.take(prompt("train-0-1", "3"), "Which shape?")
    found.take(prompt("train-0-2", "blue"), "Which color?")
    assert list(found.shown) == ["train-0-0"]
    assert found.missing == {"train-0-1": "differs", "train-0-2": "differs"}
    assert "2 are another question in the data of today" in found.note()


def test_reasons_for_no_picture():
    none = album(find=lambda uid: None)
    none.take(prompt(), "")
    assert none.missing == {"train-0-0": "not_found"}
    small = album()
    small.budget = 100
    small.take(prompt(), "Which hidden?")
    assert small.missing == {"train-0-0": "budget"} and small.budget == 100
    text_only = dataclasses.replace(report_run.item("train-0-0"), images=())
    nothing = album(find=lambda uid: text_only)
    nothing.take(prompt(), "Which hidden?")
    assert nothing.missing == {"train-0-0": "no_picture"} and nothing.note() is None


def test_thumbnails_are_small_and_lie_on_white():
    image = Image.new("RGBA", (1000, 500), (255, 0, 0, 0))
    found = pictures.thumbnail(image, 3)
    small = Image.open(io.BytesIO(found.data))
    assert small.size == (pictures.SIDE, pictures.SIDE // 2)
    assert small.convert("RGB").getpixel((5, 5)) == (255, 255, 255)
    assert found.num_images == 3 and found.uri.startswith("data:image/png;base64,")
    assert image.size == (1000, 500)


def test_pictures_are_kept_beside_the_run(tmp_path):
    assert pictures.read(tmp_path) == ({}, [])
    kept = {"a": pictures.thumbnail(report_run.item("train-0-1").images[0])}
    pictures.keep(tmp_path, kept)
    assert pictures.read(tmp_path) == (kept, [])
    found = pictures.Album(kept, None, 10**6)
    found.take(prompt("a"), "anything")
    assert found.shown == kept
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


def test_rows_that_are_none_have_no_picture(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"question": "q", "answer": "1", "id": "a"}\nnonsense\n[1]\n'
        '{"question": "r", "answer": "2", "id": "b", "images": ["gone.png"]}\n'
    )
    find = pictures.finder(sources.rows(path))
    assert find("a").question == "q" and find("b") is None and find("c:1") is None


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"data": 3},
        {"data": {"train": ""}},
        {"data": {"train": "gone.parquet"}},
        {"data": {"train": "procedural"}},
        {"data": {"train": "procedural", "num_train": "many"}, "seed": 0},
    ],
)
def test_configs_without_data_find_nothing(config, tmp_path):
    run = Run("a", tmp_path, [], Log([], {}, {}, []), config, {}, [])
    assert pictures.of_run(run) is None
