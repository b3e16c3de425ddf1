"""Sizes of calls, engines that are kept, answers cut to what was asked."""

import jax
import numpy as np

from experiments.serving import decoding
from experiments.serving.batcher import Job
from tests.trainer import small
from vade_jax.rollout.engine import Sampling

HOT = Sampling(temperature=1.0, max_tokens=3)


class Engine:
    """Answers of two to six tokens; the first one was cut."""

    def __init__(self, size, sampling, made):
        made.append((size, sampling))
        self.calls = []

    def generate(self, prompts, num_rollouts_M, key, version, *, draw_N):
        assert key == jax.random.key(0)
        self.calls.append((prompts, list(num_rollouts_M), draw_N))
        rollouts = small.rollouts(num_rollouts_M, T=6)
        length_N = 2 + np.arange(len(rollouts.length_N)) % 5
        return rollouts.replace(length_N=length_N, finished_N=length_N != 2)


def decoder(made, size=16, programs=8):
    return decoding.Decoder(lambda *of: Engine(*of, made), size=size, programs=programs)


def jobs(count, sampling=HOT, seed=None):
    return [Job(str(i), 1, sampling, seed) for i in range(count)]


def test_sizes_are_few_and_a_lone_prompt_is_not_padded():
    assert decoding.sizes(16) == [1, 4, 16]
    assert decoding.sizes(20) == [1, 4, 16, 20]
    assert decoding.sizes(1) == [1]
    made = []
    decode = decoder(made)
    for count in (1, 3, 4, 5, 16, 1):
        assert len(decode(jobs(count))) == count
    assert [size for size, _ in made] == [1, 4, 16]
    assert made[0][1] == Sampling(temperature=1.0, max_tokens=16)


def test_engines_unused_for_longest_are_let_go():
    made = []
    decode = decoder(made, programs=2)
    for temperature in (0.1, 0.2, 0.1, 0.3, 0.1, 0.2):
        decode(jobs(1, Sampling(temperature=temperature, max_tokens=3)))
    assert [sampling.temperature for _, sampling in made] == [0.1, 0.2, 0.3, 0.2]


def test_each_job_gets_its_answers_cut_to_its_length():
    given = [Job("a", 2, HOT), Job("b", 1, Sampling(1.0, max_tokens=16))]
    wanted = small.rollouts([2, 1], T=6).token_NT
    first, second = decoder([])(given)
    assert [len(a.token_T) for a in first + second] == [2, 3, 4]
    assert [a.finished for a in first + second] == [False, True, True]
    np.testing.assert_array_equal(second[0].token_T, wanted[2, :4])
    (long,) = decoder([])([Job("a", 3, HOT)])
    assert [len(a.token_T) for a in long] == [2, 3, 3]
    assert [a.finished for a in long] == [False, True, False]


def test_the_seed_and_the_number_of_an_answer_decide_its_draws():
    of = lambda seed, n=1: decoding.draws(Job("a", n, HOT, seed)).tolist()
    seeds = (0, 1, -1, 2**32, 2**32 + 1, 2**63 - 1)
    assert len({of(seed)[0] for seed in seeds}) == len(seeds)
    assert of(2**32) == of(2**32) and of(None) != of(None)
    assert of(7, 3)[:2] == of(7, 2) and len(set(of(7, 3))) == 3
    assert min(of(7, 500)) >= 0  # below it, a slot has no answer


def test_a_batch_hands_each_answer_its_draws():
    engine = Engine(4, HOT, [])
    decode = decoding.Decoder(lambda *_: engine, size=4, programs=1)
    given = [Job("a", 2, HOT, 7), Job("b", 1, HOT, 8)]
    decode(given)
    (_, numbers, draw_N) = engine.calls[0]
    assert numbers == [2, 1]
    np.testing.assert_array_equal(
        draw_N, np.concatenate([decoding.draws(job) for job in given])
    )
