"""Where self-BLEU was; it stands in `mmr1` now."""

from vade_jax.samplers.mmr1 import bleu, self_bleu

__all__ = ["bleu", "self_bleu"]
