"""The TPU dialect: a grid of blocks that Pallas pipelines from HBM to VMEM.

Input: a `Schedule` and its `Blocks`. Output: a `Module` whose entry takes arrays of the views' shapes. Law: every
access is one BlockSpec; an accumulating loop is the last, "arbitrary" grid axis with its accumulators in VMEM scratch;
lanes past a ragged edge never reach a contraction or a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.access import Slice
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.blocks import Blocks, choose
from frontend_triton_compat.emit.expr import Expr, align, shape_of, union
from frontend_triton_compat.emit.module import Module, Operand, Result
from frontend_triton_compat.emit.program import Emitter
from frontend_triton_compat.emit.refusals import atomic_refused, combine_refused, order_refused, untiled
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Fold, Schedule
from frontend_triton_compat.types import dtype
from pallas_core.targets.tpu import CHIPS


@dataclass(frozen=True)
class Spec:
    """One operand or result of the kernel.

    Attributes:
        ref: its name in the kernel.
        param: the parameter it is a window of.
        block: sizes of the block.
        index: per dimension, the grid variable that picks the block, or a number.
        inner: per dimension, the slice of the block that is used; None for all of it.
    """

    ref: str
    param: str
    block: tuple[int, ...]
    index: tuple[Var | int, ...]
    inner: tuple[tuple[int, int] | None, ...]


class TpuEmitter(Emitter):
    """Statements over blocks."""

    target = "tpu"
    wide_int = "int32"

    def __init__(self, plan: Schedule, blocks: Blocks, vmem_limit: int):
        super().__init__(plan)
        self.blocks, self.vmem_limit = blocks, vmem_limit
        self.inputs: list[Spec] = []
        self.outputs: dict[str, Spec] = {}
        self.scalars: dict[str, None] = {}
        self.scratch: list[tuple[str, tuple[Var | None, ...], str]] = []
        self.pieces: dict[str, list[tuple[tuple[tuple[int, int] | None, ...], Op]]] = {}

    # -- hooks

    def extent(self, var: Var) -> int:
        """A block's share of a variable."""
        return self.blocks.sizes.get(var) or super().extent(var)

    def iota(self, var: Var, dtype_name: str) -> Expr:
        """A counter along lanes, moved by the grid step."""
        n = self.extent(var)
        code = f"lax.broadcasted_iota(jnp.{dtype_name}, (1, {n}), 1)"
        if var in self.blocks.grid and self.blocks.steps(var) > 1:
            code = f"{code} + pl.program_id({self.blocks.grid.index(var)}) * {n}"
        return Expr(code, (None, var))

    def refuse(self, op: Op) -> Diagnostic:
        """Atomics, and whatever else a TPU's core does not do."""
        if op.kind == "atomic":
            return atomic_refused(op, "tpu")
        return error("tpu-not-translated", f"{op.kind} is not translated for a TPU", where=op.where)

    def dot_precision(self, op: Op) -> str:
        """fp32 operands: full precision, as the CPU gives it."""
        if op.operands[0].type.element.primitive_bitwidth == 32 and op.operands[0].type.element.is_floating():
            return ", precision=lax.Precision.HIGHEST"
        return ""

    def arg_(self, op: Op) -> Expr:
        """A float argument, from SMEM."""
        self.scalars[op["name"]] = None
        return Expr(f"{op['name']}_ref[0]")

    def each(self, op: Op) -> None:
        """Scalar functions of the kernel's author."""
        raise combine_refused(op)

    reduce_by = scan_by = each

    def serial(self, op: Op) -> None:
        """Loops that carry state across tiles."""
        raise error(
            "tpu-not-translated",
            "this loop carries values from one iteration to the next",
            where=op.where,
            why="only accumulating loops (a sum or a dot) become a grid axis of the TPU kernel yet",
            do="accumulate with `acc += ...` or `acc = tl.dot(a, b, acc)`, or run the kernel on the CPU",
        )

    def while_(self, op: Op) -> None:
        """Run-time loops."""
        raise error(
            "tpu-not-translated",
            "a while loop is not translated for a TPU yet",
            where=op.where,
            why="only accumulating loops (a sum or a dot) become a grid axis of the TPU kernel yet",
            do="write it as `for` over a known number of steps, or run the kernel on the CPU",
        )

    # -- blocks

    def _spec(self, access: Access, ref: str) -> tuple[Spec, tuple[Var | None, ...]]:
        """The BlockSpec of an access, and the variables of its dimensions."""
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        assert window is not None
        block, index, inner, dims = [], [], [], []
        for i, (piece, size) in enumerate(zip(window.slices, view.shape)):
            if i == 0:
                piece = Slice(piece.start - view.origin // view.strides[0], piece.steps, piece.opaques)
            if len(piece.steps) > 1 or any(step != 1 for step in piece.steps.values()):
                raise untiled(access.op, access.param)
            if not piece.steps:
                block.append(size)
                index.append(0)
                inner.append((piece.start, piece.start + 1))
                dims.append(None)
                continue
            (var,) = piece.steps
            n = self.blocks.sizes.get(var)
            if n is None or n >= (var.count or 1):  # taken whole
                count = var.count or 1
                block.append(size)
                index.append(0)
                inner.append(None if (piece.start, count) == (0, size) else (piece.start, piece.start + count))
            elif piece.start == 0 and (size == var.count or access.op.kind == "load"):
                block.append(n)
                index.append(var)
                inner.append(None)
            else:
                raise untiled(access.op, access.param)
            dims.append(var)
        return Spec(ref, access.param, tuple(block), tuple(index), tuple(inner)), tuple(dims)

    def read(self, access: Access) -> Expr:
        """A block of an input."""
        if access.param in self.plan.written:
            stores = [a for a in self.plan.accesses.values() if a.param == access.param and a.op.kind != "load"]
            if any(a.order < access.order for a in stores):
                raise error(
                    "tpu-not-translated",
                    f"{access.param!r} is read again after it was stored to",
                    where=access.op.where,
                    why="the block that was written is on its way to HBM, the one that is read is the old one",
                    do="keep the stored value in a variable and use that",
                )
        spec, dims = self._spec(access, "")
        found = next(
            (s for s in self.inputs if (s.param, s.block, s.index) == (spec.param, spec.block, spec.index)), None
        )
        if found is None:
            ref = f"{access.param}_ref"
            taken = {s.ref for s in self.inputs}
            count = 1
            while ref in taken:
                count += 1
                ref = f"{access.param}_{count}_ref"
            found = Spec(ref, spec.param, spec.block, spec.index, spec.inner)
            self.inputs.append(found)
        expr = Expr(f"{found.ref}[{_inside(spec.inner)}]", dims)
        return self._without_ragged_edge(expr, access)

    def _without_ragged_edge(self, expr: Expr, access: Access) -> Expr:
        """The last step of a contracted axis reads past the array: zeros there, on every operand."""
        fold = self.blocks.fold
        if fold is None:
            return expr
        k = self.plan.top(fold.loop.var)
        if k not in expr.dims or (k.count or 1) % self.blocks.sizes[k] == 0:
            return expr
        at = expr.dims.index(k)
        shape = shape_of(expr.dims, self.extent)
        axis = self.blocks.grid.index(k)
        left = f"{k.count} - pl.program_id({axis}) * {self.blocks.sizes[k]}"
        zero = "False" if expr.code.startswith("~") else "0"
        code = f"jnp.where(lax.broadcasted_iota(jnp.int32, {shape}, {at}) < {left}, {expr.code}, {zero})"
        return Expr(code, expr.dims, None, expr.fills)

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """A block of an output."""
        op = access.op
        if mask is not None and mask.code != "True":
            raise error(
                "tpu-not-translated",
                f"the store to {access.param!r} keeps a mask",
                where=op.where,
                why="a block goes back to HBM whole; which of its elements the mask lets through is known at run time",
                do="make the mask the edge of the tensor (offsets < size), or store tl.where(mask, new, old)",
            )
        spec, dims = self._spec(access, f"{access.param}_out")
        known = self.outputs.setdefault(access.param, spec)
        if (known.block, known.index) != (spec.block, spec.index):
            raise error(
                "tpu-not-translated",
                f"{access.param!r} is stored to through different blocks",
                where=op.where,
                why="an output has one block a grid step, and the whole of it is written back",
                do="give every store to the tensor the same program and the same rows",
            )
        self.pieces.setdefault(access.param, []).append((spec.inner, op))
        element = op.operands[0].type.element.element_ty  # type: ignore[union-attr]
        target = tuple(d for d in dims)
        name = element.numpy_name
        if value.literal is not None and not value.dims:
            code = f"jnp.full({shape_of(target, self.extent)}, {value.code}, jnp.{name})"
        elif set(value.vars) == set(d for d in target if d):
            code = align(value, target)
            if len(value.dims) > len(target):
                code = align(self._plain(value), target)
        else:
            code = f"jnp.broadcast_to({align(value, target)}, {shape_of(target, self.extent)})"
        self.put(f"{known.ref}[{_inside(spec.inner)}] = {code}", op)

    def _check_pieces(self) -> None:
        """Stores to parts of a block must cover it together: what they leave out would go back to HBM as rubbish."""
        for param, pieces in self.pieces.items():
            block = self.outputs[param].block
            split = {i for inner, _ in pieces for i, part in enumerate(inner) if part is not None}
            covered = not split
            if len(split) == 1:
                (axis,) = split
                reached = 0
                for lo, hi in sorted(inner[axis] or (0, block[axis]) for inner, _ in pieces):
                    reached = max(reached, hi) if lo <= reached else reached
                covered = reached == block[axis]
            if not covered:
                raise error(
                    "tpu-not-translated",
                    f"the stores to {param!r} leave out part of its block {block}",
                    where=pieces[0][1].where,
                    why="the whole of an output's block goes back to HBM, its unwritten part as rubbish",
                    do="store whole rows; read the old values first where they should stay",
                )

    # -- the accumulating loop as the last grid axis

    def for_(self, op: Op) -> None:
        """The loop on the grid is written in three phases; others as on every target."""
        fold = self.blocks.fold
        if fold is None or fold.loop.op is not op:
            super().for_(op)
            return
        axis = len(self.blocks.grid) - 1
        saved = self._snapshot()
        shapes = [term.dims for _, term in self._terms(op, fold)]
        self._restore(saved)  # written once for its dimensions: the accumulators start before any block is read,
        refs = self._start(op, fold, axis, shapes)  # so that no block has to survive the branch in registers
        for (i, term), (ref, dims) in zip(self._terms(op, fold), refs):
            arg = op.regions[0].args[1 + i]
            fn, adder = fold.sums[arg]
            if fn == "sum":
                self.put(f"{ref}[...] += {align(term, dims)}", adder)
            else:
                result = op.results[i].type
                both = self.apply(adder["fn"], [Expr(f"{ref}[...]", dims), term], result.element, result, op)
                self.put(f"{ref}[...] = {both.code}", adder)
        self.put(f"@pl.when(pl.program_id({axis}) == pl.num_programs({axis}) - 1)")
        self.put(f"def {self.fresh('finish')}():")
        self.indent += 1
        for i, (ref, dims) in zip(self._live_sums(op, fold), refs):
            result = op.results[i]
            self.env[result] = self.assign(result.name or "acc", Expr(f"{ref}[...]", dims), op)

    def _live_sums(self, op: Op, fold: Fold) -> list[int]:
        """Positions of the carried values that accumulate and are looked at."""
        args = op.regions[0].args[1:]
        return [i for i, arg in enumerate(args) if arg in fold.sums and arg in self.plan.demand.live]

    def _terms(self, op: Op, fold: Fold) -> list[tuple[int, Expr]]:
        """Write the loop's body for one grid step; what it adds to every accumulator."""
        body = op.regions[0]
        for inner in body.ops:
            if inner not in fold.absorbed:
                self.op(inner)
        out = []
        for i in self._live_sums(op, fold):
            arg = body.args[1 + i]
            fn, adder = fold.sums[arg]
            out.append((i, self._accumulated(adder, arg, fn, fold.loop.var, bind=False)))
        return out

    def _start(
        self, op: Op, fold: Fold, axis: int, shapes: Sequence[tuple[Var | None, ...]]
    ) -> list[tuple[str, tuple[Var | None, ...]]]:
        """Declare the accumulators and set them on the first step."""
        refs = []
        lines = []
        for i, shape in zip(self._live_sums(op, fold), shapes):
            arg, init = op.regions[0].args[1 + i], self.value(op.operands[3 + i])
            dims = union([Expr("", shape), Expr("", init.dims)]) if init.dims else shape
            ref = self.fresh(f"{arg.name or 'acc'}_ref")
            self.scratch.append((ref, dims, op.results[i].type.element.numpy_name))
            lines.append(f"    {ref}[...] = {self.shaped(init, dims, op.operands[3 + i])}")
            refs.append((ref, dims))
        self.put(f"@pl.when(pl.program_id({axis}) == 0)", op)
        self.put(f"def {self.fresh('start')}():")
        for line in lines:
            self.put(line)
        return refs

    # -- the module

    def module(self) -> Module:
        """Emit the kernel and the function that calls it."""
        plan, grid = self.plan, self.blocks.grid
        for op in plan.kernel.body.ops:
            if op.kind == "arg" and not op.result.type.is_pointer and op.result in plan.demand.live:
                self.env[op.result] = self.assign(op["name"], self.arg_(op), op)
        for op in plan.kernel.body.ops:
            if op.kind != "arg":
                self._check_types(op)
                self.op(op)
        self._check_pieces()
        name = plan.kernel.name
        reads = [s for s in self.inputs if any(s.ref in line for line in self.lines)]
        written = [p for p in plan.written if p in self.outputs]
        scalars = list(self.scalars)
        arrays = list(dict.fromkeys(s.param for s in reads))
        refs = [s.ref for s in reads] + [f"{s}_ref" for s in scalars]
        outs = [self.outputs[p].ref for p in written]
        scratch = [ref for ref, _, _ in self.scratch]
        text = [
            f'"""`{name}` for a TPU, written from {self.origin()}."""',
            "",
            "import jax",
            "import jax.numpy as jnp",
            "from jax import lax",
            "from jax.experimental import pallas as pl",
            "from jax.experimental.pallas import tpu as pltpu",
            *(line for helper in self.helper_text() for line in ("", helper)),
            "",
            "",
            f"def {name}_kernel({', '.join([*refs, *outs, *scratch])}):",
            *(self.lines or ["    pass"]),
            "",
            "",
            f"def {name}({', '.join([*arrays, *scalars])}{', ' if arrays or scalars else ''}interpret=False):",
        ]
        letters = [self._letter(v, i) for i, v in enumerate(grid)]
        specs = [self._block_spec(s, letters) for s in reads]
        specs += ["pl.BlockSpec(memory_space=pltpu.SMEM)"] * len(scalars)
        shapes = [f"jax.ShapeDtypeStruct({plan.views[p].shape}, jnp.{self._element(p)})" for p in written]
        semantics = ["parallel"] * len(grid)
        if self.blocks.fold is not None:
            semantics[-1] = "arbitrary"
        steps = ", ".join(str(self.blocks.steps(v)) for v in grid)
        axes = ", ".join(f"{v.name} by {self.extent(v)}" for v in grid)
        call = [
            "    results = pl.pallas_call(",
            f"        {name}_kernel,",
            f"        grid=({steps}{',' if len(grid) == 1 else ''}),  # {axes}",
            "        in_specs=[",
            *(f"            {s}," for s in specs),
            "        ],",
            "        out_specs=[",
            *(f"            {self._block_spec(self.outputs[p], letters)}," for p in written),
            "        ],",
            "        out_shape=[",
            *(f"            {s}," for s in shapes),
            "        ],",
        ]
        if self.scratch:
            rows = [f"pltpu.VMEM({shape_of(dims, self.extent)}, jnp.{dt})" for _, dims, dt in self.scratch]
            call.append(f"        scratch_shapes=[{', '.join(rows)}],")
        if grid:
            call.append(
                f"        compiler_params=pltpu.CompilerParams(\n"
                f"            dimension_semantics={tuple(semantics)}, vmem_limit_bytes={self.vmem_limit}\n        ),"
            )
        call += [
            f"        name={name!r},",
            "        interpret=interpret,",
            f"    )({', '.join([*(s.param for s in reads), *scalars])})",
        ]
        text += call
        text.append("    return tuple(results)")
        operands = [Operand(p, plan.views[p].shape, plan.views[p].origin) for p in arrays]
        operands += [Operand(s, (1,), scalar=True) for s in scalars]
        results = [
            Result(p, v.shape, v.origin, v.strides, tuple((0, n) for n in v.shape))
            for p, v in ((p, plan.views[p]) for p in written)
        ]
        return Module("\n".join(text) + "\n", name, tuple(operands), tuple(results))

    def _check_types(self, op: Op) -> None:
        for value in op.results:
            element = value.type.element
            live = value in self.plan.demand.live and value not in self.plan.demand.indexed
            if live and isinstance(element, dtype) and element.primitive_bitwidth == 64:
                raise error(
                    "tpu-dtype",
                    f"{element} values on a TPU",
                    where=op.where,
                    why="a TPU core has no 64-bit registers; the compiler refuses every 64-bit value",
                    do="hold the tensor as 32 bits, or convert with .to(tl.int32) before the arithmetic",
                )
        for region in op.regions:
            for inner in region.ops:
                self._check_types(inner)

    def _letter(self, var: Var, i: int) -> str:
        return "ijkl"[i] if i < 4 else f"g{i}"

    def _block_spec(self, spec: Spec, letters: Sequence[str]) -> str:
        grid = self.blocks.grid
        index = [letters[grid.index(v)] if isinstance(v, Var) else str(v) for v in spec.index]
        inside = f"{index[0]}," if len(index) == 1 else ", ".join(index)
        return f"pl.BlockSpec({spec.block}, lambda {', '.join(letters)}: ({inside}))"

    def _element(self, param: str) -> str:
        access = next(a for a in self.plan.accesses.values() if a.param == param)
        return access.op.operands[0].type.element.element_ty.numpy_name  # type: ignore[union-attr]


def _inside(inner: Sequence[tuple[int, int] | None]) -> str:
    """The part of a block that an access touches, as an index."""
    parts = [":" if s is None else f"{s[0]}:{s[1]}" for s in inner]
    return "..." if all(p == ":" for p in parts) else ", ".join(parts)


def emit(plan: Schedule, chip: str) -> Module:
    """The TPU module of a scheduled kernel for one chip (``v5e``, ...)."""
    for op in plan.accesses:
        if op.kind == "atomic":  # whatever its offsets: no block would help
            raise atomic_refused(op, "tpu")
    if plan.ordered:
        raise order_refused(plan, "tpu")
    for view in plan.views.values():
        if view.pad != (0, 0) or view.widened:
            access = next(a for a in plan.accesses.values() if a.param == view.memory.param)
            raise error(
                "access-not-tiled",
                f"the {access.op.kind} on {access.param!r} reaches past the tensor",
                where=access.op.where,
                why="blocks are windows of the array; these offsets go beyond its memory, behind a mask",
                do="pass the tensor with its storage whole, or mask with offsets < size along each dimension",
            )
    # The compiler's default limit is a fraction of what the chip has; an eighth is left to it.
    limit = CHIPS[chip].vmem_bytes // 8 * 7
    return TpuEmitter(plan, choose(plan, chip), limit).module()
