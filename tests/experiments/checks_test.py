"""What can be wrong with a config: one clear sentence, before anything is built."""

import pytest

from configs import tiny_gspo
from experiments import checks

WRONG = {
    "sampler.name": ("vaed", r"sampler.name='vaed': one of .*vade"),
    "engine.name": ("vlm", r"engine.name='vlm': one of local"),
    "reward.format": ("box", r"reward.format='box': one of boxed, think_boxed"),
    "loss.old_logp": ("engine", r"loss.old_logp='engine': one of behaviour, trainer"),
    "loss.ratio": ("tokn", r"loss.ratio='tokn': one of token, sequence"),
    "loss.clip_low": (1.5, r"clip_low=1.5 must be in \[0, 1\)"),
    "model.dtype": ("fp8", r"model.dtype='fp8': one of auto, float32, bfloat16"),
    "num_rollouts": (1, r"num_rollouts=1: must be at least 2"),
    "num_steps": (0, r"num_steps=0: must be at least 1"),
    "num_prompts": (0, r"num_prompts=0: must be at least 1"),
    "eval.every": (0, r"eval.every=0: must be at least 1"),
    "eval.num_samples": (0, r"eval.num_samples=0: must be at least 1"),
    "eval.max_tokens": (0, r"eval.max_tokens=0: must be at least 1"),
    "eval.temperature": (-1.0, r"eval.temperature=-1.0: must be at least 0"),
    "sampling.max_tokens": (0, r"sampling.max_tokens=0: must be at least 1"),
    "sampling.temperature": (0.0, r"sampling.temperature=0.0: rollouts need a temp"),
    "sampling.top_p": (0.0, r"sampling.top_p=0.0: must be in \(0, 1\]"),
    "sampling.top_k": (-1, r"sampling.top_k=-1: must be at least 0"),
    "reward.format_weight": (1.0, r"reward.format_weight=1.0: must be in \[0, 1\)"),
    "batch.prompts_per_minibatch": (
        3,
        r"prompts_per_minibatch=3 does not divide num_p",
    ),
    "batch.prompts_per_microbatch": (
        3,
        r"prompts_per_microbatch=3 does not divide batch.prompts_per_minibatch=4",
    ),
    "batch.vocab_chunk": (0, r"batch.vocab_chunk=0: must be at least 1"),
    "engine.prompts_per_call": (0, r"engine.prompts_per_call=0: must be at least 1"),
    "data.length_multiple": (0, r"data.length_multiple=0: must be at least 1"),
    "data.num_train": (3, r"num_prompts=4 is larger than the training set of 3 usable"),
    "data.validation": ("", r"data.validation is empty: give 'procedural' or a .jsonl"),
    "model.preset": ("", r"model.checkpoint='' and model.preset='': give exactly one"),
    "model.checkpoint": (
        "somewhere",
        r"model.checkpoint='somewhere' and .*exactly one",
    ),
    "sampler.options.decay_selected": (1.5, r"decay_selected=1.5"),
    "sampler.options.draw": ("best", r"draw='best'"),
    "warm_start.num_steps": (-1, r"warm_start.num_steps=-1: must be at least 0"),
    "warm_start.batch_size": (0, r"warm_start.batch_size=0: must be at least 1"),
    "checkpoint.every": (0, r"checkpoint.every=0: must be at least 1"),
    "optimizer.learning_rate": (-1e-3, r"optimizer.learning_rate=-0.001: must be"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_impossible_value_names_the_field_and_the_way_out(name):
    value, message = WRONG[name]
    c = tiny_gspo.get_config("smoke")
    *parents, last = name.split(".")
    section = c
    for parent in parents:
        section = section[parent]
    section[last] = value
    with pytest.raises(ValueError, match=message) as caught:
        checks.config(c)
    assert "\n" not in str(caught.value)


def test_a_preset_that_is_not_there():
    c = tiny_gspo.get_config("smoke")
    c.model.preset = "tyni"
    with pytest.raises(ValueError, match=r"model.preset='tyni': one of .*tiny"):
        checks.config(c)


def test_truncation_needs_the_engines_logps():
    c = tiny_gspo.get_config("smoke")
    c.sampling.top_p = 0.9
    checks.config(c)
    c.loss.old_logp = "trainer"
    with pytest.raises(ValueError, match="knows no truncation"):
        checks.config(c)


def test_an_option_that_the_sampler_does_not_have():
    c = tiny_gspo.get_config("smoke")
    c.sampler.name = "uniform"  # and still VADE's options
    with pytest.raises(ValueError, match=r"sampler.options.decay_.*uniform takes"):
        checks.config(c)


def test_no_dual_clip_is_zero_in_a_config():
    c = tiny_gspo.get_config("smoke")
    assert checks.policy_loss(c).dual_clip is None
    c.loss.dual_clip = 3.0
    assert checks.policy_loss(c).dual_clip == 3
