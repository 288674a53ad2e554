"""Accesses on a GPU: copies between global and shared memory, by the tensor memory accelerator (TMA).

Input: accesses with windows, a `Share`. Output: statements and the arrays that the kernel takes and gives. Law: a copy
moves a whole tile; what lies past an array's edge arrives as zero and is not written back. Loads that depend on nothing
are started together when the block starts. An array's rows are multiples of 16 bytes: others are padded outside.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from bridge.diagnostics import error
from frontend_triton_compat.access import Slice
from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.emit.expr import Expr
from frontend_triton_compat.emit.gpu.dims import Dimensions
from frontend_triton_compat.emit.gpu.memory import Array, Memory, Stored, Tile
from frontend_triton_compat.emit.gpu.share import Share, kept_dims
from frontend_triton_compat.emit.program import Emitter
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule
from pallas_core.targets.mosaic_gpu import GpuChip


class Operands(Emitter):
    """Reads and writes of tiles."""

    target = "gpu"
    wide_int = "int32"

    def __init__(self, plan: Schedule, share: Share, dimensions: Dimensions, chip: GpuChip):
        super().__init__(plan)
        self.share, self.dimensions, self.chip = share, dimensions, chip
        self.lean = False  # whether results go straight to global memory, for want of shared memory
        self.memory = Memory()
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []
        self.scalars: dict[str, None] = {}
        self.head: list[str] = []  # copies that start with the block
        self.stored: list[Stored] = []
        self.names |= {"plgpu", "LAYOUT", "loaded", "index", "acc", "k", "k1", "interpret", "results"}
        self.grid = {v: self.fresh(v.name) for v in share.grid}
        self.starts: dict[Var, str] = {}

    # -- where a tile lies

    def single_name(self, var: Var) -> str | None:
        """The name of a variable that is one number in a block, or None."""
        if var in self.counters:
            return self.counters[var]
        return self.grid.get(var) if self.share.single(var) else None

    def tile_of(self, access: Access, arrays: Sequence[Array] | None) -> Tile:
        """What an access touches, in an array of `arrays` or a new one of the inputs."""
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        if window is None:
            raise untiled(self.plan, access, "a GPU")
        itemsize = access.element.itemsize
        index: list[str] = []
        dims: list[Var] = []
        boxes: list[int] = []
        cut: list[tuple[int, int] | int | None] = []
        shape, padded, whole = [], [], []
        storing, clean = arrays is not None, True
        kept = len(view.shape) if storing else kept_dims(self.plan, access)
        for i, (piece, size) in enumerate(zip(window.slices, view.shape)):
            if i == 0:
                piece = Slice(piece.start - view.origin // view.strides[0], piece.steps, piece.opaques)
            if i >= kept:
                cut.append(piece.start)
                continue
            text, var, reach, fixed = self._start(access, piece)
            taken = None
            if var is not None and fixed and self.share.sizes[var] > (var.count or 1):
                last = piece.start + (var.count or 1)
                if storing and last < size:  # what lies behind it is not this store's: it gets an array of its own
                    taken, size, text, reach = (piece.start, last), last - piece.start, "0", 0
                elif not storing and last <= size:  # it must not be seen: it is cut off, zeros come in its place
                    taken, size = (0, last), last
            n = self.share.sizes[var] if var is not None else 1
            if var is not None and len(piece.steps) > 1 and var not in self.grid and n > (var.count or 1):
                clean = False  # what follows belongs to the next program or turn
                if storing:
                    n = self._exact_box(access, var)
            need = size + n if piece.opaques and var is not None else max(size, reach + n)
            if i == kept - 1 and i:
                unit = max(1, 16 // itemsize)
                need = -(-need // unit) * unit
                least = -(-size // unit) * unit
            else:
                least = size
            cut.append(taken)
            shape.append(size)
            # Swizzled copies of tiles with two dimensions take whole tiles, of the array too.
            padded.append(need if fixed or not self.share.rows else least)
            whole.append(need)
            index.append(text if var is None else f"pl.ds({text}, {n})")
            if var is not None:
                dims.append(var)
                boxes.append(n)
        parts = (tuple(cut), tuple(shape), tuple(padded), tuple(whole))
        return Tile(self._array(access.param, parts, arrays), tuple(index), tuple(dims), tuple(boxes), clean)

    def _exact_box(self, access: Access, var: Var) -> int:
        """The elements of a tile, where a copy of just them is possible."""
        count = var.count or 1
        if self.share.rows and count * access.element.itemsize % self.chip.tma_align:
            raise error(
                "gpu-not-translated",
                f"the store to {access.param!r} ends inside of a copy's unit",
                where=access.op.where,
                why=f"rows of {count} elements lie one behind the other in one dimension, and what is copied to global "
                f"memory is a multiple of {self.chip.tma_align} bytes: it would overwrite the next row",
                do="let the rows be a dimension of the tensor, with a stride that the kernel is told",
            )
        return count

    def _start(self, access: Access, piece: Slice) -> tuple[str, Var | None, int, bool]:
        """Where a dimension's part starts, its tile variable, the largest start, and whether the start is a number."""
        terms: list[str] = []
        tile: Var | None = None
        reach, fixed = piece.start, True
        for var, step in piece.steps.items():
            name = self.single_name(var)
            if name is not None:
                terms.append(name if step == 1 else f"{name} * {step}")
                reach += step * ((var.count or 1) - 1)
                fixed = False
            elif var in self.share.sizes and step == 1 and tile is None:
                tile = var
                if var in self.starts:
                    terms.append(self.starts[var])
                    reach += -(-(var.count or 1) // self.share.sizes[var] - 1) * self.share.sizes[var]
                elif var in self.grid:
                    terms.append(f"{self.grid[var]} * {self.share.sizes[var]}")
                    reach += (self.share.steps(var) - 1) * self.share.sizes[var]
                    fixed = False
            else:
                raise untiled(self.plan, access, "a GPU")
        for opaque, step in piece.opaques.items():
            found = self.value(opaque.value)
            if found.dims:
                raise untiled(self.plan, access, "a GPU")
            terms.append(found.operand if step == 1 else f"{found.operand} * {step}")
            fixed = False
        if piece.start or not terms:
            terms.append(str(piece.start))
        return " + ".join(terms), tile, reach, fixed

    def _array(
        self,
        param: str,
        parts: tuple[tuple[tuple[int, int] | int | None, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        arrays: Sequence[Array] | None,
    ) -> Array:
        cut, shape, padded, whole = parts
        larger = lambda a, b: tuple(map(max, a, b))
        for known in self.inputs if arrays is None else arrays:
            if known.param == param and known.cut == cut:
                known.padded, known.whole = larger(known.padded, padded), larger(known.whole, whole)
                return known
        name = param if arrays is None and not self._named(param) else self.fresh(f"{param}_out")
        found = Array(name, param, cut, shape, padded, whole)
        if arrays is None:
            self.inputs.append(found)
        return found

    def _named(self, param: str) -> bool:
        return any(a.name == param for a in self.inputs)

    # -- reading

    def load(self, op: Op) -> None:
        """A load, less the conditions that its copy takes care of."""
        self.plan.accesses[op] = self.edge_free(self.plan.accesses[op])
        super().load(op)

    def store(self, op: Op) -> None:
        """A store, less the conditions that its copy takes care of."""
        self.plan.accesses[op] = self.edge_free(self.plan.accesses[op])
        super().store(op)

    def arg_(self, op: Op) -> Expr:
        """A float argument: an array of one element in global memory."""
        self.scalars[op["name"]] = None
        return Expr(f"{op['name']}_ref[0]")

    def read(self, access: Access) -> Expr:
        """A tile in registers, or a scalar."""
        tile = self.tile_of(access, None)
        if not tile.dims:
            index = list(tile.index)
            if access.mask:  # a place outside the array must not be touched; what is read there is not looked at
                limits = [n - 1 for n in tile.array.shape]
                index = [t if t.isdigit() else f"jnp.clip({t}, 0, {n})" for t, n in zip(index, limits)]
            return Expr(f"{tile.array.name}_ref[{', '.join(index)}]")
        return self.from_shared(self.copied(access, tile), tile.dims)

    def copied(self, access: Access, tile: Tile) -> str:
        """Copy a tile to shared memory; the buffer's name. It has arrived when this block goes on."""
        buffer, barrier = self.start_copy(access, tile)
        if barrier != "loaded":
            self.put(f"plgpu.barrier_wait({barrier})")
        return buffer

    def start_copy(self, access: Access, tile: Tile) -> tuple[str, str]:
        """Start the copy of a tile to shared memory; the buffer's and the barrier's names."""
        self._refuse_late(access)
        self._check_adjacent(access, tile)
        buffer = self.buffer(f"{access.param}_smem", tile.dims, access.element.numpy_name)
        early = self.indent == 1 and not self._opaques(access)
        barrier = "loaded" if early else self.fresh("loaded")
        lines, count = self._copies(tile, buffer, f"plgpu.copy_gmem_to_smem({{gmem}}, {{smem}}, {barrier})")
        self.memory.barriers[barrier] = self.memory.barriers.get(barrier, 0) + count
        if early:
            self.head += lines
        else:
            for line in lines:
                self.put(line, access.op)
        return buffer, barrier

    def _opaques(self, access: Access) -> list[object]:
        window = self.plan.windows[access.op]
        return [o for piece in (window.slices if window is not None else ()) for o in piece.opaques]

    def _refuse_late(self, access: Access) -> None:
        stores = [a for a in self.plan.accesses.values() if a.param == access.param and a.op.kind != "load"]
        if any(a.order < access.order for a in stores):
            raise error(
                "gpu-not-translated",
                f"{access.param!r} is read again after it was stored to",
                where=access.op.where,
                why="the stored tile is on its way to global memory, what would be read is the old one",
                do="keep the stored value in a variable and use that",
            )

    def buffer(self, name: str, dims: Sequence[Var], dtype_name: str) -> str:
        """Declare shared memory for a tile; its name."""
        found = self.fresh(name)
        self.memory.buffers[found] = (tuple(self.share.sizes[d] for d in dims), dtype_name)
        return found

    def from_shared(self, buffer: str, dims: Sequence[Var]) -> Expr:
        """A tile in shared memory as a value."""
        order = self.dimensions.union([Expr("", tuple(dims))])
        layout = self.dimensions.layout(order)
        if order != tuple(dims):
            buffer = self.exchanged(buffer, dims)
        code = f"plgpu.load({buffer}, (), layout={layout}, optimized=False)" if layout else f"{buffer}[...]"
        return Expr(code, order)

    def exchanged(self, buffer: str, dims: Sequence[Var]) -> str:
        """A tile in shared memory with its dimensions exchanged, in a buffer of its own."""
        other = self.buffer(f"{buffer}_t", tuple(reversed(dims)), self.memory.buffers[buffer][1])
        self.put_exchanged(other, f"plgpu.load({buffer}, (), layout=plgpu.Layout.WGMMA, optimized=False)")
        return other

    def put_exchanged(self, buffer: str, code: str) -> None:
        """Write a tile to shared memory with its dimensions exchanged."""
        self.put(
            f"plgpu.transpose_ref({buffer}, (1, 0))[...] = plgpu.layout_cast({code}, plgpu.Layout.WGMMA_TRANSPOSED)"
        )

    def _check_adjacent(self, access: Access, tile: Tile) -> None:
        if not tile.index[-1].startswith("pl.ds("):
            raise error(
                "gpu-not-translated",
                f"the elements of the tile of {access.param!r} are not neighbours in memory",
                where=access.op.where,
                why="the memory accelerator copies boxes whose last dimension is the array's",
                do="let the last dimension of the tile step by 1: pass the tensor with .contiguous()",
            )

    def _copies(self, tile: Tile, buffer: str, text: str) -> tuple[list[str], int]:
        """The lines of a copy, one a box of at most 256 elements a dimension, and the number of copies."""
        sizes = self.memory.buffers[buffer][0]
        gmem, smem, loops, count = list(tile.index), [":"] * len(sizes), [], 1
        for at, n in enumerate(tile.boxes):
            if n <= self.chip.tma_dim:
                if n < sizes[at]:
                    smem[at] = f"pl.ds(0, {n})"
                continue
            box = math.gcd(n, self.chip.tma_dim)
            k = "k" if not loops else f"k{len(loops)}"
            loops.append(f"for {k} in range(0, {n}, {box}):")
            count *= n // box
            i = next(i for i, t in enumerate(tile.index) if t.endswith(f", {n})") and self._is_of(tile, i, at))
            start = tile.index[i].removeprefix("pl.ds(").rpartition(", ")[0]
            gmem[i] = f"pl.ds({k if start == '0' else f'{start} + {k}'}, {box})"
            smem[at] = f"pl.ds({k}, {box})"
        source = f"{tile.array.name}_ref.at[{', '.join(gmem)}]"
        target = buffer if all(s == ":" for s in smem) else f"{buffer}.at[{', '.join(smem)}]"
        lines = ["    " * i + loop for i, loop in enumerate(loops)]
        return [*lines, "    " * len(loops) + text.format(gmem=source, smem=target)], count

    def _is_of(self, tile: Tile, i: int, at: int) -> bool:
        """Whether dimension `i` of the array is dimension `at` of the tile."""
        return [j for j, t in enumerate(tile.index) if t.startswith("pl.ds(")][at] == i

    # -- writing

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """Store a tile, or a scalar."""
        op = access.op
        tile = self.tile_of(access, self.outputs)
        if tile.array not in self.outputs:
            self.outputs.append(tile.array)
        name = access.element.numpy_name
        self.stored.append(Stored(tile.array, access.param, self._region(access)))
        order = self.dimensions.union([Expr("", tile.dims)])
        if mask is not None and mask.code != "True":
            old = self.read(access)
            value = self.masked(mask, value, self.assign("old", old, op), name)
        if not tile.dims:
            if value.dims:
                raise untiled(self.plan, access, "a GPU")
            line = f"{tile.array.name}_ref[{', '.join(tile.index)}] = {self.typed(value, name)}"
            moving = [(t, n) for t, n in zip(tile.index, tile.array.shape) if not t.isdigit()]
            if access.mask and moving:  # where the mask does not hold, the place may lie outside the array
                self.put(f"@pl.when({' & '.join(f'({t} >= 0) & ({t} < {n})' for t, n in moving)})", op)
                self.put(f"def {self.fresh('inside')}():")
                line = f"    {line}"
            self.put(line, op)
            return
        extra = [d for d in value.vars if d not in tile.dims]
        if extra:
            raise untiled(self.plan, access, "a GPU")
        self._check_adjacent(access, tile)
        code = self.spread(value, order, name)
        whole = tile.boxes == tuple(self.share.sizes[d] for d in tile.dims)
        if self.lean and whole and order == tile.dims:
            self.put(f"{tile.array.name}_ref[{', '.join(tile.index)}] = {code}", op)
            return
        buffer = self.buffer(f"{access.param}_smem", tile.dims, name)
        if order != tile.dims:
            self.put_exchanged(buffer, code)
        else:
            self.put(f"{buffer}[...] = {code}", op)
        self.put("plgpu.commit_smem()")
        lines, _ = self._copies(tile, buffer, "plgpu.copy_smem_to_gmem({smem}, {gmem})")
        for line in lines:
            self.put(line)
        if self.indent > 1:  # the buffer is used again
            self.put("plgpu.wait_smem_to_gmem(0)")

    def typed(self, value: Expr, name: str) -> str:
        """A scalar's source, with its type where it is a number."""
        return f"jnp.{name}({value.code})" if value.literal is not None else value.code

    def spread(self, value: Expr, dims: Sequence[Var], name: str) -> str:
        """A value at exactly these dimensions, numbers and scalars too."""
        if value.dims:
            return self.dimensions.resolve(Expr(self.dimensions.align(value, dims), tuple(dims)), dims)
        full = f"jnp.full({self.dimensions.shape(dims)}, {value.code}, jnp.{name})"
        layout = self.dimensions.layout(dims)
        return f"plgpu.layout_cast({full}, {layout})" if layout else full

    def _region(self, access: Access) -> tuple[tuple[int, int], ...] | None:
        """What a store writes over the whole grid, per dimension of the view; None when that is not a box."""
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        assert window is not None
        out = []
        for i, (piece, size) in enumerate(zip(window.slices, view.shape)):
            start = piece.start - (view.origin // view.strides[0] if i == 0 else 0)
            if piece.opaques or len(piece.steps) > 1 or any(s != 1 for s in piece.steps.values()):
                reach = self._exactly(piece)
                if reach is None:
                    return None
                out.append((start, min(size, start + reach)))
                continue
            count = next(iter(piece.steps)).count if piece.steps else 1
            out.append((start, min(size, start + (count or 1))))
        return tuple(out)

    def _exactly(self, piece: Slice) -> int | None:
        """How many elements several variables count together without a gap; None when there is one."""
        if piece.opaques:
            return None
        reach = 1
        for var, step in sorted(piece.steps.items(), key=lambda item: item[1]):
            if step < 1 or step > reach or var.count is None:
                return None
            reach = step * (var.count - 1) + reach
        return reach

    def clipped(self, access: Access, condition: Conjunct) -> bool:
        """Whether a condition is the edge of the array: a copy reads zeros past it and writes nothing there."""
        if condition.form is None:
            return False
        op = access.op
        if op.kind == "load" and op["has_other"]:
            other = self.value(op.operands[-1])
            if other.literal is None or other.literal != 0:
                return False
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        for i, (piece, size) in enumerate(zip(window.slices if window is not None else (), view.shape)):
            start = view.origin // view.strides[0] if i == 0 else 0
            gap = condition.form - (piece.form() - Form(size + start))
            if gap.is_const and gap.const == 0:
                return True
        return False

    def edge_free(self, access: Access) -> Access:
        """An access without the conditions that copies take care of."""
        window = self.plan.windows[access.op]
        if window is None or not any(v in self.share.sizes for piece in window.slices for v in piece.steps):
            return access
        return dataclasses.replace(access, mask=[c for c in access.mask if not self.clipped(access, c)])
