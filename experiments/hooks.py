"""The hooks that these commands pass to a run: its page, benchmarks as validation, and DIVA's variants."""

from vade_jax import report, run
from vade_jax.evals import in_training
from vade_jax.recipes.diva import hook

ALL = run.Hooks(page=report, benchmarks=in_training, variants=hook)
