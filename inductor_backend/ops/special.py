"""Special functions, whole-number arithmetic, and functions that split a number.

Input and output: as in `pointwise.py`. Law: torch's values at poles, infinities and whole numbers; half precision
computes in f32.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from inductor_backend.ops import elementary, whole
from inductor_backend.ops.activations import digamma
from inductor_backend.ops.exact import divide, fence, in_double
from inductor_backend.ops.table import INT_TO_FLOAT, POINTWISE, pointwise, row

lax = jax.lax
special = jax.scipy.special


@pointwise("aten.gcd.default", grows=whole.DIVISORS)
def gcd(x, y):
    """The greatest common divisor; that of the smallest number, which has no magnitude, may be negative, as in eager.

    jax's own never ends for that number.
    """
    if not jnp.issubdtype(x.dtype, jnp.signedinteger):
        return jnp.gcd(x, y)

    def divided(pair):
        a, b = pair
        rest = lax.rem(b, jnp.where(a == 0, jnp.ones_like(a), a))
        return jnp.where(a == 0, a, rest), jnp.where(a == 0, b, a)

    return lax.while_loop(lambda pair: jnp.any(pair[0] != 0), divided, (jnp.abs(x), jnp.abs(y)))[1]


@row("aten.frexp.Tensor", kind=POINTWISE, supports=lambda x: x.is_floating_point() and x.dtype.itemsize >= 4)
def frexp(x):
    """(mantissa in [1/2, 1), exponent); what isn't finite is its own mantissa."""
    mantissa, exponent = jnp.frexp(x)
    # XLA counts what is below the normal range as zero.
    odd = ~jnp.isfinite(x) | (jnp.abs(x) < jnp.finfo(x.dtype).tiny)
    return jnp.where(odd, x, mantissa), jnp.where(odd, 0, exponent).astype(jnp.int32)


pointwise("aten.special_modified_bessel_i0.default", promote=INT_TO_FLOAT)(lambda x: special.i0(x))
pointwise("aten.special_modified_bessel_i1.default", promote=INT_TO_FLOAT)(lambda x: special.i1(x))


@pointwise("aten.igamma.default", promote=INT_TO_FLOAT)
def igamma(a, x):
    """The regularised lower incomplete gamma function."""
    return jnp.where(jnp.isposinf(a) & jnp.isfinite(x) & (x >= 0), 0, in_double(special.gammainc)(a, x))


@pointwise("aten.igammac.default", promote=INT_TO_FLOAT)
def igammac(a, x):
    """The regularised upper incomplete gamma function."""
    return jnp.where(jnp.isposinf(a) & jnp.isfinite(x) & (x >= 0), 1, in_double(special.gammaincc)(a, x))


def _trigamma(x):
    """The derivative of digamma in f32, by eager's formula: between the poles it is off by more than rounding."""
    low = x < 0.5
    sine = fence(elementary.sin(fence(x * np.float32(np.pi))))
    reflected = fence(divide(np.float32(np.pi) * np.float32(np.pi), fence(sine * sine)))
    total, at = jnp.where(low, -reflected, 0), jnp.where(low, 1 - x, x)
    for _ in range(6):
        total, at = total + divide(1, fence(at * at)), fence(at + 1)
    part = divide(1, fence(at * at))
    series = 1 + divide(1, 2 * at) + part * (1 / 6 - part * (1 / 30 - part * (1 / 42)))
    total = total + divide(series, at)
    return jnp.where(low, -total, total)


@row("aten.polygamma.default", kind=POINTWISE, supports=lambda n, x: n <= 1 and x.dtype != torch.float64)
def polygamma(n, x, out: Any = None):
    """Digamma (n = 0) or its derivative (n = 1)."""
    x = x.astype(jnp.promote_types(out.dtype, jnp.float32))
    return (digamma(x) if n == 0 else _trigamma(x)).astype(out.dtype)
