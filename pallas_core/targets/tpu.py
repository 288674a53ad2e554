"""What is known of each TPU: clock, peaks, bandwidths, memory sizes, dtypes and the block rule, as data.

Figures are per TensorCore. Sources: the vendor's published peak and bandwidth figures; the clock is the published peak
divided by the flops a cycle of the matrix units. The VMEM limit is what the offline compiler itself reports.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class TpuChip:
    """One TPU generation, per TensorCore.

    Attributes:
        name: as in a target string, ``"v5e"``.
        topology: the name the compiler's topology has.
        device_kind: the name jax gives the device.
        clock_hz: cycles a second.
        peak_flops: bf16 matrix operations a second.
        hbm_bytes_per_s: bandwidth of HBM.
        vmem_bytes: size of VMEM.
        scoped_vmem_bytes: what one kernel may use unless ``vmem_limit_bytes`` is raised.
        smem_bytes: size of SMEM.
        cores: TensorCores a chip.
        schedule_checked: whether the static schedule was compared with measured times.
    """

    name: str
    topology: str
    device_kind: str
    clock_hz: float
    peak_flops: float
    hbm_bytes_per_s: float
    vmem_bytes: int
    scoped_vmem_bytes: int
    smem_bytes: int = MIB
    cores: int = 1
    schedule_checked: bool = False

    @property
    def kernel_vmem_bytes(self) -> int:
        """What a kernel asks for: the default limit is a fraction of VMEM; an eighth is left to the compiler."""
        return self.vmem_bytes // 8 * 7


CHIPS: dict[str, TpuChip] = {
    chip.name: chip
    for chip in (
        TpuChip("v4", "v4:2x2x1", "TPU v4", 1.05e9, 137.5e12, 615e9, 16 * MIB, 16 * MIB, cores=2),
        TpuChip("v5e", "v5e:2x2", "TPU v5 lite", 1.5e9, 197e12, 819e9, 128 * MIB, 16 * MIB, schedule_checked=True),
        TpuChip("v5p", "v5p:2x2x1", "TPU v5", 1.75e9, 229.5e12, 1382e9, 64 * MIB, 16 * MIB, cores=2),
        TpuChip("v6e", "v6e:2x2", "TPU v6 lite", 1.75e9, 918e12, 1640e9, 128 * MIB, 32 * MIB),
        TpuChip("7x", "tpu7x:2x2x1", "TPU7x", 2.2e9, 1153.5e12, 3690e9, 64 * MIB, 32 * MIB, cores=2),
    )
}

LANES = 128
SUBLANES = 8
#: dtypes that a TPU kernel can't load, with the reason.
REFUSED_DTYPES: dict[str, str] = {
    **{name: "a TPU core has no 64-bit values" for name in ("int64", "uint64", "float64")},
    **{name: "Mosaic has no complex values" for name in ("complex64", "complex128")},
    "float16": "Mosaic refuses float16 at the load; bfloat16 is the TPU's 16-bit float",
}
#: What to use instead.
REPLACEMENTS = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "float16": "bfloat16",
    "complex64": "two float32 arrays",
    "complex128": "two float32 arrays",
}
#: jax primitives that Mosaic has no lowering for, with what is accepted in their place.
SUBSTITUTES: dict[str, str] = {
    "sort": "sort outside the kernel, or write a bitonic step with `pltpu.roll` and `jnp.where`",
    "cumsum": "multiply by a triangular matrix of ones (`jnp.triu`), or a log-step scan with `pltpu.roll`",
    "cumprod": "a log-step scan with `pltpu.roll`",
    "cummax": "a log-step scan with `pltpu.roll` and `jnp.maximum`",
    "cummin": "a log-step scan with `pltpu.roll` and `jnp.minimum`",
    "cumlogsumexp": "a log-step scan with `pltpu.roll`",
    "expm1": "`jnp.exp(x) - 1` (less exact near 0)",
    "sinh": "`(jnp.exp(x) - jnp.exp(-x)) / 2`",
    "cosh": "`(jnp.exp(x) + jnp.exp(-x)) / 2`",
    "erfc": "`1 - jax.lax.erf(x)`",
    "cbrt": "`jnp.sign(x) * jnp.exp(jnp.log(jnp.abs(x)) / 3)`",
    "scatter": "a one-hot matmul, or a loop over rows with scalar indices in SMEM",
    "scatter-add": "a one-hot matmul, or a loop over rows with scalar indices in SMEM",
    "gather": "a one-hot matmul, a loop over rows with indices in SMEM, or `take_along_axis` within one (8, 128) tile",
    "dynamic_slice": "index the Ref itself: `x_ref[pc.ds(start, size)]`",
    "dynamic_update_slice": "store through the Ref itself: `o_ref[pc.ds(start, size)] = ...`",
    "rev": "reverse in the index map, or multiply by an anti-diagonal matrix",
    "reduce_prod": "`jnp.exp(jnp.sum(jnp.log(x)))` for positive values, or a loop",
    "scan": "`jax.lax.fori_loop` with the arrays read from Refs inside the body",
    "top_k": "repeat max and mask, or sort outside the kernel",
}
