"""Rows of arithmetic, comparison, logic and selection.

Law: integer division and remainder truncate as in C; ``maximum``/``minimum`` ignore NaN and their ``_nan`` variants
carry it; ``shr`` follows the operand's signedness. References are the NumPy meaning that the tests compare with.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from frontend_triton_compat.language.table import HELPERS, Row, register


def _c_div(a: Any, b: Any) -> Any:
    """Truncating division; by zero gives -1, as the array machine does."""
    a, b = np.asarray(a), np.asarray(b)
    safe = np.where(b == 0, np.ones_like(b), b)
    with np.errstate(all="ignore"):
        q = np.floor_divide(a, safe)
        r = a - q * safe
        if a.dtype.kind == "i":
            q = q + ((r != 0) & ((r < 0) != (a < 0))).astype(a.dtype)
        return np.where(b == 0, np.array(-1).astype(a.dtype), q).astype(a.dtype)


def _c_mod(a: Any, b: Any) -> Any:
    """Remainder with the dividend's sign; by zero gives the dividend."""
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(all="ignore"):
        return np.where(b == 0, a, a - _c_div(a, b) * b).astype(a.dtype)


def _umulhi(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    bits = a.dtype.itemsize * 8
    mask = (1 << bits) - 1
    product = (a.astype(object) & mask) * (b.astype(object) & mask) >> bits
    unsigned = np.asarray(product, dtype=object).astype(f"uint{bits}")
    return unsigned.astype(a.dtype)


def _fma(a: Any, b: Any, c: Any) -> Any:
    whole = [float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c)]
    return np.array(whole).astype(np.asarray(a).dtype)


# The high half of a product from four half-width products (h bits each): needs no wider type.
_LOW = "((1 << h) - 1)"
_MIDDLE = f"((a >> h) * (b & {_LOW}) + ((a & {_LOW}) * (b & {_LOW}) >> h))"
_UMULHI = (
    f"(lambda a, b, h: (a >> h) * (b >> h) + ({_MIDDLE} >> h)"
    f" + (((a & {_LOW}) * (b >> h) + ({_MIDDLE} & {_LOW})) >> h))"
    "({0}, {1}, {0}.dtype.itemsize * 4)"
)

# XLA's simplifier divides by a constant or by a broadcast value by multiplying with the reciprocal, an ulp off in a
# quarter of the elements. It can't see that a counter's sign bit is 0, so a divisor that is combined with the counters
# of all dimensions it is spread along is left alone.
_DIVIDE = """
def divide(a, b):
    \"\"\"The quotient, correctly rounded where one divisor serves many dividends.\"\"\"
    b = jnp.asarray(b, a.dtype)
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    own = (1,) * (len(shape) - b.ndim) + b.shape
    spread = [i for i, n in enumerate(shape) if n > own[i]]
    bits, last = jnp.dtype(f"int{b.dtype.itemsize * 8}"), b.dtype.itemsize * 8 - 1
    if spread:
        count = sum(lax.broadcasted_iota(bits, shape, i) for i in spread)
    else:
        count = lax.iota(bits, 2)[0]
    return a / lax.bitcast_convert_type(lax.bitcast_convert_type(b, bits) ^ (count >> last), b.dtype)
"""
HELPERS["divide"] = {"cpu": _DIVIDE}


register(
    Row("add", "binary", "{0} + {1}", doc="sum; integers wrap"),
    Row("sub", "binary", "{0} - {1}", doc="difference; integers wrap"),
    Row("mul", "binary", "{0} * {1}", doc="product; integers wrap"),
    Row(
        "truediv",
        "binary",
        "{0} / {1}",
        accepts="float",
        spread={"cpu": "divide({0}, {1})"},
        doc="quotient of floats, correctly rounded",
    ),
    Row("idiv", "binary", "lax.div({0}, {1})", accepts="int", reference=_c_div, doc="quotient rounded towards zero"),
    Row(
        "imod", "binary", "lax.rem({0}, {1})", accepts="int", reference=_c_mod, doc="remainder with the dividend's sign"
    ),
    Row(
        "fmod",
        "binary",
        "lax.rem({0}, {1})",
        accepts="float",
        targets={"tpu": "in_fp32(lax.rem, {0}, {1})"},
        reference=np.fmod,
        doc="remainder of floats, as C's fmod",
    ),
    Row(
        "min",
        "binary",
        "jnp.minimum({0}, {1})",
        accepts="int",
        targets={"tpu:uint": "jnp.where({0} < {1}, {0}, {1})", "tpu:bool": "{0} & {1}"},
        doc="smaller of two integers",
    ),
    Row(
        "max",
        "binary",
        "jnp.maximum({0}, {1})",
        accepts="int",
        targets={"tpu:uint": "jnp.where({0} < {1}, {1}, {0})", "tpu:bool": "{0} | {1}"},
        doc="larger of two integers",
    ),
    Row("minimum", "binary", "jnp.fmin({0}, {1})", accepts="float", doc="smaller of two floats, NaN ignored"),
    Row("maximum", "binary", "jnp.fmax({0}, {1})", accepts="float", doc="larger of two floats, NaN ignored"),
    Row("minimum_nan", "binary", "jnp.minimum({0}, {1})", accepts="float", doc="smaller of two floats, NaN carried"),
    Row("maximum_nan", "binary", "jnp.maximum({0}, {1})", accepts="float", doc="larger of two floats, NaN carried"),
    Row(
        "neg",
        "unary",
        "0 - {0}",
        accepts="number",
        reference=lambda x: np.zeros_like(x) - x,
        doc="negation; of 0.0 it is 0.0, as Triton writes it",
    ),
    Row("and", "binary", "{0} & {1}", accepts="int", doc="bitwise and; of int1, logical"),
    Row("or", "binary", "{0} | {1}", accepts="int", doc="bitwise or; of int1, logical"),
    Row("xor", "binary", "{0} ^ {1}", accepts="int", doc="bitwise exclusive or"),
    Row("not", "unary", "~{0}", accepts="int", doc="bitwise complement; of int1, logical"),
    Row("shl", "binary", "{0} << {1}", accepts="int", doc="shift to the left"),
    Row("shr", "binary", "{0} >> {1}", accepts="int", doc="shift to the right, arithmetic for signed operands"),
    Row(
        "umulhi",
        "binary",
        _UMULHI,
        accepts="int",
        reference=_umulhi,
        doc="high half of the product; unsigned operands only",
    ),
    Row("lt", "compare", "{0} < {1}", result="bool", doc="less"),
    Row("le", "compare", "{0} <= {1}", result="bool", doc="less or equal"),
    Row("gt", "compare", "{0} > {1}", result="bool", doc="greater"),
    Row("ge", "compare", "{0} >= {1}", result="bool", doc="greater or equal"),
    Row("eq", "compare", "{0} == {1}", result="bool", doc="equal"),
    Row("ne", "compare", "{0} != {1}", result="bool", doc="not equal; true for NaN"),
    Row(
        "where",
        "ternary",
        "jnp.where({0}, {1}, {2})",
        targets={"tpu:bool": "({0} & {1}) | (~{0} & {2})"},
        doc="the second operand where the first is true",
    ),
    Row(
        "fma",
        "ternary",
        "{0} * {1} + {2}",
        accepts="float",
        targets={"cpu": "fused({0}, {1}, {2})", "tpu": "in_fp32(fused, {0}, {1}, {2})"},
        reference=_fma,
        doc="product plus addend, rounded once",
    ),
)
for _bits in (8, 16):
    register(
        Row(
            f"low_{_bits}",
            "unary",
            f"{{0}} & {(1 << _bits) - 1}",
            accepts="int32",
            reference=lambda x, mask=(1 << _bits) - 1: np.asarray(x) & mask,
            doc=f"an int32 modulo 2**{_bits}",
        ),
        Row(
            f"signed_{_bits}",
            "unary",
            f"({{0}} << {32 - _bits}) >> {32 - _bits}",
            accepts="int32",
            reference=lambda x, bits=_bits: ((np.asarray(x) + (1 << bits - 1)) & ((1 << bits) - 1)) - (1 << bits - 1),
            doc=f"an int32 wrapped to {_bits} bits",
        ),
    )
