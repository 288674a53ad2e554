"""Accesses as operands of the kernel: BlockSpecs, what is read of a block, what is written to one.

Input: accesses with windows, block sizes. Output: `Spec`s and statements. Law: every access is one BlockSpec, of the
argument or of an array that XLA makes of it (`outside.py`); lanes past a ragged edge never reach a contraction or a
sum; an output's block is written whole, what a store leaves alone with the old values.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.access import Slice
from frontend_triton_compat.affine import int_range
from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, tight, union
from frontend_triton_compat.emit.refusals import store_conflict, untiled
from frontend_triton_compat.emit.tpu import gather, picked
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.outside import (
    Clamped,
    Part,
    Spec,
    Sweep,
    apart_from_tiles,
    dense,
    disjoint,
    rows_of,
)
from frontend_triton_compat.emit.tpu.scalars import SMEM_NUMBERS
from frontend_triton_compat.emit.tpu.tiles import TileForms
from frontend_triton_compat.forms import Var
from frontend_triton_compat.holding import small
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.schedule import Schedule, settle
from frontend_triton_compat.schedule.crop import negative_where
from frontend_triton_compat.schedule.overlap import apart
from frontend_triton_compat.types import dtype

#: What changes nothing, by reduction: a function of the dtype.
_NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda element: False if element.is_bool() else 0.0 if element.is_floating() else 0,
    "max": lambda element: -math.inf if element.is_floating() else int_range(element)[0],
    "min": lambda element: math.inf if element.is_floating() else int_range(element)[1],
}
#: Most bytes of a block that is larger than what an access needs of it; beyond, XLA cuts the part out first.
_SPARE_BYTES = 4 << 20


@dataclass(frozen=True)
class Constant:
    """A store of one number to all of a block.

    Attributes:
        chance: the boolean that decides whether it happens, and which way.
        number: what is stored.
        line: the statement.
    """

    chance: tuple[Value, bool]
    number: Any
    line: str


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
        self.constants: dict[str, Constant] = {}  # ref -> the store that gave all of it a number, on a condition
        self.kept: set[str] = set()  # refs of outputs whose old contents count
        self.chances: dict[str, list[tuple[tuple[Part, ...], tuple[Value, bool] | None]]] = {}
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

    def _stored_before(self, access: Access) -> bool:
        """Whether a store may have come before a load, in an earlier turn of a loop perhaps."""
        for store in self.plan.accesses.values():
            if store.param != access.param or store.op.kind == "load" or self._exclusive(store, access):
                continue
            if store.order < access.order:
                return True
            for op in set(store.path) & set(access.path):
                loop = self.plan.affine.loops.get(op)
                if op.kind == "while" or (loop is not None and loop.var.serial):
                    same = store.form == access.form and loop is not None and loop.var in store.form.vars
                    if not same or not apart(store.form, store.all_conditions, loop.var):  # type: ignore[union-attr]
                        return True
        return False

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
        if access.param in self.plan.written:
            if self._stored_before(access):
                if not any(s.param == access.param for s in self.outputs):
                    self._output(spec, access.op)
                written = [s for s in self.outputs if s.param == access.param]
                if [s.place for s in written] != [spec.place]:
                    raise error(
                        "program-order",
                        f"{access.param!r} is read again after it was stored to",
                        where=access.op.where,
                        why="the block that was written is on its way to HBM, the one that is read is another",
                        do="keep the stored value in a variable and use that",
                    )
                if not self._covered(written[0]):
                    self.kept.add(written[0].ref)
                return self._taken(f"{written[0].ref}{self.part(spec)}", dims, access.element)
        found = self._input(spec)
        return self._taken(f"{found.ref}{self.part(spec)}", dims, access.element)

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
        self.smem.setdefault(access.param, _free(f"{access.param}_smem", set()))
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
            found = spec.named(_free(f"{spec.param}_ref", {s.ref for s in self.inputs}))
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

    def store(self, op: Op) -> None:
        """A store; its mask may be the array's edge, where the lanes beyond go nowhere."""
        access = self.plan.accesses[op]
        left = [c for c in access.mask if not self._is_edge(access, c)]
        if any(c.form is not None and c.form.is_const for c in left):
            return  # a condition that never holds
        left = [c for c in left if c.loop is None or c.loop in self.active]  # else the step's program still runs it
        self.write(access, self.value(op.operands[1]), self.mask(left))

    def _is_edge(self, access: Access, c: Conjunct) -> bool:
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        if c.form is None or window is None:
            return False
        for i, piece in enumerate(window.slices):
            gap = c.form - piece.form()
            end = view.shape[i] + (view.origin // view.strides[0] if i == 0 else 0)
            if gap.is_const and -gap.const >= end:
                return True
        return False

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """A block of an output; where the mask does not hold, and beside the store, the old values stay."""
        op = access.op
        spec, target = self._spec(access)
        out = self._output(spec, op)
        element = access.element
        name, held = element.numpy_name, "int32" if small(element) else element.numpy_name
        place = f"{out.ref}{self.part(spec)}"
        mask = None if mask is None or mask.code == "True" else mask
        one = op in self.plan.picked
        if one:  # one element of a row
            hit = picked.hits(self, target, *self.plan.picked[op])  # type: ignore[arg-type]
            dims = union([hit, mask]) if mask is not None else hit.dims
            mask = Expr(f"{tight(align(hit, dims))} & {tight(align(mask, dims))}", dims) if mask is not None else hit
        pinned = self._pinned(access)
        extra = [v for v in dict.fromkeys((*value.vars, *(mask.vars if mask else ()))) if v not in target]
        if any(v in self.blocks.grid and v not in spec.picks for v in pinned) and not self._stays(spec):
            raise untiled(self.plan, access)
        if any(v in pinned for v in extra):
            places = {v: n % self.extent(v) for v, n in pinned.items()}
            value, mask = at_element(value, places), mask and at_element(mask, places)
            extra = [v for v in extra if v not in pinned]
        if extra:
            raise store_conflict(
                op,
                f"programs that differ in {extra[0].name} store to the same place in {access.param!r}",
                f"let one of them store, `if tl.program_id(0) == 0:`, or give {access.param!r} a row for each of them",
            )
        if op.kind == "atomic":
            pass  # what is there counts
        elif mask is not None or any(c.loop is not None for c in access.mask):
            self.chances.setdefault(out.ref, []).append((spec.inner, None if one or pinned else self._chance(access)))
        plain = mask is not None and op.kind == "store" and not (one or pinned or spec.clamped)
        chance = self._chance(access) if plain else None
        number, other = value.literal if not value.dims else None, self._other_side(out, chance, value)
        if mask is not None and other is not None:
            value = self.masked(mask, value, other, held)
            self.pieces.setdefault(out.ref, []).append((spec.inner, op))
        elif mask is not None:
            value = self.masked(mask, value, self._taken(place, target, element), held)
        elif op.kind == "store" and not any(c.loop is not None for c in access.mask):
            self.pieces.setdefault(out.ref, []).append((spec.inner, op))
        narrow = not element.is_bool() and element.primitive_bitwidth < 32
        if narrow and element.is_floating() and len(value.dims) > len(target):
            value = Expr(f"{value.operand}.astype(jnp.float32)", value.dims)  # a column becomes a row in 32 bits
        else:
            narrow = held != name
        if value.literal is not None and not value.dims:
            code, narrow = f"jnp.full({shape_of(target, self.extent)}, {value.code}, jnp.{name})", False
        elif not value.vars and target and len(value.dims) != len(target):  # one number
            one = value.code if not value.dims else f"{value.operand}[{', '.join('0' * len(value.dims))}]"
            kind = "float32" if narrow and element.is_floating() else held
            code = f"jnp.full({shape_of(target, self.extent)}, {one}, jnp.{kind})"
        elif set(value.vars) == set(d for d in target if d):
            code = align(value, target)
            if len(value.dims) > len(target):
                code = align(self._plain(value), target)
            elif len(value.dims) < len(target) and code == value.code:  # broadcasting would do, but a ref does not
                code = f"jnp.broadcast_to({code}, {shape_of(target, self.extent)})"
        else:
            code = f"jnp.broadcast_to({align(value, target)}, {shape_of(target, self.extent)})"
        line = f"{place} = {tight(code)}.astype(jnp.{name})" if narrow else f"{place} = {code}"
        if spec.clamped:
            self.put(f"@pl.when({self._inside(spec)})", op)
            self.put(f"def {self.fresh('stored')}():")
            line = f"    {line}"
        self.put(line, op)
        if chance is not None and number is not None and self.indent == 1 and self._all_of(out, spec.inner):
            self.constants[out.ref] = Constant(chance, number, self.lines[-1])

    def _other_side(self, out: Spec, chance: tuple[Value, bool] | None, value: Expr) -> Expr | None:
        """The number that a store gave all of the block where this one does not happen; None where there is none."""
        constant = self.constants.get(out.ref)
        if constant is None or value.literal is not None or chance != (constant.chance[0], not constant.chance[1]):
            self.constants.pop(out.ref, None)  # what lies there is no longer known
            return None
        return literal(constant.number)

    def _drop_constants(self) -> None:
        """Stores of one number that stores on the other side of the condition write anew."""
        for out in self.outputs:
            constant = self.constants.get(out.ref)
            if constant is None or not self._covered(out) or out.ref in self.kept:
                continue
            named = re.compile(rf"(?<!\w){out.ref}(?:\.at)?\[")
            others = [line for line in self.lines if line is not constant.line]
            if len(others) == len(self.lines) - 1 and not any(named.search(x.partition(" = ")[2]) for x in others):
                self.lines[:] = others

    def _output(self, spec: Spec, op: Op) -> Spec:
        """The result that a spec is, declared on its first use."""
        others = [s for s in self.outputs if s.param == spec.param]
        found = next((s for s in others if s.place == spec.place), None)
        if found is None:
            if others:
                self._refuse_overlap(spec, others, op)
            found = spec.named(_free(f"{spec.param}_out", {s.ref for s in self.outputs}))
            self.outputs.append(found)
        return found

    def _refuse_overlap(self, spec: Spec, others: Sequence[Spec], op: Op) -> None:
        """Stores through different blocks become results of their own, put together by XLA: they must not meet."""
        stores = [a for a in self.plan.accesses.values() if a.param == spec.param and a.op.kind != "load"]
        mine = next(a for a in stores if a.op is op)
        for other in stores:
            if other.op is not op and not disjoint(self.plan, mine, other) and self._spec(other)[0].place != spec.place:
                raise store_conflict(
                    op,
                    f"{spec.param!r} is stored to through different blocks, which overlap",
                    "give every store to the tensor the same program and the same rows",
                )

    def _pinned(self, access: Access) -> dict[Var, int]:
        """Programs of which a store's conditions let one through, ``if tl.program_id(0) == 0:`` -> which one."""
        ranges: dict[Var, tuple[int, int]] = {}
        for form in (f for c in access.mask for f in negative_where(self.plan, c)):
            if len(form.terms) != 1 or form.opaques:
                continue
            ((var, k),) = form.terms.items()
            assert isinstance(var, Var)
            low, high = ranges.get(var, (0, (var.count or 1) - 1))
            if k > 0:
                high = min(high, (-form.const - 1) // k)
            else:
                low = max(low, form.const // -k + 1)
            ranges[var] = low, high
        out: dict[Var, int] = {}
        for var, (low, high) in ranges.items():
            if low == high and var in self.plan.parts:
                whole, size = self.plan.parts[var]
                out[whole] = low * size
            elif low == high:
                out[var] = low
        return out

    def _stays(self, spec: Spec) -> bool:
        """Whether the grid steps that have one block of a result come one after the other."""
        moving = [v in spec.picks for v in self.blocks.grid if self.blocks.steps(v) > 1]
        return moving == sorted(moving, reverse=True)

    def _chance(self, access: Access) -> tuple[Value, bool] | None:
        """The one boolean that decides whether a store happens, and which way; None where it is not that simple."""
        left = [c for c in access.mask if not self._is_edge(access, c)]
        conditions = [c for c in (settle(self.plan, c) for c in left) if c is not None]
        if len(conditions) != 1 or conditions[0].value is None:
            return None
        return conditions[0].value, conditions[0].negate

    def _either_way(self, out: Spec) -> bool:
        """Whether a condition and its opposite each write all of an output's block."""
        found = {c for inner, c in self.chances.get(out.ref, []) if c and self._all_of(out, inner)}
        return any((value, not negate) in found for value, negate in found)

    def _all_of(self, out: Spec, inner: Sequence[Part]) -> bool:
        """Whether a part of a block is all of it that lies in the array."""
        kept = [i for i, n in enumerate(out.block) if n is not None]
        for part, i in zip(inner, kept):
            size = out.block[i] or 0
            end = size if isinstance(out.picks[i], Var) else min(size, out.shape[i])
            if part is not None and (isinstance(part, Sweep) or part[0] > 0 or part[1] < end):
                return False
        return True

    def _covered(self, out: Spec) -> bool:
        """Whether the stores so far have written all of an output's block."""
        pieces = self.pieces.get(out.ref, [])
        split = {i for inner, _ in pieces for i, part in enumerate(inner) if part is not None}
        if not pieces or any(all(part is None for part in inner) for inner, _ in pieces):
            return bool(pieces)
        if len(split) != 1:
            return False
        (axis,) = split
        kept = [i for i, n in enumerate(out.block) if n is not None]
        size = out.block[kept[axis]]
        assert size is not None
        end = size if isinstance(out.picks[kept[axis]], Var) else min(size, out.shape[kept[axis]])
        reached = 0
        for lo, hi in sorted(stretch for inner, _ in pieces for stretch in _stretches(inner[axis], size)):
            reached = max(reached, hi) if lo <= reached else reached
        return reached >= end

    def keep_old_values(self) -> None:
        """Outputs that no store writes whole begin with what was there."""
        self._drop_constants()
        first: dict[tuple[str, ...], list[str]] = {}
        for out in self.outputs:
            covered = self._covered(out) or self._either_way(out)
            if covered and out.ref not in self.kept:
                continue  # a store that chooses may then choose between new values and nothing in particular
            old = self._input(out)
            named = re.compile(rf"(?<!\w){out.ref}(?:\.at)?\[")
            stores = [i for i, line in enumerate(self.lines) if named.search(line)]
            left, _, right = self.lines[stores[0]].partition(" = ")
            again = tuple(f"pl.program_id({axis}) == 0" for axis in self._comes_again(out))
            again += (self._inside(out),) if out.clamped else ()
            if len(stores) == 1 and left == f"    {out.ref}[...]" and not again:
                self.lines[stores[0]] = f"{left} = {named.sub(f'{old.ref}[', right)}"
                continue  # the only store: it chooses between new and old
            first.setdefault(again, []).append(f"{out.ref}[...] = {old.ref}[...]")
        lines = first.pop((), [])
        for conditions, told in first.items():
            both = " & ".join(f"({c})" if len(conditions) > 1 else c for c in conditions)
            lines += [f"@pl.when({both})", f"def {self.fresh('keep')}():", *(f"    {line}" for line in told)]
        self.lines[:0] = [f"    {line}" for line in (*self.prologue, *lines)]

    def _comes_again(self, out: Spec) -> tuple[int, ...]:
        """The axes of the grid along which an output's block stays the same, step by step."""
        axes = (i for i, v in enumerate(self.blocks.grid) if v not in out.picks and self.blocks.steps(v) > 1)
        return tuple(axes) if self._stays(out) else ()

    def _inside(self, spec: Spec) -> str:
        """Whether a grid step has a block of its own, as source."""
        (clamped,) = spec.clamped
        return f"pl.program_id({self.blocks.grid.index(clamped.var)}) <= {clamped.last}"


def at_element(expr: Expr, at: Mapping[Any, int]) -> Expr:
    """An expression where some variables are one number each."""
    if not any(v in at for v in expr.vars):
        return expr
    index = [f"{at[d]}:{at[d] + 1}" if d in at else ":" for d in expr.dims]
    return Expr(f"{expr.operand}[{', '.join(index)}]", tuple(None if d in at else d for d in expr.dims))


def _stretches(part: Part, whole: int) -> list[tuple[int, int]]:
    """The ranges of a block's dimension that an access touches."""
    if part is None:
        return [(0, whole)]
    if not isinstance(part, Sweep):
        return [part]
    starts = [part.start]
    for var, step in part.steps:
        starts = [s + step * k for s in starts for k in range(var.count or 1)]
    return [(s, s + part.size) for s in starts]


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


def _free(name: str, taken: set[str]) -> str:
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
