"""Your own questions on a laptop: from a file of rows to a report in a minute.

    python -m experiments.train --config=configs/my_data.py --workdir=runs/counting
    python -m experiments.train --config=configs/my_data.py --workdir=runs/mine --config.data.train=rows.jsonl

The first command trains on the ten rows of docs/examples/counting, the second on yours: pictures of any size
and shape, questions of up to 512 tokens, rows with or without a picture. A fifth of the rows is held out for
validation. The policy is the tiny model of the package. It is far too small to be good at your questions, but
it quickly shows whether rows, rewards and selector work as you intend. `experiments.supervise` teaches it the
rows' own answers first.

Arguments: those of configs/tiny.py except `smoke`.
"""

from configs import default, tiny


def get_config(arg=None):
    """Returns the config; the docstring of the file lists the words of `arg`."""
    c = tiny.base(arg, loss="gspo")
    c.data.train, c.data.validation = "docs/examples/counting/train.jsonl", ""
    held_out = c.data.get_ref("validation")
    c.data.validation_share = default.follow(held_out, lambda path: 0.0 if path else 0.2)
    c.data.min_pixels = 56 * 56
    c.data.max_prompt_length = 512
    c.data.length_multiple = 128
    c.num_steps = 20
    c.num_prompts = c.engine.prompts_per_call = 4  # of 8 in the example; with more rows ask more
    c.batch.prompts_per_minibatch = c.batch.prompts_per_microbatch = 2
    c.sampling.max_tokens = c.eval.max_tokens = 16
    return c
