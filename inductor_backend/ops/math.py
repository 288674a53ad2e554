"""Formulations of elementary functions that XLA's CPU compiler vectorises.

Input: an array. Output: the same shape and dtype. Law: within 2 ulp of libm on every finite input; the slow exact
path is taken as a whole when any element lies outside the fast one's range.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

# pi/2 in three pieces whose products with a 13-bit quotient are exact in f32 (Cody and Waite).
_PIO2_A, _PIO2_B, _PIO2_C = np.float32(1.5703125), np.float32(4.8351287841796875e-4), np.float32(3.13855707645416259e-7)
_PIO2_D = np.float32(6.0771005065061922e-11)
_LIMIT = 8192.0


def _reduced(x, phase: int):
    quotient = jnp.round(x * np.float32(2 / np.pi))
    r = ((x - quotient * _PIO2_A) - quotient * _PIO2_B) - quotient * _PIO2_C
    r = r - quotient * _PIO2_D
    quadrant = quotient.astype(jnp.int32) + phase
    z = r * r
    sine = r + r * z * (
        np.float32(-1.6666654611e-1) + z * (np.float32(8.3321608736e-3) + z * np.float32(-1.9515295891e-4))
    )
    cosine = 1 - np.float32(0.5) * z
    cosine = cosine + z * z * (
        np.float32(4.166664568298827e-2)
        + z * (np.float32(-1.388731625493765e-3) + z * np.float32(2.443315711809948e-5))
    )
    value = jnp.where((quadrant & 1) == 0, sine, cosine)
    return jnp.where((quadrant & 2) == 0, value, -value)


def _fast(exact, phase: int):
    def apply(x):
        # jnp.sin is one libm call per element on the CPU; small arrays don't repay the range check.
        if x.dtype != jnp.float32 or x.size < 2048:
            return exact(x)
        inside = jnp.all(jnp.abs(x) < _LIMIT)
        return jax.lax.cond(inside, lambda v: _reduced(v, phase), exact, x)

    return apply


sin_fast = _fast(jnp.sin, 0)
cos_fast = _fast(jnp.cos, 1)


def rsqrt(x):
    """1 / sqrt(x).

    XLA makes a reciprocal square root of the plain form, which is scalar on the CPU; it doesn't see through this one.
    """
    if x.dtype not in (jnp.float32, jnp.float64):
        return jax.lax.rsqrt(x)
    return jnp.where(x != x, x, jnp.ones((), x.dtype)) / jnp.sqrt(x)
