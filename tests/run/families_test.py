"""Other families as the policy, at a tiny size: whole runs on texts, of a Qwen3-VL and of a Qwen3.5."""

import dataclasses
import json

import pytest

from configs import math_text, tiny_gspo
from experiments import train
from tests.trainer import small
from vade_jax.models.qwen import presets
from vade_jax.store import metrics


@pytest.mark.parametrize(
    ("preset", "kind"),
    [("tiny_qwen3", "Qwen3ForCausalLM"), ("tiny_llama", "LlamaForCausalLM")],
)
def test_a_run_on_text_ends_with_a_policy_that_transformers_loads(
    preset, kind, tmp_path, one_device, monkeypatch
):
    """With the config for text maths, on rows as GSM8K has them."""
    transformers = pytest.importorskip("transformers")
    two_layers = dataclasses.replace(presets.PRESETS[preset].text, num_layers=2)
    shape = dataclasses.replace(presets.PRESETS[preset], text=two_layers)
    monkeypatch.setitem(presets.PRESETS, preset, shape)
    rows = [
        {"question": f"What is {a} + {b}?", "answer": f"{a} and {b} are {a + b}.\n#### {a + b}"}
        for a in range(5)
        for b in range(7)
    ]
    train_file, held_out = tmp_path / "train.jsonl", tmp_path / "validation.jsonl"
    for path, some in ((train_file, rows[:25]), (held_out, rows[25:])):
        path.write_text("".join(json.dumps(row) + "\n" for row in some))
    c = math_text.get_config("smoke")
    c.data.train, c.data.validation = str(train_file), str(held_out)
    c.model.preset = preset
    c.num_steps = 1
    train.main(c, str(tmp_path / "run"))
    assert [record["step"] for record in metrics.read(tmp_path / "run")] == [0, 1]
    policy, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "run" / "policy", output_loading_info=True
    )
    assert type(policy).__name__ == kind
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))


@pytest.mark.parametrize(
    ("word", "kind", "shape"),
    [("qwen3vl", "Qwen3VL", small.QWEN3VL), ("qwen3_5", "Qwen3_5", small.QWEN35)],
)
def test_a_run_of_a_family_ends_with_a_policy_that_transformers_loads(
    word, kind, shape, tmp_path, one_device, monkeypatch
):
    transformers = pytest.importorskip("transformers")
    c = tiny_gspo.get_config(f"smoke,{word}")
    monkeypatch.setitem(presets.PRESETS, c.model.preset, shape)
    c.num_steps = 1
    train.main(c, str(tmp_path / "run"))
    last = metrics.read(tmp_path / "run")[-1]
    assert last["step"] == 1 and last["actor/grad_norm"] > 0
    policy, report = transformers.AutoModelForImageTextToText.from_pretrained(
        tmp_path / "run" / "policy", output_loading_info=True
    )
    assert type(policy).__name__ == f"{kind}ForConditionalGeneration"
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
