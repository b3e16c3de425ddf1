"""The engine against a scripted server that fails in every way; sleeping is only tested here."""

import functools
import threading

import jax
import numpy as np
import pytest

from tests.http_server import BASE, STOP, ScriptedVllm, question
from vade_jax import settings
from vade_jax.rollout.engine import Answer, EngineFailure, EngineLost, Sampling, to_rollouts
from vade_jax.rollout.vllm import requests, sync
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.types import Rollouts

PROMPTS = [question("p" * (m + 1)) for m in range(8)]
COUNTS = np.array([3, 1, 0, 66, 2, 5, 4, 2])
KEY = jax.random.key(0)
RELOAD = [
    "/abort_requests",
    "/collective_rpc",
    "/reset_prefix_cache?reset_running_requests=true",
    "/reset_encoder_cache",
    "/update_weight_version",
]


@pytest.fixture
def start():
    """Starts scripted servers, and ends them."""
    servers = []

    def start(**options):
        servers.append(ScriptedVllm(PROMPTS, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
        assert not server.problems


@pytest.fixture
def connect(monkeypatch, tmp_path):
    """Makes engines on servers, with weights 1 unless `synced` is false; they ask again soon."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05, raising=False)
    monkeypatch.setattr("vade_jax.rollout.vllm.server._POLL_S", 0.1)
    engines = []

    def connect(server, *, launched=None, synced=True, sleep=False, model="policy", **options):
        section = dict(max_in_flight=16, timeout_s=5.0, start_s=5.0, retries=2)
        engines.append(
            VllmServerEngine(
                settings.Engine(name="vllm_server", url=server.url, **section | options),
                launched,
                model=model,
                sampling=Sampling(max_tokens=6),
                stop_ids=(STOP, 6),
                banned_ids=(5,),
                tensors=lambda params: [("weight", params)],
                directory=tmp_path / "weights",
                dtype=np.dtype(np.float32),
                longest=16,
                sleep=sleep,
            )
        )
        if synced:
            engines[-1].sync(np.ones(2, np.float32), 1)
        return engines[-1]

    yield connect
    for engine in engines:
        engine.close()


class Launched:
    """What `process.launch` returns, around a scripted server."""

    log_path = "runs/x/vllm.log"

    def __init__(self, server):
        self.server, self.url = server, server.url

    def alive(self):
        return self.server.running

    def stop(self):
        self.server.kill()


def check(rollouts, counts=COUNTS, weights=1):
    """Every answer is there once, whole, in its place, and of these weights."""
    np.testing.assert_array_equal(rollouts.group_N, np.repeat(np.arange(len(counts)), counts))
    serial_N, weights_N, place_N, stop_N = rollouts.token_NT[:, :4].T
    assert len(np.unique(serial_N)) == counts.sum()
    assert (weights_N == weights).all() and (stop_N == STOP).all()
    np.testing.assert_array_equal(place_N, np.concatenate([np.arange(n) for n in counts]))
    assert (rollouts.length_N == 4).all() and rollouts.finished_N.all()


# ------------------------------------------------------------------------------ answers
def test_every_prompt_gets_its_answers_once(start, connect):
    server = start(seconds=0.01)
    engine, groups = connect(server), {}

    def on_group(m, answers):
        assert m not in groups
        groups[m] = [answer.tolist() for answer in answers]

    rollouts = engine.generate(PROMPTS, COUNTS, KEY, 1, on_group=on_group)
    check(rollouts)
    expected = np.array(requests.seeds(COUNTS, KEY))[COUNTS > 0]
    assert sorted(body["seed"] for body in server.chats()) == sorted(expected)
    assert rollouts.params_version == 1
    np.testing.assert_allclose(rollouts.logp_NT[:, :4], [[-0.5, -0.75, -1, -1.25]] * 83)
    assert not rollouts.logp_NT[:, 4:].any() and (rollouts.token_NT[:, 4:] == STOP).all()
    for m in range(8):
        assert groups[m] == rollouts.token_NT[rollouts.group_N == m, :4].tolist()


def test_evaluation_may_sample_in_its_own_way(start, connect):
    server = start()
    engine = connect(server)
    greedy = Sampling(temperature=0, max_tokens=9)
    found = engine.generate(PROMPTS[:2], [3, 2], KEY, 1, greedy)
    assert found.token_NT.shape == (5, 9)
    assert len(np.unique(found.token_NT[:, 0])) == 2  # one greedy answer a prompt
    assert {body["temperature"] for body in server.chats()} == {0}
    assert engine.generate(PROMPTS[:2], [0, 0], KEY, 1).token_NT.shape == (0, 6)


@pytest.mark.parametrize("fault", [500, 429, "drop", "cut", "hang"])
def test_a_request_that_fails_is_made_again(start, connect, fault):
    server = start()
    engine = connect(server, timeout_s=0.5)
    server.faults = [None, fault]
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert len(server.chats()) == 8


# ------------------------------------------------------------------------------ weights
def test_new_weights_are_loaded_and_caches_are_dropped(start, connect):
    server = start()
    engine = connect(server)
    for _ in range(2):  # the same version again is loaded again
        engine.sync(np.zeros(2, np.float32), 2)
    assert server.paths() == RELOAD * 3
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)


def test_a_checkpoint_that_is_there_is_read(start, connect, tmp_path):
    """Nothing is written, and nothing of what was read is removed at the end."""
    published = [("weight", np.ones(2, np.float32))]
    path = sync.write(published, tmp_path / "published", 7, np.dtype(np.float32))
    engine = connect(start(), synced=False)
    engine.read(path, 0)
    assert not (tmp_path / "weights").exists()
    check(engine.generate(PROMPTS, COUNTS, KEY, 0), weights=7)
    engine.close()
    assert list((tmp_path / "published").iterdir())


def test_weights_of_another_version_are_an_error(start, connect):
    server = start()
    engine = connect(server, synced=False)
    with pytest.raises(ValueError, match=r"weights 0 were asked for.*version None"):
        engine.generate(PROMPTS, COUNTS, KEY, 0)
    engine.sync(np.ones(2, np.float32), 3)
    server.load_faults = [500] * 3
    with pytest.raises(EngineLost, match="no tensor of that name"):
        engine.sync(np.ones(2, np.float32), 4)
    with pytest.raises(ValueError, match="version None"):
        engine.generate(PROMPTS, COUNTS, KEY, 3)


# ------------------------------------------------------------------------------ ends
def forget(server):
    """Another process with the first weights takes over, in the middle of a batch."""
    server.faults = [None, None, "forget"]


def restart(server):
    """The same between two batches."""
    server.kill()
    server.start()
    assert server.weights == BASE


def die(server):
    server.faults = [None, "die"]


def fail(server):
    server.always = 500


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (forget, "it has 'default'"),
        (restart, "it has 'default'"),
        (die, "Connection"),
        (fail, "out of luck"),
    ],
)
def test_a_server_that_is_lost_ends_the_call(start, connect, what, words):
    """Whatever answers there are, of these weights or others, are dropped."""
    server = start(seconds=0.01)
    engine = connect(server, launched=Launched(server))
    what(server)
    with pytest.raises(EngineLost, match=rf"server http.*, log runs/x/vllm.log.*{words}"):
        engine.generate(PROMPTS, COUNTS, KEY, 1)


def test_other_tokens_than_the_trainers_end_the_call(start, connect):
    server = start(seconds=0.02)
    engine = connect(server, max_in_flight=2)
    server.token_ids[PROMPTS[3].text] = [1, 2, 3, 4]
    with pytest.raises(EngineFailure, match=r"'pppp'.*4 tokens of it, the trainer 3") as caught:
        engine.generate(PROMPTS, COUNTS, KEY, 1)
    assert not isinstance(caught.value, EngineLost)  # another server would say the same


def test_only_a_launched_server_is_stopped(start, connect):
    given, launched = start(), start()
    connect(given).close()
    connect(launched, launched=Launched(launched)).close()
    assert given.running and not launched.running


# ------------------------------------------------------------------------------ sleep
def test_the_server_sleeps_while_the_trainer_works(start, connect):
    server = start()
    server.asleep = True  # left so by a run that was killed
    engine = connect(server, sleep=True)
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert server.asleep
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))  # an evaluation
    engine.sync(np.zeros(2, np.float32), 2)
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)
    nap = ["/sleep?level=1", "/wake_up"]
    assert server.paths() == ["/wake_up", *RELOAD, *nap, *nap, *RELOAD, "/sleep?level=1"]


# ------------------------------------------------------------------------------ start-up
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "other"}, r"HTTP 404: The model `policy` does not exist"),
        ({"max_model_len": 15}, r"HTTP 400: This model's maximum context length is 15"),
        ({"dev_mode": False}, r"HTTP 404.*VLLM_SERVER_DEV_MODE=1"),
        ({"processed": False}, r"raw logits.*--logprobs-mode processed_logprobs"),
        ({"trusting": False}, r"--trust-request-chat-template is not set"),
    ],
)
def test_a_server_that_cannot_serve_is_an_error_at_once(start, connect, options, words):
    with pytest.raises(ValueError, match=rf"server http://127.0.0.1.*{words}"):
        connect(start(**options), synced=False)


def test_a_server_that_is_still_starting_is_waited_for_and_one_that_is_not_there_is_lost(
    start, connect
):
    server = start()
    server.kill()
    with pytest.raises(EngineLost, match=r"not ready after 1 s \(engine.start_s\).*Connection"):
        connect(server, start_s=1.0, synced=False)
    with pytest.raises(EngineFailure, match=r"vllm.log, has ended without .*engine.options"):
        connect(server, launched=Launched(server), synced=False)
    threading.Timer(0.6, server.start).start()
    check(connect(server).generate(PROMPTS, COUNTS, KEY, 1))


# ------------------------------------------------------------------------------ plain data
def test_seeds_come_from_the_key_and_the_answers_number():
    plan = lambda counts, seed: requests.seeds(np.array(counts), jax.random.key(seed))
    assert plan([2, 3], 1) == plan([2, 3, 4], 1)[:2]
    assert {*plan([2, 3], 1)}.isdisjoint(plan([2, 3], 2))
    seeds = plan([8] * 100, 0)
    assert len({*seeds}) == 100 and all(0 <= seed < 2**62 for seed in seeds)
    assert max(seeds) > 2**56


def test_the_layout_is_the_local_engines():
    answers = [
        Answer(np.array([3, 7]), np.array([-1.0, -2.0]), True),
        Answer(np.array([4, 4, 4]), np.array([-3.0, -4.0, -5.0]), False),
    ]
    found = to_rollouts(answers, np.array([1, 0, 1]), max_tokens=3, pad=7, params_version=4)
    expected = Rollouts(
        token_NT=np.array([[3, 7, 7], [4, 4, 4]], np.int32),
        length_N=np.array([2, 3], np.int32),
        logp_NT=np.array([[-1, -2, 0], [-3, -4, -5]], np.float32),
        group_N=np.array([0, 2], np.int32),
        finished_N=np.array([True, False]),
        valid_N=np.ones(2, bool),
        params_version=np.array(4, np.int32),
    )
    same = functools.partial(np.testing.assert_array_equal, strict=True)
    jax.tree.map(same, found, expected)
