"""Control flow: branches, folded loops, serial loops, `while`.

Input: structured control flow of the IR. Output: statements. Law: both sides of a branch are written one after the
other, stores carry their conditions and results are selected; in a serial loop, a finished program keeps its values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.emit.combine import Combine
from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, tight, tuple_of, union
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Block, Op, Value, walk

#: Turns after which a loop around an atomic is taken to wait for something that does not come.
MOST_TURNS = 1 << 20


class Control(Combine):
    """Statements of control flow; `block` is the dispatch over operations."""

    def block(self, block: Block) -> None:
        """Every live operation of a block."""
        for op in block.ops:
            self.op(op)

    def unwritten(self, block: Block) -> None:
        """A block is written again, for other turns: nothing that it computes has a name yet."""
        for op in walk(block):
            for result in op.results:
                self.env.pop(result, None)

    def op(self, op: Op) -> None:
        """One operation."""
        raise NotImplementedError

    # -- control flow

    def if_(self, op: Op) -> None:
        """Both branches, one after the other: memory effects carry their conditions, results are selected."""
        for region in op.regions:
            self.block(region)
        demand = self.plan.demand
        live = [(i, r) for i, r in enumerate(op.results) if r in demand.live and r not in demand.indexed]
        if not live:
            return  # nobody looks at the condition either
        conditions = self.plan.walker.conjuncts(op.operands[0])
        mask = self.mask(conditions)
        for i, result in live:
            yes, no = (self.value(region.yields[i]) for region in op.regions)
            if mask is None or mask.code == "True":
                self.env[result] = yes
            else:
                name = "int64" if result.type.is_pointer else result.type.element.numpy_name
                picked = self.masked(Expr(mask.code, mask.dims), yes, no, name)
                self.env[result] = self.assign(result.name or "picked", picked, op)

    def for_(self, op: Op) -> None:
        """A folded loop inline, any other as a loop."""
        fold = self.plan.folds.get(op)
        if fold is None:
            self.serial(op)
            self.advanced(op)
            return
        body = op.regions[0]
        if op in self.plan.walker.looped and not fold.loop.uniform:
            counter = self.form(self.plan.form(Form(0, {fold.loop.var: 1})))
            self.active[op] = self._still_running(op, counter, self._bounds(op))
        for inner in body.ops:
            if inner not in fold.absorbed:
                self.op(inner)
        k = fold.loop.var
        for i, arg in enumerate(body.args[1:]):
            if arg not in fold.sums or arg not in self.plan.demand.live:
                continue
            fn, adder = fold.sums[arg]
            init = self.value(op.operands[3 + i])
            total = self._accumulated(adder, arg, fn, k)
            result = op.results[i]
            if fn == "sum":
                expr = self.plus(init, total)
            else:
                expr = self.apply(adder["fn"], [init, total], result.type.element, result.type, op)
            self.env[result] = self.assign(result.name or arg.name or "acc", expr, adder)
        self.advanced(op)

    def _accumulated(self, adder: Op, arg: Value, fn: str, k: Var, bind: bool = True) -> Expr:
        top = self.plan.top(k)
        merged = top is not k
        if adder.kind == "dot":
            one = any(k in self.plan.deps(v) for v in adder.operands[:2])
            term = self.contract(adder, () if merged else (k,))
            if not one:
                term = Expr(f"{term.operand} * {k.size}", term.dims)
            return self.assign("product", term, adder) if bind else term
        term_value = next(v for v in adder.operands if v is not arg)
        term = self.value(term_value)
        if merged:
            return term
        if k in term.dims:
            axis = term.dims.index(k)
            dims = tuple(None if i == axis else d for i, d in enumerate(term.dims))
            total = Expr(self.reduction(fn, term, axis, term_value.type.element, adder), dims)
            # Iterations past a crop still add what their masked loads give.
            return total if k.extent is None else self.count_dropped(fn, total, term.fills.get(k), k, adder)
        return Expr(f"{term.operand} * {k.size}", term.dims) if fn == "sum" else term

    def carried(
        self, op: Op, args: Sequence[Value], inits: Sequence[Value], body: Block
    ) -> list[tuple[int, Value, Value]]:
        """The carried values that are data: (position, block argument, initial value)."""
        loop = self.plan.affine.loops.get(op)
        out = []
        for i, (arg, init) in enumerate(zip(args, inits)):
            if arg not in self.plan.demand.live or arg in self.plan.demand.indexed:
                continue
            if loop is not None and arg in loop.carried:
                continue
            out.append((i, arg, init))
        return out

    def serial(self, op: Op) -> None:
        """A loop that stays one: `fori_loop` over the largest trip count, programs that are done keep their values."""
        loop = self.plan.affine.loops[op]
        body = op.regions[0]
        data = self.carried(op, body.args[1:], op.operands[3:], body)
        counter = self.fresh(loop.var.name)
        ordered = self.plan.ordered  # one program at a time: it runs the loop as often as it should
        if loop.trips is not None and (loop.uniform or not ordered):
            trips: Expr = literal(int(loop.trips.max()))
        else:
            trips = self._dynamic_trips(op)
        bounds = None if loop.uniform else self._bounds(op)

        def enter() -> None:
            self.counters[loop.var] = counter
            index = body.args[0]
            if loop.step is None or loop.lo.opaques:
                if index in self.plan.demand.live and index not in self.plan.demand.indexed:
                    assert bounds is not None
                    dims = union([bounds[0], bounds[2]])
                    name = index.type.element.numpy_name
                    at = f"{counter}.astype(jnp.{name}) * {tight(align(bounds[2], dims))}"
                    text = f"{tight(align(bounds[0], dims))} + {at}"
                    self.env[index] = self.assign(index.name or "i", Expr(text, dims), op)
            if bounds is not None and not ordered:
                self.active[op] = self._still_running(op, Expr(counter), bounds)

        self._loop(op, f"lax.fori_loop(0, {trips.code}, {{step}}, {{init}})", [counter], data, body, op.results, enter)

    def _bounds(self, op: Op) -> tuple[Expr, Expr, Expr]:
        lo, hi, step = (self.value(v) for v in op.operands[:3])
        return lo, hi, step

    def _still_running(self, op: Op, counter: Expr, bounds: tuple[Expr, Expr, Expr]) -> Expr:
        lo, hi, step = bounds
        dims = union([lo, hi, step, counter])
        name = self.number_dtype(op.operands[1])
        turn = f"{tight(align(counter, dims))}.astype(jnp.{name})"
        at = f"{tight(align(lo, dims))} + {turn} * {tight(align(step, dims))}"
        constant = self.plan.affine.loops[op].step
        if constant is not None:
            text = f"{at} {'<' if constant > 0 else '>'} {tight(align(hi, dims))}"
        else:
            text = (
                f"jnp.where({align(step, dims)} > 0, {at} < {tight(align(hi, dims))}, {at} > {tight(align(hi, dims))})"
            )
        return self.assign("running", Expr(text, dims), op)

    def _trips(self, op: Op) -> Expr:
        """How often every program runs a loop."""
        lo, hi, step = self._bounds(op)
        dims = union([lo, hi, step])
        gap = f"({tight(align(hi, dims))} - {tight(align(lo, dims))})"
        return Expr(f"jnp.maximum(0, -(-{gap} // {tight(align(step, dims))}))", dims)

    def _dynamic_trips(self, op: Op) -> Expr:
        """The largest trip count among the programs that get to the loop."""
        trips = self._trips(op)
        gets_here = self.mask(self.plan.walker.conditions[op])
        name = self.number_dtype(op.operands[1])
        trips = self.masked(gets_here, trips, literal(0), name)
        return self.assign("trips", Expr(self.largest(trips)), op)

    def advanced(self, op: Op) -> None:
        """Values that advanced by a constant each iteration, after a loop that programs run differently often."""
        loop = self.plan.affine.loops[op]
        for arg, result in zip(op.regions[0].args[1:], op.results):
            known = result in self.plan.demand.indexed or result not in self.plan.demand.live
            if arg not in loop.carried or known or loop.uniform:
                continue
            start, advance = loop.carried[arg]
            name = self._dtype_name(result)
            first, trips = self.form(self.plan.form(start), result.type.element), self._trips(op)
            dims = union([first, trips])
            text = f"{tight(align(first, dims))} + {tight(align(trips, dims))}.astype(jnp.{name}) * {advance}"
            self.env[result] = self.assign(result.name or arg.name or "advanced", Expr(text, dims), op)

    def while_(self, op: Op) -> None:
        """A `while`: runs until every program is done; programs that are done keep their values."""
        cond, body = op.regions
        data = self.carried(op, body.args, op.operands, body)
        if self.plan.ordered:
            self._ordered_while(op, data)
            return
        if cond.yields[0] not in self.plan.demand.live:
            return  # nothing in it is looked at
        if not data:
            raise error("not-translated", "a while loop whose condition never changes", where=op.where)

        def test() -> Expr:
            for arg, twin in zip(body.args, cond.args):
                if arg in self.env:
                    self.env[twin] = self.env[arg]
            self.unwritten(cond)
            self.block(cond)
            running = self.value(cond.yields[0])
            gets_here = self.mask(self.plan.walker.conditions[op])
            if gets_here is None or gets_here.code == "True":
                return running
            dims = union([running, gets_here])
            return Expr(f"{tight(align(running, dims))} & {tight(align(gets_here, dims))}", dims)

        def enter() -> None:
            self.active[op] = self.assign("running", test(), op)

        self._loop(op, "lax.while_loop({test}, {step}, {init})", [], data, body, op.results, enter, test)

    def _ordered_while(self, op: Op, data: list[tuple[int, Value, Value]]) -> None:
        """A `while` of one program: its condition may change memory, so it is evaluated exactly once a turn."""
        cond, body = op.regions

        def test(values: Sequence[Value]) -> Expr:
            for value, twin in zip(values, cond.args):
                if value in self.env or value.producer is not None:
                    self.env[twin] = self.value(value)
            self.block(cond)
            running = self.value(cond.yields[0])
            return Expr(f"jnp.asarray({self._plain(running).code}, bool)")

        first = test(op.operands)
        gets_here = self.mask(self.plan.walker.conditions[op])
        if gets_here is not None and gets_here.code != "True":
            first = Expr(f"{first.operand} & {tight(self._plain(gets_here).code)}")
        first = self.assign("running", first, op)
        call = "lax.while_loop(lambda carry: carry[-1], {step}, {init})"
        again = (first.code, lambda: test(body.yields).code)
        waits = any(o.kind == "atomic" for region in op.regions for o in walk(region))
        if waits:  # it may wait for what no other program will do
            call = f"lax.while_loop(lambda carry: carry[-1][0] & (carry[-1][1] < {MOST_TURNS}), {{step}}, {{init}})"
            again = (f"({first.code}, 0)", lambda: f"({test(body.yields).code}, carry[-1][1] + 1)")
        self._loop(op, call, [], data, body, op.results, lambda: None, again=again)
        if waits:
            self.waited(op, "_[0]")

    def waited(self, op: Op, still: str) -> None:
        """What becomes of a loop that was given up while its condition still held."""
        raise NotImplementedError

    def _loop(
        self,
        op: Op,
        call: str,
        leading: list[str],
        data: list[tuple[int, Value, Value]],
        body: Block,
        results: Sequence[Value],
        enter: Callable[[], None],
        test: Callable[[], Expr] | None = None,
        again: tuple[str, Callable[[], str]] | None = None,
    ) -> None:
        """Write a loop as a nested function; the carry's dimensions are found by writing the body twice.

        Args:
            op: the loop.
            call: what runs it, with ``{step}``, ``{init}`` and perhaps ``{test}`` in it.
            leading: arguments of the step before the carry.
            data: the carried values.
            body: the region that is repeated.
            results: the loop's results.
            enter: writes what comes first in every turn.
            test: writes the condition, as a function of its own.
            again: a last carried value: its start, and what writes it at the end of every turn.
        """
        inits = {arg: self.value(init) for _, arg, init in data}
        dims = {arg: self.carry_dims(inits[arg].dims) for _, arg, _ in data}
        step = self.fresh(f"{(body.args[0].name if body.args else '') or 'while'}_step")
        while True:
            saved = self._snapshot()
            self.put(f"def {step}({', '.join([*leading, 'carry'])}):", op)
            self.indent += 1
            names = self._unpack(data, dims, again is not None)
            enter()
            self.block(body)
            finals: list[Expr] = []
            for i, arg, _ in data:
                new, old = self.value(body.yields[i]), self.carried_value(names[arg], dims[arg], arg)
                if op in self.active:
                    new = self.masked(self.active[op], new, old, self._dtype_name(arg))
                finals.append(new)
            wanted = {
                arg: self.carry_dims(self._carry_dims(dims[arg], final.dims))
                for (_, arg, _), final in zip(data, finals)
            }
            if wanted == dims:
                break
            self._restore(saved)
            dims = wanted
        texts = [self.carry(final, dims[arg], arg) for (_, arg, _), final in zip(data, finals)]
        self.put(f"return {tuple_of([*texts, *([again[1]()] if again else [])])}")
        self.indent -= 1
        self._leave(op, body)
        if test is not None:
            more = self.fresh("running")
            self.put(f"def {more}(carry):", op)
            self.indent += 1
            self._unpack(data, dims)
            self.put(f"return {self.some(test())}")
            self.indent -= 1
            self._leave(op, op.regions[0])
            call = call.replace("{test}", more)
        starts = [self.carry(inits[arg], dims[arg], arg) for _, arg, _ in data]
        start = tuple_of([*starts, *([again[0]] if again else [])])
        call = call.replace("{step}", step).replace("{init}", start)
        outs = [self.fresh(results[i].name or arg.name or "carried") for i, arg, _ in data]
        self.put(f"{tuple_of([*outs, *(['_'] if again else [])])} = {call}" if outs or again else call, op)
        for name, (i, arg, _) in zip(outs, data):
            self.env[results[i]] = self.carried_value(name, dims[arg], arg)

    def carry_dims(self, dims: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        """The dimensions in which a loop carries a value."""
        return dims

    def carry(self, expr: Expr, dims: tuple[Var | None, ...], arg: Value) -> str:
        """A value as a loop carries it."""
        return self.shaped(expr, dims, arg)

    def carried_value(self, name: str, dims: tuple[Var | None, ...], arg: Value) -> Expr:
        """What was carried, as the loop's body sees it."""
        return Expr(name, dims)

    def some(self, condition: Expr) -> str:
        """Source of whether a condition holds anywhere."""
        return f"jnp.any({condition.code})"

    def largest(self, number: Expr) -> str:
        """Source of the largest of some numbers."""
        return f"jnp.max({number.code})"

    def _unpack(
        self, data: list[tuple[int, Value, Value]], dims: dict[Value, tuple[Var | None, ...]], more: bool = False
    ) -> dict[Value, str]:
        names = {arg: self.fresh(arg.name or "carried") for _, arg, _ in data}
        if names:
            self.put(f"{tuple_of([*names.values(), *(['_'] if more else [])])} = carry")
        for arg, name in names.items():
            self.env[arg] = self.carried_value(name, dims[arg], arg)
        return names

    def _snapshot(self) -> tuple[Any, ...]:
        return (
            len(self.lines), dict(self.env), set(self.names), self.indent, dict(self.lowered), dict(self.counters),
            dict(self.active), self._line,
        )  # fmt: skip

    def _restore(self, saved: tuple[Any, ...]) -> None:
        n, self.env, self.names, self.indent, self.lowered, self.counters, self.active, self._line = saved
        del self.lines[n:]

    def _leave(self, op: Op, block: Block) -> None:
        """Names bound inside a nested function are gone."""
        self.active.pop(op, None)
        self.lowered = {k: v for k, v in self.lowered.items() if k[-1] <= self.indent}
        loop = self.plan.affine.loops.get(op)
        if loop is not None:
            self.counters.pop(loop.var, None)

    def _carry_dims(self, old: tuple[Var | None, ...], new: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        if set(d for d in new if d) <= set(d for d in old if d) and old:
            return old
        if not old:
            return new
        return union([Expr("", old), Expr("", new)])

    def shaped(self, expr: Expr, dims: tuple[Var | None, ...], value: Value) -> str:
        """An expression in exactly these dimensions and the value's dtype."""
        name = self._dtype_name(value)
        if expr.literal is not None and not expr.dims:
            if not dims:
                return literal(expr.literal, name).code
            return f"jnp.full({shape_of(dims, self.extent)}, {expr.code}, jnp.{name})"
        if expr.dims == dims:
            return expr.code
        return f"jnp.broadcast_to({align(expr, dims)}, {shape_of(dims, self.extent)})"

    def _dtype_name(self, value: Value) -> str:
        return "int64" if value.type.is_pointer else value.type.element.numpy_name
