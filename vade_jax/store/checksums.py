"""Checksums of arrays, whatever devices they lie on: what was saved is what came back, or it shows.

Neither zstd frames nor OCDBT's values carry one in orbax's files: a changed byte there comes back as other
numbers. A checksum is the sum, modulo 2^32, of a hash of each value's bits and place. A sum has no order, so
every device adds up its own shard, and another mesh finds the same number. One changed value
always changes it; more of them stay unseen once in 2^32.
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
    # On the host first: without x64, jax would cut 64-bit values in half.
    x = np.atleast_1d(np.asarray(x))
    return int(jax.jit(_sum)(x.view(f"u{min(x.dtype.itemsize, 4)}")))


def of_json(content: Mapping[str, Any]) -> int:
    """Returns the checksum of what JSON can hold, whatever the order of its keys."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _sum(x: Array) -> Array:
    x = jax.device_put(x, jax.memory.Space.Device)  # an offloaded array waits in the host's memory
    kind = jnp.dtype(f"u{min(x.dtype.itemsize, 4)}")
    x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    bits = jax.lax.bitcast_convert_type(x, kind).astype(jnp.uint32)
    place = jnp.zeros((), jnp.uint32)
    for axis, size in enumerate(bits.shape):
        place = place * np.uint32(size % 2**32) + jax.lax.broadcasted_iota(
            jnp.uint32, bits.shape, axis
        )
    # The finalizer of MurmurHash3: each of its steps can be undone, so two values never meet.
    h = bits ^ (place * np.uint32(0x9E3779B1))
    h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
    return jnp.sum(h ^ (h >> 16), dtype=jnp.uint32)
