"""Variables cropped to what the masks let through.

Input: a `Schedule` with merged variables. Output: the variables' `extent`. Law: what lies past a crop is never stored;
where it meets other elements in a reduction, the emitter counts it with its fill.
"""

from __future__ import annotations

from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import ALONG_AXIS, walk
from frontend_triton_compat.schedule.plan import Schedule


def crop(plan: Schedule, uncropped: frozenset[str]) -> None:
    """Set the extent of every variable whose masks allow it."""
    accesses = plan.demand.accesses
    variables: dict[Var, None] = {}
    for access in accesses.values():
        for form in [access.form, *(c.form for c in access.all_conditions if c.form is not None)]:
            for var in plan.form(form).vars:
                variables[var] = None
    reduced = _reduced_vars(plan)
    for var in variables:
        axes = [v.axis for v in var.parts() if v.kind == "axis" and v.axis is not None]
        if var.size is None or var.name in uncropped or var in plan.parts or any(a.rigid for a in axes):
            continue
        if (var.kind == "loop" and not plan.lifted(var)) or (var.serial and var.kind == "program"):
            continue
        bounds: list[int | None] = []
        for access in accesses.values():
            if not _involves(plan, access, var):
                continue
            if access.op.kind == "load" and var not in reduced:
                continue
            bounds.append(_bound(plan, access, var))
        if bounds and None not in bounds:
            n = max(b for b in bounds if b is not None)
            if 0 < n < var.size:
                var.extent = n


def _reduced_vars(plan: Schedule) -> set[Var]:
    out: set[Var] = set()
    for op in walk(plan.kernel.body):
        if op.kind in (*ALONG_AXIS, "dot"):
            position = op["axis"] if op.kind != "dot" else len(op.operands[0].shape) - 1
            for operand in op.operands[:1] if op.kind != "dot" else op.operands[:2]:
                where = position if operand is op.operands[0] else len(operand.shape) - 2
                axis = plan.dims[operand][where]
                if axis is not None:
                    out.add(plan.top(plan.affine.axis_var(axis)))
    return out | {plan.top(f.loop.var) for f in plan.folds.values() if f.sums}


def _involves(plan: Schedule, access: Access, var: Var) -> bool:
    if var in plan.form(access.form).vars or (access.op.kind == "atomic" and any(map(plan.lifted, var.parts()))):
        return True  # an atomic happens once a program, whatever it depends on
    values = access.op.operands[1:2] if access.op.kind != "load" else ()
    tiles = [v for value in (*values, access.op.operands[0]) for v in plan.axes(value)]
    lifted = [plan.top(v) for value in values for v in plan.deps(value)]
    if access.op.kind != "load":  # which programs get here may be all it depends on: `elif tl.program_id(0) == LAST:`
        lifted += [plan.top(v) for v in plan.mask_deps(access.all_conditions)]
    return var in tiles or var in lifted


def _bound(plan: Schedule, access: Access, var: Var) -> int | None:
    best: int | None = None
    for c in access.all_conditions:
        for form in negative_where(plan, c):
            k = form.coefficient(var)
            if len(form.terms) == 1 and k > 0:  # k * var + const < 0
                n = (-form.const - 1) // k + 1
                best = n if best is None else min(best, n)
    return best


def negative_where(plan: Schedule, c: Conjunct) -> list[Form]:
    """Forms that are negative where a condition holds."""
    if c.form is not None:
        return [plan.form(c.form)]
    op = c.value.producer if c.value is not None and not c.negate else None
    if op is None or op.kind != "map" or op["fn"] != "eq" or not op.operands[0].type.element.is_int():
        return []
    gap = plan.form(plan.affine.form(op.operands[0]) - plan.affine.form(op.operands[1]))
    return [gap - Form(1), gap.scale(-1) - Form(1)]


def too_small(plan: Schedule) -> tuple[Access, int, int] | None:
    """A store whose mask allows more than all programs together reach: (access, reached, allowed)."""
    for access in plan.demand.accesses.values():
        if access.op.kind != "store":
            continue
        for condition in access.mask:
            if condition.form is None:
                continue
            form = plan.form(condition.form)
            (var, *rest) = form.terms or (None,)
            if rest or not isinstance(var, Var) or var.size is None or form.terms[var] != 1:
                continue
            counts_programs = any(v.kind == "program" for v in var.parts())
            if counts_programs and var.size < -form.const:
                return access, var.size, -form.const
    return None
