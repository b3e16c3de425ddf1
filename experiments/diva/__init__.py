"""DIVA-GRPO (arXiv 2603.01106): trains on harder and easier variants of a problem.

The selector keeps a difficulty from 1 to 9 for every problem and proposes each problem together with variants
of a target difficulty. Variants are made on the fly from texts prepared before training, and are graded
exactly like their item: answer, kind, choices and tolerance do not change. README.md lists the files.
"""

from experiments.diva import selector
from vade_jax import samplers

samplers.SAMPLERS[selector.SPEC.name] = selector.SPEC
