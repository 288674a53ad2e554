"""What is known of NVIDIA GPUs through Mosaic GPU: limits, figures and operations that never lower, as data.

The limits are those of jax 0.10.2 and 0.12, found by compiling one-operation kernels; nothing was run on a GPU. Peaks
and bandwidths are the vendor's published figures of the SXM boards.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Threads of a warpgroup: what one Mosaic GPU program is.
WARPGROUP = 128


@dataclass(frozen=True)
class GpuChip:
    """One GPU architecture.

    Attributes:
        name: as in a target string.
        capability: compute capability, as the compiler spells it.
        board: the board whose figures are used.
        multiprocessors: streaming multiprocessors of the board.
        clock_ghz: boost clock.
        peak_flops: dense bf16 matrix operations a second.
        hbm_bytes_per_s: bandwidth of its memory.
        memory_bytes: size of its memory.
        l2_bytes: size of its L2 cache.
        smem_bytes: shared memory one block may use.
        tma_dim: largest extent of a copied block's dimension.
        tma_align: a copied block's bytes are a multiple of this, and so are strides of 16 bytes.
        matmul: the matrix instruction its kernels use.
        layout: the register layout that its matrix results have.
    """

    name: str
    capability: str
    board: str
    multiprocessors: int
    clock_ghz: float
    peak_flops: float
    hbm_bytes_per_s: float
    memory_bytes: int
    l2_bytes: int
    smem_bytes: int = 232_448
    tma_dim: int = 256
    tma_align: int = 128
    matmul: str = "wgmma"
    layout: str = "WGMMA"


CHIPS = {
    chip.name: chip
    for chip in (
        GpuChip("sm90a", "9.0", "NVIDIA H100 80GB HBM3", 132, 1.98, 989e12, 3.35e12, 80 << 30, 50 << 20),
        GpuChip(
            "sm100a",
            "10.0",
            "NVIDIA B200",
            148,
            1.965,
            2250e12,
            8.0e12,
            180 << 30,
            126 << 20,
            matmul="tcgen05_mma",
            layout="TCGEN05",
        ),
    )
}
#: jax primitives without a Mosaic GPU lowering in any version tried, with what is accepted in their place.
SUBSTITUTES: dict[str, str] = {
    "dot_general": "`plgpu.wgmma` (sm_90a) or `plgpu.tcgen05_mma` (sm_100a) on tiles in shared memory",
    "transpose": "store the tile through `plgpu.transpose_ref`",
    "pad": "pad outside the kernel, where XLA runs it",
    "rev": "reverse outside the kernel",
    "dynamic_slice": "index the Ref itself: `x_ref[pl.ds(start, size)]`",
    "dynamic_update_slice": "store through the Ref itself",
    "cumsum": "a loop over chunks that carries the running sum, or the scan outside the kernel",
    "cumprod": "the scan outside the kernel",
    "cummax": "the scan outside the kernel",
    "cummin": "the scan outside the kernel",
    "cumlogsumexp": "the scan outside the kernel",
    "sort": "sort outside the kernel",
    "top_k": "repeat max and mask, or sort outside the kernel",
    "gather": "copy the row with an index from memory: `plgpu.copy_gmem_to_smem(x.at[i], ...)`",
    "scatter": "one store a program, at an index that the program loads",
    "scatter-add": "one store a program, at an index that the program loads",
    "argmax": "`min(where(x == max(x), iota, n))`",
    "argmin": "`min(where(x == min(x), iota, n))`",
    "reduce_and": "`min(where(p, 1, 0)) != 0`",
    "reduce_or": "`max(where(p, 1, 0)) != 0`",
    "reduce_prod": "a product has no lowering; sum logarithms, or reduce outside the kernel",
    "pow": "`exp2(y * log2(x))` for positive x",
    "floor": "convert to int32 and back",
    "ceil": "convert to int32 and back",
    "sqrt": "`x * rsqrt(x)`, with 0 where x is 0",
    "expm1": "`exp(x) - 1`",
    "log1p": "`log(1 + x)`",
    "cbrt": "`exp2(log2(x) / 3)` for positive x",
    "tan": "`sin(x) / cos(x)`",
    "sinh": "`(exp(x) - exp(-x)) / 2`",
    "cosh": "`(exp(x) + exp(-x)) / 2`",
    "asin": "compute it outside the kernel",
    "is_finite": "`abs(x) < inf`",
    "erf": "an approximation by exp, or `jax.nn.gelu(x, approximate=True)`",
    "erf_inv": "compute it outside the kernel",
    "lgamma": "compute it outside the kernel",
    "population_count": "compute it outside the kernel",
    "concatenate": "store the parts one after the other",
    "masked_load": "load the whole tile and select: `jnp.where(mask, x, other)`",
    "masked_swap": "store whole tiles",
    "rem": "`x - trunc(x / y) * y` for floats",
    "atan2": "compute it outside the kernel",
}
REFUSED_DTYPES = {name: "Mosaic GPU has no such values" for name in ("float64", "complex64", "complex128")} | {
    "bool": "bool loads and stores don't lower; use int8"
}
