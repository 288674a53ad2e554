"""Numbers on the scalar core: values that decide addresses, computed from small arrays in SMEM.

Input: an integer value of the IR and the place (a number for each variable) that it is wanted at. Output: source of one
scalar. Law: every read of SMEM is inside its array; what a scalar core can't compute is a diagnostic, not a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.emit.base import TRANSPARENT, zero_of
from frontend_triton_compat.emit.expr import chosen, literal, tight
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.holding import small
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.language.table import ROWS

if TYPE_CHECKING:
    from frontend_triton_compat.emit.tpu.operands import Operands

#: Most 32-bit numbers that are held in SMEM, all arrays together: half of its megabyte.
SMEM_NUMBERS = 1 << 17

Place = Mapping[Var, str]


def scalar_form(emitter: Operands, form: Form, at: Place) -> str:
    """Index arithmetic at a place."""
    text = ""
    for symbol, c in form.terms.items():
        part = at[symbol] if isinstance(symbol, Var) else scalar(emitter, symbol.value, at)
        if part == "0":
            continue
        term = tight(part) if abs(c) == 1 else f"{tight(part)} * {abs(c)}"
        sign = "-" if c < 0 else "+"
        text = f"{text} {sign} {term}" if text else (f"-{term}" if c < 0 else term)
    if form.const or not text:
        text = f"{text} {'-' if form.const < 0 else '+'} {abs(form.const)}" if text else str(form.const)
    return text


def scalar(emitter: Operands, value: Value, at: Place) -> str:
    """An integer or boolean value at a place.

    Raises:
        Diagnostic: it is made by something that a scalar core does not do.
    """
    plan, op = emitter.plan, value.producer
    if op is not None and op.kind == "const":
        return literal(op["value"]).code
    if value.type.element.is_int() and not value.type.element.is_bool():
        form = plan.form(plan.affine.form(value))
        if not any(o.value is value for o in form.opaques):
            return scalar_form(emitter, form, at)
    if op is None:
        raise _refused(value, op)
    if op.kind in TRANSPARENT:
        return scalar(emitter, op.operands[0], _under_old_names(emitter, op, at))
    if op.kind == "load":
        return scalar_load(emitter, op, at)
    if op.kind == "cast" and _plain(value) and _plain(op.operands[0]):
        inner = scalar(emitter, op.operands[0], at)
        before, after = op.operands[0].type.element, value.type.element
        if before.is_bool() and not after.is_bool():
            return f"jnp.where({inner}, 1, 0)"
        return f"({inner}) != 0" if after.is_bool() and not before.is_bool() else inner
    if op.kind == "map" and _plain(value) and all(_plain(v) for v in op.operands):
        row = ROWS[op["fn"]]
        code = emitter.with_helpers(emitter.row_code(row, "int", op))
        parts = [tight(scalar(emitter, v, at)) for v in op.operands]
        return chosen(code.format(*parts))
    if op.kind == "if":
        i = op.results.index(value)
        chosen_by, (yes, no) = scalar(emitter, op.operands[0], at), (r.yields[i] for r in op.regions)
        return f"jnp.where({chosen_by}, {scalar(emitter, yes, at)}, {scalar(emitter, no, at)})"
    raise _refused(value, op)


def scalar_load(emitter: Operands, op: Op, at: Place) -> str:
    """One element of a small array, from SMEM."""
    plan, access = emitter.plan, emitter.plan.accesses[op]
    view = plan.views[access.param]
    if access.param in plan.written:
        raise error(
            "tpu-not-translated",
            f"{access.param!r} decides addresses and is stored to",
            where=op.where,
            why="the numbers are copied to scalar memory before the kernel starts",
            do="store to a tensor of its own",
        )
    form = plan.form(access.form) - Form(view.origin)
    index, bounds = scalar_form(emitter, form, at), form.range()
    if bounds is None or bounds[0] < 0 or bounds[1] >= view.size:
        index = f"jnp.clip({index}, 0, {view.size - 1})"
    text = f"{emitter.in_smem(access)}[{index}]"
    if small(op.operands[0].type.element.element_ty):  # type: ignore[union-attr]
        text = f"{text}.astype(jnp.int32)"
    if access.mask:
        other = literal(zero_of(op.result.type.element)).code
        if op["has_other"]:
            other = scalar(emitter, op.operands[-1], at)
        text = f"jnp.where({scalar(emitter, op.operands[1], at)}, {text}, {other})"
    return text


def _plain(value: Value) -> bool:
    return bool(value.type.element.is_int() or value.type.element.is_bool())


def _under_old_names(emitter: Operands, op: Op, at: Place) -> Place:
    """The place as an operand sees it, whose dimensions have other names."""
    if op not in emitter.plan.dims.renames:
        return at
    top, var = emitter.plan.top, emitter.plan.affine.axis_var
    names = {top(var(a)): top(var(b)) for a, b in emitter.plan.dims.renaming(op).items()}
    return {**at, **{a: at[b] for a, b in names.items() if b in at}}


def _refused(value: Value, op: Op | None) -> Diagnostic:
    what = op.attrs.get("fn", op.kind) if op is not None else "a loop"
    return error(
        "tpu-not-translated",
        f"{value.name or 'a value'!r} decides an address and is made by {what}",
        where=op.where if op is not None else None,
        why="addresses are computed on the scalar core, from integers in scalar memory",
        do="compute it in a kernel of its own and load it, or run this one on the CPU",
    )
