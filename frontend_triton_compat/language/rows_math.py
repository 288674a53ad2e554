"""Rows of elementwise mathematics, libdevice's included.

Law: one row a function; `reference` is NumPy's function in the operand's own precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from frontend_triton_compat.language import functions as _functions  # noqa: F401 - what the rows call
from frontend_triton_compat.language import functions_tpu as _functions_tpu  # noqa: F401 - likewise
from frontend_triton_compat.language.table import Row, register


def _vector(fn: Callable[..., float]) -> Callable[..., Any]:
    """A NumPy function from a scalar one of the standard library, in fp64, rounded to the operand's type."""
    wide = np.vectorize(fn, otypes=[np.float64])

    def apply(*operands: Any) -> Any:
        return wide(*(np.asarray(x, np.float64) for x in operands)).astype(np.asarray(operands[0]).dtype)

    return apply


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-x))).astype(np.asarray(x).dtype)


def _rsqrt(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return (1 / np.sqrt(x)).astype(np.asarray(x).dtype)


def _popc(x: Any) -> Any:
    x = np.asarray(x)
    bits = x.dtype.itemsize * 8
    return np.vectorize(lambda v: bin(int(v) & ((1 << bits) - 1)).count("1"), otypes=[np.int32])(x)


def _clz(x: Any) -> Any:
    x = np.asarray(x)
    bits = x.dtype.itemsize * 8
    return np.vectorize(lambda v: bits - (int(v) & ((1 << bits) - 1)).bit_length(), otypes=[np.int32])(x)


def _unary(
    name: str,
    code: str,
    reference: Any,
    domain: tuple[float, float] = (-4.0, 4.0),
    doc: str = "",
    cpu: str = "",
    tpu: str = "",
) -> Row:
    doc = doc or f"{name} of a float"
    targets = {target: special for target, special in (("cpu", cpu), ("tpu", tpu)) if special}
    return Row(name, "unary", code, accepts="float", reference=reference, domain=domain, doc=doc, targets=targets)


def _test(name: str, code: str, reference: Any, doc: str, tpu: str = "") -> Row:
    targets = {"tpu": tpu} if tpu else {}
    return Row(name, "unary", code, accepts="float", result="bool", reference=reference, doc=doc, targets=targets)


register(
    _unary("exp", "jnp.exp({0})", np.exp),
    _unary("exp2", "jnp.exp2({0})", np.exp2, cpu="two_to_the({0})", tpu="in_fp32(jnp.exp2, {0})"),
    _unary(
        "exp10",
        "jnp.power(jnp.asarray(10, {0}.dtype), {0})",
        lambda x: np.power(np.asarray(10, x.dtype), x),
        tpu="in_fp32(lambda x: jnp.power(jnp.float32(10), x), {0})",
    ),
    _unary("expm1", "jnp.expm1({0})", np.expm1, cpu="in_fp64(jnp.expm1, {0})", tpu="in_fp32(less_one, {0})"),
    _unary("log", "jnp.log({0})", np.log, (0.01, 8.0)),
    _unary("log2", "jnp.log2({0})", np.log2, (0.01, 8.0), tpu="in_fp32(jnp.log2, {0})"),
    _unary("log10", "jnp.log10({0})", np.log10, (0.01, 8.0)),
    _unary("log1p", "jnp.log1p({0})", np.log1p, (-0.9, 8.0), cpu="log_of_more({0})"),
    _unary("sqrt", "jnp.sqrt({0})", np.sqrt, (0.0, 8.0)),
    _unary("rsqrt", "lax.rsqrt({0})", _rsqrt, (0.01, 8.0)),
    _unary("cbrt", "jnp.cbrt({0})", np.cbrt, cpu="in_fp64(jnp.cbrt, {0})", tpu="in_fp32(cube_root, {0})"),
    _unary("sin", "jnp.sin({0})", np.sin),
    _unary("cos", "jnp.cos({0})", np.cos),
    _unary("tan", "jnp.tan({0})", np.tan, (-1.4, 1.4)),
    _unary("asin", "jnp.arcsin({0})", np.arcsin, (-1.0, 1.0), tpu="in_fp32(arc_sine, {0})"),
    _unary("acos", "jnp.arccos({0})", np.arccos, (-1.0, 1.0), tpu="in_fp32(arc_cosine, {0})"),
    _unary("atan", "jnp.arctan({0})", np.arctan, tpu="in_fp32(arc_tangent, {0})"),
    _unary("sinh", "jnp.sinh({0})", np.sinh, cpu="in_fp64(hyperbolic_sine, {0})", tpu="in_fp32(hyperbolic_sine, {0})"),
    _unary(
        "cosh", "jnp.cosh({0})", np.cosh, cpu="in_fp64(hyperbolic_cosine, {0})", tpu="in_fp32(hyperbolic_cosine, {0})"
    ),
    _unary("tanh", "jnp.tanh({0})", np.tanh, cpu="hyperbolic_tangent({0})"),
    _unary("asinh", "jnp.arcsinh({0})", np.arcsinh, tpu="in_fp32(area_sine, {0})"),
    _unary("acosh", "jnp.arccosh({0})", np.arccosh, (1.0, 8.0), tpu="in_fp32(area_cosine, {0})"),
    _unary(
        "atanh",
        "jnp.arctanh({0})",
        np.arctanh,
        (-0.95, 0.95),
        cpu="in_fp64(artanh, {0})",
        tpu="in_fp32(area_tangent, {0})",
    ),
    _unary("erf", "lax.erf({0})", _vector(math.erf), cpu="error_function({0})"),
    _unary(
        "erfc",
        "lax.erfc({0})",
        _vector(math.erfc),
        cpu="in_fp64(complement_of_erf, {0})",
        tpu="in_fp32(complement_of_erf, {0})",
    ),
    _unary(
        "lgamma",
        "lax.lgamma({0})",
        _vector(math.lgamma),
        (0.1, 8.0),
        cpu="in_fp64(log_of_gamma, {0})",
        tpu="in_fp32(log_of_gamma, {0})",
    ),
    _unary("sigmoid", "jax.nn.sigmoid({0})", _sigmoid, doc="1 / (1 + exp(-x))"),
    _unary("floor", "jnp.floor({0})", np.floor),
    _unary("ceil", "jnp.ceil({0})", np.ceil),
    _unary("trunc", "jnp.trunc({0})", np.trunc, doc="round towards zero"),
    _unary("rint", "lax.round({0}, lax.RoundingMethod.TO_NEAREST_EVEN)", np.rint, doc="round to nearest, ties to even"),
    _unary(
        "round",
        "lax.round({0}, lax.RoundingMethod.AWAY_FROM_ZERO)",
        lambda x: np.copysign(np.floor(np.abs(x) + np.asarray(0.5, x.dtype)), x).astype(x.dtype),
        doc="round to nearest, ties away from zero",
    ),
    Row("abs", "unary", "jnp.abs({0})", accepts="number", doc="absolute value"),
    Row(
        "atan2",
        "binary",
        "jnp.arctan2({0}, {1})",
        accepts="float",
        targets={"tpu": "in_fp32(jnp.arctan2, {0}, {1})"},
        reference=np.arctan2,
        doc="angle of (x, y)",
    ),
    Row(
        "pow",
        "binary",
        "jnp.power({0}, {1})",
        accepts="float",
        reference=np.power,
        domain=(0.1, 3.0),
        doc="power of floats",
    ),
    Row("hypot", "binary", "jnp.hypot({0}, {1})", accepts="float", reference=np.hypot, doc="length of (x, y)"),
    Row(
        "copysign",
        "binary",
        "jnp.copysign({0}, {1})",
        accepts="float",
        targets={"tpu": "in_fp32(jnp.copysign, {0}, {1})"},
        reference=np.copysign,
        doc="x with the sign of y",
    ),
    _test("isnan", "jnp.isnan({0})", np.isnan, "whether x is NaN"),
    _test("isinf", "jnp.isinf({0})", np.isinf, "whether x is infinite"),
    _test("isfinite", "jnp.isfinite({0})", np.isfinite, "whether x is finite", "jnp.abs({0}) < jnp.inf"),
    _test(
        "signbit",
        "jnp.signbit({0})",
        np.signbit,
        "whether the sign bit is set",
        "lax.bitcast_convert_type({0}.astype(jnp.float32), jnp.int32) < 0",
    ),
    Row(
        "popc",
        "unary",
        "lax.population_count({0}).astype(jnp.int32)",
        accepts="int",
        result="int32",
        reference=_popc,
        doc="number of bits set",
    ),
    Row(
        "clz",
        "unary",
        "lax.clz({0}).astype(jnp.int32)",
        accepts="int",
        result="int32",
        reference=_clz,
        doc="leading zeros",
    ),
)
