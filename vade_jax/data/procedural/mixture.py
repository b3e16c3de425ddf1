"""Which families and levels the built-in data has, and how much of each."""

from collections.abc import Mapping

from vade_jax.data.procedural import charts, geometry, scenes, strata, tables

# name: (make(rng, level, size) -> Sample, number of levels, stratum)
FAMILIES = {
    "color": (scenes.color, 4, "graded"),
    "shape": (scenes.shape, 4, "graded"),
    "count": (scenes.count, 4, "graded"),
    "compare": (scenes.compare, 3, "graded"),
    "subtract": (scenes.subtract, 3, "graded"),
    "value": (charts.value, 3, "graded"),
    "extreme": (charts.extreme, 3, "graded"),
    "triangle": (geometry.triangle, 4, "graded"),
    "table": (tables.lookup, 4, "graded"),
    "written": (strata.written, 1, "trivial"),
    "hidden": (strata.hidden, 1, "impossible"),
}

# Weights, of (family, level) or of a stratum (shared by its members). They need not sum to 1.
DEFAULT = {
    ("color", 0): 24,
    ("color", 1): 2,
    ("shape", 0): 2,
    ("count", 0): 32,
    ("count", 1): 14,
    ("compare", 0): 1,
    ("subtract", 0): 12,
    ("value", 0): 1,
    ("value", 2): 1,
    ("extreme", 0): 1,
    ("triangle", 0): 1,
    ("table", 0): 2,
    "trivial": 1,
    "impossible": 6,
}


def expand(
    mixture: Mapping[tuple[str, int] | str, float],
) -> dict[tuple[str, int], float]:
    """Returns the probability of each (family, level), strata spread over their members.

    Raises:
      ValueError: for an unknown family, level or stratum, or weights that cannot be normalised.
    """
    members = {
        stratum: [
            (f, v)
            for f, (_, n, s) in FAMILIES.items()
            if s == stratum
            for v in range(n)
        ]
        for _, _, stratum in FAMILIES.values()
    }
    weights = {}
    for key, weight in mixture.items():
        keys = members.get(key, []) if isinstance(key, str) else [tuple(key)]
        if not keys or any(
            f not in FAMILIES or not 0 <= v < FAMILIES[f][1] for f, v in keys
        ):
            levels = {name: num for name, (_, num, _) in FAMILIES.items()}
            raise ValueError(
                f"mixture has no part {key!r}; use a stratum of {list(members)} or "
                f"(family, level) with level below {levels}"
            )
        for part in keys:
            weights[part] = weights.get(part, 0) + weight / len(keys)
    total = sum(weights.values())
    if not total > 0 or min(weights.values()) < 0 or total == float("inf"):
        raise ValueError(f"mixture weights {dict(mixture)} must be >= 0, not all 0")
    return {part: weight / total for part, weight in weights.items()}
