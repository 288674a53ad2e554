"""Calls: helpers are inlined, everything else is called by Python.

Input: a call node, or a function with arguments. Output: its value. Law: a function decorated with @triton.jit is
always inlined; a plain Python function of the user's is inlined when it is given run-time values, and called as it
is otherwise; library functions are called as they are.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import types
from typing import Any

from bridge.diagnostics.where import is_library, is_ours
from frontend_triton_compat.language import constexpr as constexpr_class
from frontend_triton_compat.language import control
from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language.aggregate import is_builtin
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.expressions import Expressions, is_run_time
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.structure import numbers, tiles_in

MAX_DEPTH = 100


def jit_target(value: Any) -> types.FunctionType | None:
    """The Python function behind a jit object (anything with a chain of ``.fn``), or None."""
    seen = value
    while not isinstance(seen, (types.FunctionType, type, types.ModuleType)) and hasattr(seen, "fn"):
        seen = getattr(seen, "__translated__", None) or seen.fn
        if isinstance(seen, types.FunctionType):
            return seen
    return None


class LocalFunction:
    """A function or lambda defined inside a kernel; sees the kernel's names."""

    def __init__(
        self, node: ast.FunctionDef | ast.Lambda, frame: Calls, defaults: tuple[Any, ...], kw_defaults: dict[str, Any]
    ):
        self.node, self.frame, self.defaults, self.kw_defaults = node, frame, defaults, kw_defaults
        self.__name__ = getattr(node, "name", "<lambda>")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inline the function at the current place."""
        return self.frame.inline_local(self, args, kwargs)

    def signature(self) -> inspect.Signature:
        """Its parameters, for binding arguments."""
        a = self.node.args
        P = inspect.Parameter
        params: list[inspect.Parameter] = []
        positional = [*a.posonlyargs, *a.args]
        first = len(positional) - len(self.defaults)
        for i, arg in enumerate(positional):
            default = self.defaults[i - first] if i >= first else P.empty
            params.append(
                P(arg.arg, P.POSITIONAL_ONLY if i < len(a.posonlyargs) else P.POSITIONAL_OR_KEYWORD, default=default)
            )
        if a.vararg:
            params.append(P(a.vararg.arg, P.VAR_POSITIONAL))
        for arg in a.kwonlyargs:
            params.append(P(arg.arg, P.KEYWORD_ONLY, default=self.kw_defaults.get(arg.arg, P.empty)))
        if a.kwarg:
            params.append(P(a.kwarg.arg, P.VAR_KEYWORD))
        return inspect.Signature(params)


def is_constexpr_annotation(annotation: Any) -> bool:
    """Whether a parameter's annotation is tl.constexpr (ours, the genuine one, or the words)."""
    if isinstance(annotation, str):
        return "constexpr" in annotation
    return annotation is constexpr_class or getattr(annotation, "__name__", "") == "constexpr"


def is_const_annotation(annotation: Any) -> bool:
    """Whether a parameter's annotation is tl.const: a pointer that is only read."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.split(".")[-1].strip() == "const"


class Calls(Expressions):
    """Evaluates calls."""

    def _eval_Call(self, node: ast.Call) -> Any:
        fn = self.evaluate(node.func)
        args = self._elements(node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                kwargs.update(self.evaluate(keyword.value))
            else:
                kwargs[keyword.arg] = self.evaluate(keyword.value)
        self.at(node)
        return ours(self.invoke(fn, tuple(args), kwargs))

    def invoke(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `fn` in the way that suits it."""
        if isinstance(fn, LocalFunction):
            return fn(*args, **kwargs)
        for name in _OF_THE_COMPILER & kwargs.keys():
            del kwargs[name]
        if isinstance(fn, types.BuiltinFunctionType) or fn in _TYPES:
            if fn.__name__ in _CHANGES:
                self.ctx.refuse_change(getattr(fn, "__self__", None))
            return _builtin(fn, args, kwargs)
        if getattr(fn, "is_constexpr_function", False) or type(fn).__name__ == "ConstexprFunction":
            return self._native(fn if callable(fn) and not hasattr(fn, "fn") else fn.fn, args, kwargs, plain=True)
        target = jit_target(fn)
        if target is not None:
            return self.inline(target, args, kwargs)
        if isinstance(fn, functools.partial):
            return self.invoke(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})
        if (
            isinstance(fn, types.MethodType)
            and isinstance(fn.__func__, types.FunctionType)
            and self._inlines(fn.__func__, args, kwargs)
        ):
            return self.inline(fn.__func__, (fn.__self__, *args), kwargs)
        if isinstance(fn, types.FunctionType):
            if self._inlines(fn, args, kwargs):
                return self.inline(fn, args, kwargs)
            return self._native(fn, args, kwargs, plain=not is_ours(fn.__code__.co_filename))
        return self._native(fn, args, kwargs, plain=False)

    def _inlines(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        file = fn.__code__.co_filename
        if is_ours(file) or is_library(file) or fn.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            return False
        return is_builtin(fn) or any(is_run_time(t) for t in tiles_in([*args, *kwargs.values()]))

    def _native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: bool) -> Any:
        if plain:
            args = tuple(numbers(a) for a in args)
            kwargs = {k: numbers(v) for k, v in kwargs.items()}
        where = self.ctx.where
        try:
            return fn(*args, **kwargs)
        finally:
            self.ctx.where = where

    # -- inlining --------------------------------------------------------------------------------------------------

    def inline(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a helper, its body translated in place."""
        raise NotImplementedError

    def inline_local(self, fn: LocalFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of an inner function, its body translated in place."""
        raise NotImplementedError

    def _eval_Lambda(self, node: ast.Lambda) -> Any:
        return self.local_function(node)

    def local_function(self, node: ast.FunctionDef | ast.Lambda) -> LocalFunction:
        """The object that an inner `def` or a lambda defines."""
        defaults = tuple(self.evaluate(d) for d in node.args.defaults)
        kw = {a.arg: self.evaluate(d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults) if d is not None}
        return LocalFunction(node, self, defaults, kw)


# -- Python's own functions on tiles -----------------------------------------------------------------------------------

_TYPES = (float, int, bool, str)
#: Methods that change a list, dict or set in place.
_CHANGES = frozenset(
    "append extend insert remove pop popitem clear sort reverse update setdefault add discard".split()
    + [f"{name}_update" for name in ("intersection", "difference", "symmetric_difference")]
)
#: Keyword arguments through which the genuine package hands its compiler to its own functions.
_OF_THE_COMPILER = frozenset({"_semantic", "_generator", "_builder"})


def _extreme(pick: Any, tl_pick: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    items = list(args[0]) if len(args) == 1 and not isinstance(args[0], tensor) else list(args)
    if not any(isinstance(i, tensor) for i in items) or kwargs:
        return pick(*args, **kwargs)
    out = items[0]
    for item in items[1:]:
        out = tl_pick(out, item)
    return out


def _isinstance(value: Any, cls: Any) -> bool:
    classes = cls if isinstance(cls, tuple) else (cls,)
    if constexpr_class in classes and not isinstance(value, tensor):
        return True
    return isinstance(value, tuple(c for c in classes if c is not constexpr_class) or ())


def _print(*args: Any, **kwargs: Any) -> None:
    if any(is_run_time(a) for a in args):
        prefix: list[str] = []
        for arg in args:
            if isinstance(arg, str):
                prefix.append(arg)
            else:
                control.device_print(" ".join([*prefix, ""]), arg)
                prefix.clear()
    else:
        builtins.print(*args, **kwargs)


def _builtin(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if fn is builtins.min:
        return _extreme(builtins.min, tl_math.minimum, args, kwargs)
    if fn is builtins.max:
        return _extreme(builtins.max, tl_math.maximum, args, kwargs)
    if fn is builtins.isinstance:
        return _isinstance(*args)
    if fn is builtins.print:
        return _print(*args, **kwargs)
    if fn is builtins.str and len(args) == 1 and isinstance(args[0], tensor):
        return str(args[0])
    return fn(*args, **kwargs)
