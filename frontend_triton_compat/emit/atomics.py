"""Atomic operations on the CPU: updates of memory that several programs, or several elements of a tile, share.

Input: an atomic operation and the emitter that writes the kernel. Output: statements. Law: where nobody looks at the
old values, all programs' updates are combined, first with each other and then with memory; where somebody does,
programs run one by one (`schedule.order`) and the elements of a tile, should two of them meet in one place, in
row-major order.
Floats are compared as Triton compares them: by their bits, so that NaN is larger than infinity and -0.0 less than 0.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, union
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.language.table import HELPERS

if TYPE_CHECKING:
    from frontend_triton_compat.demand import Access
    from frontend_triton_compat.emit.cpu import CpuEmitter
    from frontend_triton_compat.emit.cpu.windows import DimIndex

HELPERS["total_order"] = {
    "cpu": '''
def total_order(x):
    """Floats as integers in the order of their bits; applied twice, the bits themselves."""
    bits = x if jnp.issubdtype(x.dtype, jnp.integer) else lax.bitcast_convert_type(x, f"int{x.dtype.itemsize * 8}")
    return bits ^ ((bits >> (bits.dtype.itemsize * 8 - 1)) & jnp.iinfo(bits.dtype).max)
'''
}
#: How an update combines two values, for integers.
_COMBINE = {
    "add": "{0} + {1}",
    "max": "jnp.maximum({0}, {1})",
    "min": "jnp.minimum({0}, {1})",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "xchg": "{1}",
}
_REDUCE = {
    "add": "jnp.sum({0}, axis={1}, dtype={0}.dtype)",
    "max": "jnp.max({0}, axis={1})",
    "min": "jnp.min({0}, axis={1})",
    "and": "jnp.bitwise_and.reduce({0}, axis={1})",
    "or": "jnp.bitwise_or.reduce({0}, axis={1})",
    "xor": "jnp.bitwise_xor.reduce({0}, axis={1})",
}


def atomic(emitter: CpuEmitter, op: Op) -> None:
    """Write one atomic operation."""
    access = emitter.plan.accesses[op]
    wanted = op.result in emitter.plan.demand.live
    if any(c.form is not None and c.form.is_const for c in access.mask):  # a condition that never holds
        if wanted:
            emitter.env[op.result] = literal(0, op.result.type.element.numpy_name)
        return
    emitter.read_params[access.param] = None
    mask = emitter.mask(access.mask)
    mask = None if mask is None or mask.code == "True" else mask
    values = [emitter.value(v) for v in op.operands[1 : len(op.operands) - op["has_mask"]]]
    element = op.result.type.element
    values = [literal(v.literal, element.numpy_name) if v.literal is not None else v for v in values]
    if op["fn"] == "xchg" and not wanted:
        emitter.write(access, values[0], mask)
    elif op["fn"] == "cas" or wanted:
        _exchange(emitter, op, access, values, mask, wanted)
    else:
        _combine(emitter, op, access, values[0], mask)


# -- nobody looks at the old values ------------------------------------------------------------------------------------


def _combine(emitter: CpuEmitter, op: Op, access: Access, value: Expr, mask: Expr | None) -> None:
    """All programs' updates at once."""
    indices = _plain_window(emitter, access)
    fn, element = op["fn"], op.operands[1].type.element
    floats = element.is_floating() and fn in ("max", "min")
    if indices is None:
        _scatter(emitter, op, access, value, mask, floats)
        return
    target = tuple(v for d in indices for v in d.vars)
    present = union([value, *([mask] if mask is not None else [])])
    extra = tuple(v for v in present if v is not None and v not in target)
    value = _repeated(emitter, op, value, {*target, *extra})
    if floats:
        value = Expr(f"{_helper(emitter, 'total_order')}({value.code})", value.dims)
    if mask is not None:
        value = emitter.masked(mask, value, _identity(fn, element, floats), element.numpy_name)
    if extra:
        full = (*extra, *target)
        whole = f"jnp.broadcast_to({align(value, full)}, {shape_of(full, emitter.extent)})"
        whole = emitter.assign("updates", Expr(whole), op).code
        axes = tuple(range(len(extra)))
        value = Expr(_REDUCE[fn].format(whole, axes), target)
    place = emitter.place(access.param, indices)
    old = emitter.unfold(place, indices)
    if floats:
        old = Expr(f"total_order({old.code})", old.dims)
    new = Expr(_COMBINE[fn].format(Expr(old.code).operand, Expr(align(value, target)).operand), target)
    if floats:
        name = element.numpy_name
        new = Expr(f"lax.bitcast_convert_type(total_order({new.code}), jnp.{name})", target)
    if mask is not None and element.is_floating():  # an element without an update keeps its bits: -0.0 + 0.0 is 0.0
        touched = mask
        if any(v in extra for v in mask.vars):
            seen = (*(v for v in mask.vars if v in extra), *(v for v in mask.vars if v not in extra))
            count = sum(v in extra for v in mask.vars)
            touched = Expr(f"jnp.any({align(mask, seen)}, axis={tuple(range(count))})", seen[count:])
        new = emitter.masked(touched, new, emitter.unfold(place, indices), "")
    emitter.assign_window(access, indices, new)


def _repeated(emitter: CpuEmitter, op: Op, value: Expr, present: set[Var]) -> Expr:
    """The updates of all programs that do the same: none of their numbers is a dimension here."""
    fn = op["fn"]
    if fn not in ("add", "xor"):
        return value
    times = _programs(emitter, present)
    if times == 1:
        return value
    if fn == "xor":
        return value if times % 2 else literal(0, op.operands[1].type.element.numpy_name)
    name = op.operands[1].type.element.numpy_name
    return Expr(f"{value.operand} * jnp.{name}({times})", value.dims)


def _programs(emitter: CpuEmitter, present: set[Var]) -> int:
    """How many programs do one update of those whose dimensions are `present`."""
    plan = emitter.plan
    if plan.ordered:
        return 1
    used = {v for form in plan.demand.roots for v in form.vars}
    known = [v for v in plan.affine.programs if v is not None]
    atoms = [v for v in plan.affine.atoms.values() if v in used]
    if atoms:  # they number the programs together with the program ids in use
        known = [*atoms, *(v for v in known if v in used)]
    times = math.prod(plan.kernel.grid) // max(1, math.prod(v.size or 1 for v in known))
    for var in known:
        top = plan.top(var)
        if top not in present:
            # A variable that merged with lanes counts more than programs; one that did not may have been cropped.
            times *= (
                (top.count or 1) if not any(p.kind == "axis" for p in top.parts()) and top is var else var.size or 1
            )
    return times


def _identity(fn: str, element: Any, ordered: bool) -> Expr:
    """What changes nothing."""
    name = f"int{element.primitive_bitwidth}" if ordered else element.numpy_name
    if fn in ("max", "min"):
        return Expr(f"jnp.iinfo(jnp.{name}).{'min' if fn == 'max' else 'max'}")
    if fn == "and":
        return Expr(f"~jnp.{name}(0)")
    return literal(-0.0 if element.is_floating() else 0, name)


def _scatter(emitter: CpuEmitter, op: Op, access: Access, value: Expr, mask: Expr | None, floats: bool) -> None:
    """Updates of computed places; several may meet in one."""
    fn, param = op["fn"], access.param
    rows = emitter.scatter_rows(access, mask) if fn not in ("and", "or", "xor") else None
    named, index = emitter.scatter_index(access, [value], mask, rows=rows)
    value = _repeated(emitter, op, value, set(named))
    if fn in ("and", "or", "xor"):  # jax has no such scatter
        _one_by_one(emitter, op, access, [value], mask, wanted=False)
        return
    if floats:
        value = Expr(f"{_helper(emitter, 'total_order')}({value.code})", value.dims)
    stored = f"jnp.broadcast_to({align(value, named)}, {shape_of(named, emitter.extent)})" if named else value.code
    flat = emitter.flat(param, rows)
    if floats:
        flat = f"total_order({flat})"
    new = f"{flat}.at[{index}].{fn}({stored}, mode='drop')"
    if floats:
        new = f"lax.bitcast_convert_type(total_order({new}), jnp.{op.operands[1].type.element.numpy_name})"
    emitter.store_flat(param, new, op, rows)


# -- somebody does -----------------------------------------------------------------------------------------------------


def _exchange(emitter: CpuEmitter, op: Op, access: Access, values: list[Expr], mask: Expr | None, wanted: bool) -> None:
    """One program's update, and the values before it."""
    indices = _plain_window(emitter, access)
    lanes = tuple(v for v in emitter.plan.axes(op.operands[0]) if v is not None)
    target = tuple(v for d in indices for v in d.vars) if indices is not None else ()
    if indices is None or set(target) != set(lanes):
        _one_by_one(emitter, op, access, values, mask, wanted)
        return
    place = emitter.place(access.param, indices)
    old = emitter.assign("old", emitter.unfold(place, indices), op)
    new = _new(emitter, op, old, [Expr(align(v, target), target) for v in values])
    new = emitter.masked(mask, new, old, "")
    emitter.assign_window(access, indices, new)
    if wanted and mask is not None:  # masked-off lanes give 0
        name = op.result.type.element.numpy_name
        emitter.env[op.result] = emitter.assign("old", emitter.masked(mask, old, literal(0, name), name), op)
    elif wanted:
        emitter.env[op.result] = Expr(old.code, target)


def _one_by_one(
    emitter: CpuEmitter, op: Op, access: Access, values: list[Expr], mask: Expr | None, wanted: bool
) -> None:
    """A loop over elements: two of them may meet in one place."""
    view, param, element = emitter.plan.views[access.param], access.param, op.operands[1].type.element
    name = element.numpy_name
    lanes = tuple(v for v in emitter.plan.axes(op.operands[0]) if v is not None)
    named, index = emitter.scatter_index(access, values, mask, lanes)
    shape = shape_of(named, emitter.extent)
    count = math.prod(emitter.extent(v) for v in named)
    places = emitter.assign("places", Expr(f"jnp.reshape({index}, ({count},))"), op).code
    flat = [
        emitter.assign("values", Expr(f"jnp.broadcast_to({align(v, named)}, {shape}).reshape({count})"), op).code
        for v in values
    ]
    rounds = [""]
    if element.is_floating() and op["fn"] in ("max", "min") and count > 1:  # as Triton does: first what is positive
        rounds = [f" & ~jnp.signbit({flat[0]}[i])", f" & jnp.signbit({flat[0]}[i])"]
    olds = f"jnp.zeros({count}, jnp.{name})"
    for only in rounds:
        step = emitter.fresh("one_element")
        emitter.put(f"def {step}(i, olds):", op)
        emitter.indent += 1
        emitter.put(f"ok = ({places}[i] < {view.size}){only}")
        emitter.put(f"at = jnp.clip({places}[i], 0, {view.size - 1})")
        place = f"{param}_out[{emitter.element_index(param, 'at')}]"
        emitter.put(f"old = {place}")
        new = _new(emitter, op, Expr("old"), [Expr(f"{v}[i]") for v in flat])
        emitter.put(f"{place} = jnp.where(ok, {new.code}, old)")
        emitter.put("return olds.at[i].set(jnp.where(ok, old, olds[i]))" if wanted else "return olds")
        emitter.indent -= 1
        if not wanted:
            emitter.put(f"lax.fori_loop(0, {count}, {step}, ())", op)
            continue
        olds = emitter.assign("olds", Expr(f"lax.fori_loop(0, {count}, {step}, {olds})"), op).code
    if wanted:
        emitter.env[op.result] = emitter.assign(
            "old", Expr(f"{olds}.reshape({shape})" if named else f"{olds}[0]", named), op
        )


def _new(emitter: CpuEmitter, op: Op, old: Expr, values: list[Expr]) -> Expr:
    """What an update leaves in a place."""
    fn, element = op["fn"], op.operands[1].type.element
    dims = values[-1].dims
    if fn == "cas":
        compare, value = values
        if element.is_floating():
            bits = f"jnp.int{element.primitive_bitwidth}"
            same = f"lax.bitcast_convert_type({old.code}, {bits}) == lax.bitcast_convert_type({compare.code}, {bits})"
        else:
            same = f"{old.operand} == {compare.operand}"
        return Expr(f"jnp.where({same}, {value.code}, {old.code})", dims)
    (value,) = values
    if element.is_floating() and fn in ("max", "min"):
        order = _helper(emitter, "total_order")
        than = ">" if fn == "max" else "<"
        wins = f"{order}({value.code}) {than} {order}({old.code})"
        return Expr(f"jnp.where({wins}, {value.code}, {old.code})", dims)
    return Expr(_COMBINE[fn].format(old.operand, value.operand), dims)


def _helper(emitter: CpuEmitter, name: str) -> str:
    emitter.helpers[name] = None
    return name


def _plain_window(emitter: CpuEmitter, access: Access) -> list[DimIndex] | None:
    """The indices of a window that holds every element once; None for computed places."""
    view, window = emitter.plan.views[access.param], emitter.plan.windows[access.op]
    indices = emitter.window_indices(window, view) if window is not None else None
    return None if indices is None or emitter.awkward(indices) else indices
