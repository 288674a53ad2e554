"""Refs and the memory they live in.

A kernel receives one `Ref` an operand: ``x_ref[...]`` loads, ``o_ref[...] = v`` stores, ``pc.ds(start, size)`` slices.
`VMEM`, `SMEM`, `ANY`, `HBM` and `SEMAPHORE` name memory: as ``memory_space=`` of a `BlockSpec`, and called with a shape
and a dtype (``pc.VMEM((8, 128), jnp.float32)``, torch dtypes too) as a scratch buffer.
"""

from __future__ import annotations

from typing import Any

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_core.shapes import dims_of, dtype_of


class MemorySpace:
    """One kind of memory.

    As ``memory_space=`` of a `BlockSpec` it says where an operand's block lives; called, it makes a scratch buffer.

    Attributes:
        name: ``"VMEM"`` ...
        space: jax's own object.
    """

    def __init__(self, name: str, space: Any):
        self.name, self.space = name, space

    def __call__(self, shape: Any, dtype: Any) -> Any:
        """A scratch buffer in this memory.

        Args:
            shape: an int or a sequence of ints.
            dtype: torch, jax or numpy dtype.

        Raises:
            Diagnostic: ``bad-argument`` for an unknown dtype, or for what is no shape.
        """
        return self.space(dims_of(shape), dtype_of(dtype))

    def __repr__(self) -> str:
        return f"pc.{self.name}"

    def __eq__(self, other: object) -> bool:
        return self.space == (other.space if isinstance(other, MemorySpace) else other)

    def __hash__(self) -> int:
        return hash(self.space)


VMEM = MemorySpace("VMEM", pltpu.VMEM)
SMEM = MemorySpace("SMEM", pltpu.SMEM)
HBM = MemorySpace("HBM", pltpu.HBM)
ANY = MemorySpace("ANY", pl.ANY)
SEMAPHORE = MemorySpace("SEMAPHORE", pltpu.SEMAPHORE)
#: Kinds of semaphore for scratch: ``pc.SemaphoreType.DMA``, ``pc.SemaphoreType.DMA((2,))``.
SemaphoreType = pltpu.SemaphoreType

ds = pl.ds
multiple_of = pl.multiple_of
#: What a kernel receives; for annotations.
Ref = Any
