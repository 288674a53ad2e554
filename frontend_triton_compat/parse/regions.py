"""Run-time control flow: `if`, `for` and `while` as structured operations with carried values.

Input: a statement and its run-time condition or bounds. Output: one operation with regions; the frame's names are
updated to its results. Law: a name that changes in a region keeps one structure and one type on every path; a name
that is bound on some paths only has no value afterwards.
"""

from __future__ import annotations

import ast
from typing import Any

from bridge.diagnostics import Where
from frontend_triton_compat.ir import Block, Value
from frontend_triton_compat.language import control, operators
from frontend_triton_compat.language.context import fail
from frontend_triton_compat.language.semantic import cast, promote_integers, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.expressions import is_run_time
from frontend_triton_compat.parse.frame import Undefined, stored_names
from frontend_triton_compat.parse.statements import Returned, Statements
from frontend_triton_compat.parse.structure import Tree, flatten
from frontend_triton_compat.types import TileType

_ONE_TYPE = "cast to one type, or start from the right one: 0.0 instead of 0, tl.zeros(shape, tl.float32) for a tile"


class Regions(Statements):
    """Builds operations with regions."""

    def _in_block(self, block: Block, statements: list[Any]) -> Returned | None:
        self.ctx.builder.open(block)
        try:
            return self.execute(statements)
        finally:
            self.ctx.builder.close()

    def _flatten_in(self, block: Block, value: Any) -> tuple[list[tensor], Tree]:
        self.ctx.builder.open(block)
        try:
            return flatten(value)
        finally:
            self.ctx.builder.close()

    # -- if ----------------------------------------------------------------------------------------------------------

    def run_time_if(self, s: ast.If, condition: tensor) -> None:
        """An `if` whose branches both come back."""
        before, where = self.env, self.where(s.test)
        blocks, ends = (Block(), Block()), []
        for block, body in zip(blocks, (s.body, s.orelse)):
            self.env = dict(before)
            self._in_block(block, body)
            ends.append(self.env)
        then, other = ends
        merged, trees, operands = [], [], ([], [])
        for name in sorted(stored_names([*s.body, *s.orelse])):
            a, b = then.get(name, _MISSING), other.get(name, _MISSING)
            if a is b:
                continue
            if a is _MISSING or b is _MISSING or isinstance(a, Undefined) or isinstance(b, Undefined):
                before = {**before, name: Undefined(f"it is bound in only one branch of the `if` in line {where.line}")}
                continue
            (tiles, tree), (other_tiles, other_tree) = self._flatten_in(blocks[0], a), self._flatten_in(blocks[1], b)
            shown = _types(tiles, tree), _types(other_tiles, other_tree)
            if not tree.same(other_tree) or shown[0] != shown[1]:
                raise self.fail(
                    "branch-type",
                    f"`{name}` is {shown[0]} in one branch of the `if` in line {where.line}, {shown[1]} in the other",
                    self.assigned.get(name, where),
                    why="which branch runs is known only at run time, so the variable needs one type",
                    do=_ONE_TYPE,
                )
            if not tiles:  # the same Python object on both sides
                before = {**before, name: a}
                continue
            merged.append(name)
            trees.append(tree)
            operands[0].extend(tiles)
            operands[1].extend(other_tiles)
        for block, side in zip(blocks, operands):
            block.yields = tuple(t.handle for t in side)
        types = [t.handle.type for t in operands[0]]
        results = iter(self._emit("if", [condition], types, where, blocks))
        self.env = dict(before)
        for name, tree in zip(merged, trees):
            self._rebind(name, tree.build(results))

    def branch_to_the_end(self, s: ast.If, condition: tensor, then: list[Any], other: list[Any]) -> Returned:
        """An `if` whose branches run to the end of the function; gives the returned value."""
        before, where = self.env, self.where(s.test)
        if self.in_loop:
            raise self.loop_exit(s)
        blocks, values = (Block(), Block()), []
        for block, body in zip(blocks, (then, other)):
            self.env = dict(before)
            returned = self._in_block(block, body)
            values.append(self._flatten_in(block, returned.value if returned is not None else None))
        (tiles, tree), (_, other_tree) = values
        shown = [_types(*v) for v in values]
        if not tree.same(other_tree) or shown[0] != shown[1]:
            raise self.fail(
                "return-type",
                f"`{self.source.function}` returns {shown[0]} on one path and {shown[1]} on another",
                where,
                why="which path runs is known only at run time, so the result needs one type",
                do="return values of one type on every path; " + _ONE_TYPE,
            )
        for block, (side, _) in zip(blocks, values):
            block.yields = tuple(t.handle for t in side)
        results = iter(self._emit("if", [condition], [t.handle.type for t in tiles], where, blocks))
        return Returned(tree.build(results))

    def loop_exit(self, s: ast.If) -> Exception:
        """The diagnostic for a return, break or continue under a run-time `if` in a run-time loop."""
        node = next(n for n in ast.walk(s) if isinstance(n, (ast.Return, ast.Break, ast.Continue)))
        try:
            self._leaving(node, type(node).__name__.lower(), None)
        except Exception as diagnostic:
            return diagnostic
        return fail("internal-error", "a loop exit was not recognised")

    def _emit(
        self, kind: str, operands: list[tensor], types: list[TileType], where: Where, blocks: Any, **attrs: Any
    ) -> list[tensor]:
        values = self.ctx.builder.emit(kind, [t.handle for t in operands], types, where, regions=blocks, **attrs)
        return [tensor(v) for v in values]

    def _rebind(self, name: str, value: Any) -> None:
        self.env[name] = value
        if isinstance(value, tensor) and not value.handle.name:
            value.handle.name = name

    # -- loops -------------------------------------------------------------------------------------------------------

    def _carried(self, names: set[str]) -> dict[str, tuple[list[tensor], Tree]]:
        """Names that have a value before the loop and may change in it, taken apart."""
        return {
            n: flatten(self.env[n]) for n in sorted(names) if n in self.env and not isinstance(self.env[n], Undefined)
        }

    def _arguments(self, carried: dict[str, tuple[list[tensor], Tree]]) -> list[Value]:
        """Block arguments for the carried values; the names are bound to them."""
        args: list[Value] = []
        for name, (tiles, tree) in carried.items():
            own = [Value(t.handle.type, name if len(tiles) == 1 else "") for t in tiles]
            args += own
            self.env[name] = tree.build(iter([tensor(v) for v in own]))
        return args

    def _yields(self, carried: dict[str, tuple[list[tensor], Tree]], at: Where) -> tuple[Value, ...]:
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
                    do=f"give `{name}` a value in every branch",
                )
            now, now_tree = flatten(value)
            before, after = _types(tiles, tree), _types(now, now_tree)
            if not tree.same(now_tree) or before != after:
                raise self.fail(
                    "loop-carried-type",
                    f"`{name}` is {before} before the loop and {after} after its body",
                    self.assigned.get(name, at),
                    why="a loop hands its variables from one turn to the next, so each keeps one type",
                    do=f"cast in the loop: {name} = (...).to(...), or start with {after}; " + _ONE_TYPE,
                )
            out += [t.handle for t in now]
        return tuple(out)

    def _after_loop(
        self,
        before: dict[str, Any],
        carried: dict[str, tuple[list[tensor], Tree]],
        results: list[tensor],
        names: set[str],
        line: int,
    ) -> None:
        flat = iter(results)
        self.env = dict(before)
        for name, (_, tree) in carried.items():
            self._rebind(name, tree.build(flat))
        for name in names - set(carried):
            self.env[name] = Undefined(f"it is bound only inside the loop in line {line}, which may not run at all")

    def _containers(self) -> list[tuple[str, Any, Any]]:
        return [
            (n, v, list(v.items()) if isinstance(v, dict) else list(v))
            for n, v in self.env.items()
            if type(v) in (list, dict, set)
        ]

    def _unchanged(self, snapshot: list[tuple[str, Any, Any]], s: ast.stmt) -> None:
        for name, value, old in snapshot:
            new = list(value.items()) if isinstance(value, dict) else list(value)
            if len(new) != len(old) or any(
                a is not b and not (isinstance(a, tuple) and all(x is y for x, y in zip(a, b)))
                for a, b in zip(new, old)
            ):
                raise self.fail(
                    "not-translated",
                    f"the loop changes the {type(value).__name__} `{name}` in place",
                    s,
                    why="the loop's body is translated once and runs many times",
                    do="carry tiles in variables, or unroll the loop with tl.static_range",
                )

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
        backward = step.const is not None and step.const < 0
        first, last = low, high
        if backward:
            # run forwards over the mirrored range; the index is mirrored back below
            low, high, step = last, first, operators.neg(step)
        names = stored_names(s.body) - {s.target.id}
        carried = self._carried(names)
        before, snapshot = dict(self.env), self._containers()
        induction = Value(TileType(t), s.target.id)
        block = Block(args=(induction, *self._arguments(carried)))
        self.ctx.builder.open(block)
        self.in_loop += 1
        try:
            index = tensor(induction)
            self.env[s.target.id] = operators.sub(operators.add(first, last), index) if backward else index
            self.assigned[s.target.id] = where
            self.execute(s.body)
            block.yields = self._yields(carried, self.where(s))
        finally:
            self.in_loop -= 1
            self.ctx.builder.close()
        self._unchanged(snapshot, s)
        inits = [x for tiles, _ in carried.values() for x in tiles]
        types = [x.handle.type for x in inits]
        results = self._emit("for", [low, high, step, *inits], types, where, [block], hints=bounds.hints)
        self._after_loop(before, carried, results, names | {s.target.id}, where.line)

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

    def run_time_while(self, s: ast.While) -> None:
        """A `while` loop on run-time values."""
        where = self.at(s.test)
        if s.orelse:
            raise self.fail(
                "not-translated",
                "`else` of a run-time loop",
                s.orelse[0],
                why="such a loop always runs to its end",
                do="put the statements after the loop",
            )
        names = stored_names([*s.body, s.test])
        carried = self._carried(names)
        before, snapshot = dict(self.env), self._containers()
        inits = [x for tiles, _ in carried.values() for x in tiles]
        test = Block(args=tuple(self._arguments(carried)))
        self.ctx.builder.open(test)
        try:
            condition = self._while_condition(s)
        finally:
            self.ctx.builder.close()
        if condition is False:
            self.env = before
            return
        test.yields = (condition.handle,)
        self.env = dict(before)
        body = Block(args=tuple(self._arguments(carried)))
        self.ctx.builder.open(body)
        self.in_loop += 1
        try:
            self.execute(s.body)
            body.yields = self._yields(carried, self.where(s))
        finally:
            self.in_loop -= 1
            self.ctx.builder.close()
        self._unchanged(snapshot, s)
        results = self._emit("while", inits, [x.handle.type for x in inits], where, [test, body])
        self._after_loop(before, carried, results, names, where.line)

    def _while_condition(self, s: ast.While) -> Any:
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
        raise self.fail(
            "loop-exit",
            f"the condition `{ast.unparse(s.test)}` of `while` is always true",
            s.test,
            why="nothing in the condition changes in the loop, and `break` has no translation",
            do="put the exit into the condition: `while not done:`",
        )


_MISSING = object()


def _types(tiles: list[tensor], tree: Tree) -> str:
    if tree.kind in ("tile", "static") and len(tiles) <= 1:
        return str(tiles[0].handle.type) if tiles else str(tree)
    return f"{tree} ({', '.join(str(t.handle.type) for t in tiles)})"
