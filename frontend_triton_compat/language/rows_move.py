"""Rows of calls: what moves, orders, picks and counts elements of whole tiles.

Law: the code works on the tiles of one program, all dimensions whole; static arguments come from the op, by
name, in braces.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frontend_triton_compat.language import functions_tiles as _functions  # noqa: F401 - what the rows call
from frontend_triton_compat.language.table import HELPERS, Row, register


def _histogram(x: Any, num_bins: int) -> Any:
    x = np.asarray(x)
    return np.bincount(x[(x >= 0) & (x < num_bins)].astype(np.int64), minlength=num_bins).astype(np.int32)


def _histogram_masked(x: Any, mask: Any, num_bins: int) -> Any:
    return _histogram(np.asarray(x)[np.asarray(mask)], num_bins)


HELPERS.setdefault("in_order", {})["cpu"] = '''
def in_order(x, axis, descending):
    """Elements in order. Floats are sorted as integers of the same order, several times faster; NaN is the largest."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return ~jnp.sort(~x, axis=axis) if descending else jnp.sort(x, axis=axis)
    bits = jnp.dtype(f"int{x.dtype.itemsize * 8}")
    top = jnp.iinfo(bits).max
    raw = lax.bitcast_convert_type(x, bits)
    key = jnp.where(x != x, top, jnp.where(raw < 0, raw ^ top, raw))
    key = ~jnp.sort(~key, axis=axis) if descending else jnp.sort(key, axis=axis)
    return lax.bitcast_convert_type(jnp.where(key < 0, key ^ top, key), x.dtype)
'''
HELPERS.setdefault("largest", {})["cpu"] = '''
def largest(x, k):
    """The k largest elements of the last dimension, in order."""
    if x.dtype.itemsize * 8 <= (32 if jnp.issubdtype(x.dtype, jnp.floating) else 16):  # exact in 32 bits
        return lax.top_k(jnp.where(x != x, jnp.nan, x.astype(jnp.float32)), k)[0].astype(x.dtype)
    if x.dtype in (jnp.int32, jnp.uint32):  # top_k looks at the bits of a float, and so they may be any
        key = lax.bitcast_convert_type(x if x.dtype == jnp.int32 else x ^ (1 << 31), jnp.int32)
        ordered = lambda i: jnp.where(i < 0, i ^ (2**31 - 1), i)
        found = lax.top_k(lax.bitcast_convert_type(ordered(key), jnp.float32), k)[0]
        found = lax.bitcast_convert_type(ordered(lax.bitcast_convert_type(found, jnp.int32)), x.dtype)
        return found if x.dtype == jnp.int32 else found ^ (1 << 31)
    return in_order(x, -1, True)[..., :k]
'''
HELPERS.setdefault("merge_bitonic", {})["cpu"] = '''
def merge_bitonic(x, descending):
    """Compare and swap at distances n / 2, n / 4, ..., 1 along the last dimension."""
    distance = x.shape[-1] // 2
    while distance:
        pairs = x.reshape(*x.shape[:-1], -1, 2, distance)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        swap = a < b if descending else a > b
        x = jnp.stack([jnp.where(swap, b, a), jnp.where(swap, a, b)], -2).reshape(x.shape)
        distance //= 2
    return x
'''
HELPERS.setdefault("count_bins", {})["cpu"] = '''
def count_bins(x, mask, bins):
    """How often each number below `bins` occurs where the mask is true."""
    x = x.astype(jnp.int32) if x.dtype.itemsize < 4 else x
    x = jnp.where((x >= 0) & (x < bins) & mask, x, bins)
    return jnp.zeros(bins, jnp.int32).at[x].add(1, mode="drop")
'''


def _bitonic_merge(a: Any, descending: bool) -> Any:
    distance = a.shape[-1] // 2
    while distance:
        pairs = a.reshape(*a.shape[:-1], -1, 2, distance)
        low, high = np.minimum(pairs[..., 0, :], pairs[..., 1, :]), np.maximum(pairs[..., 0, :], pairs[..., 1, :])
        a = np.stack([high, low] if descending else [low, high], -2).reshape(a.shape)
        distance //= 2
    return a


register(
    Row(
        "join",
        "call",
        "jnp.stack([{0}, {1}], axis=-1)",
        targets={"tpu": "in_32_bits(lambda *tiles: jnp.stack(tiles, axis=-1), {0}, {1})"},
        reference=lambda a, b: np.stack([a, b], axis=-1),
        doc="two tiles side by side in a new last dimension",
    ),
    Row(
        "split",
        "call",
        "({0}[..., 0], {0}[..., 1])",
        targets={"tpu": "in_32_bits(lambda x: (x[..., 0], x[..., 1]), {0})"},
        reference=lambda a: (a[..., 0], a[..., 1]),
        doc="the two halves of a last dimension of size 2",
    ),
    Row(
        "cat",
        "call",
        "jnp.concatenate([{0}, {1}], axis={axis})",
        targets={"tpu": "in_32_bits(lambda *tiles: jnp.concatenate(tiles, axis={axis}), {0}, {1})"},
        reference=lambda a, b, axis: np.concatenate([a, b], axis=axis),
        doc="two tiles one after the other",
    ),
    Row(
        "flip",
        "call",
        "jnp.flip({0}, {axis})",
        targets={"tpu": "in_32_bits(lambda x: backwards(x, {axis}), {0})"},
        reference=lambda a, axis: np.flip(a, axis),
        doc="elements in reverse order",
    ),
    Row(
        "sort",
        "call",
        "(jnp.flip(jnp.sort({0}, axis={axis}), {axis}) if {descending} else jnp.sort({0}, axis={axis}))",
        targets={t: "in_order({0}, {axis}, {descending})" for t in ("cpu", "tpu")},
        reference=lambda a, axis, descending: np.flip(np.sort(a, axis), axis) if descending else np.sort(a, axis),
        doc="elements in order; NaN is the largest",
    ),
    Row(
        "topk",
        "call",
        "jnp.flip(jnp.sort({0}, axis=-1), -1)[..., :{k}]",
        targets={t: "largest({0}, {k})" for t in ("cpu", "tpu")},
        reference=lambda a, k: np.flip(np.sort(a, -1), -1)[..., :k],
        doc="the k largest elements of the last dimension, in order; NaN is the largest",
    ),
    Row(
        "bitonic_merge",
        "call",
        "merge_bitonic({0}, {descending})",
        targets={"gpu": "!target-not-here"},
        reference=_bitonic_merge,
        doc="two halves of the last dimension, ordered in opposite directions, as one in order",
    ),
    Row(
        "gather",
        "call",
        "jnp.take_along_axis({0}, {1}, axis={axis}, mode='clip')",
        targets={"tpu": "in_32_bits(lambda x: picked(x, {1}, {axis}), {0})"},
        reference=lambda a, i, axis: np.take_along_axis(a, i.astype(np.int64), axis),
        doc="elements picked by index along an axis",
    ),
    Row(
        "histogram",
        "call",
        "jnp.sum({0}.astype(jnp.int32)[:, None] == jnp.arange({num_bins}), axis=0, dtype=jnp.int32)",
        targets={t: "count_bins({0}, True, {num_bins})" for t in ("cpu", "tpu")},
        accepts="int",
        result="int32",
        reference=_histogram,
        doc="how often each bin number occurs",
    ),
    Row(
        "histogram_masked",
        "call",
        "jnp.sum(({0}.astype(jnp.int32)[:, None] == jnp.arange({num_bins})) & {1}[:, None], axis=0, dtype=jnp.int32)",
        targets={t: "count_bins({0}, {1}, {num_bins})" for t in ("cpu", "tpu")},
        accepts="int",
        result="int32",
        reference=_histogram_masked,
        doc="how often each bin number occurs where the mask is true",
    ),
)
