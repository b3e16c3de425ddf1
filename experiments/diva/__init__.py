"""DIVA-GRPO (arXiv 2603.01106): trains on harder and easier variants of a problem.

The selector keeps a difficulty from 1 to 9 for every problem and proposes each problem together with variants
of a wanted difficulty. Variants are made on the fly from texts that exist before training, and are graded
exactly like their item: none changes the answer, the kind, the choices or the tolerance. README.md lists the
files.
"""

from experiments.diva import selector
from vade_jax import samplers

samplers.SAMPLERS[selector.SPEC.name] = selector.SPEC
