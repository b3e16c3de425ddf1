"""Built-in questions about pictures, drawn on demand from (seed, split, index): no files.

    source = procedural.Procedural(seed=0, size=4096)
    item = source[17]  # the same picture, question and answer on every machine

`items` has the sources and the mixture, `scenes` and `diagrams` the families, `canvas` draws.
"""

from vade_jax.data.procedural.items import (
    DEFAULT_MIXTURE,
    FAMILIES,
    SPLITS,
    Mislabelled,
    Procedural,
    Teacher,
    draw_again,
    expand_mixture,
    stream,
    target_text,
)

__all__ = [
    "DEFAULT_MIXTURE",
    "FAMILIES",
    "SPLITS",
    "Mislabelled",
    "Procedural",
    "Teacher",
    "draw_again",
    "expand_mixture",
    "stream",
    "target_text",
]
