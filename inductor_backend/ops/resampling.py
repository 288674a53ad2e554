"""Adaptive maxima, gradients of pools and pads, and sampling on a grid.

Input: (N, C, ...) arrays or (C, ...) ones. Output: arrays of the input's dtype. Law: every gradient is the transpose of
its forward's linear map; half precision sums in f32 unless eager doesn't.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import torch

from inductor_backend.ops import library, whole
from inductor_backend.ops.pooling import _avg_divisor, _avg_sum, _pool_args
from inductor_backend.ops.reductions import arg_extreme
from inductor_backend.ops.table import row

lax = jax.lax


def _wide(dtype):
    return jnp.float32 if dtype in (jnp.bfloat16, jnp.float16) else dtype


# ------------------------------------------------------------------------------------------------ adaptive maxima
def _cells(size: int, out: int) -> np.ndarray:
    """The places of every cell; the last repeats where a cell is smaller than the largest, which changes no maximum."""
    starts = [(i * size) // out for i in range(out)]
    ends = [-(-((i + 1) * size) // out) for i in range(out)]
    widest = max(e - s for s, e in zip(starts, ends))
    return np.array([[min(s + k, e - 1) for k in range(widest)] for s, e in zip(starts, ends)], np.int64)


def _adaptive_max(x, out_size):
    rank = len(out_size)
    space = x.shape[-rank:]
    cells = [_cells(n, o) for n, o in zip(space, out_size)]
    flat = np.zeros((1,) * (2 * rank), np.int64)
    for axis, places in enumerate(cells):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = places.shape
        flat = flat * space[axis] + places.reshape(shape)
    lead, window = flat.shape[:rank], int(np.prod(flat.shape[rank:]))
    flat = flat.reshape(*lead, window)
    values = x.reshape(*x.shape[:-rank], -1)[..., flat]
    best, where = arg_extreme(values, values.ndim - 1, True)
    index = jnp.take_along_axis(jnp.broadcast_to(jnp.asarray(flat), values.shape), where, -1)
    return best[..., 0], index[..., 0]


def _adaptable(x, size):
    return x.numel() > 0 and all(n > 0 for n in size)


@row(
    "aten.adaptive_max_pool2d.default",
    "aten.adaptive_max_pool3d.default",
    supports=_adaptable,
    grows=whole.ELEMENTS_AND_POSITIONS,
)
def adaptive_max_pool(x, size):
    """Maxima over a grid of the wanted size, and their flat indices."""
    return _adaptive_max(x, list(size))


def _to_places(grad, x, indices, rank):
    """Every gradient added to the element of its plane that it came from, in its own dtype as in eager."""
    plane = int(np.prod(x.shape[-rank:], dtype=np.int64))
    lead = int(np.prod(x.shape[:-rank], dtype=np.int64))
    rows = lax.broadcasted_iota(jnp.int32, (lead, int(np.prod(grad.shape[-rank:], dtype=np.int64))), 0)
    flat = jnp.zeros((lead, plane), grad.dtype)
    return flat.at[rows, indices.reshape(lead, -1)].add(grad.reshape(lead, -1)).reshape(x.shape)


@row("aten.adaptive_max_pool2d_backward.default", supports=lambda g, x, i: x.numel() > 0)
def adaptive_max_pool2d_backward(grad, x, indices):
    """Every gradient goes to the element that was the maximum."""
    return _to_places(grad, x, indices, 2)


@row("aten.adaptive_max_pool3d_backward.default", supports=lambda g, x, i: x.numel() > 0)
def adaptive_max_pool3d_backward(grad, x, indices):
    """Every gradient goes to the element that was the maximum."""
    return _to_places(grad, x, indices, 3)


@row("aten.max_pool3d_with_indices_backward.default", supports=lambda g, x, *rest: x.numel() > 0)
def max_pool3d_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, indices):
    """Every gradient goes to the element that was the maximum."""
    return _to_places(grad, x, indices, 3)


@row("aten.fractional_max_pool2d_backward.default", supports=lambda g, x, *rest: x.numel() > 0)
def fractional_max_pool2d_backward(grad, x, kernel, output_size, indices):
    """Every gradient goes to the element that was the maximum."""
    return _to_places(grad, x, indices, 2)


@row("aten.fractional_max_pool3d_backward.default", supports=lambda g, x, *rest: x.numel() > 0)
def fractional_max_pool3d_backward(grad, x, kernel, output_size, indices):
    """Every gradient goes to the element that was the maximum."""
    return _to_places(grad, x, indices, 3)


@row("aten.avg_pool3d_backward.default", supports=lambda g, x, *rest: x.numel() > 0, library=library.added_in_half)
def avg_pool3d_backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Every gradient spread over its window."""
    kernel, stride, padding, _ = _pool_args(x, kernel, stride, padding, 1, 3)
    space, wide = grad.shape[-3:], _wide(grad.dtype)
    divisor = _avg_divisor(x.shape[-3:], kernel, stride, padding, space, count_include_pad, divisor_override)
    scaled = grad.astype(wide) / jnp.asarray(divisor, wide)
    spread = jax.linear_transpose(lambda v: _avg_sum(v, kernel, stride, padding, space), jnp.zeros(x.shape, wide))
    return spread(scaled)[0].astype(grad.dtype)


# ----------------------------------------------------------------------------------------------------------- pads
@row(
    "aten.replication_pad1d_backward.default", "aten.replication_pad2d_backward.default",
    "aten.replication_pad3d_backward.default", supports=lambda g, x, p: x.numel() > 0, library=library.added_in_half,
)  # fmt: skip
def replication_pad_backward(grad, x, padding):
    """Every gradient of the border added to the element that it repeats."""
    wide = _wide(grad.dtype)
    total = grad.astype(wide)
    for i in range(len(padding) // 2):
        axis = x.ndim - 1 - i
        place = np.clip(np.arange(total.shape[axis]) - padding[2 * i], 0, x.shape[axis] - 1)
        shape = tuple(x.shape[axis] if d == axis else n for d, n in enumerate(total.shape))
        where = (slice(None),) * axis + (place,)
        total = jnp.zeros(shape, wide).at[where].add(total)
    return total.astype(grad.dtype)


# ------------------------------------------------------------------------------------------------ sampling on a grid
def _unnormalised(grid, size: int, align: bool):
    return (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2


def _reflected(place, low: float, high: float):
    if low == high:
        return jnp.zeros_like(place)
    span = high - low
    distance = jnp.abs(place - low)
    turns = jnp.floor(distance / span)
    rest = distance - turns * span
    return jnp.where(turns % 2 == 0, rest + low, span - rest + low)


def _placed(place, size: int, padding: int, align: bool):
    if padding == 2:
        place = _reflected(place, 0.0, size - 1.0) if align else _reflected(place, -0.5, size - 0.5)
    if not padding:
        return place
    # Clamped places, the border itself among them, have no gradient.
    inside = (place > 0) & (place < size - 1)
    return jnp.where(inside, place, lax.stop_gradient(jnp.clip(place, 0, size - 1)))


def _grid_sample(x, grid, mode: int, padding: int, align: bool):
    """Bilinear (0) or nearest (1) samples of (N, C, ...) at (N, ..., rank) places."""
    rank = x.ndim - 2
    space = x.shape[2:]
    places = [_placed(_unnormalised(grid[..., rank - 1 - a], n, align), n, padding, align) for a, n in enumerate(space)]
    batch = jnp.arange(x.shape[0]).reshape((-1,) + (1,) * rank)
    moved = jnp.moveaxis(x, 1, -1)

    def read(index):
        inside = jnp.ones(index[0].shape, bool)
        for i, n in zip(index, space):
            inside &= (i >= 0) & (i <= n - 1)
        clipped = [jnp.clip(jnp.nan_to_num(i), 0, n - 1).astype(jnp.int32) for i, n in zip(index, space)]
        return jnp.where(inside[..., None], moved[(batch, *clipped)], 0)

    if mode == 1:
        return jnp.moveaxis(read([jnp.round(p) for p in places]), -1, 1)
    total = jnp.zeros((), x.dtype)
    floors = [lax.stop_gradient(jnp.floor(p)) for p in places]
    for corner in itertools.product((0, 1), repeat=rank):
        weight = jnp.ones((), x.dtype)
        for p, f, c in zip(places, floors, corner):
            weight = weight * ((p - f) if c else (f + 1 - p))
        total = total + read([f + c for f, c in zip(floors, corner)]) * weight[..., None]
    return jnp.moveaxis(total, -1, 1)


def _samples(x, grid, mode, *rest):
    return mode in (0, 1) and x.numel() > 0 and grid.numel() > 0


@row(
    "aten.grid_sampler_3d.default",
    # Eager rounds weights and partial sums of half precision on the way.
    supports=lambda x, *rest: x.dtype not in (torch.bfloat16, torch.float16) and _samples(x, *rest),
)
def grid_sampler_3d(x, grid, mode, padding, align_corners):
    """Samples of a volume at the places of a grid."""
    wide = _wide(x.dtype)
    return _grid_sample(x.astype(wide), grid.astype(wide), mode, padding, align_corners).astype(x.dtype)


def _grid_gradient(grad, x, grid, mode, padding, align_corners, output_mask):
    """(the gradient of x, the gradient of the grid), None for what isn't wanted."""
    wide = _wide(x.dtype)
    sample = lambda v, g: _grid_sample(v, g, mode, padding, align_corners)
    _, back = jax.vjp(sample, x.astype(wide), grid.astype(wide))
    found = [g.astype(x.dtype) for g in back(grad.astype(wide))]
    return [g if wanted else None for g, wanted in zip(found, output_mask)]


def _gradient_samples(grad, x, grid, mode, *rest):
    return _samples(x, grid, mode)


@row("aten.grid_sampler_2d_backward.default", supports=_gradient_samples, library=library.added_in_half)
def grid_sampler_2d_backward(grad, x, grid, mode, padding, align_corners, output_mask):
    """Gradients of bilinear or nearest samples of a plane."""
    return _grid_gradient(grad, x, grid, mode, padding, align_corners, output_mask)


@row("aten.grid_sampler_3d_backward.default", supports=_gradient_samples, library=library.added_in_half)
def grid_sampler_3d_backward(grad, x, grid, mode, padding, align_corners, output_mask):
    """Gradients of bilinear or nearest samples of a volume."""
    return _grid_gradient(grad, x, grid, mode, padding, align_corners, output_mask)
