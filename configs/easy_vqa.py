r"""easy-VQA: pictures and questions that nobody here drew. docs/easy_vqa.md goes from rows to a report.

    pip install -e '.[train,easy-vqa]'
    python -m experiments.supervise --config=configs/easy_vqa.py --directory=runs/taught \
        --lessons.num_steps=60
    python -m experiments.train --config=configs/easy_vqa.py --workdir=runs/easy_vqa \
        --config.model.preset= --config.model.checkpoint=runs/taught

The package `easy-vqa` (PyPI, MIT) has 5,000 pictures of a colored shape, 48,248 questions and 13 answers.
The arena of this name in configs/sweep.py compares selectors on them. Arguments: those of configs/tiny.py.
"""

import pathlib
import random

from configs import tiny


def rows(split):
    """Returns the rows of a split, in a random order that is always the same."""
    import easy_vqa

    part = "train" if split == "train" else "test"
    paths = getattr(easy_vqa, f"get_{part}_image_paths")()
    files = {image: pathlib.Path(path).read_bytes() for image, path in paths.items()}
    asked = zip(*getattr(easy_vqa, f"get_{part}_questions")(), strict=True)
    listed = [
        {"question": text, "answer": answer, "images": files[image], "subset": kind(text)}
        for text, answer, image in asked
    ]
    random.Random(0).shuffle(listed)
    return listed


def kind(question):
    """Returns the type of a question, such as "shape" or, answered by yes or no, "lacks color"."""
    if question.startswith("what"):
        return "color" if "color" in question else "shape"
    return (
        f"{'lacks' if ' no' in question else 'has'} {'color' if 'shape' in question else 'shape'}"
    )


def put(c):
    """Gives the tiny job these questions."""
    c.data.train = c.data.validation = "configs/easy_vqa.py:rows"
    c.data.num_train, c.data.num_validation = 4096, 512
    c.sampling.max_tokens = c.eval.max_tokens = 10
    c.eval.every = 25


def get_config(arg=None):
    """Returns the config; `arg` as in configs/tiny.py."""
    c = tiny.base(arg, loss="gspo")
    put(c)
    return c
