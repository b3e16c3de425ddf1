"""What a run does around its loop."""

import types

import pytest

from configs import tiny_gspo
from vade_jax import run, settings
from vade_jax.run import directory, job


class Items(list):
    source = ()


def test_a_page_that_fails_leaves_the_policy_that_was_trained(monkeypatch):
    """It would fail again after every resumption."""
    exported = []
    monkeypatch.setattr(directory, "export_policy", lambda *args: exported.append(args))

    def fail(*_):
        raise OSError("no space for pictures")

    page = types.SimpleNamespace(at_start=lambda *_: None, at_end=fail)
    given = settings.Run.from_dict(tiny_gspo.get_config("smoke").to_dict())
    data = types.SimpleNamespace(train=Items())
    for step, expected in ((given.num_steps - 1, 0), (given.num_steps, 1)):
        progress = types.SimpleNamespace(step=step, rollouts_total=0)
        with pytest.raises(OSError, match="no space for pictures"):
            job._finish(given, "policy", data, progress, "workdir", run.Hooks(page=page), None)
        assert len(exported) == expected
