"""The hooks that these commands pass to a run: its page, benchmarks as validation, and DIVA's variants."""

from experiments.diva import hook
from experiments.evals import in_training
from vade_jax import report, run

ALL = run.Hooks(page=report, benchmarks=in_training, variants=hook)
