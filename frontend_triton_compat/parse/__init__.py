"""Python source to tile IR: the first step of a kernel's life.

Input: a Python function, its specialised parameters, the grid. Output: an `ir.Kernel`. Law: the syntax tree is
walked once; Python evaluates what is not a tile value, helpers are inlined, run-time control flow stays structured;
whatever goes wrong is a diagnostic at the user's expression.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.diagnostics import Where, error
from frontend_triton_compat import ir
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import Context, translating
from frontend_triton_compat.language.descriptor import given_descriptor
from frontend_triton_compat.language.semantic import constant
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.calls import is_const_annotation, jit_target
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.frame import stored_names
from frontend_triton_compat.parse.inline import Function, _run, body_of
from frontend_triton_compat.parse.outside import Outside
from frontend_triton_compat.parse.simplify import simplify
from frontend_triton_compat.parse.source import read_function
from frontend_triton_compat.types import FP32, TileType, pointer_type

__all__ = ["parse"]


def parse(
    fn: Any, args: Mapping[str, ir.Param], grid: Sequence[int], outside: Outside | None = None, assertions: bool = False
) -> ir.Kernel:
    """Translate a kernel for one specialisation.

    Args:
        fn: the kernel's Python function, or an object whose ``.fn`` leads to it.
        args: every parameter by name, as the launcher specialised it.
        grid: number of programs on one to three axes.
        outside: where what the kernel takes from outside is noted.
        assertions: whether run-time assertions are kept: with debug on, as in Triton.

    Returns:
        The kernel's IR.

    Raises:
        Diagnostic: the kernel has no translation, or its own Python code failed; always with the user's line.
    """
    function = fn if inspect.isfunction(fn) else jit_target(fn)
    if function is None:
        raise error(
            "bad-argument",
            f"{type(fn).__name__} is not a kernel",
            why="a kernel is a Python function, or an object made from one by @triton.jit",
            do="decorate a function with @triton.jit",
        )
    node, source = read_function(function)
    where = source.where(node)
    builder = ir.Builder()
    width, height, depth = (*(int(g) for g in grid), 1, 1, 1)[:3]
    sizes = (width, height, depth)
    any_shape = getattr(function, "__any_shape__", False)
    ctx = Context(builder, sizes, where, _no_call, outside or Outside(), any_shape, assertions)
    parameters = inspect.signature(function).parameters
    names = list(parameters)
    missing = [n for n in names if n not in args]
    if missing:
        raise error(
            "bad-argument",
            f"no value for the parameter{'s' if len(missing) > 1 else ''} {', '.join(missing)} of {function.__name__}",
            where=where,
            why="a kernel is translated for given arguments",
            do="pass every argument in the launch: kernel[grid](...)",
        )
    params = tuple(args[n] for n in names)
    frame = Function(ctx, source, function, set(names) | stored_names(body_of(node)))
    ctx.call = frame.invoke
    with translating(ctx):
        for name, param in zip(names, params):
            only_read = is_const_annotation(parameters[name].annotation)
            frame.env[name] = _argument(param, ctx, _place(source, node, name, where), only_read)
        ctx.where = where
        _run(frame, body_of(node), function.__name__)
    name = function.__name__ if function.__name__.isidentifier() else "kernel"  # a lambda has no name
    return simplify(ir.Kernel(name, params, sizes, builder.block, where))


def _place(source: Any, node: Any, name: str, default: Where) -> Where:
    for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if arg.arg == name:
            return source.where(arg)
    return default


def _argument(param: ir.Param, ctx: Context, where: Where, only_read: bool = False) -> Any:
    """What the kernel's body sees as this parameter."""
    ctx.where = where
    if param.kind == "constexpr":
        value = ours(unwrap(param.value))
        ctx.keep(value, f"the argument `{param.name}`")
        return value
    if param.kind == "tuple":
        items = [_argument(p, ctx, where) for p in param.items]
        return tuple(items) if param.value in (None, tuple) else param.value(*items)
    if param.kind == "descriptor":
        return given_descriptor(*(_argument(p, ctx, where) for p in param.items), *param.value)
    if param.kind == "int":
        number = constant(int(param.value), param.type, name=param.name, literal=False)
        number.handle.name = param.name
        return number
    pointer = param.kind == "pointer"
    t = TileType(pointer_type(param.type, const=only_read) if pointer else param.type or FP32)
    (value,) = ctx.builder.emit("arg", [], [t], where, name=param.name, index=param.index)
    value.name = param.name
    return tensor(value)


def _no_call(fn: Any, args: Any, kwargs: Any) -> Any:
    raise AssertionError("the context has no frame yet")
