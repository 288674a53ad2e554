"""Random numbers from seeds that torch's generator drew.

Input: an int64 seed (drawn on the host by `inductor_seeds`, so that `torch.manual_seed` governs it). Output: samples.
Law: the same seed gives the same samples; different seeds give independent streams (threefry).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.extend.random import threefry_2x32

from inductor_backend.ops import whole
from inductor_backend.ops.table import row

_library = torch.library.Library("torch_pallas", "FRAGMENT")
_library.define("random_at(Tensor places, Tensor seed, str mode) -> Tensor")
torch.library.register_fake(
    "torch_pallas::random_at",
    lambda places, seed, mode: places.new_empty(places.shape, dtype=torch.float32),
    lib=_library,
)


def _key(seed):
    if seed.dtype == jnp.uint32:  # two halves already, where there are no 64-bit values
        return jax.random.wrap_key_data(seed, impl="threefry2x32")
    halves = jax.lax.bitcast_convert_type(seed.reshape(()).astype(jnp.int64), jnp.uint32)
    return jax.random.wrap_key_data(halves, impl="threefry2x32")


@row("prims.inductor_lookup_seed.default", grows=whole.SEED)
def lookup_seed(seeds, index):
    """One seed of the vector."""
    return seeds[index]


@row("prims.inductor_random.default")
def random(size, seed, mode, align_dtype=None, out: Any = None):
    """Uniform in [0, 1) or standard normal, always f32."""
    draw = jax.random.uniform if mode == "rand" else jax.random.normal
    return draw(_key(seed), out.shape, jnp.float32)


@row("prims.inductor_randint.default", grows=whole.RANDOM)
def randint(low, high, size, seed, out: Any = None):
    """Whole numbers in [low, high)."""
    return jax.random.randint(_key(seed), out.shape, low, high, jnp.int64)


@row(
    "torch_pallas.random_at.default",
    notes="the element at place i is the i-th of `prims.inductor_random`'s, whatever the shape",
)
def random_at(places, seed, mode):
    """What `random` draws for given places in the flattened result: elements that only pad draw nothing away."""
    flat = places.reshape(-1).astype(jnp.uint64)
    counts = jnp.concatenate([(flat >> 32).astype(jnp.uint32), flat.astype(jnp.uint32)])
    high, low = jnp.split(threefry_2x32(jax.random.key_data(_key(seed)), counts), 2)
    bits = (high ^ low).reshape(places.shape)
    unit = jax.lax.bitcast_convert_type((bits >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1
    if mode == "rand":
        return jnp.maximum(0, unit)
    lowest = jnp.nextafter(jnp.float32(-1), jnp.float32(0))
    return jnp.sqrt(jnp.float32(2)) * jax.scipy.special.erfinv(jnp.maximum(lowest, unit * (1 - lowest) + lowest))
