"""Accesses as operands of the kernel: BlockSpecs, what is read of a block, what is written to one.

Input: accesses with windows, block sizes. Output: `Spec`s and statements. Law: every access is one BlockSpec, of the
argument or of an array that XLA makes of it (`outside.py`); lanes past a ragged edge never reach a contraction or a
sum; an output's block is written whole, what a store leaves alone with the old values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.access import Slice
from frontend_triton_compat.affine import int_range
from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.emit.expr import Expr, literal, shape_of
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.emit.tpu import gather, picked
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.outside import (
    Clamped,
    Part,
    Spec,
    Sweep,
    apart_from_tiles,
    dense,
    rows_of,
)
from frontend_triton_compat.emit.tpu.scalars import SMEM_NUMBERS
from frontend_triton_compat.emit.tpu.tiles import TileForms
from frontend_triton_compat.forms import Var
from frontend_triton_compat.holding import small
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import dtype

#: What changes nothing, by reduction: a function of the dtype.
_NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda element: False if element.is_bool() else 0.0 if element.is_floating() else 0,
    "max": lambda element: -math.inf if element.is_floating() else int_range(element)[0],
    "min": lambda element: math.inf if element.is_floating() else int_range(element)[1],
}
#: Most bytes of a block that is larger than what an access needs of it; beyond, XLA cuts the part out first.
_SPARE_BYTES = 4 << 20


class Operands(TileForms):
    """Reads and writes of blocks."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan)
        self.blocks = blocks
        self.inputs: list[Spec] = []
        self.outputs: list[Spec] = []
        self.scalars: dict[str, None] = {}
        self.scratch: list[tuple[str, tuple[Var | None, ...], str]] = []
        self.pieces: dict[str, list[tuple[tuple[Part, ...], Op]]] = {}
        self.smem: dict[str, str] = {}  # parameter -> ref of all of it in scalar memory
        self.hbm: dict[str, tuple[str, tuple[int, ...]]] = {}  # parameter -> ref of all of it in HBM, its shape
        self.hbm_outputs: dict[str, str] = {}  # parameter -> ref of all of it in HBM, as a result
        self.scalar_outputs: dict[str, str] = {}  # parameter -> ref of all of it in scalar memory, as a result
        self.more_scratch: dict[str, str] = {}
        self.prologue: dict[str, None] = {}  # lines at the top of the kernel
        self.orderly = False  # whether grid steps count on running one after the other
        self.rows = _row_vars(plan)

    def arg_(self, op: Op) -> Expr:
        """A float argument, from SMEM."""
        self.scalars[op["name"]] = None
        return Expr(f"{op['name']}_ref[0]")

    def _spec(self, access: Access) -> tuple[Spec, tuple[Var | None, ...]]:
        """The BlockSpec of an access, and its dimensions' variables; steps past the array's end get its last block.

        What such a step stores goes nowhere, so that the block of a result must be the one of the step before.
        """
        spec, dims = self._block(access)
        index: list[Var | Clamped | int] = list(spec.index)
        for i, (var, n, size) in enumerate(zip(spec.index, spec.block, spec.shape)):
            if isinstance(var, Var) and (self.blocks.steps(var) - 1) * (n or 1) >= size:
                index[i] = Clamped(var, -(-size // (n or 1)) - 1)
        if tuple(index) == spec.index:
            return spec, dims
        spec = dataclasses.replace(spec, index=tuple(index))
        if access.op.kind != "load":
            moving = [v for v in self.blocks.grid if v in spec.picks and self.blocks.steps(v) > 1]
            if len(spec.clamped) > 1 or moving[-1] is not spec.clamped[0].var or access.op.kind == "atomic":
                raise untiled(self.plan, access)
        return spec, dims

    def _block(self, access: Access) -> tuple[Spec, tuple[Var | None, ...]]:
        """The BlockSpec of an access, and the variables of its dimensions, wherever its blocks end."""
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        if window is None or any(piece.opaques for piece in window.slices):
            raise untiled(self.plan, access)
        slices = rows_of(view, window)
        store = access.op.kind != "load"
        block: list[int | None] = []
        index: list[Var | int] = []
        inner: list[Part] = []
        dims: list[Var | None] = []
        spare, direct = False, True
        swept = any(v.serial or self.blocks.single(v) for piece in slices for v in piece.steps)
        upright = self.by_rows(access)
        for i, piece in enumerate(slices):
            size = self._whole(access, i, upright)
            if any(v.serial or self.blocks.single(v) for v in piece.steps):
                n, at, part, counted = self._swept(access, i, piece, upright)
                block.append(n)
                index.append(at)
                if n is not None:
                    inner.append(part)
                    dims.append(counted)
                continue
            if not piece.steps:
                if i < len(slices) - 2 and not store:
                    block.append(1)
                    index.append(piece.start)
                    inner.append(None)
                else:
                    block.append(size)
                    index.append(0)
                    inner.append(None if size == 1 else (piece.start, piece.start + 1))
                    spare |= size > 1
                dims.append(None)
                continue
            (var, *more) = piece.steps
            if more or piece.steps[var] != 1:
                direct = False
                break
            n, count = self.blocks.sizes.get(var), var.count or 1
            if n is None or n >= count:  # taken whole
                block.append(size)
                index.append(0)
                inner.append(None if (piece.start, count) == (0, size) else (piece.start, piece.start + count))
                spare |= count < size
            elif piece.start == 0 and (size == count or not store) and (self.blocks.steps(var) - 1) * n < size:
                block.append(n)
                index.append(var)
                inner.append(None)
            else:
                direct = False
                break
            dims.append(var)
        if not direct and (swept or any(param == access.param for param, _ in self.plan.reach)):
            raise untiled(self.plan, access)
        item = access.element.itemsize
        if swept:
            spec = Spec("", access.param, tuple(block), tuple(index), tuple(inner), view.widths)
            if upright:
                shape = (*view.widths, 1)
                spec = Spec(
                    "", access.param, (*block, 1), (*index, 0), (*inner, None), shape, f".reshape{shape}", view.widths
                )
                dims.append(None)
            return apart_from_tiles(spec, tuple(dims))
        if spare and item * _product(block) > _SPARE_BYTES:
            direct = False
        narrow = item < 4 and dims[:1] and dims[0] in self.rows
        awkward = len(block) == 1 and isinstance(index[0], Var) and not _one_dim(block[0] or 0, item)
        if direct and len(block) == 1 and (awkward or (narrow and not store)):
            inner = [inner[0], None]
            shape = (view.widths[0], 1)
            spec = Spec("", access.param, (block[0], 1), (index[0], 0), tuple(inner), shape, "column")
            return spec, (dims[0], None)
        if direct:
            return Spec("", access.param, tuple(block), tuple(index), tuple(inner), view.widths), tuple(dims)
        made, shape, order = dense(slices, view.widths)
        sizes = [self.blocks.sizes.get(v, n) if v is not None else 1 for v, n in zip(order, shape)]
        taken = [min(n, size) for n, size in zip(sizes, shape)]
        index = [v if v is not None and b < n else 0 for v, b, n in zip(order, taken, shape)]
        return Spec("", access.param, tuple(taken), tuple(index), (None,) * len(shape), shape, made), order

    def by_rows(self, access: Access) -> bool:
        """Whether numbers along lanes are better held as rows of one: a loop starts between multiples of 128."""
        window = self.plan.windows[access.op]
        if access.op.kind != "load" or window is None or access.element.itemsize != 4:
            return False
        steps = window.slices[-1].steps
        loops = [loop for loop in self.plan.affine.loops.values() if loop.var in steps and loop.var.serial]
        single = [v for v in steps if self.blocks.single(v)]
        if not loops or any(steps[v] % 8 for v in (*(loop.var for loop in loops), *single)):
            return False
        long = [loop.var for loop in loops if not loop.uniform or (loop.var.count or 1) > 16]
        return any(steps[v] % 128 for v in (*long, *single))

    def _swept(
        self, access: Access, i: int, piece: Slice, upright: bool
    ) -> tuple[int | None, Var | int, Part, Var | None]:
        """A dimension that loops of a grid step move over, or that the grid counts one by one.

        Returns:
            The block's size, what picks the block, the part of it, the variable it counts.
        """
        loops = {v: s for v, s in piece.steps.items() if v.serial}
        single = {v: s for v, s in piece.steps.items() if self.blocks.single(v)}
        rest = {v: s for v, s in piece.steps.items() if v not in loops and v not in single}
        if len(rest) > 1 or len(single) > 1 or any(s != 1 for s in rest.values()):
            raise untiled(self.plan, access)
        var = next(iter(rest), None)
        if var is not None and var in self.blocks.grid and self.blocks.steps(var) > 1:
            raise untiled(self.plan, access)
        n = (var.count or 1) if var is not None else 1
        part: Part = (piece.start, piece.start + n)
        if loops:
            part = Sweep(piece.start, tuple(loops.items()), n)
        lo, hi = part.reach() if isinstance(part, Sweep) else part
        if not single:
            whole = self._whole(access, i, upright)
            if lo < 0 or hi > whole:
                raise untiled(self.plan, access)
            return whole, 0, None if part == (0, whole) else part, var
        ((program, step),) = single.items()
        view = self.plan.views[access.param]
        rank = len(view.shape) + upright
        unit = 1 if i < rank - 2 else sublanes(access) if i == rank - 2 else 128
        if step == 1 and part == (0, 1):
            return None, program, None, var
        if lo < 0 or (step % unit and step != view.shape[i]):
            raise untiled(self.plan, access)
        if hi <= step:
            return step, program, None if part == (0, step) else part, var
        whole, moved = self._whole(access, i, upright), Sweep(piece.start, tuple({**loops, **single}.items()), n)
        if access.op.kind != "load" or moved.reach()[1] > whole:  # where the loop begins depends on the program
            raise untiled(self.plan, access)
        return whole, 0, moved, var

    def _whole(self, access: Access, i: int, upright: bool = False) -> int:
        """The size of a block that holds a whole dimension, with the tail that masked lanes reach."""
        view = self.plan.views[access.param]
        size, rank = view.widths[i], len(view.shape) + upright
        width = self.plan.reach.get((access.param, i), size)
        if width <= size:
            return size
        tile = 1024 if rank == 1 else 128 if i == rank - 1 else sublanes(access) if i == rank - 2 else 1
        return -(-width // tile) * tile

    def part(self, spec: Spec) -> str:
        """The part of a block that an access touches, as an index with its brackets."""
        raise NotImplementedError

    def _exclusive(self, a: Access, b: Access) -> bool:
        """Whether no program does both: a branch and its other side."""
        first, second = ({(c.value, c.negate) for c in self._reached(x) if c.value is not None} for x in (a, b))
        return any((value, not negate) in second for value, negate in first)

    def _reached(self, access: Access) -> list[Conjunct]:
        return self.plan.demand.accesses[access.op].all_conditions

    def sides(self, access: Access) -> tuple[Var | None, ...]:
        """The variables of what a load gives, dimension by dimension."""
        if gather.picks_rows(self.plan, access):
            return gather.dims_of(self, access)
        return self._spec(access)[1]

    def read(self, access: Access) -> Expr:
        """A block of an input, or of an output that was stored to before; an element of a row if one is picked."""
        row = self._read(access)
        if access.op not in self.plan.picked:
            return row
        return picked.element(self, access, row, *self.plan.picked[access.op])  # type: ignore[arg-type]

    def _read(self, access: Access) -> Expr:
        window = self.plan.windows[access.op]
        if window is None or any(piece.opaques for piece in window.slices):
            return gather.rows(self, access)
        spec, dims = self._spec(access)
        found = self._source(access, spec)
        return self._taken(f"{found.ref}{self.part(spec)}", dims, access.element)

    def _source(self, access: Access, spec: Spec) -> Spec:
        """Where a load finds its block."""
        return self._input(spec)

    def _taken(self, code: str, dims: tuple[Var | None, ...], element: dtype) -> Expr:
        """What was read of a block, as values are held; numbers of rows, one a row, lie along sublanes as the rows do.

        Rows become a column in 32 bits: Mosaic has no such move of narrower numbers.
        """
        if small(element):
            code = f"{code}.astype(jnp.int32)"
        if len(dims) != 1 or dims[0] not in self.rows:
            return Expr(code, dims)
        if element.is_bool():
            return Expr(f"{code}.astype(jnp.int32)[:, None] != 0", (dims[0], None))
        if element.is_floating() and element.primitive_bitwidth < 32:
            name = element.numpy_name
            return Expr(f"{code}.astype(jnp.float32)[:, None].astype(jnp.{name})", (dims[0], None))
        return Expr(f"{code}[:, None]", (dims[0], None))

    def in_smem(self, access: Access) -> str:
        """A small array as a flat ref in scalar memory."""
        view = self.plan.views[access.param]
        self.smem.setdefault(access.param, free_name(f"{access.param}_smem", set()))
        held = sum(self.plan.views[p].size for p in self.smem)
        if held > SMEM_NUMBERS:
            raise error(
                "tpu-scalar-memory",
                f"{access.param!r} has {view.size} numbers that decide addresses",
                where=access.op.where,
                why=f"scalar memory has room for {SMEM_NUMBERS} of them in a kernel",
                do="launch the kernel on parts of the tensor",
            )
        return self.smem[access.param]

    def in_hbm(self, access: Access, shape: Sequence[int]) -> str:
        """An array as a ref in HBM, of this shape at least."""
        ref, before = self.hbm.get(access.param, (f"{access.param}_hbm", tuple(shape)))
        self.hbm[access.param] = ref, tuple(max(a, b) for a, b in zip(before, shape))
        return ref

    def block_of(self, ref: str) -> tuple[int | None, ...] | None:
        """The block's shape of an input or output, by its ref."""
        return next((s.block for s in (*self.inputs, *self.outputs) if s.ref == ref), None)

    def _input(self, spec: Spec) -> Spec:
        """The operand that a spec is, declared on its first use."""
        found = next((s for s in self.inputs if s.place == spec.place), None)
        if found is None:
            found = spec.named(free_name(f"{spec.param}_ref", {s.ref for s in self.inputs}))
            self.inputs.append(found)
        return found

    def reduction(self, fn: str, expr: Expr, axis: int, element: Any, op: Op) -> str:
        """A reduction; over the grid's last axis, its last step reads past the array, which counts as nothing."""
        var = expr.dims[axis]
        if var is not None and self._ragged(var):
            if fn not in _NEUTRAL:
                raise error(
                    "tpu-not-translated",
                    f"{fn} over {var.count} iterations, {self.blocks.sizes[var]} of them a grid step",
                    where=op.where,
                    why="the last step reads past the array, and what is read there can't be told from numbers",
                    do=f"make the number of iterations a multiple of {self.blocks.sizes[var]}",
                )
            expr = self._real_lanes(expr, var, _NEUTRAL[fn](element), element)
        return super().reduction(fn, expr, axis, element, op)

    def real_lanes(self, a: Expr, b: Expr, contracted: Sequence[Var], element: Any) -> tuple[Expr, Expr]:
        """A product's operands: zeros where the last step of the grid's last axis reads past the array."""
        for var in contracted:
            if self._ragged(var):
                a, b = (self._real_lanes(e, var, False if element.is_bool() else 0, element) for e in (a, b))
        return a, b

    def _ragged(self, var: Var) -> bool:
        """Whether the grid's accumulating axis counts this, in blocks that do not divide it."""
        fold = self.blocks.fold
        return fold is not None and var is self.plan.top(fold.loop.var) and bool((var.count or 1) % self.extent(var))

    def _real_lanes(self, expr: Expr, var: Var, neutral: Any, element: Any) -> Expr:
        shape = shape_of(expr.dims, self.extent)
        left = f"{var.count} - pl.program_id({self.blocks.grid.index(var)}) * {self.extent(var)}"
        mask = Expr(f"lax.broadcasted_iota(jnp.int32, {shape}, {expr.dims.index(var)}) < {left}", expr.dims)
        kept = self.masked(mask, expr, literal(neutral), element.numpy_name)
        return Expr(kept.code, kept.dims, None, expr.fills)


def at_element(expr: Expr, at: Mapping[Any, int]) -> Expr:
    """An expression where some variables are one number each."""
    if not any(v in at for v in expr.vars):
        return expr
    index = [f"{at[d]}:{at[d] + 1}" if d in at else ":" for d in expr.dims]
    return Expr(f"{expr.operand}[{', '.join(index)}]", tuple(None if d in at else d for d in expr.dims))


def sublanes(access: Access) -> int:
    """Rows of a native tile."""
    return 8 * max(1, 4 // access.element.itemsize)


def _row_vars(plan: Schedule) -> set[Var]:
    """Variables that count rows: they stand before the last dimension of some access."""
    windows = [w for w in plan.windows.values() if w is not None]
    return {v for w in windows for piece in w.slices[:-1] for v in piece.steps}


def _one_dim(n: int, itemsize: int) -> bool:
    """Whether a 1-D array can be cut into blocks of this size."""
    return n % 1024 == 0 or (n >= 128 * max(1, 4 // itemsize) and n & (n - 1) == 0)


def free_name(name: str, taken: set[str]) -> str:
    """A name for a ref that is not taken."""
    stem, _, kind = name.rpartition("_")
    count = 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}_{kind}"
    return name


def _product(sizes: Sequence[int | None]) -> int:
    out = 1
    for n in sizes:
        out *= n or 1
    return out
