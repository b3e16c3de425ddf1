r"""Compares selectors without a model: how many rollouts they waste, and how much is learned.

    python -m experiments.simulate --config=configs/simulate.py --workdir=runs/simulate

All selectors except diva and the control strata run for the same number of rollouts in worlds with known pass
rates.

    --config.selectors=vade,uniform --config.worlds=skills      # a few
    --config.num_items=1000000 --config.seeds=0,1               # a large pool
    --config.world.skills.hopeless=0.2                          # another world
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from experiments import cli, errors
from experiments.arenas.simulation import arena, results, selectors
from vade_jax import atomic
from vade_jax.run.directory import own


def main(c: ConfigDict, workdir: str) -> None:
    """Plays the cells; writes report.md."""
    with errors.user_errors():
        planned = selectors.cells(selectors.Settings.from_dict(c.to_dict()))
        owned = own(workdir)
    with owned:
        _play(planned, pathlib.Path(workdir))


def _play(planned: Mapping[str, Sequence[selectors.Cell]], directory: pathlib.Path) -> None:
    worlds, text = {}, []
    for world, cells in planned.items():
        played = {cell.entry.label: outcome(cell) for cell in cells}
        text.append(results.table(world, cells[0].shape, played))
        print("\n" + text[-1], flush=True)
        worlds[world] = played
        # Written after every world, so that an interrupted run leaves the results so far.
        atomic.write_text(directory / "report.md", "\n".join(text))
    if table := results.overview(worlds):
        print("\n" + table)
        atomic.write_text(directory / "report.md", "\n".join([table, *text]))


def outcome(cell: selectors.Cell) -> Mapping[str, Any]:
    """Returns the summary of a cell that it plays; prints one line."""
    result = arena.run(cell)
    summary = results.summary(result, cell.shape)
    progress, effective = (results.mean(summary, x).text() for x in ("progress", "effective"))
    name = f"{cell.world:<13} {cell.entry.label:<24}"
    how = f"{result.seconds:.1f} s, {result.compile_seconds:.1f} s to compile"
    print(f"{name} progress {progress}  effective ratio {effective}  ({how})", flush=True)
    return summary


if __name__ == "__main__":
    cli.run(main)
