"""Find the arrays that a kernel captures, by name and line.

Input: a kernel (function, closure, partial) and the exception that tracing it raised. Output: the ``captured-array``
diagnostic, or None when the exception has another cause. Law: a capture that does no harm is not reported.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from bridge.diagnostics import Diagnostic, Where, error


def is_array(value: Any) -> bool:
    """Whether a value is array data: a torch tensor, a jax array or a non-scalar numpy array."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    module = type(value).__module__
    return (
        module.startswith(("torch", "jax"))
        and hasattr(value, "shape")
        and hasattr(value, "dtype")
        and not isinstance(value, type)
    )


def arrays(fn: Any, _seen: set[int] | None = None) -> Iterator[tuple[str, Any, Where | None]]:
    """Arrays reachable from a function: (variable name, value, place of its first use)."""
    seen = _seen if _seen is not None else set()
    if id(fn) in seen:
        return
    seen.add(id(fn))
    if isinstance(fn, functools.partial):
        bound = [(f"argument {i}", a) for i, a in enumerate(fn.args)] + list(fn.keywords.items())
        for name, value in bound:
            if is_array(value):
                yield name, value, Where.of_function(fn.func)
        yield from arrays(fn.func, seen)
        return
    fn = getattr(fn, "__wrapped__", fn)
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if not isinstance(fn, types.FunctionType):
        return
    code = fn.__code__
    values: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue
    for name in _global_names(code):
        if name in fn.__globals__:
            values.setdefault(name, fn.__globals__[name])
    for name, value in zip(reversed(code.co_varnames[: code.co_argcount]), reversed(fn.__defaults__ or ())):
        values.setdefault(name, value)
    values.update({k: v for k, v in (fn.__kwdefaults__ or {}).items() if k not in values})
    for name, value in values.items():
        if is_array(value):
            yield name, value, _use(code, name)
        elif isinstance(value, (types.FunctionType, functools.partial)) and not _is_library(value):
            yield from arrays(value, seen)


def diagnose(exc: Exception, kernel: Any) -> Diagnostic | None:
    """The ``captured-array`` diagnostic if that is why tracing failed, else None."""
    text = str(exc)
    by_jax = "captures constants" in text
    found = list(arrays(kernel))
    foreign = [f for f in found if type(f[1]).__module__.startswith("torch")]
    if not by_jax and not (foreign and isinstance(exc, TypeError)):
        return None
    name, value, where = (found if by_jax else foreign)[0] if found else ("an array", None, None)
    shape = f" of shape {tuple(value.shape)}" if value is not None else ""
    label = f"`{name}`" if value is not None else "an array"
    return error(
        "captured-array",
        f"the kernel captures {label}{shape}",
        where=where or Where.of_function(kernel),
        why="a Pallas kernel reads memory only through its Refs; an array from outside has no Ref and no block.",
        do=f"pass it as an input: a parameter `{name}_ref` of the kernel, a BlockSpec in in_specs, {name} in the call"
        if value is not None
        else "pass it as an input with its own BlockSpec; index tables can be rebuilt with jax.lax.broadcasted_iota",
    )


def _is_library(fn: Any) -> bool:
    from bridge.diagnostics.where import is_library

    code = getattr(getattr(fn, "func", fn), "__code__", None)
    return code is None or is_library(code.co_filename)


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _use(code: types.CodeType, name: str) -> Where | None:
    for instruction in dis.get_instructions(code):
        if instruction.argval == name and instruction.opname.startswith("LOAD") and instruction.positions:
            p = instruction.positions
            if p.lineno is None:
                continue
            col = (p.col_offset or 0) + 1 if p.col_offset is not None else 0
            end = (p.end_col_offset or 0) + 1 if col and p.end_lineno == p.lineno else 0
            return Where(code.co_filename, p.lineno, col, end, code.co_name)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and (found := _use(constant, name)):
            return found
    return None
