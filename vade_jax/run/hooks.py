"""The hooks that a caller gives to a run, so that runs import nothing of pages, evaluations or studies.

    from vade_jax import report, run
    run.train(job, "runs/mine", hooks=run.Hooks(page=report))

Each hook is a module, or any object, with these functions. `experiments/hooks.py` has all of them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vade_jax import settings
from vade_jax.data import prompts, sources, tokens
from vade_jax.trainer.choosing import Expand
from vade_jax.trainer.scoring import Advantage
from vade_jax.trainer.validation import Validate
from vade_jax.types import Item, PathLike


class Page(Protocol):
    """Shows a run to people: `vade_jax.report`."""

    def at_start(self, workdir: PathLike, items: sources.Source) -> Any:
        """Shows the training data, before the first step."""
        ...

    def at_end(self, workdir: PathLike, items: sources.Source) -> Any:
        """Shows the finished run; `items` is the source of the training data, by row."""
        ...


class Benchmarks(Protocol):
    """Runs benchmarks during training: `experiments.evals.in_training`."""

    def paths(self, section: settings.Eval) -> Mapping[str, str]:
        """Returns the file of each benchmark in `eval.benchmarks`; raises ValueError if one is wrong."""
        ...

    def make(
        self, section: settings.Eval, data: settings.Data, tokenizer: tokens.Tokenizer
    ) -> list[Validate]:
        """Returns a validation for each of them; raises ValueError if a file is not of its benchmark."""
        ...


class Vary(Protocol):
    """Makes variants, counts them, and compares answers to a problem and to its variants."""

    expand: Expand
    advantage: Advantage
    counts: Mapping[str, int]  # the number made so far, by kind


class Variants(Protocol):
    """Makes the variants that a selector asks for: `experiments.diva.hook`."""

    def check(self, run: settings.Run) -> None:
        """Raises ValueError if the settings do not allow variants."""

    def make(
        self, run: settings.Run, items: Sequence[Item], build_prompt: prompts.PromptBuilder
    ) -> Vary:
        """Returns the maker of variants of the training items; raises ValueError if none can be made."""
        ...


@dataclasses.dataclass(frozen=True)
class Hooks:
    """The hooks of a run. Without hooks it trains and writes only its records."""

    page: Page | None = None
    benchmarks: Benchmarks | None = None  # for `eval.benchmarks`
    variants: Variants | None = None  # for selectors that ask for them
