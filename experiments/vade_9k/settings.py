"""The settings of `experiments.build_data`: which files, how many questions, and the limits of a prompt."""

import dataclasses
import os
from collections.abc import Mapping
from typing import ClassVar

from experiments.evals import benchmarks
from vade_jax import fields, settings


@dataclasses.dataclass(frozen=True)
class Subset:
    """The part of one published data set that is used."""

    path: str = ""  # in the source directory; empty: the subset is left out
    take: int = 0  # questions; 0: all that are usable
    domain: str = ""  # its name in tables
    solutions: bool = False  # answers are full solutions that end in the gold


# Table 3. The paper takes 498 questions of GEOS, which is all that there is.
SUBSETS = {
    "geo3k": Subset("geo3k", 800, "mathematics"),
    "geo170k": Subset("geo170k(qa)", 1778, "mathematics"),
    "clevr_math": Subset("CLEVR-Math(MathV360K)", 321, "mathematics"),
    "geos": Subset("GEOS(MathV360K)", 0, "mathematics"),
    "geoqa_plus": Subset("GeoQA+(MathV360K)", 1923, "mathematics"),
    "geometry3k": Subset("Geometry3K(MathV360K)", 350, "mathematics"),
    "figureqa": Subset("figureqa(cauldron,llava_format)", 957, "charts"),
    "tabmwp": Subset("tabmwp(cauldron)", 219, "charts", solutions=True),
    "chartqa": Subset("ChartQA", 1300, "charts"),
    "ai2d": Subset("ai2d(cauldron,llava_format)", 225, "science"),
    "scienceqa": Subset("ScienceQA", 1100, "science"),
}


# The paper's number of questions from each.
TABLE_3 = {name: one.take for name, one in SUBSETS.items()} | {"geos": 498}


@dataclasses.dataclass(frozen=True)
class PromptSettings(fields.Section):
    """What a prompt is: the fields of `vade_jax.settings.Data` with their defaults."""

    path: ClassVar[str] = "data."

    instruction: str = settings.Data.instruction
    min_pixels: int = settings.Data.min_pixels
    max_pixels: int = settings.Data.max_pixels
    max_prompt_length: int = settings.Data.max_prompt_length


@dataclasses.dataclass(frozen=True)
class Build(fields.Section):
    """All settings of a build."""

    seed: int = fields.number(0, at_least=0, below=2**63)  # of the order of rows, and of the split
    source: str = fields.location()  # --source: directory of the published files
    checkpoint: str = fields.location()  # --checkpoint: its tokenizer and template count tokens
    subsets: Mapping[str, Subset] = fields.mapping(**SUBSETS)
    own: tuple[str, ...] = ()  # directories or files of your own, in source or anywhere
    per_row: int = fields.number(1, at_least=1)  # questions of a row with several, as of FigureQA
    validation: float = fields.number(0.1, above=0, below=1)  # share of all questions
    num_threads: int = 2  # that decode and check images
    data: PromptSettings = PromptSettings()
    # Whether to leave out questions that are also in a benchmark: the same words about a similar picture
    exclude: bool = True
    # Files, for `exclude`
    benchmarks: Mapping[str, str] = fields.mapping(**dict.fromkeys(benchmarks.PAPER, ""))

    def __post_init__(self):
        super().__post_init__()
        subsets = {
            name: Subset(**one) if isinstance(one, Mapping) else one
            for name, one in self.subsets.items()
        }
        object.__setattr__(self, "subsets", subsets)
        for name, subset in subsets.items():
            fields.Interval(at_least=0).check(f"subsets.{name}.take", subset.take)
        object.__setattr__(self, "own", tuple(map(os.path.expanduser, self.own)))
        files = {name: os.path.expanduser(path) for name, path in self.benchmarks.items()}
        object.__setattr__(self, "benchmarks", files)
