"""Elementwise operators, first half: arithmetic, extremes, comparison, bit operations, rounding.

Input and output: arrays of one dtype (the row's promotion rule has been applied), numbers for scalars. Law: NaN,
division and rounding as torch has them; bf16 and f16 compute in f32 and round once per operator.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from inductor_backend.ops import whole
from inductor_backend.ops.elementary import fmod as modulo
from inductor_backend.ops.elementary import power, rsqrt
from inductor_backend.ops.elementary.pieces import on_cpu
from inductor_backend.ops.exact import divide, exp2, fence, scaled
from inductor_backend.ops.table import (
    BOOL_OUT,
    COMPLEX_TO_FLOAT,
    INT_TO_FLOAT,
    KEEP,
    NO_OPMATH,
    POINTWISE,
    cast,
    pointwise,
    row,
)

lax = jax.lax


def _is_int(x) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.integer)


def _is_float(x) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def _is_bool(x) -> bool:
    return jnp.result_type(x) == jnp.bool_


def _fixed(value, x, y):
    """The result of an operation with a constant, fenced: XLA joins it with the constant of the next operation."""
    return fence(value) if jnp.size(x) == 1 or jnp.size(y) == 1 else value


# ------------------------------------------------------------------------------------------------ arithmetic
@pointwise("aten.add.Tensor", "aten.add.Scalar", narrow_scalars=True, grows=whole.ADDED)
def add(x, y, alpha=1):
    """X + alpha * y; on bool the sum is a logical or."""
    if isinstance(y, float) and y == 0:
        # XLA drops the addition of a zero; it turns -0 into 0.
        return jnp.where(x == 0, jnp.zeros((), x.dtype), x) if math.copysign(1, y) > 0 else x
    if alpha != 1:
        y = y * jnp.asarray(alpha, jnp.result_type(x, y))
    return _fixed(x + y, x, y)


@pointwise("aten.sub.Tensor", "aten.sub.Scalar", narrow_scalars=True, grows=whole.SUBTRACTED)
def sub(x, y, alpha=1):
    """X - alpha * y."""
    return _fixed(x - (y if alpha == 1 else y * jnp.asarray(alpha, jnp.result_type(x, y))), x, y)


@pointwise("aten.rsub.Scalar", "aten.rsub.Tensor", narrow_scalars=True, grows=whole.SUBTRACTED_FROM)
def rsub(x, y, alpha=1):
    """Y - alpha * x."""
    return _fixed(y - x * alpha, x, y)


@pointwise("aten.mul.Tensor", "aten.mul.Scalar", grows=whole.MULTIPLIED)
def mul(x, y):
    """Product; on bool a logical and."""
    return _fixed(x * y, x, y)


@pointwise("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", promote=INT_TO_FLOAT)
def div(x, y):
    """True division."""
    return divide(x, y)


@pointwise("prims.div.default", divides=True, grows=whole.QUOTIENT)
def prim_div(x, y):
    """True division; of whole numbers, rounded towards zero."""
    return lax.div(*_pair(x, y))


def _pair(x, y):
    """Two operands as arrays of one dtype and shape; a Python number takes the array's dtype."""
    dtype = jnp.result_type(x, y)
    return jnp.broadcast_arrays(jnp.asarray(x, dtype), jnp.asarray(y, dtype))


def _fmod(x, y):
    return modulo(*_pair(x, y))


def _whole_quotient(x, y):
    """Quotient towards zero and what is left, of whole numbers: the processor divides once for both."""
    quotient = lax.div(x, y)
    return quotient, x - quotient * y


def _floor_divide(x, y):
    x, y = _pair(x, y)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        quotient, rest = _whole_quotient(x, y)
        if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
            return quotient
        return jnp.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    # C's fmod algorithm: floor(x / y) alone is off by one when the quotient rounds up to an integer.
    mod = modulo(x, y)
    quotient = divide(x - mod, y)
    quotient = jnp.where((mod != 0) & ((y < 0) != (mod < 0)), quotient - 1, quotient)
    floored = jnp.floor(quotient)
    floored = jnp.where(quotient - floored > 0.5, floored + 1, floored)
    ratio = divide(x, y)
    floored = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(x), ratio), floored)
    return jnp.where(y == 0, ratio, floored)


def _by_a_number(x, y):
    """Operands of a division that rounds: eager divides arrays of half precision in it, an array by a number in f32."""
    if jnp.result_type(x, y) in (jnp.bfloat16, jnp.float16) and jnp.ndim(y) == 0:
        return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    return x, y


@pointwise(
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
    result="exact",
    promote=NO_OPMATH,
    divides=True,
    grows=whole.QUOTIENT,
)
def div_mode(x, y, rounding_mode=None, out: Any = None):
    """Division that floors, truncates, or neither, as `rounding_mode` says."""
    if rounding_mode is None:
        compute = jnp.float32 if out.dtype in (jnp.bfloat16, jnp.float16) else out.dtype
        return divide(jnp.asarray(x).astype(compute), jnp.asarray(y).astype(compute)).astype(out.dtype)
    x, y = _by_a_number(x, y)
    if rounding_mode == "floor":
        return _floor_divide(jnp.asarray(x), y).astype(out.dtype)
    if _is_float(x) or _is_float(y):
        return jnp.trunc(divide(x, y)).astype(out.dtype)
    return lax.div(*_pair(x, y)).astype(out.dtype)


@pointwise(
    "aten.floor_divide.default", "aten.floor_divide.Scalar", promote=NO_OPMATH, divides=True, grows=whole.QUOTIENT
)
def floor_divide(x, y):
    """Division rounded towards minus infinity."""
    dtype = jnp.result_type(x, y)
    return _floor_divide(*_by_a_number(x, y)).astype(dtype)


@pointwise(
    "aten.remainder.Tensor",
    "aten.remainder.Scalar",
    "aten.remainder.Scalar_Tensor",
    narrow_scalars=True,
    divides=True,
    grows=whole.MODULO,
)
def remainder(x, y):
    """Python's modulo: the result has the divisor's sign."""
    x, y = _pair(x, y)
    mod = modulo(x, y)
    if jnp.issubdtype(mod.dtype, jnp.unsignedinteger):
        return mod
    return jnp.where((mod != 0) & ((y < 0) != (mod < 0)), mod + y, mod)


@pointwise("aten.fmod.Tensor", "aten.fmod.Scalar", narrow_scalars=True, divides=True, grows=whole.REST)
def fmod(x, y):
    """C's modulo: the result has the dividend's sign."""
    return _fmod(x, y)


@pointwise("aten.neg.default", grows=whole.NEGATED)
def neg(x):
    """-x."""
    return -x


@pointwise("aten.positive.default", grows=whole.ELEMENTS)
def positive(x):
    """+x."""
    return x


@pointwise("aten.abs.default", promote=COMPLEX_TO_FLOAT, grows=whole.ABSOLUTE)
def abs_(x):
    """|x|; of a complex number its modulus, infinite if either part is."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.where(jnp.isinf(x.real) | jnp.isinf(x.imag), jnp.inf, jnp.abs(x))
    return jnp.abs(x)


@pointwise("aten.reciprocal.default", promote=INT_TO_FLOAT)
def reciprocal(x):
    """1 / x."""
    return divide(1, x)


@pointwise("aten.square.default", grows=whole.SQUARED)
def square(x):
    """X * x."""
    return x * x


@pointwise("aten.sgn.default", "aten.sign.default", grows=whole.within(-1, 1))
def sign(x):
    """-1, 0 or 1; NaN gives 0 as in torch; a bool is its own sign."""
    if _is_bool(x):
        return x
    s = jnp.sign(x)
    return jnp.where(jnp.isnan(x) | (x == 0), 0, s).astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else s


@pointwise(
    "aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar", narrow_scalars=True, grows=whole.POWER
)
def pow_(x, y, out: Any = None):
    """X ** y; small whole exponents become products, and 1/2 a square root."""
    if out is not None and out.dtype == jnp.float16 and isinstance(y, float) and y in (0.5, -0.5):
        # Eager has no root of f16: its power takes -0 as 0 and -inf as inf.
        x = jnp.where((x == 0) | jnp.isinf(x), jnp.abs(x), x)
    if isinstance(y, (int, float)):
        if y == 2:
            return x * x
        if y in (3, -2) and out is not None and out.dtype == jnp.bfloat16:
            square = cast(cast(x * x, out.dtype), x.dtype)  # eager rounds it
            return square * x if y == 3 else divide(1, square)
        if y == 3:
            return x * x * x
        if y == 1:
            return x
        if y == 0:
            return jnp.ones_like(x)
        if not _is_int(x):
            if y == 0.5:
                return jnp.sqrt(x)
            if y == -0.5:
                return rsqrt(x)
            if y == -1:
                return divide(1, x)
            if y == -2:
                return divide(1, x * x)
        elif y < 0:
            # torch refuses negative integer powers of integers before it gets here, except for +-1 bases.
            return jnp.where(x == 1, 1, jnp.where(x == -1, 1 if y % 2 == 0 else -1, 0)).astype(x.dtype)
        else:
            return lax.integer_pow(x, int(y))
        return fence(power(x, jnp.asarray(y, x.dtype)))
    dtype = jnp.result_type(y)
    x = jnp.asarray(x, dtype)
    if jnp.issubdtype(dtype, jnp.integer) and not jnp.issubdtype(dtype, jnp.unsignedinteger):
        negative = jnp.where(x == 1, 1, jnp.where(x == -1, jnp.where(y % 2 == 0, 1, -1), 0)).astype(dtype)
        return jnp.where(y < 0, negative, _whole_power(x, jnp.maximum(y, 0)))
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return _whole_power(x, y)
    return fence(power(x, y))


def _whole_power(x, y):
    """X ** y of whole numbers that aren't negative; jax's own takes the exponent modulo 64."""
    x, y = _pair(x, y)
    if not on_cpu():
        return jnp.power(x, y)

    def squared(state):
        found, base, left = state
        return jnp.where(left & 1 != 0, found * base, found), base * base, left >> 1

    def every_bit(x, y):
        return lax.while_loop(lambda state: jnp.any(state[2] != 0), squared, (jnp.ones_like(x), x, y))[0]

    return lax.cond(jnp.all(y < 64), jnp.power, every_bit, x, y)


@pointwise("aten.addcmul.default", grows=whole.PRODUCT_ADDED)
def addcmul(x, a, b, value=1):
    """X + value * a * b."""
    return x + (a * b if value == 1 else jnp.asarray(value, jnp.result_type(x)) * a * b)


@pointwise("aten.addcdiv.default", undecomposed=True)
def addcdiv(x, a, b, value=1):
    """X + value * a / b."""
    return x + divide(a if value == 1 else jnp.asarray(value, jnp.result_type(x)) * a, b)


@row("aten.logit.default", kind=POINTWISE, undecomposed=True)
def logit(x, eps=None, out: Any = None):
    """log(x / (1 - x)), of x limited to [eps, 1 - eps]; half precision is rounded after every step."""
    x = cast(x, out.dtype)
    if eps is not None:
        low = jnp.asarray(eps, x.dtype)
        x = jnp.where(x < low, low, jnp.where(x > 1 - low, 1 - low, x))
    return jnp.log(divide(x, 1 - x))


@row("aten.addr.default", undecomposed=True)
def addr(x, a, b, beta=1, alpha=1, out: Any = None):
    """Beta * x + alpha * the product of every element of a and every one of b; beta 0 ignores x."""
    x, a, b = cast(x, out.dtype), cast(a, out.dtype), cast(b, out.dtype)
    product = (a if alpha == 1 else a * jnp.asarray(alpha, a.dtype))[:, None] * b
    if beta != 0:
        product = (x if beta == 1 else x * jnp.asarray(beta, x.dtype)) + product
    return jnp.broadcast_to(product, out.shape)


@row("aten.linalg_cross.default", undecomposed=True)
def cross(x, y, dim=-1, out: Any = None):
    """The vector product along a dimension of 3."""
    x, y = jnp.broadcast_arrays(cast(x, out.dtype), cast(y, out.dtype))
    turned = lambda v, by: jnp.roll(v, by, dim)
    return turned(x, -1) * turned(y, -2) - turned(x, -2) * turned(y, -1)


@pointwise("prims.fma.default", grows=whole.FUSED)
def fma(a, b, c):
    """A * b + c."""
    return a * b + c


@pointwise("aten.lerp.Scalar", "aten.lerp.Tensor", undecomposed=True)
def lerp(start, end, weight):
    """Linear interpolation, by the formula that is exact at the nearer end."""
    weight = jnp.asarray(weight, jnp.result_type(start))
    difference = end - start
    return jnp.where(jnp.abs(weight) < 0.5, start + weight * difference, end - difference * (1 - weight))


@pointwise("aten.hypot.default")
def hypot(x, y):
    """sqrt(x^2 + y^2) without overflow."""
    return jnp.hypot(x, y)


@pointwise("aten.copysign.Tensor", "aten.copysign.Scalar", promote=INT_TO_FLOAT)
def copysign(x, y):
    """|x| with the sign of y."""
    return jnp.copysign(x, y)


@pointwise("aten.nextafter.default", promote=NO_OPMATH)
def nextafter(x, y):
    """The next representable number after x towards y."""
    return jnp.nextafter(x, y)


@pointwise("aten.ldexp.Tensor", promote=KEEP)
def ldexp(x, y, out: Any = None):
    """X * 2 ** y; for a whole y without a power that overflows before the product does."""
    wide = x.astype(jnp.promote_types(out.dtype, jnp.float32))
    if not _is_float(y):
        return scaled(wide, y).astype(out.dtype)
    power = exp2(y.astype(jnp.promote_types(y.dtype, jnp.float32))).astype(y.dtype)
    return (wide * power.astype(wide.dtype)).astype(out.dtype)


# --------------------------------------------------------------------------------------- extremes and clamps
@pointwise("aten.maximum.default", promote=NO_OPMATH, grows=whole.LARGER)
def maximum(x, y):
    """The larger; NaN wins."""
    return jnp.maximum(x, y)


@pointwise("aten.minimum.default", promote=NO_OPMATH, grows=whole.SMALLER)
def minimum(x, y):
    """The smaller; NaN wins."""
    return jnp.minimum(x, y)


@pointwise("aten.fmax.default", promote=NO_OPMATH, grows=whole.LARGER)
def fmax(x, y):
    """The larger; NaN loses."""
    return jnp.fmax(x, y)


@pointwise("aten.fmin.default", promote=NO_OPMATH, grows=whole.SMALLER)
def fmin(x, y):
    """The smaller; NaN loses."""
    return jnp.fmin(x, y)


def at_least(x, low):
    """max(x, low); against a number, `x` stays where it equals it, so that -0 against 0 is -0 as in eager."""
    if isinstance(low, (int, float)) and low == low:
        low = jnp.asarray(low, jnp.result_type(x))
        return jnp.where(x < low, low, x)
    return jnp.maximum(x, jnp.asarray(low, jnp.result_type(x)))


def at_most(x, high):
    """min(x, high), with the same rule for zeros."""
    if isinstance(high, (int, float)) and high == high:
        high = jnp.asarray(high, jnp.result_type(x))
        return jnp.where(x > high, high, x)
    return jnp.minimum(x, jnp.asarray(high, jnp.result_type(x)))


@pointwise("aten.clamp.default", "aten.clamp.Tensor", promote=NO_OPMATH, grows=whole.CLAMPED)
def clamp(x, min=None, max=None):
    """Limit to [min, max]; NaN stays; max wins when the limits cross."""
    x = x if min is None else at_least(x, min)
    return x if max is None else at_most(x, max)


@pointwise("aten.clamp_min.default", "aten.clamp_min.Tensor", promote=NO_OPMATH, grows=whole.LARGER)
def clamp_min(x, y):
    """max(x, y)."""
    return at_least(x, y)


@pointwise("aten.clamp_max.default", "aten.clamp_max.Tensor", promote=NO_OPMATH, grows=whole.SMALLER)
def clamp_max(x, y):
    """min(x, y)."""
    return at_most(x, y)


# ------------------------------------------------------------------------------------------------ comparison
def _compare(name, fn):
    pointwise(f"aten.{name}.Tensor", f"aten.{name}.Scalar", promote=BOOL_OUT, narrow_scalars=True)(fn)


_compare("eq", lambda x, y: x == y)
_compare("ne", lambda x, y: x != y)
_compare("lt", lambda x, y: x < y)
_compare("le", lambda x, y: x <= y)
_compare("gt", lambda x, y: x > y)
_compare("ge", lambda x, y: x >= y)

pointwise("aten.logical_and.default", promote=BOOL_OUT)(lambda x, y: (x != 0) & (y != 0))
pointwise("aten.logical_or.default", promote=BOOL_OUT)(lambda x, y: (x != 0) | (y != 0))
pointwise("aten.logical_xor.default", promote=BOOL_OUT)(lambda x, y: (x != 0) ^ (y != 0))
pointwise("aten.logical_not.default", promote=BOOL_OUT)(lambda x: x == 0)
pointwise("aten.isnan.default", promote=BOOL_OUT)(lambda x: x != x)
pointwise("aten.isinf.default", promote=BOOL_OUT)(lambda x: jnp.isinf(x))
pointwise("aten.isfinite.default", promote=BOOL_OUT)(lambda x: jnp.isfinite(x))
pointwise("aten.isposinf.default", promote=BOOL_OUT)(lambda x: jnp.isposinf(x))
pointwise("aten.isneginf.default", promote=BOOL_OUT)(lambda x: jnp.isneginf(x))
pointwise("aten.signbit.default", promote=BOOL_OUT)(
    lambda x: jnp.signbit(x) if jnp.issubdtype(x.dtype, jnp.floating) else x < 0
)

# --------------------------------------------------------------------------------------------- bit operations
pointwise(
    "aten.bitwise_and.Tensor",
    "aten.bitwise_and.Scalar",
    "aten.__and__.Tensor",
    "aten.__and__.Scalar",
    grows=whole.MASKED_BITS,
)(lambda x, y: x & y)
pointwise(
    "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.__or__.Tensor", "aten.__or__.Scalar", grows=whole.BITS
)(lambda x, y: x | y)
pointwise(
    "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.__xor__.Tensor", "aten.__xor__.Scalar", grows=whole.BITS
)(lambda x, y: x ^ y)
pointwise("aten.bitwise_not.default", grows=whole.INVERTED)(lambda x: ~x)


@pointwise(
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.__lshift__.Scalar",
    "aten.__lshift__.Tensor",
    grows=whole.SHIFTED_LEFT,
)
def left_shift(x, y):
    """X << y; a shift by the width or more gives 0, as in torch."""
    x, y = _pair(x, y)
    bits = x.dtype.itemsize * 8
    return jnp.where((y < 0) | (y >= bits), 0, jnp.left_shift(x, jnp.clip(y, 0, bits - 1))).astype(x.dtype)


@pointwise(
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.__rshift__.Scalar",
    "aten.__rshift__.Tensor",
    grows=whole.SHIFTED_RIGHT,
)
def right_shift(x, y):
    """X >> y with the sign kept; a shift by the width or more shifts everything out."""
    x, y = _pair(x, y)
    bits = x.dtype.itemsize * 8
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return jnp.where(y >= bits, jnp.zeros_like(x), jnp.right_shift(x, jnp.where(y >= bits, 0, y)))
    return jnp.right_shift(x, jnp.where((y < 0) | (y >= bits), bits - 1, y)).astype(x.dtype)


# ------------------------------------------------------------------------------------ rounding, whole numbers
def _round_half_even(x, decimals=0):
    if _is_int(x):
        return x
    if decimals == 0:
        return jnp.round(x)
    scale = 10.0 ** abs(decimals)
    return divide(jnp.round(x * scale), scale) if decimals > 0 else jnp.round(divide(x, scale)) * scale


def _whole(fn):
    return lambda x: x if _is_int(x) or _is_bool(x) else fn(x)


pointwise("aten.floor.default", grows=whole.CONVERTED)(_whole(jnp.floor))
pointwise("aten.ceil.default", grows=whole.CONVERTED)(_whole(jnp.ceil))
pointwise("aten.trunc.default", "aten.fix.default", grows=whole.CONVERTED)(_whole(jnp.trunc))
pointwise("aten.round.default", "aten.round.decimals", undecomposed=True, grows=whole.ELEMENTS)(_round_half_even)
pointwise("aten.frac.default")(lambda x: x - jnp.trunc(x))
