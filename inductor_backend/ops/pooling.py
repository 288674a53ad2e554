"""Pooling and resampling windows.

Input: (N, C, ...) arrays or (C, ...) ones. Output: pooled arrays, with flat indices into the input plane where torch
gives them. Law: padding never wins a maximum; the first of equal maxima is the index; NaN wins.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from inductor_backend.ops import library, whole
from inductor_backend.ops.exact import divide
from inductor_backend.ops.lanes import total
from inductor_backend.ops.table import cast, row

lax = jax.lax


def _each(value, rank: int, default=()) -> list[int]:
    value = [value] if isinstance(value, int) else list(value if value is not None else [])
    if not value:
        return list(default)
    return value * rank if len(value) == 1 else value


def _windows(x, kernel, stride, padding, dilation, out_space, fill):
    """One strided slice per place of the kernel, over the input padded as far as the last window reaches."""
    rank = len(kernel)
    low_high = [(0, 0, 0)] * (x.ndim - rank)
    for n, k, s, p, d, o in zip(x.shape[-rank:], kernel, stride, padding, dilation, out_space):
        reach = (o - 1) * s + d * (k - 1) + 1
        low_high.append((p, reach - n - p, 0))
    padded = lax.pad(x, jnp.asarray(fill, x.dtype), low_high)
    for place in itertools.product(*(range(k) for k in kernel)):
        start = [0] * (x.ndim - rank) + [i * d for i, d in zip(place, dilation)]
        limit = list(padded.shape[: x.ndim - rank]) + [
            i * d + (o - 1) * s + 1 for i, d, o, s in zip(place, dilation, out_space, stride)
        ]
        yield place, lax.slice(padded, start, limit, [1] * (x.ndim - rank) + list(stride))


def _lowest(dtype):
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _max_pool(x, kernel, stride, padding, dilation, out_space):
    rank = len(kernel)
    best: Any = None
    where: Any = None
    for number, (_, window) in enumerate(_windows(x, kernel, stride, padding, dilation, out_space, _lowest(x.dtype))):
        if best is None:
            best, where = window, jnp.zeros(window.shape, jnp.int32)
            continue
        wins = (window > best) | ((window != window) & (best == best))
        best, where = jnp.where(wins, window, best), jnp.where(wins, jnp.int32(number), where)
    # A first window that starts in the padding must not keep index 0 when everything it saw was -inf.
    first = []
    for axis in range(rank):
        grid = lax.broadcasted_iota(jnp.int32, best.shape, best.ndim - rank + axis)
        start = grid * stride[axis] - padding[axis]
        skipped = jnp.maximum(-(start // dilation[axis]), 0) if padding[axis] else jnp.zeros_like(start)
        first.append(skipped)
    floor = jnp.zeros_like(where)
    for axis in range(rank):
        floor = floor * kernel[axis] + first[axis]
    where = jnp.where(best == _lowest(x.dtype), floor, where)
    return best, where


def _pool_args(x, kernel, stride, padding, dilation, rank):
    kernel = _each(kernel, rank)
    return kernel, _each(stride, rank, kernel), _each(padding, rank, [0] * rank), _each(dilation, rank, [1] * rank)


@row("prims._low_memory_max_pool_with_offsets.default", grows=whole.ELEMENTS)
def low_memory_max_pool(x, kernel, stride, padding, dilation, ceil_mode, out: Any = None):
    """Maxima, and the place inside the window of each."""
    rank = len(kernel)
    best, where = _max_pool(x, kernel, stride, padding, dilation, out[0].shape[-rank:])
    return best, where.astype(jnp.int8)


def _plane_index(where, kernel, stride, padding, dilation, plane):
    rank = len(kernel)
    places, rest = [], where.astype(jnp.int64)
    for k in reversed(kernel):
        places.insert(0, rest % k)
        rest = rest // k
    index = jnp.zeros(where.shape, jnp.int64)
    for axis in range(rank):
        grid = lax.broadcasted_iota(jnp.int64, where.shape, where.ndim - rank + axis)
        index = index * plane[axis] + grid * stride[axis] - padding[axis] + places[axis] * dilation[axis]
    return index


@row("prims._low_memory_max_pool_offsets_to_indices.default", grows=whole.PLACES)
def offsets_to_indices(offsets, kernel, input_size, stride, padding, dilation):
    """Places inside windows as flat indices into the input plane."""
    return _plane_index(offsets, kernel, stride, padding, dilation, input_size)


@row("aten.max_pool2d_with_indices.default", grows=whole.ELEMENTS_AND_POSITIONS)
def max_pool2d(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False, out: Any = None):
    """Maxima of 2-d windows, and their flat indices."""
    kernel, stride, padding, dilation = _pool_args(x, kernel, stride, padding, dilation, 2)
    best, where = _max_pool(x, kernel, stride, padding, dilation, out[0].shape[-2:])
    return best, _plane_index(where, kernel, stride, padding, dilation, x.shape[-2:])


@row("aten.max_pool3d_with_indices.default", grows=whole.ELEMENTS_AND_POSITIONS)
def max_pool3d(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False, out: Any = None):
    """Maxima of 3-d windows, and their flat indices."""
    kernel, stride, padding, dilation = _pool_args(x, kernel, stride, padding, dilation, 3)
    best, where = _max_pool(x, kernel, stride, padding, dilation, out[0].shape[-3:])
    return best, _plane_index(where, kernel, stride, padding, dilation, x.shape[-3:])


@row("aten.max_pool2d_with_indices_backward.default")
def max_pool2d_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, indices):
    """Every gradient goes to the element that was the maximum."""
    plane = x.shape[-2] * x.shape[-1]
    lead = int(np.prod(x.shape[:-2], dtype=np.int64))
    flat = jnp.zeros((lead, plane), grad.dtype)
    rows = lax.broadcasted_iota(jnp.int32, (lead, int(np.prod(grad.shape[-2:]))), 0)
    return flat.at[rows, indices.reshape(lead, -1)].add(grad.reshape(lead, -1)).reshape(x.shape)


def _avg_divisor(shape, kernel, stride, padding, out_space, include_pad, override):
    """How many elements each window averages, as a numpy array over the output plane."""
    if override:
        return np.full(out_space, override, np.float64)
    counts = []
    for n, k, s, p, o in zip(shape, kernel, stride, padding, out_space):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        counts.append(end - start if include_pad else np.minimum(end, n) - np.maximum(start, 0))
    total = counts[0].astype(np.float64)
    for c in counts[1:]:
        total = total[..., None] * c
    return total


def _avg_sum(x, kernel, stride, padding, out_space):
    total: Any = None
    for _, window in _windows(x, kernel, stride, padding, [1] * len(kernel), out_space, 0):
        total = window if total is None else total + window
    return total


def _avg_pool(x, kernel, stride, padding, include_pad, override, out, rank):
    kernel, stride, padding, _ = _pool_args(x, kernel, stride, padding, 1, rank)
    wide = jnp.float32 if x.dtype in (jnp.bfloat16, jnp.float16) else x.dtype
    space = out.shape[-rank:]
    total = _avg_sum(x.astype(wide), kernel, stride, padding, space)
    divisor = _avg_divisor(x.shape[-rank:], kernel, stride, padding, space, include_pad, override)
    if (divisor == divisor.flat[0]).all():
        return divide(total, jnp.asarray(divisor.flat[0], wide)).astype(x.dtype)
    return divide(total, jnp.asarray(divisor, wide)).astype(x.dtype)


@row("aten.avg_pool2d.default", supports=lambda x, *a, **k: x.is_floating_point())
def avg_pool2d(
    x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, out: Any = None
):
    """Means of 2-d windows."""
    return _avg_pool(x, kernel, stride, padding, count_include_pad, divisor_override, out, 2)


@row("aten.avg_pool3d.default", supports=lambda x, *a, **k: x.is_floating_point())
def avg_pool3d(
    x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, out: Any = None
):
    """Means of 3-d windows."""
    return _avg_pool(x, kernel, stride, padding, count_include_pad, divisor_override, out, 3)


@row("aten.avg_pool1d.default", supports=lambda x, *a, **k: x.is_floating_point())
def avg_pool1d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, out: Any = None):
    """Means of 1-d windows."""
    return _avg_pool(x, kernel, stride, padding, count_include_pad, None, out, 1)


@row("aten.avg_pool2d_backward.default", library=library.added_in_half)
def avg_pool2d_backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Every gradient spread over its window."""
    kernel, stride, padding, _ = _pool_args(x, kernel, stride, padding, 1, 2)
    space = grad.shape[-2:]
    divisor = _avg_divisor(x.shape[-2:], kernel, stride, padding, space, count_include_pad, divisor_override)
    wide = jnp.float32 if grad.dtype in (jnp.bfloat16, jnp.float16) else grad.dtype
    scaled = divide(grad.astype(wide), jnp.asarray(divisor, wide))
    spread = jax.linear_transpose(lambda v: _avg_sum(v, kernel, stride, padding, space), jnp.zeros(x.shape, wide))
    return spread(scaled)[0].astype(grad.dtype)


def _adaptive_matrix(size: int, out: int) -> np.ndarray:
    matrix = np.zeros((size, out))
    for i in range(out):
        start, end = (i * size) // out, -(-((i + 1) * size) // out)
        matrix[start:end, i] = 1.0 / (end - start)
    return matrix


def _adaptive(x, size):
    """Adaptive averaging is a small matrix product along each dimension."""
    for axis, n in zip(range(x.ndim - len(size), x.ndim), size):
        if n == 1:
            x = total(x, axis, True) / x.shape[axis]
        elif n != x.shape[axis]:
            matrix = jnp.asarray(_adaptive_matrix(x.shape[axis], n), x.dtype)
            x = jnp.moveaxis(jnp.moveaxis(x, axis, -1) @ matrix, -1, axis)
    return x


@row(
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
    # In three dimensions eager sums half precision in half precision, one element after the other.
    supports=lambda x, size: len(size) == 2 or x.dtype not in (torch.bfloat16, torch.float16),
)
def adaptive_avg_pool(x, size):
    """Means over a grid of the wanted size."""
    if x.dtype not in (jnp.bfloat16, jnp.float16):
        return _adaptive(x, list(size))
    # Half precision shows whether a sum is divided, or products are summed.
    found, rank = x.astype(jnp.float32), len(size)
    shares = [_adaptive_matrix(n, o) for n, o in zip(x.shape[-rank:], size)]
    for axis, share in zip(range(x.ndim - rank, x.ndim), shares):
        found = jnp.moveaxis(jnp.moveaxis(found, axis, -1) @ jnp.asarray(share != 0, found.dtype), -1, axis)
    for after, share in zip(reversed(range(rank)), shares):
        found = divide(found, jnp.asarray((share != 0).sum(0), found.dtype).reshape(-1, *[1] * after))
    return found.astype(x.dtype)


@row(
    "aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default",
    library=library.added_in_half,
)  # fmt: skip
def adaptive_avg_pool_backward(grad, x):
    """Every gradient spread over its cell."""
    rank = 2 if x.ndim - grad.ndim == 0 and grad.ndim <= 4 else 3
    size = grad.shape[-rank:]
    wide = jnp.float32 if grad.dtype in (jnp.bfloat16, jnp.float16) else grad.dtype
    (spread,) = jax.linear_transpose(lambda v: _adaptive(v, size), jnp.zeros(x.shape, wide))(grad.astype(wide))
    return spread.astype(grad.dtype)


def _nearest(x, scales, out, exact):
    rank = len(out.shape) - 2
    for axis in range(2, 2 + rank):
        n, o = x.shape[axis], out.shape[axis]
        scale = scales[axis - 2] if scales and scales[axis - 2] else None
        ratio = np.float32(1.0 / scale) if scale else np.float32(n) / np.float32(o)
        place = np.arange(o, dtype=np.float32) + (np.float32(0.5) if exact else np.float32(0))
        index = np.minimum(np.floor(place * ratio).astype(np.int64), n - 1)
        x = jnp.take(x, index, axis=axis)
    return x


@row("aten.upsample_nearest2d.default", "aten.upsample_nearest2d.vec", supports=lambda *a, **k: False)
def upsample_nearest2d(x, size, *scales, out: Any = None):
    """Nearest-neighbour resampling; Inductor decomposes it, so this row only documents the fallback."""
    return cast(_nearest(x, scales, out, False), x.dtype)
