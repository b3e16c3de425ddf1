"""How far weights moved, by hand."""

import json
import math

import numpy as np
import pytest
import safetensors.numpy

from experiments import moved


def checkpoint(path, **tensors):
    path.mkdir()
    (path / "config.json").write_text(json.dumps({}))
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    return str(path)


def test_moves_of_four_weights_by_hand(tmp_path):
    start = dict(a=np.array([[3.0, 0.0]], np.float32), b=np.array([0.0, 4.0], np.float32))
    of = lambda name, **by: checkpoint(
        tmp_path / name, **{n: x + by.get(n, 0) for n, x in start.items()}
    )
    first = of("first", a=np.float32([[1, 0]]))
    other = of("other", a=np.float32([[1, 0]]), b=np.float32([0, -1]))
    found = moved.compare(of("start"), [first, other, of("still")])
    assert found[0] == pytest.approx((1 / 5, 1.0))
    assert found[1] == pytest.approx((math.sqrt(2) / 5, 1 / math.sqrt(2)))
    assert found[2].length == 0 and math.isnan(found[2].cosine)


def test_other_shapes_are_no_policy_of_this_start(tmp_path, capsys):
    start = checkpoint(tmp_path / "start", a=np.zeros(2, np.float32))
    other = checkpoint(tmp_path / "other", a=np.zeros(3, np.float32))
    with pytest.raises(SystemExit, match="2"):
        moved.main(["--start", start, "--policies", start, other])
    assert f"{other} is no policy that began as {start}: see a" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        moved.main(["--start", start, "--policies", str(tmp_path / "none")])
    assert "none is no directory" in capsys.readouterr().err


def test_the_table(tmp_path, capsys):
    start = checkpoint(tmp_path / "start", a=np.ones(4, np.float32))
    end = checkpoint(tmp_path / "end", a=np.float32([1, 1, 1, 3]))
    moved.main(["--start", start, "--policies", end])
    row = capsys.readouterr().out.splitlines()[4]
    assert [x.strip() for x in row.split("|")[1:-1]] == [end, "1.00000", "1.000"]
