"""The selector inside other trainers: trl_trainer for TRL, verl_dataset and verl_replay for verl.

The selector's few arrays stay on the CPU: JAX would take most of an accelerator's memory for itself,
and here it is the other trainer's. Set JAX_PLATFORMS to have it otherwise.
"""

import jax

if not jax.config.jax_platforms:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
    jax.config.update("jax_platforms", "cpu")
