"""Diagnostics of emitters: an access that no block covers, an atomic operation, a function of scalars.

Input: the operation. Output: the diagnostic, ready to be raised. Law: each names the construct as the user wrote it,
its line, the reason, and the rewrite.
"""

from __future__ import annotations

import textwrap

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.rewrites import Rewrite, with_comparisons, without_atomics
from frontend_triton_compat.forms import Opaque
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.language.table import Row
from frontend_triton_compat.schedule import Schedule


def untiled(plan: Schedule, access: Access, place: str = "a TPU") -> Diagnostic:
    """The diagnostic for an access that no block covers: it names the term of the address that breaks it."""
    param = access.param
    loaded = next((o for o in plan.form(access.form).opaques if not o.fn and _from_memory(o.value)), None)
    if loaded is not None:
        return _indirect(plan, access, loaded)
    return error(
        "access-not-tiled",
        f"the {access.op.kind} on {param!r} does not address a block",
        where=access.op.where,
        why=f"{place} copies blocks of an array to its cores: a start plus a step along each dimension. In the offsets "
        f"into {param!r}, {_broken_term(plan, access)} is no such step",
        do=f"address {param!r} as base + row * stride + arange, one program or loop variable a dimension",
    )


def _from_memory(value: Value) -> bool:
    """Whether a number is made of what was loaded, rather than of the program's own."""
    seen: set[Value] = set()
    left = [value]
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        op = one.producer or one.owner
        if op is None:
            continue
        if op.kind in ("load", "atomic") or (op.kind == "arg" and not one.type.is_pointer):
            return True
        left += [*op.operands, *(y for region in op.regions for y in region.yields)]
    return False


def _indirect(plan: Schedule, access: Access, loaded: Opaque) -> Diagnostic:
    """The diagnostic of a gather or a scatter, or of a tile that begins at a number from memory."""
    param, op, value = access.param, access.op, loaded.value
    name = repr(value.name) if value.name else "a number"
    line = f" of line {value.producer.where.line}" if value.producer is not None else ""
    if value.shape == () and op.operands[0].shape:
        what = f"the {op.kind} on {param!r} begins where {name}{line} says, which is known at run time only"
        if op.kind != "load":
            do = [
                "turn it round: with where = torch.argsort(index) of the numbers, program r stores row r and loads row "
                "where[r]; whole rows can be loaded at loaded numbers",
                f"or put the rows in place outside of the kernel: {param}[index] = rows",
            ]
        elif plan.deps(value):
            do = [
                "load whole rows at loaded numbers, base + number * row_length + arange, of a tensor of 32 or 16 bits",
                f"or gather outside of the kernel, and pass the result: {param}[index]",
            ]
        else:
            do = [
                f"pass {value.name or 'the number'} as an argument of the launch ({value.name or 'number'}.item()): "
                "then it is part of the address",
            ]
    else:
        picks = "gathers" if op.kind == "load" else "scatters"
        what = f"the {op.kind} on {param!r} {picks}: every element's place is {name}{line}, known at run time only"
        do = _without_picking(plan, access)
    return error(
        "indirect-access",
        what,
        where=op.where,
        why="blocks of an array are copied as a whole, and a core's vector registers have no addresses: nothing there "
        "reads or writes places that the data names",
        do=do,
    )


def _without_picking(plan: Schedule, access: Access) -> list[str]:
    param = access.param
    if access.op.kind != "load":
        return [
            f"turn it round: let every program own a part of {param}, and take what is meant for it:\n"
            f"    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # places of {param}\n"
            "    hit = index[:, None] == at[None, :]\n"
            "    new = tl.sum(tl.where(hit, value[:, None], 0), axis=0)\n"
            f"    tl.store({param} + at, tl.where(tl.max(hit.to(tl.int32), axis=0) > 0, new, tl.load({param} + at)))",
            f"or scatter outside of the kernel: {param}.index_put_((index,), value)",
        ]
    new = with_comparisons(plan, access)
    outside = f"gather outside of the kernel, and pass the result: {param}[index]"
    if new is None:
        return [outside, "read whole rows at loaded numbers: base + number * row_length + arange"]
    told = f"{param} is small: compare with every place of it:\n" + textwrap.indent(new, "    ")
    return [told, f"or {outside}"]


def run_time_trips(op: Op, target: str) -> Diagnostic:
    """The diagnostic of a loop whose number of iterations is read from memory."""
    place = {"tpu": "a TPU", "gpu": "a GPU"}.get(target, target)
    text = op.where.text().strip()
    return error(
        "run-time-trips",
        "how often this loop runs is known only while the kernel runs",
        where=op.where,
        why=f"the blocks that a step of the grid gets on {place} are fixed before it starts, and the loop decides how "
        "far it reads",
        do="run it as often as the longest one needs, and leave out what is past the end:\n"
        f"    # in place of {text}\n"
        "    for i in range(0, MOST):  # MOST: an argument of the launch, the largest of them\n"
        "        value = tl.where(i < count, tl.load(...), 0.0)",
    )


def store_conflict(op: Op, what: str, do: str) -> Diagnostic:
    """The diagnostic of several stores that meet in one tensor."""
    return error(
        "store-conflict",
        what,
        where=op.where,
        why="which of them comes last decides what stays there; a step of the grid holds several programs, and its "
        "blocks go back to memory one after the other",
        do=do,
    )


def _broken_term(plan: Schedule, access: Access) -> str:
    """Which part of an address no block can follow, in words."""
    form = plan.form(access.form)
    words = {"imod": "a remainder", "idiv": "a quotient", "min": "a minimum", "max": "a maximum"}
    for opaque in form.opaques:
        op = opaque.value.producer
        name = repr(opaque.value.name) if opaque.value.name else "a value"
        line = f" of line {op.where.line}" if op is not None else ""
        if opaque.fn:
            return f"{name}{line}, {words.get(opaque.fn, opaque.fn)} that the known sizes do not resolve,"
        return f"{name}{line}, which is computed and no start plus a step,"
    return " + ".join(f"{c} * {getattr(s, 'name', 'value')}" for s, c in form.terms.items()) or str(form.const)


def atomic_refused(op: Op, target: str, plan: Schedule | None = None) -> Diagnostic:
    """The diagnostic of an atomic operation, with the rewrite it needs: the kernel's own, where there is one."""
    fn = op.attrs.get("fn", "add")
    new = without_atomics(plan) if plan is not None and not plan.ordered else None
    pointer = op.operands[0]
    place = {"tpu": "a TPU", "gpu": "a GPU"}.get(target, target)
    tile = "x".join(map(str, pointer.shape)) or "scalar"
    return error(
        "atomic-add" if fn == "add" else "atomic-other",
        f"atomic_{fn} on a {tile} block has no meaning on {place}",
        where=op.where,
        why="a program of a Pallas grid owns the blocks it writes; there is no atomic update of memory that several "
        "programs share",
        do=(
            _rewritten(new) if new is not None else _by_hand(plan, fn),
            "or run the kernel on the CPU, which has atomics",
        ),
    )


def _rewritten(new: Rewrite) -> str:
    """The remedy of an atomic that is a reduction over programs: the kernel without it."""
    if not new.axes:
        return "no two programs update one place, so a load and a store will do:\n" + textwrap.indent(str(new), "    ")
    axes = " and ".join(map(str, new.axes))
    return (
        f"it is a reduction over axis {axes} of the grid: give each of the {new.programs} programs along it a copy of "
        "its own, and put the copies together afterwards:\n" + textwrap.indent(str(new), "    ")
    )


def _by_hand(plan: Schedule | None, fn: str) -> str:
    """The remedy of an atomic whose rewrite only its author knows."""
    if plan is not None and (plan.ordered or fn in ("cas", "xchg")):
        return (
            "programs that wait for each other, or look at what others have done, have no form there: let one program "
            "do the work of all that meet, in a loop, or launch a second kernel for what comes after"
        )
    return (
        "give each program its own slice of a (programs, ...) output and combine the slices afterwards:\n"
        "    tl.store(partial_ptr + pid * SIZE + offsets, value, mask=mask)\n"
        "    # after the launch: out += partial.sum(0)"
    )


def order_refused(plan: Schedule, target: str) -> Diagnostic:
    """The diagnostic of a kernel whose programs see each other's writes, on a target that runs them in any order."""
    op = next(op for op in plan.accesses if op.kind != "load")
    param = plan.accesses[op].param
    return error(
        "program-order",
        "programs of this kernel see each other's writes",
        where=op.where,
        why="one reads what another stores, so that they would have to run one after the other",
        do=(
            f"store to a tensor of its own, and read the old one: tl.store({param}_new + ..., ...) in the kernel, and "
            f"{param}.copy_({param}_new) after the launch",
            "let one program do the work of those that meet, in a loop, or run the kernel on the CPU",
        ),
    )


def combine_refused(op: Op) -> Diagnostic:
    """The diagnostic of a scalar function of the kernel author's that loops, on a TPU."""
    return error(
        "tpu-not-translated",
        "a function given to a reduction, scan or map that loops",
        where=op.where,
        why="it is applied to whole tiles at once, where every element would leave the loop at a time of its own",
        do="write out the loop with tl.static_range, or run the kernel on the CPU",
    )


def no_form(op: Op | None, row: Row, target: str) -> Diagnostic:
    """The diagnostic of a row that the target has no form of."""
    return error(
        "tpu-no-form" if target == "tpu" else "target-not-here",
        f"{row.name} ({row.doc}) on a {target.upper()}",
        where=op.where if op is not None else None,
        why="it needs fp64, or a rounding mode that the target does not have",
        do="compute it outside of the kernel with torch, or run the kernel on the CPU",
    )
