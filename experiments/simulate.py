r"""Compares selectors without a model: which wastes fewer rollouts, and which learns more.

    python -m experiments.simulate --config=configs/simulate.py --workdir=runs/simulate

All selectors of the package except diva and the control strata choose through their own functions, for the
same number of rollouts, in worlds whose pass rates are known. The result of each (world, selector) is kept in
the workdir, so an interrupted run resumes; a result whose settings have changed is made again. After a change
of the code use a new workdir.

    --config.selectors=vade,uniform --config.worlds=skills      # a few
    --config.num_items=1000000 --config.seeds=0,1               # a large pool
    --config.world.skills.hopeless=0.2                          # another world
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from experiments import cli, errors
from experiments.arenas.simulation import arena, results, selectors
from vade_jax import atomic
from vade_jax.run.directory import own


def main(c: ConfigDict, workdir: str) -> None:
    """Plays the cells that are missing; writes report.md, results.json and a figure for each world."""
    with errors.user_errors():
        settings = selectors.Settings.from_dict(c.to_dict())
        planned = selectors.cells(settings)
        owned = own(workdir)
    with owned:
        _play(settings, planned, pathlib.Path(workdir))


def _play(
    settings: selectors.Settings,
    planned: Mapping[str, Sequence[selectors.Cell]],
    directory: pathlib.Path,
) -> None:
    summaries, text = {}, []
    highlight = selectors.words(settings.highlight)
    for world, cells in planned.items():
        played = {cell.entry.label: outcome(cell, directory) for cell in cells}
        text.append(results.table(world, cells[0].shape, played))
        print("\n" + text[-1], flush=True)
        results.draw(world, played, highlight, directory / "figures" / f"{world}.png")
        summaries[world] = {
            label: {name: x for name, x in summary.items() if name != "curves"}
            for label, summary in played.items()
        }
        # Written after every world, so that an interrupted run leaves the results so far.
        atomic.write_text(directory / "report.md", "\n".join(text))
        atomic.write_text(directory / "results.json", json.dumps(summaries, indent=1) + "\n")
    if table := results.overview(summaries):
        print("\n" + table)
        atomic.write_text(directory / "report.md", "\n".join([table, *text]))


def outcome(cell: selectors.Cell, directory: pathlib.Path) -> Mapping[str, Any]:
    """Returns the summary of a cell, read from its file or made by playing it; prints one line."""
    path = directory / "cells" / cell.world / f"{cell.entry.label}.json"
    found = {}
    if path.exists():
        with errors.user_errors():
            found = kept(path)
    if found.get("settings") == cell.settings:
        summary, how = found["summary"], "kept from before"
    else:
        result = arena.run(cell)
        summary = results.summary(result, cell.shape)
        atomic.write_text(path, json.dumps({"settings": cell.settings, "summary": summary}))
        how = f"{result.seconds:.1f} s, {result.compile_seconds:.1f} s to compile"
        how = f"settings changed: {how}" if found else how
    progress, effective = (
        results.number(summary["values"][name], 3, True) for name in ("progress", "effective")
    )
    name = f"{cell.world:<13} {cell.entry.label:<24}"
    print(f"{name} progress {progress}  effective ratio {effective}  ({how})", flush=True)
    return summary


def kept(path: pathlib.Path) -> Mapping[str, Any]:
    """Returns the contents of a cell's file.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        found = json.loads(path.read_text())
        return {name: found[name] for name in ("settings", "summary")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): delete it, and it is played again"
        ) from error


if __name__ == "__main__":
    cli.run(main)
