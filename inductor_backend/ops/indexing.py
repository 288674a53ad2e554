"""Gathers and scatters.

Input: arrays and int64 indices. Output: arrays. Law: negative indices count from the end where torch says so; the
runner refuses indices out of range (`bounds`); before it has looked, reads clamp them and writes drop them.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import torch

from inductor_backend.ops import whole
from inductor_backend.ops.table import cast, row

lax = jax.lax


#: Operators whose third argument indexes the dimension that the second names.
_ALONG = lambda x, dim, index, *rest, **kw: [(index, dim, False)]


def _wrapped(index, length):
    return jnp.where(index < 0, index + length, index)


@row("aten.embedding.default", bounds=lambda w, i, *rest, **kw: [(i, 0, False)], grows=whole.ELEMENTS)
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


@row("aten._unsafe_index.Tensor", supports=_no_mask, grows=whole.ELEMENTS)
@row("aten.index.Tensor", supports=_no_mask, bounds=_per_dimension, grows=whole.ELEMENTS)
def index(x, indices):
    """Advanced indexing by integer arrays."""
    return x.at[_placed(indices, x)].get(mode="clip")


def _puttable(x, indices, values, accumulate=False):
    """Integers, or one mask whose elements all get the same value: how many there are does not matter then."""
    if _no_mask(x, indices):
        return True
    axis = next(a for a, i in enumerate(indices) if i is not None)
    mask, *others = [i for i in indices if i is not None]
    picked = values.ndim - 1 - (x.ndim - axis - mask.ndim)
    return mask.dtype == torch.bool and not others and (picked < 0 or values.shape[picked] == 1)


def _put_where(x, axis, mask, values, accumulate):
    """The same value wherever a mask over the dimensions from `axis` on is true."""
    trailing = x.ndim - axis - mask.ndim
    picked = values.ndim - 1 - trailing
    if picked >= 0:
        values = values.reshape(values.shape[:picked] + (1,) * mask.ndim + values.shape[picked + 1 :])
    return jnp.where(mask.reshape(mask.shape + (1,) * trailing), x + values if accumulate else values, x)


def _index_put(x, indices, values, accumulate=False):
    values = cast(values, x.dtype)
    for axis, index in enumerate(indices):
        if index is not None and index.dtype == jnp.bool_:
            return _put_where(x, axis, index, values, accumulate)
    target = x.at[_placed(indices, x)]
    return target.add(values, mode="drop") if accumulate else target.set(values, mode="drop")


@row("aten._unsafe_index_put.default", supports=_puttable, grows=whole.PUT)
@row("aten.index_put.default", supports=_puttable, bounds=_per_dimension, grows=whole.PUT)
def index_put(x, indices, values, accumulate=False):
    """`x` with indexed elements replaced or added to."""
    return _index_put(x, indices, values, accumulate)


@row(
    "aten._unsafe_masked_index.default",
    supports=lambda x, mask, indices, fill: _no_mask(x, indices),
    grows=whole.among(0, 3),
)
def masked_index(x, mask, indices, fill):
    """Advanced indexing where the mask is true, `fill` elsewhere."""
    clamped = [None if i is None else jnp.clip(i, -x.shape[a], x.shape[a] - 1) for a, i in enumerate(indices)]
    return jnp.where(mask, x.at[_placed(clamped, x)].get(mode="clip"), cast(fill, x.dtype))


@row(
    "aten._unsafe_masked_index_put_accumulate.default",
    supports=lambda x, mask, indices, values: _no_mask(x, indices),
    grows=whole.PUT_MASKED,
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


@row("aten.gather.default", bounds=lambda x, dim, i, **kw: [(i, dim, False)], grows=whole.ELEMENTS)
def gather(x, dim, index, sparse_grad=False):
    """x[..., index, ...] along one dimension, element by element."""
    if x.ndim == 0 or index.ndim == 0:
        return jnp.broadcast_to(x.reshape(-1)[0], index.shape)
    dim %= x.ndim
    return x.at[_along(x, dim, index)].get(mode="promise_in_bounds")


@row("aten.index_select.default", undecomposed=True, bounds=lambda x, dim, i: [(i, dim, False)], grows=whole.ELEMENTS)
def index_select(x, dim, index):
    """Slices of one dimension by an index vector."""
    if x.ndim == 0:
        return x
    return jnp.take(x, index.reshape(-1), axis=dim, mode="clip")


@row("aten.take.default", grows=whole.ELEMENTS)
def take(x, index):
    """Elements of the flattened array."""
    return jnp.take(x.reshape(-1), _wrapped(index, x.size), mode="clip")


def _target(x, dim, index):
    return x.at[_along(x, dim % max(x.ndim, 1), index)]


def _crop(src, index):
    return src[tuple(slice(0, n) for n in index.shape)]


def _one_dimension(fn):
    """`fn` for 0-d operands too, which count as vectors of one element."""

    @functools.wraps(fn)
    def scatter(x, dim, index, *rest, **kw):
        if x.ndim and index.ndim:
            return fn(x, dim, index, *rest, **kw)
        rest = tuple(jnp.atleast_1d(r) if isinstance(r, jax.Array) else r for r in rest)
        return fn(jnp.atleast_1d(x), dim, jnp.atleast_1d(index), *rest, **kw).reshape(x.shape)

    return scatter


@row("aten.scatter.src", bounds=_ALONG, grows=whole.among(0, 3))
@_one_dimension
def scatter_src(x, dim, index, src):
    """`x` with elements replaced; the last of several writers wins."""
    return _target(x, dim, index).set(_crop(src, index), mode="drop")


@row("aten.scatter.value", bounds=_ALONG, grows=whole.among(0, 3))
@_one_dimension
def scatter_value(x, dim, index, value):
    """`x` with elements replaced by one value."""
    return _target(x, dim, index).set(cast(value, x.dtype), mode="drop")


@row("aten.scatter_add.default", bounds=_ALONG, grows=whole.ADDED_ALONG)
@_one_dimension
def scatter_add(x, dim, index, src):
    """`x` with elements added to."""
    return _target(x, dim, index).add(_crop(src, index), mode="drop")


@row("aten.scatter_reduce.two", bounds=_ALONG, grows=whole.REDUCED_ALONG)
@_one_dimension
def scatter_reduce(x, dim, index, src, reduce, include_self=True):
    """`x` with elements reduced into."""
    return _reduced_into(x, lambda v: _target(v, dim, index), _crop(src, index), reduce, include_self)


def _reduced_into(x, at, src, reduce, include_self):
    """`src` reduced into the places `at(x)`; half precision is summed in f32."""
    dtype = x.dtype
    if dtype == jnp.bool_:
        x, src = x.astype(jnp.int8), src.astype(jnp.int8)
        reduce = {"sum": "amax", "prod": "amin"}.get(reduce, reduce)
    elif dtype in (jnp.bfloat16, jnp.float16) and reduce in ("sum", "mean"):
        x, src = x.astype(jnp.float32), src.astype(jnp.float32)
    src = jnp.asarray(src, x.dtype)
    if not include_self:
        floating = jnp.issubdtype(x.dtype, jnp.floating)
        low, high = (-jnp.inf, jnp.inf) if floating else (jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max)
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[str(reduce)]
        x = at(x).set(jnp.asarray(neutral, x.dtype), mode="drop")
    if reduce == "prod":
        return at(x).multiply(src, mode="drop").astype(dtype)
    if reduce in ("amax", "amin"):
        # NaN wins, which XLA's own scatter of extremes doesn't promise.
        value = at(x).max(src, mode="drop") if reduce == "amax" else at(x).min(src, mode="drop")
        if jnp.issubdtype(x.dtype, jnp.floating):
            holes = at(x != x).max(src != src, mode="drop")
            value = jnp.where(holes, jnp.nan, value)
        return value.astype(dtype)
    total = at(x).add(src, mode="drop")
    if reduce == "sum":
        return total.astype(dtype)
    count = at(jnp.full(x.shape, int(include_self), jnp.int64)).add(1, mode="drop")
    count = jnp.maximum(count, 1)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.floor_divide(total, count.astype(x.dtype))
    return (total / count.astype(x.dtype)).astype(dtype)


@row("aten.scatter.reduce", bounds=_ALONG, grows=whole.REDUCED_ALONG)
@_one_dimension
def scatter_old_reduce(x, dim, index, src, reduce):
    """`x` with elements added or multiplied, by the older names."""
    at = lambda v: _target(v, dim, index)
    return _reduced_into(x, at, _crop(src, index), {"add": "sum", "multiply": "prod"}[reduce], True)


@row("aten.scatter.value_reduce", bounds=_ALONG, grows=whole.REDUCED_ALONG)
@_one_dimension
def scatter_value_reduce(x, dim, index, value, reduce):
    """`x` with one value added or multiplied into places."""
    at = lambda v: _target(v, dim, index)
    src = jnp.broadcast_to(cast(value, x.dtype), index.shape)
    return _reduced_into(x, at, src, {"add": "sum", "multiply": "prod"}[reduce], True)


@row("aten.index_reduce.default", bounds=_ALONG, grows=whole.REDUCED_ALONG)
def index_reduce(x, dim, index, src, reduce, include_self=True):
    """`x` with slices reduced into."""
    shape = x.shape
    x, src = jnp.atleast_1d(x), jnp.atleast_1d(src)
    where = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
    return _reduced_into(x, lambda v: v.at[where], src, reduce, include_self).reshape(shape)


def _same_slices(x, dim, index, src, alpha=1):
    """Whether the slices of `src` have the shape of those of `x`; the meta function lets others through."""
    if src.dim() != x.dim():
        return False
    pairs = [(a, b) for d, (a, b) in enumerate(zip(x.shape, src.shape)) if d != dim % max(x.dim(), 1)]
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


@row("aten.index_add.default", undecomposed=True, bounds=_ALONG, supports=_same_slices, grows=whole.ADDED_ALONG)
def index_add(x, dim, index, src, alpha=1):
    """`x` with slices added to."""
    shape, src = x.shape, jnp.atleast_1d(cast(src, x.dtype))
    x = jnp.atleast_1d(x)
    where = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
    return x.at[where].add(src * jnp.asarray(alpha, x.dtype), mode="drop").reshape(shape)


@row("aten.index_copy.default", undecomposed=True, bounds=_ALONG, grows=whole.among(0, 3))
def index_copy(x, dim, index, src):
    """`x` with slices replaced."""
    shape, x, src = x.shape, jnp.atleast_1d(x), jnp.atleast_1d(src)
    return x.at[(slice(None),) * (dim % x.ndim) + (index.reshape(-1),)].set(src, mode="drop").reshape(shape)


@row(
    "aten.index_fill.int_Scalar",
    "aten.index_fill.int_Tensor",
    undecomposed=True,
    bounds=lambda x, dim, index, value: [(index, dim, True)],
    grows=whole.among(0, 3),
)
def index_fill(x, dim, index, value):
    """`x` with slices filled; negative indices count from the end."""
    shape, x = x.shape, jnp.atleast_1d(x)
    where = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
    return x.at[where].set(cast(value, x.dtype), mode="drop").reshape(shape)


@row("aten._assert_async.default", "aten._assert_async.msg")
def assert_async(condition, message=""):
    """A condition that the runner looks at before it returns (the range of `one_hot`'s classes, for one)."""
    return condition
