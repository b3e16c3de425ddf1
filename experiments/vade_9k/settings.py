"""The settings of `experiments.build_data`: which files, how many questions, and the limits of a prompt."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from experiments.evals import benchmarks
from vade_jax import fields, settings


@dataclasses.dataclass(frozen=True)
class Subset:
    """What is taken of one published data set."""

    path: str = ""  # in the source directory; empty: the subset is left out
    take: int = 0  # questions; 0: all that are usable
    domain: str = ""  # that it stands for in tables
    solutions: bool = False  # answers are whole solutions that end in the gold


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


# How many questions the paper says to have taken of each.
TABLE_3 = {name: one.take for name, one in SUBSETS.items()} | {"geos": 498}


@dataclasses.dataclass(frozen=True)
class PromptSettings:
    """What a prompt is: the fields of `vade_jax.settings.Data` with their defaults."""

    instruction: str = settings.Data.instruction
    min_pixels: int = settings.Data.min_pixels
    max_pixels: int = settings.Data.max_pixels
    max_prompt_length: int = settings.Data.max_prompt_length


@dataclasses.dataclass(frozen=True)
class Build:
    """All settings of a build.

    Raises:
        ValueError: a field is out of its range.
    """

    seed: int = 0  # of the order that rows are taken in, and of the split
    source: str = ""  # --source: directory of the published files
    checkpoint: str = ""  # --checkpoint: its tokenizer and template count tokens
    subsets: Mapping[str, Subset] = dataclasses.field(default_factory=lambda: dict(SUBSETS))
    own: tuple[str, ...] = ()  # directories or files of your own, in source or anywhere
    per_row: int = 1  # questions of a row with several (FigureQA asks many of a chart)
    validation: float = 0.1  # share of all questions
    allow_fewer: bool = False  # a subset with fewer usable questions gives them all
    num_threads: int = 2  # that decode and check images
    data: PromptSettings = PromptSettings()
    # What is left out of what a benchmark asks too: same words and alike picture ("both"), one of the
    # two ("either": many of "Find x." and of plain drawings go), what the audit.json of an earlier
    # build found to have both, or nothing ("none")
    exclude: str = "both"
    benchmarks: Mapping[str, str] = dataclasses.field(  # files, for `exclude` and --audit
        default_factory=lambda: dict.fromkeys(benchmarks.PAPER, "")
    )

    def __post_init__(self):
        at_home = fields.at_home
        for name in ("source", "checkpoint", "exclude"):
            object.__setattr__(self, name, at_home(name, getattr(self, name)))
        files = {name: at_home(f"benchmarks.{name}", x) for name, x in self.benchmarks.items()}
        object.__setattr__(self, "benchmarks", files)
        object.__setattr__(self, "own", tuple(at_home("own", x) for x in self.own))
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed={self.seed}: must be in 0 .. 2**63 - 1")
        if self.per_row < 1:
            raise ValueError(f"per_row={self.per_row}: must be at least 1")
        if not self.exclude.endswith(".json"):
            words = ("both", "either", "none", "an audit.json")
            fields.check_word("exclude", self.exclude, words)
        if not 0 < self.validation < 1:
            raise ValueError(f"validation={self.validation}: is a share between 0 and 1")
        for name, subset in self.subsets.items():
            if subset.take < 0:
                raise ValueError(f"subsets.{name}.take={subset.take}: must be at least 0")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the settings of nested plain values, as `dataclasses.asdict` gives them."""
        subsets = {name: Subset(**one) for name, one in values["subsets"].items()}
        own, data = tuple(values["own"]), PromptSettings(**values["data"])
        made: dict[str, Any] = {**values, "subsets": subsets, "own": own, "data": data}
        return cls(**made)
