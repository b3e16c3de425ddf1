"""Checksums of arrays on any devices, which reveal a checkpoint whose bytes changed.

Orbax's files have no checksums (neither zstd frames nor OCDBT's values), so a changed byte would be read as
other numbers. A checksum is the sum, modulo 2^32, of a hash of each value's bits and place. The order of a
sum does not matter, so every device sums its own shard, and another mesh gets the same number. One changed
value always changes the checksum; several escape with a chance of 1 in 2^32.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array


def of_array(x: Array) -> int:
    """Returns the checksum of an array: one pass over it, on its devices."""
    if isinstance(x, jax.Array) and x.committed:
        whole = None
        if isinstance(x.sharding, jax.sharding.NamedSharding):
            whole = jax.sharding.NamedSharding(x.sharding.mesh, jax.sharding.PartitionSpec())
        return int(jax.jit(_sum, out_shardings=whole)(x))
    # First on the host: without x64, JAX would cut 64-bit values in half.
    x = np.atleast_1d(np.asarray(x))
    return int(jax.jit(_sum)(x.view(f"u{min(x.dtype.itemsize, 4)}")))


def of_json(content: Mapping[str, Any]) -> int:
    """Returns the checksum of a JSON value; the order of keys does not matter."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _sum(x: Array) -> Array:
    kind = jnp.dtype(f"u{min(x.dtype.itemsize, 4)}")
    x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    bits = jax.lax.bitcast_convert_type(x, kind).astype(jnp.uint32)
    place = jnp.zeros((), jnp.uint32)
    for axis, size in enumerate(bits.shape):
        place = place * np.uint32(size % 2**32) + jax.lax.broadcasted_iota(
            jnp.uint32, bits.shape, axis
        )
    # The finalizer of MurmurHash3: each step is invertible, so two values never get the same hash.
    h = bits ^ (place * np.uint32(0x9E3779B1))
    h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
    return jnp.sum(h ^ (h >> 16), dtype=jnp.uint32)
