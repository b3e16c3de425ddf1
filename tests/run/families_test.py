"""Other families as the policy, at a tiny size: whole runs on texts, of a Qwen3-VL and of a Qwen3.5."""

import json

import pytest

from configs import math_text, tiny_gspo
from experiments import train
from tests.models.qwen import oracle
from tests.trainer import small
from vade_jax.models.qwen import presets
from vade_jax.store import metrics

SHAPES = {
    "tiny_llama": oracle.text(presets.PRESETS["tiny_llama"], num_layers=2),
    "tiny_qwen3vl": small.QWEN3VL,
    "tiny_qwen3_5": small.QWEN35,
}


@pytest.mark.parametrize(
    ("preset", "auto", "kind"),
    [
        ("tiny_llama", "CausalLM", "LlamaForCausalLM"),
        ("tiny_qwen3vl", "ImageTextToText", "Qwen3VLForConditionalGeneration"),
        ("tiny_qwen3_5", "ImageTextToText", "Qwen3_5ForConditionalGeneration"),
    ],
)
def test_a_run_ends_with_a_policy_that_transformers_loads(
    preset, auto, kind, tmp_path, one_device, monkeypatch
):
    """Text models with the config for text maths, on rows as GSM8K has them."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setitem(presets.PRESETS, preset, SHAPES[preset])
    if auto == "CausalLM":
        rows = [
            {"question": f"What is {a} + {b}?", "answer": f"{a} and {b} are {a + b}.\n#### {a + b}"}
            for a in range(5)
            for b in range(7)
        ]
        c = math_text.get_config("smoke")
        for split, some in (("train", rows[:25]), ("validation", rows[25:])):
            c.data[split] = str(tmp_path / f"{split}.jsonl")
            (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in some))
        c.model.preset = preset
    else:
        c = tiny_gspo.get_config(f"smoke,{preset.removeprefix('tiny_')}")
    c.num_steps = 1
    train.main(c, str(tmp_path / "run"))
    records = metrics.read(tmp_path / "run")
    assert [record["step"] for record in records] == [0, 1]
    assert auto == "CausalLM" or records[1]["actor/grad_norm"] > 0
    policy, report = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(
        tmp_path / "run" / "policy", output_loading_info=True
    )
    assert type(policy).__name__ == kind
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
