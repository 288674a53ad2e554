"""Matrix product: tiles of the result stay in VMEM while K is swept.

Input: specs (or arrays) of both operands and a target. Output: a `PallasFunction`. Law: products are summed in float32
(int32 for int8) and rounded once at the end.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from bridge.devices import Target
from bridge.diagnostics import Where, error
from pallas_core import shapes
from pallas_core.call import compiler_params, pallas_call
from pallas_core.function import PallasFunction
from pallas_core.grid import BlockSpec
from pallas_core.refs import VMEM

#: (rows, K, columns) of a tile for 16-bit operands, by chip: the best found with the static schedule at 4096 cubed.
BLOCKS = {
    "v4": (512, 1024, 1024),
    "v5e": (512, 1024, 1024),
    "v5p": (512, 1024, 1024),
    "v6e": (2048, 512, 2048),
    "7x": (2048, 512, 2048),
}
#: VMEM the larger tiles need.
VMEM_LIMIT = {"v6e": 100 << 20, "7x": 60 << 20}


def _kernel(x_ref, y_ref, o_ref, sum_ref):
    @pl.when(pl.program_id(2) == 0)
    def _first():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    sum_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=sum_ref.dtype)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _last():
        o_ref[...] = sum_ref[...].astype(o_ref.dtype)


def _whole_kernel(x_ref, y_ref, o_ref):
    kind = jnp.int32 if jnp.issubdtype(x_ref.dtype, jnp.integer) else jnp.promote_types(x_ref.dtype, jnp.float32)
    o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=kind).astype(o_ref.dtype)


def matmul(
    x: Any, y: Any, *, target: str | Target = "cpu", blocks: tuple[int, int, int] | None = None, out_dtype: Any = None
):
    """The function ``x @ y`` for operands of these shapes.

    Args:
        x: array, tensor or spec of shape (M, K).
        y: of shape (K, N).
        target: what it is for; on the CPU one step on whole arrays.
        blocks: (rows, K, columns) of a tile; from a table by chip when None. They must divide the shape.
        out_dtype: of the result; that of `x` when None.

    Returns:
        A `PallasFunction` of two arguments.

    Raises:
        Diagnostic: ``operand-mismatch`` for shapes that don't multiply, ``bad-argument`` for blocks that don't divide.
    """
    left, right, where = shapes.like(x), shapes.like(y), Where.caller(2)
    target = Target.parse(target)
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0] or left.dtype != right.dtype:
        raise error(
            "operand-mismatch",
            f"{shapes.text(left)} @ {shapes.text(right)}",
            where=where,
            why="a matrix product needs shapes (M, K) and (K, N) of one dtype.",
            do="transpose, batch or convert before",
        )
    (m, k), n = left.shape, right.shape[1]
    out = shapes.spec((m, n), out_dtype or left.dtype)
    if target.kind == "cpu" and blocks is None:
        return pallas_call(_whole_kernel, out_shape=out, name="matmul")
    tile = blocks or tuple(_divisor(size, most) for size, most in zip((m, k, n), BLOCKS[target.chip or "v5e"]))
    if any(size % b for size, b in zip((m, k, n), tile)):
        raise error(
            "bad-argument",
            f"blocks {tile} do not divide M, K, N = {(m, k, n)}",
            where=where,
            why="a ragged tile would add what lies outside the array.",
            do="choose divisors, or pad the operands with zeros",
        )
    return _tiled(tile, (m, k, n), out, left.dtype, target)


def _tiled(tile, sizes, out, dtype, target) -> PallasFunction:
    (bm, bk, bn), (m, k, n) = tile, sizes
    kind = np.int32 if np.dtype(dtype).kind in "iu" else np.float64 if str(dtype) == "float64" else np.float32
    return pallas_call(
        _kernel,
        out_shape=out,
        grid=(m // bm, n // bn, k // bk),
        in_specs=[BlockSpec((bm, bk), lambda i, j, step: (i, step)), BlockSpec((bk, bn), lambda i, j, step: (step, j))],
        out_specs=BlockSpec((bm, bn), lambda i, j, step: (i, j)),
        scratch_shapes=[VMEM((bm, bn), kind)],
        compiler_params=compiler_params(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=VMEM_LIMIT.get(target.chip or ""),
        ),
        target=target,
        name="matmul",
    )


def _divisor(size: int, most: int) -> int:
    """The largest block up to `most` that divides `size` and keeps to tiles of 128; `size` itself if there is none."""
    if size <= most:
        return size
    best = math.gcd(size, 128)
    if best < 128:
        return size
    return max(b for b in range(128, most + 1, 128) if size % b == 0)
