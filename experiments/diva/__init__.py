"""DIVA-GRPO (arXiv 2603.01106): trains on harder and easier variants of a problem.

The selector keeps a difficulty from 1 to 9 for every problem and proposes each
problem together with variants of a wanted difficulty. The rest of DIVA is here:

    selector    the difficulties, and which variants a step has; `SAMPLERS["diva"]` once this is imported
    hook        what a run adds for such a selector: variants are made, advantages computed
    variants    from an item and a difference of difficulty to a variant with the same answer
    pictures    turning, noise, and writing the question into the picture, by level
    built_in    paraphrases and steps of the built-in questions
    advantages  within a variant and within a problem
    wordings    what a language model is asked for paraphrases and steps, and what is kept
    offline     a file of a user's rows with both, before training (`experiments.make_variants`)

Variants are made on the fly from texts that exist before training. A variant is graded exactly like
its item: no variant changes the answer, the kind, the choices or the tolerance.

    vary = variants.Vary(variants.from_metadata, min_pixels=3136, max_pixels=1003520)
    variant, difficulty = vary(item, 5.0, 7.0, np.random.default_rng(0))  # two steps harder
"""

from experiments.diva import selector
from vade_jax import samplers

samplers.SAMPLERS[selector.SPEC.name] = selector.SPEC
