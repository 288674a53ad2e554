"""The TPU dialect: a grid of blocks that Pallas pipelines from HBM to VMEM.

Input: a `Schedule` and the chip. Output: a `Module` whose entry takes arrays of the views' shapes. Law: `blocks.py`
chooses sizes, `operands.py` writes accesses, `loops.py` loops, `text.py` the module around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.access import Memory, Slice, View
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.emit.refusals import atomic_refused, order_refused
from frontend_triton_compat.emit.tpu import sums
from frontend_triton_compat.emit.tpu.blocks import Blocks, choose
from frontend_triton_compat.emit.tpu.picked import rows_instead
from frontend_triton_compat.emit.tpu.steered import Steered
from frontend_triton_compat.emit.tpu.text import Text
from frontend_triton_compat.forms import Var
from frontend_triton_compat.holding import narrow
from frontend_triton_compat.ir import Kernel, Op
from frontend_triton_compat.schedule import Schedule, is_steered, schedule
from frontend_triton_compat.types import dtype
from pallas_core.targets.tpu import CHIPS

#: Chips whose compiler takes minutes for loops that are written out for every step.
_SLOW_WITH_BRANCHES = ("7x",)


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

    def refuse(self, op: Op) -> Diagnostic:
        """Whatever a TPU's core does not do."""
        return error("tpu-not-translated", f"{op.kind} is not translated for a TPU", where=op.where)

    def dot_precision(self, op: Op) -> str:
        """fp32 operands: full precision, as the CPU gives it."""
        if op.operands[0].type.element.primitive_bitwidth == 32 and op.operands[0].type.element.is_floating():
            return ", precision=lax.Precision.HIGHEST"
        return ""

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


class SteeredEmitter(TpuEmitter, Steered):
    """Statements of one program whose scalars are numbers."""


#: Diagnostics that say of a grid of blocks that loaded numbers decide too much for it, or may be due to that.
STEERED_BY = ("access-not-tiled", "indirect-access", "run-time-trips", "tpu-not-translated", "tpu-unaligned-slice")


def steered(kernel: Kernel, memories: Mapping[str, Memory], aliases: Mapping[str, tuple[str, int]]) -> bool:
    """Whether loaded numbers steer a kernel."""
    return is_steered(schedule(kernel, memories, aliases=aliases))


def emit_steered(plan: Schedule, chip: str) -> Module:
    """The TPU module of a kernel that loaded numbers steer, scheduled for that."""
    for op in plan.accesses:
        if op.kind == "atomic":
            raise atomic_refused(op, "tpu")
    if not plan.ordered:
        raise order_refused(plan, "tpu")
    narrow(plan)
    limit = CHIPS[chip].kernel_vmem_bytes
    programs = [v for v in plan.affine.programs if v is not None and v.serial]
    if all(not a.op.operands[0].shape and all(v.serial for v in a.form.vars) for a in plan.accesses.values()):
        return SteeredEmitter(plan, Blocks({}, (), None), limit).module()
    for var in programs:
        var.serial = False
    blocks = Blocks(dict.fromkeys(programs, 1), tuple(programs), None, frozenset(programs))
    return SteeredEmitter(plan, blocks, limit).module()


def emit(plan: Schedule, chip: str) -> Module:
    """The TPU module of a scheduled kernel for one chip (``v5e``, ...)."""
    if (more := sums.refused(plan)) is not None:
        raise more
    if plan.ordered:
        raise order_refused(plan, "tpu")
    narrow(plan)
    try:
        return _blocked(plan, chip)
    except Diagnostic:
        for op in plan.accesses:
            if op.kind == "atomic":  # its rewrite says more than what the sum failed at
                raise atomic_refused(op, "tpu", plan) from None
        raise


def _blocked(plan: Schedule, chip: str) -> Module:
    """The module of a kernel over a grid of blocks."""
    plan.picked = rows_instead(plan)
    before = {p: dataclasses.replace(view) for p, view in plan.views.items()}
    for param, view in plan.views.items():
        _blocks_reach_past(plan, param, view)
    try:
        return _emitter(plan, chip).module()
    except Diagnostic:
        if not plan.reach:
            raise
    plan.views.update(before)  # some access is no block even so: XLA makes room at the end
    plan.reach.clear()
    return _emitter(plan, chip).module()


def _emitter(plan: Schedule, chip: str) -> TpuEmitter:
    emitter = TpuEmitter(plan, choose(plan, chip), CHIPS[chip].kernel_vmem_bytes)
    emitter.branched = chip not in _SLOW_WITH_BRANCHES
    return emitter


def _blocks_reach_past(plan: Schedule, param: str, view: View) -> None:
    """Where masked lanes run over the end of a dimension, blocks do, as they do at every ragged edge: no copy is made.

    The view then is what the memory is, and `plan.reach` says how far the lanes go.
    """
    windows = [plan.windows[a.op] for a in plan.accesses.values() if a.param == param]
    plain = all(w is not None and all(_one_block(s) for s in w.slices) for w in windows)
    if not plain or view.pad[0] or (view.pad == (0, 0) and not view.widened):
        return
    short = view.pad[1] // view.strides[0]
    if view.pad[1] % view.strides[0] or short >= view.shape[0] or (len(view.shape) == 1 and short):
        return
    for i, width in enumerate(view.widths):
        plan.reach[param, i] = width
    view.shape, view.pad = (view.shape[0] - short, *view.shape[1:]), (0, 0)
    view.widths = view.shape


def _one_block(piece: Slice) -> bool:
    """Whether a block can hold what an access touches of a dimension: one variable of lanes, loops and programs."""
    lanes = [s for v, s in piece.steps.items() if not v.serial and v.kind in ("axis", "fused")]
    return not piece.opaques and len(lanes) <= 1 and all(s == 1 for s in lanes)
