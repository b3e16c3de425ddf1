r"""Selectors against each other without a model: who wastes fewer rollouts, and who learns more.

    python -m experiments.simulate --config=configs/simulate.py --workdir=runs/simulate

Every selector of the package plays through its own four functions, for the same number of rollouts,
in worlds whose pass rates are known. Each (world, selector) is kept in the workdir, so an interrupted
run goes on where it was; one whose settings changed is played again. After a change of the code take
a new workdir.

    --config.selectors=vade,uniform --config.worlds=skills      # a few
    --config.num_items=1000000 --config.num_seeds=2             # a large pool
    --config.world.skills.hopeless=0.2                          # another world
    --config=configs/simulate.py:reference                      # beside two earlier simulations
"""

import dataclasses
import functools
import inspect
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from experiments import cli, errors
from experiments.simulation import arena, budget, figures, reference, report
from experiments.simulation.contenders import SELECTORS, Contender, check_known
from experiments.simulation.worlds import KINDS
from vade_jax import atomic

SIZES = [field.name for field in dataclasses.fields(budget.Shape)]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One contender in one world."""

    world: str
    kind: str
    constants: tuple[tuple[str, float], ...]
    shape: budget.Shape
    contender: Contender
    seed: int
    num_seeds: int

    @property
    def settings(self) -> dict[str, Any]:
        """What the result depends on, as JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self), default=sorted))


def main(c: ConfigDict, workdir: str) -> None:
    """Plays what is missing; writes report.md, results.json and a figure a world."""
    with errors.user_errors():
        planned = plan(c)
    directory, results, text = pathlib.Path(workdir), {}, []
    for world, cells in planned.items():
        played = {cell.contender.label: outcome(cell, directory) for cell in cells}
        text.append(report.table(world, cells[0].shape, played))
        if c.reference:
            text.append(reference.table(world, played))
        highlight = words(c.highlight)
        figures.draw(world, played, highlight, directory / "figures" / f"{world}.png")
        results[world] = {
            label: {k: x for k, x in cell.items() if k != "curves"}
            for label, cell in played.items()
        }
        print("\n" + "\n".join(text[-1 - c.reference :]), flush=True)
        atomic.write_text(directory / "report.md", "\n".join(text))
        as_json = json.dumps(results, indent=1) + "\n"
        atomic.write_text(directory / "results.json", as_json)


# ------------------------------------------------------------------------------ the plan
def plan(c: ConfigDict) -> dict[str, list[Cell]]:
    """Returns the cells of every world, checked before any is played.

    Raises:
        ValueError: an unknown world, selector or option, a value out of range, too small a budget.
    """
    for name in ("num_seeds", "num_items", "num_prompts", "rollouts"):
        if c[name] < 1:
            raise ValueError(f"{name}={c[name]}: set it to at least 1")
    worlds = words(c.worlds)
    if not worlds:
        raise ValueError(f"worlds={c.worlds!r}: name one of {sorted(c.world)}")
    return {world: list(_cells(c, world)) for world in worlds}


def words(text: str) -> list[str]:
    """Returns the names in a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _cells(c: ConfigDict, world: str) -> Iterator[Cell]:
    check_known("the world", world, c.world)
    entry = c.world[world].to_dict()
    kind = entry.pop("kind")
    check_known(f"world {world}: the kind", kind, KINDS)
    selectors = words(entry.pop("selectors", "") or c.selectors)
    if not selectors:
        raise ValueError(
            f"selectors={c.selectors!r}: name one of {sorted(c.contender)}"
        )
    shape = budget.Shape(**{name: entry.pop(name, c[name]) for name in SIZES})
    _check_world(world, kind, entry, shape)
    for label in selectors:
        check_known("the selector", label, {*c.contender, *SELECTORS})
        contender = Contender.of(label, c.contender.get(label, ConfigDict()).to_dict())
        contender.sampler(shape.num_rollouts)
        budget.schedule(contender, shape)
        yield Cell(
            world=world,
            kind=kind,
            constants=tuple(sorted(entry.items())),
            shape=shape,
            contender=contender,
            seed=c.seed,
            num_seeds=c.num_seeds,
        )


def _check_world(world, kind, constants, shape):
    init = KINDS[kind].init
    known = set(inspect.signature(init).parameters) - {"key", "num_items"}
    for name in constants:
        check_known(f"world {world}: the constant", name, known)
    try:
        shape.check()
        make = functools.partial(init, num_items=shape.num_items, **constants)
        jax.eval_shape(make, jax.random.key(0))
    except ValueError as error:
        raise ValueError(f"world {world}: {error}") from None


# ------------------------------------------------------------------------------ a cell
def outcome(cell: Cell, directory: pathlib.Path) -> Mapping[str, Any]:
    """Returns the summary of a cell, from its file or by playing it; prints one line."""
    path = directory / "cells" / cell.world / f"{cell.contender.label}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if found.get("settings") == cell.settings:
        print(_line(cell, found["summary"], "kept from before"), flush=True)
        return found["summary"]
    result = arena.run(
        cell.kind,
        dict(cell.constants),
        cell.contender,
        cell.shape,
        seed=cell.seed,
        num_seeds=cell.num_seeds,
    )
    summary = report.summary(result, cell.shape)
    atomic.write_text(path, json.dumps({"settings": cell.settings, "summary": summary}))
    spent = f"{result.seconds:.1f} s, {result.compile_seconds:.1f} s to compile"
    print(
        _line(cell, summary, f"settings changed: {spent}" if found else spent),
        flush=True,
    )
    return summary


def _line(cell, summary, how):
    values = summary["values"]
    progress = report.number(values["progress"], 3, spread=True)
    effective = report.number(values["effective"], 3, spread=True)
    name = f"{cell.world:<13} {cell.contender.label:<24}"
    return f"{name} progress {progress}  effective ratio {effective}  ({how})"


if __name__ == "__main__":
    cli.run(main)
