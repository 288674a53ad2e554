"""What a division of floats leaves, in a form that XLA's CPU compiler vectorises.

Input: f32 arrays of one shape. Output: the same shape and dtype. Law: exact, as C's fmod is. In f64 a quotient of up to
29 bits times a divisor of 24 is exact; arrays with larger quotients go to the C library as a whole.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inductor_backend.ops.elementary.pieces import for_cpu, guarded, with_sign_of

lax = jax.lax


def _inside(x, y):
    return (jnp.abs(x) < jnp.abs(y) * 2.0**28) | (x != x) | (y != y)


def _rest(x, y):
    a, b = jnp.abs(x).astype(jnp.float64), jnp.abs(y).astype(jnp.float64)
    rest = a - jnp.trunc(a / b) * b
    # A quotient just below a whole number may have been rounded up to it.
    rest = jnp.where(rest < 0, rest + b, rest)
    rest = jnp.where((b == jnp.inf) & (a < jnp.inf), a, rest)
    return with_sign_of(rest.astype(jnp.float32), x)


def fmod(x, y):
    """C's modulo, of whole numbers too: the result has the dividend's sign."""
    if x.dtype != jnp.float32 or not for_cpu(x):
        return lax.rem(x, y)
    return guarded(_inside, _rest, lax.rem, x, y)
