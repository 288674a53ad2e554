"""Diagnostics of emitters: an access that no block covers, an atomic operation, a function of scalars.

Input: the operation. Output: the diagnostic, ready to be raised. Law: each names the construct as the user wrote it,
its line, the reason, and the rewrite.
"""

from __future__ import annotations

import textwrap

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.rewrites import Rewrite, without_atomics
from frontend_triton_compat.ir import Op
from frontend_triton_compat.language.table import Row
from frontend_triton_compat.schedule import Schedule


def untiled(plan: Schedule, access: Access) -> Diagnostic:
    """The diagnostic for an access that no block covers: it names the term of the address that breaks it."""
    param = access.param
    return error(
        "access-not-tiled",
        f"the {access.op.kind} on {param!r} does not address a block",
        where=access.op.where,
        why=f"a TPU copies blocks of an array to its cores: a start plus a step along each dimension. In the offsets "
        f"into {param!r}, {_broken_term(plan, access)} is no such step",
        do=f"address {param!r} as base + row * stride + arange, one program or loop variable a dimension",
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
        return f"{name}{line}, which is known at run time only,"
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
    return error(
        f"{target}-not-translated",
        "programs of this kernel see each other's writes",
        where=op.where,
        why="one reads what another stores, so that they would have to run one after the other",
        do="write to a tensor of its own, or run the kernel on the CPU",
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
