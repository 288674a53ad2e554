"""Rows of reductions.

Law: a reduction's code keeps the dimension, with size 1; its operand has the result's dtype already (argmax and argmin
give int32); ``max``/``min`` ignore NaN as ``maximum``/``minimum`` do, their ``_nan`` variants carry it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frontend_triton_compat.language import functions_tiles as _functions  # noqa: F401 - what the rows call
from frontend_triton_compat.language.table import HELPERS, Row, register


def _fmax(x: Any, axis: int) -> Any:
    return np.fmax.reduce(x, axis=axis) if np.asarray(x).dtype.kind != "b" else np.max(x, axis=axis)


def _fmin(x: Any, axis: int) -> Any:
    return np.fmin.reduce(x, axis=axis) if np.asarray(x).dtype.kind != "b" else np.min(x, axis=axis)


# XLA's own maximum over an axis of floats loses NaN on a CPU, and numbers next to it: its vectors hold the second of
# two operands when one of them is NaN. So every reduction of floats here says what it picks.
def _picking(name: str, edge: str, order: str, carry: bool) -> dict[str, str]:
    """Source of the extreme element of an axis, per target: NaN is left out, as by tl.max, or carried."""
    doc = f"The {name}, or NaN where there is one." if carry else f"The {name} of what is not NaN."
    fn, unordered = (f"{name}_or_nan", "a != a") if carry else (f"nan{name}", "b != b")
    picking = f'''
def {fn}(x, axis):
    """{doc}"""
    pick = lambda a, b: jnp.where((a {order} b) | ({unordered}), a, b)
    return jnp.expand_dims(lax.reduce(x, jnp.array({edge if carry else "jnp.nan"}, x.dtype), pick, (axis,)), axis)
'''
    straight = f'''
def {fn}(x, axis):
    """{doc}"""
    if x.dtype.itemsize < 4:
        return {fn}(x.astype(jnp.float32), axis).astype(x.dtype)
    found = jnp.{name}(jnp.where(x == x, x, {edge}), axis=axis, keepdims=True)
    lost = jnp.{"max" if carry else "min"}(jnp.where(x == x, 0.0, 1.0), axis=axis, keepdims=True)
    return jnp.where(lost > 0, jnp.nan, found)
'''
    return {"cpu": picking, "tpu": straight, "gpu": straight}


def _first(name: str, compare: str) -> str:
    """Source of the index of the first extreme element; NaN counts as extreme.

    The index of a maximum is slow to find and a maximum is not: the blocks' maxima say in which block to look.
    """
    return f'''
def first_{name}(x, axis):
    """Index of the first {name} element or NaN: of the block that holds it, then inside of that block."""
    n = x.shape[axis]
    size = next((d for d in range(128, 15, -1) if n % d == 0), None)
    if n < 128 or size is None or x.dtype == jnp.bool_:
        return jnp.arg{compare}(x, axis=axis, keepdims=True).astype(jnp.int32)
    blocks = x.reshape(*x.shape[:axis], n // size, size, *x.shape[axis + 1 :])
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    best = {compare}_or_nan(blocks, axis=axis + 1) if floats else jnp.{compare}(blocks, axis=axis + 1, keepdims=True)
    which = jnp.arg{compare}(jnp.squeeze(best, axis + 1), axis=axis, keepdims=True)
    block = jnp.take_along_axis(blocks, jnp.expand_dims(which, axis + 1), axis=axis, mode="clip")
    return (which * size + jnp.arg{compare}(block, axis=axis + 1)).astype(jnp.int32)
'''


HELPERS["first_largest"]["cpu"] = _first("largest", "max")
HELPERS["first_smallest"]["cpu"] = _first("smallest", "min")
HELPERS["nanmax"] = _picking("max", "-jnp.inf", ">", carry=False)
HELPERS["nanmin"] = _picking("min", "jnp.inf", "<", carry=False)
HELPERS["max_or_nan"] = _picking("max", "-jnp.inf", ">", carry=True)
HELPERS["min_or_nan"] = _picking("min", "jnp.inf", "<", carry=True)

register(
    Row(
        "sum",
        "reduce",
        "jnp.sum({0}, axis={axis}, keepdims=True)",
        code_by_kind={k: "jnp.sum({0}, axis={axis}, dtype={0}.dtype, keepdims=True)" for k in ("int", "uint", "bool")},
        targets={"tpu:uint": "integer_sum({0}, {axis})"},
        reference=lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype),
        identity="jnp.zeros((), {dtype})",
        doc="sum",
    ),
    Row(
        "prod",
        "reduce",
        "jnp.prod({0}, axis={axis}, dtype={0}.dtype, keepdims=True)",
        targets={
            "tpu": "folded(lambda a, b: a * b, {0}, {axis})",
            "tpu:bool": "jnp.all({0}, axis={axis}, keepdims=True)",
        },
        reference=lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype),
        identity="jnp.ones((), {dtype})",
        doc="product",
    ),
    Row(
        "max",
        "reduce",
        "nanmax({0}, axis={axis})",
        code_by_kind={k: "jnp.max({0}, axis={axis}, keepdims=True)" for k in ("int", "uint", "bool")},
        targets={
            "tpu:uint": "unsigned_extreme(jnp.max, {0}, {axis})",
            "tpu:bool": "jnp.any({0}, axis={axis}, keepdims=True)",
        },
        reference=_fmax,
        identity="jnp.array(-jnp.inf if jnp.issubdtype({dtype}, jnp.floating) else jnp.iinfo({dtype}).min, {dtype})",
        doc="maximum, NaN ignored",
    ),
    Row(
        "min",
        "reduce",
        "nanmin({0}, axis={axis})",
        code_by_kind={k: "jnp.min({0}, axis={axis}, keepdims=True)" for k in ("int", "uint", "bool")},
        targets={
            "tpu:uint": "unsigned_extreme(jnp.min, {0}, {axis})",
            "tpu:bool": "jnp.all({0}, axis={axis}, keepdims=True)",
        },
        reference=_fmin,
        identity="jnp.array(jnp.inf if jnp.issubdtype({dtype}, jnp.floating) else jnp.iinfo({dtype}).max, {dtype})",
        doc="minimum, NaN ignored",
    ),
    Row(
        "max_nan",
        "reduce",
        "max_or_nan({0}, axis={axis})",
        code_by_kind={k: "jnp.max({0}, axis={axis}, keepdims=True)" for k in ("int", "uint", "bool")},
        targets={
            "tpu:uint": "unsigned_extreme(jnp.max, {0}, {axis})",
            "tpu:bool": "jnp.any({0}, axis={axis}, keepdims=True)",
        },
        reference=lambda x, axis: np.max(x, axis=axis),
        identity="jnp.array(-jnp.inf, {dtype})",
        doc="maximum, NaN carried",
    ),
    Row(
        "min_nan",
        "reduce",
        "min_or_nan({0}, axis={axis})",
        code_by_kind={k: "jnp.min({0}, axis={axis}, keepdims=True)" for k in ("int", "uint", "bool")},
        targets={
            "tpu:uint": "unsigned_extreme(jnp.min, {0}, {axis})",
            "tpu:bool": "jnp.all({0}, axis={axis}, keepdims=True)",
        },
        reference=lambda x, axis: np.min(x, axis=axis),
        identity="jnp.array(jnp.inf, {dtype})",
        doc="minimum, NaN carried",
    ),
    Row(
        "argmax",
        "reduce",
        "jnp.argmax({0}, axis={axis}, keepdims=True).astype(jnp.int32)",
        targets={
            "cpu": "first_largest({0}, axis={axis})",
            "tpu": "first_largest({0}, axis={axis})",
        },
        result="int32",
        reference=lambda x, axis: np.argmax(x, axis=axis).astype(np.int32),
        doc="index of the first maximum; of the first NaN, if there is one",
    ),
    Row(
        "argmin",
        "reduce",
        "jnp.argmin({0}, axis={axis}, keepdims=True).astype(jnp.int32)",
        targets={
            "cpu": "first_smallest({0}, axis={axis})",
            "tpu": "first_smallest({0}, axis={axis})",
        },
        result="int32",
        reference=lambda x, axis: np.argmin(x, axis=axis).astype(np.int32),
        doc="index of the first minimum; of the first NaN, if there is one",
    ),
    Row(
        "xor_sum",
        "reduce",
        "jnp.bitwise_xor.reduce({0}, axis={axis}, keepdims=True)",
        accepts="int",
        targets={
            "tpu": "folded(lambda a, b: a ^ b, {0}, {axis})",
            "tpu:bool": "integer_sum({0}.astype(jnp.int32), {axis}) % 2 != 0",
        },
        reference=lambda x, axis: np.bitwise_xor.reduce(x, axis=axis),
        identity="jnp.zeros((), {dtype})",
        doc="exclusive or of all elements",
    ),
    Row(
        "or_sum",
        "reduce",
        "jnp.bitwise_or.reduce({0}, axis={axis}, keepdims=True)",
        accepts="int",
        targets={
            "tpu": "folded(lambda a, b: a | b, {0}, {axis})",
            "tpu:bool": "jnp.any({0}, axis={axis}, keepdims=True)",
        },
        reference=lambda x, axis: np.bitwise_or.reduce(x, axis=axis),
        identity="jnp.zeros((), {dtype})",
        doc="bitwise or of all elements",
    ),
    Row(
        "and_sum",
        "reduce",
        "jnp.bitwise_and.reduce({0}, axis={axis}, keepdims=True)",
        accepts="int",
        targets={
            "tpu": "folded(lambda a, b: a & b, {0}, {axis})",
            "tpu:bool": "jnp.all({0}, axis={axis}, keepdims=True)",
        },
        reference=lambda x, axis: np.bitwise_and.reduce(x, axis=axis),
        identity="~jnp.zeros((), {dtype})",
        doc="bitwise and of all elements",
    ),
)
