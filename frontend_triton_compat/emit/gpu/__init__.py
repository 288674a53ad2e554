"""The Mosaic GPU dialect: a grid of blocks, each one warpgroup, with tiles in shared memory and registers.

Input: a `Schedule` and the chip. Output: a `Module` whose entry takes arrays of the views' shapes. Law: `share.py` says
what a block takes, `dims.py` how dimensions meet, `operands.py` writes copies, `tiles.py` values, `dots.py`
contractions, `loops.py` loops, `text.py` the module around them.
"""

from __future__ import annotations

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.emit.expr import broadcasting
from frontend_triton_compat.emit.gpu.dims import Dimensions
from frontend_triton_compat.emit.gpu.share import share
from frontend_triton_compat.emit.gpu.text import Lean, Text
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.emit.refusals import atomic_refused, order_refused
from frontend_triton_compat.holding import narrow
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import dtype
from pallas_core.targets.mosaic_gpu import CHIPS


class GpuEmitter(Text):
    """Statements over tiles."""

    def refuse(self, op: Op) -> Diagnostic:
        """Atomics, and whatever else has no form."""
        if op.kind == "atomic":
            return atomic_refused(op, "gpu", self.plan)
        return error("gpu-not-translated", f"{op.kind} is not translated for a GPU", where=op.where)

    def check_types(self, op: Op) -> None:
        """Refuse 64-bit values that are data."""
        for value in op.results:
            element = value.type.element
            live = value in self.plan.demand.live and value not in self.plan.demand.indexed
            if live and isinstance(element, dtype) and element.primitive_bitwidth == 64:
                raise error(
                    "gpu-dtype",
                    f"{element} values on a GPU",
                    where=op.where,
                    why="the copies of Mosaic GPU know no 64-bit floats, and its index arithmetic has 32 bits",
                    do="hold the tensor as 32 bits, or convert with .to(tl.int32) before the arithmetic",
                )
        for region in op.regions:
            for inner in region.ops:
                self.check_types(inner)


def emit(plan: Schedule, chip: str) -> Module:
    """The Mosaic GPU module of a scheduled kernel for one chip (``sm90a``, ``sm100a``)."""
    for op in plan.accesses:
        if op.kind == "atomic":
            raise atomic_refused(op, "gpu", plan)
    if plan.ordered:
        raise order_refused(plan, "gpu")
    for view in plan.views.values():
        if view.pad != (0, 0):
            access = next(a for a in plan.accesses.values() if a.param == view.memory.param)
            raise error(
                "access-not-tiled",
                f"the {access.op.kind} on {access.param!r} reaches past the tensor",
                where=access.op.where,
                why="tiles are windows of the array; these offsets go beyond its memory, behind a mask",
                do="pass the tensor with its storage whole, or mask with offsets < size along each dimension",
            )
    try:
        narrow(plan)
    except Diagnostic as refused:
        why = "the index arithmetic of Mosaic GPU has 32 bits, and this number may need more"
        raise error("gpu-dtype", "64-bit integers on a GPU", where=refused.where, why=why, do=refused.do) from None
    found = share(plan, CHIPS[chip])
    for lean in (False, True):
        dimensions = Dimensions(found, 128 if found.dots and CHIPS[chip].matmul != "wgmma" else 64)
        token = broadcasting.set(dimensions)
        try:
            emitter = GpuEmitter(plan, found, dimensions, CHIPS[chip])
            emitter.lean = lean
            return emitter.module()
        except Lean:
            continue
        finally:
            broadcasting.reset(token)
    raise error("internal-error", "a kernel that fits no memory was not refused")
