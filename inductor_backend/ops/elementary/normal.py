"""The error function and its inverse, in forms that XLA's CPU compiler vectorises.

Input: arrays of f32 or f64. Output: the same shape and dtype. Law: within 2 ulp (3 for the inverse); NaN, infinities
and signed zeros as in C99's annex F. From 1 on, erf x = 1 - exp(-x^2) p((x - 3) / (x + 3)), as in M. Shepherd and
J. Laframboise, Chebyshev approximation of (1 + 2 x) exp(x^2) erfc x, Mathematics of Computation 36, 1981; the inverse
is a polynomial of log(1 - x^2), as in M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2011.
Coefficients: `benchmarks/minimax.py`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inductor_backend.ops.elementary.pieces import polynomial, with_sign_of

lax = jax.lax

_ERROR_FUNCTION = (
    0.1283791670955126, -0.376126389031841, 0.11283791670973646, -0.026866170649128978, 0.0052239776706452965,
    -0.0008548330076235211, 0.00012055465554873128, -1.492951168045035e-05, 1.6539122925205514e-06,
    -1.7420351559918828e-07, 2.4554991721637393e-08, -7.040458576746785e-09, 2.1104371126624977e-09,
    -3.1520146063719806e-10,
)  # fmt: skip
_SCALED_COMPLEMENT = (
    0.17900115118138996, -0.3262335600430372, 0.2456038017123348, -0.15011593650077698, 0.07166583719748076,
    -0.024392499319040608, 0.004269136356566675, 0.0007077464700205823, -0.0005970624861878545, 4.5254304471468244e-05,
    6.4062650239537e-05, -1.2845569938619758e-05, -8.008804353160976e-06, 2.013481008146527e-06, 1.2729513747745144e-06,
    1.1802003584052846e-09,
)  # fmt: skip
_INVERSE = (
    1.5014093517090563, 0.24664027683420064, -0.004177324766254752, -0.0012527082501005082, 0.0002182637227395705,
    -4.995725740628912e-06, -3.426085854409427e-06, 4.785860521087924e-07, 1.64706608981512e-08,
    -1.0844763255036814e-08, 4.3617373048212297e-10, 1.2245756032077464e-10,
)  # fmt: skip
_INVERSE_TAIL = (
    2.8329767992856256, 1.0016752502119766, 0.009445476173423895, -0.007643025664908184, 0.005685606732809979,
    -0.003565379131524178, 0.001483850436758344, -0.00012582084886014782, -0.0002924905665519087, 0.0001704914503492545,
    -2.0366838542760356e-05, -6.595207279220161e-06,
)  # fmt: skip


def erf(x):
    """The error function."""
    if x.dtype != jnp.float64:
        return lax.erf(x)
    a = jnp.minimum(jnp.abs(x), 6.0)
    inner = x + x * polynomial(a * a, _ERROR_FUNCTION)
    outer = 1 - jnp.exp(-a * a) * polynomial((a - 3) / (a + 3), _SCALED_COMPLEMENT)
    return jnp.where(a < 1, inner, with_sign_of(outer, x))


def erfinv(x):
    """The inverse of the error function; infinite at -1 and 1, NaN beyond."""
    if x.dtype != jnp.float32:
        return lax.erf_inv(x)
    w = -jnp.log((1 - x) * (1 + x))
    tail = w > 5
    u = jnp.where(tail, jnp.sqrt(w) - 3, w - 2.5)
    value = jnp.where(tail, polynomial(u, _INVERSE_TAIL), polynomial(u, _INVERSE)) * x
    return jnp.where(jnp.abs(x) == 1, x * jnp.asarray(jnp.inf, x.dtype), value)
