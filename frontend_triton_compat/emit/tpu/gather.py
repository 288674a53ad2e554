"""Rows picked by run-time numbers: a copy a row from HBM, all of a grid step's rows ahead of the step.

Input: a load whose first coordinate has run-time numbers in it. Output: statements that copy the rows of the next grid
step while this one computes, and the expression of the rows. Law: a row number is brought inside the tensor before it
is used, so that no copy touches foreign memory; what a mask shuts out is chosen away afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.diagnostics import error
from frontend_triton_compat.access import Slice
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.expr import Expr
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.emit.tpu.outside import rows_of
from frontend_triton_compat.emit.tpu.scalars import scalar_form
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.holding import small
from frontend_triton_compat.schedule import Schedule

if TYPE_CHECKING:
    from frontend_triton_compat.emit.tpu.operands import Operands


def picks_rows(plan: Schedule, access: Access) -> bool:
    """Whether an access is a load of whole rows whose numbers are known at run time."""
    window = plan.windows[access.op]
    if access.op.kind != "load" or window is None or len(window.slices) < 2 or not window.slices[0].opaques:
        return False
    rest = window.slices[1:]
    if any(v.kind == "axis" and step == 1 for v, step in window.slices[0].steps.items()):
        return False  # rows side by side: one copy takes them all
    if any(piece.opaques or len(piece.steps) > 1 for piece in rest):
        return False
    return all(step == 1 for piece in rest for step in piece.steps.values())


def row_vars(plan: Schedule, access: Access) -> list[Var]:
    """The variables that a picked row depends on."""
    window = plan.windows[access.op]
    assert window is not None
    first = window.slices[0]
    found: dict[Var, None] = dict.fromkeys(first.steps)
    work = list(first.opaques)
    while work:
        opaque = work.pop()
        if opaque.fn:
            for form in opaque.forms:
                found.update(dict.fromkeys(plan.form(form).vars))
                work += plan.form(form).opaques
            continue
        found.update(dict.fromkeys(plan.top(v) for v in plan.deps(opaque.value)))
        found.update(dict.fromkeys(v for v in plan.axes(opaque.value) if v is not None))
    return list(found)


def dims_of(emitter: Operands, access: Access) -> tuple[Var | None, ...]:
    """What the dimensions of picked rows count."""
    window = emitter.plan.windows[access.op]
    assert window is not None
    inner = [next(iter(piece.steps), None) for piece in window.slices[1:]]
    return (*(_counted(emitter, access) or [None]), *inner)


def _counted(emitter: Operands, access: Access) -> list[Var]:
    """The variables that count picked rows, the grid's last: rows of one copy lie along sublanes."""
    left = (v for v in row_vars(emitter.plan, access) if v not in emitter.counters and not v.serial)
    return sorted(left, key=lambda v: v in emitter.blocks.grid)


def rows(emitter: Operands, access: Access) -> Expr:
    """The picked rows of this grid step."""
    plan, op = emitter.plan, access.op
    if not picks_rows(plan, access):
        raise untiled(plan, access)
    window, view = plan.windows[op], plan.views[access.param]
    assert window is not None
    first, *rest = rows_of(view, window)
    last = plan.accesses[op].element
    pack = 4 // last.itemsize if len(view.shape) == 2 else 1  # rows of a matrix share tiles
    order = _counted(emitter, access)
    if pack not in (1, 2) or access.param in plan.written:
        raise error(
            "tpu-not-translated",
            f"rows of {access.param!r} are picked by run-time numbers",
            where=op.where,
            why="a row of 8-bit elements can't be copied alone" if pack > 2 else "the same tensor is stored to",
            do="hold the tensor as 32 or 16 bits, and store to one of its own",
        )
    inner = [_lanes(emitter, access, piece, size) for piece, size in zip(rest, view.widths[1:])]
    name = access.param
    ref = emitter.in_hbm(access, (view.widths[0] + (-view.widths[0] % pack), *view.widths[1:]))
    buf, sem = emitter.fresh(f"{name}_rows"), emitter.fresh(f"{name}_copies")
    sizes = [emitter.extent(v) for v in order]
    widths = [n for _, n, _ in inner]
    shape = (2, *(sizes or [1]), *([pack] if pack > 1 else []), *widths)
    emitter.more_scratch[buf] = f"pltpu.VMEM({shape}, jnp.{last.numpy_name})"
    emitter.more_scratch[sem] = "pltpu.SemaphoreType.DMA((2,))"
    emitter.orderly = True
    start = emitter.fresh(f"start_{name}")
    looped = any(o.kind == "while" or (o.kind == "for" and o not in plan.folds) for o in access.path)
    step, slot = _steps(emitter)
    if looped or _total(emitter) == 1:
        slot = "0"
    _write_start(emitter, access, (start, ref, buf, sem), order, first, [text for text, _, _ in inner], pack)
    if _total(emitter) > 1 and not looped:
        emitter.put(f"@pl.when({step} == 0)")
        emitter.put(f"def {emitter.fresh('first_rows')}():")
        emitter.put(f"    {start}({step}, {slot})")
        emitter.put(f"@pl.when({step} + 1 < {_total(emitter)})")
        emitter.put(f"def {emitter.fresh('rows_ahead')}():")
        emitter.put(f"    {start}({step} + 1, 1 - {slot})")
    else:
        emitter.put(f"{start}({step}, 0)")
    emitter.put(f"pltpu.make_async_copy({buf}.at[{slot}], {buf}.at[{slot}], {sem}.at[{slot}]).wait()  # all of them")
    dims = dims_of(emitter, access)
    parts = [":"] * (len(order) or 1) + [part for _, _, part in inner]
    if pack == 1:
        plain = all(p == ":" for p in parts)
        code = f"{buf}[{slot}]" if plain else f"{buf}[{slot}][{', '.join(parts)}]"
        code = f"{code}.astype(jnp.int32)" if small(last) else code
        return emitter.assign(op.result.name or "rows", Expr(code, dims), op)
    lead = len(order) or 1
    halves = [f"{buf}[{', '.join([slot, *[':'] * lead, str(k), *parts[lead:]])}]" for k in range(pack)]
    number = emitter.form(Form(first.start, {**first.steps, **first.opaques}))
    odd = Expr(f"lax.rem(jnp.clip({number.code}, 0, {view.widths[0] - 1}), {pack}) == 1", number.dims)
    even, uneven = (Expr(code, dims) for code in halves)
    picked = emitter.masked(emitter.assign("odd", odd), uneven, even, last.numpy_name)
    if small(last):
        picked = Expr(f"{picked.operand}.astype(jnp.int32)", picked.dims)
    return emitter.assign(op.result.name or "rows", picked, op)


def _lanes(emitter: Operands, access: Access, piece: Slice, size: int) -> tuple[str, int, str]:
    """One dimension of a row: what is copied, how many elements that are, and which of them are used."""
    var = next(iter(piece.steps), None)
    if var is None:
        return ":", size, f"{piece.start}:{piece.start + 1}" if size > 1 else ":"
    n, count = emitter.blocks.sizes.get(var), var.count or 1
    if n is None or n >= count:
        used = ":" if (piece.start, count) == (0, size) else f"{piece.start}:{piece.start + count}"
        return ":", size, used
    if piece.start or count % n or n % 128:
        raise untiled(emitter.plan, access)
    return f"pl.ds(pl.multiple_of(AT({var.id}) * {n}, {n}), {n})", n, ":"


def _steps(emitter: Operands) -> tuple[str, str]:
    """Names of the number of the grid step, counted through, and of the half of a buffer that it uses."""
    if _total(emitter) == 1:
        return "0", "0"
    text = ""
    for i, var in enumerate(emitter.blocks.grid):
        text = f"({text}) * {emitter.blocks.steps(var)} + pl.program_id({i})" if text else f"pl.program_id({i})"
    emitter.names |= {"step", "slot"}
    emitter.prologue |= {f"step = {text}": None, "slot = lax.rem(step, 2)": None}
    return "step", "slot"


def _total(emitter: Operands) -> int:
    total = 1
    for var in emitter.blocks.grid:
        total *= emitter.blocks.steps(var)
    return total


def _write_start(
    emitter: Operands,
    access: Access,
    names: tuple[str, str, str, str],
    order: list[Var],
    first: Slice,
    inner: list[str],
    pack: int,
) -> None:
    """Write the function that starts a grid step's copies."""
    start, ref, buf, sem = names
    grid, plan = emitter.blocks.grid, emitter.plan
    emitter.put(f"def {start}(step, slot):  # a copy a row", access.op)
    emitter.indent += 1
    steps: dict[Var, str] = {}
    left = "step"
    for i in reversed(range(len(grid))):
        n = emitter.blocks.steps(grid[i])
        steps[grid[i]] = left if i == 0 else f"lax.rem({left}, {n})"
        left = f"lax.div({left}, {n})"
    loops = [(v, f"i{k}" if len(order) > 1 else "i") for k, v in enumerate(order)]
    at: dict[Var, str] = {v: emitter._counter(v, "int32").code for v in emitter.counters}
    at |= {v: text for v, text in steps.items() if emitter.blocks.single(v)}
    loops = [(v, c) for v, c in loops if v not in at]
    for var, counter in loops:
        emitter.put(f"def one_{counter}({counter}, nothing):")
        emitter.indent += 1
        place = counter
        if var in steps and emitter.blocks.steps(var) > 1:
            place = f"{steps[var]} * {emitter.extent(var)} + {counter}"
            if (var.count or 1) % emitter.extent(var):
                place = f"jnp.minimum({place}, {(var.count or 1) - 1})"
            emitter.put(f"at_{counter} = {place}")
            place = f"at_{counter}"
        at[var] = place
    size = plan.views[access.param].widths[0]
    row = scalar_form(emitter, Form(first.start, {**first.steps, **first.opaques}), at)
    emitter.put(f"row = jnp.clip({row}, 0, {size - 1})")
    texts = []
    for text in inner:
        for var, where in steps.items():
            text = text.replace(f"AT({var.id})", where)
        texts.append(text)
    tail = "" if all(t == ":" for t in texts) else ", " + ", ".join(texts)
    picked = "row" if pack == 1 else f"pl.ds(pl.multiple_of(lax.div(row, {pack}) * {pack}, {pack}), {pack})"
    into = ", ".join(["slot", *(c for _, c in loops)] if loops else ["slot", "0"])
    emitter.put(f"pltpu.make_async_copy({ref}.at[{picked}{tail}], {buf}.at[{into}], {sem}.at[slot]).start()")
    for var, counter in reversed(loops):
        emitter.put("return nothing")
        emitter.indent -= 1
        n = emitter.extent(var)
        unrolled = ", unroll=4" if n % 4 == 0 else ""
        emitter.put(f"lax.fori_loop(0, {n}, one_{counter}, None{unrolled})")
    emitter.indent -= 1
