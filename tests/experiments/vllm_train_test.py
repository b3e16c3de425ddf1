"""Whole runs of the tiny model with rollouts of the real vLLM: `make test-vllm`."""

import contextlib
import pathlib

import chex
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from configs import tiny_gspo
from experiments import train
from vade_jax.rollout.engine import ignore
from vade_jax.run import build, engines
from vade_jax.store import metrics
from vade_jax.trainer import minibatches

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm
STEPS = 3


def config(engine):
    c = tiny_gspo.get_config("smoke")
    c.num_steps = STEPS
    c.num_prompts = c.batch.prompts_per_minibatch = 8
    c.batch.prompts_per_microbatch = 8  # one for each of the tests' fake devices
    c.eval.every = STEPS
    c.loss.old_logp = "trainer"
    c.engine.name = engine
    if engine != "local":
        c.engine.options = dict(max_num_seqs=16)
    return c


class Taped:
    """An engine whose answers are kept, or one that gives kept answers again."""

    def __init__(self, engine, tape, replay):
        self._engine, self._tape, self._replay = engine, tape, replay

    def generate(self, prompts, num, key, version, sampling=None, on_group=ignore):
        if not self._replay:
            rollouts = self._engine.generate(prompts, num, key, version, sampling, on_group)
            self._tape.append(([p.uid for p in prompts], rollouts))
            return rollouts
        uids, rollouts = self._tape.pop(0)
        assert uids == [p.uid for p in prompts]  # the same prompts were chosen
        for m in range(len(prompts)):
            mine = rollouts.group_N == m
            on_group(m, list(rollouts.token_NT[mine]))
        return rollouts

    def __getattr__(self, name):
        return getattr(self._engine, name)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Returns a function that trains with an engine, on one tape of answers."""
    root, tape, make = tmp_path_factory.mktemp("runs"), [], engines.make

    def run(engine, *, replay=False):
        taped = lambda *args, **kw: Taped(make(*args, **kw), tape, replay)
        workdir = root / f"{engine}_{replay}"
        c = config(engine)
        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(engines, "make", taped)
            train.main(c, str(workdir))
        return c, workdir

    return run


def test_the_same_answers_give_the_same_selector_whoever_made_them(run):
    """Three steps with vLLM's answers; then the local engine's place is given the same answers."""
    served = run("vllm_server")
    replayed = run("local", replay=True)
    states = [restore(*both) for both in (served, replayed)]
    chex.assert_trees_all_equal(states[0], states[1])
    rows = [metrics.read(str(workdir)) for _, workdir in (served, replayed)]
    for mine, other in zip(*rows, strict=True):
        for name in ("critic/score/mean", "vade/effective_ratio", "actor/pg_loss"):
            assert mine.get(name) == pytest.approx(other.get(name), abs=1e-5), name


def restore(c, workdir):
    """Returns the arrays of the last checkpoint's selector."""
    path = pathlib.Path(workdir) / "checkpoints" / str(STEPS) / "selector"
    return jax.tree.map(np.asarray, ocp.StandardCheckpointer().restore(path))


def test_a_run_logs_agreement_timeline_and_what_the_servers_did(run, tmp_path):
    """In the order of the file: the run of the test above is read again, not run again."""
    _, workdir = run("vllm_server")  # done: it only prints its summary
    rows = metrics.read(str(workdir))
    for row in rows[1:]:
        assert row["training/rollout_probs_diff_max"] <= 1e-3
        assert row["training/rollout_logprobs_diff_mean"] <= 1e-4
        assert row["rollout/retries"] == 0
        assert {"timing_s/prepare", "timing_s/judge", "timing_s/update_weights"} <= set(row)


def test_an_adapter(tmp_path):
    """VLLM gets the sum of base and adapter after every step, and agrees about every token."""
    (tmp_path / "reward.py").write_text(
        "def even(completions, **_):\n    return [len(x[0]['content']) % 2 for x in completions]\n"
    )
    c = config("vllm_server")
    c.lora.rank, c.optimizer.learning_rate, c.optimizer.warmup_steps = 4, 0.02, 0
    c.reward.function = f"{tmp_path / 'reward.py'}:even"  # a random policy's answers differ in it
    c.loss.kl_coef, c.loss.kl = 0.1, "k2"
    train.main(c, str(tmp_path / "run"))
    records = metrics.read(tmp_path / "run")[1:]
    # The first answers are the base's; the last are of a policy that is far from it.
    assert max(r["training/rollout_logprobs_diff_max"] for r in records) < 1e-4
    assert records[-1]["actor/kl_loss"] > 1e-3


class Versions:
    """A learner that compares each batch's log-probs with those of every version of the weights so far."""

    def __init__(self, learner):
        self.learner, self.held, self.seen = learner, [], []

    def __call__(self, state, prompts, rollouts, advantage_N):
        self.held.append(jax.tree.map(np.array, state.params))
        cut = minibatches.split(prompts, rollouts, advantage_N, self.learner.shape)
        of = lambda params: max(self._gap(params, state.frozen, batch) for batch in cut)
        gaps = [of(params) for params in self.held]
        self.seen.append((int(rollouts.params_version), gaps))
        return self.learner(state, prompts, rollouts, advantage_N)

    def _gap(self, params, frozen, batch):
        logp_NT = np.asarray(self.learner.logprobs(params, frozen, self.learner.put(batch)))
        return np.abs((logp_NT - batch.rollout_logp_NT) * batch.mask_NT).max()


def test_a_step_ahead_every_answer_is_of_the_version_that_it_says(tmp_path, monkeypatch):
    """Answers are made in a thread while the policy learns, and no sync reaches them meanwhile."""
    (tmp_path / "reward.py").write_text(
        "def even(completions, **_):\n    return [len(x[0]['content']) % 2 for x in completions]\n"
    )
    c = config("vllm_server")
    c.num_steps, c.engine.max_lag, c.loss.importance = 4, 1, "token"
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 0.01, 0  # versions are far apart
    c.reward.function = f"{tmp_path / 'reward.py'}:even"  # a random policy's answers differ in it
    c.layout.train, c.layout.serve = "0", "1"  # to the checks: a device for each, so they overlap
    made = []

    def spied(*args, make=build.make_learner, **kw):
        state, learner = make(*args, **kw)
        made.append(Versions(learner))
        return state, made[0]

    monkeypatch.setattr(build, "make_learner", spied)
    train.main(c, str(tmp_path / "run"))
    assert [version for version, _ in made[0].seen] == [0, 0, 1, 2]
    for version, gaps in made[0].seen:
        own = gaps.pop(version)
        assert own < 1e-4 and all(gap > 1e-2 for gap in gaps)
    waits = ["timing_s/wait_rollouts" in record for record in metrics.read(tmp_path / "run")]
    assert waits == [False, True, True, True, False]  # the last batch is made during step 3
