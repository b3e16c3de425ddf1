"""What is kept of compiled programs."""

import jax
from jax._src import compilation_cache

from vade_jax.run.compiled import keep  # conftest replaces it, but only after this line


def test_nothing_is_kept_with_several_cpu_devices():
    assert jax.device_count() > 1
    keep()
    assert not compilation_cache.is_cache_used(jax.devices()[0].client)
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
