"""A tiny checkpoint behind HTTP: the engine's own answers, whoever else asks."""

import base64
import concurrent.futures
import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import jax
import numpy as np
import pytest
from PIL import Image

from configs import default
from configs import serve as configs
from experiments import serve
from experiments.serving import decoding
from tests.experiments import evaluate_test
from tests.models.qwen25vl import oracle
from vade_jax.data import prompts, tokens
from vade_jax.evals import results
from vade_jax.models.qwen25vl import files, model, weights
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.types import Item

tiny, data = evaluate_test.tiny, evaluate_test.data
LENGTH = 8  # tokens
PIXELS = {"min_pixels": 3136, "max_pixels": 112 * 112}


def config(checkpoint, **changes):
    c = configs.get_config()
    c.port, c.model_name = 0, "policy"
    c.model.checkpoint = checkpoint
    c.sampling.max_tokens, c.limits.max_tokens = LENGTH, 64
    c.engine.prompts_per_call, c.window_ms = 4, 100.0
    c.data.update(PIXELS)
    c.data.max_prompt_length = c.data.length_multiple = 128
    c.update(changes)
    return c


@pytest.fixture(scope="module")
def random(tiny, tmp_path_factory):
    """The tiny checkpoint with weights so large that each question has an answer of its own."""
    directory = shutil.copytree(tiny, tmp_path_factory.mktemp("random") / "model")
    shape = files.load_config(directory)
    tensors = oracle.random_tensors(shape, seed=19)
    files.save(directory, shape, weights.to_params(shape, tensors))
    return str(directory)


@pytest.fixture(scope="module")
def server(random):
    with serve.serving(config(random)) as made:
        yield made


def post(server, **body):
    """Returns the status and the JSON of the reply."""
    data = json.dumps({"model": "policy"} | body).encode()
    url = f"{server.url}/v1/chat/completions"
    try:
        with urllib.request.urlopen(url, data, timeout=300) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def user(text, image=None):
    content = [{"type": "text", "text": text}]
    if image is not None:
        file = io.BytesIO()
        image.save(file, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        content.insert(0, {"type": "image_url", "image_url": {"url": url}})
    return [{"role": "user", "content": content}]


def said(server, **body):
    status, content = post(server, **body)
    assert status == 200, content
    return [choice["message"]["content"] for choice in content["choices"]]


def picture(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (100, 60, 3), np.uint8)
    return Image.fromarray(pixels)


ITEMS = [
    Item("a", "What colour is the square?", (), "", "text"),
    Item("b", "How many red dots are left?", (picture(0),), "", "text"),
    Item("c", "How many?", (picture(1),), "", "text"),
]


@pytest.fixture(scope="module")
def greedy(random):
    """The engine's own answers to `ITEMS`, one at a time: prompt, tokens, text."""
    tokenizer = tokens.Tokenizer.load(random)
    shape, params = files.load(random)
    engine = LocalEngine(
        functools.partial(model.merge, model.graph(shape)),
        params,
        sampling=Sampling(temperature=0.0, max_tokens=LENGTH),
        stop_ids=tokenizer.stop_ids,
        banned_ids=tokenizer.banned_ids,
        answers_per_row=1,
        prompts_per_call=1,
        length_multiple=128,
    )
    build = prompts.PromptBuilder(tokenizer, instruction="", max_length=128, **PIXELS)
    built = [build(item) for item in ITEMS]
    found = [engine.generate([p], [1], jax.random.key(0), 0) for p in built]
    ids = [r.token_NT[0, : r.length_N[0]] for r in found]
    texts = [tokenizer.decode(each) for each in ids]
    assert len(set(texts)) == len(ITEMS)
    return list(zip(built, ids, texts, strict=True))


def asked(item):
    return user(item.question, *item.images)


# ------------------------------------------------------------------------------ answers
def test_greedy_answers_are_the_engines(server, greedy):
    for item, (prompt, ids, text) in zip(ITEMS, greedy, strict=True):
        status, content = post(server, messages=asked(item), temperature=0)
        assert status == 200
        (choice,) = content["choices"]
        assert choice["message"] == {"role": "assistant", "content": text}
        assert choice["finish_reason"] == ("stop" if len(ids) < LENGTH else "length")
        usage = [prompt.length, len(ids), prompt.length + len(ids)]
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        assert [content["usage"][name] for name in names] == usage
        assert (content["object"], content["model"]) == ("chat.completion", "policy")


def test_requests_in_flight_are_one_call_with_the_same_answers(
    server, greedy, monkeypatch
):
    calls, decode = [], decoding.Decoder.__call__

    def counted(self, jobs):
        calls.append(len(jobs))
        return decode(self, jobs)

    monkeypatch.setattr(decoding.Decoder, "__call__", counted)
    ask = lambda item: said(server, messages=asked(item), temperature=0)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, [*ITEMS, ITEMS[0]]))
    assert found == [[text] for _, _, text in [*greedy, greedy[0]]]
    assert sum(calls) == 4 and len(calls) < 4


def test_a_seed_gives_its_answers_whatever_else_is_in_flight(server):
    drawn = dict(messages=asked(ITEMS[1]), temperature=1.0, n=3)
    alone = said(server, seed=7, **drawn)
    others = [dict(seed=8), {}, dict(seed=7), dict(seed=7, user="me"), {}]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        found = list(pool.map(lambda more: said(server, **drawn, **more), others))
    assert found[2] == found[3] == alone
    assert len({tuple(x) for x in (alone, found[0], found[1], found[4])}) == 4
    assert all(len(set(x)) > 1 for x in found)


def test_a_stop_cuts_the_text_before_it(server, greedy):
    _, ids, text = greedy[1]
    stop = text[len(text) // 2 :][:2]
    status, content = post(
        server, messages=asked(ITEMS[1]), temperature=0, stop=["no such", stop]
    )
    (choice,) = content["choices"]
    assert status == 200 and choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert 1 <= content["usage"]["completion_tokens"] < len(ids)


def test_an_answer_is_no_longer_than_asked(server, greedy):
    _, content = post(server, messages=asked(ITEMS[0]), temperature=0, max_tokens=3)
    assert content["usage"]["completion_tokens"] == 3
    assert content["choices"][0]["finish_reason"] == "length"
    assert greedy[0][2].startswith(content["choices"][0]["message"]["content"])


def test_a_stream_is_the_whole_answer_in_one_event(server, greedy):
    body = {"model": "policy", "messages": asked(ITEMS[0]), "temperature": 0}
    data = json.dumps(body | {"stream": True}).encode()
    url = f"{server.url}/v1/chat/completions"
    with urllib.request.urlopen(url, data, timeout=300) as reply:
        event, end, _ = reply.read().decode().split("\n\n")
    content = json.loads(event.removeprefix("data: "))
    assert content["object"] == "chat.completion.chunk" and end == "data: [DONE]"
    assert content["choices"][0]["delta"]["content"] == greedy[0][2]


def test_models_and_refusals(server):
    with urllib.request.urlopen(f"{server.url}/v1/models", timeout=30) as reply:
        (card,) = json.loads(reply.read())["data"]
    assert (card["id"], card["max_model_len"]) == ("policy", 128 + 64)
    cases = [
        (404, dict(model="other")),
        (400, dict(n=5)),
        (400, dict(messages=user("dots " * 200))),
        (400, dict(messages=user("x", Image.new("RGB", (1, 50))))),
        (400, dict(logprobs=True)),
    ]
    for wanted, change in cases:
        status, content = post(server, **{"messages": asked(ITEMS[0]), **change})
        assert status == wanted and content["error"]["message"], content


def test_our_own_evaluation_takes_it(server, data, tmp_path):
    c = evaluate_test.wanted(data, "scienceqa", "chartqa")
    c.server.url, c.server.model = server.url, "policy"
    code, printed = evaluate_test.run(c, tmp_path)
    assert code == 0, printed
    result = results.load(tmp_path / "chartqa" / "result.json")
    assert result.correct_MG.shape == (2, 1) and result.counts["missing"] == 0


# ------------------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model.checkpoint", "", "no policy given: --checkpoint=DIR"),
        ("model.checkpoint", "nowhere", "nowhere is no directory"),
        ("model.dtype", "float8", "model.dtype='float8'"),
        ("port", 70000, "port=70000: must be in 0 .. 65535"),
        ("sampling.max_tokens", 65, "is more than limits.max_tokens=64"),
        ("data.min_pixels", 1, "data.min_pixels=1: must be in"),
    ],
)
def test_mistakes_are_one_line(tiny, monkeypatch, capsys, name, value, message):
    monkeypatch.setattr(serve.checkpoint, "load", lambda *_: pytest.fail("loaded"))
    c = config(tiny)
    c.update_from_flattened_dict({name: value})
    with pytest.raises(SystemExit) as end:
        serve.main(c)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error


def test_a_training_config_is_one_line():
    with pytest.raises(ValueError, match="not a server's: use configs/serve"):
        serve.check(default.get_config())


def test_a_taken_port_is_found_before_weights_are_read(tiny, monkeypatch, capsys):
    monkeypatch.setattr(serve.checkpoint, "load", lambda *_: pytest.fail("loaded"))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit):
            serve.main(config(tiny, port=port))
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "myhost"])
def test_other_hosts_are_warned_of(host, capsys):
    for own in ("127.0.0.1", "127.1.2.3", "localhost", "::1"):
        serve.warn_of_others(own)
    assert capsys.readouterr().err == ""
    serve.warn_of_others(host)
    assert "there is no authentication" in capsys.readouterr().err


def test_the_model_is_named_after_its_directory():
    assert serve.model_name(config("runs/qwen/", model_name="")) == "qwen"
    assert serve.model_name(config("runs/qwen", model_name="m")) == "m"


# ------------------------------------------------------------------------------ the command
def command(*arguments):
    line = [sys.executable, "-m", "experiments.serve", "--config.port=0", *arguments]
    return subprocess.Popen(
        line,
        cwd=evaluate_test.ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_answers_and_ends_when_told(tmp_path, tiny):
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "policy").symlink_to(tiny)
    with command(f"--checkpoint={run}", "--config.sampling.max_tokens=4") as process:
        try:
            line = process.stdout.readline()
            found = re.match(
                r"serving mine at (http://127\.0\.0\.1:\d+)/v1; try: curl", line
            )
            assert found, line + process.stderr.read()
            hello = {"model": "mine", "messages": [{"role": "user", "content": "Hi"}]}
            data = json.dumps(hello).encode()
            url = f"{found[1]}/v1/chat/completions"
            with urllib.request.urlopen(url, data, timeout=300) as reply:
                assert json.loads(reply.read())["usage"]["completion_tokens"] <= 4
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, error
    assert "replies by status: {200: 1}" in out
