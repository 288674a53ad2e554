"""Gives `tensor` its operators and methods.

Input: the functions of this package. Output: none; runs once, at import. Law: a method is the function with the
handle as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend_triton_compat.language import combine, creation, math, memory, operators, reduction, shaping
from frontend_triton_compat.language.tensor import tensor


def _method(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    def method(self: tensor, *args: Any, **kwargs: Any) -> Any:
        return fn(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = fn.__doc__
    return method


_METHODS: dict[str, Callable[..., Any]] = {
    "to": creation.cast_,
    "cast": creation.cast_,
    "broadcast_to": shaping.broadcast_to,
    "trans": shaping.trans,
    "permute": shaping.permute,
    "split": shaping.split,
    "view": shaping.view,
    "reshape": shaping.reshape,
    "expand_dims": shaping.expand_dims,
    "ravel": shaping.ravel,
    "squeeze": shaping.squeeze,
    "unsqueeze": shaping.unsqueeze,
    "flip": shaping.flip,
    "gather": shaping.gather,
    "sort": shaping.sort,
    "histogram": shaping.histogram,
    "item": shaping.item,
    "store": memory.store,
    "load": memory.load,
    "atomic_add": memory.atomic_add,
    "atomic_max": memory.atomic_max,
    "atomic_min": memory.atomic_min,
    "atomic_and": memory.atomic_and,
    "atomic_or": memory.atomic_or,
    "atomic_xor": memory.atomic_xor,
    "atomic_xchg": memory.atomic_xchg,
    "atomic_cas": memory.atomic_cas,
    "advance": memory.advance,
    "exp": math.exp,
    "exp2": math.exp2,
    "log2": math.log2,
    "floor": math.floor,
    "ceil": math.ceil,
    "erf": math.erf,
    "sqrt_rn": math.sqrt_rn,
    "log": math.log,
    "cos": math.cos,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "rsqrt": math.rsqrt,
    "abs": math.abs,
    "cdiv": math.cdiv,
    "sigmoid": math.sigmoid,
    "softmax": reduction.softmax,
    "sum": reduction.sum,
    "max": reduction.max,
    "min": reduction.min,
    "argmax": reduction.argmax,
    "argmin": reduction.argmin,
    "xor_sum": reduction.xor_sum,
    "reduce_or": reduction.reduce_or,
    "reduce": combine.reduce,
    "associative_scan": combine.associative_scan,
    "cumsum": reduction.cumsum,
    "cumprod": reduction.cumprod,
    "logical_and": operators.logical_and,
    "logical_or": operators.logical_or,
    "__getitem__": shaping.index,
    "__neg__": operators.neg,
    "__invert__": operators.invert,
    "__abs__": math.abs,
}
_BINARY = {
    "add": operators.add,
    "sub": operators.sub,
    "mul": operators.mul,
    "truediv": operators.truediv,
    "floordiv": operators.floordiv,
    "mod": operators.mod,
    "and": operators.and_,
    "or": operators.or_,
    "xor": operators.xor,
    "lshift": operators.shl,
    "rshift": operators.shr,
    "pow": operators.power,
    "matmul": operators.matmul,
}


def _swapped(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: fn(other, self)


def _comparison(fn: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: operators.compare(fn, self, other)


def install() -> None:
    """Set every operator and method on the class."""
    for name, fn in _METHODS.items():
        setattr(tensor, name, _method(fn, name))
    for name, fn in _BINARY.items():
        setattr(tensor, f"__{name}__", fn)
        setattr(tensor, f"__r{name}__", _swapped(fn))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(tensor, f"__{name}__", _comparison(name))
    tensor.__pos__ = lambda self: self  # type: ignore[attr-defined]
    tensor.T = property(lambda self: shaping.trans(self), doc="The tile with its last two dimensions swapped.")  # type: ignore[attr-defined]


install()
