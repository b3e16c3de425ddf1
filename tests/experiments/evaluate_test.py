"""The whole program: a tiny checkpoint, a server; judged, killed, gone on with."""

import contextlib
import functools
import gc
import io
import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from configs import eval_paper
from experiments import errors, evaluate
from experiments.evals import evaluation, policies, results
from experiments.evals.benchmarks import BENCHMARKS
from tests.experiments.evals.benchmarks import files
from tests.http_server import ScriptedChat, said
from tests.rollout import fake
from tests.trainer import small
from vade_jax.data import procedural
from vade_jax.models.qwen import presets, tiny_checkpoint
from vade_jax.run import engines
from vade_jax.trainer import mesh

ROOT = pathlib.Path(__file__).parents[2]
TITLES = ("MathVista", "MathVerse", "MathVision", "ScienceQA", "ChartQA")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two items of each benchmark, by its name."""
    root = tmp_path_factory.mktemp("data")
    rows = {
        "mathvista": [files.mathvista("1"), files.mathvista("2", answer="135°")],
        "mathverse": [files.mathverse("1"), files.mathverse("2", answer="A")],
        "mathvision": [files.mathvision("1"), files.mathvision("2", answer="C")],
        "scienceqa": [files.scienceqa(), files.scienceqa(answer=0)],
        "chartqa": [files.chartqa(), files.chartqa(answer="no")],
    }
    return {name: files.save(root / f"{name}.parquet", *r) for name, r in rows.items()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The smallest checkpoint, on one device; what is compiled is kept on disk."""
    base = tmp_path_factory.mktemp("tiny")
    make, few = mesh.make, procedural.Procedural
    fast = functools.partial(jax.jit, compiler_options=small.FAST)
    one = functools.partial(make, devices=jax.devices()[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", small.SHAPE)
        patch.setattr(procedural, "Procedural", lambda s, _, split: few(s, 100, split))
        patch.setattr(mesh, "make", lambda **axes: one(**axes))
        patch.setattr(jax, "jit", fast)
        tiny_checkpoint.write(base / "model", 0)
        yield str(base / "model")


def wanted(data, *names, **changes):
    """Returns a config of these benchmarks, all of them by default."""
    c = eval_paper.get_config()
    for name in names or data:
        c.benchmarks[name] = data[name]
    c.sampling.num_samples = 2
    c.data.min_pixels, c.data.max_pixels = 3136, 112 * 112
    c.data.max_prompt_length = 512
    c.judge.retries = 0
    c.server.retries = 0
    c.update(changes)
    return c


def served(c, server, judge=None):
    if server is not None:
        c.server.url, c.server.model = server.url, "m"
        # Its prompts are its own: what limits ours is refused.
        c.data.max_prompt_length = eval_paper.get_config().data.max_prompt_length
    if judge is not None:
        c.judge.url, c.judge.model = judge.url, "m"
    return c


def run(c, workdir):
    """Returns the exit code and all that was printed."""
    printed, code = io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            evaluate.main(c, str(workdir))
        except SystemExit as end:
            code = end.code
            printed.write(code if isinstance(code, str) else "")
    return code, printed.getvalue()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def policy(body):
    """Right in every benchmark; in MathVista and MathVerse only the judge can read it."""
    text = said(body)
    if "Hint: Answer by" in text:
        return "I measure it, and it looks like the second one."
    if "Find x" in text:
        return "Both sides are equal, hence the second."
    return "B" if "What colour" in text or "legs" in text else "10"


def reads(body):
    """Finds B in everything, and judges by the letter."""
    text = said(body)
    if not text.endswith("Judgement: "):
        return "B"
    return "1" if "[Standard Answer]: B" in text.rsplit("[Question]", 1)[1] else "0"


# ------------------------------------------------------------------------------ a server
class Brief(ScriptedChat):
    """Cuts every answer off."""

    def completion(self, text):
        choice = {"message": {"content": text}, "finish_reason": "length"}
        return {"choices": [choice], "usage": {"completion_tokens": 3}}


def test_five_benchmarks_of_a_server_with_a_judge(data, tmp_path):
    with Brief(policy) as server, ScriptedChat(reads) as judge:
        c = served(wanted(data), server, judge)
        code, printed = run(c, tmp_path)
        assert code == 0, printed
        assert "mathverse: cut_off 4 of 4 answers" in printed
        bodies = list(server.bodies)
        asked = len(bodies), len(judge.bodies)
        assert run(c, tmp_path)[0] == 0
        assert (len(server.bodies), len(judge.bodies)) == asked  # nothing twice
    assert asked[0] == 3 * 2 * 2 + 2 * 2
    content = json.loads((tmp_path / "results.json").read_text())
    found = {name: r["accuracy"] for name, r in content["benchmarks"].items()}
    assert found == {
        "mathvista": 0.5,  # the judge reads B, 140°, right for the first
        "mathverse": 0.5,
        "mathvision": 0.0,
        "scienceqa": 0.5,
        "chartqa": 0.5,
    }
    assert content["average"]["mean"] == pytest.approx(0.4)
    skills = content["benchmarks"]["mathvista"]["breakdown"]["skills"]
    assert skills["geometry reasoning"] == [0.5, 2]
    table = (tmp_path / "report.md").read_text()
    assert all(title in table.splitlines()[0] for title in (*TITLES, "AVG"))
    # Without an interval, as MathVerse's two questions are versions of one problem.
    assert "40.00 |" in table and "## MathVerse by version" in table
    check_requests(bodies)
    check_record(tmp_path / "mathverse")


def check_requests(bodies):
    """Sampled as the config says, greedy where the protocol is; no two share a seed."""
    names = ("temperature", "top_p", "max_tokens", "top_k", "repetition_penalty")
    sampled, greedy = ([body[name] for name in names] for body in (bodies[0], bodies[-1]))
    assert (sampled, greedy) == ([1.0, 1.0, 2048, -1, 1.0], [0.0, 1.0, 16, -1, 1.0])
    picture = bodies[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert picture.startswith("data:image/png;base64,")
    assert len({body["seed"] for body in bodies}) == len(bodies)


def check_record(directory):
    """What was pinned, and every answer with the judge's words."""
    settings = json.loads((directory / "settings.json").read_text())
    assert settings["sampling"]["num_samples"] == 2
    assert settings["scoring"]["model"] == "m"
    assert settings["scoring"]["temperatures"] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert len(settings["prompt"]["sha256"]) == len(settings["data"]["sha256"]) == 64
    items = lines(directory / "items.jsonl")
    keys = [(i["uid"], i["sample"]) for i in items[1:3]]
    assert keys == [("mathverse:1", 1), ("mathverse:2", 0)]
    assert items[0]["judge"] == ["B", "1"] and items[2]["judge"] == ["B", "0"]
    assert items[0]["text"].startswith("Both sides")
    assert (items[0]["finished"], items[0]["num_tokens"]) == (False, 3)


def test_a_judge_that_dies_loses_nothing_and_a_finished_evaluation_needs_no_server(data, tmp_path):
    with ScriptedChat(policy) as server:
        with ScriptedChat(reads) as judge:
            judge.always = 500
            c = served(wanted(data), server, judge)
            c.judge.concurrency = 1
            code, printed = run(c, tmp_path)
        assert code == errors.AGAIN and "error: server" in printed and "16 answers" in printed
        asked = len(server.bodies)
        with ScriptedChat(reads) as judge:
            assert run(served(c, server, judge), tmp_path)[0] == 0
        assert len(server.bodies) == asked
    result = (tmp_path / "results.json").read_text()
    assert run(c, tmp_path)[0] == 0
    kept = tmp_path / "replies" / "judge.jsonl"
    kept.write_text(kept.read_text().splitlines(keepends=True)[0])
    code, printed = run(c, tmp_path)
    assert code == errors.AGAIN and "does not answer" in printed
    assert (tmp_path / "results.json").read_text() == result
    (tmp_path / "mathverse" / "answers.jsonl").unlink()
    code, printed = run(c, tmp_path)
    assert code == 2 and "does not answer" in printed


def test_missing_answers_of_a_server_stop_or_count_as_wrong_and_two_are_compared(data, tmp_path):
    with ScriptedChat(policy) as server, ScriptedChat(lambda body: "10") as other:
        c = served(wanted(data, "scienceqa", "chartqa"), server)
        server.faults = [400]
        code, printed = run(c, tmp_path)
        assert code == 2
        assert "1 of 2 answers are missing" in printed
        server.faults, c.allow_missing = [400], True
        code, printed = run(c, tmp_path)
        assert code == 0 and "they count as wrong" in printed
        assert "scienceqa: missing 1 of 2 answers" in printed
        c.allow_missing = False
        assert run(c, tmp_path)[0] == 0
        assert results.load(tmp_path / "scienceqa" / "result.json").counts["missing"] == 0
        c = served(wanted(data, "chartqa", compare=(str(tmp_path),)), other)
        code, printed = run(c, tmp_path / "other")
    assert code == 0 and "- chartqa: " in printed and "with paired 95 % intervals" in printed
    assert "so skipped: mathvista, mathverse, mathvision, scienceqa" in printed


# ------------------------------------------------------------------------------ a checkpoint
def test_a_checkpoint_goes_on_where_it_was_cut_off(data, tiny, tmp_path, monkeypatch):
    c = wanted(data, "mathvision")
    c.model.checkpoint, c.sampling.max_tokens = tiny, 3
    c.data.length_multiple = c.data.max_prompt_length = 256
    c.engine.prompts_per_call = 1
    monkeypatch.setattr(policies, "CHUNK", 1)
    held, write = [], evaluation.write_report  # the weights are gone: a judge may need their memory

    def watched(prepared):
        gc.collect()
        held.append(sum(x.nbytes for x in jax.live_arrays()))
        return write(prepared)

    monkeypatch.setattr(evaluation, "write_report", watched)
    gc.collect()
    before = sum(x.nbytes for x in jax.live_arrays())
    code, printed = run(c, tmp_path)
    assert code == 0, printed
    assert held[0] - before < pathlib.Path(tiny, "model.safetensors").stat().st_size / 2
    path = tmp_path / "mathvision" / "answers.jsonl"
    whole, report = path.read_text(), (tmp_path / "report.md").read_text()
    keys = [(f"mathvision:{n}", g) for n in (1, 2) for g in (0, 1)]
    assert [(a["uid"], a["sample"]) for a in lines(path)] == keys
    assert all(1 <= a["num_tokens"] <= 3 for a in lines(path))
    first, second = whole.splitlines(keepends=True)[:2]
    path.write_text(first + second + '{"uid": "mathvi')  # as a kill leaves it
    assert run(c, tmp_path)[0] == 0
    assert path.read_text() == whole
    assert (tmp_path / "report.md").read_text() == report
    c.sampling.temperature = 0.5
    code, printed = run(c, tmp_path)
    assert code == 2 and "sampling.temperature: 1.0 there, 0.5 now" in printed
    assert results.load(tmp_path / "mathvision" / "result.json").counts["missing"] == 0
    assert "MathVision (n=2 of 3040)" in report and "| model |" in report


def test_vllm_gets_the_directory_alone_and_one_engine_serves_all(data, tiny, tmp_path, monkeypatch):
    made = []

    class Engine(fake.FakeEngine):
        def __init__(self, engine, launched, *, model, longest, sampling, **options):
            items = (x for name in data for x in BENCHMARKS[name].read(data[name]))
            super().__init__({item.uid: 1.0 for item in items})
            made.append((engine.url, model, longest, sampling.max_tokens))

        def read(self, directory, version):
            made.append((directory, version))

        def generate(self, prompts, num_rollouts_M, key, version, sampling):
            made.append((list(num_rollouts_M), sampling.temperature))
            rollouts = super().generate(prompts, num_rollouts_M, key, version)
            valid_N = np.arange(len(rollouts.group_N)) != lost
            return rollouts.replace(valid_N=valid_N)

    lost = 1
    monkeypatch.setattr(engines, "VllmServerEngine", Engine)
    c = wanted(data, "mathvision", "chartqa")
    c.model.checkpoint = tiny
    c.engine.name, c.engine.url = "vllm_server", "http://localhost:1"
    code, printed = run(c, tmp_path)
    started = [("http://localhost:1", tiny, 2560, 2048), (tiny, 0)]
    assert made == [*started, ([2, 2], 1.0), ([1, 1], 0.0)]
    assert code == 2 and "mathvision: 1 of 4 answers are missing" in printed
    lost = -1
    made.clear()
    assert run(c, tmp_path)[0] == 0
    assert made == [*started, ([2, 2], 1.0), ([1, 1], 0.0)]


def test_the_command_takes_flags(data, tmp_path):
    with ScriptedChat(policy) as server:
        command = [
            *(sys.executable, "-m", "experiments.evaluate", "--config=configs/eval_paper.py"),
            *(f"--server={server.url}", "--model=m", "--rules", f"--workdir={tmp_path}"),
            *(f"--config.benchmarks.chartqa={data['chartqa']}", "--config.server.concurrency=1"),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ChartQA (n=2 of 2500)" in done.stdout and server.bodies[0]["model"] == "m"
