"""Eight fake CPU devices for every test, set before JAX starts."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

import vade_jax  # noqa: F401  sets XLA's flags, also in time

jax.config.update("jax_num_cpu_devices", 8)
