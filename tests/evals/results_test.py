"""Results: summaries by hand, and through their file."""

import json

import numpy as np
import pytest

from tests.evals.scored import result
from vade_jax.evals import benchmarks, report, results
from vade_jax.types import Item


def test_summary():
    found = results.summary(
        result(extracted=[["1", "2"], ["1", "1"], ["1", "2"], ["1"] * 2])
    )
    assert found["accuracy"] == 0.625 and found["pass"] == 0.75
    assert found["majority"] == (0.5 + 1 + 0 + 1) / 4
    assert found["breakdown"] == {"type": {"human": (0.25, 2), "augmented": (1.0, 2)}}
    assert (found["num_items"], found["num_samples"]) == (4, 2)


def test_files(tmp_path):
    path = tmp_path / "chartqa.json"
    saved = result(settings={"temperature": 0.0}, counts={"judge_failed": 1})
    results.save(path, saved)
    loaded = results.load(path)
    np.testing.assert_array_equal(loaded.correct_MG, saved.correct_MG)
    assert loaded.correct_MG.dtype == bool
    for name in ("uids", "settings", "counts", "extracted", "clusters", "profile"):
        assert getattr(loaded, name) == getattr(saved, name)
    assert report.table([loaded]) == report.table([saved])
    assert json.loads(path.read_text())["summary"]["accuracy"] == 0.625
    for text in ("{}", "[", "[1]"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"chartqa.json holds no result"):
            results.load(path)


def test_fields_of_other_lengths():
    with pytest.raises(ValueError, match=r"4 items have scores, .* \[1, 4\]"):
        result(clusters=["a"])


def test_collect():
    items = [
        Item(
            uid=f"u{i}",
            question="",
            images=(),
            answer="",
            kind="text",
            metadata={"problem": "p", "version": "v", "subject": "s", "subfield": "f"},
        )
        for i in range(2)
    ]
    found = results.collect(
        "mine",
        benchmarks.BENCHMARKS["mathverse"],
        "paper",
        items,
        [[1], [0]],
        [["a"], [None]],
        counts={"judge_failed": 1},
    )
    assert found.uids == ("u0", "u1") and found.clusters == ["p", "p"]
    assert (
        found.groups[0]["subfield"] == ("s, f",) and found.counts["judge_failed"] == 1
    )
