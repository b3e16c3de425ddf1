"""The paper's training set (its Table 3): 9,471 questions of eleven published data sets, from files.

    python -m experiments.build_data --config=configs/vade_9k.py --source=DIR --target=DIR \
        --checkpoint=DIR

SOURCE has a directory for each `path` of SUBSETS in vade_jax/recipes/vade_9k/settings.py, with the
.parquet, .arrow, .jsonl or .json files as they are published: of LLaVA-OneVision-Data the configs of
that name, HuggingFaceM4's ChartQA, ScienceQA. How the paper chose its rows is not known; here it is a
seeded order. `--config.own="('mine',)"` adds directories of your own rows, in verl's or EasyR1's parquet
or as JSONL beside images, whole.

Needs a CPU only; it was tried on files made in the published schemas, not on the data sets themselves.
"""

import dataclasses

from ml_collections import ConfigDict

from configs import arguments
from vade_jax.recipes.vade_9k import settings


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns the fields of `settings.Build`, with the seed that `arg` names."""
    build = settings.Build(seed=arguments.parse(arg, seed=0).seed)
    return ConfigDict(dataclasses.asdict(build))
