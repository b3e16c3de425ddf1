"""The argument of a config, the words after the colon: `--config=configs/tiny_gspo.py:uniform,seed=3`."""

import ml_collections

from vade_jax import fields


def parse(arg: str | None, **defaults) -> ml_collections.ConfigDict:
    """Returns `defaults` changed by the words of `arg`: `name` sets True, `name=value` sets a value.

    A value is cast to the type of its default. Words are for choices that change several fields; a single
    field is set by `--config.name=value`.

    Raises:
        ValueError: a word is unknown (the message names the nearest known one), or its value does not fit.
    """
    values = ml_collections.ConfigDict(defaults)
    for word in filter(None, (arg or "").split(",")):
        name, _, value = word.partition("=")
        if name not in defaults:
            raise ValueError(
                f"config argument {name!r} is unknown: {fields.did_you_mean(name, defaults)}"
                f"known are {', '.join(sorted(defaults))}"
            )
        kind = type(defaults[name])
        if kind is bool and value:
            raise ValueError(f"config argument {word!r}: {name} takes no value")
        try:
            values[name] = True if kind is bool and not value else kind(value)
        except ValueError:
            raise ValueError(f"config argument {word!r}: {name} is a {kind.__name__}") from None
    return values


def of_run(arg: str | None, selector: str = "vade", **more) -> ml_collections.ConfigDict:
    """Returns the choices that every run has, and `more`: selector, `smoke` and seed.

    `selector` is the default selector; `uniform` is short for `selector=uniform`.

    Raises:
        ValueError: a word is unknown, or more than one selector is named.
    """
    args = parse(arg, uniform=False, selector="", smoke=False, seed=0, **more)
    if args.uniform and args.selector:
        raise ValueError(f"config argument {arg!r}: give one selector")
    args.selector = "uniform" if args.uniform else args.selector or selector
    return args
