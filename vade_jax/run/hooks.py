"""The hooks that a caller gives to a run, so that runs do not import pages, evaluations or studies.

    from vade_jax import report, run
    run.train(job, "runs/mine", hooks=run.Hooks(page=report))

Each hook is a module, or any object, with the functions named here. `experiments/hooks.py` has all of them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from vade_jax.trainer.choosing import Expand
from vade_jax.trainer.scoring import Advantage


class Vary(Protocol):
    """Makes variants, counts them, and compares answers to a problem and to its variants."""

    expand: Expand
    advantage: Advantage
    counts: Mapping[str, int]  # the number made so far, by kind


@dataclasses.dataclass(frozen=True)
class Hooks:
    """The hooks of a run. Without hooks it trains and writes only its records.

    Attributes:
        page: shows a run to people, such as `vade_jax.report`. `at_start(workdir, items)`, before the first
            step, and `at_end(workdir, items)` take the run directory and the training items.
        benchmarks: for `eval.benchmarks`, such as `experiments.evals.in_training`. `paths(eval)` raises
            ValueError if a file is wrong; `make(eval, data, tokenizer)` returns a `Validate` for each.
        variants: for selectors that ask for them, such as `experiments.diva.hook`. `check(run)` raises
            ValueError if the settings allow none; `make(run, items, build_prompt)` returns a `Vary`.
    """

    page: Any = None
    benchmarks: Any = None
    variants: Any = None


NO_HOOKS = Hooks()
