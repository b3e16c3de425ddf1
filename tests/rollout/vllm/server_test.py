"""The engine against scripted servers that fail in every way; sleeping is only tested here."""

import collections
import contextlib
import os
import threading
import time

import jax
import numpy as np
import pytest

from tests.http_server import BASE, STOP, Relaunched, ScriptedVllm, question
from tests.rollout.vllm import proxy
from vade_jax import http
from vade_jax.rollout.engine import Answer, EngineFailure, Sampling, to_rollouts
from vade_jax.rollout.vllm import client
from vade_jax.rollout.vllm import server as engines
from vade_jax.rollout.vllm.server import VllmServerEngine
from vade_jax.rollout.vllm.sync import WeightDirectory

PROMPTS = [question("p" * (m + 1)) for m in range(8)]
COUNTS = np.array([3, 1, 0, 66, 2, 5, 4, 2])
KEY = jax.random.key(0)
RELOAD = [
    "/abort_requests",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/reset_mm_cache",
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
def connect(tmp_path):
    """Makes engines on servers, with weights 1 unless `synced` is false."""
    engines = []

    def connect(*servers, synced=True, **options):
        defaults = dict(
            model="policy",
            sampling=Sampling(max_tokens=6),
            stop_ids=(STOP, 6),
            banned_ids=(5,),
            tensors=lambda params: [("weight", params)],
            weights=WeightDirectory(tmp_path / "weights", np.float32),
            longest_prompt=10,
            timeout_s=5.0,
            wait_s=5.0,
            control_s=1.0,
            backoff_s=0.01,
        )
        targets = [s.url if isinstance(s, ScriptedVllm) else s for s in servers]
        engines.append(VllmServerEngine(targets, **defaults | options))
        if synced:
            engines[-1].sync(np.ones(2, np.float32), 1)
        return engines[-1]

    yield connect
    for engine in engines:
        engine.close()


def check(rollouts, counts=COUNTS, weights=1):
    """Every answer is there once, whole, in its place, and of these weights."""
    np.testing.assert_array_equal(rollouts.group_N, np.repeat(np.arange(len(counts)), counts))
    serial_N, weights_N, place_N, stop_N = rollouts.token_NT[:, :4].T
    assert len(np.unique(serial_N)) == counts.sum()
    assert (weights_N == weights).all() and (stop_N == STOP).all()
    expected = np.concatenate([np.arange(count) % 64 for count in counts])
    np.testing.assert_array_equal(place_N, expected)
    assert (rollouts.length_N == 4).all() and rollouts.finished_N.all()


def counted(engine):
    """The metrics that are not zero, without seconds."""
    metrics = engine.metrics()
    return {
        name: value for name, value in metrics.items() if value and not name.startswith("timing_s/")
    }


# ------------------------------------------------------------------------------ answers
def test_every_prompt_gets_its_answers_once(start, connect):
    servers = [start(seconds=0.01) for _ in range(3)]
    engine = connect(*servers)
    groups = {}

    def on_group(m, answers):
        assert m not in groups
        groups[m] = [answer.tolist() for answer in answers]

    rollouts = engine.generate(PROMPTS, COUNTS, KEY, 1, on_group=on_group)
    check(rollouts)
    seeds = {body["seed"] for server in servers for body in server.chats()}
    assert seeds == {one.seed for one in engines.make_requests(COUNTS, KEY)}
    assert rollouts.params_version == 1
    np.testing.assert_allclose(rollouts.logp_NT[:, :4], [[-0.5, -0.75, -1, -1.25]] * 83)
    assert not rollouts.logp_NT[:, 4:].any() and (rollouts.token_NT[:, 4:] == STOP).all()
    for m in range(8):
        expected = rollouts.token_NT[rollouts.group_N == m, :4].tolist()
        assert groups[m] == expected
    asked = [len(server.chats()) for server in servers]
    assert sum(asked) == 8 and max(asked) <= 4, asked  # 66 answers are two requests
    assert counted(engine) == {}


def test_no_more_requests_in_flight_than_allowed(start, connect):
    server = start(seconds=0.03)
    engine = connect(server, max_in_flight=3)
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert server.most_in_flight == 3


def test_evaluation_may_sample_in_its_own_way(start, connect):
    server = start()
    engine = connect(server)
    greedy = Sampling(temperature=0, max_tokens=9)
    found = engine.generate(PROMPTS[:2], [3, 2], KEY, 1, greedy)
    assert found.token_NT.shape == (5, 9)
    assert len(np.unique(found.token_NT[:, 0])) == 2  # one greedy answer a prompt
    assert {body["temperature"] for body in server.chats()} == {0}
    assert engine.generate(PROMPTS[:2], [0, 0], KEY, 1).token_NT.shape == (0, 6)
    with pytest.raises(ValueError, match=r"'pp' of 3 tokens.*max_tokens=510.*=512"):
        engine.generate(PROMPTS[1:2], [1], KEY, 1, Sampling(max_tokens=510))


# ------------------------------------------------------------------------------ weights
def test_new_weights_go_to_every_server_and_caches_are_dropped(start, connect):
    servers = [start(), start()]
    engine = connect(*servers)
    assert [server.paths() for server in servers] == [RELOAD, RELOAD]
    for _ in range(2):  # the same version again is loaded again
        engine.sync(np.zeros(2, np.float32), 2)
    assert [server.paths() for server in servers] == [RELOAD * 3, RELOAD * 3]
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)
    metrics = engine.metrics()
    assert metrics["timing_s/sync_write"] > 0 < metrics["timing_s/sync_load"]
    assert "timing_s/sync_write" not in engine.metrics()


def test_a_checkpoint_that_is_there_is_read_by_every_server(start, connect, tmp_path):
    """Nothing is written, and nothing of what was read is removed at the end."""
    checkpoint = WeightDirectory(tmp_path / "published", np.float32)
    path = checkpoint.write([("weight", np.ones(2, np.float32))], 7)
    servers = [start(), start()]
    engine = connect(*servers, synced=False)
    engine.read(path, 0)
    assert [server.paths() for server in servers] == [RELOAD, RELOAD]
    assert not list((tmp_path / "weights").iterdir())
    check(engine.generate(PROMPTS, COUNTS, KEY, 0), weights=7)
    engine.close()
    assert os.path.isdir(path)


def test_weights_of_another_version_are_an_error(start, connect):
    engine = connect(start(), synced=False)
    with pytest.raises(ValueError, match=r"weights 0 were asked for.*version None"):
        engine.generate(PROMPTS, COUNTS, KEY, 0)
    engine.sync(np.ones(2, np.float32), 3)
    with pytest.raises(ValueError, match=r"weights 2 were asked for.*version 3"):
        engine.generate(PROMPTS, COUNTS, KEY, 2)


@pytest.mark.parametrize("fault", [500, "die", "blocked"])
def test_a_sync_that_fails_is_repeated(start, connect, fault):
    server = start()
    relaunched = Relaunched(server)
    engine = connect(relaunched)
    server.load_faults = [fault]
    engine.sync(np.zeros(2, np.float32), 2)
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)
    found = counted(engine)
    assert found.pop("rollout/retries") == 1
    assert found == ({"rollout/server_restarts": 1} if fault == "die" else {})


def test_a_sync_that_no_server_takes_ends_the_run(start, connect):
    server = start()
    engine = connect(server, max_retries=2)
    server.load_faults = [500] * 3
    with pytest.raises(EngineFailure, match=r"no vLLM server is left.*no tensor of that"):
        engine.sync(np.zeros(2, np.float32), 2)
    with pytest.raises(ValueError, match="version None"):
        engine.generate(PROMPTS, COUNTS, KEY, 2)
    engine.sync(np.zeros(2, np.float32), 2)
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)


def test_a_server_that_restarted_between_batches_gets_the_weights_again(start, connect):
    servers = [start(), start()]
    engine = connect(*servers)
    servers[1].kill()
    servers[1].start()
    assert servers[1].weights == BASE
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert counted(engine) == {"rollout/resyncs": 1}
    assert servers[1].paths() == RELOAD * 2


def test_answers_of_old_weights_are_thrown_away(start, connect):
    """The server changes its process behind our back, and answers as if nothing happened."""
    server = start(seconds=0.01)
    engine = connect(server, max_in_flight=2)
    server.faults = [None, None, "forget"]
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    found = counted(engine)
    assert found["rollout/resyncs"] == 1
    assert found["rollout/retries"] >= 1 and found["rollout/discarded_answers"] >= 1


def test_answers_begun_with_old_weights_are_thrown_away(start, connect):
    """The second one ends when the server holds the right weights again."""
    server = start(seconds=0.2)
    engine = connect(server, max_in_flight=2)
    server.faults = ["forget", "slow"]
    check(engine.generate(PROMPTS[:2], COUNTS[:2], KEY, 1), COUNTS[:2])
    assert counted(engine) == {
        "rollout/retries": 2,
        "rollout/resyncs": 1,
        "rollout/discarded_answers": 4,
    }


def test_another_run_on_the_same_server_is_noticed(start, connect):
    server = start()
    first, second = connect(server), connect(server, synced=False)
    second.sync(np.zeros(2, np.float32), 1)
    check(first.generate(PROMPTS, COUNTS, KEY, 1))
    assert counted(first) == {"rollout/resyncs": 1}


# ------------------------------------------------------------------------------ faults
@pytest.mark.parametrize("fault", [500, "drop", "short", "abort"])
def test_a_request_that_fails_is_made_again(start, connect, fault):
    server = start()
    engine = connect(server)
    server.faults = [None, fault, None, fault]
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert counted(engine) == {"rollout/retries": 2}
    assert len(server.chats()) == 10
    assert counted(engine) == {}


def test_a_hanging_request_is_made_again(start, connect):
    server = start()
    engine = connect(server, timeout_s=0.3)
    server.faults = ["hang"]
    began = time.monotonic()
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert 0.3 < time.monotonic() - began < 30  # the server would hang for 60
    assert counted(engine) == {"rollout/retries": 1}


def test_others_take_over_from_a_server_that_always_fails(start, connect):
    bad, good = start(), start()
    engine = connect(bad, good, max_in_flight=1)
    bad.always = 500
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert len(good.chats()) == 8


def test_a_launched_server_that_dies_is_started_again(start, connect):
    server, other = start(seconds=0.02), start(seconds=0.02)
    relaunched = Relaunched(server)
    engine = connect(relaunched, other, max_in_flight=4)
    server.faults = [None, "die"]
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    found = counted(engine)
    assert found["rollout/server_restarts"] == relaunched.restarts == 1
    assert found["rollout/resyncs"] == 1 and 1 <= found["rollout/retries"] <= 2
    assert server.weights == 1


def test_a_launched_server_that_is_deaf_is_started_again(start, connect):
    server = start()
    engine = connect(Relaunched(server), timeout_s=0.3, control_s=0.2)
    server.deaf = True
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert counted(engine)["rollout/server_restarts"] == 1


def test_a_given_server_that_dies_is_waited_for(start, connect):
    server = start()
    engine = connect(server)
    server.faults = [None, "die"]
    threading.Timer(0.7, server.start).start()
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    found = counted(engine)
    assert found["rollout/resyncs"] == 1 and "rollout/server_restarts" not in found


def test_a_given_server_that_is_gone_is_left_out(start, connect):
    gone, other = start(), start()
    engine = connect(gone, other, wait_s=0.3)
    gone.faults = ["die"]
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert counted(engine)["rollout/servers_lost"] == 1
    engine.sync(np.zeros(2, np.float32), 2)  # not held up by it
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)
    gone.start()
    engine.sync(np.zeros(2, np.float32), 3)
    check(engine.generate(PROMPTS, COUNTS, KEY, 3), weights=3)
    assert gone.weights == 3 and counted(engine) == {}


@pytest.mark.parametrize(
    ("launched", "words"),
    [(False, "did not come back"), (True, "without being healthy")],
)
def test_without_any_server_the_run_ends(start, connect, launched, words):
    server = start()
    target = Relaunched(server, comes_back=False) if launched else server
    engine = connect(target, wait_s=0.3)
    server.faults = ["die"]
    with pytest.raises(EngineFailure, match=rf"no vLLM server is left.*{words}"):
        engine.generate(PROMPTS, COUNTS, KEY, 1)


def test_retries_are_bounded(start, connect):
    server = start()
    engine = connect(Relaunched(server), max_retries=2)
    server.always = 500
    words = r"prompt 'p+': no answer in 3 tries.*server http.*log runs/x/vllm.log: HTTP 500: out"
    with pytest.raises(EngineFailure, match=words):
        engine.generate(PROMPTS, COUNTS, KEY, 1)
    assert len(server.chats()) <= 8 * 3


def test_answers_survive_any_mixture_of_faults(start, connect):
    rng = np.random.default_rng(0)
    servers = [start(seconds=0.005) for _ in range(3)]
    relaunched = [Relaunched(server) for server in servers]
    engine = connect(*relaunched, max_in_flight=6, max_retries=12, timeout_s=0.4)
    total, seen = 0, []
    for round in range(3):
        for server in servers:
            faults = rng.choice([500, "drop", "short", "forget", "abort", "die"], 5)
            server.faults = [f if rng.random() < 0.6 else None for f in faults]
        counts = rng.integers(0, 9, len(PROMPTS))
        key, on_group = jax.random.key(round), lambda m, _: seen.append(m)
        rollouts = engine.generate(PROMPTS, counts, key, 1, on_group=on_group)
        check(rollouts, counts)
        assert sorted(seen[8 * round :]) == list(range(8))
        total += engine.metrics()["rollout/retries"]
    assert total > 5 and sum(server.restarts for server in relaunched) > 0


# ------------------------------------------------------------------------------ a campaign
@pytest.mark.parametrize("num_servers", [1, 3])
def test_two_hundred_faults_lose_no_answer_and_count_none_twice(
    start, connect, num_servers, monkeypatch
):
    """Steps of a run through a proxy a server; of three servers, one is gone for good in the eighth."""
    monkeypatch.setattr(client, "_POLL_S", 0.02)
    monkeypatch.setattr(http, "LONGEST_PAUSE_S", 0.05)  # a sync of eight requests seldom goes well
    servers = [start() for _ in range(num_servers)]
    proxies = [proxy.Proxy(server.url, seed) for seed, server in enumerate(servers)]
    options = dict(timeout_s=0.5, control_s=0.5, wait_s=1.0, backoff_s=0.002, max_in_flight=6)
    with contextlib.ExitStack() as stack:
        for one in proxies:
            one.rate = 0
            stack.enter_context(one)
        engine = connect(*(one.url for one in proxies), max_retries=30, **options)
        for one in proxies:
            one.rate = 0.3
        counts = lambda: sum((one.counts for one in proxies), collections.Counter())
        seen, asked, version = set(), 0, 1
        while version < 12 or counts().total() < 200:
            version += 1
            engine.sync(np.ones(2, np.float32), version)
            if version == 9 and num_servers > 1:
                proxies[0].kill()
            groups, key = [], jax.random.key(version)
            on_group = lambda m, answers, groups=groups: groups.append((m, len(answers)))
            rollouts = engine.generate(PROMPTS, COUNTS, key, version, on_group=on_group)
            check(rollouts, weights=version)
            assert sorted(groups) == list(enumerate(COUNTS))
            serials = set(rollouts.token_NT[:, 0].tolist())
            assert not serials & seen
            seen |= serials
            asked += len(engines.make_requests(COUNTS, key))
        lost = engine.metrics()["rollout/servers_lost"]
    assert set(counts()) == set(proxy.FAULTS)
    assert lost == (num_servers > 1)
    made = {body["seed"] for server in servers for body in server.chats()}
    assert len(made) == asked  # the requests of a faultless run, whatever became of each


# ------------------------------------------------------------------------------ ends
def test_other_tokens_than_the_trainers_end_the_call(start, connect):
    server = start(seconds=0.02)
    engine = connect(server, max_in_flight=2)
    server.token_ids[PROMPTS[3].text] = [1, 2, 3, 4]
    with pytest.raises(EngineFailure, match=r"'pppp'.*4 tokens of it, the trainer 3"):
        engine.generate(PROMPTS, COUNTS, KEY, 1)
    assert len(server.chats()) < 8


def test_what_a_server_refuses_is_not_asked_again(start, connect):
    server = start()
    engine = connect(server)
    server.trusting = False
    with pytest.raises(EngineFailure, match=r"prompt 'p+': .* refuses: HTTP 400"):
        engine.generate(PROMPTS, COUNTS, KEY, 1)


def test_a_call_that_is_left_leaves_nothing_in_flight(start, connect):
    """Another prompt hangs while a reward fails: it is hung up on, not waited for."""
    server = start()
    engine = connect(server, timeout_s=60)
    server.faults = ["hang"]

    def on_group(m, answers):
        if m == 6:
            raise ZeroDivisionError

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        engine.generate(PROMPTS, COUNTS, KEY, 1, on_group=on_group)
    assert time.monotonic() - began < 30
    assert not [t for t in threading.enumerate() if "ThreadPoolExecutor" in t.name]
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))


def test_a_call_that_is_left_does_not_wait_for_a_server_that_is_down(start, connect):
    up, down = start(seconds=0.5), start()
    engine = connect(up, down, wait_s=60.0)
    down.faults = ["die"]

    def on_group(m, answers):
        if answers:
            raise ZeroDivisionError

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        engine.generate(PROMPTS, COUNTS, KEY, 1, on_group=on_group)
    assert time.monotonic() - began < 10
    assert engine.metrics()["rollout/servers_lost"] == 0  # nobody has waited for it
    down.start()
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert down.chats()


def test_only_launched_servers_are_stopped(start, connect):
    given, launched = start(), start()
    connect(given, Relaunched(launched)).close()
    assert given.running and not launched.running


# ------------------------------------------------------------------------------ sleep
def test_servers_sleep_while_the_trainer_works(start, connect):
    servers = [start(), start()]
    engine = connect(*servers, sleep=True)
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))
    assert all(server.asleep for server in servers)
    check(engine.generate(PROMPTS, COUNTS, KEY, 1))  # an evaluation
    engine.sync(np.zeros(2, np.float32), 2)
    assert not any(server.asleep for server in servers)
    check(engine.generate(PROMPTS, COUNTS, KEY, 2), weights=2)
    nap = ["/sleep?level=1", "/wake_up"]
    assert servers[0].paths() == [*RELOAD, *nap, *nap, *RELOAD, "/sleep?level=1"]
    assert counted(engine) == {}


def test_a_server_that_a_killed_run_left_asleep_is_woken(start, connect):
    server = start()
    server.asleep = True
    check(connect(server, sleep=True).generate(PROMPTS, COUNTS, KEY, 1))


# ------------------------------------------------------------------------------ start-up
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "other"}, r"serves other, not 'policy'.*--served-model-name policy"),
        ({"max_model_len": 15}, r"=15 is less than the 16 tokens.*--max-model-len 16"),
        ({"dev_mode": False}, r"weight_info: HTTP 404.*VLLM_SERVER_DEV_MODE=1"),
        ({"processed": False}, r"raw logits.*--logprobs-mode processed_logprobs"),
        ({"trusting": False}, r"start it with --trust-request-chat-template"),
        *[
            ({"card": card}, r"no vLLM.* max_model_len=None")
            for card in ({}, {"max_model_len": None})
        ],
        ({"card": {"id": []}}, r"is no vLLM server, or too old \(GET /v1/models: TypeError"),
        ({"probed": {"token_ids": None}}, r"no vLLM server, or too old \(POST .* 0.32 or newer"),
        ({"probed": {"token_ids": []}}, r"no vLLM server, or too old \(POST .*0 tokens"),
    ],
)
def test_a_server_that_cannot_serve_is_an_error_at_once(start, connect, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        connect(start(), start(**options), synced=False)
    assert "http://127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("order", [1, -1])
def test_an_error_of_one_server_ends_the_wait_for_another(start, connect, order):
    gone, other = start(), start()
    gone.kill()
    began = time.monotonic()
    with pytest.raises(ValueError, match="serves"):
        connect(*[other, gone][::order], model="another", synced=False, wait_s=600.0)
    assert time.monotonic() - began < 60


def test_a_server_that_is_not_there_is_an_error_in_bounded_time(start, connect):
    server = start()
    server.kill()
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"does not answer \(.*refused.*for 1 s\)"):
        connect(server, wait_s=1.0, synced=False)
    assert time.monotonic() - began < 30


def test_a_server_that_is_still_starting_is_waited_for(start, connect):
    server = start()
    server.kill()
    threading.Timer(0.6, server.start).start()
    check(connect(server).generate(PROMPTS, COUNTS, KEY, 1))


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ([], "no vLLM servers: give URLs"),
        (["localhost:8000"], "write http://host:port"),
    ],
)
def test_servers_must_be_urls(connect, servers, words):
    with pytest.raises(ValueError, match=words):
        connect(*servers, synced=False)


# ------------------------------------------------------------------------------ plain data
def test_requests_cover_every_answer_once():
    num_rollouts_M = np.array([3, 0, 130, 64, 1])
    requests = engines.make_requests(num_rollouts_M, jax.random.key(0))
    assert [tuple(one[:3]) for one in requests] == [
        (0, 0, 3),
        (2, 3, 64),
        (2, 67, 64),
        (2, 131, 2),
        (3, 133, 64),
        (4, 197, 1),
    ]
    seeds = [one.seed for one in requests]
    assert len(set(seeds)) == 6 and all(0 <= seed < 2**62 for seed in seeds)
    assert max(seeds) > 2**56


def test_seeds_come_from_the_key_and_the_answers_number():
    plan = lambda counts, seed: engines.make_requests(np.array(counts), jax.random.key(seed))
    assert plan([2, 3, 4], 1) == plan([2, 3, 4], 1)
    assert plan([2, 3], 1) == plan([2, 3, 4], 1)[:2]
    assert {one.seed for one in plan([2, 3], 1)}.isdisjoint({one.seed for one in plan([2, 3], 2)})


def test_the_layout_is_the_local_engines():
    answers = [
        Answer(np.array([3, 7]), np.array([-1.0, -2.0]), True),
        Answer(np.array([4, 4, 4]), np.array([-3.0, -4.0, -5.0]), False),
        Answer(np.array([7]), np.array([-6.0]), True),
    ]
    found = to_rollouts(answers, np.array([2, 0, 1]), max_tokens=3, pad=7, params_version=4)
    np.testing.assert_array_equal(found.token_NT, [[3, 7, 7], [4, 4, 4], [7, 7, 7]])
    np.testing.assert_array_equal(found.logp_NT, [[-1, -2, 0], [-3, -4, -5], [-6, 0, 0]])
    np.testing.assert_array_equal(found.length_N, [2, 3, 1])
    np.testing.assert_array_equal(found.group_N, [0, 0, 2])
    np.testing.assert_array_equal(found.finished_N, [True, False, True])
    assert found.valid_N.all() and found.params_version == 4
    types = ["int32", "int32", "float32", "int32", "bool", "bool", "int32"]
    fields = ("token_NT", "length_N", "logp_NT", "group_N", "finished_N", "valid_N")
    assert [getattr(found, f).dtype for f in (*fields, "params_version")] == types
