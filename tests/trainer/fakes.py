"""A loop without a model: items without images, an engine of known answers, and what came of each step."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np

from tests.rollout import fake
from vade_jax import samplers, settings
from vade_jax.rewards import functions
from vade_jax.rollout.engine import EngineFailure
from vade_jax.samplers import base
from vade_jax.trainer import choosing, collect, loop, scoring
from vade_jax.trainer.progress import Progress, Schedule
from vade_jax.types import Item, Prompt, Proposal, TrainState

NUM_ITEMS = 200
# 40 of 200 items are mixed.
RATES = np.concatenate([np.zeros(80), np.ones(80), np.linspace(0.2, 0.8, 40)])


def pass_rates(rates):
    return {str(i): float(rate) for i, rate in enumerate(rates)}


PASS_RATE = pass_rates(RATES)


class Recorder:
    """Implements `loop.Recorder`: keeps what it is given."""

    def __init__(self):
        self.metrics, self.data, self.saved, self.progress = {}, {}, [], []

    def record(self, step, metrics, data=None):
        self.metrics[step] = self.metrics.get(step, {}) | metrics
        self.data[step] = data or self.data.get(step)

    workdir, resumes = "", False

    def restore(self, progress, pool):
        return progress

    def save(self, progress, *, last):
        if progress.step:
            self.saved.append((progress.step, last))
            self.progress.append(progress)

    def close(self):
        pass

    def untimed(self, after=0):
        """The metrics that do not depend on the clock, of all later steps."""
        return {
            step: {k: v for k, v in metrics.items() if not k.startswith(("timing", "perf/"))}
            for step, metrics in self.metrics.items()
            if step >= after
        }


def rounds(data):
    """The rounds of a step: what each asked, kept and believed."""
    for number in range(1, data.round_M[-1] + 1):
        of_M = data.round_M == number
        yield types.SimpleNamespace(
            index_M=data.feedback.index_M[of_M],
            keep_M=data.keep_M[of_M],
            belief={name: np.asarray(x)[of_M] for name, x in data.belief.items()},
        )


def items(num_items):
    return [
        Item(uid=str(i), question="?", images=(), answer="1", kind="int") for i in range(num_items)
    ]


def build_prompt(item):
    empty = np.zeros(0, np.int32)
    return Prompt(uid=item.uid, text="", token_P=empty, position_PX=empty[:, None], images=())


build_prompt.opening = ""  # of the chat template


def judge(item, texts, answers):
    """The answers of `FakeEngine`."""
    right = [float(tokens[0] == fake.RIGHT) for tokens in answers]
    return [functions.Judgement(x, x) for x in right]


def scorer(judge, **options):
    return scoring.Scorer(str, judge, **options)


score = scorer(judge)


class Engine(fake.FakeEngine):
    """Writes down its calls, and raises `error` in the call `fails_at`, from 1, of `generate`.

    With `mixed`, every second answer to these items is right and none to the others. It cannot make the
    first `lost` answers to the second prompt of a call.
    """

    def __init__(self, pass_rate=None, *, mixed=None, fails_at=0, lost=0, **options):
        super().__init__(PASS_RATE if pass_rate is None else pass_rate, **options)
        self.mixed, self.fails_at, self.lost = mixed, fails_at, lost
        self.error, self.is_busy = EngineFailure("the server is gone"), False
        self.versions, self.asked, self.numbers, self.keys = [], [], [], []

    def generate(self, prompts, num_rollouts_M, key, version, sampling=None, on_group=None):
        uids = [prompt.uid for prompt in prompts]
        self.versions.append(version)
        self.asked.append(uids)
        self.numbers.append(list(num_rollouts_M))
        self.keys.append(key)
        if len(self.asked) == self.fails_at:
            raise self.error
        self.is_busy = True
        if self.mixed is not None:
            self.pass_rate = dict.fromkeys(uids, 0.0)
        made = super().generate(prompts, num_rollouts_M, key, version)
        if self.mixed is not None:
            is_mixed_N = np.array([int(uids[m]) in self.mixed for m in made.group_N])
            made.token_NT[:, 0] = is_mixed_N & (np.arange(len(is_mixed_N)) % 2 == 0)
        for m in range(len(prompts)):
            on_group(m, list(made.token_NT[made.group_N == m]))
        made.valid_N[np.flatnonzero(made.group_N == 1)[: self.lost]] = False
        self.is_busy = False
        return made

    def sync(self, params, version):
        assert not self.is_busy, "weights came while answers were made"
        super().sync(params, version)


class InOrder:
    """The least visited items first, by their number; `counts=False` never moves on."""

    def __init__(self, num_items, num_rollouts=2, counts=True):
        self.num_items, self.num_rollouts = num_items, num_rollouts
        self.counts, self.asked = counts, []
        self.selector = samplers.Sampler(
            lambda num_items: np.zeros(num_items, int),
            self.propose,
            base.keep_mixed,
            lambda state, f: state + counts * np.isin(np.arange(len(state)), f.index_M),
            lambda state, p: {"visited": np.full(len(p.index_M), state.sum())},
        )

    def propose(self, state, key, num_prompts):
        self.asked.append(num_prompts)
        index_M = np.argsort(state, kind="stable")[:num_prompts].astype(np.int32)
        return Proposal(index_M=index_M, num_rollouts_M=np.full(len(index_M), self.num_rollouts))


def learn(state, prompts, rollouts, advantage_N):
    return state.replace(step=state.step + 1), {"actor/loss": float(state.step)}


@dataclasses.dataclass
class Run:
    """A run of the loop; call it to go on to a step."""

    selector: samplers.Sampler
    num_items: int = NUM_ITEMS
    num_prompts: int = 16
    engine: fake.FakeEngine = dataclasses.field(default_factory=Engine)
    recorder: Recorder = dataclasses.field(default_factory=Recorder)
    score: scoring.Scorer = score
    advantage: scoring.Advantage = scoring.usual_advantage
    refill: settings.Refill = settings.Refill()  # noqa: RUF009 (frozen)
    # Passes over all items: steps between them, answers to each.
    every: int = 0
    num_measured: int = 3
    eval_every: int = 4
    max_rollouts: int = 0
    learn: loop.Learn = learn
    validate: tuple = ()
    lag: int = 0
    overlaps: bool = False
    progress: Progress | None = None

    def __post_init__(self):
        self.pool = choosing.Pool(items(self.num_items), build_prompt)
        self.batches = []  # what was learned from: uids, rollouts, advantage_N
        if self.progress is None:
            self.progress = start(self.selector.init(self.num_items), self.num_items)

    def _learn(self, state, prompts, rollouts, advantage_N):
        self.batches.append(([prompt.uid for prompt in prompts], rollouts, advantage_N))
        return self.learn(state, prompts, rollouts, advantage_N)

    @property
    def collect(self):
        return collect.Collector(
            selector=self.selector,
            pool=self.pool,
            engine=self.engine,
            score=self.score,
            key=jax.random.key(3),
            num_prompts=self.num_prompts,
            advantage=self.advantage,
            refill=self.refill,
        )

    def schedule(self, num_steps):
        measure = settings.Measure(self.every, self.num_measured, self.num_prompts)
        return Schedule(
            num_steps=num_steps,
            eval_every=self.eval_every,
            max_rollouts=self.max_rollouts,
            measure=measure,
            measures_first=self.selector.needs.passes == "first",
            num_items=self.num_items,
        )

    def __call__(self, num_steps, stop=lambda: False):
        self.progress = loop.Loop(
            collect=self.collect,
            learn=self._learn,
            validate=self.validate,
            recorder=self.recorder,
            schedule=self.schedule(num_steps),
            lag=self.lag,
            overlaps=self.overlaps,
        ).run(self.progress, stop)
        return self


def start(posterior, num_items):
    state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
    return Progress(state, posterior, np.zeros(num_items, np.int32))


def run(name, num_steps, selector=None, **options):
    """A run of a selector by its name, with the options of `selector`."""
    return Run(samplers.SAMPLERS[name](**selector or {}), **options)(num_steps)


def equal(one, other):
    """Checks that two progresses are the same."""
    jax.tree.map(np.testing.assert_array_equal, one.posterior, other.posterior)
    jax.tree.map(np.testing.assert_array_equal, one.state, other.state)
    np.testing.assert_array_equal(one.visited_I, other.visited_I)
    totals = lambda x: (x.step, x.rollouts_total, x.tokens_total, x.visits, x.waiting is None)
    assert totals(one) == totals(other)
