"""Conversions between element types that one `astype` gets wrong on the CPU, as functions of the emitted module.

Input: none. Output: entries of `HELPERS`. Law: a conversion rounds once, keeps numbers below the smallest normal one
(the machine's own instructions take them for 0), and is written with bit operations where that needs it. Casts to
8-bit floats saturate, as Triton's compiled kernels do; ``float8e4b15`` is Triton's own format: the high byte of an
fp16 shifted left by one, without NaN or infinity.
"""

from __future__ import annotations

from frontend_triton_compat.language.table import HELPERS

_FP64_OF = """
def fp64_of(x):
    \"\"\"fp32 as fp64, numbers below 2**-126 too.\"\"\"
    bits = lax.bitcast_convert_type(x, jnp.int32)
    small = (bits & 0x7FFFFF).astype(jnp.float64) * 2.0**-149
    small = jnp.where(bits < 0, -small, small)
    return jnp.where((bits & 0x7F800000) == 0, small, x.astype(jnp.float64))
"""
_FP32_OF = """
def fp32_of(x):
    \"\"\"fp64 rounded to fp32, numbers below 2**-126 too.\"\"\"
    sign = (lax.bitcast_convert_type(x, jnp.int64) >> 63).astype(jnp.int32) << 31
    small = lax.round(jnp.abs(x) * 2.0**149, lax.RoundingMethod.TO_NEAREST_EVEN).astype(jnp.int32)
    small = lax.bitcast_convert_type(small | sign, jnp.float32)
    return jnp.where(jnp.abs(x) < 2.0**-126, small, x.astype(jnp.float32))
"""
_FP32_CUT = """
def fp32_cut(x):
    \"\"\"fp64 cut to fp32, numbers below 2**-126 too.\"\"\"
    size = jnp.abs(x)
    near = size.astype(jnp.float32)
    bits = lax.bitcast_convert_type(near, jnp.int32) - (near.astype(jnp.float64) > size).astype(jnp.int32)
    bits = jnp.where(size < 2.0**-126, (size * 2.0**149).astype(jnp.int32), bits)
    sign = (lax.bitcast_convert_type(x, jnp.int64) >> 63).astype(jnp.int32) << 31
    return lax.bitcast_convert_type(bits | sign, jnp.float32)
"""
_FP32_ODD = """
def fp32_odd(x):
    \"\"\"fp64 cut to fp32 with the last bit set where something was cut: rounding it again rounds once.\"\"\"
    cut = fp32_cut(x)
    lost = (fp64_of(cut) != x).astype(jnp.int32)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(cut, jnp.int32) | lost, jnp.float32)
"""
_TOWARD_ZERO = """
def toward_zero(x, dtype):
    \"\"\"fp32 cut to a narrower float.\"\"\"
    near = x.astype(dtype)
    bits = lax.bitcast_convert_type(near, jnp.uint8 if near.dtype.itemsize == 1 else jnp.uint16)
    size = lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFFFF
    wide = lax.bitcast_convert_type(near.astype(jnp.float32), jnp.int32) & 0x7FFFFFFF
    above = (wide > size) & (size <= 0x7F800000)
    return lax.bitcast_convert_type(bits - above.astype(bits.dtype), dtype)
"""
_E4B15_OF = """
def e4b15_of(x):
    \"\"\"fp16 as float8e4b15: rounded to the nearest (ties away from 0), at most 1.75 in size.\"\"\"
    bits = lax.bitcast_convert_type(x, jnp.uint16)
    size = jnp.minimum(bits & 0x7FFF, 0x3F00)
    return lax.bitcast_convert_type((((size + 0x40) >> 7) | ((bits & 0x8000) >> 8)).astype(jnp.uint8), E4B15)
"""
_OF_E4B15 = """
def of_e4b15(x):
    \"\"\"float8e4b15 as fp16.\"\"\"
    bits = lax.bitcast_convert_type(x, jnp.uint8).astype(jnp.uint16)
    return lax.bitcast_convert_type(((bits & 0x80) << 8) | ((bits & 0x7F) << 7), jnp.float16)
"""
#: how Triton's 4-bit exponent, bias-15 format is stored: a dtype of the same size whose numbers are never looked at
E4B15 = "float8_e4m3b11fnuz"

HELPERS["fp64_of"] = {"cpu": _FP64_OF}
HELPERS["fp32_of"] = {"cpu": _FP32_OF}
HELPERS["fp32_cut"] = {"cpu": _FP32_CUT}
HELPERS["fp32_odd"] = {"cpu": _FP32_ODD}
HELPERS["toward_zero"] = {"cpu": _TOWARD_ZERO}
HELPERS["e4b15_of"] = {"cpu": _E4B15_OF.replace("E4B15)", f"jnp.{E4B15})")}
HELPERS["of_e4b15"] = {"cpu": _OF_E4B15}
