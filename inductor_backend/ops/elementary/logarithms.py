"""Logarithms and the inverse hyperbolic functions, in forms that XLA's CPU compiler vectorises.

Input: arrays of f32 or f64. Output: the same shape and dtype. Law: within 2 ulp (3 for the inverse hyperbolic ones);
NaN, infinities and signed zeros as in C99's annex F. log(2^k m) = k log 2 + log m with log m as a polynomial of
(m - 1) / (m + 1), as in W. Cody and W. Waite, Software Manual for the Elementary Functions, 1980. Coefficients:
`benchmarks/minimax.py`.
"""

from __future__ import annotations

import math

import jax.numpy as jnp

from inductor_backend.ops.elementary.pieces import for_cpu, leading, polynomial, split_exponent, with_sign_of

_LOGARITHM = {
    "float32": (0.6666666865348816, 0.39998891949653625, 0.28660109639167786, 0.2088136076927185),
    "float64": (
        0.666666666666667, 0.39999999999899466, 0.28571428626111695, 0.22222211107577766, 0.1818289118017923,
        0.1533165431305873, 0.1461725294260236,
    ),
}  # fmt: skip

_LOGARITHM_OF_F32 = (
    0.6666666666738432, 0.39999998787267554, 0.28571756248378966, 0.2219130768100309, 0.19364236766049173,
)  # fmt: skip

#: name -> dtype -> (the leading digits, whose product with an exponent is exact, the rest)
_LN_2 = {
    "float32": (0.693145751953125, 1.4286068203094172e-06),
    "float64": (0.6931471803691238, 1.9082149292705877e-10),
}
_LOG10_2 = (0.3010299955494702, 1.1451100898021838e-10)
_LOG2_E = (1.4426950407214463, 1.6751713164886512e-10)
_LOG10_E = (0.4342944818781689, 2.5082946711645275e-11)


def _edges(value, x):
    """A logarithm of x with its values at zero, infinity and below zero."""
    value = jnp.where(x < jnp.inf, value, x)
    return jnp.where(x > 0, value, jnp.where(x == 0, -jnp.inf, jnp.nan).astype(x.dtype))


def _parts(x):
    """(k, f, f^2 / 2, r) with x = 2^k (1 + f) and log(1 + f) = f - (f^2 / 2 - r)."""
    k, m = split_exponent(x)
    f = m - 1
    s = f / (2 + f)
    z = s * s
    half = 0.5 * f * f
    return k, f, half, s * (half + z * polynomial(z, _LOGARITHM[x.dtype.name]))


def log(x):
    """The natural logarithm."""
    if x.dtype != jnp.float64:
        return jnp.log(x)
    k, f, half, r = _parts(x)
    high, low = _LN_2["float64"]
    return _edges(k * high - ((half - (r + k * low)) - f), x)


def _other_base(x, exponent, mantissa):
    """A logarithm of another base; the constants come as leading digits and rests, for products that are exact."""
    k, f, half, r = _parts(x)
    high = leading(f - half)
    low = ((f - high) - half) + r
    first, second = k * exponent[0], high * mantissa[0]
    total = first + second
    # What the sum lost (Dekker's fast two-sum wants the larger first), and the smaller products.
    larger, smaller = jnp.where(k == 0, second, first), jnp.where(k == 0, first, second)
    rest = (larger - total) + smaller
    return _edges(total + (rest + (k * exponent[1] + (low * mantissa[0] + (low + high) * mantissa[1]))), x)


def log2(x):
    """The logarithm to base 2."""
    return _other_base(x, (1.0, 0.0), _LOG2_E) if x.dtype == jnp.float64 else jnp.log2(x)


def log2_of_f32(x):
    """The logarithm to base 2 of numbers at least 0 that came from f32, in f64, to 2^-36."""
    k, m = split_exponent(x)
    f = m - 1
    s = f / (2 + f)
    z = s * s
    return _edges(k + (2 * s + s * z * polynomial(z, _LOGARITHM_OF_F32)) * (1 / math.log(2)), x)


def log10(x):
    """The logarithm to base 10."""
    return _other_base(x, _LOG10_2, _LOG10_E) if x.dtype == jnp.float64 else jnp.log10(x)


def log1p(x):
    """log(1 + x) without loss near zero."""
    if not for_cpu(x):
        return jnp.log1p(x)
    total = 1 + x
    # What rounding took from the sum.
    lost = jnp.where(x > 1, 1 - (total - x), x - (total - 1))
    k, m = split_exponent(total)
    plain = k == 0
    f = jnp.where(plain, x, m - 1)
    s = f / (2 + f)
    z = s * s
    half = 0.5 * f * f
    r = s * (half + z * polynomial(z, _LOGARITHM[x.dtype.name]))
    high, low = _LN_2[x.dtype.name]
    correction = jnp.where(plain, jnp.zeros_like(x), lost / total)
    value = k * high - ((half - (r + (k * low + correction))) - f)
    value = jnp.where(x < jnp.inf, value, x)
    value = jnp.where(x > -1, value, jnp.where(x == -1, -jnp.inf, jnp.nan).astype(x.dtype))
    return jnp.where(x == 0, x, value)


# --------------------------------------------------------------------------------------------- inverse hyperbolic
def _large(dtype) -> float:
    """Above this x + 1 / (2 x) is x."""
    return 2.0 ** (jnp.finfo(dtype).nmant // 2 + 2)


def asinh(x):
    """The inverse of sinh."""
    if not for_cpu(x):
        return jnp.arcsinh(x)
    a = jnp.abs(x)
    large = a > _large(x.dtype)
    b = jnp.where(large, jnp.ones_like(a), a)
    square = b * b
    shift = b + square / (1 + jnp.sqrt(1 + square))
    value = log1p(jnp.where(large, a - 1, shift)) + jnp.where(large, math.log(2), 0.0).astype(x.dtype)
    return with_sign_of(value, x)


def acosh(x):
    """The inverse of cosh; NaN below 1."""
    if not for_cpu(x):
        return jnp.arccosh(x)
    large = x > _large(x.dtype)
    t = jnp.where(large, jnp.ones_like(x), x - 1)
    shift = t + jnp.sqrt(2 * t + t * t)
    value = log1p(jnp.where(large, x - 1, shift)) + jnp.where(large, math.log(2), 0.0).astype(x.dtype)
    return jnp.where(x < 1, jnp.asarray(jnp.nan, x.dtype), value)


def atanh(x):
    """The inverse of tanh; infinite at -1 and 1, NaN beyond."""
    if not for_cpu(x):
        return jnp.arctanh(x)
    a = jnp.abs(x)
    double = a + a
    value = 0.5 * log1p(jnp.where(a < 0.5, double + double * a / (1 - a), double / (1 - a)))
    return with_sign_of(value, x)
