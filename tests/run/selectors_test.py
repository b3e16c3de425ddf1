"""Every selector of the package, from a config's one word to steps of the loop."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import tiny_gspo
from experiments import train
from tests.rollout import fake
from tests.trainer import fakes
from vade_jax import samplers, settings
from vade_jax.data import procedural
from vade_jax.run import build, checks, datasets, engines, job, states
from vade_jax.store import metrics
from vade_jax.trainer import validation
from vade_jax.types import TrainState

NAMES = sorted(set(samplers.SAMPLERS) - {"diva"})  # it needs variants of the questions
POLICY = types.SimpleNamespace(whole=lambda params, frozen: params)


def smoke(name):
    c = tiny_gspo.get_config(f"smoke,selector={name}")
    c.num_steps, c.num_rollouts = 3, 4
    return c


# ------------------------------------------------------------------------------ small parts
@pytest.fixture
def fake_parts(monkeypatch):
    """Everything of a run that takes a model is replaced: what is left is around the selector."""
    recorder = fakes.Recorder()

    def learn(state, prompts, rollouts, advantage_N):
        return state.replace(step=state.step + 1), {"actor/loss": 0.0}

    def make_engine(run, *_):
        last = run.data.num_train - 1
        return fake.FakeEngine({f"train-0-{i}": i / last for i in range(last + 1)})

    state = TrainState(params={}, opt_state=(), step=jnp.int32(0))
    replaced = {
        build: dict(
            make_learner=lambda *_, **__: (state, learn), make_scorer=lambda *_: fakes.score
        ),
        engines: dict(make=make_engine),
        validation: dict(of_items=lambda *_, **__: lambda *_: ({}, frozenset())),
        states: dict(of_prompts=lambda run, policy, data, map: np.eye(len(data.train))),
    }
    for module, functions in replaced.items():
        for name, function in functions.items():
            monkeypatch.setattr(module, name, function)
    return recorder


@pytest.mark.parametrize("name", NAMES)
def test_three_steps_of_the_smoke_config(name, fake_parts):
    c = smoke(name)
    c.data.num_train = 24  # sizes as in `contract_test`: the same programs
    c.num_prompts = c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 5
    run, size = settings.Run.from_dict(c.to_dict()), c.data.num_train
    selector = checks.check(run)
    items = datasets.Subset(procedural.Procedural(0, size), range(size))
    arrays = datasets.per_item(items, run.selector.arrays)
    data = datasets.Datasets(items, items, fakes.build_prompt, arrays)
    values = states.for_selector(run, selector, POLICY, data, map, resumes=False)
    loop, progress = job.prepare(run, selector, POLICY, data, fake_parts, values=values)
    progress = loop.run(progress)
    assert progress.step == 3 and np.count_nonzero(progress.visited_I) >= c.num_prompts
    last = fake_parts.metrics[3]
    measured = last.get("vade/measured_rollouts", 0)
    assert measured == {"mmr1": 4, "strata": 1}.get(name, 0) * size
    assert last["vade/rollouts_total"] >= 3 * 4 * c.num_prompts + measured


@pytest.mark.parametrize(
    ("name", "options"),
    [("diva", {}), *(("diva", {"num_variants": n}) for n in (0, 1, 3)), ("uniform", {})],
)
def test_the_places_of_an_item_are_those_of_a_proposal(name, options):
    """An epoch of `settings` is one of the selector: it is counted without one."""
    selector = samplers.SAMPLERS[name](**options)
    proposal = selector.propose(selector.init(8), jax.random.key(0), 8)
    num_items = len(np.unique(proposal.index_M))
    assert selector.needs.places * num_items == 8
    run = settings.Run(num_epochs=1.0, num_prompts=128)
    assert run.with_items(128 * num_items, selector.needs.places).num_steps == 8


# ------------------------------------------------------------------------------ the real parts
@pytest.mark.parametrize(
    "name", ["mmr1", *(pytest.param(x, marks=pytest.mark.slow) for x in NAMES if x != "mmr1")]
)
def test_three_real_steps(name, tmp_path, one_device, small_checkpoint):
    """The whole program on a two-layer model."""
    c = smoke(name)
    c.model.preset, c.model.checkpoint = "", str(small_checkpoint)
    c.eval.every, c.eval.num_samples, c.checkpoint.every = 9, 1, 9
    # Without divergence, a step in which no answer is right would teach nothing. As in `train_test`.
    c.loss.kl_coef, c.optimizer.learning_rate = 0.01, 3e-4
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 2
    c.measure.every = min(c.measure.every, 2)
    train.main(c, str(tmp_path / "run"))
    records = metrics.read(tmp_path / "run")
    assert [record["step"] for record in records] == [0, 1, 2, 3]
    assert all(np.isfinite(r["actor/pg_loss"]) for r in records[1:])
    if name == "mmr1":
        assert records[3]["vade/measured_rollouts"] == 2 * 4 * c.data.num_train
        assert ["timing_s/measure" in r for r in records] == [0, 1, 0, 1]


# ------------------------------------------------------------------------------ per item
def test_categories_are_the_sorted_values_of_the_fields():
    items = datasets.Subset(procedural.Procedural(3, 40), range(5, 40))
    found = datasets.per_item(items, {"category": "family,level", "level": "level"})
    pairs = [(item.metadata["family"], item.metadata["level"]) for item in items]
    order = sorted(set(pairs))
    assert len(order) > 3
    assert found["category"].tolist() == [order.index(pair) for pair in pairs]
    assert found["level"].tolist() == [level for _, level in pairs]  # numbers stay
    assert set(datasets.per_item(items, {"pass_rate": "solved_before"})["pass_rate"]) == {None}


def test_the_seed_is_the_runs_unless_another_is_given(monkeypatch):
    """GRESO draws by itself; uniform takes no seed."""
    given, spec = [], samplers.SAMPLERS["greso"]
    monkeypatch.setattr(type(spec), "__call__", lambda self, **o: given.append(o))
    c = tiny_gspo.get_config("selector=greso,seed=7")
    build.make_selector(settings.Run.from_dict(c.to_dict()))
    with c.unlocked():
        c.selector.options.seed = 3
    build.make_selector(settings.Run.from_dict(c.to_dict()))
    uniform = tiny_gspo.get_config("uniform").to_dict()
    build.make_selector(settings.Run.from_dict(uniform))
    assert [options.get("seed") for options in given] == [7, 3, None]
