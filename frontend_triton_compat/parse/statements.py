"""Statements: assignments, static branches and loops, returns.

Input: statement nodes. Output: operations in the builder's current block, and what the function returns. Law:
statements run in Python's order from a work list, so a static `if` is spliced in place; where a run-time `if` leaves on
one side, the rest of the list belongs to the other.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections import deque
from dataclasses import dataclass
from typing import Any

from bridge.diagnostics import Where
from frontend_triton_compat.language import control
from frontend_triton_compat.language.aggregate import is_aggregate
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.calls import is_constexpr_annotation
from frontend_triton_compat.parse.exits import RETURNED, Exits, always_leaves, leaves
from frontend_triton_compat.parse.expressions import is_run_time
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.frame import Undefined, as_assigned
from frontend_triton_compat.parse.structure import describe, flatten, numbers, tiles_in


@dataclass(frozen=True)
class _Bind:
    target: ast.expr
    value: Any


class Statements(Exits):
    """Runs statement nodes."""

    def execute(self, statements: list[Any]) -> Any:
        """Run a function's statements and give what it returns."""
        self.body = statements
        function = self.enter("function")
        end = self.run(statements)
        left = True if end else self.env[function.flag]
        value = self.env.get(RETURNED)
        if left is not True and value is not None:
            raise self.return_type(describe(*flatten(value)), "None", self.ctx.where)
        return value

    def run(self, statements: list[Any]) -> bool:
        """Run statements; whether control never comes to their end."""
        work: deque[Any] = deque(statements)
        while work:
            s = work.popleft()
            if isinstance(s, _Bind):
                self.assign_raw(s.target, s.value)
            elif isinstance(s, ast.Return):
                value = as_assigned(self.evaluate(s.value)) if s.value is not None else None
                self.env[RETURNED] = value
                self.leave("return")
                return True
            elif isinstance(s, (ast.Break, ast.Continue)):
                self.leave(type(s).__name__.lower())
                return True
            elif isinstance(s, ast.If):
                condition = self.condition(s.test, "if")
                if not is_run_time(condition):
                    work.extendleft(reversed(s.body if condition else s.orelse))
                    continue
                where, rest = self.where(s.test), list(work)
                if not leaves(s):
                    self.branch(condition, s.body, s.orelse, where)
                elif always_leaves(s.body):
                    return self.branch(condition, s.body, [*s.orelse, *rest], where)
                elif always_leaves(s.orelse):
                    return self.branch(condition, [*s.body, *rest], s.orelse, where)
                elif self.branch(condition, s.body, s.orelse, where):
                    return True
                else:
                    return self.go_on(rest, where)
            elif isinstance(s, (ast.For, ast.While)):
                self._for(s) if isinstance(s, ast.For) else self.run_time_while(s)
                if leaves(s, ("return", "break", "continue")):
                    return self.go_on(list(work), self.where(s))
            else:
                self._simple(s)
        return False

    def go_on(self, rest: list[Any], where: Where) -> bool:
        """Run what follows, for those that have not left; whether control never comes to its end."""
        left = self.pending()
        if left is False:
            return self.run(rest)
        return True if left is True else bool(rest) and self.guarded(left, rest, where)

    def return_type(self, first: str, second: str, where: Where) -> Exception:
        """The diagnostic for a function whose paths return different types."""
        return self.fail(
            "return-type",
            f"`{self.source.function}` returns {first} on one path and {second} on another",
            where,
            why="which path runs is known only at run time, so the result needs one type",
            do="return values of one type on every path, and a value on every path if on any",
        )

    # -- simple statements -----------------------------------------------------------------------------------------

    def _simple(self, s: ast.stmt) -> None:
        method = getattr(self, f"_exec_{type(s).__name__}", None)
        if method is None:
            raise self.fail(
                "not-translated",
                f"a `{type(s).__name__.lower()}` statement",
                s,
                why="the kernel's text is translated, and this statement has no meaning on tiles",
                do="move it out of the kernel, into the Python code that launches it",
            )
        method(s)

    def _exec_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.evaluate(s.value)

    def _exec_Pass(self, s: ast.Pass) -> None:
        pass

    def _exec_Assign(self, s: ast.Assign) -> None:
        value = self.evaluate(s.value)
        self.at(s)
        for target in s.targets:
            self.assign(target, value, s)

    def _exec_AnnAssign(self, s: ast.AnnAssign) -> None:
        known = isinstance(s.target, ast.Name) and self._says_constexpr(s.annotation)
        if s.value is None:
            if known:
                self.constexprs.add(s.target.id)  # type: ignore[union-attr]
            return
        value = self.evaluate(s.value)
        self.at(s)
        if known:
            self.bind_known(s.target.id, value, s)  # type: ignore[union-attr]
        else:
            self.assign(s.target, value, s)

    def bind_known(self, name: str, value: Any, at: ast.AST) -> None:
        """Bind a name that is annotated tl.constexpr: numbers stay Python numbers."""
        value = numbers(value)
        if any(is_run_time(t) for t in tiles_in(value)):
            raise self.fail(
                "needs-constexpr",
                f"`{name}` is annotated tl.constexpr and its value is known only at run time",
                at,
                why="a constexpr is computed when the kernel is translated",
                do="drop the annotation, or compute the value from constexpr parameters only",
            )
        self.env[name] = value
        self.assigned[name] = self.where(at)

    def _says_constexpr(self, annotation: ast.expr) -> bool:
        if isinstance(annotation, (ast.Name, ast.Attribute)):
            return ast.unparse(annotation).split(".")[-1] == "constexpr"
        return is_constexpr_annotation(annotation.value) if isinstance(annotation, ast.Constant) else False

    def _exec_AugAssign(self, s: ast.AugAssign) -> None:
        target = s.target
        load: Any = ast.copy_location(
            ast.Name(target.id, ast.Load())
            if isinstance(target, ast.Name)
            else ast.Subscript(target.value, target.slice, ast.Load())
            if isinstance(target, ast.Subscript)
            else ast.Attribute(target.value, target.attr, ast.Load()),
            target,
        )
        left, right = self.evaluate(load), self.evaluate(s.value)
        self.at(s)
        self.assign(target, self.in_place(s.op, left, right), s)

    def assign(self, target: ast.expr, value: Any, at: ast.AST) -> None:
        """Bind a target as an assignment statement does."""
        if isinstance(target, ast.Name) and target.id in self.constexprs:
            self.bind_known(target.id, value, at)
        elif isinstance(target, ast.Name):
            self.bind(target.id, value, self.where(at))
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, lambda t, v: self.assign(t, v, at))
        else:
            self._store(target, value)

    def assign_raw(self, target: ast.expr, value: Any) -> None:
        """Bind the target of an unrolled loop: numbers stay Python numbers."""
        if isinstance(target, ast.Name):
            self.env[target.id] = value
            self.assigned[target.id] = self.where(target)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, self.assign_raw)
        else:
            self._store(target, value)

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, put: Any) -> None:
        items = list(value)
        stars = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
        count = len(target.elts)
        if stars:
            at = stars[0]
            after = count - at - 1
            items = [*items[:at], items[at : len(items) - after], *items[len(items) - after :]]
        if len(items) != count:
            raise self.fail(
                "kernel-python-error",
                f"{len(items)} values for {count} names",
                target,
                why="an assignment to several names needs as many values",
                do="give one name a value",
            )
        for t, v in zip(target.elts, items):
            put(t.value if isinstance(t, ast.Starred) else t, v)

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            base, index = self.evaluate(target.value), self.evaluate(target.slice)
            self.at(target)
            self.ctx.refuse_change(base)
            base[index if isinstance(base, tensor) else numbers(index)] = value
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value)
            self.at(target)
            if self.source.function != "__init__" and (is_aggregate(base) or self.ctx.builder.depth > 1):
                raise self.fail(
                    "not-translated",
                    f"an assignment to the attribute `{ast.unparse(target)}`",
                    target,
                    why="an aggregate is one value, and what a run-time branch or loop does to a Python object would "
                    "be seen on every path",
                    do="make a new object: tl.aggregate_replace(x, field=value)",
                )
            setattr(base, target.attr, value)
        else:
            raise self.fail(
                "not-translated",
                f"an assignment to {ast.unparse(target)}",
                target,
                why="it names no variable",
                do="assign to a name",
            )

    def _exec_Delete(self, s: ast.Delete) -> None:
        for target in s.targets:
            if isinstance(target, ast.Name):
                self.look_up(target.id, target)
                self.env[target.id] = Undefined("it was deleted")

    def _exec_FunctionDef(self, s: ast.FunctionDef) -> None:
        self.env[s.name] = self.local_function(s)

    def _exec_Import(self, s: ast.Import) -> None:
        for alias in s.names:
            module = importlib.import_module(alias.name)
            root = importlib.import_module(alias.name.split(".")[0]) if alias.asname is None else module
            self.env[alias.asname or alias.name.split(".")[0]] = ours(root)

    def _exec_ImportFrom(self, s: ast.ImportFrom) -> None:
        package = self.fn.__globals__.get("__package__") if self.fn is not None else None
        module = importlib.import_module("." * s.level + (s.module or ""), package)
        for alias in s.names:
            self.env[alias.asname or alias.name] = ours(getattr(module, alias.name))

    def _exec_Assert(self, s: ast.Assert) -> None:
        value = self.evaluate(s.test)
        self.at(s)
        if is_run_time(value):
            control.device_assert(value, self.evaluate(s.msg) if s.msg is not None else "")
        elif not value:
            message = str(self.evaluate(s.msg)) if s.msg is not None else f"`{ast.unparse(s.test)}` is false"
            raise self.fail(
                "static-assert",
                message,
                s,
                why="the kernel asserts this about values that are known when it is translated",
                do="launch the kernel with arguments that satisfy it",
            )

    def _exec_Raise(self, s: ast.Raise) -> None:
        problem = self.evaluate(s.exc) if s.exc is not None else None
        name = problem.__name__ if isinstance(problem, type) else type(problem).__name__
        raise self.fail(
            "kernel-python-error",
            f"the kernel raises {name}: {problem}",
            s,
            why="this statement is reached while the kernel is translated",
            do="launch the kernel with arguments for which it does not raise",
        )

    # -- loops -----------------------------------------------------------------------------------------------------

    def _for(self, s: ast.For) -> None:
        """Run a loop: over run-time integers as one operation, over anything else turn by turn."""
        bounds: Any = None
        if isinstance(s.iter, ast.Call):
            fn = self.evaluate(s.iter.func)
            if fn is builtins.range:
                args = self._elements(s.iter.args)
                self.at(s.iter)
                if not 1 <= len(args) <= 3 or s.iter.keywords:
                    raise TypeError("range takes one to three arguments and no keywords")
                bounds = control.range(*args)
        if bounds is None:
            iterable = self.evaluate(s.iter)
            if isinstance(iterable, builtins.range):
                bounds = control.range(iterable.start, iterable.stop, iterable.step)
            elif isinstance(iterable, control.range):
                bounds = iterable
            else:
                self._unrolled(s, self.iterate(iterable, s.iter))
                return
        self.run_time_for(s, bounds)

    def _unrolled(self, s: ast.For, items: list[Any]) -> None:
        loop = self.enter("loop")
        where = self.where(s)
        for item in items:
            turn = self.enter("turn")
            self.go_on([_Bind(s.target, item), *s.body], where)
            self.close(turn)
            if self.pending() is True:
                break
        self.go_on(s.orelse, where)
        self.close(loop)

    # -- given by the mixin below ------------------------------------------------------------------------------------

    def branch(self, condition: tensor, then: list[Any], other: list[Any], where: Where) -> bool:
        """A run-time `if`; whether no side comes to its end."""
        raise NotImplementedError

    def guarded(self, left: tensor, rest: list[Any], where: Where) -> bool:
        """Statements for the programs that have not left."""
        raise NotImplementedError

    def run_time_for(self, s: ast.For, bounds: control.range) -> None:
        """A `for` over a range."""
        raise NotImplementedError

    def run_time_while(self, s: ast.While) -> None:
        """A `while` loop."""
        raise NotImplementedError
