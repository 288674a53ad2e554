"""Sine, cosine, tangent and their inverses, in forms that XLA's CPU compiler vectorises.

Input: arrays of f32 or f64. Output: the same shape and dtype. Law: within 2 ulp; NaN, infinities and signed zeros as in
C99's annex F. Arguments are reduced as by W. Cody and W. Waite (Software Manual for the Elementary Functions,
1980); arrays with arguments too large for that go to the C library as a whole. Coefficients: `benchmarks/minimax.py`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from inductor_backend.ops.elementary.pieces import (
    bits,
    for_cpu,
    guarded,
    nearest,
    number,
    polynomial,
    with_sign_of,
)

# pi/2 in pieces whose products with a quotient of 13 bits (f32) or 20 bits (f64) are exact.
_PIECES_32 = (1.5703125, 4.8351287841796875e-4, 3.13855707645416259e-7, 6.0771005065061922e-11)
_PIECES_64 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_LIMIT = {"float32": 8192.0, "float64": 1048576.0}

_SINE_32 = (-0.166666641831398, 0.008332662284374237, -0.00019570007862057537)
_COSINE_32 = (0.0416666641831398, -0.0013888217508792877, 2.4530176233383827e-05)
_SINE_64 = (
    -0.16666666666666666, 0.008333333333331243, -0.00019841269836956137, 2.7557316149150347e-06,
    -2.5051135050870477e-08, 1.591806197346537e-10,
)  # fmt: skip
_COSINE_64 = (
    0.041666666666666664, -0.0013888888888886522, 2.4801587297525928e-05, -2.7557316662948913e-07,
    2.0876025633865162e-09, -1.1374349480588367e-11,
)  # fmt: skip
_ARCTANGENT = {
    "float32": (
        -0.3333333432674408, 0.20000095665454865, -0.14286068081855774, 0.1107204258441925, -0.08518405258655548,
        0.04661333188414574,
    ),
    "float64": (
        -0.3333333333333333, 0.1999999999999809, -0.14285714285338214, 0.11111111081356277, -0.09090907857784178,
        0.07692277141901416, -0.06666178977415682, 0.05877110875368633, -0.05224287684196006, 0.0456115474511263,
        -0.0362744979277212, 0.022249696775066982, -0.007361608252281527,
    ),
}  # fmt: skip
_ARCSINE = {
    "float32": (
        0.1666666567325592, 0.07500231266021729, 0.0445530004799366, 0.03164700046181679, 0.01454421877861023,
        0.038009095937013626,
    ),
    "float64": (
        0.16666666666666669, 0.07499999999997979, 0.044642857147102075, 0.030381944086118662, 0.022372174905907056,
        0.01735234862723189, 0.013971845994579372, 0.011473164447237718, 0.010361039705536198, 0.005296656883849365,
        0.017830739794309262, -0.015512489814221623, 0.029202329488109906,
    ),
}  # fmt: skip

#: name -> dtype -> (the number rounded, what is left of it)
_PI = {"float32": (3.1415927410125732, -8.742277657347586e-08), "float64": (np.pi, 1.2246467991473532e-16)}


def _share(dtype: Any, factor: float) -> tuple[float, float]:
    high, low = _PI[dtype.name]
    return high * factor, low * factor


# ---------------------------------------------------------------------------------------------------- of angles
def _reduced_32(x):
    """(quadrant, the rest) of an f32 angle below the limit."""
    whole, quadrant = nearest(x * (2 / np.pi))
    r = ((x - whole * _PIECES_32[0]) - whole * _PIECES_32[1]) - whole * _PIECES_32[2]
    return quadrant, r - whole * _PIECES_32[3]


def _reduced_64(x):
    """(quadrant, the rest, what the rest lost in rounding) of an f64 angle below the limit."""
    whole, quadrant = nearest(x * (2 / np.pi))
    first = x - whole * _PIECES_64[0]
    product = whole * _PIECES_64[1]
    second = first - product
    # Knuth's two-sum: what `second` lost.
    back = second + product
    lost = (first - back) + ((back - second) - product)
    lost = lost - (whole * _PIECES_64[2] + whole * _PIECES_64[3])
    r = second + lost
    return quadrant, r, (second - r) + lost


def _sine_and_cosine(x):
    """(quadrant, sine, cosine) of the rest of an angle."""
    if x.dtype == jnp.float32:
        quadrant, r = _reduced_32(x)
        z = r * r
        return quadrant, r + r * z * polynomial(z, _SINE_32), (1 - 0.5 * z) + z * z * polynomial(z, _COSINE_32)
    quadrant, r, rest = _reduced_64(x)
    z = r * r
    cube = z * r
    inner = polynomial(z, _SINE_64[1:])
    sine = r - ((z * (0.5 * rest - cube * inner) - rest) - cube * _SINE_64[0])
    half = 0.5 * z
    most = 1 - half
    cosine = most + (((1 - most) - half) + (z * z * polynomial(z, _COSINE_64) - r * rest))
    return quadrant, sine, cosine


def _inside(x):
    return jnp.abs(x) < _LIMIT[x.dtype.name]


def _wave(x, phase: int):
    quadrant, sine, cosine = _sine_and_cosine(x)
    quadrant = quadrant + phase
    value = jnp.where((quadrant & 1) == 0, sine, cosine)
    return jnp.where((quadrant & 2) == 0, value, -value)


def sin(x):
    """The sine."""
    return guarded(_inside, lambda v: _wave(v, 0), jnp.sin, x) if for_cpu(x) else jnp.sin(x)


def cos(x):
    """The cosine."""
    return guarded(_inside, lambda v: _wave(v, 1), jnp.cos, x) if for_cpu(x) else jnp.cos(x)


def _tangent(x):
    if x.dtype == jnp.float32:
        return _tangent(x.astype(jnp.float64)).astype(jnp.float32)
    quadrant, sine, cosine = _sine_and_cosine(x)
    odd = (quadrant & 1) != 0
    return jnp.where(odd, -cosine, sine) / jnp.where(odd, sine, cosine)


def tan(x):
    """The tangent."""
    inside = lambda v: jnp.abs(v) < _LIMIT["float64"]
    return guarded(inside, _tangent, jnp.tan, x) if for_cpu(x) else jnp.tan(x)


# ------------------------------------------------------------------------------------------------ of their values
def _arctangent_of_ratio(over, under, beyond_one: bool):
    """(k, an angle below atan(1/2)) with atan(over / under) = k pi/4 + angle; both at least 0, `under` positive."""
    dtype = over.dtype
    middle = over > under * 0.5
    top, bottom, turns = over, under, jnp.zeros_like(over)
    if beyond_one:
        large = over > under * 2
        top, bottom = jnp.where(large, -under, top), jnp.where(large, over, bottom)
        turns = jnp.where(large, jnp.asarray(2, dtype), turns)
        middle = middle & ~large
    top, bottom = jnp.where(middle, over - under, top), jnp.where(middle, over + under, bottom)
    turns = jnp.where(middle, jnp.asarray(1, dtype), turns)
    t = top / bottom
    z = t * t
    return turns, t + t * z * polynomial(z, _ARCTANGENT[dtype.name])


def atan(x):
    """The arctangent."""
    if not for_cpu(x):
        return jnp.arctan(x)
    turns, angle = _arctangent_of_ratio(jnp.abs(x), jnp.ones_like(x), True)
    high, low = _share(x.dtype, 0.25)
    return with_sign_of(turns * high + (angle + turns * low), x)


def atan2(y, x):
    """The angle of (x, y)."""
    dtype = jnp.result_type(x, y)
    y, x = jnp.broadcast_arrays(jnp.asarray(y, dtype), jnp.asarray(x, dtype))
    if not for_cpu(x):
        return jnp.arctan2(y, x)
    a, b = jnp.abs(y), jnp.abs(x)
    steep = a > b
    over, under = jnp.minimum(a, b), jnp.maximum(a, b)
    # Sums and differences of the two must neither overflow nor fall below the normal range.
    large = under > np.sqrt(float(jnp.finfo(dtype).max))
    scale = jnp.where(large, jnp.asarray(1 / 16, dtype), jnp.asarray(16, dtype))
    same = (a == b) & (b > 0)
    over = jnp.where(same, jnp.ones_like(a), over * scale)
    under = jnp.where(same | (under == 0), jnp.ones_like(a), under * scale)
    turns, angle = _arctangent_of_ratio(over, under, False)
    quarter = lambda k: tuple(jnp.asarray(v, dtype) for v in _share(jnp.dtype(dtype), k / 4))
    left = bits(x) < 0
    # Eighths of a turn to count from, and the direction: pi/2 - angle where steep, pi - that on the left.
    base = jnp.where(steep, 2 - turns, turns)
    angle = jnp.where(steep, -angle, angle)
    base = jnp.where(left, 4 - base, base)
    angle = jnp.where(left, -angle, angle)
    high, low = quarter(1)
    value = jnp.abs(base * high + (angle + base * low))
    return jnp.where((x != x) | (y != y), jnp.asarray(jnp.nan, dtype), with_sign_of(value, y))


def _arcsine_parts(x):
    """(whether |x| > 1/2, s, r): s + r is asin of |x| up to there, half of acos beyond."""
    a = jnp.abs(x)
    large = a > 0.5
    z = jnp.where(large, 0.5 - 0.5 * a, a * a)
    s = jnp.where(large, jnp.sqrt(z), a)
    return large, s, s * z * polynomial(z, _ARCSINE[x.dtype.name])


def asin(x):
    """The arcsine; NaN outside [-1, 1]."""
    if not for_cpu(x):
        return jnp.arcsin(x)
    large, s, more = _arcsine_parts(x)
    high, low = _share(x.dtype, 0.5)
    return with_sign_of(jnp.where(large, (high - 2 * s) - (2 * more - low), s + more), x)


def acos(x):
    """The arccosine; NaN outside [-1, 1]."""
    if not for_cpu(x):
        return jnp.arccos(x)
    large, s, more = _arcsine_parts(x)
    part = s + more
    (high, low), (whole, rest) = _share(x.dtype, 0.5), _share(x.dtype, 1.0)
    part = number(bits(part) ^ (bits(x) & jnp.iinfo(bits(x).dtype).min), x.dtype)
    middle = high - (part - low)
    outer = jnp.where(x > 0, 2 * part, whole + (2 * part + rest))
    return jnp.where(large, outer, middle)
