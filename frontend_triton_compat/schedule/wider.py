"""Loops over chunks of keys take several chunks a turn: a matrix unit wants tiles larger than a GPU's.

Input: an analysed kernel. Output: the same kernel, changed in place: the chunks' axes are some powers of two longer and
the loops' steps with them. Law: only loops that keep the law of `recurrence.py`, whose counter is looked at together
with a lane of the axis and as its continuation (``start + arange``) only; a lane that no turn had before adds nothing.
What comes out is what came out, sums grouped anew, as those of a loop that becomes a variable are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from frontend_triton_compat.demand import Conjunct, closed
from frontend_triton_compat.dims import Axis
from frontend_triton_compat.forms import Form, Opaque, Symbol
from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.schedule.plan import Schedule
from frontend_triton_compat.schedule.recurrence import Recurrence, only_ratios, recurrence
from frontend_triton_compat.types import INT1, INT32, TileType

#: Elements of a chunk that fill a matrix unit's columns and hide the rescaling of what is carried.
WIDE = 512


def start_at_zero(kernel: Kernel) -> dict[Op, Value]:
    """Let loops begin at 0; those that did not, with what they began with."""
    found = {op: op.operands[0] for op in kernel.body.ops if op.kind == "for" and _number(op.operands[0]) is None}
    for op in found:
        zero = _Writer(kernel.body, op).number(0, op.operands[0].type)
        op.operands = (zero, *op.operands[1:])
    return found


def widen(plan: Schedule, begins: Mapping[Op, Value]) -> bool:
    """Let loops take several of their chunks a turn; whether there was one to change.

    `begins`: loops that were made to begin at 0. Where one of them may not, there is nothing to change.
    """
    groups = _groups(plan)
    changed, moved = False, []
    for loops, axes in groups:
        laws = {op: law for op in loops if (law := _law(plan, op, axes)) is not None}
        if len(laws) < len(loops):
            continue
        if any(law.scaled for law in laws.values()) and not only_ratios(plan, _all_laws(plan, groups)):
            continue
        if not all(_begins(plan, op, laws[op], axes, begins[op]) for op in loops if op in begins):
            return False
        times = _times(plan, loops, laws, axes)
        moved += [op for op in loops if op in begins]
        for op in moved:
            lo = plan.affine.grid_value(begins[op])
            assert lo is not None
            op.attrs = {**op.attrs, "skip": lo.astype(np.int64) // (next(iter(axes)).size * times)}
        if times > 1:
            masks = {op: _to_mask(plan, op, laws[op], axes, times) if _ragged(plan, op, times) else [] for op in loops}
            _stretch(plan, loops, axes, times)
            for op, found in masks.items():
                _mask(plan, op, found, axes, times)
            changed = True
    return len(moved) == len(begins) and (changed or bool(begins))


def _all_laws(plan: Schedule, groups: list[tuple[list[Op], set[Axis]]]) -> dict[Op, Recurrence]:
    found = {op: _law(plan, op, axes) for loops, axes in groups for op in loops}
    return {op: law for op, law in found.items() if law is not None}


# -- which loops, along which axes


def _groups(plan: Schedule) -> list[tuple[list[Op], set[Axis]]]:
    """Loops over chunks with the axes of the chunks; loops that share an axis go together."""
    groups: list[tuple[list[Op], set[Axis]]] = []
    for op, loop in plan.affine.loops.items():
        if op in plan.folds or op not in plan.kernel.body.ops or loop.trips is None or loop.step is None:
            continue
        if loop.trips.max() < 1 or any(inner.regions for inner in op.regions[0].ops):
            continue
        dots = [o for o in op.regions[0].ops if o.kind == "dot" and o.result in plan.demand.live]
        axes = {
            v.axis
            for form in plan.demand.roots
            if loop.var in form.vars
            for v in form.vars
            if v.axis is not None and form.coefficient(loop.var) == form.coefficient(v) * v.axis.size
        }
        if not dots or not axes or not any(set(plan.dims[o.result]) & axes for o in dots):
            continue
        mine, whole = [op], set(axes)
        for group in [g for g in groups if g[1] & whole]:
            groups.remove(group)
            mine, whole = [*group[0], *mine], group[1] | whole
        groups.append((mine, whole))
    return [(loops, axes) for loops, axes in groups if _only_together(plan, loops, axes)]


def _only_together(plan: Schedule, loops: list[Op], axes: set[Axis]) -> bool:
    """Whether counters and lanes are always looked at as one number, and what lies along the axes stays inside."""
    (size, *others) = {a.size for a in axes}
    if others or any(a.rigid for a in axes):
        return False
    counters = {plan.affine.loops[op].var for op in loops}
    lanes = {plan.affine.axis_var(a) for a in axes}
    own = {Form(0, {v: 1}) for v in counters}
    for op in loops:
        own |= {c.form for c in plan.walker.loop_condition(plan.affine.loops[op]) if c.form is not None}

    def together(form: Form) -> bool:
        turns, along = [v for v in form.vars if v in counters], [v for v in form.vars if v in lanes]
        if not turns and not along:
            return True
        return len(turns) == len(along) == 1 and form.coefficient(turns[0]) == form.coefficient(along[0]) * size

    if not all(form in own or together(form) for form in plan.demand.roots):
        return False
    if not all(together(plan.affine.form(value)) for value in plan.demand.indexed):
        return False
    inside = {r for op in loops for o in op.regions[0].ops for r in o.results}
    for value in plan.demand.live - plan.demand.indexed:
        if axes & set(plan.dims[value]) and value not in inside and not _still(value):
            return False
    return True


def _number(value: Value) -> int | None:
    op = value.producer
    while op is not None and op.kind == "cast":
        op = op.operands[0].producer
    return int(op["value"]) if op is not None and op.kind == "const" else None


def _still(value: Value) -> bool:
    """Whether a tile is one number in all elements."""
    op = value.producer
    return op is not None and op.kind in ("splat", "broadcast")


# -- the law


def _law(plan: Schedule, op: Op, axes: set[Axis]) -> Recurrence | None:
    law = recurrence(plan, op, axes)
    if law is None or law.guarded or all(_some_lane(plan, op, axes, peak) for peak in law.peaks):
        return law
    return None


def _some_lane(plan: Schedule, op: Op, axes: set[Axis], peak: Value) -> bool:
    """Whether the first lane of a loop's first turn is a finite number in every row of every program that runs it.

    Without that a row may carry an infinite extreme from one turn to the next, and what it becomes tells turns apart.
    Products of finite tiles are taken to be finite; a number that is loaded and added may be infinite.
    """
    conditions: list[Conjunct] = []
    if not _finite(plan, axes, peak, conditions):
        return False
    loop = plan.affine.loops[op]
    first: dict[Symbol, Form] = {loop.var: Form(), **{plan.affine.axis_var(a): Form() for a in axes}}
    for c in conditions:
        highest = _extreme(plan, c.form.substitute(first), 1) if c.form is not None else None
        assert loop.trips is not None
        if highest is None or (np.broadcast_to(highest, plan.kernel.grid) >= 0)[_here(plan, loop.trips)].any():
            return False
    return True


def _here(plan: Schedule, trips: np.ndarray) -> np.ndarray:
    return np.broadcast_to(trips, plan.kernel.grid) > 0


def _finite(plan: Schedule, axes: set[Axis], value: Value, conditions: list[Conjunct]) -> bool:
    """Whether a float is finite where the conditions hold, which are appended, or else in no lane of any turn."""
    op = value.producer
    if op is None:
        return False
    if op.kind in ("dot", "arg"):
        return True
    if op.kind == "const":
        return abs(op["value"]) != float("inf")
    if not value.type.element.is_floating():
        return value.type.element.is_int()
    if op.kind == "load":
        return not axes & set(plan.dims[value])
    if op.kind == "map" and op["fn"] == "where":
        condition, yes, no = op.operands
        for side, other, parts in (
            (no, yes, plan.walker.conjuncts(condition)),
            (yes, no, plan.walker.negated(condition)),
        ):
            if not _finite(plan, axes, side, []):
                conditions += parts
                return _finite(plan, axes, other, conditions)
        return _finite(plan, axes, yes, conditions)
    return op.kind in ("map", "cast", "splat", "broadcast", "expand_dims", "trans", "reshape") and all(
        _finite(plan, axes, v, conditions) for v in op.operands
    )


def _extreme(plan: Schedule, form: Form, sign: int) -> np.ndarray | None:
    """A form's largest (smallest) value in every program, over all lanes and turns; None where it is not known."""
    total = np.full((1, 1, 1), form.const, np.int64)
    for symbol, c in form.terms.items():
        if isinstance(symbol, Opaque):
            numbers = plan.affine.grid_value(symbol.value)
            if numbers is None:
                return None
            total = total + c * numbers.astype(np.int64)
        elif symbol.labels is not None:
            total = total + c * symbol.labels
        elif symbol.kind == "program":
            axis = plan.affine.programs.index(symbol)
            total = total + c * np.arange(symbol.size or 1).reshape([-1 if i == axis else 1 for i in range(3)])
        elif symbol.count is None:
            return None
        elif c * sign > 0:
            total = total + c * (symbol.count - 1)
    return total


# -- where loops begin


def _begins(plan: Schedule, op: Op, law: Recurrence, axes: set[Axis], begin: Value) -> bool:
    """Whether a loop that began where the program says may begin at 0: what it ran before and after changes nothing.

    Every lane outside of its bounds is shut out of all that is added, and a turn of such lanes only leaves what is
    carried as it was: ``exp(-infinity - a number)`` is 0, ``exp(top - top)`` is 1, or 0 where nothing was added yet.
    """
    loop, body = plan.affine.loops[op], op.regions[0]
    (size,) = {a.size for a in axes}
    lo, hi = plan.affine.grid_value(begin), plan.affine.grid_value(op.operands[1])
    if lo is None or hi is None or loop.step != size or (lo < 0).any() or not law.guarded:
        return False
    if (hi <= lo).any():
        return False  # what no turn is run for keeps what it began with
    if any(arg in loop.carried and plan.demand.users.get(arg) for arg in body.args[1:]):
        return False
    for _, _, fn, hidden in law.addends:
        conditions = [c for v in hidden for c in plan.walker.conjuncts(v)]
        if fn != "factor" and not (
            _ends(plan, op, axes, conditions, hi.astype(np.int64)) and _late(plan, op, axes, conditions, lo)
        ):
            return False
    return True


def _late(plan: Schedule, op: Op, axes: set[Axis], conditions: Iterable[Conjunct], lo: np.ndarray) -> bool:
    """Whether conditions shut out all lanes before number `lo`, in every program."""
    loop = plan.affine.loops[op]
    lanes = [plan.affine.axis_var(a) for a in axes]
    shut = np.broadcast_to(lo <= 0, plan.kernel.grid)
    for c in conditions:
        along = [v for v in c.form.vars if v in lanes] if c.form is not None else []
        if c.form is None or len(along) != 1 or c.form.coefficient(along[0]) >= 0:
            continue
        step = -c.form.coefficient(along[0])
        lowest = _extreme(plan, c.form.substitute({along[0]: Form(), loop.var: Form()}), -1)
        if lowest is not None:
            shut = shut | (lowest - step * (lo.astype(np.int64) - 1) >= 0)
    return bool(shut.all())


# -- how many chunks


def _times(plan: Schedule, loops: list[Op], laws: dict[Op, Recurrence], axes: set[Axis]) -> int:
    """How many chunks a turn takes, a power of two."""
    (size,) = {a.size for a in axes}
    most = max(int(plan.affine.loops[op].trips.max()) for op in loops)  # type: ignore[union-attr]
    times = 1
    while times * 2 * size <= WIDE and times < most:
        times *= 2
    while times > 1 and not all(_fits(plan, op, laws[op], axes, times) for op in loops):
        times //= 2
    return times


def _fits(plan: Schedule, op: Op, law: Recurrence, axes: set[Axis], times: int) -> bool:
    loop = plan.affine.loops[op]
    if not _ragged(plan, op, times):
        return True
    body = op.regions[0]
    ends = [r for arg, r in zip(body.args[1:], op.results) if arg in loop.carried and plan.demand.users.get(r)]
    if ends:
        return False  # where a pointer ends up is where the turns end
    if loop.step is None or loop.step <= 0 or next(iter(axes)).size % loop.step:
        return False
    needed = _to_mask(plan, op, law, axes, times)
    return all(fn in ("load", "factor") for _, _, fn in needed) or _bound_known(plan, op, axes)


def _ragged(plan: Schedule, op: Op, times: int) -> bool:
    """Whether some program's last turn is not full."""
    trips = plan.affine.loops[op].trips
    assert trips is not None
    return bool((trips % times).any())


def _bound_known(plan: Schedule, op: Op, axes: set[Axis]) -> bool:
    """Whether the end of a loop's last chunk is a short formula."""
    loop = plan.affine.loops[op]
    (size,) = {a.size for a in axes}
    if loop.step not in (1, size):
        return False
    return closed(loop.lo) and closed(loop.hi)


def _to_mask(plan: Schedule, op: Op, law: Recurrence, axes: set[Axis], times: int) -> list[tuple[Op, int, str]]:
    """The operands in which lanes behind a loop's last chunk must be made neutral."""
    found = []
    past = _past(plan, op, axes, times)
    for inner, i, fn, hidden in law.addends:
        if fn == "factor":
            if past and not _loaded(inner.operands[i]):
                found.append((inner, i, fn))
        elif not _ends(plan, op, axes, [c for v in hidden for c in plan.walker.conjuncts(v)], _own_end(plan, op, axes)):
            found.append((inner, i, fn))
    for inner in op.regions[0].ops:
        if past and inner.kind == "load" and inner.result in plan.demand.live and axes & set(plan.dims[inner.result]):
            mask = plan.demand.accesses[inner].mask
            if not inner["has_other"] or not _ends(
                plan, op, axes, mask, _last_end(plan, op, axes) - _start(plan, op, axes)
            ):
                found.append((inner, 0, "load"))
    return found


def _start(plan: Schedule, op: Op, axes: set[Axis]) -> np.ndarray:
    """The number that a loop's first lane stands for, in every program."""
    lo, step = plan.affine.grid_value(op.operands[0]), plan.affine.loops[op].step
    (size,) = {a.size for a in axes}
    assert lo is not None and step is not None
    return lo.astype(np.int64) * (size // step)


def _own_end(plan: Schedule, op: Op, axes: set[Axis]) -> np.ndarray:
    """The lanes of all of a loop's chunks, in every program."""
    trips = plan.affine.loops[op].trips
    (size,) = {a.size for a in axes}
    assert trips is not None
    return trips * size


def _last_end(plan: Schedule, op: Op, axes: set[Axis]) -> int:
    """The number behind the last lane of any program: what lies before it is there to be read."""
    return int((_start(plan, op, axes) + _own_end(plan, op, axes)).max())


def _past(plan: Schedule, op: Op, axes: set[Axis], times: int) -> bool:
    """Whether some program's last turn reaches further than any program's did."""
    trips = plan.affine.loops[op].trips
    (size,) = {a.size for a in axes}
    assert trips is not None
    ends = _start(plan, op, axes) + -(-trips // times) * (times * size)
    return int(ends.max()) > _last_end(plan, op, axes)


def _loaded(value: Value) -> bool:
    op = value.producer
    while op is not None and op.kind in ("trans", "cast", "broadcast", "expand_dims"):
        op = op.operands[0].producer
    return op is not None and op.kind == "load"


def _ends(plan: Schedule, op: Op, axes: set[Axis], conditions: Iterable[Conjunct], last: np.ndarray) -> bool:
    """Whether conditions shut out all lanes from the `last` one on, counted from a loop's first, in every program."""
    loop = plan.affine.loops[op]
    lanes = [plan.affine.axis_var(a) for a in axes]
    ends: np.ndarray | None = None
    for c in conditions:
        along = [v for v in c.form.vars if v in lanes] if c.form is not None else []
        if c.form is None or len(along) != 1 or c.form.coefficient(along[0]) <= 0:
            continue
        step = c.form.coefficient(along[0])
        lowest = _extreme(plan, c.form.substitute({along[0]: Form(), loop.var: Form()}), -1)
        if lowest is not None:
            end = -(lowest // step)  # the first lane that is shut out in all rows
            ends = end if ends is None else np.minimum(ends, end)
    return ends is not None and bool((ends <= last).all())


# -- the change


class _Writer:
    """Appends operations in front of another one."""

    def __init__(self, block: Block, near: Op):
        self.block, self.near = block, near

    def __call__(self, kind: str, operands: tuple[Value, ...], result: TileType, **attrs: object) -> Value:
        made = Op(kind, operands, attrs, self.near.where)
        made.results = (Value(result, "", producer=made),)
        self.block.ops.insert(self.block.ops.index(self.near), made)
        return made.result

    def number(self, value: int | float, like: TileType) -> Value:
        """A constant, in every element of a tile."""
        const = self("const", (), TileType(like.element), value=value)
        return self("splat", (const,), like) if like.shape else const


def _mask(plan: Schedule, op: Op, found: list[tuple[Op, int, str]], axes: set[Axis], times: int) -> None:
    """Lanes behind a loop's last chunk become neutral."""
    loop, body = plan.affine.loops[op], op.regions[0]
    (size,) = {a.size for a in axes}
    assert loop.step is not None
    for inner, i, fn in found:
        write = _Writer(body, inner)
        value = inner.result if fn == "load" else inner.operands[i]
        at = next(i for i, a in enumerate(plan.dims[value]) if a in axes)
        last = _last_end(plan, op, axes) if fn in ("load", "factor") else None
        inside = _inside(write, _Writer(plan.kernel.body, op), op, size, loop.step, times, last)
        inside = _spread(write, inside, at, value.shape)
        if fn == "load":
            rest = inner.operands[1:]
            mask = write("map", (rest[0], inside), inside.type, fn="and") if inner["has_mask"] else inside
            element = value.type.element
            zero = 0.0 if element.is_floating() else False if element.is_bool() else 0
            other = rest[-1] if inner["has_other"] else write.number(zero, value.type)
            inner.operands = (inner.operands[0], mask, other)
            inner.attrs = {**inner.attrs, "has_mask": True, "has_other": True}
            continue
        neutral = {"max": float("-inf"), "min": float("inf")}.get(fn, 0.0)
        kept = write("map", (inside, value, write.number(neutral, value.type)), value.type, fn="where")
        inner.operands = (*inner.operands[:i], kept, *inner.operands[i + 1 :])


def _inside(write: _Writer, before: _Writer, op: Op, size: int, step: int, times: int, last: int | None) -> Value:
    """Of every lane, whether the loop had it, or (`last`) whether some program's had."""
    counter, kind = op.regions[0].args[0], op.operands[0].type
    factor = size // step
    lo, hi = op.operands[0], op.operands[1]
    if last is not None:
        end = before.number(last, kind)
    elif step == 1:
        end = before("map", (hi, before.number(size, kind)), kind, fn="mul")
    else:
        gap = before("map", (hi, lo), kind, fn="sub")
        up = before("map", (gap, before.number(size - 1, kind)), kind, fn="add")
        chunks = before("map", (up, before.number(size, kind)), kind, fn="idiv")
        whole = before("map", (chunks, before.number(size, kind)), kind, fn="mul")
        end = before("map", (lo, whole), kind, fn="add")
    start = write("map", (counter, write.number(factor, kind)), kind, fn="mul") if factor > 1 else counter
    lane = write("arange", (), TileType(INT32, (size * times,)), start=0, end=size * times)
    if kind.element != INT32:
        lane = write("cast", (lane,), kind.with_shape(lane.shape), rounding=None)
    at = write("map", (write("splat", (start,), lane.type), lane), lane.type, fn="add")
    return write("map", (at, write("splat", (end,), lane.type)), TileType(INT1, lane.shape), fn="lt")


def _spread(write: _Writer, mask: Value, at: int, shape: tuple[int, ...]) -> Value:
    for axis in range(len(shape)):
        if axis != at:
            longer = TileType(INT1, (*mask.shape[:axis], 1, *mask.shape[axis:]))
            mask = write("expand_dims", (mask,), longer, axis=axis)
    return write("broadcast", (mask,), TileType(INT1, shape)) if mask.shape != shape else mask


def _stretch(plan: Schedule, loops: list[Op], axes: set[Axis], times: int) -> None:
    """Make the axes longer, and the loops' steps with them."""
    for op in walk(plan.kernel.body):
        for value in [*op.results, *(a for region in op.regions for a in region.args)]:
            if not value.shape or value not in plan.dims.of:  # of another group's change
                continue
            shape = tuple(n * times if a in axes else n for n, a in zip(value.shape, plan.dims[value]))
            if shape != value.shape and op.kind == "arange":
                op.attrs = {**op.attrs, "end": op["start"] + shape[0]}
            value.type = value.type.with_shape(shape)
    for op in loops:
        loop, body = plan.affine.loops[op], op.regions[0]
        assert loop.step is not None
        before = _Writer(plan.kernel.body, op)
        step = before.number(loop.step * times, op.operands[2].type)
        op.operands = (*op.operands[:2], step, *op.operands[3:])
        yields = list(body.yields)
        for i, arg in enumerate(body.args[1:]):
            if arg in loop.carried:
                yields[i] = _advanced(body, op, arg, loop.carried[arg][1] * times)
        body.yields = tuple(yields)


def _advanced(body: Block, op: Op, arg: Value, by: int) -> Value:
    """A carried pointer or integer that moves on by a number of elements."""
    number = TileType(INT32, arg.shape) if arg.type.is_pointer else arg.type
    const = Op("const", (), {"value": by}, op.where)
    const.results = (Value(TileType(number.element), producer=const),)
    step = const.result
    body.ops.append(const)
    if arg.shape:
        splat = Op("splat", (step,), {}, op.where)
        splat.results = (Value(number, producer=splat),)
        body.ops.append(splat)
        step = splat.result
    kind, attrs = ("ptr_add", {}) if arg.type.is_pointer else ("map", {"fn": "add"})
    moved = Op(kind, (arg, step), attrs, op.where)
    moved.results = (Value(arg.type, arg.name, producer=moved),)
    body.ops.append(moved)
    return moved.result
