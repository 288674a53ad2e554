"""One function being read: its names, its place in the user's file, the kernel it belongs to.

Input: a function (or a part of one) and a context. Output: name look-up and binding for the evaluator. Law: a name
means what Python says it means: local, enclosing, global, built-in; a Python number bound to a name becomes a
constant of the kernel, as in Triton, unless it was annotated tl.constexpr.
"""

from __future__ import annotations

import ast
import builtins
import types
from dataclasses import dataclass
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat.language.context import Context
from frontend_triton_compat.language.semantic import to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.outside import Outside
from frontend_triton_compat.parse.source import Source


@dataclass(frozen=True)
class Undefined:
    """The value of a name that has none on every path, and why."""

    why: str


class Frame:
    """Names and places of one function while it is read.

    Attributes:
        ctx: the kernel being translated.
        source: the user's file.
        env: local names.
        outer: the frame whose names an inner function sees, if any.
        fn: the Python function, None for an inner function or lambda.
        locals: every name the function binds.
        assigned: where each local name was bound last.
        body: the function's statements.
        constexprs: names that were annotated tl.constexpr before they got a value.
    """

    def __init__(
        self, ctx: Context, source: Source, fn: types.FunctionType | None, names: set[str], outer: Frame | None = None
    ):
        self.ctx, self.source, self.fn, self.outer = ctx, source, fn, outer
        self.env: dict[str, Any] = {}
        self.locals = names
        self.assigned: dict[str, Where] = {}
        self.body: list[Any] = []
        self.constexprs: set[str] = set()

    def where(self, node: ast.AST) -> Where:
        """The user's place of a node."""
        return self.source.where(node)

    def at(self, node: ast.AST) -> Where:
        """Make a node the current expression and return its place."""
        self.ctx.where = self.where(node)
        return self.ctx.where

    def fail(
        self, slug: str, what: str, node: ast.AST | Where, *, why: str = "", do: str | tuple[str, ...] = ()
    ) -> Diagnostic:
        """A diagnostic at a node (or place), ready to be raised."""
        return error(slug, what, where=node if isinstance(node, Where) else self.where(node), why=why, do=do)

    # -- names ---------------------------------------------------------------------------------------------------

    def look_up(self, name: str, node: ast.AST) -> Any:
        """The value of a name.

        Raises:
            Diagnostic: it has none (``undefined-name``).
        """
        frame: Frame | None = self
        while frame is not None:
            if name in frame.env:
                return self._defined(name, frame.env[name], node)
            if frame is self and name in frame.locals:
                break
            if frame.fn is not None:
                found, value = _outside(frame.fn, name, self.ctx.names)
                if found:
                    value = ours(value)
                    self.ctx.keep(value, f"`{name}`")
                    return value
            frame = frame.outer
        raise self.fail(
            "undefined-name",
            f"`{name}` is not defined",
            node,
            why="it is neither a local variable with a value here, nor an enclosing, a global or a built-in name",
            do=f"give `{name}` a value before this line, or import it in the kernel's module",
        )

    def _defined(self, name: str, value: Any, node: ast.AST) -> Any:
        if isinstance(value, Undefined):
            raise self.fail(
                "undefined-name",
                f"`{name}` has no value here",
                node,
                why=value.why,
                do=f"give `{name}` a value of the same type before the loop or `if`, and in every branch",
            )
        return value

    def read_outside(self, name: str, s: ast.stmt) -> bool:
        """Whether the function reads a name in a line that does not belong to a statement."""
        lines = range(s.lineno, (s.end_lineno or s.lineno) + 1)
        nodes = (n for statement in self.body for n in ast.walk(statement) if isinstance(n, ast.Name))
        return any(n.id == name and isinstance(n.ctx, ast.Load) and n.lineno not in lines for n in nodes)

    def visible(self) -> list[dict[str, Any]]:
        """The local variables that this function sees, its own first."""
        scopes, frame = [], self
        while frame is not None:
            scopes.append(frame.env)
            frame = frame.outer
        return scopes

    def bind(self, name: str, value: Any, where: Where) -> None:
        """Give a local name a value; Python numbers become constants of the kernel."""
        value = as_assigned(value)
        if isinstance(value, tensor) and not value.handle.name:
            value.handle.name = name
        self.env[name] = value
        self.assigned[name] = where


def as_assigned(value: Any) -> Any:
    """What a variable holds after it was assigned `value`."""
    if type(value) in (bool, int, float):
        return to_tensor(value)
    if type(value) is tuple:
        return tuple(as_assigned(v) for v in value)
    return value


def _outside(fn: types.FunctionType, name: str, seen: Outside) -> tuple[bool, Any]:
    free = fn.__code__.co_freevars
    if name in free:
        cell = (fn.__closure__ or ())[free.index(name)]
        try:
            value = cell.cell_contents
        except ValueError:
            return False, None
        seen.cell(cell, value)
        return True, value
    if name in fn.__globals__:
        value = fn.__globals__[name]
        seen.name(fn.__globals__, name, value)
        return True, value
    if hasattr(builtins, name):
        return True, getattr(builtins, name)
    return False, None


def stored_names(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    """Every name that these statements bind, those of inner functions left out."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            return
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for child in ast.walk(node):
                if isinstance(child, ast.NamedExpr) and isinstance(child.target, ast.Name):
                    found.add(child.target.id)
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        for child in ast.iter_child_nodes(node):
            visit(child)

    for node in nodes:
        visit(node)
    return found
