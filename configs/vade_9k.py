"""The paper's training set (its Table 3): 9,471 questions from the files of eleven published data sets.

    python -m experiments.build_data --config=configs/vade_9k.py --source=DIR --target=DIR \
        --checkpoint=DIR

SOURCE has a directory for each `path` of SUBSETS in experiments/vade_9k/settings.py, with the
.parquet, .arrow, .jsonl or .json files as published: the configs of LLaVA-OneVision-Data with these names,
HuggingFaceM4's ChartQA, and ScienceQA. How the paper chose its rows is not known; here rows are taken in a
seeded order. `--config.own="('mine',)"` adds directories of your own, with all their rows: verl's or EasyR1's
parquet, or JSONL next to its images.

Needs only a CPU. It was tried on files with the published schemas, not on the data sets themselves.
"""

import dataclasses

from ml_collections import ConfigDict

from configs import arguments
from experiments.vade_9k import settings


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns the fields of `settings.Build`, with the seed from `arg`."""
    build = settings.Build(seed=arguments.parse(arg, seed=0).seed)
    return ConfigDict(dataclasses.asdict(build))
