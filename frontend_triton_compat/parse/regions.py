"""Run-time loops: `for` over integers and `while`, as structured operations with carried values.

Input: a statement with its bounds or condition. Output: one operation with regions; the frame's names are updated to
its results. Law: a name that changes in the body keeps one structure and one type from turn to turn; a loop that a
run-time value may leave is a `while` that also asks whether it was left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from bridge.diagnostics import Diagnostic, Where
from frontend_triton_compat.ir import Block, Value
from frontend_triton_compat.language import control, operators
from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language.semantic import cast, promote_integers, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.branches import ONE_TYPE, Branches, anything
from frontend_triton_compat.parse.exits import RETURNED, Scope, leaves
from frontend_triton_compat.parse.expressions import is_run_time
from frontend_triton_compat.parse.frame import Undefined, stored_names
from frontend_triton_compat.parse.structure import Contents, Tree, describe, flatten
from frontend_triton_compat.types import TileType

Carried = dict[str, tuple[list[tensor], Tree]]


class Retyped(Exception):
    """A carried name has another type at the end of a loop's body; `problem` is what the user is told."""

    def __init__(self, name: str, problem: Diagnostic):
        self.name, self.problem = name, problem
        super().__init__(name)


class Regions(Branches):
    """Builds operations with regions."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.from_loops: set[str] = set()  # names that only a loop's body has bound so far

    # -- carried values ----------------------------------------------------------------------------------------------

    def _carried(self, names: set[str]) -> Carried:
        """Names that have a value before the loop and may change in it, taken apart."""
        return {
            n: flatten(self.env[n]) for n in sorted(names) if n in self.env and not isinstance(self.env[n], Undefined)
        }

    def _arguments(self, carried: Carried) -> list[Value]:
        """Block arguments for the carried values; the names are bound to them."""
        args: list[Value] = []
        for name, (tiles, tree) in carried.items():
            shown = name if len(tiles) == 1 and not name.startswith("$") else ""
            own = [Value(t.handle.type, shown) for t in tiles]
            args += own
            self.env[name] = tree.build(iter([tensor(v) for v in own]))
        return args

    def _yields(self, carried: Carried, at: Where) -> tuple[Value, ...]:
        """The carried values at the end of the body, checked against those at its start."""
        out: list[Value] = []
        for name, (tiles, tree) in carried.items():
            value = self.env[name]
            if isinstance(value, Undefined):
                raise self.fail(
                    "undefined-name",
                    f"`{name}` has no value at the end of the loop",
                    at,
                    why=value.why,
                    do=f"give `{name}` a value of one type in every branch",
                )
            now, now_tree = flatten(value)
            before, after = describe(tiles, tree), describe(now, now_tree)
            if not tree.same(now_tree) or before != after:
                if name == RETURNED:
                    raise self.return_type(before, after, at)
                problem = self.fail(
                    "loop-carried-type",
                    f"`{name}` is {before} before the loop and {after} after its body",
                    self.assigned.get(name, at),
                    why="a loop hands its variables from one turn to the next, so each keeps one type",
                    do=f"cast in the loop: {name} = (...).to(...), or start with {after}; " + ONE_TYPE,
                )
                raise Retyped(name, problem)
            out += [t.handle for t in now]
        return tuple(out)

    def _after_loop(
        self, before: dict[str, Any], carried: Carried, results: list[tensor], names: set[str], line: int
    ) -> None:
        flat, end = iter(results), self.env
        self.env = dict(before)
        for name, (_, tree) in carried.items():
            self.rebind(name, tree.build(flat))
        only = Undefined(f"it is bound only inside the loop in line {line}, which may not run at all")
        for name in names - set(carried):
            self.env[name] = end[name] if isinstance(end.get(name), Undefined) else only

    def _body(self, block: Block, turn: Callable[[], None], s: ast.stmt) -> None:
        """Translate one turn into a block; what it does to Python containers must stay inside."""
        contents = Contents(self.visible())
        self.ctx.builder.open(block)
        try:
            turn()
        finally:
            self.ctx.builder.close()
        name = contents.changed(contents.now())
        if name:
            raise self.fail(
                "not-translated",
                f"the loop changes the Python container `{name}` in place",
                s,
                why="the loop's body is translated once and runs many times",
                do="carry tiles in variables, or unroll the loop with tl.static_range",
            )

    # -- for ---------------------------------------------------------------------------------------------------------

    def run_time_for(self, s: ast.For, bounds: control.range) -> None:
        """A `for` over a range; its bounds may be constants, the loop stays a loop."""
        where = self.at(s.iter)
        if not isinstance(s.target, ast.Name):
            raise self.fail(
                "not-translated",
                "a run-time loop over several names",
                s.target,
                why="its index is one integer",
                do="use one name",
            )
        low, high, step = (self._bound(b, s.iter) for b in (bounds.start, bounds.end, bounds.step))
        t = promote_integers(promote_integers(low.dtype, high.dtype), step.dtype)
        low, high, step = cast(low, t), cast(high, t), cast(step, t)
        if step.const == 0:
            raise self.fail(
                "kernel-python-error",
                "range with a step of 0",
                s.iter,
                why="the loop would never end",
                do="use a step of at least 1",
            )
        loop = self.enter("loop")
        weak = self.from_loops & stored_names(s.body)
        while not self._tried(s, s.target.id, (low, high, step), bounds.hints, where, loop, weak):
            pass
        self.go_on(s.orelse, where)
        self.close(loop)

    def _tried(
        self, s: ast.For, target: str, bounds: tuple[tensor, tensor, tensor], hints: Any, where: Where, loop: Scope,
        weak: set[str],
    ) -> bool:  # fmt: skip
        """Translate a loop; False after a name was forgotten that an earlier loop left and this one uses anew."""
        depth, known = len(self.scopes), [x.const for x in bounds]
        turns = None if None in known else range(*known)  # type: ignore[arg-type]
        if turns is not None and not turns:
            return True  # there is no turn
        new = self._bind_first(s, target, bounds[0]) if turns else set()
        before = dict(self.env)
        try:
            found = self._counted(s, target, bounds, hints, where)
            if found is not None:
                self.env = before
                self._left_early(s, target, bounds, found, loop)
        except Retyped as again:
            if again.name not in weak:
                raise again.problem from None
            weak.discard(again.name)
            del self.scopes[depth:]
            self.env = before
            self.env.pop(again.name)
            return False
        self.from_loops |= new
        return True

    def _counted(
        self, s: ast.For, target: str, bounds: tuple[tensor, tensor, tensor], hints: dict[str, Any], where: Where
    ) -> dict[str, Any] | None:
        """A loop that always runs to its end; the variables at the end of its body if it does not."""
        low, high, step = bounds
        t = low.dtype
        backward = step.const is not None and step.const < 0
        first, last = low, high
        if backward:
            # run forwards over the mirrored range; the index is mirrored back below
            low, high, step = last, first, operators.neg(step)
        stored = stored_names(s.body)
        names = stored - {target}
        carried = self._carried(names)
        before = dict(self.env)
        induction = Value(TileType(t), target)
        block = Block(args=(induction, *self._arguments(carried)))
        end: dict[str, Any] = {}

        def turn() -> None:
            index = tensor(induction)
            self.env[target] = operators.sub(operators.add(first, last), index) if backward else index
            self.assigned[target] = where
            scope = self.enter("turn")
            self.run(s.body)
            self.close(scope)
            end.update(self.env)
            if self.pending() is False:
                block.yields = self._yields(carried, self.where(s))

        self._body(block, turn, s)
        if any(end[scope.flag] is not False for scope in self.scopes):
            return end
        inits = [x for tiles, _ in carried.values() for x in tiles]
        types = [x.handle.type for x in inits]
        results = self.emit("for", [low, high, step, *inits], types, where, [block], hints=hints)
        self._after_loop(before, carried, results, names, where.line)
        self.env[target] = self._last_index(before.get(target), (first, last, bounds[2]), target in stored, where)
        return None

    def _bind_first(self, s: ast.For, target: str, low: tensor) -> set[str]:
        """Before a loop that has a first turn: some value for the names that it binds and that are read behind it."""
        new = {n for n in stored_names(s.body) | {target} if n not in self.env and self.read_outside(n, s)}
        if not new:
            return new
        index = tensor(Value(low.handle.type, target))

        def turn() -> None:
            self.env[target] = index
            self.run(s.body)

        end = self._probe(s, stored_names(s.body) - {target}, turn)
        for name in new & set(end):
            tiles, tree = flatten(end[name]) if not isinstance(end[name], Undefined) else ([], Tree("static"))
            if tiles:
                self.env[name] = tree.build(iter([anything(t) for t in tiles]))
        return new

    def _last_index(self, old: Any, bounds: tuple[tensor, tensor, tensor], changed: bool, where: Where) -> Any:
        """What the index is behind the loop: its last value, or what it was if there was no turn."""
        why = f"it is bound only inside the loop in line {where.line}, which may not run at all"
        if changed:
            return Undefined(f"the loop in line {where.line} gives it a new value in its body")
        low, high, step = bounds
        if step.const is None:
            return Undefined(why)
        one = 1 if step.const > 0 else -1
        turns = operators.floordiv(operators.sub(operators.add(operators.sub(high, low), step), one), step)
        some = operators.compare("gt", high, low) if step.const > 0 else operators.compare("lt", high, low)
        last = operators.add(low, operators.mul(operators.sub(turns, 1), step))
        if some.const is not None:
            return last if some.const else Undefined(why) if old is None else old
        if not isinstance(old, tensor) or old.handle.type != last.handle.type:
            return Undefined(why)
        return tl_math.where(some, last, old)

    def _left_early(
        self, s: ast.For, target: str, bounds: tuple[tensor, tensor, tensor], end: dict[str, Any], loop: Scope
    ) -> None:
        """A loop that a run-time value may leave."""
        low, high, step = bounds
        counter = f"${target}{len(self.scopes)}"
        self.env[counter] = low

        def test() -> tensor:
            at = self.env[counter]
            if step.const is not None:
                return operators.compare("lt" if step.const > 0 else "gt", at, high)
            up, down = operators.compare("gt", step, 0), operators.compare("lt", step, 0)
            ahead = operators.and_(up, operators.compare("lt", at, high))
            return operators.or_(ahead, operators.and_(down, operators.compare("gt", at, high)))

        def turn() -> None:
            index = self.env[counter]
            self.env[target] = index
            self.assigned[target] = self.where(s.target)
            self.run(s.body)
            self.env[counter] = operators.add(index, step)

        names = stored_names(s.body) | {target, counter}
        self._repeat(s, names, test, turn, end, self.where(s.iter))
        self.env.pop(counter)

    def _bound(self, value: Any, node: ast.AST) -> tensor:
        out = to_tensor(value)
        if out.shape or not out.dtype.is_int():
            raise self.fail(
                "operand-type",
                f"a loop bound of type {out.handle.type}",
                node,
                why="the bounds of a loop are integer scalars",
                do="reduce a tile first (tl.max(x, 0)), or cast: n.to(tl.int32)",
            )
        return out

    # -- while -------------------------------------------------------------------------------------------------------

    def run_time_while(self, s: ast.While) -> None:
        """A `while` loop on run-time values."""
        where = self.at(s.test)
        names = stored_names([*s.body, s.test])
        loop = self.enter("loop")
        end = self._probe(s, names, lambda: self._turn(s)) if any(leaves(b) for b in s.body) else {}
        early = any(end.get(scope.flag, False) is not False for scope in self.scopes)
        self._repeat(
            s, names, lambda: self._while_condition(s, early), lambda: self._turn(s), end if early else None, where
        )
        self.go_on(s.orelse, where)
        self.close(loop)

    def _turn(self, s: ast.While) -> None:
        self.run(s.body)

    def _probe(self, s: ast.For | ast.While, names: set[str], body: Callable[[], None]) -> dict[str, Any]:
        """The variables at the end of the body, translated once for a look; nothing stays of it."""
        before, end = self.env, {}
        self.env = dict(before)
        self._arguments(self._carried(names))

        def turn() -> None:
            scope = self.enter("turn")
            body()
            self.close(scope)
            end.update(self.env)

        self.ctx.builder.open(Block())
        self._body(Block(), turn, s)
        self.ctx.builder.close()
        self.env = before
        return end

    def _repeat(
        self,
        s: ast.For | ast.While,
        names: set[str],
        test: Callable[[], Any],
        turn: Callable[[], None],
        end: dict[str, Any] | None,
        where: Where,
    ) -> None:
        """A `while` operation; `end` has the variables behind a turn that may leave the loop, or is None."""
        flags = [] if end is None else [x.flag for x in self.scopes if end.get(x.flag, False) is not False]
        if end is not None and RETURNED in end and RETURNED not in self.env:
            tiles, tree = flatten(end[RETURNED])
            self.env[RETURNED] = tree.build(iter([anything(t) for t in tiles]))
        carried = self._carried(names | set(flags) | ({RETURNED} if RETURNED in self.env else set()))
        before = dict(self.env)
        inits = [x for tiles, _ in carried.values() for x in tiles]
        condition, body = Block(args=tuple(self._arguments(carried))), Block()
        self.ctx.builder.open(condition)
        try:
            running = test()
            for flag in flags if running is not False else ():
                stays = operators.logical_not(self.env[flag])
                running = stays if running is True else operators.and_(running, stays)
        finally:
            self.ctx.builder.close()
        if running is False:
            self.env = {**before, **{f: False for f in flags}}
            return
        condition.yields = (running.handle,)
        self.env = dict(before)
        body.args = tuple(self._arguments(carried))
        self.env.update({f: False for f in flags})

        def whole_turn() -> None:
            scope = self.enter("turn")
            turn()
            self.close(scope)
            body.yields = self._yields(carried, self.where(s))

        try:
            self._body(body, whole_turn, s)
        except Retyped as retyped:
            raise retyped.problem from None
        results = self.emit("while", inits, [x.handle.type for x in inits], where, [condition, body])
        self._after_loop(before, carried, results, names, where.line)

    def _while_condition(self, s: ast.While, leaves: bool) -> Any:
        value = self.evaluate(s.test)
        if isinstance(value, control.condition):
            value = value.condition
        if is_run_time(value):
            if value.shape:
                raise self.fail(
                    "tile-as-condition",
                    f"the condition of `while` is a tile of shape {value.shape}",
                    s.test,
                    why="a loop goes on or stops as a whole",
                    do="reduce it: `while tl.max(active.to(tl.int32), 0) != 0:`",
                )
            return operators.truth(value)
        if not value:
            return False
        if leaves:
            return True
        raise self.fail(
            "loop-exit",
            f"the condition `{ast.unparse(s.test)}` of `while` is always true",
            s.test,
            why="nothing in the condition changes in the loop, and nothing in its body leaves it",
            do="put the exit into the condition, or leave with `break`: `while not done:`",
        )
