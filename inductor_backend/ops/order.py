"""Sorting, selection by rank, and search in sorted sequences.

Input: arrays. Output: values in torch's order (NaN is the largest, -0 equals 0) and int64 positions. Law: equal
elements stay in their order; where eager leaves it open and repeats are likely, the row is `tied`: ATen's positions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from inductor_backend.ops import library, whole
from inductor_backend.ops.table import row

lax = jax.lax


def ordered(x):
    """An integer key of the same width, ordered as torch orders `x`: -0 equals 0, NaN is the largest."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(jnp.int32) if x.dtype == jnp.bool_ else x
    width = x.dtype.itemsize * 8
    signed = {16: jnp.int16, 32: jnp.int32, 64: jnp.int64}[width]
    x = jnp.where(x == 0, jnp.zeros_like(x), x)
    bits = lax.bitcast_convert_type(x, signed)
    top = jnp.iinfo(signed).max
    key = jnp.where(bits < 0, bits ^ top, bits)
    return jnp.where(x != x, jnp.asarray(top, signed), key)


def argsort(x, axis: int, descending: bool):
    """The stable sorting permutation along an axis, as int64."""
    key = ordered(x)
    if descending:
        key = ~key
    position = lax.broadcasted_iota(jnp.int64, x.shape, axis)
    if key.dtype.itemsize <= 4 and key.dtype != jnp.uint32 and position.dtype == jnp.int64:
        # In 64 bits key and index are one number: sorting one operand is four times faster than a stable pair.
        packed = (key.astype(jnp.int64) << 32) | position
        return jnp.sort(packed, axis) & 0xFFFFFFFF
    return lax.sort((key, position), dimension=axis, is_stable=True, num_keys=1)[1]


def _sort(x, dim, descending):
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    position = argsort(x, axis, descending)
    return jnp.take_along_axis(x, position, axis, mode="promise_in_bounds"), position


@row("aten.sort.default", library=library.wide_keys, tied=1, grows=whole.ELEMENTS_AND_POSITIONS)
def sort(x, dim=-1, descending=False):
    """Sorted values and their indices; always stable."""
    return _sort(x, dim, descending)


@row("aten.sort.stable", library=library.wide_keys, tied=1, grows=whole.ELEMENTS_AND_POSITIONS)
def sort_stable(x, stable=None, dim=-1, descending=False):
    """Sorted values and their indices."""
    return _sort(x, dim, descending)


@row("aten.argsort.default", "aten.argsort.stable", tied=0, grows=whole.POSITIONS)
def argsort_row(x, *args, dim=-1, descending=False, stable=False):
    """The sorting permutation."""
    return _sort(x, dim, descending)[1]


@row("aten.topk.default", tied=1, grows=whole.ELEMENTS_AND_POSITIONS)
def topk(x, k, dim=-1, largest=True, sorted=True):
    """The k largest or smallest, in order, and their indices."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    moved = jnp.moveaxis(x, axis, -1)
    if largest and x.dtype == jnp.float32:
        clean = jnp.where(moved != moved, jnp.nan, moved)
        position = lax.top_k(clean, k)[1].astype(jnp.int64)
    else:
        position = argsort(moved, moved.ndim - 1, largest)[..., :k]
    values = jnp.take_along_axis(moved, position, -1, mode="promise_in_bounds")
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(position, -1, axis)


@row("aten.kthvalue.default", library=library.an_element(12), tied=1, grows=whole.ELEMENTS_AND_POSITIONS)
def kthvalue(x, k, dim=-1, keepdim=False):
    """The k-th smallest, and where it is."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    values, position = _sort(x, axis, False)
    pick = lambda a: lax.slice_in_dim(a, k - 1, k, 1, axis)
    values, position = pick(values), pick(position)
    return (values, position) if keepdim else (jnp.squeeze(values, axis), jnp.squeeze(position, axis))


def _insertion(sequence, values, right: bool):
    """Where values would be inserted into a sorted sequence, by the comparisons of eager's binary search.

    Nothing is larger than NaN there, wherever it stands, and what is NaN goes to the end.
    """
    low, high = jnp.zeros(values.shape, jnp.int64), jnp.full(values.shape, sequence.shape[0], jnp.int64)
    for _ in range(sequence.shape[0].bit_length()):
        middle = (low + high) // 2
        pivot = jnp.take(sequence, middle, mode="clip")
        after = ~(pivot > values if right else pivot >= values) & (low < high)
        low, high = jnp.where(after, middle + 1, low), jnp.where(after, high, middle)
    return low


@row(
    "aten.searchsorted.Tensor",
    supports=lambda s, v, **kw: s.dim() == 1 and kw.get("sorter") is None,
    grows=whole.INSERTIONS,
)
def searchsorted(sequence, values, out_int32=False, right=False, side=None, sorter=None, out: Any = None):
    """Where values would be inserted to keep the order."""
    return _insertion(sequence, values, right or side == "right").astype(out.dtype)


@row("aten.bucketize.Tensor", grows=whole.BUCKETS)
def bucketize(values, boundaries, out_int32=False, right=False, out: Any = None):
    """The bucket of every value."""
    return _insertion(boundaries, values, right).astype(out.dtype)


def _ranked(x, axis: int, rank, keepdim: bool):
    """The element of a rank along an axis, and its position; `rank` may differ from row to row."""
    position = argsort(x, axis, False)
    rank = jnp.broadcast_to(rank, tuple(1 if d == axis else n for d, n in enumerate(x.shape)))
    where = jnp.take_along_axis(position, rank, axis)
    value = jnp.take_along_axis(x, where, axis)
    return (value, where) if keepdim else (jnp.squeeze(value, axis), jnp.squeeze(where, axis))


def _median(x, dim, keepdim, skip_nan):
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    length = x.shape[axis]
    holes = jnp.sum(x != x, axis, keepdims=True)
    # NaN sorts last: skipped, the rank falls; otherwise the first NaN is the median.
    among = (length - holes - 1) // 2
    rank = jnp.maximum(among, 0) if skip_nan else jnp.where(holes > 0, length - holes, (length - 1) // 2)
    return _ranked(x, axis, rank, keepdim)


@row(
    "aten.median.dim",
    library=library.an_element(12),
    tied=1,
    supports=lambda x, dim, keepdim=False: x.dim() == 0 or x.shape[dim] > 0,
    grows=whole.ELEMENTS_AND_POSITIONS,
)
def median_dim(x, dim, keepdim=False):
    """The lower median along a dimension, and where it is; NaN wins."""
    return _median(x, dim, keepdim, False)


@row(
    "aten.nanmedian.dim",
    library=library.an_element(12),
    tied=1,
    supports=lambda x, dim, keepdim=False: x.dim() == 0 or x.shape[dim] > 0,
    grows=whole.ELEMENTS_AND_POSITIONS,
)
def nanmedian_dim(x, dim, keepdim=False):
    """The lower median of what isn't NaN along a dimension, and where it is."""
    return _median(x, dim, keepdim, True)


@row("aten.median.default", supports=lambda x: x.numel() > 0, grows=whole.ELEMENTS)
def median(x):
    """The lower median of everything; NaN wins."""
    return _median(x.reshape(-1), 0, False, False)[0]


@row("aten.nanmedian.default", supports=lambda x: x.numel() > 0, grows=whole.ELEMENTS)
def nanmedian(x):
    """The lower median of everything that isn't NaN."""
    return _median(x.reshape(-1), 0, False, True)[0]
