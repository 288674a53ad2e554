"""Rows of scans, and the functions that apply the kernel author's own combinations.

Law: a scan's code keeps its operand's shape and dtype; ``{axis}`` is the dimension, ``{reverse}`` says from which end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frontend_triton_compat.language import functions_tiles as _functions  # noqa: F401 - what the rows call
from frontend_triton_compat.language.table import HELPERS, Row, register

# Running sums and products of long rows go block by block, of short rows above each other row by row: jax's own form
# is several times slower. Blocks of 32 floats are summed by a product with a triangle of ones; an infinity times the
# zeros of the triangle would be NaN, and the sum of everything tells whether there is one. Elsewhere the block is
# spread into a square of which one half counts.
HELPERS.setdefault("running_sum", {})["cpu"] = '''
def running_sum(x, axis, reverse):
    """Running sum; of 16-bit floats in 32 bits."""
    if x.dtype in (jnp.float16, jnp.bfloat16):
        return running_sum(x.astype(jnp.float32), axis, reverse).astype(x.dtype)
    n, rows = x.shape[axis], 1
    for m in x.shape[axis + 1 :]:
        rows *= m
    plain = lambda: lax.cumsum(x, axis, reverse)
    if x.size < 65536 or (rows > 1 and (rows < 64 or n > 65536)) or (rows == 1 and n % 32):
        return plain()
    if rows > 1:

        def step(before, now):
            return before + now, before + now

        moved = jnp.moveaxis(x, axis, 0)
        return jnp.moveaxis(lax.scan(step, jnp.zeros(moved.shape[1:], x.dtype), moved, reverse=reverse)[1], 0, axis)
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    size = 32 if floats else 16
    half = jnp.tril(jnp.ones((size, size), jnp.bool_))
    half = half.T if reverse else half

    def by_blocks():
        blocks = x.reshape(*x.shape[:axis], n // size, size)
        if floats:
            inside = lax.dot_general(blocks, half.T.astype(x.dtype), (((blocks.ndim - 1,), (0,)), ((), ())))
        else:
            inside = jnp.sum(jnp.where(half, blocks[..., None, :], 0), -1, dtype=x.dtype)
        totals = inside[..., 0] if reverse else inside[..., -1]
        before = lax.cumsum(totals, axis, reverse) - totals
        return (inside + before[..., None]).reshape(x.shape)

    return lax.cond(jnp.isfinite(jnp.sum(x)), by_blocks, plain) if floats else by_blocks()
'''
HELPERS.setdefault("running_product", {})["cpu"] = '''
def running_product(x, axis, reverse):
    """Running product; of 16-bit floats in 32 bits."""
    if x.dtype in (jnp.float16, jnp.bfloat16):
        return running_product(x.astype(jnp.float32), axis, reverse).astype(x.dtype)
    n, rows = x.shape[axis], 1
    for m in x.shape[axis + 1 :]:
        rows *= m
    if x.size < 65536 or (rows > 1 and (rows < 64 or n > 65536)) or (rows == 1 and n % 16):
        return lax.cumprod(x, axis, reverse)
    if rows > 1:

        def step(before, now):
            return before * now, before * now

        moved = jnp.moveaxis(x, axis, 0)
        return jnp.moveaxis(lax.scan(step, jnp.ones(moved.shape[1:], x.dtype), moved, reverse=reverse)[1], 0, axis)
    half = jnp.tril(jnp.ones((16, 16), jnp.bool_))
    blocks = x.reshape(*x.shape[:axis], n // 16, 16)
    half = half.T if reverse else half
    inside = jnp.prod(jnp.where(half, blocks[..., None, :], 1), -1, dtype=x.dtype)
    totals = lax.cumprod(inside[..., 0] if reverse else inside[..., -1], axis, reverse)
    one = jnp.ones((*totals.shape[:-1], 1), x.dtype)
    before = [totals[..., 1:], one] if reverse else [one, totals[..., :-1]]
    return (inside * jnp.concatenate(before, -1)[..., None]).reshape(x.shape)
'''


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
        targets={t: "running_sum({0}, {axis}, {reverse})" for t in ("cpu", "tpu")},
        reference=_scan(lambda x, axis: np.cumsum(x, axis, dtype=x.dtype)),
        doc="running sum",
    ),
    Row(
        "cumprod",
        "scan",
        "(jnp.flip(jnp.cumprod(jnp.flip({0}, {axis}), {axis}, dtype={0}.dtype), {axis}) if {reverse}"
        " else jnp.cumprod({0}, {axis}, dtype={0}.dtype))",
        targets={
            "cpu": "running_product({0}, {axis}, {reverse})",
            "tpu": "running(lambda a, b: a * b, {0}, {axis}, {reverse})",
        },
        reference=_scan(lambda x, axis: np.cumprod(x, axis, dtype=x.dtype)),
        doc="running product",
    ),
    Row(
        "cummax",
        "scan",
        "lax.cummax({0}, {axis}, {reverse})",
        targets={
            "tpu": "running(jnp.maximum, {0}, {axis}, {reverse})",
            "tpu:uint": "running(lambda a, b: jnp.where(a < b, b, a), {0}, {axis}, {reverse})",
        },
        reference=_scan(np.maximum.accumulate),
        doc="running maximum",
    ),
    Row(
        "cummin",
        "scan",
        "lax.cummin({0}, {axis}, {reverse})",
        targets={
            "tpu": "running(jnp.minimum, {0}, {axis}, {reverse})",
            "tpu:uint": "running(lambda a, b: jnp.where(a > b, b, a), {0}, {axis}, {reverse})",
        },
        reference=_scan(np.minimum.accumulate),
        doc="running minimum",
    ),
)

# The kernel author's combine functions work on scalars; neighbours are combined first, so that their order is kept.
HELPERS.setdefault("reduce_by", {})["cpu"] = '''
def reduce_by(combine, tiles, axis):
    """Tiles combined along an axis until one element of each is left."""
    tiles, combine = jnp.broadcast_arrays(*tiles), jnp.vectorize(combine)
    part = lambda t, start, stop, step: lax.slice_in_dim(t, start, stop, step, axis)
    while (n := tiles[0].shape[axis]) > 1:
        pairs = [*(part(t, 0, n - n % 2, 2) for t in tiles), *(part(t, 1, n, 2) for t in tiles)]
        found = combine(*pairs)
        found = found if isinstance(found, tuple) else (found,)
        if n % 2:
            found = tuple(jnp.concatenate([f, part(t, n - 1, n, 1)], axis) for t, f in zip(tiles, found))
        tiles = found
    return tiles
'''
HELPERS.setdefault("scan_by", {})["cpu"] = '''
def scan_by(combine, tiles, axis, reverse):
    """Running combination of tiles along an axis: row by row where rows are long, else by halves."""
    tiles, combine = jnp.broadcast_arrays(*tiles), jnp.vectorize(combine)
    shape, several = tiles[0].shape, len(tiles) > 1
    both = lambda a, b: combine(*a, *b) if several else (combine(*a, *b),)
    rows = 1
    for n in shape[axis + 1 :]:
        rows *= n
    if rows < 64:
        return tuple(lax.associative_scan(both, tuple(tiles), reverse, axis))
    tiles = tuple(jnp.moveaxis(t, axis, 0) for t in tiles)

    def step(before, now):
        found = both(before, now)
        return found, found

    first = tuple(t[-1] if reverse else t[0] for t in tiles)
    rest = tuple(t[:-1] if reverse else t[1:] for t in tiles)
    found = lax.scan(step, first, rest, reverse=reverse)[1]
    ends = [(f, o[None]) if reverse else (o[None], f) for o, f in zip(first, found)]
    return tuple(jnp.moveaxis(jnp.concatenate(e, 0), 0, axis) for e in ends)
'''
