"""Windows that start where run-time numbers say: copies from HBM to VMEM, and back.

Input: an access of tiles whose starts are scalars. Output: statements and the expression of the tile. Law: a copy
starts at a native tile and lies inside the array; what was aligned away is rolled back, and rows that wrap around
in that are behind the access's own mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frontend_triton_compat.access import Slice
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.expr import Expr
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.emit.tpu.outside import rows_of
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.holding import small

if TYPE_CHECKING:
    from frontend_triton_compat.emit.tpu.steered import Steered

#: Source of a form at some place.
At = Callable[[Form], str]


@dataclass(frozen=True)
class Side:
    """One dimension of a copy.

    Attributes:
        var: what it counts; None for one index.
        size: elements that the access wants.
        taken: elements that are copied; 0 where the dimension is an index that falls away.
        start: the coordinate, a form.
        unit: multiples that a start has; 0 for a dimension that is copied whole.
        rolled: whether what was copied has to be moved to where it is wanted.
        known: the first element wanted of a dimension that is copied whole.
    """

    var: Var | None
    size: int
    taken: int
    start: Form
    unit: int
    rolled: bool = False
    known: int = 0


def sides_of(emitter: Steered, access: Access) -> list[Side]:
    """The dimensions of an access's copy.

    Raises:
        Diagnostic: no copy covers it.
    """
    plan, view, window = emitter.plan, emitter.plan.views[access.param], emitter.plan.windows[access.op]
    if window is None or view.pad != (0, 0) or len(view.shape) < 2:
        raise untiled(plan, access)
    out = []
    item = access.op.operands[0].type.element.element_ty.itemsize  # type: ignore[union-attr]
    for i, piece in enumerate(rows_of(view, window)):
        lanes = {v: s for v, s in piece.steps.items() if not emitter.is_number(v)}
        if len(lanes) > 1 or any(s != 1 for s in lanes.values()):
            raise untiled(plan, access)
        var = next(iter(lanes), None)
        n = emitter.extent(var) if var is not None else 1
        moving = Form(piece.start, {s: c for s, c in {**piece.steps, **piece.opaques}.items() if s is not var})
        out.append(_side(emitter, access, i, var, n, moving, item, piece))
    return out


def _side(
    emitter: Steered, access: Access, i: int, var: Var | None, n: int, start: Form, item: int, piece: Slice
) -> Side:
    view = emitter.plan.views[access.param]
    size, behind = view.widths[i], len(view.shape) - 1 - i
    if behind >= 2:
        if n > 1 and not _inside(start, n, size):
            raise untiled(emitter.plan, access)
        return Side(var, n, n if var is not None else 0, start, 1)
    if behind == 0:
        if not start.terms:
            return Side(var, n, size, start, 0, known=start.const)
        steps = (start.const, *start.terms.values())
        if n % 128 or size % 128 or any(c % 128 for c in steps):
            raise untiled(emitter.plan, access)
        return Side(var, n, n, start, 128)
    unit = 32 if item == 1 else 8
    if not start.terms and n == size:
        return Side(var, n, size, start, 0)
    if n == 1 and item == 4:
        return Side(var, 1, 1, start, 1)
    aligned = not any(c % unit for c in (start.const, n, *start.terms.values()))
    if aligned and _inside(start, n, size):
        return Side(var, n, n, start, unit)
    taken = n if aligned else -(-(n + unit - 1) // unit) * unit
    return Side(var, n, taken, start, unit, rolled=True)


def _inside(start: Form, n: int, size: int) -> bool:
    bounds = start.range()
    return bounds is not None and bounds[0] >= 0 and bounds[1] + n <= size


def rows_needed(emitter: Steered, access: Access, sides: list[Side]) -> int:
    """Rows that the array has to have, so that every copy finds whole tiles in it."""
    size = emitter.plan.views[access.param].widths[-2]
    side = sides[-2]
    if not side.unit or side.unit == 1:
        return size
    return max(side.taken, -(-size // side.unit) * side.unit)


def source(emitter: Steered, access: Access, sides: list[Side], rows: int, at: At) -> tuple[str, str]:
    """The index of the copied part of the array, and how far it is from where the access wants it."""
    view = emitter.plan.views[access.param]
    parts, shift = [], "0"
    for i, (side, width) in enumerate(zip(sides, view.widths)):
        size = rows if i == len(sides) - 2 else width
        if side.unit == 0:
            parts.append(":")
            continue
        start = at(side.start)
        if not _inside(side.start, max(1, side.size), width) or side.rolled:
            start = f"jnp.clip({start}, 0, {size - (1 if side.rolled else max(1, side.taken))})"
        start = emitter.assign("start", Expr(start)).code if not start.isdigit() else start
        if side.taken == 0:
            parts.append(start)
            continue
        if side.rolled:
            base = f"jnp.minimum(lax.div({start}, {side.unit}) * {side.unit}, {size - side.taken})"
            base = emitter.assign("base", Expr(base)).code
            shift = f"{start} - {base}"
            start = base
        if side.unit > 1 and not start.isdigit():
            start = f"pl.multiple_of({start}, {side.unit})"
        parts.append(f"pl.ds({start}, {side.taken})")
    return ", ".join(parts), shift


def tile(emitter: Steered, access: Access, sides: list[Side], ref: str, shift: str) -> Expr:
    """The tile that was copied, as the access wants it."""
    left = [side for side in sides if side.taken]
    code = ref
    rolled = next((i for i, side in enumerate(left) if side.rolled), None)
    element = access.op.operands[0].type.element.element_ty  # type: ignore[union-attr]
    if rolled is not None:
        side = left[rolled]
        wide = "float32" if element.is_floating() else "int32"
        inner = code if element.itemsize == 4 else f"{code}.astype(jnp.{wide})"
        code = f"pltpu.roll({inner}, lax.rem({side.taken} - ({shift}), {side.taken}), {rolled})"
        if element.itemsize < 4 and not small(element):
            code = f"{code}.astype(jnp.{element.numpy_name})"
    elif small(element):
        code = f"{code}.astype(jnp.int32)"
    cut = [":" if side.size == side.taken else f"{side.known}:{side.known + side.size}" for side in left]
    if any(c != ":" for c in cut):
        code = f"{code}[{', '.join(cut)}]"
    return Expr(code, tuple(side.var for side in left))
