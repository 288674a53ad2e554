"""Random numbers from seeds that torch's generator drew.

Input: an int64 seed (drawn on the host by `inductor_seeds`, so that `torch.manual_seed` governs it). Output: samples.
Law: the same seed gives the same samples; different seeds give independent streams (threefry).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from inductor_backend.ops import whole
from inductor_backend.ops.table import row


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
