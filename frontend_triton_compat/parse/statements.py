"""Statements: assignments, static branches and loops, returns.

Input: statement nodes. Output: operations in the builder's current block, and the returned value if the statements
return. Law: statements run in Python's order from a work list, so a static `if` or loop is spliced in place and a
run-time `if` that returns can take the rest of the function into its branches.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections import deque
from dataclasses import dataclass
from typing import Any

from frontend_triton_compat.language import control
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.calls import Calls, is_constexpr_annotation
from frontend_triton_compat.parse.expressions import is_run_time
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.frame import Undefined, as_assigned
from frontend_triton_compat.parse.structure import numbers


@dataclass(frozen=True)
class Returned:
    """The statements returned this value."""

    value: Any


@dataclass(frozen=True)
class _Bind:
    target: ast.expr
    value: Any


@dataclass(frozen=True)
class _EndOfTurn:
    pass


@dataclass(frozen=True)
class _EndOfLoop:
    pass


class Statements(Calls):
    """Runs statement nodes."""

    def execute(self, statements: list[Any]) -> Returned | None:
        """Run statements; `Returned` if they return, None if they run to the end."""
        work: deque[Any] = deque(statements)
        while work:
            s = work.popleft()
            if isinstance(s, _Bind):
                self.assign_raw(s.target, s.value)
            elif isinstance(s, (_EndOfTurn, _EndOfLoop)):
                continue
            elif isinstance(s, ast.Return):
                self._leaving(s, "return", None)
                return Returned(as_assigned(self.evaluate(s.value)) if s.value is not None else None)
            elif isinstance(s, (ast.Break, ast.Continue)):
                self._leaving(s, type(s).__name__.lower(), work)
            elif isinstance(s, ast.If):
                condition = self.condition(s.test, "if")
                if not is_run_time(condition):
                    work.extendleft(reversed(s.body if condition else s.orelse))
                elif leaves(s):
                    return self.branch_to_the_end(s, condition, [*s.body, *work], [*s.orelse, *work])
                else:
                    self.run_time_if(s, condition)
            elif isinstance(s, ast.For):
                turns = self._for(s)
                if turns is not None:
                    work.extendleft(reversed(turns))
            else:
                self._simple(s)
        return None

    def _leaving(self, node: ast.stmt, word: str, work: deque[Any] | None) -> None:
        """Check a return, break or continue; drop the work that it skips."""
        if work is not None:
            stop = _EndOfLoop if word == "break" else _EndOfTurn
            while work:
                if isinstance(work.popleft(), stop):
                    return
        elif not self.in_loop:
            return
        raise self.fail(
            "loop-exit",
            f"`{word}` in a loop over run-time values",
            node,
            why="the loop becomes one structured operation with a fixed way through its body",
            do=(
                "turn the exit into a condition: `while i < n and not done:`",
                "or mask the work after it: tl.load(p, mask=active), tl.where(active, new, old)",
                "or unroll the loop with tl.static_range",
            ),
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
        if s.value is None:
            return
        value = self.evaluate(s.value)
        self.at(s)
        if isinstance(s.target, ast.Name) and self._says_constexpr(s.annotation):
            value = numbers(value)
            if is_run_time(value):
                raise self.fail(
                    "needs-constexpr",
                    f"`{s.target.id}` is annotated tl.constexpr and its value is known only at run time",
                    s.value,
                    why="a constexpr is computed when the kernel is translated",
                    do="drop the annotation, or compute the value from constexpr parameters only",
                )
            self.env[s.target.id] = value
            self.assigned[s.target.id] = self.where(s)
        else:
            self.assign(s.target, value, s)

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
        if isinstance(target, ast.Name):
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
            base[index if isinstance(base, tensor) else numbers(index)] = value
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value)
            self.at(target)
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

    def _for(self, s: ast.For) -> list[Any] | None:
        """Run a run-time loop, or give the work list of an unrolled one."""
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
                return self._unrolled(s, self.iterate(iterable, s.iter))
        if s.orelse:
            raise self.fail(
                "not-translated",
                "`else` of a run-time loop",
                s.orelse[0],
                why="such a loop always runs to its end",
                do="put the statements after the loop",
            )
        self.run_time_for(s, bounds)
        return None

    def _unrolled(self, s: ast.For, items: list[Any]) -> list[Any]:
        turns: list[Any] = []
        for item in items:
            turns += [_Bind(s.target, item), *s.body, _EndOfTurn()]
        return [*turns, *s.orelse, _EndOfLoop()]

    def _exec_While(self, s: ast.While) -> None:
        self.run_time_while(s)

    # -- given by the mixin below ------------------------------------------------------------------------------------

    def run_time_if(self, s: ast.If, condition: tensor) -> None:
        """An `if` whose branches both come back."""
        raise NotImplementedError

    def branch_to_the_end(self, s: ast.If, condition: tensor, then: list[Any], other: list[Any]) -> Returned:
        """An `if` whose branches run to the end of the function."""
        raise NotImplementedError

    def run_time_for(self, s: ast.For, bounds: control.range) -> None:
        """A `for` over a range."""
        raise NotImplementedError

    def run_time_while(self, s: ast.While) -> None:
        """A `while` loop."""
        raise NotImplementedError


def leaves(node: ast.AST) -> bool:
    """Whether a statement holds a return, or a break or continue of a loop around it."""

    def search(n: ast.AST, loop: bool) -> bool:
        if isinstance(n, (ast.FunctionDef, ast.Lambda)):
            return False
        if isinstance(n, ast.Return) or (isinstance(n, (ast.Break, ast.Continue)) and not loop):
            return True
        loop = loop or isinstance(n, (ast.For, ast.While))
        return any(search(c, loop) for c in ast.iter_child_nodes(n))

    return search(node, False)
