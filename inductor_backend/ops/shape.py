"""Views, creation, joining and padding.

Input: arrays, sizes, dimensions. Output: arrays of the requested shape. Law: values as eager's; strides are the
business of the place where a result leaves the graph, except where an operator reads them (`as_strided`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inductor_backend.ops import whole
from inductor_backend.ops.table import POINTWISE, cast, row, view

lax = jax.lax


def _as_list(dim):
    return list(dim) if isinstance(dim, (list, tuple)) else [dim]


@view("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_alias.default")
def reshape(x, size, *rest, out: Any = None):
    """The same elements under another shape."""
    return jnp.reshape(x, out.shape)


@view("aten.permute.default")
def permute(x, order):
    """Dimensions in another order."""
    return jnp.transpose(x, [d % x.ndim for d in order])


@view("aten.transpose.int")
def transpose(x, a, b):
    """Two dimensions swapped."""
    return jnp.swapaxes(x, a, b) if x.ndim else x


@view("aten.t.default")
def t(x):
    """A matrix transposed."""
    return x.T


@view("aten.expand.default")
def expand(x, size, implicit=False, out: Any = None):
    """Dimensions of 1 repeated."""
    return jnp.broadcast_to(x, out.shape)


@view("aten.unsqueeze.default")
def unsqueeze(x, dim):
    """A dimension of 1 inserted."""
    return jnp.expand_dims(x, dim)


@view("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def squeeze(x, dim=None, out: Any = None):
    """Dimensions of 1 removed."""
    return jnp.reshape(x, out.shape)


def _bounds(start, end, length):
    start = 0 if start is None else start
    end = length if end is None else end
    start = max(start + length, 0) if start < 0 else min(start, length)
    end = max(end + length, 0) if end < 0 else min(end, length)
    return start, max(end, start)


@view("aten.slice.Tensor")
def slice_(x, dim=0, start=None, end=None, step=1):
    """Every step-th element from start to end."""
    dim %= x.ndim
    start, end = _bounds(start, end, x.shape[dim])
    return lax.slice_in_dim(x, start, end, step, dim)


@view("aten.select.int")
def select(x, dim, index):
    """One element of a dimension, which goes away."""
    dim %= x.ndim
    index %= x.shape[dim]
    return jnp.squeeze(lax.slice_in_dim(x, index, index + 1, 1, dim), dim)


@view("aten.split.Tensor")
def split(x, size, dim=0):
    """Pieces of one size; the last may be shorter."""
    dim %= x.ndim
    length = x.shape[dim]
    starts = range(0, length, size) if length else (0,)
    return [lax.slice_in_dim(x, s, min(s + size, length), 1, dim) for s in starts]


@view("aten.split_with_sizes.default")
def split_with_sizes(x, sizes, dim=0):
    """Pieces of the given sizes."""
    edges = np.cumsum([0, *sizes])
    return [lax.slice_in_dim(x, int(a), int(b), 1, dim % x.ndim) for a, b in pairwise(edges)]


@view("aten.unbind.int")
def unbind(x, dim=0):
    """The elements of a dimension, which goes away."""
    return [select(x, dim, i) for i in range(x.shape[dim])]


@view("aten.diagonal.default")
def diagonal(x, offset=0, dim1=0, dim2=1):
    """A diagonal as the last dimension."""
    return jnp.diagonal(x, offset, dim1, dim2)


@row("aten.diagonal_copy.default", grows=whole.ELEMENTS)
def diagonal_copy(x, offset=0, dim1=0, dim2=1):
    """A diagonal as the last dimension."""
    return jnp.diagonal(x, offset, dim1, dim2)


@view("aten.unfold.default")
def unfold(x, dim, size, step):
    """Windows of a dimension, as a new last dimension."""
    if x.ndim == 0:
        return x[None]
    dim %= x.ndim
    count = (x.shape[dim] - size) // step + 1
    # A window's i-th element is a strided slice, which XLA fuses; a gather would be scalar.
    parts = [lax.slice_in_dim(x, i, i + (count - 1) * step + 1, step, dim) for i in range(size)]
    return jnp.stack(parts, -1)


@row("aten.unfold_backward.default")
def unfold_backward(grad, sizes, dim, size, step):
    """Sum the windows back into place."""
    (x,) = jax.linear_transpose(lambda v: unfold(v, dim, size, step), jnp.zeros(sizes, grad.dtype))(grad)
    return x


def _storage(x, strides):
    """The elements of `x` in the order of its storage, when its strides are a permutation of a dense layout."""
    order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))
    return jnp.transpose(x, order).reshape(-1)


def _dense(shape, strides) -> bool:
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def strided_offsets(size, stride, offset):
    """The storage offset of every element, as a numpy array."""
    index = np.full(tuple(size), offset, np.int64)
    for axis, (n, s) in enumerate(zip(size, stride)):
        index += (np.arange(n, dtype=np.int64) * s).reshape((-1,) + (1,) * (len(size) - axis - 1))
    return index


@row(
    "aten.as_strided.default",
    supports=lambda x, size, stride, offset=None: x.storage_offset() == 0 and _dense(x.shape, x.stride()),
    notes="reads the strides that eager would have produced, from the FX node's metadata",
    grows=whole.ELEMENTS,
)
def as_strided(x, size, stride, offset=None, strides: Any = None):
    """Elements by their storage offset in the layout eager would have produced."""
    flat = _storage(x, strides)
    size, stride, offset = tuple(size), tuple(stride), offset or 0
    if offset == 0 and int(np.prod(size)) == flat.shape[0] and _dense(size, stride):
        order = sorted(range(len(size)), key=lambda d: (-stride[d], d))
        return jnp.transpose(flat.reshape([size[d] for d in order]), np.argsort(order).tolist())
    return flat[strided_offsets(size, stride, offset)]


@row(
    "aten.as_strided_scatter.default",
    supports=lambda x, src, size, stride, offset=None: x.storage_offset() == 0 and _dense(x.shape, x.stride()),
    grows=whole.among(0, 1),
)
def as_strided_scatter(x, src, size, stride, offset=None, strides: Any = None):
    """`x` with the strided elements replaced by `src`."""
    flat = _storage(x, strides).at[strided_offsets(size, stride, offset or 0)].set(src)
    order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))
    return jnp.transpose(flat.reshape([x.shape[d] for d in order]), np.argsort(order).tolist())


# ------------------------------------------------------------------------------------------------ dtype views
@row("aten.view.dtype", supports=lambda x, dtype: not (x.dtype.is_complex or dtype.is_complex or x.dim() == 0))
def view_dtype(x, dtype, out: Any = None):
    """The same bits under another dtype; the last dimension grows or shrinks with the width."""
    wide, narrow = jnp.dtype(x.dtype).itemsize, jnp.dtype(out.dtype).itemsize
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    target = jnp.uint8 if out.dtype == jnp.bool_ else out.dtype
    if wide < narrow:
        x = x.reshape(*x.shape[:-1], x.shape[-1] * wide // narrow, narrow // wide)
    y = lax.bitcast_convert_type(x, target)
    return y.reshape(out.shape).astype(out.dtype)


# ------------------------------------------------------------------------------------------------ writes as values
@row("aten.slice_scatter.default", kind=POINTWISE, grows=whole.among(0, 1))
def slice_scatter(x, src, dim=0, start=None, end=None, step=1):
    """`x` with a slice replaced by `src`."""
    dim %= x.ndim
    start, end = _bounds(start, end, x.shape[dim])
    src = cast(src, x.dtype)
    if (start, end, step) == (0, x.shape[dim], 1):
        return jnp.broadcast_to(src, x.shape)
    if step == 1:
        return lax.dynamic_update_slice_in_dim(x, src, start, dim)
    index = (slice(None),) * dim + (slice(start, end, step),)
    return x.at[index].set(src)


@row("aten.select_scatter.default", kind=POINTWISE, grows=whole.among(0, 1))
def select_scatter(x, src, dim, index):
    """`x` with one element of a dimension replaced by `src`."""
    dim %= x.ndim
    src = jnp.expand_dims(cast(src, x.dtype), dim)
    return jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, dim) == index % x.shape[dim], src, x)


@row("aten.diagonal_scatter.default", grows=whole.among(0, 1))
def diagonal_scatter(x, src, offset=0, dim1=0, dim2=1):
    """`x` with a diagonal replaced by `src`."""
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    count = src.shape[-1]
    i = jnp.arange(count)
    rows, columns = (i, i + offset) if offset >= 0 else (i - offset, i)
    return jnp.moveaxis(moved.at[..., rows, columns].set(src), (-2, -1), (dim1, dim2))


# ------------------------------------------------------------------------------------------------------ joining
@row("aten.cat.default", grows=whole.ELEMENTS)
def cat(arrays, dim=0, out: Any = None):
    """Arrays joined along a dimension; 1-d empty ones are skipped, as in torch."""
    parts = [cast(a, out.dtype) for a in arrays if a.shape != (0,)] or [cast(arrays[0], out.dtype)]
    return jnp.concatenate(parts, dim) if len(parts) > 1 else parts[0]


@row("aten.stack.default", grows=whole.ELEMENTS)
def stack(arrays, dim=0, out: Any = None):
    """Arrays joined along a new dimension."""
    return jnp.stack([cast(a, out.dtype) for a in arrays], dim)


@row("aten.repeat.default", grows=whole.ELEMENTS)
def repeat(x, repeats):
    """The array tiled."""
    return jnp.tile(x, tuple(repeats))


@row("aten.flip.default", "prims.rev.default", grows=whole.ELEMENTS)
def flip(x, order):
    """Dimensions reversed."""
    return jnp.flip(x, tuple(d % x.ndim for d in order)) if x.ndim else x


@row("aten.roll.default", grows=whole.ELEMENTS)
def roll(x, shifts, order=()):
    """Elements moved round a dimension."""
    if not order:
        return jnp.roll(x.reshape(-1), _as_list(shifts)[0]).reshape(x.shape)
    for shift, dim in zip(_as_list(shifts), _as_list(order)):
        x = jnp.roll(x, shift, dim)
    return x


@row("aten.constant_pad_nd.default", grows=whole.among(0, 2, zero=True))
def constant_pad_nd(x, pad, value=0):
    """Constant borders; negative ones cut."""
    config = [(0, 0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        config[x.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return lax.pad(x, cast(value, x.dtype), config)


@row("aten.triu.default", kind=POINTWISE, grows=whole.among(0, zero=True))
def triu(x, diagonal=0):
    """The part above a diagonal."""
    return jnp.triu(x, diagonal)


@row("aten.tril.default", kind=POINTWISE, grows=whole.among(0, zero=True))
def tril(x, diagonal=0):
    """The part below a diagonal."""
    return jnp.tril(x, diagonal)


# ----------------------------------------------------------------------------------------------------- creation
def _creation(*names, fill):
    def make(*args, out: Any = None, **kw):
        return jnp.full(out.shape, fill, out.dtype)

    row(*names, kind=POINTWISE, grows=whole.within(fill, fill))(make)


_creation("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", fill=0)
_creation("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", fill=1)
_creation(
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", "aten.empty_permuted.default", fill=0,
)  # fmt: skip


@row("aten.full.default", kind=POINTWISE, grows=whole.FILLED)
def full(size, value, dtype=None, layout=None, device=None, pin_memory=None, out: Any = None):
    """One value everywhere."""
    return jnp.broadcast_to(cast(value, out.dtype), out.shape)


@row("aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor", kind=POINTWISE, grows=whole.FILLED)
def full_like(x, value, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, out: Any = None):
    """One value everywhere, in the shape of x."""
    return jnp.broadcast_to(cast(value, out.dtype), out.shape)


@row("aten.new_full.default", kind=POINTWISE, grows=whole.FILLED_THIRD)
def new_full(x, size, value, dtype=None, layout=None, device=None, pin_memory=None, out: Any = None):
    """One value everywhere."""
    return jnp.broadcast_to(cast(value, out.dtype), out.shape)


@row("aten.scalar_tensor.default", kind=POINTWISE, grows=whole.FILLED_FIRST)
def scalar_tensor(value, dtype=None, layout=None, device=None, pin_memory=None, out: Any = None):
    """A number as a 0-d array."""
    return cast(value, out.dtype)


@row("prims.iota.default", grows=whole.IOTA)
def iota(length, start, step, dtype, device=None, requires_grad=False, out: Any = None):
    """Start, start + step, ..."""
    index = lax.iota(out.dtype, length)
    index = index if step == 1 else index * jnp.asarray(step, out.dtype)
    return index if start == 0 else index + jnp.asarray(start, out.dtype)


@row("aten.arange.start_step", grows=whole.ARANGE)
def arange(start, end, step=1, dtype=None, layout=None, device=None, pin_memory=None, out: Any = None):
    """Start, start + step, ... below end."""
    if jnp.issubdtype(out.dtype, jnp.integer):
        return iota(out.shape[0], start, step, out.dtype, out=out)
    wide = jnp.float64
    return (jnp.asarray(start, wide) + jnp.asarray(step, wide) * lax.iota(wide, out.shape[0])).astype(out.dtype)


@row("aten.eye.default", "aten.eye.m", grows=whole.within(0, 1))
def eye(*args, out: Any = None, **kw):
    """Ones on the diagonal."""
    return jnp.eye(*out.shape, dtype=out.dtype)


@row("aten.linspace.default", supports=lambda start, end, steps, **kw: steps > 0, grows=whole.LINSPACE)
def linspace(start, end, steps, dtype=None, layout=None, device=None, pin_memory=None, out: Any = None):
    """Evenly spaced numbers, both ends included; built from both ends, as torch does."""
    if jnp.issubdtype(out.dtype, jnp.integer):
        # The ends lose their fractions first, and the steps are in f64, which not every target has.
        start, end, at = int(start), int(end), np.arange(steps, dtype=np.float64)
        step = (end - start) / max(steps - 1, 1)
        numbers = np.where(at < steps // 2, start + step * at, end - step * (steps - 1 - at))
        return jnp.asarray(numbers.astype(out.dtype))
    # Half precision is rounded after every step.
    wide = out.dtype
    start, end = jnp.asarray(start, wide), jnp.asarray(end, wide)
    step = (end - start) / jnp.asarray(max(steps - 1, 1), wide)
    i = lax.iota(jnp.int64, steps)
    rising = start + step * i.astype(wide)
    falling = end - step * (steps - 1 - i).astype(wide)
    return (
        jnp.where(i < steps // 2, rising, falling).astype(out.dtype) if steps > 1 else jnp.full((1,), start, out.dtype)
    )


@row("prims.inductor_force_stride_order.default", kind=POINTWISE, grows=whole.ELEMENTS)
def force_stride_order(x, stride):
    """The same values; the layout is made where a result leaves the graph."""
    return x
