"""What one block of a GPU's grid takes: which variables it counts, which stay tiles in its registers.

Input: a `Schedule`. Output: `Share`. Law: a block owns what it stores. A kernel whose tiles have one dimension each is
written by rows: every program and every row is a block of the grid, reductions run over all of a tile. Any other is
written by tiles of two dimensions, in the layout of the matrix units.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from bridge.diagnostics import error
from frontend_triton_compat.demand import Access
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op, walk
from frontend_triton_compat.schedule import Schedule
from pallas_core.targets.mosaic_gpu import WARPGROUP, GpuChip

#: Elements of a row that a block takes where the row need not stay together.
ROW = 2048
#: Rows and columns of a tile are multiples of this: what the matrix layout and its swizzled copies want.
TILE = 64
#: Largest row that stays in the registers of a warpgroup.
MOST = 32768


@dataclass(frozen=True)
class Share:
    """See the module.

    Attributes:
        sizes: tile variable -> elements of it in a block's registers, padding included.
        grid: variables that the grid counts, outermost first: tile variables by blocks, all others one by one.
        order: the tile variables, in the order that dimensions of tiles have.
        rows: whether tiles have one dimension.
        dots: the contractions.
        pipes: variables that a pipeline of copies runs over, a tile of them a step.
        piped: the loads of those pipelines.
    """

    sizes: dict[Var, int]
    grid: tuple[Var, ...]
    order: tuple[Var, ...]
    rows: bool
    dots: tuple[Op, ...]
    pipes: tuple[Var, ...] = ()
    piped: frozenset[Op] = frozenset()

    def steps(self, var: Var) -> int:
        """Number of blocks along a variable of the grid."""
        count = var.count or 1
        return -(-count // self.sizes[var]) if var in self.sizes else count

    def single(self, var: Var) -> bool:
        """Whether the grid counts a variable's elements one by one, so that it is no dimension of a tile."""
        return var not in self.sizes


def share(plan: Schedule, chip: GpuChip) -> Share:
    """Choose what a block takes.

    Raises:
        Diagnostic: a row that no warpgroup holds.
    """
    dots = tuple(o for o in walk(plan.kernel.body) if o.kind == "dot" and o.result in plan.demand.live)
    met = _met(plan)
    lanes = dict.fromkeys(v for v in (_lane(plan, a) for a in plan.accesses.values()) if v is not None)
    wanted = {**lanes, **dict.fromkeys(met)}
    stores = [a for a in plan.accesses.values() if a.op.kind != "load"]
    everywhere = [v for v in _variables(plan) if stores and all(v in _steps(plan, a) for a in stores)]
    rows = not dots and _one_each(plan, set(wanted))
    if not rows:
        wanted |= dict.fromkeys(v for v in _variables(plan) if v.kind != "program" and _is_axis(plan, v))
    pipes = _pipes(plan, dots)
    sizes: dict[Var, int] = {}
    for var in wanted:
        count, unit, most = var.count or 1, WARPGROUP if rows else TILE, ROW if rows else TILE
        if dots and any(var in plan.axes(o.result) for o in dots):
            most = TILE if any(_wide(o) for o in dots) else 2 * TILE
            twice = any(o in plan.dims.renames for o in dots)
            if (twice or any(var is plan.axes(o.result)[-2] for o in dots)) and chip.matmul != "wgmma":
                unit = most = 2 * TILE  # tensor memory has 128 rows
        padded = -(-count // unit) * unit
        whole = (var in met or var not in everywhere) and var not in pipes
        sizes[var] = padded if whole else min(padded, TILE if var in pipes else most)
        if sizes[var] > MOST:
            raise error(
                "gpu-not-translated",
                f"a row of {count} elements that stays together",
                where=plan.kernel.where,
                why=f"it is held in the registers of one warpgroup, which take {MOST} elements at most",
                do="walk the row in a loop of smaller tiles, and carry what the reduction needs",
            )
    used = {v for a in plan.accesses.values() for v in a.form.vars}
    grid = [v for v in (*plan.batch, *everywhere) if v in used and (v not in sizes or sizes[v] < (v.count or 1))]
    grid = list(dict.fromkeys(v for v in grid if v not in pipes and (v not in met or v not in sizes)))
    piped = frozenset(a.op for a in plan.accesses.values() if any(v in pipes for v in _steps(plan, a)))
    return Share(sizes, tuple(grid), _ordered(plan, sizes, dots), rows, dots, pipes, piped)


def _wide(dot: Op) -> bool:
    """Whether a contraction's operands are taken apart, which takes more shared memory."""
    return dot.operands[0].type.element.primitive_bitwidth > 16


def _pipes(plan: Schedule, dots: tuple[Op, ...]) -> tuple[Var, ...]:
    """Variables that an accumulating loop contracts over, where they are more than one tile."""
    found = []
    for fold in plan.folds.values():
        top = plan.top(fold.loop.var)
        added = any(adder in dots for _, adder in fold.sums.values())
        if added and top is not fold.loop.var and (top.count or 1) > TILE:
            found.append(top)
    return tuple(found)


def _variables(plan: Schedule) -> list[Var]:
    found: dict[Var, None] = {}
    for access in plan.accesses.values():
        found |= dict.fromkeys(v for v in _steps(plan, access) if not v.serial)
    return list(found)


def _steps(plan: Schedule, access: Access) -> list[Var]:
    window = plan.windows[access.op]
    return [v for piece in window.slices for v in piece.steps] if window is not None else []


def _is_axis(plan: Schedule, var: Var) -> bool:
    return any(v.kind == "axis" for v in var.parts())


def kept_dims(plan: Schedule, access: Access) -> int:
    """Number of dimensions of an access's window, less those at its end that are one place: they are cut off."""
    window = plan.windows[access.op]
    slices = window.slices if window is not None else ()
    count = len(slices)
    while count > 1 and not slices[count - 1].steps and not slices[count - 1].opaques:
        count -= 1
    return count if count and (slices[count - 1].steps or slices[count - 1].opaques) else len(slices)


def _lane(plan: Schedule, access: Access) -> Var | None:
    """The tile variable along an access's last dimension."""
    window = plan.windows[access.op]
    if window is None or not window.slices:
        return None
    last = window.slices[kept_dims(plan, access) - 1]
    return next((v for v, step in last.steps.items() if step == 1 and _is_axis(plan, v)), None)


def _met(plan: Schedule) -> list[Var]:
    """Variables along which elements of a tile meet each other."""
    found: dict[Var, None] = {}
    for op in walk(plan.kernel.body):
        if not any(r in plan.demand.live and r not in plan.demand.indexed for r in op.results):
            continue
        if op.kind in ("reduce", "scan", "reduce_by", "scan_by"):
            axis = plan.axes(op.operands[0])[op["axis"]]
            found |= {axis: None} if axis is not None else {}
        elif op.kind == "dot":
            for axis in (plan.axes(op.operands[0])[-1], plan.axes(op.operands[1])[-2]):
                found |= {axis: None} if axis is not None else {}
        elif op.kind in ("call", "reshape"):
            found |= {v: None for x in (*op.operands, *op.results) for v in plan.axes(x) if v is not None}
    return list(found)


def _one_each(plan: Schedule, tiles: set[Var]) -> bool:
    """Whether every live value has at most one of these dimensions."""
    for op in walk(plan.kernel.body):
        for value in op.results:
            if value in plan.demand.live and value not in plan.demand.indexed:
                if len({v for v in plan.axes(value) if v in tiles}) > 1:
                    return False
    for access in plan.accesses.values():
        here = {v for v in _steps(plan, access) if v in tiles}
        if len(here) > 1 or (here and _lane(plan, access) not in here):
            return False
    return True


def _ordered(plan: Schedule, tiles: dict[Var, int], dots: tuple[Op, ...]) -> tuple[Var, ...]:
    """An order of the tile variables in which contractions, loads and then stores have theirs, as far as they agree."""
    after: dict[Var, set[Var]] = {v: set() for v in tiles}

    def reaches(a: Var, b: Var) -> bool:
        return a is b or any(reaches(c, b) for c in after[a])

    def before(names: list[Var]) -> None:
        for a, b in itertools.pairwise(names):
            if a is not b and not reaches(b, a):
                after[a].add(b)

    for op in dots:
        before([v for v in plan.axes(op.result) if v in tiles])
    for stores in (False, True):
        for access in plan.accesses.values():
            if (access.op.kind != "load") is stores:
                before([v for v in _steps(plan, access) if v in tiles])
    out: list[Var] = []

    def visit(var: Var) -> None:
        for other in after[var]:
            if other not in out:
                visit(other)
        if var not in out:
            out.insert(0, var)

    for var in reversed(list(tiles)):
        visit(var)
    return tuple(out)
