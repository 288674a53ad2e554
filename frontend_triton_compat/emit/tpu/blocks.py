"""Block sizes on a TPU: how much of every variable one grid step takes.

Input: a `Schedule`. Output: `Blocks`: per variable its block, the grid's axes in order, and the loop that became the
last one. Law: a block is a whole dimension or a multiple of the native tile: 8, 16, 32 sublanes for 32, 16, 8 bits and
128 lanes; 1-D blocks are multiples of 1024. Sizes aim at 2 MiB an operand, where the pipeline's step overhead is hidden
(measured on the static schedules of v5e, v6e and 7x).
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.diagnostics import error
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import walk
from frontend_triton_compat.schedule import Fold, Schedule

_TARGET_BYTES = 2 << 20
_ONE_DIM = 512 * 1024
#: rows, columns and contracted elements of a 16-bit matmul's block. Static schedules of 4096^3 bf16: v5e 93 % of peak
#: with 512 x 1024 x 1024, which gives v6e 56 and 7x 72; 2048 x 2048 x 512 gives v6e 83 and 7x 87.
_MATMUL = {"v6e": (2048, 2048, 512), "7x": (2048, 2048, 512)}
_MATMUL_ELSEWHERE = (512, 1024, 1024)


@dataclass(frozen=True)
class Blocks:
    """See the module.

    Attributes:
        sizes: variable -> elements a grid step takes; a variable that is not in it is taken whole.
        grid: variables that the grid counts, outermost first.
        fold: the accumulating loop that the last grid axis runs over, or None.
    """

    sizes: dict[Var, int]
    grid: tuple[Var, ...]
    fold: Fold | None

    def steps(self, var: Var) -> int:
        """Number of grid steps along a variable."""
        return -(-(var.count or 1) // self.sizes[var])


def choose(plan: Schedule, chip: str) -> Blocks:
    """Block sizes for a scheduled kernel on a chip (``v5e``, ``v6e``, ``7x``, ...).

    Raises:
        TranslationError: an access has no window, or a loop stays a loop.
    """
    fold = _accumulating(plan)
    contracted = plan.top(fold.loop.var) if fold is not None else None
    stored = _stored_vars(plan)
    has_dot = any(adder.kind == "dot" for f in plan.folds.values() for _, adder in f.sums.values()) or _live_dots(plan)
    tiles = _matmul_tiles(plan, chip) if has_dot else None
    sizes: dict[Var, int] = {}
    for var in stored:
        if var.count is None:
            continue
        sizes[var] = _block(plan, var, stored, tiles)
    if contracted is not None:
        n = contracted.count or 1
        limit = tiles[2] if tiles else 1024
        sizes[contracted] = n if n <= limit else limit
    parallel = [v for v in stored if v in sizes]
    grid = tuple(v for v in parallel if v is not contracted)
    if contracted is not None and sizes[contracted] < (contracted.count or 1):
        return Blocks(sizes, (*grid, contracted), fold)
    return Blocks({v: s for v, s in sizes.items() if v is not contracted}, grid, None)


def _live_dots(plan: Schedule) -> bool:
    return any(op.kind == "dot" and op.result in plan.demand.live for op in walk(plan.kernel.body))


def _accumulating(plan: Schedule) -> Fold | None:
    found = [f for f in plan.folds.values() if f.sums]
    if len(found) > 1:
        raise error(
            "tpu-not-translated",
            "more than one accumulating loop",
            where=found[1].loop.op.where,
            why="one grid axis can run over one loop",
            do="split the kernel in two, or accumulate both sums in one loop",
        )
    return found[0] if found else None


def _stored_vars(plan: Schedule) -> list[Var]:
    """Variables that count programs, in the order of the stores' dimensions: the grid's parallel axes."""
    order: dict[Var, None] = {}
    for access in plan.accesses.values():
        window = plan.windows[access.op]
        if window is None or any(s.opaques for s in window.slices):
            raise untiled(plan, access)
        if access.op.kind == "load":
            continue
        for piece in window.slices:
            for var in piece.steps:
                if var.kind != "axis":
                    order[var] = None
    return list(order)


def _itemsize(plan: Schedule) -> int:
    return min((_item(a) for a in plan.accesses.values()), default=4)


def _matmul_tiles(plan: Schedule, chip: str) -> tuple[int, int, int]:
    rows, columns, contracted = _MATMUL.get(chip, _MATMUL_ELSEWHERE)
    wide = max((_item(a) for a in plan.accesses.values() if a.op.kind == "load"), default=2) > 2
    if wide:  # blocks of fp32 operands take twice the bytes, and full precision costs several passes
        return min(rows, 512), min(columns, 1024), 512
    return rows, columns, contracted


def _item(access: Access) -> int:
    return access.op.operands[0].type.element.element_ty.itemsize  # type: ignore[union-attr]


def _block(plan: Schedule, var: Var, stored: list[Var], tiles: tuple[int, int, int] | None) -> int:
    """The block of one parallel variable."""
    n = var.count or 1
    ranks, lane, row_bytes = [], False, 4
    for access in plan.accesses.values():
        window = plan.windows[access.op]
        if window is None:
            continue
        for i, piece in enumerate(window.slices):
            if var in piece.steps:
                pieces = window.slices
                ranks.append(len(pieces))
                lane = lane or (i == len(pieces) - 1 and len(pieces) > 1)
                others = 1
                for other in pieces:
                    for v in other.steps:
                        if v is not var and v not in stored:
                            others *= v.count or 1
                row_bytes = max(row_bytes, others * _item(access))
    if max(ranks, default=1) == 1:
        return n if n <= _ONE_DIM else _ONE_DIM
    if tiles is not None:
        limit = tiles[1] if lane else tiles[0]
        return n if n <= limit else limit
    partners = [v for v in stored if v is not var and v.kind != "axis"]
    if lane:
        return n if n <= 1024 else 1024
    if partners and any(_is_lane(plan, v) for v in partners):
        return n if n <= 256 else 256
    tile = 8 * max(1, 4 // _itemsize(plan))
    if min(ranks) == 1 and 128 * row_bytes <= 2 * _TARGET_BYTES:  # numbers of rows, one a row, lie in 1-D blocks
        rows = 128
        while rows * 2 * row_bytes <= _TARGET_BYTES:
            rows *= 2
    else:
        rows = max(tile, _TARGET_BYTES // row_bytes // tile * tile)
    return n if n <= rows else rows


def _is_lane(plan: Schedule, var: Var) -> bool:
    for access in plan.accesses.values():
        window = plan.windows[access.op]
        if window is not None and len(window.slices) > 1 and var in window.slices[-1].steps:
            return True
    return False
