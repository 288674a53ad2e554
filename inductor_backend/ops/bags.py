"""Bags of embeddings: sums, means and maxima of table rows, and their gradients.

Input: a table, indices, and where every bag begins. Output: what ATen returns, the bookkeeping in the shapes that the
graph was traced with. Law: a bag of nothing is 0; `padding_idx` counts for nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from inductor_backend.ops import whole
from inductor_backend.ops.table import row

lax = jax.lax
SUM, MEAN, MAX = 0, 1, 2


def _bags(indices, offsets, count: int, padding_idx: int):
    """(bag of every index, whether it counts)."""
    place = jnp.arange(indices.shape[0])
    bag = jnp.searchsorted(offsets[:count], place, side="right") - 1
    inside = bag >= 0
    if offsets.shape[0] > count:
        inside &= place < offsets[count]
    if padding_idx >= 0:
        inside &= indices != padding_idx
    return bag, inside


def _supported(weight, indices, offsets, *rest, **kw):
    return indices.dim() == 1 and weight.is_floating_point() and offsets.numel() > 0 and weight.numel() > 0


def _bag_rows(weight, indices, *rest, **kw):
    return [(indices, 0, False)]


@row(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    supports=_supported,
    bounds=_bag_rows,
    grows=whole.BAG,
)
def embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=-1, out: Any = None,
):  # fmt: skip
    """(the bags, bag of every index, sizes, where each maximum came from)."""
    count, width = out[0].shape
    padding_idx = padding_idx + weight.shape[0] if padding_idx < -1 else padding_idx
    bag, inside = _bags(indices, offsets, count, padding_idx)
    target = jnp.where(inside, bag, count)
    rows = weight.at[indices].get(mode="clip")
    wide = jnp.float32 if weight.dtype in (jnp.bfloat16, jnp.float16) else weight.dtype
    sizes = jnp.zeros(count, jnp.int64).at[target].add(1, mode="drop")
    maxima = jnp.zeros(out[3].shape, out[3].dtype)
    if mode == MAX:
        best = jnp.full((count, width), -jnp.inf, wide).at[target].max(rows.astype(wide), mode="drop")
        hole = jnp.zeros((count, width), bool).at[target].max(rows != rows, mode="drop")
        best = jnp.where(hole, jnp.nan, best)
        mine = best[jnp.clip(bag, 0, count - 1)]
        place = lax.broadcasted_iota(jnp.int64, rows.shape, 0)
        hit = (rows.astype(wide) == mine) | (rows != rows)
        last = jnp.iinfo(place.dtype).max
        first = jnp.full((count, width), last).at[target].min(jnp.where(hit, place, last), mode="drop")
        chosen = indices[jnp.clip(first, 0, indices.shape[0] - 1)]
        maxima = jnp.where(first == last, 0, chosen).astype(out[3].dtype)
        value = jnp.where(sizes[:, None] == 0, 0, best)
    else:
        rows = rows.astype(wide)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.astype(wide)[:, None]
        value = jnp.zeros((count, width), wide).at[target].add(rows, mode="drop")
        if mode == MEAN:
            value = value / jnp.maximum(sizes, 1)[:, None].astype(wide)
    kept = jnp.zeros(0, out[1].dtype) if out[1].shape == (0,) else bag.astype(out[1].dtype)
    told = jnp.zeros(count, jnp.int64) if mode == SUM else sizes
    told = jnp.pad(told, (0, out[2].shape[0] - count)).astype(out[2].dtype)
    if mode == MEAN and out[3].shape == told.shape:
        maxima = told.astype(out[3].dtype)
    return value.astype(out[0].dtype), kept, told, maxima


def _bag_gradient(grad, indices, bag, inside, sizes, maxima, count, scale, mode, weights, out):
    wide = jnp.float32 if grad.dtype in (jnp.bfloat16, jnp.float16) else grad.dtype
    table, grad = jnp.zeros(out.shape, wide), grad.astype(wide)
    if mode == MAX:
        full = jnp.where((sizes == 0)[:, None], out.shape[0], maxima)
        columns = lax.broadcasted_iota(jnp.int32, full.shape, 1)
        return table.at[full, columns].add(grad, mode="drop").astype(out.dtype)
    rows = grad[jnp.clip(bag, 0, count - 1)]
    if mode == MEAN:
        rows = rows / jnp.maximum(sizes, 1)[jnp.clip(bag, 0, count - 1), None].astype(wide)
    if weights is not None:
        rows = rows * weights.astype(wide)[:, None]
    target = jnp.where(inside, indices, out.shape[0])
    if scale:
        often = jnp.zeros(out.shape[0], jnp.int64).at[indices].add(1, mode="drop")
        rows = rows / jnp.maximum(often, 1)[indices][:, None].astype(wide)
    return table.at[target].add(rows, mode="drop").astype(out.dtype)


@row(
    "aten._embedding_bag_backward.default",
    supports=lambda grad, i, offsets, a, b, c, n, scale, mode, sparse, *rest: not sparse and offsets.numel() > 0,
)
def embedding_bag_backward(
    grad, indices, offsets, offset2bag, bag_size, maxima, num_weights, scale_grad_by_freq, mode, sparse,
    per_sample_weights=None, padding_idx=-1, out: Any = None,
):  # fmt: skip
    """The table's gradient."""
    count = grad.shape[0]
    bag, inside = _bags(indices, offsets, count, padding_idx)
    target = jnp.where(inside, bag, count)
    sizes = jnp.zeros(count, jnp.int64).at[target].add(1, mode="drop")
    return _bag_gradient(
        grad, indices, bag, inside, sizes, maxima, count, scale_grad_by_freq, mode, per_sample_weights, out
    )


@row(
    "aten._embedding_bag_per_sample_weights_backward.default",
    supports=lambda g, w, i, offsets, *rest: offsets.numel() > 0,
)
def embedding_bag_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx=-1):
    """The gradient of the weights of the samples: how far each row lies along the bag's gradient."""
    bag, inside = _bags(indices, offsets, grad.shape[0], padding_idx)
    wide = jnp.float32 if grad.dtype in (jnp.bfloat16, jnp.float16) else grad.dtype
    rows, along = weight.at[indices].get(mode="clip").astype(wide), grad[jnp.clip(bag, 0, grad.shape[0] - 1)]
    return jnp.where(inside, jnp.sum(rows * along.astype(wide), 1), 0).astype(grad.dtype)
