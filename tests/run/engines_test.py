"""Where a run's server gets its weights; and runs whose server dies, and which are started again."""

import itertools
import pathlib
import types

import numpy as np
import pytest

from configs import tiny_gspo
from experiments import errors, train
from experiments.torture import campaign
from tests.experiments import train_test
from vade_jax import settings
from vade_jax.rollout.engine import EngineLost, Sampling, ignore
from vade_jax.run import engines


def test_runs_that_share_a_place_for_weights_have_a_folder_each(tmp_path, monkeypatch):
    """Else two runs at one step would write the same version, and servers would load the other's."""
    monkeypatch.setattr(
        engines, "VllmServerEngine", lambda *_, directory, **__: pathlib.Path(directory)
    )
    tokenizer = types.SimpleNamespace(stop_ids=(7,), banned_ids=())
    policy = types.SimpleNamespace(directory="model", dtype=np.float32, tokenizer=tokenizer)
    run = settings.Run.from_dict(tiny_gspo.get_config("smoke").to_dict())

    def place(workdir, shared):
        engine = settings.Engine(name="vllm_server", url="http://a:1", sync_directory=shared)
        sections = engine, run.layout, run.data
        return engines._server(*sections, policy, str(tmp_path / workdir), Sampling(), 9, iter)

    shared = tmp_path / "shared"
    one, other = (place(f"{x}/run", str(shared)) for x in "ab")
    assert one != other and one.is_relative_to(shared) and other.is_relative_to(shared)
    assert one == place("a/../a/run", str(shared))
    assert place("a/run", "") == tmp_path / "a/run/weights"


class Mortal:
    """An engine whose server is killed at some of its moments: groups told of, ends of batches, syncs."""

    def __init__(self, engine, moments, kills):
        self._engine, self._moments, self._kills = engine, moments, kills

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, *args, on_group=ignore):
        def until_killed(m, answers):
            self._live()
            on_group(m, answers)

        rollouts = self._engine.generate(*args, on_group=until_killed)
        self._live()
        return rollouts

    def sync(self, params, version):
        self._live()
        self._engine.sync(params, version)
        self._live()

    def _live(self):
        if next(self._moments) in self._kills:
            raise EngineLost("the server is gone")


@pytest.mark.usefixtures("one_device")
def test_a_run_whose_server_is_killed_at_random_moments_ends_like_one_left_alone(
    tmp_path, small_checkpoint, monkeypatch, capsys
):
    """Started again, as by a supervisor: the bytes of the policy, all answers and metrics but times."""
    c = train_test.smoke(3, small_checkpoint)  # whose programs are compiled
    c.eval.every, c.checkpoint.every = 2, 100
    train.main(c, str(tmp_path / "alone"))
    make, moments = engines.make, itertools.count()
    kills = np.random.default_rng(0).choice(20, 2, replace=False)
    mortal = lambda *args, **kw: Mortal(make(*args, **kw), moments, kills)
    monkeypatch.setattr(engines, "make", mortal)
    for _ in kills:
        with pytest.raises(SystemExit) as ended:
            train.main(c, str(tmp_path / "killed"))
        assert ended.value.code == errors.AGAIN
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.endswith("the server is gone; all steps are saved, the same command continues")
    train.main(c, str(tmp_path / "killed"))
    killed, alone = (campaign.results(tmp_path / name) for name in ("killed", "alone"))
    for what in ("policy", "rollouts", "metrics"):
        assert killed[what] == alone[what]
