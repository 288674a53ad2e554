"""Windows that start where run-time numbers say: copies from HBM to VMEM, and back.

Input: an access of tiles whose starts are scalars. Output: statements and the expression of the tile. Law: a copy
starts at a native tile and lies inside the array; what was aligned away is rolled back, and elements that wrap around
in that, or lie past the array, are behind the access's own mask and are neither used nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.expr import Expr, align, shape_of, tight
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
        moved: how what was copied gets where it is wanted: "roll", "slide" (read further on in a longer buffer) or "".
        known: the first element wanted of a dimension that is copied whole.
    """

    var: Var | None
    size: int
    taken: int
    start: Form
    unit: int
    moved: str = ""
    known: int = 0

    @property
    def room(self) -> int:
        """Elements of the buffer."""
        return 2 * self.taken if self.moved == "slide" else self.taken


def sides_of(emitter: Steered, access: Access) -> list[Side]:
    """The dimensions of an access's copy.

    Raises:
        Diagnostic: no copy covers it.
    """
    plan, view, window = emitter.plan, emitter.plan.views[access.param], emitter.plan.windows[access.op]
    if window is None or view.pad != (0, 0) or view.widened:
        raise untiled(plan, access)
    if varies(emitter, access):
        raise untiled(plan, access)
    out = []
    for i, piece in enumerate(rows_of(view, window)):
        lanes = {v: s for v, s in piece.steps.items() if not emitter.is_number(v)}
        if len(lanes) > 1 or any(s != 1 for s in lanes.values()):
            raise untiled(plan, access)
        var = next(iter(lanes), None)
        n = emitter.extent(var) if var is not None else 1
        moving = Form(piece.start, {s: c for s, c in {**piece.steps, **piece.opaques}.items() if s is not var})
        out.append(_side(emitter, access, i, var, n, moving))
    if all(side.taken == 0 for side in out):
        raise untiled(plan, access)
    return out


def varies(emitter: Steered, access: Access) -> bool:
    """Whether a run-time number in an address is one a lane, not one a program."""
    window = emitter.plan.windows[access.op]
    opaques = [o for piece in window.slices for o in piece.opaques] if window is not None else []
    while opaques:
        opaque = opaques.pop()
        if opaque.fn:
            inner = [emitter.plan.form(form) for form in opaque.forms]
            if any(not emitter.is_number(v) for form in inner for v in form.vars):
                return True
            opaques += [o for form in inner for o in form.opaques]
        elif any(v is not None for v in emitter.plan.axes(opaque.value)) or any(
            not emitter.is_number(v) for v in map(emitter.plan.top, emitter.plan.deps(opaque.value))
        ):
            return True
    return False


def _side(emitter: Steered, access: Access, i: int, var: Var | None, n: int, start: Form) -> Side:
    view = emitter.plan.views[access.param]
    item = access.element.itemsize
    size, behind = view.widths[i], len(view.shape) - 1 - i
    if len(view.shape) == 1:
        unit = 128 if item == 4 else 1024
        return Side(var, n, -(-(n + unit - 1) // unit) * unit, start, unit, "roll")
    if behind >= 2:
        if var is None:
            return Side(None, 1, 0, start, 1)
        return Side(var, n, n, start, 1, "" if _inside(start, n, size) else "slide")
    if behind == 0:
        if not start.terms:
            return Side(var, n, size, start, 0, known=start.const)
        if n % 128 or size % 128 or any(c % 128 for c in (start.const, *start.terms.values())):
            raise untiled(emitter.plan, access)
        return Side(var, n, n, start, 128)
    unit = 32 if item == 1 else 8
    if not start.terms and n == size:
        return Side(var, n, size, start, 0)
    if var is None and item == 4:
        return Side(None, 1, 0, start, 1)
    aligned = not any(c % unit for c in (start.const, n, *start.terms.values()))
    if aligned and _inside(start, n, size):
        return Side(var, n, n, start, unit)
    taken = n if aligned else -(-(n + unit - 1) // unit) * unit
    return Side(var, n, taken, start, unit, "roll")


def _inside(start: Form, n: int, size: int) -> bool:
    bounds = start.range()
    return bounds is not None and bounds[0] >= 0 and bounds[1] + n <= size


def room(emitter: Steered, access: Access, sides: Sequence[Side]) -> tuple[int, ...]:
    """The shape that the array has to have, so that every copy finds whole tiles in it."""
    out = []
    for side, size in zip(sides, emitter.plan.views[access.param].widths):
        if side.unit in (8, 32) or len(sides) == 1:
            size = max(side.taken, -(-size // side.unit) * side.unit)
        out.append(max(size, side.taken))
    return tuple(out)


def source(emitter: Steered, access: Access, sides: Sequence[Side], at: At) -> tuple[str, list[str]]:
    """The index of the copied part of the array, and how far each side is from where the access wants it."""
    parts, shifts = [], []
    for side, width, size in zip(sides, emitter.plan.views[access.param].widths, room(emitter, access, sides)):
        shifts.append("0")
        if side.unit == 0:
            parts.append(":")
            continue
        start = at(side.start)
        if not start.isdigit():
            if side.moved or not _inside(side.start, max(1, side.size), width):
                start = f"jnp.clip({start}, 0, {size - (1 if side.moved else max(1, side.taken))})"
            start = emitter.assign("start", Expr(start)).code
        if side.taken == 0:
            parts.append(start)
            continue
        if side.moved:
            base = f"lax.div({start}, {side.unit}) * {side.unit}" if side.unit > 1 else start
            base = emitter.assign("base", Expr(f"jnp.minimum({base}, {size - side.taken})")).code
            shifts[-1], start = f"{start} - {base}", base
        if side.unit > 1 and not start.isdigit():
            start = f"pl.multiple_of({start}, {side.unit})"
        parts.append(f"pl.ds({start}, {side.taken})")
    return ", ".join(parts), shifts


def landing(buf: str, sides: Sequence[Side], slot: str = "") -> str:
    """The part of a buffer that a copy fills."""
    parts = [f"pl.ds(0, {s.taken})" if s.moved == "slide" else ":" for s in sides if s.taken]
    lead = [slot] if slot else []
    if all(p == ":" for p in parts):
        return f"{buf}.at[{slot}]" if slot else buf
    return f"{buf}.at[{', '.join([*lead, *parts])}]"


def _place(buf: str, sides: Sequence[Side], shifts: Sequence[str], slot: str = "") -> str:
    """What of a buffer the access wants, rolled sides whole."""
    parts = [slot] if slot else []
    for side, shift in zip(sides, shifts):
        if not side.taken:
            continue
        if side.moved == "slide":
            parts.append(f"pl.ds({shift}, {side.size})")
        elif side.moved or side.size == side.taken:
            parts.append(":")
        else:
            parts.append(f"{side.known}:{side.known + side.size}")
    plain = all(p == ":" for p in parts[1 if slot else 0 :])
    if plain:
        return f"{buf}[{slot or '...'}]"
    return f"{buf}[{', '.join(parts)}]"


def tile(access: Access, sides: Sequence[Side], buf: str, shifts: Sequence[str], slot: str = "") -> Expr:
    """The tile that was copied, as the access wants it."""
    element = access.element
    code = _place(buf, sides, shifts, slot)
    flat = len(sides) == 1
    if flat:
        code = f"{code}[None]"
    if small(element):
        code = f"{code}.astype(jnp.int32)"
    left = [(side, shift) for side, shift in zip(sides, shifts) if side.taken]
    rolled = next((i for i, (side, _) in enumerate(left) if side.moved == "roll"), None)
    if rolled is not None:
        side, shift = left[rolled]
        narrow = element.itemsize < 4 and not small(element)
        inner = f"{code}.astype(jnp.float32)" if narrow else code
        axis = rolled + flat
        code = f"pltpu.roll({inner}, lax.rem({side.taken} - ({shift}), {side.taken}), {axis})"
        if side.size < side.taken:
            total = len(left) + flat
            code = f"{code}[{', '.join(f':{side.size}' if i == axis else ':' for i in range(total))}]"
        if narrow:
            code = f"{code}.astype(jnp.{element.numpy_name})"
    dims: list[Var | None] = [None] if flat else []
    return Expr(code, (*dims, *(side.var for side, _ in left)))


def merge(
    emitter: Steered,
    access: Access,
    sides: Sequence[Side],
    buf: str,
    shifts: Sequence[str],
    value: Expr,
    mask: Expr | None,
) -> None:
    """Put a value over what a buffer holds, where the mask holds."""
    element = access.element
    name = element.numpy_name
    left = [(side, shift) for side, shift in zip(sides, shifts) if side.taken]
    flat = len(sides) == 1
    dims: tuple[Var | None, ...] = (*([None] if flat else []), *(side.var for side, _ in left))
    shape = shape_of(dims, emitter.extent)
    rolled = next((i for i, (side, _) in enumerate(left) if side.moved == "roll"), None)
    place = _place(buf, sides, shifts)
    if value.literal is not None and not value.dims:
        code = f"jnp.full({shape}, {value.code}, jnp.{'int32' if small(element) else name})"
    else:
        code = f"jnp.broadcast_to({align(value, dims)}, {shape})"
    if rolled is None:
        if mask is not None:
            code = f"jnp.where({align(mask, dims)}, {code}, {place})"
        emitter.put(f"{place} = {tight(code)}.astype(jnp.{name})", access.op)
        return
    side, shift = left[rolled]
    axis = rolled + flat
    wide = "float32" if element.is_floating() else "int32"
    more = [(0, side.taken - side.size) if i == axis else (0, 0) for i in range(len(dims))]
    put = emitter.assign(
        "moved", Expr(f"pltpu.roll(jnp.pad({tight(code)}.astype(jnp.{wide}), {more}), {shift}, {axis})")
    )
    counter = (
        f"lax.broadcasted_iota(jnp.int32, {tuple(side.taken if i == axis else 1 for i in range(len(dims)))}, {axis})"
    )
    at = emitter.assign("at", Expr(counter)).code
    here = f"({at} >= {shift}) & ({at} < {shift} + {side.size})"
    if mask is not None:
        rows = f"jnp.where(jnp.broadcast_to({align(mask, dims)}, {shape}), 1, 0)"
        here = f"{here} & (pltpu.roll(jnp.pad({rows}, {more}), {shift}, {axis}) > 0)"
    cut = [":" if s.size == s.taken or s.moved else f"{s.known}:{s.known + s.size}" for s, _ in left]
    whole = f"{buf}[...]" if all(c == ":" for c in cut) else f"{buf}[{', '.join(cut)}]"
    old = f"{whole}[None]" if flat else whole
    picked = f"jnp.where({here}, {put.code}.astype(jnp.{name}), {old})"
    emitter.put(f"{whole} = {picked}[0]" if flat else f"{whole} = {picked}", access.op)
