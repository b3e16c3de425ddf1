"""How processes find each other and end together; this file is also what they run."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import pytest

from experiments import errors
from vade_jax import settings
from vade_jax.rollout.vllm import process
from vade_jax.run import cluster, machine
from vade_jax.trainer import processes

ROOT = pathlib.Path(__file__).parents[2]


# ------------------------------------------------------------------------------ joining
def test_a_plain_run_joins_nobody():
    cluster.join()
    assert not jax.distributed.is_initialized()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, 0), "--coordinator_address and --num_processes missing"),
        (
            ("a:1", 2, None),
            "^--process_id missing: give .* together, or --distributed alone",
        ),
        (("a", 2, 0), "--coordinator_address=a is not HOST:PORT"),
        (("a:1", 2, 2), "--process_id=2 is not in 0 .. --num_processes - 1 = 1"),
    ],
)
def test_places_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        cluster.join(*arguments)


def test_what_process_0_wrote_must_be_seen_by_all(tmp_path, monkeypatch):
    cluster.wait_until_shared(tmp_path)
    monkeypatch.setattr(cluster, "VISIBLE_TIMEOUT_S", 0.0)
    with pytest.raises(ValueError, match=r"does not see .*absent.*hosts share"):
        cluster.wait_until_shared(tmp_path / "absent")


def test_alone_errors_pass_through():
    with pytest.raises(KeyError), cluster.ends_together():
        raise KeyError("x")


# ------------------------------------------------------------------------------ two processes
def start(*ends):
    """Starts a process for each `ends`, which say what it does after a few steps."""
    port = process.free_port()
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.run.cluster_test", end),
                *(f"127.0.0.1:{port}", str(i)),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, end in enumerate(ends)
    ]


def finish(members):
    """Returns (exit code, last line of stderr, stdout) of each."""
    try:
        said = [member.communicate(timeout=60) for member in members]
    finally:
        for member in members:
            member.kill()
    last = lambda text: ([""] + [x for x in text.splitlines() if x.strip()])[-1]
    return [
        (member.returncode, last(err), out)
        for member, (out, err) in zip(members, said, strict=True)
    ]


STOPPED = "error: another process of this run has stopped"


@pytest.mark.parametrize("ends", [("killed", "steps"), ("steps", "killed")])
def test_a_killed_process_ends_the_other_with_a_clear_last_line(ends):
    before = time.monotonic()
    ended = dict(zip(ends, finish(start(*ends)), strict=True))
    assert ended["killed"][0] == -signal.SIGKILL
    assert ended["steps"][0] == 1 and ended["steps"][1].startswith(STOPPED)
    assert time.monotonic() - before < 40


@pytest.mark.slow
def test_an_error_in_one_process_is_shown_there_and_ends_both():
    (_, stopped, _), (code, last, _) = finish(start("steps", "fails"))
    assert code == 1 and last == "KeyError: 'a bug'"
    assert stopped.startswith(STOPPED)


@pytest.mark.slow
def test_a_users_error_keeps_its_exit_code():
    ended = finish(start("refuses", "refuses"))
    assert {code for code, *_ in ended} <= {1, 2}  # 1: the other was quicker to leave
    assert any((code, last) == (2, "error: lower the learning rate") for code, last, _ in ended)


def test_both_end_well_and_one_prints():
    (code, _, out), (other_code, _, other_out) = finish(start("done", "done"))
    assert (code, other_code) == (0, 0)
    assert "process 0 is done" in out and "is done" not in other_out


def test_a_process_that_stays_alone_says_so():
    (member,) = start("alone")
    ((code, last, _),) = finish([member])
    assert code == 2 and last.startswith("error: the processes did not find each other")


def _member(end, address, number):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    cluster.START_TIMEOUT_S, cluster.HEARTBEAT_TIMEOUT_S = 20, 6
    if end == "alone":
        cluster.START_TIMEOUT_S = 3
    with errors.user_errors():
        cluster.join(address, 2, number)
    with cluster.ends_together():
        cluster.only_leader_prints()
        _live(end)


def _live(end):
    for step in range(1000):
        if step == 3:
            _end(end)
            if end == "done":
                return
        processes.any_of(False)
        time.sleep(0.01)


def _end(end):
    if end == "done":
        print(f"process {jax.process_index()} is done")
    if end == "killed":
        signal.raise_signal(signal.SIGKILL)
    if end == "fails":
        raise KeyError("a bug")
    if end == "refuses":
        with errors.user_errors():
            raise ValueError("lower the learning rate")


# ------------------------------------------------------------------------------ GPUs
# Arithmetic on names, so no GPU is needed.
def sections(**fields):
    """Returns the layout and the engine with section__field changed."""
    made = {"layout": {}, "engine": {"name": "vllm_server"}}
    for name, value in fields.items():
        section, _, field = name.partition("__")
        made[section][field] = value
    return settings.Layout(**made["layout"]), settings.Engine(**made["engine"])


def test_the_server_gets_a_gpu_for_each_part_of_each_replica(monkeypatch):
    """Without names the first ones."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pairs = dict(engine__data_parallel=2, engine__tensor_parallel=2)
    c = sections(**pairs, layout__serve="4,5,6,7")
    machine.check_gpus(*c)
    assert cluster.gpus_of_server(*c) == ["4", "5", "6", "7"]
    assert cluster.gpus_of_server(*sections(**pairs)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("4,5,6,7", ["6", "7"]),
        ("GPU-a, GPU-b,GPU-c,GPU-d", ["GPU-c", "GPU-d"]),
        ("", []),  # none is to be used: nor by a server
        (None, ["2", "3"]),
    ],
)
def test_a_server_gets_gpus_of_those_that_the_run_was_given(monkeypatch, given, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    c = sections(layout__train="0,1", layout__serve="2,3", engine__tensor_parallel=2)
    machine.check_gpus(*c)
    assert cluster.gpus_of_server(*c) == expected
    by_name = sections(layout__serve="GPU-x")
    assert cluster.gpus_of_server(*by_name) == (["GPU-x"] if expected else [])


@pytest.mark.parametrize(
    "fields", [dict(layout__serve="4"), dict(layout__train="0,4"), dict(engine__data_parallel=5)]
)
def test_a_gpu_that_the_run_was_not_given_is_an_error(monkeypatch, fields):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    with pytest.raises(ValueError, match=r"GPU 4 of .* CUDA_VISIBLE_DEVICES=4,5,6,7 shows 4"):
        machine.check_gpus(*sections(**fields))
    machine.check_gpus(*sections(engine__data_parallel=5, engine__url="http://a:1"))


def test_servers_without_as_many_gpus_are_an_error():
    fields = dict(layout__serve="0,1", engine__tensor_parallel=4)
    with pytest.raises(ValueError, match=r"serve='0,1' names 2 GPUs, but .* is 4: name as many"):
        machine.check_gpus(*sections(**fields))


NAMES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


@pytest.fixture
def untold(monkeypatch):
    """No variable tells JAX its share, and what a test sets is taken back."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        del os.environ[name]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"train_memory=0.75 \(JAX's default\) and layout.serve_memory=0.9 are more"),
        (
            dict(layout__train_memory=0.6, layout__serve_memory=0.5),
            r"train_memory=0.6 and layout.serve_memory=0.5 are more than the GPU",
        ),
        (
            dict(layout__train="0,1", layout__serve="1", layout__train_memory=0.8),
            r"give layout.train and layout.serve different GPUs",
        ),
    ],
)
@pytest.mark.usefixtures("untold")
def test_what_does_not_fit_on_a_shared_gpu_is_an_error(fields, message):
    with pytest.raises(ValueError, match=message):
        machine.check_memory(*sections(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        dict(layout__train_memory=0.6, layout__serve_memory=0.3),
        dict(layout__train_memory=0.8, layout__sleep=True),
        dict(layout__train_memory=0.9, layout__train="0", layout__serve="1"),
        dict(layout__serve_memory=0.25),
        dict(layout__train_memory=0.9, engine__url="http://a:1"),  # a server elsewhere
        dict(engine__name="local"),
    ],
)
@pytest.mark.usefixtures("untold")
def test_what_fits_on_a_shared_gpu_passes(fields):
    machine.check_memory(*sections(**fields))


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize("name", NAMES)
def test_jaxs_share_may_be_told_by_its_own_variables(monkeypatch, name):
    monkeypatch.setenv(name, "0.5")
    machine.check_memory(*sections(layout__serve_memory=0.45))
    with pytest.raises(ValueError, match=rf"train_memory=0.5 \({name}\) and .*serve_memory=0.55"):
        machine.check_memory(*sections(layout__serve_memory=0.55))
    monkeypatch.setenv(name, "")
    with pytest.raises(ValueError, match=r"train_memory=0.75 \(JAX's default\)"):
        machine.check_memory(*sections(layout__serve_memory=0.45))
    monkeypatch.setenv(name, "half")
    with pytest.raises(ValueError, match=f"{name}='half' is no number: write one such as 0.5"):
        machine.check_memory(*sections(layout__serve_memory=0.45))


@pytest.fixture
def told(monkeypatch, untold):
    """What JAX was told, in place of telling it."""
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    return told


def test_jax_gets_its_gpus_and_its_share(told):
    cluster.take_gpus(settings.Layout())
    assert told == {} and not os.environ.keys() & set(NAMES)
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.3"  # JAX takes no two
    cluster.take_gpus(settings.Layout(train="0,1", train_memory=0.6))
    assert told == {"jax_cuda_visible_devices": "0,1"}
    assert [os.environ.get(name) for name in NAMES] == ["0.6", None]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("error", "train", "message"),
    [
        (AssertionError(), "", r"='cpu': JAX has no device that it can use \(none is there\): "),
        (
            RuntimeError("Unable to initialize backend 'cuda': gone (set JAX_PLATFORMS='')\nmore"),
            "0,9",
            r"='cpu' and layout.train='0,9': .* \(Unable to initialize backend 'cuda': gone\): ",
        ),
    ],
)
def test_no_device_to_use_is_one_line(monkeypatch, error, train, message):
    def devices():
        raise error

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(ValueError, match=f"^JAX_PLATFORMS{message}") as caught:
        cluster.take_gpus(settings.Layout(train=train))
    assert "\n" not in str(caught.value)


if __name__ == "__main__":
    _member(sys.argv[1], sys.argv[2], int(sys.argv[3]))
