"""Loops inside a grid step: values carried from turn to turn, rows and panels of VMEM swept.

Input: `for` and `while` loops of the IR that stay loops. Output: statements. Law: carried values are values, never
scratch, and have two dimensions at least; what a loop sweeps lies in one block. A short loop is written out by a Python
loop, so that its turns overlap; a long one is a `fori_loop` over aligned chunks, some turns of it written out. Turns in
which all conditions hold come first, without them (`stretches.py`). Where steps of the grid run loops differently often
and few turns are run in all, each step has statements of its own, in which the numbers of turns are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontend_triton_compat.demand import Conjunct
from frontend_triton_compat.emit.expr import Expr, tight, tuple_of
from frontend_triton_compat.emit.refusals import run_time_trips
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.facing import Facing
from frontend_triton_compat.emit.tpu.operands import sublanes
from frontend_triton_compat.emit.tpu.outside import Part, Spec, Sweep
from frontend_triton_compat.emit.tpu.stretches import Stretch, Turns, turns_of
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op, Value, walk
from frontend_triton_compat.schedule import Schedule

#: Turns up to which a loop is written out, and elements that all of its turns may compute then.
_WRITTEN_OUT = 16
_ELEMENTS = 5 << 20
#: Most turns that are written out because their steps are no multiples of a tile.
_LONGEST = 64
#: Elements that all turns of all steps may compute where every step has statements of its own, and most such steps.
_BRANCHED = 12 << 20
_BRANCHES = 8
#: Elements of a loop's tiles from which on turns without masks are written apart.
_WORTH_A_STRETCH = 1 << 12

Carried = Sequence[tuple[int, Value, Value]]


@dataclass(frozen=True)
class Turn:
    """The turn of a loop that is being written: ``first + group_name * group + name``.

    Attributes:
        first: source of the first turn's number.
        group: turns that are written out by a Python loop; 1 without one.
        name: the Python loop's counter, or "".
        group_name: the counter of the `fori_loop`, or "".
        aligned: whether its part of a block starts at a tile; where not, its group's does.
        begin: where the Python loop's counter begins.
    """

    first: str
    group: int
    name: str = ""
    group_name: str = ""
    aligned: bool = True
    begin: int = 0

    @property
    def known(self) -> bool:
        """Whether it is a Python number."""
        return not self.group_name and self.first.isdigit()

    def number(self) -> str:
        """Its source."""
        grouped = self.group_name if self.group == 1 or not self.name else f"{self.group_name} * {self.group}"
        terms = [
            t for t in (self.first if self.first != "0" else "", grouped if self.group_name else "", self.name) if t
        ]
        return " + ".join(terms) or "0"


class Serial(Facing):
    """Statements of loops inside a grid step."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan, blocks)
        self.turns: dict[Var, Turn] = {}
        self.assumed: set[Form] = set()  # conditions that hold in the turns that are being written
        self.asked: dict[Form, None] = {}  # conditions that were written
        self.branched = False  # whether a chip's compiler is quick with many turns written out
        self.copies = 1  # how often what is being written is written out
        for var in blocks.grid:
            if blocks.single(var):
                self.counters[var] = f"pl.program_id({blocks.grid.index(var)})"

    # -- which turns there are

    def serial(self, op: Op) -> None:
        """A loop that carries values."""
        loop = self.plan.affine.loops[op]
        if loop.trips is None:
            if any(op in a.path and loop.var in a.form.vars for a in self.plan.accesses.values()):
                raise run_time_trips(op, "tpu")
            super().serial(op)
            return
        data = self.carried(op, op.regions[0].args[1:], op.operands[3:], op.regions[0])
        values = {arg: self.value(init) for _, arg, init in data}
        for stretch in self._stretches(op, data, values):
            values = self._stretch(op, stretch, data, values)
        self.turns.pop(loop.var, None)
        for i, arg, _ in data:
            self.env[op.results[i]] = values[arg]

    def _stretches(self, op: Op, data: Carried, values: Mapping[Value, Expr]) -> list[Stretch]:
        """The turns of a loop, in stretches that are written alike."""
        loop = self.plan.affine.loops[op]
        assert loop.trips is not None
        units, work = self._units(op, loop.var), self._work(op)
        aligned = not any(step % unit for step, unit in units)
        most = int(loop.trips.max())
        turns = turns_of(self.plan, self.blocks, op)
        here = self.at[1] if turns is not None and self.at is not None and turns.axis == self.at[0] else None
        if turns is None or not (aligned or here is not None or turns.known):
            if aligned and not any(b.vars for b in self._bounds(op)):  # one program a grid step: its own turns
                return [Stretch("0", self.assign("trips", self._trips(op), op).code, 1)]
            turns = Turns.of(most, agree=False)
        if most <= 0 or (here is not None and turns.stop[here] <= turns.start[here]):
            return []
        if aligned and work * most >= _WORTH_A_STRETCH and not self.assumed:
            turns = turns.without(self._conditions(op, turns, data, values), loop.var, self.blocks)
        if self.at is not None and turns.axis == self.at[0]:
            turns = turns.at(self.at[1])
        out = []
        for start, stop, alike, conditions in turns.stretches():
            written = self._written_out(turns, start, stop, work, units)
            if written is None:  # no short formula says where this stretch begins and ends
                return [self._static(op, most, work, units)]
            out.append(Stretch(*written, aligned, alike, conditions))
        return out

    def _static(self, op: Op, most: int, work: int, units: Sequence[tuple[int, int]]) -> Stretch:
        """All turns that any program runs, under masks."""
        whole = Turns.of(most, agree=False)
        written = self._written_out(whole, whole.none, whole.stop, work, units)
        assert written is not None
        return Stretch(*written, not any(step % unit for step, unit in units), False)

    def _written_out(
        self, turns: Turns, start: np.ndarray, stop: np.ndarray, work: int, units: Sequence[tuple[int, int]]
    ) -> tuple[str, int | str | None, int] | None:
        """How a stretch is written: (source of the first turn, how many groups, turns of a group)."""
        first, length = turns.source(start), turns.length(start, stop)
        if first is None:
            return None
        aligned = not any(step % unit for step, unit in units)
        elements = work * self.copies
        if isinstance(length, int) and (length <= _WRITTEN_OUT or not aligned) and length * elements <= _ELEMENTS:
            if aligned or length <= _WRITTEN_OUT:
                return first, None, length
        most = max(1, min(8, _ELEMENTS // 4 // elements))
        common = turns.divisor(start, stop)
        if aligned:
            group = max(k for k in range(1, most + 1) if common % k == 0)
        else:
            fits = (k for k in range(1, common + 1) if common % k == 0 and not any(s * k % u for s, u in units))
            group = next(fits, common)
            if group > _LONGEST or first != "0":
                return None
            if group == common and isinstance(length, int):
                return first, None, length
        count = turns.source((stop - start) // group)  # type: ignore[operator]
        return None if count is None else (first, int(count) if count.isdigit() else count, group)

    def _work(self, op: Op) -> int:
        """Elements of the largest value that a turn computes."""
        largest = 1
        for inner in walk(op.regions[0]):
            for value in inner.results:
                if (
                    value in self.plan.demand.live
                    and value not in self.plan.demand.indexed
                    and not value.type.is_pointer
                ):
                    counted = {self.plan.top(v) for v in self.plan.deps(value)} | {
                        v for v in self.plan.axes(value) if v
                    }
                    largest = max(largest, math.prod(self.extent(v) for v in counted if not v.serial and v.count))
        return largest

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
                    lanes = behind == 0 and not self.by_rows(access)
                    out.append((piece.steps[var], 128 if lanes else sublanes(access)))
        return out

    def _conditions(self, op: Op, turns: Turns, data: Carried, values: Mapping[Value, Expr]) -> list[Form]:
        """The conditions that a turn looks at: it is written once, and taken back."""
        saved, asked = self._snapshot(), self.asked
        self.asked = {}
        self._stretch(op, Stretch("0", turns.length(turns.none, turns.stop), 1, True, turns.agree), data, values)
        found = list(self.asked)
        self._restore(saved)
        self.asked = {**asked, **self.asked}
        return found

    def _condition(self, c: Conjunct) -> Expr:
        if c.form is not None:
            self.asked[c.form] = None
            if c.form in self.assumed:
                return Expr("True", (), True)
        return super()._condition(c)

    # -- steps with statements of their own

    def by_steps(self, statements: Callable[[], object]) -> None:
        """Write the statements; once for every step of an axis, where loops run differently often along it."""
        axis = self._branching()
        if axis is None:
            statements()
            return
        for step in range(self.blocks.steps(self.blocks.grid[axis])):
            saved = self._snapshot()
            self.put(f"@pl.when(pl.program_id({axis}) == {step})")
            self.put(f"def {self.fresh(f'step_{step}')}():")
            self.indent, self.at = self.indent + 1, (axis, step)
            statements()
            lines = list(self.lines)
            self._restore(saved)
            self.lines[:], self.at = lines, None

    def _branching(self) -> int | None:
        """The axis of the grid along which loops of products run differently often, few turns in all."""
        plan, found, elements = self.plan, set(), 0
        ops = plan.kernel.body.ops
        if (
            not self.branched
            or self.blocks.fold is not None
            or any(op.kind == "while" for op in walk(plan.kernel.body))
        ):
            return None
        for op in ops:
            trips = plan.affine.loops[op].trips if op.kind == "for" and op not in plan.folds else None
            turns = turns_of(plan, self.blocks, op) if trips is not None else None
            if turns is None or turns.axis is None:
                continue
            if not any(o.kind == "dot" and o.result in plan.demand.live for o in walk(op.regions[0])):
                return None
            found.add(turns.axis)
            elements += self._work(op) * int((turns.stop - turns.start).sum())
        if len(found) != 1 or elements > _BRANCHED:
            return None
        (axis,) = found
        return axis if self.blocks.steps(self.blocks.grid[axis]) <= _BRANCHES else None

    # -- how they are written

    def _stretch(self, op: Op, stretch: Stretch, data: Carried, inits: Mapping[Value, Expr]) -> dict[Value, Expr]:
        """Write some turns of a loop; the carry's dimensions are found by writing the body again."""
        loop, body = self.plan.affine.loops[op], op.regions[0]
        bounds = None if stretch.alike else self._bounds(op)
        dims = {arg: self.carry_dims(inits[arg].dims) for _, arg, _ in data}
        self.unwritten(body)
        before, copies = self.assumed, self.copies
        self.assumed = before | set(stretch.conditions)
        while True:
            saved = self._snapshot()
            names = {arg: self.fresh(arg.name or "carried") for _, arg, _ in data}
            starts = [self.carry(inits[arg], dims[arg], arg) for arg in names]
            depth = self.indent
            turn, call = self._open(op, stretch, list(names.values()), starts)
            self.copies = copies * turn.group
            self.turns[loop.var], self.counters[loop.var] = turn, turn.number()
            for arg, name in names.items():
                self.env[arg] = self.carried_value(name, dims[arg], arg)
            if bounds is not None:
                self.active[op] = self._still_running(op, self._counter(loop.var, "int32"), bounds)
            elif not loop.uniform:
                self.active[op] = Expr("True", (), True)
            self.block(body)
            finals: list[Expr] = []
            for i, arg, _ in data:
                new = self.value(body.yields[i])
                if bounds is not None:
                    new = self.masked(self.active[op], new, self.env[arg], self._dtype_name(arg))
                finals.append(new)
            wanted = {
                arg: self.carry_dims(self._carry_dims(dims[arg], final.dims))
                for (_, arg, _), final in zip(data, finals)
            }
            if wanted == dims:
                break
            self._restore(saved)
            dims = wanted
        texts = [self.carry(final, dims[arg], arg) for arg, final in zip(names, finals)]
        moved = [(n, t) for n, t in zip(names.values(), texts) if n != t]
        if moved:
            self.put(f"{', '.join(n for n, _ in moved)} = {', '.join(t for _, t in moved)}")
        outs = list(names.values())
        if call:
            self.indent = depth + 1
            self.put(f"return {tuple_of(outs) if outs else '()'}")
            self.indent = depth
            outs = [self.fresh(op.results[i].name or arg.name or "carried") for i, arg, _ in data]
            self.put(f"{', '.join(outs) + (',' if len(outs) == 1 else '')} = {call}" if outs else call, op)
        self.indent = depth
        self._leave(op, body)
        self.assumed, self.copies = before, copies
        return {arg: self.carried_value(name, dims[arg], arg) for name, (_, arg, _) in zip(outs, data)}

    def _open(self, op: Op, stretch: Stretch, names: Sequence[str], starts: Sequence[str]) -> tuple[Turn, str]:
        """Write what stands before a turn's statements; the turn, and the call of the `fori_loop` if there is one."""
        name = op.regions[0].args[0].name or "k"
        if stretch.count is None:
            for carried, start in zip(names, starts):
                if carried != start:
                    self.put(f"{carried} = {start}", op)
            counter = self.fresh(name)
            if stretch.first.isdigit():
                first = int(stretch.first)
                self.put(f"for {counter} in range({f'{first}, ' if first else ''}{first + stretch.group}):", op)
            else:
                self.put(f"for {counter} in range({stretch.group}):", op)
            self.indent += 1
            if stretch.first.isdigit():
                return Turn("0", stretch.group, counter, "", stretch.aligned, int(stretch.first)), ""
            return Turn(stretch.first, stretch.group, counter, "", stretch.aligned), ""
        step, groups = self.fresh(f"{name}_step"), self.fresh(name if stretch.group == 1 else f"{name}_group")
        self.put(f"def {step}({groups}, carry):", op)
        self.indent += 1
        if names:
            self.put(f"{tuple_of(list(names))} = carry")
        low, high = "0", str(stretch.count)
        if stretch.group == 1 and stretch.first != "0":
            low, high = stretch.first, f"{tight(stretch.first)} + {tight(high)}"
        call = f"lax.fori_loop({low}, {high}, {step}, {tuple_of(list(starts)) if starts else '()'})"
        if stretch.group == 1:
            return Turn("0", 1, "", groups), call
        counter = self.fresh(name)
        self.put(f"for {counter} in range({stretch.group}):", op)
        self.indent += 1
        return Turn(stretch.first, stretch.group, counter, groups, stretch.aligned), call

    def _counter(self, var: Var, dtype_name: str) -> Expr:
        turn = self.turns.get(var)
        if turn is not None and turn.known:
            return Expr(f"jnp.{dtype_name}({turn.number()})")
        if (turn is not None or self.blocks.single(var)) and dtype_name == "int32":
            return Expr(self.counters[var])
        return super()._counter(var, dtype_name)

    # -- what is carried

    def carry_dims(self, dims: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        """Carried dimensions as vector registers want them: two at least; rows are columns of one lane."""
        if len(dims) != 1 or dims[0] is None:
            return dims
        return (dims[0], None) if self.upright(dims[0]) else (None, dims[0])

    def carry(self, expr: Expr, dims: tuple[Var | None, ...], arg: Value) -> str:
        """A value as a loop carries it: conditions as numbers."""
        text = self.shaped(expr, dims, arg)
        return f"{tight(text)}.astype(jnp.int32)" if arg.type.element.is_bool() else text

    def carried_value(self, name: str, dims: tuple[Var | None, ...], arg: Value) -> Expr:
        """What was carried, as the loop's body sees it."""
        return Expr(f"({name} != 0)" if arg.type.element.is_bool() else name, dims)

    def some(self, condition: Expr) -> str:
        """Whether a condition holds anywhere; a TPU reduces fp32."""
        if not condition.vars:
            return condition.code
        return f"jnp.max(jnp.where({condition.code}, 1.0, 0.0)) > 0.0"

    def largest(self, number: Expr) -> str:
        """The largest of some counts; a TPU reduces fp32."""
        return f"jnp.max({number.operand}.astype(jnp.float32)).astype(jnp.int32)" if number.vars else number.code

    # -- what is swept

    def part(self, spec: Spec) -> str:
        """The part of a block that an access touches, as an index: aligned steps of loops first, then what is known."""
        outer, inner = [], []
        for part in spec.inner:
            o, n = self._part(part)
            outer.append(o)
            inner.append(n)
        moved = "" if all(o == ":" for o in outer) else f".at[{', '.join(outer)}]"
        index = "..." if all(n == ":" for n in inner) else ", ".join(inner)
        if moved and index == "...":
            return f"[{', '.join(outer)}]"
        return f"{moved}[{index}]"

    def _part(self, part: Part) -> tuple[str, str]:
        if part is None:
            return ":", ":"
        if not isinstance(part, Sweep):
            return ":", f"{part[0]}:{part[1]}"
        known: list[tuple[str, int]] = []  # Python numbers, or parts of a group whose start is aligned
        moving: list[tuple[str, int]] = []
        base, span = part.start, part.size
        turned = [(self.turns.get(var), var, step) for var, step in part.steps]
        still = all(turn is not None and turn.known for turn, _, _ in turned)
        for turn, var, step in turned:
            if turn is None:  # a program
                moving.append((self.counters[var], step))
            elif turn.known or not turn.aligned:
                known.append((turn.name, step))
                if turn.group_name:
                    moving.append((turn.group_name, step * turn.group))
                if not still:
                    span += abs(step) * (turn.begin + turn.group - 1)
                    base -= max(0, -step) * (turn.begin + turn.group - 1)
            else:
                moving.append((turn.number(), step))
        if not moving:
            return ":", f"pl.ds({_sum(part.start, known)}, {part.size})"
        start = _sum(base, moving)
        divisor = math.gcd(base, *(step for _, step in moving))
        if divisor > 1:
            start = f"pl.multiple_of({start}, {divisor})"
        if not known:
            return f"pl.ds({start}, {span})", ":"
        return f"pl.ds({start}, {span})", f"pl.ds({_sum(part.start - base, known)}, {part.size})"


def _sum(start: int, terms: Sequence[tuple[str, int]]) -> str:
    """``start + sum(step * name)`` as source."""
    text = str(start) if start or not terms else ""
    for name, step in terms:
        term = tight(name) if step == -1 else name if step == 1 else f"{tight(name)} * {abs(step)}"
        sign = "-" if step < 0 else "+"
        text = f"{text} {sign} {term}" if text else (f"-{term}" if step < 0 else term)
    return text
