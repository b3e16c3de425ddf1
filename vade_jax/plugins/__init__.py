"""Selectors inside other trainers: trl_trainer, trl_async, verl_dataset and verl_replay, prime_rl.

A selector's arrays stay on the CPU: on an accelerator JAX would reserve most of the memory, which the other
trainer needs. Set JAX_PLATFORMS to change that.
"""

import jax

if not jax.config.jax_platforms:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
    jax.config.update("jax_platforms", "cpu")
