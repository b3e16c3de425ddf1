"""DAPO's dynamic sampling (arXiv 2503.14476): groups without signal are not trained on."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax

from vade_jax.samplers import base as contract
from vade_jax.samplers import checks, uniform, vade

BASES = {"uniform": uniform.make, "vade": vade.make}


def make(
    *,
    num_rollouts: int = 8,
    base: str = "uniform",
    base_options: Mapping[str, Any] | None = None,
    keep: str = "mixed",
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> contract.Sampler:
    """Makes DAPO's filter around another selector, the constraint of Eq. 11 of arXiv 2503.14476.

    Groups are kept with 0 < correct < G. A selector only says which; the paper's dynamic sampling,
    rolling out prompts until a batch of such groups is full, is the training loop's refill in
    rounds. `base` proposes, and learns from, every round.

    Args:
        num_rollouts: G, answers to a prompt.
        base: the selector of prompts, "uniform" (the paper) or "vade".
        base_options: its other hyperparameters.
        keep: "mixed" by right and wrong answers; "varied" by the training reward; "all" filters
            nothing.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.option("base", base, BASES)
    checks.option("keep", keep, contract.KEEPS)
    make_base, options = BASES[base], dict(base_options or {})
    known = set(inspect.signature(make_base).parameters) - {
        "num_rollouts",
        "mesh",
        "axis",
    }
    for name in options:
        checks.option(f"{base} has no such option; base_options", name, known)
    sampler = make_base(num_rollouts=num_rollouts, mesh=mesh, axis=axis, **options)
    return sampler._replace(keep=jax.jit(contract.KEEPS[keep]))
