"""One element of a row that is in VMEM anyway, picked by a run-time number: the logit of a label, or its gradient.

Input: a load or store without a window whose address is a block's plus a run-time number along the last dimension.
Output: the window of the whole row, and what is picked of it. Law: the number counts elements of the row; one that lies
outside the row picks nothing, which reads as 0, stores nothing and touches no foreign memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.access import Memory, Slice, Window, choose_strides, divide, make_view
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.expr import Expr, align, tight, union
from frontend_triton_compat.emit.tpu.gather import picks_rows
from frontend_triton_compat.emit.tpu.scalars import scalar_form
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule

if TYPE_CHECKING:
    from frontend_triton_compat.emit.tpu.facing import Facing

#: Most elements of a table that every row of a grid step is compared with, and most comparisons of a grid step.
_LONGEST_TABLE = 1 << 17
_MOST_COMPARISONS = 1 << 23
#: Lanes of a row from which on its place is worth the scalar core's time, and the rows of a step that it has time for.
_LONG_ROW = 4096
_MOST_ROWS = 64


def rows_instead(plan: Schedule) -> dict[Op, tuple[Var, Form]]:
    """Give accesses of one element the window of its row; what is picked: the row's variable and the number's form."""
    out: dict[Op, tuple[Var, Form]] = {}
    by_param: dict[str, list[Access]] = {}
    for access in plan.accesses.values():
        by_param.setdefault(access.param, []).append(access)
    for param, accesses in by_param.items():
        if any(a.form.opaques and not picks_rows(plan, a) for a in accesses):
            out |= _rows_of(plan, param, accesses)
    return out


def _rows_of(plan: Schedule, param: str, accesses: list[Access]) -> dict[Op, tuple[Var, Form]]:
    """The same for the accesses of one parameter, whose view is chosen as if nothing were picked; {} if that fails."""
    memory = plan.memories[param]
    forms = [Form(a.form.const, {v: a.form.coefficient(v) for v in a.form.vars}) for a in accesses]
    masks = [
        [plan.form(c.form) for c in plan.demand.accesses[a.op].all_conditions if c.form is not None] for a in accesses
    ]
    strides = choose_strides(forms, masks, memory)
    if len(strides) == 1 and _is_table(plan, accesses, memory):
        strides = (memory.shape[-1], 1)
    found: dict[Op, tuple[Var, Form]] = {}
    windows: list[Window] = []
    for access, form, mask in zip(accesses, forms, masks):
        window = divide(form, strides, mask)
        if window is None or len(strides) < 2:
            return {}
        number = Form(0, {o: access.form.coefficient(o) for o in access.form.opaques})
        if number.terms:
            *outer, last = window.slices
            steps = {step for piece in outer for step in piece.steps.values()}
            rows = any(access.form.coefficient(o) % strides[-2] == 0 for o in access.form.opaques)
            lanes = any(v.kind == "axis" for v in access.form.vars)
            if access.op.kind == "atomic" or rows or lanes or last.steps or steps - {1}:
                return {}
            lane = Var("axis", strides[-2], plan.affine.fresh("picked"))
            window = Window((*outer, Slice(0, {lane: 1})))
            found[access.op] = lane, number + Form(last.start)
        windows.append(window)
    plan.views[param] = make_view(memory, strides, windows, [])
    for access, window in zip(accesses, windows):
        plan.windows[access.op] = window
    return found


def _is_table(plan: Schedule, accesses: list[Access], memory: Memory) -> bool:
    """Whether a 1-D array can stand for a row of every program, or of the only one that stores: lanes go over it."""
    if plan.kernel.grid != (1, 1, 1) and any(a.op.kind != "load" for a in accesses):
        return False
    lanes = all(any(p.kind == "axis" for p in v.parts()) for a in accesses for v in a.form.vars)
    row = memory.shape[-1:] and all(n == 1 for n in memory.shape[:-1]) and memory.strides[-1] == 1
    return lanes and bool(row) and 1 < memory.shape[-1] <= _LONGEST_TABLE


def element(emitter: Facing, access: Access, row: Expr, lane: Var, number: Form) -> Expr:
    """The picked element of every row."""
    near = _near(emitter, access, row, lane, number)
    if near is not None:
        return near
    hit = hits(emitter, row.dims, lane, number)
    dims = union([row, hit])
    comparisons = math.prod(emitter.extent(d) for d in dims if d is not None)
    if comparisons > _MOST_COMPARISONS:
        raise error(
            "indirect-access",
            f"the load on {access.param!r} picks one of {lane.count} places, {comparisons // (lane.count or 1)} times "
            "a grid step",
            where=access.op.where,
            why="a core's vector registers have no addresses: a picked element is a sum over comparisons with every "
            f"place, here {comparisons} of them, and {_MOST_COMPARISONS} are the most that make sense",
            do=[
                "give each program a row (or rows): the place is then a block's, and nothing is picked:\n"
                "    offsets = tl.program_id(0) * columns + tl.arange(0, BLOCK)  # BLOCK >= columns\n"
                f"    tl.load({access.param} + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < columns)",
                f"gather outside of the kernel, and pass the result: {access.param}[index]",
            ],
        )
    kept = Expr(f"jnp.where({align(hit, dims)}, {align(row, dims)}, 0)", dims)
    element_type = access.op.result.type.element
    code = emitter.reduction("sum", kept, dims.index(lane), element_type, access.op)
    left = tuple(None if d is lane else d for d in dims)
    return emitter.assign(access.op.result.name or "picked", Expr(code, left), access.op)


def _near(emitter: Facing, access: Access, row: Expr, lane: Var, number: Form) -> Expr | None:
    """The picked element of few long rows, of the 128 lanes that the scalar core finds it in; else None."""
    ref = row.code.partition("[")[0]
    block, rows = emitter.block_of(ref), row.dims[0] if len(row.dims) == 2 else None
    if rows is None or block is None or row.dims[1] is not lane or len(block) != 2:
        return None
    n, lanes, width = emitter.extent(rows), lane.count or 1, block[1] or 0
    if row.code != (f"{ref}[...]" if width == lanes else f"{ref}[:, 0:{lanes}]"):
        return None
    if lanes < _LONG_ROW or width % 128 or n % 16 or n > _MOST_ROWS:
        return None
    if not access.op.result.type.element.is_floating():
        return None
    at = "r"
    if rows in emitter.blocks.grid:
        at = f"pl.program_id({emitter.blocks.grid.index(rows)}) * {n} + r"
        if (rows.count or 1) % n:
            at = f"jnp.minimum({at}, {(rows.count or 1) - 1})"
    kept = dict(emitter.smem)
    try:
        place = scalar_form(emitter, number, {rows: at})
    except Diagnostic:  # the scalar core does not find it: every lane is asked
        emitter.smem = kept
        return None
    index = emitter.assign("place", emitter.form(number))
    code = emitter.with_helpers(f"lanes_around({ref}, {lanes}, lambda r: {place}, {index.code})")
    return emitter.assign(access.op.result.name or "picked", Expr(code, (rows, None)), access.op)


def hits(emitter: Facing, row: Sequence[Var | None], lane: Var, number: Form) -> Expr:
    """Where the picked element of every row is."""
    index = emitter.form(number)
    with emitter.beside(row):
        counter = emitter.form(Form(0, {lane: 1}))
    dims = union([Expr("", tuple(row)), index])
    return Expr(f"{tight(align(counter, dims))} == {tight(align(index, dims))}", dims)
