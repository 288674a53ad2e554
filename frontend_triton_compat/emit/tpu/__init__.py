"""The TPU dialect: a grid of blocks that Pallas pipelines from HBM to VMEM.

Input: a `Schedule` and the chip. Output: a `Module` whose entry takes arrays of the views' shapes. Law: `blocks.py`
chooses sizes, `operands.py` writes accesses, `loops.py` loops, `text.py` the module around them.
"""

from __future__ import annotations

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.emit.expr import Expr
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.emit.refusals import atomic_refused, combine_refused, order_refused
from frontend_triton_compat.emit.tpu.blocks import Blocks, choose
from frontend_triton_compat.emit.tpu.text import Text
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import dtype
from pallas_core.targets.tpu import CHIPS


class TpuEmitter(Text):
    """Statements over blocks."""

    target = "tpu"
    wide_int = "int32"

    def __init__(self, plan: Schedule, blocks: Blocks, vmem_limit: int):
        super().__init__(plan, blocks)
        self.vmem_limit = vmem_limit

    def extent(self, var: Var) -> int:
        """A block's share of a variable."""
        return self.blocks.sizes.get(var) or super().extent(var)

    def iota(self, var: Var, dtype_name: str) -> Expr:
        """A counter along lanes, moved by the grid step."""
        n = self.extent(var)
        code = f"lax.broadcasted_iota(jnp.{dtype_name}, (1, {n}), 1)"
        if var in self.blocks.grid and self.blocks.steps(var) > 1:
            code = f"{code} + pl.program_id({self.blocks.grid.index(var)}) * {n}"
        return Expr(code, (None, var))

    def refuse(self, op: Op) -> Diagnostic:
        """Atomics, and whatever else a TPU's core does not do."""
        if op.kind == "atomic":
            return atomic_refused(op, "tpu")
        return error("tpu-not-translated", f"{op.kind} is not translated for a TPU", where=op.where)

    def dot_precision(self, op: Op) -> str:
        """fp32 operands: full precision, as the CPU gives it."""
        if op.operands[0].type.element.primitive_bitwidth == 32 and op.operands[0].type.element.is_floating():
            return ", precision=lax.Precision.HIGHEST"
        return ""

    def each(self, op: Op) -> None:
        """Scalar functions of the kernel's author."""
        raise combine_refused(op)

    reduce_by = scan_by = each

    def check_types(self, op: Op) -> None:
        """Refuse 64-bit values that are data."""
        for value in op.results:
            element = value.type.element
            live = value in self.plan.demand.live and value not in self.plan.demand.indexed
            if live and isinstance(element, dtype) and element.primitive_bitwidth == 64:
                raise error(
                    "tpu-dtype",
                    f"{element} values on a TPU",
                    where=op.where,
                    why="a TPU core has no 64-bit registers; the compiler refuses every 64-bit value",
                    do="hold the tensor as 32 bits, or convert with .to(tl.int32) before the arithmetic",
                )
        for region in op.regions:
            for inner in region.ops:
                self.check_types(inner)


def emit(plan: Schedule, chip: str) -> Module:
    """The TPU module of a scheduled kernel for one chip (``v5e``, ...)."""
    for op in plan.accesses:
        if op.kind == "atomic":  # whatever its offsets: no block would help
            raise atomic_refused(op, "tpu")
    if plan.ordered:
        raise order_refused(plan, "tpu")
    # The compiler's default limit is a fraction of what the chip has; an eighth is left to it.
    limit = CHIPS[chip].vmem_bytes // 8 * 7
    return TpuEmitter(plan, choose(plan, chip), limit).module()
