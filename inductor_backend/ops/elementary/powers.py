"""Powers, in forms that XLA's CPU compiler vectorises.

Input: arrays of f32 or f64. Output: the same shape and dtype. Law: within 2 ulp; NaN, infinities and signed zeros as in
C99's annex F. Coefficients: `benchmarks/minimax.py`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inductor_backend.ops.elementary.logarithms import log2_of_f32
from inductor_backend.ops.elementary.pieces import bits, for_cpu, nearest, polynomial, power_of_two, times_power_of_two

lax = jax.lax

_POWER_OF_TWO = {
    "float32": (
        0.6931471824645996, 0.24022650718688965, 0.055503569543361664, 0.009618030861020088, 0.0013390870299190283,
        0.00015469732170458883,
    ),
    "float64": (
        0.6931471805599453, 0.24022650695910097, 0.05550410866482166, 0.009618129107606885, 0.0013333558146396004,
        0.00015403530441741647, 1.5252733853280778e-05, 1.3215442584937203e-06, 1.0178051728089911e-07,
        7.07258647985202e-09, 4.456675463639861e-10,
    ),
}  # fmt: skip
_POWER_OF_TWO_OF_F32 = (
    0.6931471805537178, 0.24022650922396663, 0.05550410928754352, 0.009618056661258367, 0.0013333454548154324,
    0.0001546145022402711, 1.5310081143138152e-05,
)  # fmt: skip
_EXPONENTS = {"float32": 252.0, "float64": 2044.0}


def exp2(x):
    """2^x."""
    if not for_cpu(x):
        return jnp.exp2(x)
    limit = _EXPONENTS[x.dtype.name]
    clipped = jnp.clip(x, -limit, limit)
    whole, n = nearest(clipped)
    r = clipped - whole
    return times_power_of_two(1 + r * polynomial(r, _POWER_OF_TWO[x.dtype.name]), n)


def _exp2_for_f32(x):
    """2^x in f64, to 2^-32, for x whose power f32 could hold; beyond, what f32 rounds to 0 or infinity."""
    clipped = jnp.clip(x, -300.0, 300.0)
    whole, n = nearest(clipped)
    r = clipped - whole
    return (1 + r * polynomial(r, _POWER_OF_TWO_OF_F32)) * power_of_two(n, x.dtype)


def _negative_base(value, x, y):
    """|x|^y for a base that may be negative, zero or infinite: its sign, and NaN where there is no real power."""
    whole = jnp.floor(y) == y
    half = y * 0.5
    odd = whole & (jnp.floor(half) != half) & (jnp.abs(y) < jnp.inf)
    value = jnp.where(odd & (bits(x) < 0), -value, value)
    none = (x < 0) & (x > -jnp.inf) & ~whole
    return jnp.where(none, jnp.asarray(jnp.nan, value.dtype), value)


def power(x, y):
    """x^y; f32 by way of f64 logarithms, which leaves one rounding."""
    x, y = jnp.broadcast_arrays(x, y)
    if x.dtype != jnp.float32 or not for_cpu(x):
        return jnp.power(x, y)
    a = jnp.abs(x)
    value = _exp2_for_f32(y.astype(jnp.float64) * log2_of_f32(a.astype(jnp.float64))).astype(jnp.float32)
    value = _negative_base(value, x, y)
    # 1^y is 1 and x^0 is 1 even for NaN; so is (-1)^(+-inf).
    return jnp.where((y == 0) | (x == 1) | ((a == 1) & (jnp.abs(y) == jnp.inf)), jnp.ones_like(value), value)


def rsqrt(x):
    """1 / sqrt(x).

    XLA makes a reciprocal square root of the plain form, which is scalar on the CPU; it doesn't see through this one.
    """
    if x.dtype not in (jnp.float32, jnp.float64):
        return lax.rsqrt(x)
    return jnp.where(x != x, x, jnp.ones((), x.dtype)) / jnp.sqrt(x)
