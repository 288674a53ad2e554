"""What is known of NVIDIA GPUs through Mosaic GPU: limits and operations that never lower, as data.

Not wired to a compiler yet: `pc.targets()` lists the chips as known, and `compile_for` says what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuChip:
    """One GPU architecture.

    Attributes:
        name: as in a target string.
        smem_bytes: shared memory one block may use.
        tma_dim: largest extent of a copied block's dimension.
        tma_align: a copied block's bytes are a multiple of this.
        matmul: the matrix instruction its kernels use.
    """

    name: str
    smem_bytes: int = 232_448
    tma_dim: int = 256
    tma_align: int = 128
    matmul: str = "wgmma"


CHIPS = {chip.name: chip for chip in (GpuChip("sm90a"), GpuChip("sm100a", matmul="tcgen05_mma"))}
#: jax primitives without a Mosaic GPU lowering in any version tried.
REFUSED_OPS = frozenset(
    "dot_general transpose pad rev dynamic_slice cumsum cumprod cummax sort top_k gather scatter argmax argmin "
    "reduce_and reduce_or pow floor ceil expm1 log1p cbrt tan sinh asin is_finite "
    "erf_inv lgamma population_count".split()
)
REFUSED_DTYPES = {name: "Mosaic GPU has no such values" for name in ("float64", "complex64", "complex128")} | {
    "bool": "bool loads and stores don't lower; use int8"
}
