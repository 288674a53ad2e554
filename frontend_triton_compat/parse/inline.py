"""Whole functions: the kernel itself and the helpers it calls, bound to their arguments and run.

Input: a function and argument values. Output: its value, its operations in the builder. Law: every error that
escapes is a diagnostic at the user's expression.
"""

from __future__ import annotations

import ast
import inspect
import types
from dataclasses import replace
from typing import Any

from bridge.diagnostics import Diagnostic
from frontend_triton_compat.language.context import Context, fail
from frontend_triton_compat.parse.calls import MAX_DEPTH, LocalFunction, is_constexpr_annotation
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.frame import stored_names
from frontend_triton_compat.parse.regions import Regions
from frontend_triton_compat.parse.source import read_function
from frontend_triton_compat.parse.structure import numbers


class Function(Regions):
    """One function being read."""

    def inline(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a helper, its body translated in place."""
        return inline(self.ctx, fn, args, kwargs)

    def inline_local(self, fn: LocalFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of an inner function, its body translated in place."""
        names = set(fn.signature().parameters)
        body = body_of(fn.node)
        source = replace(self.source, called_from=self.ctx.where)
        frame = Function(self.ctx, source, None, names | stored_names(body), outer=self)
        frame.env.update(_bind(fn.signature(), args, kwargs, fn.__name__))
        return _run(frame, body, fn.__name__)


def inline(ctx: Context, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of a function of the user's, its body translated in place."""
    node, source = read_function(fn)
    signature = inspect.signature(fn)
    values = _bind(signature, args, kwargs, fn.__name__)
    for name, parameter in signature.parameters.items():
        value = ours(values[name])
        if is_constexpr_annotation(parameter.annotation):
            value = numbers(value)  # a run-time value stays one: Triton reads annotations of launched kernels only
        values[name] = value
    body = body_of(node)
    frame = Function(ctx, replace(source, called_from=ctx.where), fn, set(values) | stored_names(body))
    frame.env.update(values)
    for name, parameter in signature.parameters.items():
        if values[name] is parameter.default:
            ctx.keep(values[name], f"the default of `{name}`")
    return _run(frame, body, fn.__name__)


def body_of(node: ast.FunctionDef | ast.Lambda) -> list[ast.stmt]:
    """The statements of a function; a lambda returns its expression."""
    if isinstance(node, ast.FunctionDef):
        return node.body
    return [ast.copy_location(ast.Return(node.body), node.body)]


def _bind(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise fail(
            "helper-arguments",
            f"the call of {name} does not fit {name}{signature}",
            why=str(problem),
            do="pass the arguments that the helper's signature asks for",
        ) from problem
    bound.apply_defaults()
    return dict(bound.arguments)


def _run(frame: Function, body: list[ast.stmt], name: str) -> Any:
    ctx, where = frame.ctx, frame.ctx.where
    if len(ctx.calls) >= MAX_DEPTH:
        raise fail(
            "not-translated",
            f"{name} is called more than {MAX_DEPTH} helpers deep",
            why="helpers are inlined, so a recursion must end while the kernel is translated",
            do="end the recursion on a tl.constexpr argument, or write it as a loop",
        )
    ctx.calls.append(name)
    try:
        value = frame.execute(body)
    except Diagnostic as diagnostic:
        raise diagnostic.at(ctx.where) from diagnostic.__cause__
    except Exception as problem:
        raise fail(
            "kernel-python-error",
            f"{type(problem).__name__}: {problem}",
            why="Python evaluates everything in a kernel that is not a tile, and this expression raised an error",
            do="correct the expression; compute what tiles can't express before the launch",
        ) from problem
    finally:
        ctx.calls.pop()
    ctx.where = where
    return value
