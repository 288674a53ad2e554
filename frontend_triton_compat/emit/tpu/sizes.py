"""How many elements of every variable one grid step takes: block sizes that fill the pipeline and fit into VMEM.

Input: the accesses of a `Schedule`, variables whose size is given. Output: sizes of the others. Law: a size is the
whole variable or a multiple of its unit, which is the native tile along the dimension where the variable stands: 128
lanes; 8, 16 or 32 sublanes for 32, 16 and 8 bits; 1 before them; 1024 where an array has one dimension only. Blocks
grow from one tile until an operand has the bytes at which a step's overhead is hidden, lanes first, the outermost
dimension last. The figures are measured on the static schedules of v5e, v6e and 7x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontend_triton_compat.emit.tpu.gather import picks_rows, row_vars
from frontend_triton_compat.emit.tpu.outside import rows_of
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import walk
from frontend_triton_compat.schedule import Schedule
from pallas_core.blocks import (
    FEW_LANES,
    ONE_DIM,
    SPLIT_TILES,
    SPLIT_TILES_ELSEWHERE,
    STEPS,
    TILES,
    TILES_ELSEWHERE,
    block_bytes,
)
from pallas_core.budget import padded_bytes
from pallas_core.targets.tpu import CHIPS, LANES, SUBLANES

#: Chips on which a block twice as large hides more where nearly all bytes are one operand's, or loops sweep rows.
_TWICE = ("7x",)
#: Most products that one step's straight code may have; compiling it takes tens of seconds beyond.
_MOST_PRODUCTS = {"v6e": 1 << 32}
_MOST_PRODUCTS_ELSEWHERE = 1 << 31
#: Smallest sides of a product's block that make more steps worth while.
_LEAST_TILE = 256


@dataclass(frozen=True)
class Footprint:
    """What one access has of its array in a grid step: a variable, or a fixed number of elements, per dimension."""

    param: str
    dims: tuple[Var | int, ...]
    item: int
    stored: bool

    def shape(self, sizes: Mapping[Var, int]) -> tuple[int, ...]:
        """The block's shape."""
        return tuple(d if isinstance(d, int) else min(sizes.get(d, d.count or 1), d.count or 1) for d in self.dims)

    def bytes(self, sizes: Mapping[Var, int]) -> int:
        """The block's bytes in VMEM."""
        return padded_bytes(self.shape(sizes), self.item)


def footprints(plan: Schedule) -> list[Footprint]:
    """Every access that has a window, once."""
    found: dict[Footprint, None] = {}
    for access in plan.accesses.values():
        window, view = plan.windows[access.op], plan.views[access.param]
        if window is None:
            continue
        dims: list[Var | int] = []
        pieces = rows_of(view, window)
        for i, (piece, size) in enumerate(zip(pieces, view.widths)):
            moving = [v for v in piece.steps if not v.serial]
            if i == 0 and picks_rows(plan, access):
                dims += row_vars(plan, access)  # a step's rows, gathered
            elif piece.opaques or len(moving) < len(piece.steps):
                dims.append(size)  # what a loop or a number from memory moves along is there whole
            elif not moving:
                dims.append(1 if i < len(pieces) - 2 else size)
            else:
                dims += sorted(moving, key=lambda v: -abs(piece.steps[v]))
        found[Footprint(access.param, tuple(dims), access.element.itemsize, access.op.kind != "load")] = None
    return list(found)


class Sizes:
    """Sizes under choice: what is given, what may grow."""

    def __init__(self, plan: Schedule, chip: str, given: Mapping[Var, int], free: Sequence[Var]):
        self.prints = footprints(plan)
        self.chip = chip
        windows = [w for w in plan.windows.values() if w is not None]
        scans = any(op.kind.startswith("scan") for op in walk(plan.kernel.body))  # long to compile as it is
        self.swept = not scans and any(v.serial for w in windows for piece in w.slices for v in piece.steps)
        self.limit = CHIPS[chip].kernel_vmem_bytes
        self.free = [v for v in free if v not in given]
        self.sizes = dict(given) | {v: v.count or 1 for v in self.free}
        self.units = {v: self._unit(v) for v in self.free}

    def _places(self, var: Var) -> list[tuple[int, Footprint]]:
        """Where a variable stands in the arrays, counted from the last dimension: -1, -2, ..."""
        return [(p.dims.index(var) - len(p.dims), p) for p in self.prints if var in p.dims]

    def _unit(self, var: Var) -> int:
        unit = 1
        places = self._places(var)
        if places and all(len(p.dims) == 1 for _, p in places):
            return 1024 * max(1, 4 // min(p.item for _, p in places))
        for at, print_ in places:
            if len(print_.dims) == 1:
                continue
            if at == -1:
                unit = max(unit, LANES)
            elif at == -2:
                unit = max(unit, SUBLANES * max(1, 4 // print_.item))
        rows = [p for _, p in places if len(p.dims) == 1 and p.item == 4]
        least = max(unit, LANES)
        if rows and max(p.bytes({**self.sizes, var: least}) for _, p in places) <= 2 * self._most():
            unit = least  # numbers of rows, one a row, are stored as they lie only in whole registers
        return unit

    def _most(self) -> int:
        return block_bytes(self.chip)[1]

    def place(self, var: Var) -> int:
        """The innermost dimension that a variable is found in: -1 for lanes."""
        return max((at for at, p in self._places(var) if len(p.dims) > 1), default=-1)

    def needed(self, sizes: Mapping[Var, int]) -> int:
        """VMEM: two buffers of every block, and about one more for what is computed, in fp32."""
        total = 0
        for print_ in self.prints:
            one = print_.bytes(sizes)
            total += 2 * one + (one * 4 // print_.item) // 2
        return total

    def largest(self, sizes: Mapping[Var, int]) -> int:
        """Bytes of the largest block."""
        return max((p.bytes(sizes) for p in self.prints), default=0)

    def total(self, sizes: Mapping[Var, int]) -> int:
        """Bytes of all blocks."""
        return sum(p.bytes(sizes) for p in self.prints)

    def fill(self) -> dict[Var, int]:
        """Blocks that grow to a number of bytes."""
        least, most = block_bytes(self.chip)
        whole = {v: v.count or 1 for v in self.sizes}
        if self.chip in _TWICE and (self.swept or 2 * self.total(whole) <= 3 * self.largest(whole)):
            most *= 2
        target = min(most, max(least, self.largest(whole) // STEPS))
        while True:
            found = self._grown(target)
            if self.needed(found) <= self.limit or target < 1 << 14:
                return {v: self._even(v, found[v]) for v in self.free}
            target //= 2

    def _grown(self, target: int) -> dict[Var, int]:
        sizes = dict(self.sizes)
        for var in self.free:
            sizes[var] = min(self.units[var], var.count or 1)
        order = sorted(self.free, key=lambda v: -self.place(v))
        lanes = [v for v in order if self.place(v) == -1]
        for var in lanes:  # what a loop ran over is looked at several times, or summed: whole, if it fits
            self._grow(sizes, var, target, None if any(v.kind == "loop" for v in var.parts()) else FEW_LANES)
        for var in [*(v for v in order if v not in lanes), *lanes]:
            self._grow(sizes, var, target, None)
        return sizes

    def _grow(self, sizes: dict[Var, int], var: Var, target: int, most: int | None) -> None:
        """The largest size of one variable at which no block is larger than `target`."""
        n, unit = var.count or 1, self.units[var]
        mine = [p for p in self.prints if var in p.dims]
        if not mine:
            sizes[var] = n
            return
        if all(len(p.dims) == 1 for p in mine):
            target = max(target, ONE_DIM * min(p.item for p in mine))
        fits = lambda size: all(p.bytes({**sizes, var: size}) <= target for p in mine)
        top = n if most is None else min(n, most)
        if top == n and fits(n):
            sizes[var] = n
            return
        low, high = sizes[var] // unit, top // unit
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle * unit):
                low = middle
            else:
                high = middle - 1
        size = max(sizes[var], low * unit)
        if any(len(p.dims) == 1 for p in mine) and size < n:  # blocks of a 1-D array: powers of two, or whole kilobytes
            size = size // 1024 * 1024 if size >= 1024 else 1 << (size.bit_length() - 1)
        sizes[var] = min(n, max(size, sizes[var]))

    def _even(self, var: Var, size: int) -> int:
        """The same number of steps, none much shorter than the others."""
        n, unit = var.count or 1, self.units[var]
        if size >= n or any(len(p.dims) == 1 for p in self.prints if var in p.dims):
            return size
        share = math.ceil(n / math.ceil(n / size))
        return min(size, math.ceil(share / unit) * unit)

    # -- products

    def tiles(self, contracted: Var | None, wide: bool) -> dict[Var, int]:
        """Blocks of a matrix product: the whole contraction if it fits, else the largest tile and a part of it."""
        rows, columns = TILES.get(self.chip, TILES_ELSEWHERE)
        if wide:  # full precision costs several passes: the unit is busy with smaller tiles too
            rows, columns = min(rows, 512), min(columns, 512)
        k = 0 if contracted is None else contracted.count or 1
        self.free = [v for v in self.free if v is not contracted]
        found = self._tiled(rows, columns, {contracted: k} if contracted is not None else {})
        products = _MOST_PRODUCTS.get(self.chip, _MOST_PRODUCTS_ELSEWHERE) // (3 if wide else 1)
        if contracted is None or (self.needed(found) <= self.limit and rows * columns * k <= products):
            return self._more_steps(found)
        rows, columns, part = SPLIT_TILES.get(self.chip, SPLIT_TILES_ELSEWHERE)
        if wide:
            rows, columns, part = min(rows, 512), min(columns, 1024), 512
        while True:
            found = self._tiled(rows, columns, {contracted: min(k, part)})
            if self.needed(found) <= self.limit or max(rows, columns, part) <= LANES:
                return found
            rows, columns, part = (max(LANES, n // 2) for n in (rows, columns, part))

    def _tiled(self, rows: int, columns: int, given: Mapping[Var, int]) -> dict[Var, int]:
        sizes = dict(self.sizes) | dict(given)
        for var in self.free:
            n, at = var.count or 1, self._stored_at(var)
            limit = columns if at == -1 else rows if at == -2 else 1
            sizes[var] = n if n <= limit else max(limit, self.units[var])
        return sizes

    def _stored_at(self, var: Var) -> int:
        return max((at for at, p in self._places(var) if p.stored), default=-2)

    def _more_steps(self, found: dict[Var, int]) -> dict[Var, int]:
        """Smaller tiles where there are few, so that copies overlap with products."""
        while math.prod(-(-(v.count or 1) // found[v]) for v in self.free) < STEPS:
            halves = {v: -(-found[v] // (2 * self.units[v])) * self.units[v] for v in self.free}
            halves = {v: n for v, n in halves.items() if _LEAST_TILE <= n < found[v]}
            if not halves:
                break
            var = max(halves, key=lambda v: found[v])
            found[var] = halves[var]
        return found
