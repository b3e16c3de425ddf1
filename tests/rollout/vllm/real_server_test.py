"""The engine against a real vLLM server, float32 on a CPU: `make test-vllm`, 4 to 8 minutes."""

import collections
import contextlib
import dataclasses
import functools
import importlib.util
import json
import pathlib
import threading
import time

import httpx
import jax
import numpy as np
import pytest
from PIL import Image

from tests.rollout.vllm import proxy
from vade_jax import http
from vade_jax.data import prompts as rendered
from vade_jax.data import tokens
from vade_jax.models.qwen import files, model, tiny_checkpoint, weights
from vade_jax.rollout.engine import EngineFailure, Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.rollout.vllm import process
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import WeightDirectory
from vade_jax.trainer import minibatches, update
from vade_jax.types import Item

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="needs vLLM"),
]
KEY = jax.random.key(0)
LIMITS = {"min_pixels": 56 * 56, "max_pixels": 112 * 112}
T = 24


@dataclasses.dataclass(frozen=True)
class Setup:
    """A server on a tiny checkpoint, and what the trainer knows of it."""

    directory: pathlib.Path
    launched: process.LaunchedServer
    tokenizer: tokens.Tokenizer
    shape: object
    prompts: list

    def params(self, seed):
        return model.init(self.shape, jax.random.key(seed))

    def merge(self, params):
        return model.merge(model.graph(self.shape), params)

    def engine(self, scratch, servers=None, weights_type=WeightDirectory, **options):
        defaults = dict(
            model="policy",
            sampling=Sampling(max_tokens=T),
            stop_ids=self.tokenizer.stop_ids,
            banned_ids=self.tokenizer.banned_ids,
            tensors=functools.partial(weights.from_params, self.shape),
            weights=weights_type(scratch, np.float32),
            longest_prompt=128,
            timeout_s=120.0,
        )
        return VllmServerEngine(servers or [self.launched], **defaults | options)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vllm") / "model"
    shape = _checkpoint(directory)
    tokenizer = tokens.Tokenizer.load(directory)
    began = time.monotonic()
    launched = launch(directory, directory.parent / "vllm.log")
    print(f"\nstart-up: {time.monotonic() - began:.1f} s")
    yield Setup(directory, launched, tokenizer, shape, questions(tokenizer))
    launched.stop()


def launch(directory, log_path):
    return process.launch(
        directory,
        log_path=log_path,
        options={
            "served_model_name": "policy",
            "max_model_len": 512,
            "max_num_seqs": 64,
            "limit_mm_per_prompt": {"image": 2, "video": 0},
        },
        env={"VLLM_LOGGING_LEVEL": "WARNING"},
        start_s=240,
    )


@pytest.fixture(scope="module")
def engine(setup, tmp_path_factory):
    return setup.engine(tmp_path_factory.mktemp("weights"))


def _checkpoint(directory):
    """A tiny one with `LIMITS` on the sizes of images."""
    tiny_checkpoint.write(directory, seed=0)
    limit_pixels(directory, LIMITS)
    return files.load_config(directory)


def limit_pixels(directory, limits):
    """Writes the sizes of images into a checkpoint, under both names that processors know."""
    size = {"shortest_edge": limits["min_pixels"], "longest_edge": limits["max_pixels"]}
    path = directory / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | limits | {"size": size}))


def questions(tokenizer, **limits):
    """Two prompts without images, two with one, one with two."""
    rng = np.random.default_rng(0)
    picture = lambda *size: Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8))
    shown = [
        ("What is\n 2 + 2 ?", []),
        ("Count them: <image>. é?", [picture(100, 90)]),
        (
            "Which of <image> and <image> is larger",
            [picture(56, 112), picture(99, 200)],
        ),
        ("Name a colour.", []),
        ("What is this?", [picture(140, 60)]),
    ]
    build = rendered.PromptBuilder(
        tokenizer, instruction="Answer.", max_length=128, **(LIMITS | limits)
    )
    return [
        build(Item(uid=f"q{i}", question=q, images=tuple(p), answer="4", kind="int"))
        for i, (q, p) in enumerate(shown)
    ]


def difference(setup, params, rollouts, prompts, temperature=1.0, banned=None):
    """|trainer's log-prob - vLLM's| of every token that was answered."""
    (batch,) = minibatches.split(
        prompts,
        rollouts,
        np.zeros(len(rollouts.length_N)),
        minibatches.Shape(
            prompts_per_minibatch=len(prompts),
            prompts_per_microbatch=len(prompts),
            answers_per_row=4,
            length_multiple=16,
        ),
    )
    logp = update.make_logp(
        setup.merge,
        temperature=temperature,
        banned=setup.tokenizer.banned_ids if banned is None else banned,
        chunk=512,
        remat=False,
    )
    logp_ANT = jax.jit(update.make_logprobs(logp))(params, batch)
    inside_ANT = batch.mask_NT > 0
    return np.abs(np.asarray(logp_ANT) - batch.old_logp_NT)[inside_ANT]


def check_close(diff, what):
    print(f"\n{what}: mean {diff.mean():.1e}, max {diff.max():.1e}, {diff.size} tokens")
    assert diff.mean() <= 1e-4 and diff.max() <= 1e-3


def answer(engine, setup, version, *, count=8, key=KEY, **options):
    num_rollouts_M = np.full(len(setup.prompts), count)
    return engine.generate(setup.prompts, num_rollouts_M, key, version, **options)


# ------------------------------------------------------------------------------ policies
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_the_trainers_before_and_after_a_sync(setup, engine, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=T)
    found = []
    for version in (1, 2):
        params = setup.params(version)
        engine.sync(params, version)
        rollouts = answer(engine, setup, version, sampling=sampling)
        diff = difference(setup, params, rollouts, setup.prompts, temperature)
        check_close(diff, f"weights {version}, temperature {temperature}")
        assert not np.isin(rollouts.token_NT, setup.tokenizer.banned_ids).any()
        found.append(rollouts)
        print({name: round(x, 3) for name, x in engine.metrics().items()})
    others = difference(setup, setup.params(1), found[1], setup.prompts, temperature)
    assert others.mean() > 0.05  # the first weights do not explain the second answers


def test_answers_end_as_the_local_engines_do(setup, engine):
    """Greedy: token for token; the end token is there, and what follows it is padding."""
    params = setup.params(3)
    engine.sync(params, 3)
    greedy = Sampling(temperature=0, max_tokens=T)
    found = answer(engine, setup, 3, count=2, sampling=greedy)
    local = LocalEngine(
        setup.merge,
        params,
        sampling=greedy,
        stop_ids=setup.tokenizer.stop_ids,
        banned_ids=setup.tokenizer.banned_ids,
        answers_per_row=2,
        prompts_per_call=5,
        version=3,
    )
    expected = answer(local, setup, 3, count=2)
    for field in ("token_NT", "length_N", "group_N", "finished_N", "valid_N"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    np.testing.assert_allclose(found.logp_NT, expected.logp_NT, atol=1e-3)
    sampled = answer(engine, setup, 3, count=32)
    last_N = sampled.token_NT[np.arange(160), sampled.length_N - 1]
    ended_N = np.isin(last_N, setup.tokenizer.stop_ids)
    np.testing.assert_array_equal(sampled.finished_N, ended_N)
    assert 0 < ended_N.sum() < 160
    assert (sampled.length_N[~ended_N] == T).all()


def test_banned_tokens_are_never_drawn(setup, engine, tmp_path):
    """Also those that the policy likes best."""
    likes = answer_first(engine, setup)
    banned = (*setup.tokenizer.banned_ids, *map(int, likes))
    strict = setup.engine(tmp_path, banned_ids=banned)
    params = setup.params(1)
    strict.sync(params, 1)
    found = answer(strict, setup, 1, count=32)
    inside_NT = np.arange(T) < found.length_N[:, None]
    assert not np.isin(found.token_NT[inside_NT], banned).any()
    diff = difference(setup, params, found, setup.prompts, banned=banned)
    check_close(diff, f"{len(likes)} favourites banned")


def answer_first(engine, setup):
    """The tokens that answers of weights 1 begin with, but for the ends."""
    engine.sync(setup.params(1), 1)
    first = np.unique(answer(engine, setup, 1, count=16).token_NT[:, 0])
    return np.setdiff1d(first, setup.tokenizer.stop_ids)


def test_new_vision_weights_change_answers_to_images_alone(setup, engine):
    params, other = setup.params(1), setup.params(2)
    mixed = {**params, "vision": other["vision"]}
    greedy = Sampling(temperature=0, max_tokens=T)
    found = []
    for version, given in ((1, params), (2, mixed), (3, params)):
        engine.sync(given, version)
        found.append(answer(engine, setup, version, count=4, sampling=greedy))
        check_close(difference(setup, given, found[-1], setup.prompts), f"vision of {version}")
    before, after, restored = (rollouts.logp_NT for rollouts in found)
    shows_N = np.repeat([bool(prompt.images) for prompt in setup.prompts], 4)
    np.testing.assert_allclose(after[~shows_N], before[~shows_N], atol=1e-4)
    assert (np.abs(after - before)[shows_N].max(1) > 1e-2).all()
    np.testing.assert_allclose(restored, before, atol=1e-4)


def test_the_same_key_gives_the_same_answers(setup, engine):
    engine.sync(setup.params(1), 1)
    run = lambda seed: answer(engine, setup, 1, count=16, key=jax.random.key(seed)).token_NT
    first, again, other = run(0), run(0), run(1)
    same = (first == again).all(1).mean()
    print(f"\nanswers that are the same: {same:.0%}")
    assert same >= 0.95  # batches differ, and with them the rounding
    assert (first == other).all(1).mean() < 0.5
    assert len(np.unique(first[:16], axis=0)) > 8


# ------------------------------------------------------------------------------ mistakes
def test_images_of_other_limits_are_an_error(setup, engine):
    engine.sync(setup.params(1), 1)
    larger = questions(setup.tokenizer, max_pixels=224 * 224)
    with pytest.raises(EngineFailure, match=r"prompt 'q2'.* tokens of it, the trainer"):
        engine.generate(larger[2:3], np.array([2]), KEY, 1)


def test_what_is_left_is_ended_on_the_server(setup, engine):
    engine.sync(setup.params(1), 1)

    def on_group(m, answers):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answer(engine, setup, 1, count=64, on_group=on_group)
    for _ in range(50):
        if running(setup) == 0:
            break
        time.sleep(0.1)
    assert running(setup) == 0
    answer(engine, setup, 1)


def running(setup):
    """Answers that the server is making or holds back."""
    lines = httpx.get(f"{setup.launched.url}/metrics", timeout=10).text.splitlines()
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.split()[-1]) for line in lines if line.startswith(names))


# ------------------------------------------------------------------------------ deaths
@pytest.fixture
def two_more(setup, tmp_path):
    """Two servers of the same checkpoint."""
    launched = [launch(setup.directory, tmp_path / f"vllm_{i}.log") for i in (1, 2)]
    yield launched
    for server in launched:
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("num_servers", [1, 3])
def test_two_hundred_faults_leave_the_answers_of_a_faultless_run(
    setup, tmp_path, monkeypatch, request, num_servers
):
    """Greedy, so that answers can be compared; each step has other weights.

    Of three servers one is gone for good after the first hundred.
    """
    monkeypatch.setattr(http, "LONGEST_PAUSE_S", 1.0)
    greedy, seconds = Sampling(temperature=0, max_tokens=T), {}
    more = request.getfixturevalue("two_more") if num_servers == 3 else []
    with contextlib.ExitStack() as stack:
        proxies = [
            stack.enter_context(proxy.Proxy(server.url, seed, rate=0))
            for seed, server in enumerate([setup.launched, *more])
        ]
        counts = lambda: sum((one.counts for one in proxies), collections.Counter())
        options = dict(timeout_s=20.0, control_s=3.0, backoff_s=0.05, max_retries=50, wait_s=5.0)
        urls = [one.url for one in proxies]
        engine = setup.engine(tmp_path, servers=urls, sampling=greedy, **options)

        def steps(versions):
            """Returns the answers of each step, and that its groups were told of once."""
            found, began = [], time.monotonic()
            for version in versions:
                engine.sync(setup.params(version), version)
                groups = []
                on_group = lambda m, answers, groups=groups: groups.append((m, len(answers)))
                found.append(answer(engine, setup, version, count=4, on_group=on_group))
                assert sorted(groups) == [(m, 4) for m in range(len(setup.prompts))]
            return found, (time.monotonic() - began) / len(found)

        expected, seconds["without"] = steps(range(1, 6))
        for one in proxies:
            one.rate = 0.08  # two to four faults a step
        found, whole, taken = [], True, []
        while counts().total() < 200:
            if more and whole and counts().total() > 100:
                more[0].stop()
                whole = False
            again, one_step = steps(range(1, 6))
            found.append(again)
            taken.append(one_step)
        seconds["with"] = sum(taken) / len(taken)
        print(f"\n{len(found) * 5} steps, {dict(counts())}, seconds a step: {seconds}")
        metrics = engine.metrics()
        print(metrics)
    assert bool(more) == (metrics["rollout/servers_lost"] > 0)
    for run in found:
        for a, b in zip(run, expected, strict=True):
            for field in ("token_NT", "length_N", "group_N", "finished_N", "valid_N"):
                np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
            np.testing.assert_allclose(a.logp_NT, b.logp_NT, atol=1e-3)


def test_a_restart_between_batches_is_noticed(setup, engine):
    params = setup.params(2)
    engine.sync(params, 2)
    engine.metrics()
    setup.launched.restart()
    rollouts = answer(engine, setup, 2)
    check_close(difference(setup, params, rollouts, setup.prompts), "after a restart")
    assert engine.metrics()["rollout/resyncs"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["api_server", "EngineCore"])
def test_a_kill_in_the_middle_of_a_sync(setup, tmp_path, victim):
    """The weights are written, and about to be read."""

    class Killing(WeightDirectory):
        def write(self, *arguments):
            directory = super().write(*arguments)
            threading.Timer(0.02, kill, (setup, victim)).start()
            return directory

    engine, params = setup.engine(tmp_path, weights_type=Killing), setup.params(2)
    engine.sync(params, 2)
    rollouts = answer(engine, setup, 2)
    metrics = engine.metrics()
    print(f"\n{victim}: {metrics}")
    check_close(difference(setup, params, rollouts, setup.prompts), f"kill -9 {victim} in a sync")
    assert metrics["rollout/server_restarts"] == 1


@pytest.mark.parametrize("victim", ["api_server", "EngineCore"])
def test_a_kill_in_the_middle_of_a_batch(setup, engine, victim):
    params = setup.params(2)
    engine.sync(params, 2)
    engine.metrics()
    groups, prompts = [], setup.prompts * 4

    def on_group(m, answers):
        groups.append(m)
        if len(groups) == 3:
            kill(setup, victim)

    began = time.monotonic()
    rollouts = engine.generate(prompts, np.full(20, 64), KEY, 2, on_group=on_group)
    metrics = engine.metrics()
    print(f"\n{victim}: {time.monotonic() - began:.1f} s, {metrics}")
    assert metrics["rollout/server_restarts"] == 1 and metrics["rollout/resyncs"] == 1
    assert metrics["rollout/retries"] > 0
    assert sorted(groups) == list(range(20))
    np.testing.assert_array_equal(rollouts.group_N, np.repeat(np.arange(20), 64))
    check_close(difference(setup, params, rollouts, prompts), f"kill -9 {victim}")


def kill(setup, name):
    """Kill -9 of the server's process of that name."""
    import psutil  # vLLM brings it

    port = setup.launched.url.rsplit(":", 1)[1]
    (server,) = (
        p
        for p in psutil.process_iter(["cmdline"])
        if "vllm.entrypoints.openai.api_server" in (p.info["cmdline"] or [])[:3]
        and port in p.info["cmdline"]
    )
    if name == "api_server":
        server.kill()
    else:
        (child,) = (child for child in server.children() if name in " ".join(child.cmdline()))
        child.kill()
