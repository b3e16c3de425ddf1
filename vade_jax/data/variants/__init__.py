"""Harder and easier variants of an item with the same answer, for DIVA-GRPO (arXiv 2603.01106).

vary = variants.Vary(variants.from_metadata, min_pixels=3136, max_pixels=1003520)
variant, difficulty = vary(item, 5.0, 7.0, np.random.default_rng(0))  # two steps harder
"""

from vade_jax.data.variants import builtin
from vade_jax.data.variants.guard import Guarded
from vade_jax.data.variants.texts import Texts, check, from_metadata
from vade_jax.data.variants.vary import Vary

__all__ = ["Guarded", "Texts", "Vary", "builtin", "check", "from_metadata"]
