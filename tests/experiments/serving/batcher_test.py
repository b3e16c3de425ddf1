"""Who is decoded with whom."""

import dataclasses
import threading
import time

import pytest

from experiments.serving.batcher import Batcher, Job
from vade_jax.rollout.engine import Sampling

GREEDY = Sampling(temperature=0.0, max_tokens=16)
HOT = Sampling(temperature=1.0, max_tokens=16)


class Decode:
    """Answers with the prompts of a batch, the first batch when it is told to."""

    def __init__(self):
        self.batches, self.may_go = [], threading.Event()

    def __call__(self, jobs):
        self.may_go.wait(30)
        self.batches.append([job.prompt for job in jobs])
        if "bad" in self.batches[-1]:
            raise MemoryError("no room")
        return [(job.prompt, len(jobs)) for job in jobs]


def decoded(jobs, size=4, window_s=0.2):
    """Returns the batches; all jobs are there before the first is decoded."""
    decode = Decode()
    batcher = Batcher(decode, size=size, window_s=window_s)
    futures = [batcher.submit(job) for job in jobs]
    decode.may_go.set()
    batcher.close()
    assert [f.result(10)[0] for f in futures] == [job.prompt for job in jobs]
    return decode.batches


def job(name, sampling=GREEDY, num_answers=1, seed=None):
    return Job(name, num_answers, sampling, seed)


def test_two_requests_are_one_call():
    assert decoded([job("a"), job("b")]) == [["a", "b"]]


def test_a_batch_has_no_more_answers_than_fit():
    jobs = [job("a", num_answers=2), job("b"), job("c", num_answers=2), job("d")]
    assert decoded(jobs) == [["a", "b"], ["c", "d"]]


def test_one_batch_has_one_way_to_draw():
    cold = dataclasses.replace(HOT, temperature=0.5)
    jobs = [job("a", HOT), job("b"), job("c", HOT), job("d", cold), job("e")]
    assert decoded(jobs) == [["a", "c"], ["b", "e"], ["d"]]


def test_seeds_are_decoded_together():
    jobs = [job("a", HOT), job("b", HOT, seed=1), job("c", seed=1), job("d", HOT, 1, 2)]
    assert decoded(jobs) == [["a", "b", "d"], ["c"]]


def test_lengths_of_one_power_of_two_are_one_program():
    longest = lambda n: job("", dataclasses.replace(HOT, max_tokens=n)).program
    assert [longest(n).max_tokens for n in (1, 16, 17, 33, 64)] == [16, 16, 32, 64, 64]
    flat = Sampling(temperature=0.7, top_p=0.0, top_k=3, max_tokens=9)
    assert job("", flat).program == GREEDY
    assert (
        job("", Sampling(temperature=1e-30, top_p=0.5, max_tokens=9)).program == GREEDY
    )


def test_the_oldest_waits_until_the_batch_is_full():
    decode = Decode()
    decode.may_go.set()
    batcher = Batcher(decode, size=2, window_s=60)
    first = batcher.submit(job("a"))
    time.sleep(0.1)
    batcher.submit(job("b"))
    assert first.result(10) == ("a", 2)
    batcher.close()


def test_the_oldest_does_not_wait_for_a_full_batch():
    decode = Decode()
    decode.may_go.set()
    batcher = Batcher(decode, size=4, window_s=0.01)
    assert batcher.submit(job("a")).result(10) == ("a", 1)
    batcher.close()


def test_a_failure_is_of_its_batch_alone():
    decode = Decode()
    batcher = Batcher(decode, size=4, window_s=0.2)
    bad, beside = batcher.submit(job("bad")), batcher.submit(job("b"))
    other = batcher.submit(job("c", HOT))
    decode.may_go.set()
    for future in (bad, beside):
        with pytest.raises(MemoryError, match="no room"):
            future.result(10)
    assert other.result(10) == ("c", 1)
    batcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit(job("d"))
