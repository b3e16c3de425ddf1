"""The parts of the page against hand counts."""

import io
import math

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from tests.report import report_run
from tests.report.report_run import make
from vade_jax.report import (
    answers,
    groups,
    headline,
    maps,
    pictures,
    prompts,
    run,
)


@pytest.fixture
def log(tmp_path):
    return groups.read(make(tmp_path))


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (1.7, 8.2), (40, 3), (0, 12)])
def test_the_mass_is_that_of_the_beta_posterior(alpha, beta):
    cdf = stats.beta(alpha + 1, beta + 1).cdf(np.linspace(0, 1, maps.RATES + 1))
    np.testing.assert_allclose(
        maps.beta_mass([alpha], [beta])[0], np.diff(cdf), atol=2e-3
    )


def test_maps_count_groups(log):
    observed = maps.observed(log)
    assert observed["rows"] == [f"{i} of 4" for i in range(5)]
    assert observed["columns"] == [[step, step] for step in range(1, 7)]
    third = pytest.approx(1 / 3, abs=1e-3)
    assert observed["values"][2] == [third, 0, third, 0, third]  # 0, 4 and 2 right
    subsets = maps.subsets(log)
    assert sorted(subsets["rows"]) == ["color 1", "count 1", "hidden 1"]
    assert np.sum(subsets["values"], 1) == pytest.approx(np.ones(6), abs=2e-3)
    posterior = maps.posterior(log)
    np.testing.assert_allclose(
        posterior["values"][0], maps.beta_mass([1.0], [2.0])[0], atol=1e-3
    )


def test_groups_of_different_sizes_share_rows():
    sizes = [(0, 4), (1, 8), (1, 4), (3, 6), (7, 8), (4, 4)]
    found = [groups.Group(1, "a", *size, math.nan, 0, 0) for size in sizes]
    observed = maps.observed(groups.Log(found, {}, {}, []))
    assert observed["rows"][0] == "none" and observed["rows"][-1] == "all"
    assert observed["values"] == [pytest.approx([1 / 6] * 6, abs=1e-3)]


def test_many_steps_share_columns():
    found = [groups.Group(s, "a", 1, 2, math.nan, 0, 0) for s in range(1, 1001)]
    columns, edges = maps._columns(found)
    assert len(columns) == maps.COLUMNS and edges[0][0] == 1 and edges[-1][1] == 1000
    assert sum(map(len, columns)) == 1000


def test_lists_of_prompts(log):
    found = {chosen.name: chosen for chosen in prompts.lists(log, 5)}
    uids = {name: [p.uid for p in chosen.prompts] for name, chosen in found.items()}
    assert uids == {
        "hopeless": ["train-0-0"],
        "solved": ["train-0-1"],
        "learned": ["train-0-2"],
    }
    assert found["hopeless"].share == pytest.approx(1 / 3)
    learned = found["learned"].prompts[0]
    assert prompts.rise(learned.visits) == pytest.approx(7 / 8 - 1 / 8)
    assert prompts.wrong(learned, 2) == "wrong3 (5×), wrong2 (3×), 2 others"
    assert prompts.strip(learned)[1] == {
        "rate": 0.25,
        "title": "step 2: 1 of 4 right",
    }
    assert found["hopeless"].num_all == 1 and not prompts.lists(log, 0)[0].prompts


def test_the_table_of_subsets(log):
    rows = {row["subset"]: row for row in prompts.table(log)}
    color = rows["color 1"]
    assert (color["groups"], color["prompts"]) == (6, 1)
    assert color["share"] == pytest.approx(1 / 3)
    assert color["mixed"] == pytest.approx(4 / 6)
    assert (color["early"], color["late"]) == (
        pytest.approx(1 / 8),
        pytest.approx(7 / 8),
    )


def test_a_sample_is_right_and_wrong_answers_of_every_subset(log):
    sample, num_all = answers.sample(log, 10**6)
    assert num_all == 72 and len(sample) == 18
    mixed = next(g for g in sample if g["step"] == 3 and g["uid"] == "train-0-2")
    assert (mixed["right"], mixed["count"]) == (2, 4)
    assert [a["right"] for a in mixed["answers"]] == [True, True, False, False]
    assert mixed["belief"] == [1, 2, 0.25]
    few, _ = answers.sample(log, 6000)
    assert 0 < len(few) < 18 and few == answers.sample(log, 6000)[0]
    assert len({g["step"] for g in few}) == min(6, len(few))


def test_questions_are_read_without_marks():
    text = (
        "<|im_start|>system\nBe good<|im_end|>\n<|im_start|>user\n<|vision_start|>"
        "<|image_pad|><|vision_end|>How many?\nThink.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert groups.question(text) == "How many?\nThink."
    assert groups.question("plain <b>text</b>") == "plain <b>text</b>"
    assert groups.question(None) == ""


def test_phases_make_up_the_step(tmp_path):
    inside, beside = headline.phases(run.read(make(tmp_path)))
    seconds = {phase["name"]: phase["seconds"] for phase in inside}
    assert seconds == {"gen": 6.0, "update_actor": 15.0, "rest": 3.0}
    assert sum(phase["share"] for phase in inside) == pytest.approx(1)
    assert [phase["name"] for phase in beside] == ["judge"]


def test_durations_and_counts_read_well():
    found = [headline.duration(x) for x in (0.0123, 4.0, 67, 3725, math.nan)]
    assert found == ["12.3 ms", "4 s", "1 min 07 s", "1 h 02 min", "–"]
    assert [headline.compact(x) for x in (51200, 12.3e6)] == ["51,200", "12.3 M"]


# ------------------------------------------------------------------------------ pictures
def album(**options):
    return pictures.Album({}, options.pop("find", report_run.item), 10**6, **options)


def prompt(uid="train-0-0", gold="7"):
    return groups.Prompt(uid, gold, "text", {}, (None, 0))


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
    broken = report_run.item("train-0-0")
    text_only = broken.__class__("train-0-0", "Which hidden?", (), "7", "text")
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


def test_labels_tell_runs_apart():
    assert run.labels(["/a/x", "/a/y"]) == ["x", "y"]
    assert run.labels(["/a/x", "/b/x"]) == ["a/x", "b/x"]
    assert run.labels(["/a/x", "/a/x"]) == ["x", "x"]  # the same run
