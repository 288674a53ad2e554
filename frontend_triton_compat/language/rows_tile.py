"""Rows of reductions, scans and of calls that move elements about.

Law: a reduction's code keeps the dimension, with size 1; its operand has the result's dtype already (argmax and argmin
give int32); ``max``/``min`` ignore NaN as ``maximum``/``minimum`` do. Calls take their static arguments from the op's
attributes, by name, in braces.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frontend_triton_compat.language.table import HELPERS, Row, register


def _fmax(x: Any, axis: int) -> Any:
    return np.fmax.reduce(x, axis=axis) if np.asarray(x).dtype.kind != "b" else np.max(x, axis=axis)


def _fmin(x: Any, axis: int) -> Any:
    return np.fmin.reduce(x, axis=axis) if np.asarray(x).dtype.kind != "b" else np.min(x, axis=axis)


def _histogram(x: Any, num_bins: int) -> Any:
    x = np.asarray(x)
    return np.bincount(x[(x >= 0) & (x < num_bins)].astype(np.int64), minlength=num_bins).astype(np.int32)


def _histogram_masked(x: Any, mask: Any, num_bins: int) -> Any:
    return _histogram(np.asarray(x)[np.asarray(mask)], num_bins)


def _skipping_nan(name: str, edge: str, order: str) -> dict[str, str]:
    """Source of ``nanmax`` or ``nanmin`` per target: the reductions that skip NaN, as tl.max and tl.min do.

    On a CPU the plain reduction carries NaN and is by far the fastest; only where it met one is it done again in the
    form that skips them. A TPU has no cheap branch: NaN is left out first, and a row of nothing but NaN is put back.
    """
    branching = f'''
def nan{name}(x, axis):
    """The {name} of what is not NaN; the slow reduction runs only where the fast one met NaN."""
    found = jnp.{name}(x, axis=axis, keepdims=True)

    def skip_nan():
        pick = lambda a, b: jnp.where((a {order} b) | (b != b), a, b)
        return jnp.expand_dims(lax.reduce(x, jnp.array(jnp.nan, x.dtype), pick, (axis,)), axis)

    return lax.cond(jnp.any(found != found), skip_nan, lambda: found)
'''
    straight = f'''
def nan{name}(x, axis):
    """The {name} of what is not NaN."""
    found = jnp.{name}(jnp.where(x == x, x, {edge}), axis=axis, keepdims=True)
    return jnp.where(found == {edge}, jnp.{name}(x, axis=axis, keepdims=True), found)
'''
    return {"cpu": branching, "tpu": straight, "gpu": straight}


HELPERS["nanmax"] = _skipping_nan("max", "-jnp.inf", ">")
HELPERS["nanmin"] = _skipping_nan("min", "jnp.inf", "<")

register(
    Row(
        "sum",
        "reduce",
        "jnp.sum({0}, axis={axis}, keepdims=True)",
        code_by_kind={k: "jnp.sum({0}, axis={axis}, dtype={0}.dtype, keepdims=True)" for k in ("int", "uint", "bool")},
        reference=lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype),
        identity="jnp.zeros((), {dtype})",
        doc="sum",
    ),
    Row(
        "prod",
        "reduce",
        "jnp.prod({0}, axis={axis}, dtype={0}.dtype, keepdims=True)",
        reference=lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype),
        identity="jnp.ones((), {dtype})",
        doc="product",
    ),
    Row(
        "max",
        "reduce",
        "nanmax({0}, axis={axis})",
        code_by_kind={k: "jnp.max({0}, axis={axis}, keepdims=True)" for k in ("int", "uint", "bool")},
        reference=_fmax,
        identity="jnp.array(-jnp.inf if jnp.issubdtype({dtype}, jnp.floating) else jnp.iinfo({dtype}).min, {dtype})",
        doc="maximum, NaN ignored",
    ),
    Row(
        "min",
        "reduce",
        "nanmin({0}, axis={axis})",
        code_by_kind={k: "jnp.min({0}, axis={axis}, keepdims=True)" for k in ("int", "uint", "bool")},
        reference=_fmin,
        identity="jnp.array(jnp.inf if jnp.issubdtype({dtype}, jnp.floating) else jnp.iinfo({dtype}).max, {dtype})",
        doc="minimum, NaN ignored",
    ),
    Row(
        "max_nan",
        "reduce",
        "jnp.max({0}, axis={axis}, keepdims=True)",
        reference=lambda x, axis: np.max(x, axis=axis),
        identity="jnp.array(-jnp.inf, {dtype})",
        doc="maximum, NaN carried",
    ),
    Row(
        "min_nan",
        "reduce",
        "jnp.min({0}, axis={axis}, keepdims=True)",
        reference=lambda x, axis: np.min(x, axis=axis),
        identity="jnp.array(jnp.inf, {dtype})",
        doc="minimum, NaN carried",
    ),
    Row(
        "argmax",
        "reduce",
        "jnp.argmax({0}, axis={axis}, keepdims=True).astype(jnp.int32)",
        result="int32",
        reference=lambda x, axis: np.argmax(x, axis=axis).astype(np.int32),
        doc="index of the first maximum",
    ),
    Row(
        "argmin",
        "reduce",
        "jnp.argmin({0}, axis={axis}, keepdims=True).astype(jnp.int32)",
        result="int32",
        reference=lambda x, axis: np.argmin(x, axis=axis).astype(np.int32),
        doc="index of the first minimum",
    ),
    Row(
        "xor_sum",
        "reduce",
        "jnp.bitwise_xor.reduce({0}, axis={axis}, keepdims=True)",
        accepts="int",
        reference=lambda x, axis: np.bitwise_xor.reduce(x, axis=axis),
        identity="jnp.zeros((), {dtype})",
        doc="exclusive or of all elements",
    ),
    Row(
        "or_sum",
        "reduce",
        "jnp.bitwise_or.reduce({0}, axis={axis}, keepdims=True)",
        accepts="int",
        reference=lambda x, axis: np.bitwise_or.reduce(x, axis=axis),
        identity="jnp.zeros((), {dtype})",
        doc="bitwise or of all elements",
    ),
    Row(
        "and_sum",
        "reduce",
        "jnp.bitwise_and.reduce({0}, axis={axis}, keepdims=True)",
        accepts="int",
        reference=lambda x, axis: np.bitwise_and.reduce(x, axis=axis),
        identity="~jnp.zeros((), {dtype})",
        doc="bitwise and of all elements",
    ),
)


def _scan(np_fn: Any) -> Any:
    def apply(x: Any, axis: int, reverse: bool) -> Any:
        x = np.flip(x, axis) if reverse else x
        y = np_fn(x, axis)
        return np.flip(y, axis) if reverse else y

    return apply


register(
    Row(
        "cumsum",
        "scan",
        "(jnp.flip(jnp.cumsum(jnp.flip({0}, {axis}), {axis}, dtype={0}.dtype), {axis}) if {reverse}"
        " else jnp.cumsum({0}, {axis}, dtype={0}.dtype))",
        reference=_scan(lambda x, axis: np.cumsum(x, axis, dtype=x.dtype)),
        doc="running sum",
    ),
    Row(
        "cumprod",
        "scan",
        "(jnp.flip(jnp.cumprod(jnp.flip({0}, {axis}), {axis}, dtype={0}.dtype), {axis}) if {reverse}"
        " else jnp.cumprod({0}, {axis}, dtype={0}.dtype))",
        reference=_scan(lambda x, axis: np.cumprod(x, axis, dtype=x.dtype)),
        doc="running product",
    ),
    Row(
        "cummax",
        "scan",
        "lax.cummax({0}, {axis}, {reverse})",
        reference=_scan(np.maximum.accumulate),
        doc="running maximum",
    ),
    Row(
        "cummin",
        "scan",
        "lax.cummin({0}, {axis}, {reverse})",
        reference=_scan(np.minimum.accumulate),
        doc="running minimum",
    ),
    Row(
        "join",
        "call",
        "jnp.stack([{0}, {1}], axis=-1)",
        reference=lambda a, b: np.stack([a, b], axis=-1),
        doc="two tiles side by side in a new last dimension",
    ),
    Row(
        "split",
        "call",
        "({0}[..., 0], {0}[..., 1])",
        reference=lambda a: (a[..., 0], a[..., 1]),
        doc="the two halves of a last dimension of size 2",
    ),
    Row(
        "cat",
        "call",
        "jnp.concatenate([{0}, {1}], axis={axis})",
        reference=lambda a, b, axis: np.concatenate([a, b], axis=axis),
        doc="two tiles one after the other",
    ),
    Row(
        "flip",
        "call",
        "jnp.flip({0}, {axis})",
        reference=lambda a, axis: np.flip(a, axis),
        doc="elements in reverse order",
    ),
    Row(
        "sort",
        "call",
        "(jnp.flip(jnp.sort({0}, axis={axis}), {axis}) if {descending} else jnp.sort({0}, axis={axis}))",
        reference=lambda a, axis, descending: np.flip(np.sort(a, axis), axis) if descending else np.sort(a, axis),
        doc="elements in order",
    ),
    Row(
        "gather",
        "call",
        "jnp.take_along_axis({0}, {1}, axis={axis})",
        reference=lambda a, i, axis: np.take_along_axis(a, i.astype(np.int64), axis),
        doc="elements picked by index along an axis",
    ),
    Row(
        "histogram",
        "call",
        "jnp.sum({0}[:, None] == jnp.arange({num_bins}, dtype={0}.dtype), axis=0, dtype=jnp.int32)",
        accepts="int",
        result="int32",
        reference=_histogram,
        doc="how often each bin number occurs",
    ),
    Row(
        "histogram_masked",
        "call",
        "jnp.sum(({0}[:, None] == jnp.arange({num_bins}, dtype={0}.dtype)) & {1}[:, None], axis=0, dtype=jnp.int32)",
        accepts="int",
        result="int32",
        reference=_histogram_masked,
        doc="how often each bin number occurs where the mask is true",
    ),
)
