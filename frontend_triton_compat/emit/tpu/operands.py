"""Accesses as operands of the kernel: BlockSpecs, what is read of a block, what is written to one.

Input: accesses with windows, block sizes. Output: `Spec`s and statements. Law: every access is one BlockSpec; lanes
past a ragged edge never reach a contraction or a sum; an output's block is written whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.diagnostics import error
from frontend_triton_compat.access import Slice
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.expr import Expr, align, shape_of
from frontend_triton_compat.emit.program import Emitter
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule


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


class Operands(Emitter):
    """Reads and writes of blocks."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan)
        self.blocks = blocks
        self.inputs: list[Spec] = []
        self.outputs: dict[str, Spec] = {}
        self.scalars: dict[str, None] = {}
        self.scratch: list[tuple[str, tuple[Var | None, ...], str]] = []
        self.pieces: dict[str, list[tuple[tuple[tuple[int, int] | None, ...], Op]]] = {}

    def arg_(self, op: Op) -> Expr:
        """A float argument, from SMEM."""
        self.scalars[op["name"]] = None
        return Expr(f"{op['name']}_ref[0]")

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

    def check_pieces(self) -> None:
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


def _inside(inner: Sequence[tuple[int, int] | None]) -> str:
    """The part of a block that an access touches, as an index."""
    parts = [":" if s is None else f"{s[0]}:{s[1]}" for s in inner]
    return "..." if all(p == ":" for p in parts) else ", ".join(parts)
