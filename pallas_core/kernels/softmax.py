"""Softmax over the last dimension: whole rows in VMEM, one pass through HBM.

Input: spec (or array) of the operand and a target. Output: a `PallasFunction`. Law: computed in float32 (float64 for
float64), the row's maximum subtracted first, rounded once at the end.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from bridge.devices import Target
from bridge.diagnostics import Where, error
from pallas_core import shapes
from pallas_core.call import compiler_params, pallas_call
from pallas_core.function import PallasFunction
from pallas_core.grid import BlockSpec

#: Bytes of a block, by chip: below about half of this, the cost of a grid step shows.
BLOCK_BYTES = {"v4": 1 << 20, "v5e": 1 << 20, "v5p": 1 << 20, "v6e": 2 << 20, "7x": 2 << 20}


def _kernel(x_ref, o_ref):
    x = x_ref[...]
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    power = jnp.exp(wide - jnp.max(wide, axis=-1, keepdims=True))
    o_ref[...] = (power / jnp.sum(power, axis=-1, keepdims=True)).astype(o_ref.dtype)


def softmax(x: Any, *, target: str | Target = "cpu", rows: int | None = None) -> PallasFunction:
    """The function ``softmax(x, -1)`` for an operand of this shape.

    Args:
        x: array, tensor or spec of shape (rows, columns).
        target: what it is for; on the CPU one step on the whole array.
        rows: rows of a block; from a table by chip when None.

    Returns:
        A `PallasFunction` of one argument.

    Raises:
        Diagnostic: ``operand-mismatch`` when `x` is not a matrix of floats.
    """
    one, target = shapes.like(x), Target.parse(target)
    if len(one.shape) != 2 or not jnp.issubdtype(one.dtype, jnp.floating):
        raise error(
            "operand-mismatch",
            f"softmax of {shapes.text(one)}",
            where=Where.caller(2),
            why="it takes a matrix of floats and normalises its rows.",
            do="reshape to (rows, columns) before, and back afterwards",
        )
    height, width = one.shape
    if target.kind == "cpu" and rows is None:
        return pallas_call(_kernel, out_shape=one, name="softmax")
    if rows is None:
        size = BLOCK_BYTES[target.chip or "v5e"] // max(1, width * max(4, one.dtype.itemsize))
        rows = height if height <= 8 else min(height, max(8, 1 << int(math.log2(max(size, 8)))))
    block = BlockSpec((rows, width), lambda i: (i, 0))
    return pallas_call(
        _kernel,
        out_shape=one,
        grid=(-(-height // rows),),
        in_specs=[block],
        out_specs=block,
        compiler_params=compiler_params(dimension_semantics=("parallel",)),
        target=target,
        name="softmax",
    )
