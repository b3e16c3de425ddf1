"""TensorBoard and W&B get what metrics.jsonl has, and nothing is imported that is not asked for."""

import json
import math
import struct
import subprocess
import sys
import types

import pytest

from vade_jax.store import metrics


class FakeRun:
    def __init__(self, **options):
        self.options, self.logged, self.defined, self.finished = options, [], [], False

    def define_metric(self, name, step_metric=None):
        self.defined.append((name, step_metric))

    def log(self, values):
        self.logged.append(values)

    def finish(self):
        self.finished = True


@pytest.fixture
def runs(monkeypatch):
    """What a stand-in for wandb was told, a run a start."""
    made = []

    def init(**options):
        made.append(FakeRun(**options))
        return made[-1]

    class Refused(Exception):  # noqa: N818
        pass

    fake = types.ModuleType("wandb")
    fake.init, fake.Error, fake.Settings = init, Refused, dict
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return made


def test_wandb_gets_the_same_names_and_numbers(runs, tmp_path):
    workdir = tmp_path / "my_run"
    writer = metrics.Writer(workdir, wandb="project", config={"seed": 3})
    writer.write(1, {"actor/grad_norm": 0.5, "vade/rollouts_total": 8})
    writer.write(2, {"actor/grad_norm": float("nan")})
    writer.close()
    (run,) = runs
    assert run.options["project"] == "project" and run.options["name"] == "my_run"
    assert run.options["config"] == {"seed": 3} and run.finished
    assert run.logged[0] == metrics.read(workdir)[0]
    assert run.logged[1]["step"] == 2 and math.isnan(run.logged[1]["actor/grad_norm"])
    assert run.defined == [("step", None), ("*", "step")]


def test_a_resumed_job_is_the_same_wandb_run(runs, tmp_path):
    for workdir in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        metrics.Writer(workdir, wandb="project").close()
    first, again, other = (run.options["id"] for run in runs)
    assert first == again != other
    assert all(run.options["resume"] == "allow" for run in runs)


def test_a_refusal_of_wandb_is_one_error(runs, tmp_path, monkeypatch):
    wandb = sys.modules["wandb"]

    def refuse(**_):
        raise wandb.Error("not logged in")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ValueError, match="wandb='p': not logged in; run `wandb login`"):
        metrics.Writer(tmp_path, wandb="p")


@pytest.mark.parametrize(
    ("package", "options", "line"),
    [
        ("wandb", {"wandb": "p"}, r"wandb='p' needs the package: pip install wandb"),
        ("tensorboardX", {"tensorboard": True}, r"pip install 'vade_jax\[tracking\]'"),
    ],
)
def test_a_missing_package_is_one_line(package, options, line, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=line):
        metrics.Writer(tmp_path, **options)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_nothing_is_imported_unasked(tmp_path):
    code = (
        "import sys; from vade_jax.store import metrics; "
        f"metrics.Writer({str(tmp_path)!r}).write(1, {{'a': 1}}); "
        "assert not {'wandb', 'tensorboardX'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_real_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for step in (1, 2):  # the second start resumes
        writer = metrics.Writer(tmp_path, wandb="project", config={"seed": 3})
        writer.write(step, {"actor/grad_norm": 0.5 * step, "b": float("inf")})
        writer.close()
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    run_id = (tmp_path / "wandb" / "run_id").read_text()
    assert all(file.name == f"run-{run_id}.wandb" for file in files)
    assert [list(_history(file)) for file in files] == [
        [{"step": 1.0, "actor/grad_norm": 0.5, "b": "NaN"}],
        [{"step": 2.0, "actor/grad_norm": 1.0, "b": "NaN"}],
    ]


def _history(path):
    """Yields the logged values in a file of an offline run."""
    from wandb.proto import wandb_internal_pb2

    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            values = {"/".join(i.nested_key) or i.key: i.value_json for i in items}
            yield {
                k: "NaN" if "NaN" in v else json.loads(v)
                for k, v in values.items()
                if not k.startswith("_")
            }


def _records(data):
    """Yields the records of a LevelDB log behind W&B's header of 7 bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:  # the end of a block is padded
            place += left
            continue
        length, kind = struct.unpack_from("<4xHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield whole
            whole = b""
