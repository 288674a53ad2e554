"""Fused regions as Pallas kernels.

Input: an emitted kernel function over Refs and what it writes. Output: a function on arrays. Law: on the CPU target a
kernel has no grid: one program over whole arrays, which XLA compiles as well as it compiles plain array code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import pallas as pl

from inductor_backend.ops import Out


def pallas(kernel: Callable[..., None], outs: Sequence[Out]) -> Callable[..., Sequence[Any]]:
    """A Pallas call of one program on the CPU target, whose Refs are whole arrays.

    Args:
        kernel: writes its outputs through the last `len(outs)` Refs.
        outs: shapes in elements and dtypes of what it writes.
    """
    shapes = [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in outs]
    return pl.pallas_call(kernel, out_shape=shapes, interpret=True, name=kernel.__name__)
