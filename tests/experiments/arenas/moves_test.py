"""How far weights moved, by hand."""

import json
import math

import numpy as np
import pytest
import safetensors.numpy

from configs import sweep
from experiments.arenas import moves
from experiments.arenas.runs import planned


def checkpoint(path, **tensors):
    path.mkdir(parents=True)
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
    found = moves.compare(of("start"), [first, other, of("still")])
    assert found[0] == pytest.approx((1 / 5, 1.0))
    assert found[1] == pytest.approx((math.sqrt(2) / 5, 1 / math.sqrt(2)))
    assert found[2].length == 0 and math.isnan(found[2].cosine)


def test_other_shapes_are_no_policy_of_this_start(tmp_path):
    start = checkpoint(tmp_path / "start", a=np.zeros(2, np.float32))
    other = checkpoint(tmp_path / "other", a=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=f"{other} is no policy that began as {start}: see a"):
        moves.compare(start, [start, other])
    with pytest.raises(FileNotFoundError, match="none is no directory"):
        moves.compare(start, [str(tmp_path / "none")])


def test_the_table_of_a_sweep(tmp_path):
    """Runs of a seed are compared with the baseline's, whatever the order in which they ran."""
    c = sweep.get_config("precision,smoke")
    c.update({"arms": "bfloat16,float32", "seeds": "0,1"})
    finished = planned(c.to_dict(), str(tmp_path))
    checkpoint(tmp_path / "warm_start_seed0", a=np.float32([1, 1, 1, 1]))
    checkpoint(tmp_path / "clean/gspo/float32_seed0/policy", a=np.float32([1, 1, 1, 3]))
    checkpoint(tmp_path / "clean/gspo/bfloat16_seed0/policy", a=np.float32([1, 1, 1, 0]))
    found = moves.markdown([run for run in finished if run.seed == 0], "float32")
    assert found.splitlines()[2:4] == [
        "| clean/gspo/float32_seed0 | 1.00000 | 1.000 |",
        "| clean/gspo/bfloat16_seed0 | 0.50000 | -1.000 |",
    ]
    alone = [run for run in finished if run.arm == "bfloat16"]
    assert "bfloat16_seed" not in moves.markdown(alone, "float32")
