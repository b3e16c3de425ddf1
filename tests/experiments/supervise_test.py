"""A warm start alone."""

from configs import tiny_gspo
from experiments import supervise
from vade_jax.data import hub
from vade_jax.run import checks, cluster

SHA = "0123456789" * 4


def test_names_on_the_hub_become_commits_before_anything_is_made(tmp_path, monkeypatch):
    """The sweep's warm starts come first: another commit than the runs' would pass unseen."""
    monkeypatch.setattr(hub, "pin", lambda text, kind, begun: f"{text}@{SHA}" if text else "")
    seen = []
    monkeypatch.setattr(
        supervise.warm_start, "untrained", lambda model, *_, **__: seen.append(model)
    )
    monkeypatch.setattr(supervise.warm_start, "warm_started", lambda of, *_: seen.append(of.model))
    monkeypatch.setattr(checks.model, "check_model", lambda *_: None)
    c = tiny_gspo.get_config("smoke")
    c.model.preset, c.model.checkpoint = "", "a/m"
    supervise.main(c, str(tmp_path / "run"))
    assert [model.checkpoint for model in seen] == [f"a/m@{SHA}"] * 2
    assert SHA in (tmp_path / "run" / "config.json").read_text()


def test_jax_gets_the_gpus_of_the_layout_before_anything_is_made(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(cluster, "take_gpus", lambda layout: seen.append(layout.train_memory))
    monkeypatch.setattr(supervise.compiled, "keep", lambda *_: seen.append("JAX is used"))
    monkeypatch.setattr(supervise.warm_start, "untrained", lambda *_, **__: "")
    monkeypatch.setattr(checks.model, "check_model", lambda *_: None)
    monkeypatch.setattr(supervise.warm_start, "warm_started", lambda *_: None)
    c = tiny_gspo.get_config("smoke")
    c.layout.train_memory = 0.5
    supervise.main(c, str(tmp_path / "run"))
    assert seen == [0.5, "JAX is used"]
