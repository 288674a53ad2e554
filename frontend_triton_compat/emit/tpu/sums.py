"""Atomic additions that are sums over the grid: gradients of weights beside those of rows, losses beside gradients.

Input: an atomic addition whose old value nobody looks at and whose address follows from the program's numbers, in a
kernel whose other results decide the grid. Output: statements that add a step's part to a block that stays in VMEM.
Law: grid steps of a core run one after the other, and a block that comes back in consecutive steps keeps what it holds;
so the axes that the sum runs over are the innermost ones, and the block begins with the old values on their first step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bridge.diagnostics import Diagnostic
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.base import zero_of
from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, tight, union
from frontend_triton_compat.emit.refusals import atomic_refused
from frontend_triton_compat.emit.tpu.loops import Loops
from frontend_triton_compat.emit.updates import told_apart
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import FP32, INT32


def refused(plan: Schedule) -> Diagnostic | None:
    """The diagnostic of a kernel whose atomic operations are more than sums over the grid; None where they are."""
    atomics = [op for op in plan.accesses if op.kind == "atomic"]
    if not atomics:
        return None
    beside = any(op.kind == "store" for op in plan.accesses)  # a kernel that only adds up gets its rewrite instead
    return next((atomic_refused(op, "tpu", plan) for op in atomics if not beside or not _is_sum(plan, op)), None)


def _is_sum(plan: Schedule, op: Op) -> bool:
    access, window = plan.accesses[op], plan.windows[op]
    element = op.operands[1].type.element
    if op["fn"] != "add" or op.result in plan.demand.live or window is None or plan.ordered:
        return False
    if not (element.is_floating() or element == INT32) or element.primitive_bitwidth not in (16, 32):
        return False
    if any(a.op.kind != "atomic" for a in plan.accesses.values() if a.param == access.param):
        return False
    still = [{v: s for v, s in piece.steps.items() if not v.serial} for piece in window.slices]
    return not any(piece.opaques for piece in window.slices) and all(told_apart(steps) for steps in still)


class Sums(Loops):
    """Statements of atomic additions."""

    def atomic(self, op: Op) -> None:
        """Add the programs' values to a block."""
        plan, access = self.plan, self.plan.accesses[op]
        left = [c for c in access.mask if not self._is_edge(access, c)]
        if any(c.form is not None and c.form.is_const for c in left):
            return  # a condition that never holds
        mask = self.mask([c for c in left if c.loop is None or c.loop in self.active])
        spec, target = self._spec(access)
        if not self._stays(spec):
            raise atomic_refused(op, "tpu", plan)  # the block would leave before its sum is complete
        element = access.element
        wide = FP32 if element.is_floating() else element
        value = self.value(op.operands[1])
        if value.literal is not None:
            value = literal(value.literal, wide.numpy_name)
        elif wide is not element:
            value = Expr(f"{value.operand}.astype(jnp.{wide.numpy_name})", value.dims)
        value = self.masked(mask, value, literal(zero_of(wide)), wide.numpy_name)
        value = self._of_all_programs(access, value, target, wide.numpy_name)
        for var in [v for v in value.vars if v not in target]:
            if var in self.blocks.grid and (var.count or 1) % self.extent(var):
                value = self._real_lanes(value, var, zero_of(wide), wide)
            axis = value.dims.index(var)
            dims = tuple(None if i == axis else d for i, d in enumerate(value.dims))
            value = self.assign("total", Expr(self.reduction("sum", value, axis, wide, op), dims), op)
        out = self._output(spec, op)
        old = self._taken(f"{out.ref}{self.part(spec)}", target, element)
        if wide is not element:
            old = Expr(f"{old.operand}.astype(jnp.{wide.numpy_name})", old.dims)
        dims = union([old, value])
        new = Expr(f"{tight(align(old, dims))} + {tight(align(value, dims))}", dims)
        if wide is not element:
            new = Expr(f"({new.code}).astype(jnp.{element.numpy_name})", dims)
        self.write(access, new, None)

    def _of_all_programs(self, access: Access, value: Expr, target: Sequence[Var | None], name: str) -> Expr:
        """A value with a dimension, or a factor, for every program and iteration that adds it."""
        plan, op = self.plan, access.op
        tile = {plan.top(v) for v in plan.axes(op.operands[0]) if v is not None}
        if any(any(p.kind == "axis" for p in v.parts()) and v not in tile and v not in target for v in value.vars):
            raise atomic_refused(op, "tpu", plan)  # lanes that only share a dimension with the program
        used = {v for form in plan.demand.roots for v in form.vars}
        programs = [v for v in (*plan.affine.programs, *plan.affine.atoms.values()) if v is not None and v in used]
        times = math.prod(plan.kernel.grid) // max(1, math.prod(v.size or 1 for v in programs))
        loops = [f.loop.var for o, f in plan.folds.items() if o in access.path]
        for top in dict.fromkeys(plan.top(v) for v in (*programs, *loops, *tile)):
            if top in target or top in value.vars or top.serial or self.blocks.single(top) or top.count == 1:
                continue
            if any(part.kind == "axis" for part in top.parts()) and top not in tile:
                raise atomic_refused(op, "tpu", plan)
            if top in self.blocks.grid:
                dims = (top, *value.dims)
                value = Expr(f"jnp.broadcast_to({value.code}, {shape_of(dims, self.extent)})", dims)
            else:
                times *= top.count or 1
        return value if times == 1 else Expr(f"{value.operand} * jnp.{name}({times})", value.dims)
