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
    selector = make(run)
    _check_arrays(run, selector)
    _check_refill(run, selector)


def _check_arrays(run: settings.Run, selector: samplers.Sampler) -> None:
    name, given = run.selector.name, run.selector.arrays
    if unknown := [x for x in given if x not in selector.needs.named()]:
        raise ValueError(
            f"selector.arrays.{unknown[0]}: {name} takes {', '.join(selector.needs.named()) or 'none'}"
        )
    if vectors := [x for x in given if x in selector.needs.named("states")]:
        raise ValueError(
            f"selector.arrays.{vectors[0]}={given[vectors[0]]!r}: {name} takes a vector of every item, which no "
            "metadata field holds: leave it out, and the run takes the policy's own states"
        )
    if wrong := [x for x, value in given.items() if not isinstance(value, str)]:
        raise ValueError(
            f"selector.arrays.{wrong[0]}={given[wrong[0]]!r}: give the names of metadata fields in one text, "
            "such as 'family,level'"
        )
    if missing := [x for x in selector.needs.named("required") if not given.get(x)]:
        raise ValueError(
            f"{name} needs the {missing[0]} of every item: name the metadata fields that tell it, such as "
            f"--config.selector.arrays=\"{{'{missing[0]}': 'family,level'}}\""
        )
    missing = [x for x in selector.needs.named("measured") if not given.get(x)]
    if missing and not run.measure.every:
        raise ValueError(
            f"{name} needs the {' and the '.join(missing)} of every item: set measure.every to the "
            "steps between two passes over the data, or selector.arrays to metadata fields"
        )


def _check_refill(run: settings.Run, selector: samplers.Sampler) -> None:
    """Raises ValueError if `refill` or `measure` does not fit the selector's rounds and dropped groups."""
    name, refill = run.selector.name, run.refill
    plain = settings.Refill().to_dict()
    changed = {k: v for k, v in refill.to_dict().items() if v != plain[k]}
    if changed and not selector.drops:
        field, value = next(iter(changed.items()))
        raise ValueError(
            f"refill.{field}={value!r}, but the selector {name} drops no group: "
            f"set refill.{field}={plain[field]!r}, or choose one that does, such as dapo"
        )
    if run.measure.every and selector.needs.passes == "never":
        raise ValueError(
            f"measure.every={run.measure.every} with {name}, which would take a pass for a round of a step: "
            f"set it to 0{selector.needs.or_remove('passes')}"
        )
    if selector.needs.rounds is not None and refill.max_rounds != selector.needs.rounds:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but {name} with these options is made for "
            f"{selector.needs.rounds} a step: set it to {selector.needs.rounds}{selector.needs.or_remove('rounds')}"
        )
    if selector.needs.variants and refill.max_rounds != 1:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but the selector asks for variants, whose "
            "groups belong together: set refill.max_rounds=1"
        )
