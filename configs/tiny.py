"""The tiny job: a 1.6 M-parameter Qwen2.5-VL learns to read small pictures on a laptop CPU.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

It starts from a policy in the package that can read some of the pictures (`model.preset="tiny_reader"`) and
trains for 100 steps. As in Table 4, a step has four mini-batches. It shows that a run works, not which
selector is better: its gain has not been measured over seeds. docs/arenas.md has jobs that can tell.

Arguments: `uniform` (the baseline of VADE, which is the default) or `selector=kalman`; `seed=3`; `qwen3vl` or
`qwen3_5`, a model of that family of this size with random weights, for `experiments.supervise` to teach;
`smoke` (for tests).
"""

import dataclasses

from ml_collections import ConfigDict

from configs import arguments, default
from experiments.warm_start import Lessons


def base(arg: str | None = None, selector: str = "vade", loss: str = "grpo", **more) -> ConfigDict:
    """Returns the tiny job; `selector` is used if `arg` names none. The caller knows `more` words."""
    args = arguments.of_run(arg, selector, qwen3vl=False, qwen3_5=False, **more)
    c = default.get_config()
    c.seed = args.seed
    c.num_steps = 100
    c.num_prompts = 32
    c.model.preset = "tiny_reader"  # it can read some of the pictures
    c.selector.options.warmup = "none"

    default.built_in(c, num_train=512, num_validation=256)
    c.data.instruction = ""
    c.data.min_pixels = c.data.max_pixels = 112 * 112
    c.data.max_prompt_length = 64
    c.data.length_multiple = 36

    c.engine.prompts_per_call = 32
    c.sampling.max_tokens = 8
    c.eval.max_tokens = 8
    c.reward.format = "boxed"
    c.loss.old_logp = "behaviour"  # exact: engine and trainer are one program

    c.optimizer.learning_rate = 5e-5
    c.optimizer.warmup_steps = 10
    c.optimizer.b2 = 0.99
    c.batch.prompts_per_minibatch = 8  # four updates a step, as in Table 4
    c.batch.prompts_per_microbatch = 8
    c.eval.every = 10
    c.checkpoint.every = 25
    default.selector(c, args.selector)
    if args.smoke:
        smoke(c)
    default.loss(c, loss)
    if args.qwen3vl or args.qwen3_5:
        # Their patches have 16 pixels, so an image of 4 x 4 cells has 128 per side.
        c.model.preset = "tiny_qwen3vl" if args.qwen3vl else "tiny_qwen3_5"
        c.data.min_pixels = c.data.max_pixels = 128 * 128
    return c


def taught(c: ConfigDict) -> ConfigDict:
    """Makes a sweep's run begin with random weights; returns the lessons, which teach each seed to read."""
    noise = dict(color_0=0.6, count_1=0.6, subtract_0=0.5)
    lessons = Lessons(num_steps=1000, batch_size=32, data="procedural", noise=noise)
    if c.model.preset == "tiny_reader":
        c.model.preset = "tiny"
    if c.num_steps == 2:  # a smoke test
        lessons = dataclasses.replace(lessons, num_steps=2, batch_size=8)
    else:
        c.num_steps = 200
    return ConfigDict(lessons.to_dict())


def smoke(c: ConfigDict) -> None:
    """Shrinks a run to seconds: two steps of the tiny model."""
    c.num_steps, c.num_epochs = 2, 0.0
    c.num_prompts = 4
    c.num_rollouts = 4
    c.model.checkpoint, c.model.preset, c.model.size = "", "tiny", ""
    default.built_in(c, num_train=16, num_validation=8)
    c.data.min_pixels = c.data.max_pixels = 112 * 112
    c.data.max_prompt_length = 128
    c.data.length_multiple = 128  # one shape
    c.engine.name, c.engine.prompts_per_call = "local", 4
    c.sampling.max_tokens = c.eval.max_tokens = 8
    c.batch.prompts_per_minibatch = 4
    c.batch.prompts_per_microbatch = 2
    c.eval.every = 2
    c.checkpoint.every = 1
