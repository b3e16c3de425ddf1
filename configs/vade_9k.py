"""The paper's training set (its Table 3): 9,471 questions of eleven published data sets, from files.

    python -m experiments.build_data --config=configs/vade_9k.py --source=DIR --target=DIR \
        --checkpoint=DIR

SOURCE has a directory for each `path` below, with the .parquet, .arrow, .jsonl or .json files as they are
published: of LLaVA-OneVision-Data the configs of that name, HuggingFaceM4's ChartQA, ScienceQA. How the
paper chose its rows is not known; here it is a seeded order. `own="('mine',)"` adds directories
of your own rows, in verl's or EasyR1's parquet or as JSONL beside images, whole.
"""

from ml_collections import ConfigDict

from configs import arguments, default
from vade_jax.evals import benchmarks

# name: (path in SOURCE, questions that the paper takes, domain)
SUBSETS = {
    "geo3k": ("geo3k", 800, "mathematics"),
    "geo170k": ("geo170k(qa)", 1778, "mathematics"),
    "clevr_math": ("CLEVR-Math(MathV360K)", 321, "mathematics"),
    "geos": ("GEOS(MathV360K)", 498, "mathematics"),
    "geoqa_plus": ("GeoQA+(MathV360K)", 1923, "mathematics"),
    "geometry3k": ("Geometry3K(MathV360K)", 350, "mathematics"),
    "figureqa": ("figureqa(cauldron,llava_format)", 957, "charts"),
    "tabmwp": ("tabmwp(cauldron)", 219, "charts"),
    "chartqa": ("ChartQA", 1300, "charts"),
    "ai2d": ("ai2d(cauldron,llava_format)", 225, "science"),
    "scienceqa": ("ScienceQA", 1100, "science"),
}
WHOLE = ("geos",)  # 498 is all that there is
SOLUTIONS = ("tabmwp",)  # answers end in the gold


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns what is taken of which files, and the limits of a run's prompts."""
    c = ConfigDict()
    c.seed = arguments.parse(arg, seed=0).seed
    c.source = ""  # --source
    c.checkpoint = ""  # --checkpoint: whose tokenizer and template count tokens
    c.subsets = ConfigDict()
    for name, (path, take, domain) in SUBSETS.items():
        c.subsets[name] = ConfigDict(
            dict(
                path=path,  # in SOURCE; empty: the subset is left out
                take=0 if name in WHOLE else take,  # questions; 0: all that are usable
                domain=domain,
                solutions=name in SOLUTIONS,
            )
        )
    c.own = ()  # directories or files of your own, in SOURCE or anywhere
    c.per_row = (
        1  # questions taken of a row with several (FigureQA asks many of a chart)
    )
    c.validation = 0.1  # share of all questions
    c.allow_fewer = False  # True: a subset with fewer usable questions gives them all
    c.num_threads = 2  # that decode and check images

    run = default.get_config()  # what a prompt is, as a run builds it
    names = ("instruction", "min_pixels", "max_pixels", "max_prompt_length")
    c.data = ConfigDict({name: run.data[name] for name in names})
    c.benchmarks = ConfigDict(dict.fromkeys(benchmarks.PAPER, ""))  # files, for --audit
    return c
