"""Selectors inside other trainers: trl_trainer, trl_async, verl_dataset and verl_replay, prime_rl.

The few arrays of a selector stay on the CPU. On an accelerator JAX would reserve most of the memory, which
the other trainer needs. Set JAX_PLATFORMS to change that.
"""

import jax

if not jax.config.jax_platforms:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
    jax.config.update("jax_platforms", "cpu")
