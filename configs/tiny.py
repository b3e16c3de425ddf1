"""The tiny job: a 1.6 M-parameter Qwen2.5-VL learns to read small pictures on a laptop CPU.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

It starts from a policy in the package that can read some of the pictures (`model.preset="tiny_reader"`) and
trains for 100 steps. As in Table 4, a step has four mini-batches. It shows that a run works, not which
selector is better: its gain has not been measured over seeds. docs/arenas.md has jobs that can tell.

Arguments: `vade` (the default selector), `uniform` (the baseline) or `selector=kalman`; `seed=3`;
`reward=paper` (0 or 1, without a part for the format); `qwen3vl`, a Qwen3-VL of this size with a warm start
of its own; `smoke` (a minute, for tests).
"""

from ml_collections import ConfigDict

from configs import arguments, default


def base(arg: str | None = None, selector: str = "vade", loss=default.grpo, **more) -> ConfigDict:
    """Returns the tiny job; `selector` is the default, used if `arg` names none.

    `more` are further words that `arg` may have, with their defaults; the calling config reads them.
    """
    args = arguments.of_run(arg, selector, qwen3vl=False, **more)
    c = default.get_config()
    c.seed = args.seed
    if args.reward:
        c.reward.format_weight = 0.0
    c.num_steps = 100
    c.num_prompts = 32
    c.model.preset = "tiny_reader"  # already warm-started; `taught` makes a new warm start
    c.selector.options.warmup = "none"

    c.warm_start.num_steps = 0
    c.warm_start.batch_size = 32
    c.warm_start.learning_rate = 1e-3
    c.warm_start.noise = ConfigDict(dict(color_0=0.6, count_1=0.6, subtract_0=0.5))

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
    loss(c)
    if args.qwen3vl:
        # Its patches have 16 pixels, so an image of 4 x 4 cells has 128 per side.
        taught(c).model.preset = "tiny_qwen3vl"
        c.data.min_pixels = c.data.max_pixels = 128 * 128
    return c


def taught(c: ConfigDict) -> ConfigDict:
    """Returns the config with its own warm start, which depends on the seed, as sweeps need it."""
    if c.model.preset == "tiny_reader":  # not a smoke test, which has a warm start of two steps
        c.model.preset, c.warm_start.num_steps, c.num_steps = "tiny", 1000, 200
        c.warm_start.data = "procedural"  # to read, whatever RL is to learn
    return c


def smoke(c: ConfigDict) -> None:
    """Shrinks a run to seconds: two steps of the tiny model."""
    c.num_steps, c.num_epochs = 2, 0.0
    c.num_prompts = 4
    c.num_rollouts = 4
    c.model.checkpoint, c.model.preset, c.model.size = "", "tiny", ""
    c.warm_start.num_steps = 2
    c.warm_start.batch_size = 8
    default.built_in(c, num_train=16, num_validation=8)
    c.data.min_pixels = c.data.max_pixels = 112 * 112
    c.data.max_prompt_length = 128
    c.data.length_multiple = 64
    c.engine.name, c.engine.prompts_per_call = "local", 4
    c.sampling.max_tokens = c.eval.max_tokens = 8
    c.batch.prompts_per_minibatch = 4
    c.batch.prompts_per_microbatch = 2
    c.eval.every = 2
    c.checkpoint.every = 1
