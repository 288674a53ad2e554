"""How much VMEM a kernel needs, operand by operand, before anything is compiled.

Input: a described `pallas_call` and a chip. Output: `Budget`: bytes per operand with padding and double buffering, the
sum, the limit, and a ``vmem-budget`` diagnostic when it can't fit. Law: the estimate is a lower bound (the kernel's own
temporaries come on top), so a refusal is certain and a pass is not; only scratch that is never read is counted though
the compiler drops it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bridge.diagnostics import Diagnostic, Where, error
from pallas_core import compat
from pallas_core.targets.tpu import LANES, MIB, SUBLANES, TpuChip


@dataclass(frozen=True)
class OperandBytes:
    """VMEM of one operand.

    Attributes:
        name: as in the kernel's specs.
        kind: input, output or scratch.
        shape: of the block.
        dtype: its name.
        block_bytes: one block, padded to whole (8, 128) tiles.
        buffers: blocks held at a time: 2 when copies overlap with computing.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    block_bytes: int
    buffers: int

    @property
    def bytes(self) -> int:
        """All buffers together."""
        return self.block_bytes * self.buffers


@dataclass(frozen=True)
class Budget:
    """The VMEM estimate of one kernel on one chip.

    Attributes:
        kernel: its name.
        chip: ``v5e`` ...
        operands: one row an operand.
        limit: bytes a kernel may use.
        raised: whether the limit comes from ``vmem_limit_bytes``.
        where: the user's line.
    """

    kernel: str
    chip: str
    operands: tuple[OperandBytes, ...]
    limit: int
    raised: bool
    where: Where | None = field(default=None, repr=False)

    @property
    def bytes(self) -> int:
        """Bytes of all operands, a lower bound on what the kernel needs."""
        return sum(o.bytes for o in self.operands)

    @property
    def fits(self) -> bool:
        """Whether the lower bound is within the limit."""
        return self.bytes <= self.limit

    @property
    def diagnostic(self) -> Diagnostic | None:
        """``vmem-budget`` when it does not fit, else None."""
        if self.fits:
            return None
        largest = max(self.operands, key=lambda o: o.bytes)
        lines = [
            f"{o.kind} `{o.name}`: block {o.shape} {o.dtype} = "
            f"{_size(o.block_bytes)} x {o.buffers} buffers = {_size(o.bytes)}"
            for o in self.operands
        ]
        limit = f"{_size(self.limit)}" + (" (vmem_limit_bytes)" if self.raised else f" (the default on {self.chip})")
        do = [f"make the block of `{largest.name}` smaller: more grid steps, fewer rows each"]
        if not self.raised:
            do.append("raise the limit: compiler_params=pc.compiler_params(vmem_limit_bytes=...)")
        return error(
            "vmem-budget",
            f"`{self.kernel}` needs {_size(self.bytes)} of VMEM for its blocks; {self.chip} gives {_size(self.limit)}",
            where=self.where,
            why="blocks are double buffered, so that copies overlap with computing.\n"
            + "\n".join(lines)
            + f"\nsum {_size(self.bytes)}, limit {limit}; temporaries come on top.",
            do=do,
        )

    def __str__(self) -> str:
        rows = [f"{'operand':24s} {'block':>20s} {'dtype':>10s} {'buffers':>8s} {'bytes':>12s}"]
        for o in self.operands:
            rows.append(f"{o.kind + ' ' + o.name:24s} {o.shape!s:>20s} {o.dtype:>10s} {o.buffers:8d} {o.bytes:12d}")
        verdict = "fits" if self.fits else "does not fit"
        rows.append(f"{self.kernel} on {self.chip}: {self.bytes} of {self.limit} bytes, {verdict} (lower bound)")
        return "\n".join(rows)


def _size(count: int) -> str:
    return f"{count / MIB:.4g} MiB" if count >= MIB // 16 else f"{count / 1024:.4g} KiB"


def padded_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """Bytes of a block in VMEM: its last two dimensions are padded to whole tiles.

    Args:
        shape: of the block, squeezed dimensions removed or 1.
        itemsize: bytes an element.
    """
    packing = max(1, 4 // itemsize)
    if not shape:
        return SUBLANES * LANES * 4
    if len(shape) == 1:
        tile = LANES * packing
        return math.ceil(shape[0] / tile) * tile * itemsize
    rows, lanes = shape[-2:]
    # one or a few rows are laid out in smaller tiles (down to one packed sublane): rounding to those keeps this a bound
    sublanes = min(SUBLANES * packing, max(packing, 1 << (rows - 1).bit_length())) if rows else packing
    return math.prod(shape[:-2]) * math.ceil(rows / sublanes) * sublanes * math.ceil(lanes / LANES) * LANES * itemsize


def of_call(call: compat.PallasCall, chip: TpuChip) -> Budget:
    """The budget of a described `pallas_call` on a chip."""
    steps = math.prod(g or 1 for g in call.grid)
    pipelined = steps > 1 or any(g is None for g in call.grid)
    rows: list[OperandBytes] = []
    for operand in call.of_kind("input", "output", "scratch"):
        if operand.memory_space not in ("vmem", "default", "none") or operand.dtype is None:
            continue
        shape = tuple(d for d, squeezed in zip(operand.block_shape, operand.squeezed) if not squeezed)
        buffers = operand.buffers or (2 if pipelined and operand.kind != "scratch" else 1)
        itemsize = 4 if operand.dtype.kind == "b" else operand.dtype.itemsize
        rows.append(
            OperandBytes(
                operand.name,
                operand.kind,
                operand.block_shape,
                str(operand.dtype),
                padded_bytes(shape, itemsize),
                buffers,
            )
        )
    limit = call.vmem_limit or chip.scoped_vmem_bytes
    return Budget(call.name, chip.name, tuple(rows), limit, call.vmem_limit is not None, call.where)
