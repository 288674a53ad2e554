"""Loops on a TPU: an accumulating one is the last, "arbitrary" grid axis; others run inside a step (`serial.py`).

Input: loops of the IR. Output: statements; on the grid in three phases (start, every step, finish). Law: accumulators
live in VMEM scratch and start before any block is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from frontend_triton_compat.emit.expr import Expr, align, union
from frontend_triton_compat.emit.tpu.serial import Serial
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Fold


class Loops(Serial):
    """Statements of loops."""

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
