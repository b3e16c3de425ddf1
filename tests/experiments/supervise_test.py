"""A warm start alone."""

import json

from configs import my_data, tiny_gspo
from experiments import supervise
from vade_jax.data import hub, tokens
from vade_jax.models.qwen import files
from vade_jax.run import checks, cluster

SHA = "0123456789" * 4


def test_names_on_the_hub_become_commits_before_anything_is_made(tmp_path, monkeypatch):
    """The sweep's warm starts come first: another commit than the runs' would pass unseen."""
    pin = lambda text, kind, begun: f"{text}@{SHA}" if text == "a/m" else text
    monkeypatch.setattr(hub, "pin", pin)
    seen = []
    monkeypatch.setattr(supervise.warm_start, "untrained", lambda run, *_: seen.append(run.model))
    monkeypatch.setattr(
        supervise.warm_start, "warm_started", lambda run, *_: seen.append(run.model)
    )
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
    monkeypatch.setattr(supervise.warm_start, "untrained", lambda *_: "")
    monkeypatch.setattr(checks.model, "check_model", lambda *_: None)
    monkeypatch.setattr(supervise.warm_start, "warm_started", lambda *_: None)
    c = tiny_gspo.get_config("smoke")
    c.layout.train_memory = 0.5
    supervise.main(c, str(tmp_path / "run"))
    assert seen == [0.5, "JAX is used"]


def test_ones_own_rows_make_a_model_directory(one_device, small_checkpoint, tmp_path, capsys):
    """Without the rows that do not fit; it says in what size it saw pictures."""
    rows = [{"question": f"Which is {i}?", "answer": "7"} for i in range(12)]
    rows.append({"question": "How long is it?", "answer": "1234567890123"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "held_out.jsonl").write_text('{"question": "Which?", "answer": "7"}')
    c = my_data.get_config()
    c.model.preset, c.model.checkpoint = "", str(small_checkpoint)
    c.data.train, c.data.validation = (str(tmp_path / f"{x}.jsonl") for x in ("rows", "held_out"))
    c.warm_start.num_steps, c.warm_start.batch_size = 2, 4
    c.sampling.max_tokens = 8
    supervise.main(c, str(tmp_path / "run"))
    said = capsys.readouterr().out
    assert (
        "warm start: it teaches 12 of 13 rows, those with an answer that fits in sampling." in said
    )
    made = said.split("\nin ")[1].strip()
    assert tokens.Tokenizer.load(made).pixels == (c.data.min_pixels, c.data.max_pixels)
    assert (files.load_config(made), files.identity(made)) != (
        files.load_config(small_checkpoint),
        files.identity(small_checkpoint),
    )
