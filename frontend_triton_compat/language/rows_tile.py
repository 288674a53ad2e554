"""Rows of reductions, scans and of calls that move elements about.

Law: a reduction's operand has the result's dtype already (argmax and argmin give int32); ``max``/``min`` ignore NaN
as ``maximum``/``minimum`` do. Calls take their static arguments from the op's attributes, by name, in braces.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frontend_triton_compat.language.table import Row, register


def _fmax(x: Any, axis: int) -> Any:
    return np.fmax.reduce(x, axis=axis) if np.asarray(x).dtype.kind != "b" else np.max(x, axis=axis)


def _fmin(x: Any, axis: int) -> Any:
    return np.fmin.reduce(x, axis=axis) if np.asarray(x).dtype.kind != "b" else np.min(x, axis=axis)


def _histogram(x: Any, num_bins: int) -> Any:
    x = np.asarray(x)
    return np.bincount(x[(x >= 0) & (x < num_bins)].astype(np.int64), minlength=num_bins).astype(np.int32)


def _histogram_masked(x: Any, mask: Any, num_bins: int) -> Any:
    return _histogram(np.asarray(x)[np.asarray(mask)], num_bins)


# The plain reduction carries NaN and is by far the fastest on a CPU; only where it met a NaN is the reduction done
# again in the form that ignores them (NaN is that form's neutral element).
_FAST = (
    "(lambda x, m: lax.cond(jnp.any(jnp.isnan(m)),"
    " lambda: lax.reduce(x, jnp.array(jnp.nan, x.dtype),"
    " lambda a, b: jnp.where((a {order} b) | (b != b), a, b), ({{axis}},)),"
    " lambda: m))({{0}}, jnp.{name}({{0}}, axis={{axis}}))"
)
# Without a branch: NaN is left out first, and a row of nothing but NaN is put back.
_PLAIN = (
    "(lambda x, m: jnp.where(m == {edge}, jnp.{name}(x, axis={{axis}}), m))"
    "({{0}}, jnp.{name}(jnp.where({{0}} != {{0}}, {edge}, {{0}}), axis={{axis}}))"
)
_NANMAX, _NANMIN = _FAST.format(name="max", order=">"), _FAST.format(name="min", order="<")
_NANMAX_PLAIN, _NANMIN_PLAIN = _PLAIN.format(name="max", edge="-jnp.inf"), _PLAIN.format(name="min", edge="jnp.inf")

register(
    Row(
        "sum",
        "reduce",
        "jnp.sum({0}, axis={axis}, dtype={0}.dtype)",
        reference=lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype),
        identity="jnp.zeros((), {dtype})",
        doc="sum",
    ),
    Row(
        "prod",
        "reduce",
        "jnp.prod({0}, axis={axis}, dtype={0}.dtype)",
        reference=lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype),
        identity="jnp.ones((), {dtype})",
        doc="product",
    ),
    Row(
        "max",
        "reduce",
        _NANMAX,
        code_by_kind={k: "jnp.max({0}, axis={axis})" for k in ("int", "uint", "bool")},
        targets={"tpu:float": _NANMAX_PLAIN, "gpu:float": _NANMAX_PLAIN},
        reference=_fmax,
        identity="jnp.array(-jnp.inf if jnp.issubdtype({dtype}, jnp.floating) else jnp.iinfo({dtype}).min, {dtype})",
        doc="maximum, NaN ignored",
    ),
    Row(
        "min",
        "reduce",
        _NANMIN,
        code_by_kind={k: "jnp.min({0}, axis={axis})" for k in ("int", "uint", "bool")},
        targets={"tpu:float": _NANMIN_PLAIN, "gpu:float": _NANMIN_PLAIN},
        reference=_fmin,
        identity="jnp.array(jnp.inf if jnp.issubdtype({dtype}, jnp.floating) else jnp.iinfo({dtype}).max, {dtype})",
        doc="minimum, NaN ignored",
    ),
    Row(
        "max_nan",
        "reduce",
        "jnp.max({0}, axis={axis})",
        reference=lambda x, axis: np.max(x, axis=axis),
        identity="jnp.array(-jnp.inf, {dtype})",
        doc="maximum, NaN carried",
    ),
    Row(
        "min_nan",
        "reduce",
        "jnp.min({0}, axis={axis})",
        reference=lambda x, axis: np.min(x, axis=axis),
        identity="jnp.array(jnp.inf, {dtype})",
        doc="minimum, NaN carried",
    ),
    Row(
        "argmax",
        "reduce",
        "jnp.argmax({0}, axis={axis}).astype(jnp.int32)",
        result="int32",
        reference=lambda x, axis: np.argmax(x, axis=axis).astype(np.int32),
        doc="index of the first maximum",
    ),
    Row(
        "argmin",
        "reduce",
        "jnp.argmin({0}, axis={axis}).astype(jnp.int32)",
        result="int32",
        reference=lambda x, axis: np.argmin(x, axis=axis).astype(np.int32),
        doc="index of the first minimum",
    ),
    Row(
        "xor_sum",
        "reduce",
        "jnp.bitwise_xor.reduce({0}, axis={axis})",
        accepts="int",
        reference=lambda x, axis: np.bitwise_xor.reduce(x, axis=axis),
        identity="jnp.zeros((), {dtype})",
        doc="exclusive or of all elements",
    ),
    Row(
        "or_sum",
        "reduce",
        "jnp.bitwise_or.reduce({0}, axis={axis})",
        accepts="int",
        reference=lambda x, axis: np.bitwise_or.reduce(x, axis=axis),
        identity="jnp.zeros((), {dtype})",
        doc="bitwise or of all elements",
    ),
    Row(
        "and_sum",
        "reduce",
        "jnp.bitwise_and.reduce({0}, axis={axis})",
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
