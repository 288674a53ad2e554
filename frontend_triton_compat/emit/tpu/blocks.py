"""The grid on a TPU: which variables it counts, in which order, and how much of each one step takes.

Input: a `Schedule`. Output: `Blocks`: per variable its block, the grid's axes in order, and the loop that became the
last one. Law: a variable that is not counted by the grid is there whole, in every step; `sizes.py` chooses the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frontend_triton_compat.access import Slice
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.emit.tpu.gather import picks_rows
from frontend_triton_compat.emit.tpu.sizes import Sizes
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op, walk
from frontend_triton_compat.schedule import Fold, Schedule


@dataclass(frozen=True)
class Blocks:
    """See the module.

    Attributes:
        sizes: variable -> elements a grid step takes; a variable that is not in it is taken whole.
        grid: variables that the grid counts, outermost first.
        fold: the accumulating loop that the last grid axis runs over, or None.
        alone: variables that the grid counts one by one: `single`.
    """

    sizes: dict[Var, int]
    grid: tuple[Var, ...]
    fold: Fold | None
    alone: frozenset[Var] = frozenset()

    def steps(self, var: Var) -> int:
        """Number of grid steps along a variable."""
        return -(-(var.count or 1) // self.sizes[var])

    def single(self, var: Var) -> bool:
        """Whether a grid step has one value of a variable, which then is a number and no dimension."""
        return var in self.grid and self.sizes[var] == 1 and var in self.alone


def choose(plan: Schedule, chip: str) -> Blocks:
    """Block sizes for a scheduled kernel on a chip (``v5e``, ``v6e``, ``7x``, ...).

    Raises:
        TranslationError: an access has no window, or a loop stays a loop.
    """
    rows = _along_whole_rows(plan)
    fold = _accumulating(plan)
    if fold is not None and plan.top(fold.loop.var) in rows:
        fold = None
    contracted = plan.top(fold.loop.var) if fold is not None else None
    summed = {plan.top(f.loop.var) for f in plan.folds.values() if f.sums and f is not fold}  # sums need all of it
    stored = [v for v in _stored_vars(plan) if v not in summed]
    has_dot = any(adder.kind == "dot" for f in plan.folds.values() for _, adder in f.sums.values()) or _live_dots(plan)
    alone = _alone(plan, stored)
    if fold is not None and contracted is not None and contracted not in stored and _apart(plan, fold, contracted):
        alone |= {contracted}
    swept = any(var.serial for window in plan.windows.values() if window for s in window.slices for var in s.steps)
    given = dict.fromkeys(alone, 1)
    if has_dot and swept:
        given |= {v: _queries(plan, v) for v in stored if v.count is not None and v not in given and v not in rows}
    free = [v for v in stored if v.count is not None and v not in given and v not in rows]
    if contracted is not None and contracted.count is not None and contracted not in (*free, *given):
        free.append(contracted)
    sizing = Sizes(plan, chip, given, free)
    whole = contracted if contracted not in given else None
    sizes = given | (sizing.tiles(whole, _wide(plan)) if has_dot and not swept else sizing.fill())
    parallel = [v for v in stored if v in sizes]
    grid = innermost_last(plan, [v for v in parallel if v is not contracted])
    if contracted is not None and sizes[contracted] < (contracted.count or 1):
        return Blocks(sizes, (*grid, contracted), fold, alone)
    return Blocks({v: s for v, s in sizes.items() if v is not contracted}, grid, None, alone)


def innermost_last(plan: Schedule, grid: Sequence[Var]) -> tuple[Var, ...]:
    """The grid's axes; those along which a result's block stays the same come behind those that tell blocks apart."""
    kept = dict.fromkeys(grid, 0)
    for op in plan.accesses:
        window = plan.windows[op] if op.kind != "load" else None
        if window is None:
            continue
        for piece, size in zip(window.slices, plan.views[plan.accesses[op].param].widths):
            for var in piece.steps:
                if var in kept and (var.count or 1) <= size:
                    kept[var] += 1
    return tuple(sorted(grid, key=lambda v: -kept[v]))


def _apart(plan: Schedule, fold: Fold, loop: Var) -> bool:
    """Whether a loop and the axis of a product in it stay two variables; a core contracts one dimension at a time."""
    dots = [adder for _, adder in fold.sums.values() if adder.kind == "dot"]
    return any(plan.axes(op.operands[0])[-1] is not loop for op in dots)


def _alone(plan: Schedule, stored: list[Var]) -> frozenset[Var]:
    """Programs that a grid step takes one of: they share a dimension with lanes, or both operands of a product."""
    out: set[Var] = set()
    for access in plan.accesses.values():
        window = plan.windows[access.op]
        for i, piece in enumerate(window.slices if window is not None else ()):
            if len(piece.steps) > 1:
                out |= {v for v in piece.steps if v in stored and _steps_by_blocks(plan, access, i, v)}
    for op in walk(plan.kernel.body):
        if op.kind == "dot" and op.result in plan.demand.live:
            both = [{plan.top(v) for v in plan.deps(x)} | set(plan.axes(x)) for x in op.operands[:2]]
            out |= {v for v in stored if v in both[0] and v in both[1] and v not in _contracted(plan, op)}
    return frozenset(out)


def _steps_by_blocks(plan: Schedule, access: Access, i: int, var: Var) -> bool:
    """Whether a program's part of a dimension is a block: nothing else leaves it, and it has whole tiles."""
    window, view = plan.windows[access.op], plan.views[access.param]
    assert window is not None
    piece, behind = window.slices[i], len(window.slices) - 1 - i
    step = piece.steps[var]
    lo, hi = Slice(piece.start, {v: s for v, s in piece.steps.items() if v is not var}).bounds()
    if i == 0:
        first = view.origin // view.strides[0]
        lo, hi = lo - first, hi - first
    tile = 1 if behind > 1 else 8 * max(1, 4 // access.element.itemsize) if behind else 128
    whole = step % tile == 0 or step == view.shape[i]
    moves = access.op.kind == "load" and any(v.serial for v in piece.steps)  # where a loop begins may be the program's
    return whole and 0 <= lo and (hi < step or moves) and not any(v.kind == "axis" for v in var.parts())


def _contracted(plan: Schedule, op: Op) -> set[Var | None]:
    """What a product sums over."""
    folds = {adder: fold.loop.var for fold in plan.folds.values() for _, adder in fold.sums.values()}
    gone = {plan.axes(op.operands[0])[-1], plan.axes(op.operands[1])[-2]}
    return gone | ({plan.top(folds[op])} if op in folds else set())


def _queries(plan: Schedule, var: Var) -> int:
    """Rows of a product inside a loop that carries values: many, so that the scores of one step fill the unit."""
    n = var.count or 1
    keys = 128
    for op in walk(plan.kernel.body):
        if op.kind == "dot":
            for axis in plan.axes(op.result):
                if axis is not None and axis is not var:
                    keys = max(keys, axis.count or 1)
    rows = min(1024, max(128, (512 << 10) // keys // 128 * 128))
    return n if n <= rows else rows


def _live_dots(plan: Schedule) -> bool:
    return any(op.kind == "dot" and op.result in plan.demand.live for op in walk(plan.kernel.body))


def _accumulating(plan: Schedule) -> Fold | None:
    """The loop that may become the last grid axis; several loops, or others beside it, sweep rows that lie in VMEM."""
    found = [f for f in plan.folds.values() if f.sums]
    serial = any(op.kind in ("for", "while") and op not in plan.folds for op in walk(plan.kernel.body))
    return found[0] if len(found) == 1 and not serial else None


def _stored_vars(plan: Schedule) -> list[Var]:
    """Variables that count programs, in the order of the stores' dimensions: the grid's parallel axes."""
    order: dict[Var, None] = {}
    for access in plan.accesses.values():
        window = plan.windows[access.op]
        if picks_rows(plan, access):
            continue
        if window is None or any(s.opaques for s in window.slices):
            raise untiled(plan, access)
        if access.op.kind == "load":
            continue
        for piece in window.slices:
            for var in piece.steps:
                if var.kind != "axis" and not var.serial:
                    order[var] = None
    return list(order)


def _along_whole_rows(plan: Schedule) -> set[Var]:
    """Variables along rows that are in VMEM whole.

    Run-time numbers pick the rows, or one of their elements, or a loop that carries values sweeps them, or several
    loops do one after the other, of which one writes.
    """
    swept: set[str] = {plan.accesses[op].param for op in plan.picked}
    out: set[Var] = set()
    along: dict[str, set[Var]] = {}
    for access in plan.accesses.values():
        window = plan.windows[access.op]
        if window is None:
            continue
        if picks_rows(plan, access):
            out |= {v for piece in window.slices[1:] for v in piece.steps}
        if len(window.slices) > 1 and any(v.serial for v in window.slices[-1].steps):
            swept.add(access.param)
        if len(window.slices) > 1 and access.param in plan.written:
            along.setdefault(access.param, set()).update(v for v in window.slices[-1].steps if v.kind != "axis")
    swept |= {param for param, moving in along.items() if len(moving) > 1}
    windows = [plan.windows[a.op] for a in plan.accesses.values() if a.param in swept]
    return out | {v for w in windows if w is not None and len(w.slices) > 1 for v in w.slices[-1].steps}


def _wide(plan: Schedule) -> bool:
    """Whether a product's operands may be fp32."""
    return max((a.element.itemsize for a in plan.accesses.values() if a.op.kind == "load"), default=2) > 2
