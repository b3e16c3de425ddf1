"""Everything that a run of these commands is handed: its page, benchmarks as validation, DIVA's variants."""

from vade_jax import report, run
from vade_jax.evals import in_training
from vade_jax.recipes.diva import hook

ALL = run.Hooks(page=report, benchmarks=in_training, variants=hook)
