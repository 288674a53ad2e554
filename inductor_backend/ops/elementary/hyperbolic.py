"""Hyperbolic sine and cosine.

Input: arrays of f32 or f64. Output: the same shape and dtype. Law: within 3 ulp; XLA's own forms round |x| - log 2,
which costs large numbers their last digits.
"""

from __future__ import annotations

import jax.numpy as jnp


def cosh(x):
    """Hyperbolic cosine: XLA's own rounds |x| - log(2), which large numbers show."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.cosh(x)
    root = jnp.exp(jnp.abs(x) * 0.5)
    half = 0.5 * root * root
    return half + 0.25 / half


def sinh(x):
    """Hyperbolic sine, as `cosh`; XLA's own near zero."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.sinh(x)
    root = jnp.exp(jnp.abs(x) * 0.5)
    half = 0.5 * root * root
    return jnp.where(jnp.abs(x) > 1, jnp.copysign(half - 0.25 / half, x), jnp.sinh(x))
