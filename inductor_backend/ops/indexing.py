"""Gathers, scatters, sorting.

Input: arrays and int64 indices. Output: arrays. Law: negative indices count from the end where torch says so; the
runner refuses indices out of range (`bounds`); before it has looked, reads clamp them and writes drop them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from inductor_backend.ops.table import cast, row

lax = jax.lax


#: Operators whose third argument indexes the dimension that the second names.
_ALONG = lambda x, dim, index, *rest, **kw: [(index, dim, False)]


def _wrapped(index, length):
    return jnp.where(index < 0, index + length, index)


@row("aten.embedding.default", bounds=lambda w, i, *rest, **kw: [(i, 0, False)])
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """Rows of a table."""
    return weight.at[indices].get(mode="promise_in_bounds" if weight.shape[0] else "fill")


@row("aten.embedding_dense_backward.default")
def embedding_dense_backward(grad, indices, num_weights, padding_idx=-1, scale_grad_by_freq=False, out: Any = None):
    """Sum of the gradients of every row."""
    flat, rows = indices.reshape(-1), grad.reshape(-1, grad.shape[-1])
    if padding_idx >= 0:
        rows = jnp.where((flat == padding_idx)[:, None], 0, rows)
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, jnp.int64).at[flat].add(1, mode="drop")
        rows = rows / counts[flat][:, None].astype(rows.dtype)
    wide = jnp.float32 if grad.dtype in (jnp.bfloat16, jnp.float16) else grad.dtype
    table = jnp.zeros((num_weights, grad.shape[-1]), wide).at[flat].add(rows.astype(wide), mode="drop")
    return table.astype(out.dtype)


def _placed(indices, x):
    """Index arrays in numpy's form: negative ones wrapped, missing ones as full slices; bool masks are not ours."""
    placed = []
    for axis, index in enumerate(indices):
        placed.append(slice(None) if index is None else _wrapped(index, x.shape[axis]))
    return tuple(placed)


def _per_dimension(x, indices, *rest, **kw):
    return [(i, axis, True) for axis, i in enumerate(indices) if i is not None]


def _no_mask(x, indices, *rest, **kw):
    return all(i is None or i.dtype.is_signed for i in indices)


@row("aten._unsafe_index.Tensor", supports=_no_mask)
@row("aten.index.Tensor", supports=_no_mask, bounds=_per_dimension)
def index(x, indices):
    """Advanced indexing by integer arrays."""
    return x.at[_placed(indices, x)].get(mode="clip")


def _index_put(x, indices, values, accumulate=False):
    values = cast(values, x.dtype)
    target = x.at[_placed(indices, x)]
    return target.add(values, mode="drop") if accumulate else target.set(values, mode="drop")


@row("aten._unsafe_index_put.default", supports=_no_mask)
@row("aten.index_put.default", supports=_no_mask, bounds=_per_dimension)
def index_put(x, indices, values, accumulate=False):
    """`x` with indexed elements replaced or added to."""
    return _index_put(x, indices, values, accumulate)


@row("aten._unsafe_masked_index.default", supports=lambda x, mask, indices, fill: _no_mask(x, indices))
def masked_index(x, mask, indices, fill):
    """Advanced indexing where the mask is true, `fill` elsewhere."""
    clamped = [None if i is None else jnp.clip(i, -x.shape[a], x.shape[a] - 1) for a, i in enumerate(indices)]
    return jnp.where(mask, x.at[_placed(clamped, x)].get(mode="clip"), cast(fill, x.dtype))


@row(
    "aten._unsafe_masked_index_put_accumulate.default",
    supports=lambda x, mask, indices, values: _no_mask(x, indices),
)
def masked_index_put_accumulate(x, mask, indices, values):
    """Add masked values at their places."""
    clamped = [None if i is None else jnp.clip(i, -x.shape[a], x.shape[a] - 1) for a, i in enumerate(indices)]
    return _index_put(x, clamped, jnp.where(mask, cast(values, x.dtype), 0), True)


def _along(x, dim, index):
    """Full index tuple for an element-wise gather or scatter along one dimension."""
    grids = [lax.broadcasted_iota(jnp.int32, index.shape, d) for d in range(index.ndim)]
    grids[dim] = index
    return tuple(grids)


@row("aten.gather.default", bounds=lambda x, dim, i, **kw: [(i, dim, False)])
def gather(x, dim, index, sparse_grad=False):
    """x[..., index, ...] along one dimension, element by element."""
    if x.ndim == 0 or index.ndim == 0:
        return jnp.broadcast_to(x.reshape(-1)[0], index.shape)
    dim %= x.ndim
    return x.at[_along(x, dim, index)].get(mode="promise_in_bounds")


@row("aten.index_select.default", bounds=lambda x, dim, i: [(i, dim, False)])
def index_select(x, dim, index):
    """Slices of one dimension by an index vector."""
    if x.ndim == 0:
        return x
    return jnp.take(x, index.reshape(-1), axis=dim, mode="clip")


@row("aten.take.default")
def take(x, index):
    """Elements of the flattened array."""
    return jnp.take(x.reshape(-1), _wrapped(index, x.size), mode="clip")


def _target(x, dim, index):
    return x.at[_along(x, dim % max(x.ndim, 1), index)]


def _crop(src, index):
    return src[tuple(slice(0, n) for n in index.shape)]


def _scatterable(x, dim, index, *rest, **kw):
    return x.dim() > 0 and index.dim() > 0


@row("aten.scatter.src", bounds=_ALONG, supports=_scatterable)
def scatter_src(x, dim, index, src):
    """`x` with elements replaced; the last of several writers wins."""
    return _target(x, dim, index).set(_crop(src, index), mode="drop")


@row("aten.scatter.value", bounds=_ALONG, supports=_scatterable)
def scatter_value(x, dim, index, value):
    """`x` with elements replaced by one value."""
    return _target(x, dim, index).set(cast(value, x.dtype), mode="drop")


@row("aten.scatter_add.default", bounds=_ALONG, supports=_scatterable)
def scatter_add(x, dim, index, src):
    """`x` with elements added to."""
    return _target(x, dim, index).add(_crop(src, index), mode="drop")


@row(
    "aten.scatter_reduce.two",
    bounds=_ALONG,
    supports=lambda x, dim, index, src, reduce, include_self=True: (
        x.dim() > 0 and index.dim() > 0 and (include_self or reduce in ("sum", "amax", "amin", "prod"))
    ),
)
def scatter_reduce(x, dim, index, src, reduce, include_self=True):
    """`x` with elements reduced into."""
    target, src = _target(x, dim, index), _crop(src, index)
    if not include_self:
        floating = jnp.issubdtype(x.dtype, jnp.floating)
        low, high = (-jnp.inf, jnp.inf) if floating else (jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max)
        neutral = {"sum": 0, "prod": 1, "amax": low, "amin": high}[reduce]
        target = _target(target.set(jnp.asarray(neutral, x.dtype), mode="drop"), dim, index)
    if reduce == "sum":
        return target.add(src, mode="drop")
    if reduce == "prod":
        return target.multiply(src, mode="drop")
    if reduce == "amax":
        return target.max(src, mode="drop")
    if reduce == "amin":
        return target.min(src, mode="drop")
    total = target.add(src, mode="drop")
    count = _target(jnp.ones(x.shape, jnp.int64), dim, index).add(1, mode="drop")
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.floor_divide(total, count.astype(x.dtype))
    return (total / count.astype(x.dtype)).astype(x.dtype)


@row("aten.index_add.default", bounds=_ALONG, supports=lambda x, dim, index, src, alpha=1: x.dim() > 0)
def index_add(x, dim, index, src, alpha=1):
    """`x` with slices added to."""
    where = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
    return x.at[where].add(cast(src, x.dtype) * jnp.asarray(alpha, x.dtype), mode="drop")


@row("aten.index_copy.default", bounds=_ALONG, supports=lambda x, dim, index, src: x.dim() > 0)
def index_copy(x, dim, index, src):
    """`x` with slices replaced."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index.reshape(-1),)].set(src, mode="drop")


@row(
    "aten.index_fill.int_Scalar",
    "aten.index_fill.int_Tensor",
    bounds=lambda x, dim, index, value: [(index, dim, True)],
    supports=lambda x, dim, index, value: x.dim() > 0,
)
def index_fill(x, dim, index, value):
    """`x` with slices filled; negative indices count from the end."""
    where = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
    return x.at[where].set(cast(value, x.dtype), mode="drop")


@row("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(condition, message=""):
    """A condition that the runner looks at before it returns (the range of `one_hot`'s classes, for one)."""
    return condition


# ------------------------------------------------------------------------------------------------------ sorting
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
    if key.dtype.itemsize <= 4 and key.dtype != jnp.uint32:
        # Key and index packed into one int64: a single-operand sort is four times faster than a stable pair sort.
        packed = (key.astype(jnp.int64) << 32) | position
        return jnp.sort(packed, axis) & 0xFFFFFFFF
    return lax.sort((key, position), dimension=axis, is_stable=True, num_keys=1)[1]


def _sort(x, dim, descending):
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    position = argsort(x, axis, descending)
    return jnp.take_along_axis(x, position, axis, mode="promise_in_bounds"), position


@row("aten.sort.default")
def sort(x, dim=-1, descending=False):
    """Sorted values and their indices; always stable."""
    return _sort(x, dim, descending)


@row("aten.sort.stable")
def sort_stable(x, stable=None, dim=-1, descending=False):
    """Sorted values and their indices."""
    return _sort(x, dim, descending)


@row("aten.argsort.default", "aten.argsort.stable")
def argsort_row(x, *args, dim=-1, descending=False, stable=False):
    """The sorting permutation."""
    return _sort(x, dim, descending)[1]


@row("aten.topk.default")
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


@row("aten.kthvalue.default")
def kthvalue(x, k, dim=-1, keepdim=False):
    """The k-th smallest, and where it is."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    values, position = _sort(x, axis, False)
    pick = lambda a: lax.slice_in_dim(a, k - 1, k, 1, axis)
    values, position = pick(values), pick(position)
    return (values, position) if keepdim else (jnp.squeeze(values, axis), jnp.squeeze(position, axis))


@row("aten.searchsorted.Tensor", supports=lambda s, v, **kw: s.dim() == 1 and kw.get("sorter") is None)
def searchsorted(sequence, values, out_int32=False, right=False, side=None, sorter=None, out: Any = None):
    """Where values would be inserted to keep the order."""
    return jnp.searchsorted(sequence, values, side="right" if right or side == "right" else "left").astype(out.dtype)


@row("aten.bucketize.Tensor")
def bucketize(values, boundaries, out_int32=False, right=False, out: Any = None):
    """The bucket of every value."""
    return jnp.searchsorted(boundaries, values, side="right" if right else "left").astype(out.dtype)
