"""The numbers of two earlier NumPy simulations of the same worlds, and ours beside them.

They are of 3 seeds (stationary, drift) and 4 seeds, with a spread over seeds of at most 0.004. Known
to differ: their random selector draws every batch anew, ours goes through epochs; their greedy one
broke ties with noise of 1e-9, which decides between counts that have decayed to nothing, ours breaks
only exact ties; `hopeless` counts what was trained on, without a first measurement. How fast skills
grow was not written down: `transfer`, and `rate` of the slow worlds, are fitted to the uniform row.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax import tables

COLUMNS = ("effective", "last_20", "progress", "visited", "hopeless_trained")

# World -> its quantities, in the order of the numbers below.
_STILL = {"stationary": ("effective", "visited"), "drift": ("effective", "last_20", "progress")}
_SKILLS = {
    "skills": ("effective", "progress", "hopeless_trained"),
    "skills_clean": ("effective", "progress"),
    "skills_slow": ("effective", "progress", "hopeless_trained"),
    "skills_hard": ("effective", "progress", "hopeless_trained"),
}
_STILL_ROWS = """
uniform                 0.505 1.0    0.417 0.30 0.778
vade_free               0.755 0.78   0.524 0.33 0.869
vade_p1p_free           0.884 0.98   0.512 0.29 0.813
vade_mean_free          0.874 0.59   0.400 0.18 0.834
vade_mean_p1p_free      0.964 0.50   0.538 0.28 0.823
vade_greedy_free        0.957 0.41   0.465 0.31 0.769
vade_no_warmup          0.738 1.0    0.519 0.34 0.867
vade_no_forgetting_free 0.917 0.71   0.516 0.26 0.822
vade_last_update_free   0.688 0.74   0.508 0.34 0.866
vade_rest_99_free       0.715 1.0    0.524 -    0.864
vade_rest_97_free       0.662 1.0    0.517 -    0.854
oracle                  0.959 0.06   0.617 -    0.899
oracle_p1p              0.991 0.06   0.593 -    0.853
"""
_SKILLS_ROWS = """
uniform              0.419 0.914 0.083   0.432 0.924   0.550 0.802 0.083   0.576 0.769 0.083
dapo                 0.966 0.896 0.015   0.966 0.907   1.0   0.763 0.011   1.0   0.737 0.011
vade_measured        0.488 0.923 0.312   0.528 0.949   0.725 0.859 0.127   0.710 0.849 0.143
vade_no_warmup       0.453 0.926 0.335   0.487 0.952   0.686 0.870 0.150   0.677 0.856 0.162
vade_slow_decay_none 0.466 0.935 0.277   0.493 0.955   0.717 0.884 0.103   0.717 0.866 0.108
vade_p1p_none        0.490 0.951 0.047   0.500 0.956   0.718 0.883 0.028   0.761 0.840 0.025
vade_mean_p1p_none   0.512 0.958 0.038   0.521 0.961   0.768 0.901 0.019   0.815 0.848 0.016
vade_mean_none       0.389 0.876 0.582   0.491 0.954   0.630 0.845 0.287   0.576 0.833 0.357
kalman_fixed         0.480 0.945 0.183   0.499 0.957   0.747 0.896 0.060   0.761 0.876 0.058
kalman_fixed_p1p     0.512 0.958 0.031   0.522 0.962   0.754 0.896 0.019   0.801 0.846 0.017
"""


def _read(names: Mapping[str, Sequence[str]], text: str) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the numbers by world, contender and quantity; "-" is none."""
    found = {world: {} for world in names}
    for line in text.split("\n")[1:-1]:
        label, *cells = line.split()
        rest = iter(cells)
        for world in names:
            row = zip(names[world], rest, strict=False)
            found[world][label] = {name: float(cell) for name, cell in row if cell != "-"}
    return found


DOCUMENTED = _read(_STILL, _STILL_ROWS) | _read(_SKILLS, _SKILLS_ROWS)


def differences(
    results: Mapping[str, Mapping[str, Any]],
) -> dict[tuple[str, str, str], float]:
    """Returns ours minus theirs by (world, contender, quantity), of what has been played."""
    return {
        (world, label, name): results[world][label]["values"][name]["mean"] - theirs
        for world, rows in DOCUMENTED.items()
        for label, row in rows.items()
        for name, theirs in row.items()
        if label in results.get(world, {})
    }


def table(world: str, played: Mapping[str, Any]) -> str:
    """Returns ours and, in brackets, theirs."""
    rows = []
    for label, row in DOCUMENTED.get(world, {}).items():
        if label in played:
            values = played[label]["values"]
            cells = [
                f"{values[n]['mean']:.3f} ({row[n]:.3f})" if n in row else "-" for n in COLUMNS
            ]
            rows.append([label, *cells])
    gaps = [abs(x) for x in differences({world: played}).values()]
    note = f"ours (theirs); largest difference {max(gaps, default=0):.3f}"
    return tables.for_terminal(f"### {world}, beside the reference", ["", *COLUMNS], rows, note)
