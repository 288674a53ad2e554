"""Contractions on a GPU: wgmma on sm_90a, tcgen05 with tensor memory on sm_100a.

Input: `dot` operations. Output: statements and `Expr`s. Law: operands of 16 bits that were just loaded are multiplied
where they lie in shared memory; any other is written there first. fp32 is taken apart into three bfloat16 numbers
(8 bits of the fraction each), and the six products that matter are added in fp32, the small ones first. Padding along
the contracted dimension is zero in both operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.emit.base import TRANSPARENT
from frontend_triton_compat.emit.expr import Expr
from frontend_triton_compat.emit.gpu.memory import Tile
from frontend_triton_compat.emit.gpu.tiles import GpuTiles
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Block, Op, Value, walk

#: Products of the parts of two fp32 numbers, the smallest first.
_PRODUCTS = ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0))
_SPLIT = '''
def bf16_parts(x):
    """Three bfloat16 numbers whose sum is x: eight bits of the fraction each."""
    parts = []
    for _ in range(3):
        top = lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) & -65536, jnp.float32)
        parts.append(top.astype(jnp.bfloat16))
        x = jnp.where(jnp.abs(x) < jnp.inf, x - top, 0)
    return parts
'''


@dataclass(frozen=True)
class Shared:
    """A loaded tile that still lies in shared memory only: the buffer, its dimensions, whether its padding is zero."""

    buffer: str
    dims: tuple[Var, ...]
    clean: bool


class Dots(GpuTiles):
    """Statements of contractions."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.shared: dict[Value, Shared] = {}
        self.staged: dict[tuple[Value, tuple[Var, Var]], list[str]] = {}  # operands that are in shared memory for good
        self.started: dict[Op, tuple[Tile, str, str]] = {}  # copies on their way: the tile, its buffer, its barrier
        self._taken: set[str] = set()  # staging buffers of the contraction that is being written

    # -- operands

    def load(self, op: Op) -> None:
        """A load; one that only contractions look at stays in shared memory."""
        access = self.plan.accesses[op]
        if op in self.share.piped and op.result not in self.shared:
            raise error("internal-error", "a load of the pipeline was not started", where=op.where)
        if op.result in self.shared and self._only_multiplied(op.result):
            return
        if op.result not in self.shared and self._stays(op):
            if op in self.started:
                tile, buffer, barrier = self.started.pop(op)
                self.put(f"plgpu.barrier_wait({barrier})", op)
            else:
                tile = self.tile_of(access, None)
                buffer = self.copied(access, tile)
            self.shared[op.result] = Shared(buffer, tile.dims, tile.clean)
            return
        if self._goes_to_registers(op):
            tile = self.tile_of(access, None)
            if tile.boxes == tuple(self.share.sizes[d] for d in tile.dims) and tile.dims == self._in_order(tile.dims):
                at = f"{tile.array.name}_ref.at[{', '.join(tile.index)}]"
                self.env[op.result] = Expr(
                    f"plgpu.load({at}, (), layout={self.dimensions.layout(tile.dims)}, optimized=False)", tile.dims
                )
                return
        super().load(op)

    def start_ahead(self, body: Block) -> None:
        """Start a turn's copies for contractions together, as it begins; each is waited for where it is used."""
        for op in body.ops:
            if op.kind == "load" and op.result in self.plan.demand.live and self._stays(op):
                access = self.plan.accesses[op]
                if not self._opaques(access):
                    tile = self.tile_of(access, None)
                    self.started[op] = (tile, *self.start_copy(access, tile))

    def _in_order(self, dims: tuple[Var, ...]) -> tuple[Var, ...]:
        return self.dimensions.union([Expr("", dims)])

    def _goes_to_registers(self, op: Op) -> bool:
        """Whether a load is of fp32 that only contractions look at: it is taken apart at once, so it is not copied."""
        access, element = self.plan.accesses[op], op.result.type.element
        mask = [c for c in access.mask if not self.clipped(access, c)]
        wide = element.is_floating() and element.primitive_bitwidth == 32
        return wide and not mask and self._only_multiplied(op.result) and len(self.tile_dims(op)) == 2

    def _stays(self, op: Op) -> bool:
        element = op.result.type.element
        mask = [c for c in self.plan.accesses[op].mask if not self.clipped(self.plan.accesses[op], c)]
        return (
            not mask
            and len(op.result.shape) == 2
            and element.is_floating()
            and element.primitive_bitwidth == 16
            and self._only_multiplied(op.result)
            and len(self.tile_dims(op)) == 2
        )

    def tile_dims(self, op: Op) -> tuple[Var, ...]:
        """The tile variables of a load."""
        return tuple(d for d in self.plan.axes(op.result) if d is not None and d in self.share.sizes)

    def _only_multiplied(self, value: Value) -> bool:
        users = self.plan.demand.users.get(value, [])
        for user in users:
            if user.kind in TRANSPARENT and user.kind != "splat":
                if not self._only_multiplied(user.result):
                    return False
            elif user.kind != "dot" or value not in user.operands[:2]:
                return False
        return bool(users)

    def _source(self, value: Value) -> Value:
        op = value.producer
        while op is not None and op.kind in TRANSPARENT and op.kind != "splat" and value not in self.shared:
            value = op.operands[0]
            op = value.producer
        return value

    def _operand(self, value: Value, dims: tuple[Var, Var], gone: Var, op: Op) -> list[str]:
        """A dot's operand in shared memory, as source: one array, or the parts of fp32."""
        element = value.type.element
        if (self._source(value), dims) in self.staged:
            return self.staged[self._source(value), dims]
        found = self.shared.get(self._source(value))
        padded = self.share.sizes[gone] > (gone.count or 1) and gone not in self.share.pipes
        if found is not None and (found.clean or not padded) and element.primitive_bitwidth == 16:
            if set(found.dims) != set(dims):
                raise self._no_dot(op, "an operand of other dimensions")
            return [found.buffer if found.dims == dims else f"plgpu.transpose_ref({found.buffer}, (1, 0))"]
        if not element.is_floating() or element.primitive_bitwidth not in (16, 32):
            raise self._no_dot(op, f"{element} operands")
        expr = self.from_shared(found.buffer, found.dims) if found is not None else self.value(value)
        order = self.dimensions.union([Expr("", dims)])
        code = self.spread(expr, order, element.numpy_name)
        if padded:
            bound = self.assign("operand", Expr(code, order), op)
            inside = self.dimensions.resolve(Expr(self.dimensions.counter(gone), order), order)
            code = f"jnp.where({inside} < {gone.count}, {bound.code}, 0)"
        hint = value.name or "operand"
        if element.primitive_bitwidth == 16:
            return [self._staged(hint, code, order, dims, element.numpy_name, op)]
        if "bf16_parts" not in self.helpers:
            self.helpers["bf16_parts"] = None
        names = [self.fresh(f"{hint}_{part}") for part in ("high", "middle", "low")]
        self.put(f"{', '.join(names)} = bf16_parts({code})", op)
        return [self._staged(name, name, order, dims, "bfloat16", op) for name in names]

    def _helper(self, name: str) -> str:
        return _SPLIT if name == "bf16_parts" else super()._helper(name)

    def _staged(
        self, hint: str, code: str, order: Sequence[Var], dims: tuple[Var, Var], dtype_name: str, op: Op
    ) -> str:
        """Write a value to shared memory; the array as source, in the wanted order of dimensions."""
        shape = tuple(self.share.sizes[d] for d in order)
        free = (b for b, s in self.memory.staging.items() if s == (shape, dtype_name) and b not in self._taken)
        buffer = next(free, None) or self.buffer(f"{hint}_smem", order, dtype_name)
        self.memory.staging[buffer] = (shape, dtype_name)
        self._taken.add(buffer)
        self.put(f"{buffer}[...] = {code}", op)
        return buffer if tuple(order) == dims else f"plgpu.transpose_ref({buffer}, (1, 0))"

    def _no_dot(self, op: Op, what: str) -> Diagnostic:
        return error(
            "gpu-dot-operands",
            f"tl.dot with {what} on a GPU",
            where=op.where,
            why=f"`{self.chip.matmul}` multiplies 16-bit floats here, and fp32 in three parts",
            do="convert the operands to tl.bfloat16 or tl.float16 first",
        )

    # -- products

    def contract(self, op: Op, also: Sequence[Var]) -> Expr:
        """The product of a dot's operands."""
        a_value, b_value, _ = op.operands
        rank = len(a_value.shape)
        if rank != 2:
            raise self._no_dot(op, f"{rank} dimensions")
        (a_rows, gone), (other, b_columns) = self.plan.axes(a_value), self.plan.axes(b_value)
        m, n = self.plan.axes(op.result)
        if a_rows is None or b_columns is None or gone is None or other is None or m is None or n is None:
            raise self._no_dot(op, "an operand with a dimension of one element")
        size = self.share.sizes
        pairs = ((a_rows, m), (b_columns, n), (gone, other))
        if any(x is not y and size.get(x) != size.get(y) for x, y in pairs):  # dimensions under two names
            raise self._no_dot(op, "operands whose tiles are of other sizes under each other's names")
        kind = op.result.type.element
        begin = len(self.lines)
        self._taken = {b.partition("(")[2].partition(",")[0] or b for names in self.staged.values() for b in names}
        left = self._operand(a_value, (a_rows, gone), gone, op)
        right = self._operand(b_value, (other, b_columns), other, op)
        dims = (m, n)
        if any("_smem[...] =" in line for line in self.lines[begin:]):
            self.put("plgpu.commit_smem()")
        products = [(left[i], right[j]) for i, j in _PRODUCTS if i < len(left) and j < len(right)]
        name = self.accumulated(products, dims, op) if gone in self.share.pipes else self.multiplied(products, dims, op)
        code = name if kind.numpy_name == "float32" else f"{name}.astype(jnp.{kind.numpy_name})"
        return Expr(code, dims)

    def stage_ahead(self, body: Block) -> None:
        """Put operands that no turn of a loop changes into shared memory before it."""
        inside = {r for o in walk(body) for r in o.results} | set(body.args)
        begin = len(self.lines)
        for op in walk(body):
            if op.kind != "dot" or op.result not in self.plan.demand.live or len(op.operands[0].shape) != 2:
                continue
            for value, at in ((op.operands[0], 1), (op.operands[1], 0)):
                first, last = self.plan.axes(value)
                if first is None or last is None:
                    continue
                dims, gone = (first, last), (first, last)[at]
                source = self._source(value)
                if gone in self.share.pipes or source in inside or (source, dims) in self.staged:
                    continue
                names = self._operand(value, dims, gone, op)
                if source not in self.shared:
                    self.staged[source, dims] = names
                    self._taken |= {b.partition("(")[2].partition(",")[0] or b for b in names}
        if any("_smem[...] =" in line for line in self.lines[begin:]):
            self.put("plgpu.commit_smem()")

    def multiplied(self, products: Sequence[tuple[str, str]], dims: tuple[Var, Var], op: Op) -> str:
        """One product, finished before the next statement; its name."""
        shape, name = self.dimensions.shape(dims), self.fresh("product")
        self.dimensions.tiles.add(name)
        if self.chip.matmul == "wgmma":
            step = self.fresh("multiply")
            self.put(f"def {step}(acc):", op)
            for a, b in products:
                self.put(f"    plgpu.wgmma(acc, {a}, {b})")
            self.put("    return acc[...]")
            self.put(f"{name} = pl.run_scoped({step}, plgpu.ACC({shape}, jnp.float32))", op)
            return name
        tmem, done = self.fresh("product_tmem"), self.fresh("multiplied")
        self.memory.others[tmem] = f"plgpu.TMEM({shape}, jnp.float32)"
        self.memory.others[done] = "plgpu.Barrier(orders_tensor_core=True)"
        for i, (a, b) in enumerate(products):
            barrier = f", barrier={done}" if i == len(products) - 1 else ""
            self.put(f"plgpu.tcgen05_mma({tmem}, {a}, {b}{barrier}, accumulate={i > 0})", op)
        self.put(f"plgpu.barrier_wait({done})")
        self.put(f"{name} = plgpu.async_load_tmem({tmem}, layout=LAYOUT)")
        self.put("plgpu.wait_load_tmem()")
        return name

    def accumulated(self, products: Sequence[tuple[str, str]], dims: tuple[Var, Var], op: Op) -> str:
        """The products of one step of a pipeline, added to what `pipelined` declared."""
        raise NotImplementedError
