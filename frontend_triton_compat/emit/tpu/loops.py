"""Loops on a TPU: an accumulating one is the last, "arbitrary" grid axis; one that carries values runs inside a step.

Input: loops of the IR. Output: statements. Law: on the grid, accumulators live in VMEM scratch and start before any
block is read; inside a step, carried values are values, of two dimensions at least, and what the loop sweeps lies in
one block. A short loop is written out by a Python loop, so that its turns overlap; a long one is a `fori_loop` over
aligned chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.affine import Loop
from frontend_triton_compat.emit.expr import Expr, align, tight, tuple_of, union
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.facing import Facing
from frontend_triton_compat.emit.tpu.operands import sublanes
from frontend_triton_compat.emit.tpu.outside import Part, Spec, Sweep
from frontend_triton_compat.emit.tpu.trips import clamped, counts
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.schedule import Fold, Schedule

#: Turns up to which a loop is written out.
_WRITTEN_OUT = 16
#: Most turns that are written out because their steps are no multiples of a tile.
_LONGEST = 64


@dataclass(frozen=True)
class Turn:
    """How a loop inside a grid step is written: `group` turns by a Python loop, the groups by a `fori_loop`.

    Attributes:
        name: the counter; inside its group where there are several.
        trips: how often the loop runs.
        group: how many turns are written out; all of them: there is no `fori_loop`.
        group_name: the counter of groups.
        count: source of the number of groups, where it is not known before.
    """

    name: str
    trips: int
    group: int
    group_name: str = ""
    count: str | None = None

    @property
    def grouped(self) -> bool:
        """Whether there is a `fori_loop`."""
        return bool(self.group_name)


class Loops(Facing):
    """Statements of loops."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan, blocks)
        self.turns: dict[Var, Turn] = {}
        for var in blocks.grid:
            if blocks.single(var):
                self.counters[var] = f"pl.program_id({blocks.grid.index(var)})"

    # -- loops inside a grid step

    def serial(self, op: Op) -> None:
        """A loop that carries values: written out where it is short, else a `fori_loop`."""
        loop = self.plan.affine.loops[op]
        data = self.carried(op, op.regions[0].args[1:], op.operands[3:], op.regions[0])
        if loop.trips is None:
            raise _unknown_trips(op)
        trips = int(loop.trips.max())  # a block's programs run it together, those that are done keep their values
        if trips <= 0:
            for i, _, init in data:
                self.env[op.results[i]] = self.value(init)
            return
        bounds = None if loop.uniform else self._bounds(op)
        turn = self._turn(op, loop.var, trips)
        if bounds is not None:
            turn, bounds = self._own_turns(op, loop, turn, bounds)
        self.turns[loop.var] = turn
        self.counters[loop.var] = turn.name
        self._inside(op, turn, data, bounds)
        del self.turns[loop.var]

    def _turn(self, op: Op, var: Var, trips: int) -> Turn:
        """How a loop is written."""
        name = self.fresh(var.name)
        if trips <= _WRITTEN_OUT:
            return Turn(name, trips, trips)
        units = self._units(op, var)
        fits = (k for k in range(1, trips + 1) if trips % k == 0 and not any(step * k % unit for step, unit in units))
        group = next(fits, trips)
        if group > _LONGEST:
            raise error(
                "tpu-unaligned-slice",
                f"this loop steps through a tensor by a distance that no tile has, {trips} times",
                where=op.where,
                why="a slice of VMEM that moves at run time starts at a multiple of 128 lanes and of 8 rows",
                do="make the loop's step a multiple of 128 elements",
            )
        if group == trips:
            return Turn(name, trips, trips)
        return Turn(name, trips, group, self.fresh(f"{var.name}_group") if group > 1 else self.fresh(var.name))

    def _own_turns(
        self, op: Op, loop: Loop, turn: Turn, bounds: tuple[Expr, Expr, Expr]
    ) -> tuple[Turn, tuple[Expr, Expr, Expr] | None]:
        """A loop whose count differs by program runs as often as the grid step's programs need.

        Returns:
            How it is written, and the bounds that say which programs still run it; None where all of a step do.
        """
        assert loop.trips is not None
        if any(step % unit for step, unit in self._units(op, loop.var)):
            return turn, bounds
        name = turn.group_name or turn.name
        found = counts(self.plan, self.blocks, loop.trips)
        if found is not None:
            most, same, axis = found
            mask = None if same else bounds
            if most.min() == most.max():
                return turn, mask
            text = clamped(most, f"pl.program_id({axis})")
            if text is not None:
                count = self.assign("trips", Expr(text), op)
                return Turn(turn.name, turn.trips, 1, name, count.code), mask
        if any(b.vars for b in bounds):
            return turn, bounds
        return Turn(turn.name, turn.trips, 1, name, self.assign("trips", self._trips(op), op).code), None

    def _units(self, op: Op, var: Var) -> list[tuple[int, int]]:
        """Of every dimension that a loop moves over in the last two of an array: (step, elements of a tile)."""
        out = []
        for access in self.plan.accesses.values():
            window = self.plan.windows[access.op]
            if op not in access.path or window is None:
                continue
            for i, piece in enumerate(window.slices):
                behind = len(window.slices) - 1 - i
                if var in piece.steps and behind < 2:
                    out.append((piece.steps[var], 128 if behind == 0 else sublanes(access)))
        return out

    def _inside(
        self, op: Op, turn: Turn, data: list[tuple[int, Value, Value]], bounds: tuple[Expr, Expr, Expr] | None
    ) -> None:
        """Write a loop; the carry's dimensions are found by writing the body again."""
        body, results = op.regions[0], op.results
        inits = {arg: self.value(init) for _, arg, init in data}
        dims = {arg: self._upright(inits[arg].dims) for _, arg, _ in data}
        while True:
            saved = self._snapshot()
            names = {arg: self.fresh(arg.name or "carried") for _, arg, _ in data}
            carry = tuple_of(list(names.values())) if names else ""
            plain = carry.strip("()") if len(names) > 1 else carry.strip("(),")
            starts = [self._carry(inits[arg], dims[arg], arg) for arg in names]
            call = ""
            if turn.grouped:
                step = self.fresh(f"{turn.name}_step")
                self.put(f"def {step}({turn.group_name}, carry):", op)
                self.indent += 1
                if names:
                    self.put(f"{carry} = carry")
                n = turn.trips // turn.group if turn.count is None else turn.count
                call = f"lax.fori_loop(0, {n}, {step}, {tuple_of(starts) if starts else '()'})"
            elif names:
                for name, start in zip(names.values(), starts):
                    self.put(f"{name} = {start}", op)
            if not turn.grouped or turn.group > 1:
                self.put(f"for {turn.name} in range({turn.group}):", op)
                self.indent += 1
            for arg, name in names.items():
                self.env[arg] = self._carried_value(name, dims[arg], arg)
            if bounds is not None:
                self.active[op] = self._still_running(
                    op, self._counter(self.plan.affine.loops[op].var, "int32"), bounds
                )
            self.block(body)
            finals: list[Expr] = []
            for i, arg, _ in data:
                new = self.value(body.yields[i])
                if op in self.active:
                    new = self.masked(self.active[op], new, self.env[arg], self._dtype_name(arg))
                finals.append(new)
            wanted = {
                arg: self._upright(self._carry_dims(dims[arg], final.dims)) for (_, arg, _), final in zip(data, finals)
            }
            if wanted == dims:
                break
            self._restore(saved)
            dims = wanted
        texts = [self._carry(final, dims[arg], arg) for arg, final in zip(names, finals)]
        if names:
            self.put(f"{plain} = {', '.join(texts)}")
        if not (turn.grouped and turn.group == 1):
            self.indent -= 1
        if turn.grouped:
            self.put(f"return {carry or '()'}")
            self.indent -= 1
            outs = [self.fresh(results[i].name or arg.name or "carried") for i, arg, _ in data]
            self.put(f"{', '.join(outs) + (',' if len(outs) == 1 else '')} = {call}" if outs else call, op)
        else:
            outs = list(names.values())
        self._leave(op, body)
        for name, (i, arg, _) in zip(outs, data):
            self.env[results[i]] = self._carried_value(name, dims[arg], arg)

    def _upright(self, dims: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        """Carried dimensions as vector registers want them: two at least; rows are columns of one lane."""
        if len(dims) != 1 or dims[0] is None:
            return dims
        return (dims[0], None) if self.upright(dims[0]) else (None, dims[0])

    def _carry(self, expr: Expr, dims: tuple[Var | None, ...], arg: Value) -> str:
        """A value as the loop carries it."""
        text = self.shaped(expr, dims, arg)
        return f"{tight(text)}.astype(jnp.int32)" if self._carried_bool(dims, arg) else text

    def _carried_value(self, name: str, dims: tuple[Var | None, ...], arg: Value) -> Expr:
        return Expr(f"({name} != 0)" if self._carried_bool(dims, arg) else name, dims)

    def _carried_bool(self, dims: tuple[Var | None, ...], arg: Value) -> bool:
        return arg.type.element.is_bool()

    def _counter(self, var: Var, dtype_name: str) -> Expr:
        turn = self.turns.get(var)
        if self.blocks.single(var) and dtype_name == "int32":
            return Expr(self.counters[var])
        if turn is None:
            return super()._counter(var, dtype_name)
        if not turn.grouped:
            return Expr(f"jnp.{dtype_name}({turn.name})")
        if turn.group == 1:
            return Expr(turn.group_name if dtype_name == "int32" else f"{turn.group_name}.astype(jnp.{dtype_name})")
        whole = f"({turn.group_name} * {turn.group} + {turn.name})"
        return Expr(whole if dtype_name == "int32" else f"{whole}.astype(jnp.{dtype_name})")

    def part(self, spec: Spec) -> str:
        """The part of a block that an access touches, as an index: aligned steps of loops first, then what is known."""
        outer, inner = [], []
        sizes = [n for n in spec.block if n is not None]
        for i, (part, size) in enumerate(zip(spec.inner, sizes)):
            unit = 1 if i < len(sizes) - 2 else 8 if i == len(sizes) - 2 else 128
            o, n = self._part(part, size, unit)
            outer.append(o)
            inner.append(n)
        moved = "" if all(o == ":" for o in outer) else f".at[{', '.join(outer)}]"
        index = "..." if all(n == ":" for n in inner) else ", ".join(inner)
        if moved and index == "...":
            return f"[{', '.join(outer)}]"
        return f"{moved}[{index}]"

    def _part(self, part: Part, size: int, unit: int) -> tuple[str, str]:
        if part is None:
            return ":", ":"
        if not isinstance(part, Sweep):
            return ":", f"{part[0]}:{part[1]}"
        known, moving, base, span = [], [], part.start, part.size
        for var, step in part.steps:
            turn = self.turns[var]
            if not turn.grouped:
                known.append((turn.name, step))
                continue
            moving.append((turn.group_name, step * turn.group))
            if turn.group > 1:
                known.append((turn.name, step))
                span += abs(step) * (turn.group - 1)
                base -= max(0, -step) * (turn.group - 1)
        if not moving:
            return ":", f"pl.ds({_sum(part.start, known)}, {part.size})"
        start = _sum(base, moving)
        divisor = math.gcd(base, *(step for _, step in moving))
        if divisor > 1:
            start = f"pl.multiple_of({start}, {divisor})"
        if not known:
            return f"pl.ds({start}, {span})", ":"
        inside = _sum(part.start - base, known)
        return f"pl.ds({start}, {span})", f"pl.ds({inside}, {part.size})"

    # -- the grid's loop

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


def _sum(start: int, terms: Sequence[tuple[str, int]]) -> str:
    """``start + sum(step * name)`` as source."""
    text = str(start) if start or not terms else ""
    for name, step in terms:
        term = name if abs(step) == 1 else f"{name} * {abs(step)}"
        sign = "-" if step < 0 else "+"
        text = f"{text} {sign} {term}" if text else (f"-{term}" if step < 0 else term)
    return text


def _unknown_trips(op: Op) -> Diagnostic:
    return error(
        "tpu-not-translated",
        "how often this loop runs is known only while the kernel runs",
        where=op.where,
        why="the blocks that a grid step gets are fixed before it starts, and the loop decides how far it reads",
        do="bound the loop by an argument or a program id, and mask what is past the end",
    )
