"""Makes the selector, and checks that the run gives it what it needs."""

import math

from vade_jax import samplers, settings
from vade_jax.trainer import passes, processes


def make(run: settings.Run) -> samplers.Sampler:
    """Returns the selector with G, its options, and the seed if it draws random numbers itself.

    Raises:
        ValueError: an option is unknown or out of its range.
    """
    name, spec = run.selector.name, samplers.find(run.selector.name)
    for option in run.selector.options:
        if option == "num_rollouts":
            # The selector would ask for another number than the run expects.
            raise ValueError(
                f"selector.options.num_rollouts={run.selector.options[option]!r}: the answers to a prompt are the "
                "run's: set num_rollouts"
            )
        if option not in spec.option_names:
            raise ValueError(
                f"selector.options.{option}: {name} takes {', '.join(spec.option_names)}; "
                "a config's :selector=NAME argument clears VADE's options"
            )
    of_run = {"num_rollouts": run.num_rollouts, "seed": run.seed}
    given = {k: v for k, v in of_run.items() if k in spec.option_names}
    options = dict(run.selector.options)
    try:
        return spec(**given | options)
    except ValueError as error:
        # A Section does not know under which name it stands in the settings.
        is_of_option = str(error).partition("=")[0] in options
        raise ValueError(f"selector.options.{error}" if is_of_option else str(error)) from error


def check_data_size(run: settings.Run, num_train: int) -> None:
    """Checks that the training set is large enough for a step, all rounds included, without duplicates.

    Raises:
        ValueError: names the sizes and the fix.
    """
    selector = make(run)  # first, as it checks the options
    num_items = run.num_prompts // selector.needs.places
    if num_items > num_train:
        raise ValueError(
            f"num_prompts={run.num_prompts} is larger than the training set of {num_train} "
            "usable items: lower num_prompts or give more data"
        )
    # A selector made for several rounds may need all of them: each round may drop all its groups.
    rounds = selector.needs.rounds or 1
    if num_items * rounds > num_train:
        raise ValueError(
            f"num_prompts={run.num_prompts} in each of {run.selector.name}'s {rounds} rounds of a step are "
            f"more than the training set of {num_train} usable items: lower num_prompts or give more data"
            f"{selector.needs.or_remove('rounds')}"
        )
    _check_budget(run.with_items(num_train, selector.needs.places), num_train)


def warn_without_choice(run: settings.Run, num_train: int) -> None:
    """Prints a warning if every step takes all items."""
    if run.num_prompts // make(run).needs.places == num_train and processes.is_leader():
        print(
            f"WARNING: num_prompts={run.num_prompts} takes all usable items of the training set at every step, so "
            f"{run.selector.name} has nothing to choose: lower num_prompts"
        )


def _check_budget(run: settings.Run, num_train: int) -> None:
    """Raises ValueError if the budget is spent before the first step."""
    if not run.budget:
        return
    step = run.num_prompts * run.num_rollouts
    pass_cost = passes.Passes(run.resolved_measure, make(run), num_train).cost(0)
    if run.max_rollouts < pass_cost + step:
        least = (pass_cost + step) / (run.num_steps * step)
        of_pass = f" behind the pass over all items, which takes {pass_cost}" * bool(pass_cost)
        raise ValueError(
            f"budget={run.budget} is {run.max_rollouts} answers, less than the {step} of one step{of_pass}: "
            f"give {math.ceil(least * 1000) / 1000} or more, or 0 for no limit"
        )


def check(run: settings.Run) -> None:
    """Raises ValueError unless the run gives the selector exactly what it needs."""
    selector, name, refill = make(run), run.selector.name, run.refill
    known = selector.needs.named()
    samplers.require(
        name,
        selector.needs,
        arrays=[x for x, value in run.selector.arrays.items() if value or x not in known],
        rounds=refill.max_rounds,
        passes=run.measure.every > 0 or selector.needs.passes == "first",
        hints={
            "arrays": "name metadata fields in selector.arrays, such as 'family,level', or set measure.every",
            "passes": "set measure.every=0",
            "rounds": f"set refill.max_rounds={selector.needs.rounds}",
        },
    )
    for array, value in run.selector.arrays.items():
        if array in selector.needs.named("states"):
            raise ValueError(
                f"selector.arrays.{array}={value!r}: a vector is in no metadata field: leave it out, and the run "
                "takes the policy's own states"
            )
        if not isinstance(value, str):
            raise ValueError(
                f"selector.arrays.{array}={value!r}: give the names of metadata fields in one text, such as "
                "'family,level'"
            )
    plain = settings.Refill().to_dict()
    changed = {k: v for k, v in refill.to_dict().items() if v != plain[k]}
    if changed and not selector.drops:
        field, value = next(iter(changed.items()))
        raise ValueError(
            f"refill.{field}={value!r}, but the selector {name} drops no group: "
            f"set refill.{field}={plain[field]!r}, or choose one that does, such as dapo"
        )
    if selector.needs.variants and refill.max_rounds != 1:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but the selector asks for variants, whose "
            "groups belong together: set refill.max_rounds=1"
        )
