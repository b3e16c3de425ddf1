"""What runs on a device: the programs of a plan, parity with transformers, and the peers."""

import json

import jax
import pytest

from configs import tiny_grpo
from experiments.bench import device, full_size, parity, peer, plan_programs, trl_update
from experiments.bench.plan_programs import DECODE, SCORE, UPDATE
from tests.trainer import small
from vade_jax import settings
from vade_jax.models.qwen import presets


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    """The smallest model, and what would have a process of its own stays in this one."""
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    monkeypatch.setattr(full_size, "alone", lambda function, *arguments: function(*arguments))


def values(**changes):
    """Returns the smoke job's settings, for as many devices as there are."""
    c, ways = tiny_grpo.get_config("smoke"), jax.device_count()
    c.num_prompts = c.batch.prompts_per_minibatch = 2 * ways
    c.batch.prompts_per_microbatch = c.engine.prompts_per_call = ways
    c.num_rollouts, c.sampling.max_tokens, c.data.max_prompt_length = 2, 4, 64
    c.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return c.to_dict()


@pytest.mark.parametrize("name", [UPDATE, SCORE, DECODE])
def test_a_program_of_the_plan_runs(name):
    """The batch has the shapes that it was compiled for, and what comes out is finite."""
    (found,) = device.measure_program(values(), name, 1)
    ways = jax.device_count()
    assert found["seconds"] > 0 and 0 < found["mfu"] < 1 and found["plan_bytes"] > 0
    # Prompts of 64 tokens and two answers of 4 to each; decoding counts answers alone.
    assert found["tokens"] == (ways * 2 * 4 if name == DECODE else 2 * ways * (64 + 2 * 4))
    operations = found["profile"]["costliest"]
    assert sum(times for _, _, times in operations) <= found["profile"]["operations"]
    assert operations[0][1] == max(seconds for _, seconds, _ in operations) > 0
    if name == UPDATE:
        assert found["metrics"]["actor/grad_norm"] > 0
    if name == SCORE:
        assert -30 < found["metrics"]["mean log-prob"] < 0


def test_the_selector_is_measured_at_several_sizes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(device, "SELECTOR_SIZES", (100, 1000, 10**4))
    device.run(values(), ["selector"], 1, str(tmp_path / "device.json"))
    found = json.loads((tmp_path / "device.json").read_text())
    assert [*found] == ["vade, 100 items", "vade, 1,000 items"]  # the largest is for accelerators
    assert "| vade, 1,000 items |" in capsys.readouterr().out


def test_programs_that_a_run_does_not_have_are_an_error():
    without = values(engine__name="vllm_server", loss__kl_coef=0.0)
    with pytest.raises(ValueError, match="no 'prefill and decode'; it has update, selector"):
        device.run(without, ["decode"], 1, None)
    with pytest.raises(ValueError, match="no 'score'; it has update"):
        device.run(values(), ["score"], 1, None)
    with pytest.raises(ValueError, match=r"batch\.answers_per_row=1"):
        device.run(values(batch__answers_per_row=1), ["update"], 1, None)
    run = settings.Run.from_dict(values(data__max_pixels=112 * 280))
    with pytest.raises(ValueError, match="an image of 40 tokens does not fit a prompt of 43"):
        lengths = plan_programs.largest(run)._replace(prompt=43)
        full_size.full_prompts(small.SHAPE, lengths, 1)


def test_log_probs_are_those_of_transformers():
    found = parity.compare(values())
    errors = {name: x["largest"] for name, x in found["logp"].items()}
    assert errors[parity.FLOAT32] < 2e-5 < errors[parity.BLOCKS] < 0.3
    assert found["tokens"] == 2 * 2 * 4
    assert set(found["gradients"].values()) == {0.0}  # a CPU has no attention of its own


@pytest.mark.plugins
@pytest.mark.skipif(not trl_update.VERSION, reason="needs TRL")
def test_peers_run_the_same_shapes(tmp_path, capsys):
    small_run = values(batch__prompts_per_minibatch=jax.device_count())
    peer.run(small_run, 1, str(tmp_path / "peer.json"))
    found = json.loads((tmp_path / "peer.json").read_text())
    assert all(one["peer"]["seconds"] > 0 for one in found.values())
    assert "| TRL" in capsys.readouterr().out
