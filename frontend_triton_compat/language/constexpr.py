"""`tl.constexpr`: a value known when a kernel is translated, and the decorator for functions on such values.

Input: any Python object. Output: an object with arithmetic that gives constexprs again, as in Triton. Law: `unwrap`
gives the plain object back at any depth; inside a kernel the parser works on unwrapped values only.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any


def unwrap(value: Any) -> Any:
    """The plain Python object behind a constexpr, a tuple or a list of constexprs."""
    if isinstance(value, constexpr):
        return unwrap(value.value)
    if type(value).__name__ == "constexpr" and hasattr(value, "value"):  # the genuine package's class
        return unwrap(value.value)
    if isinstance(value, tuple) or type(value) is list:
        items = [unwrap(v) for v in value]
        if all(a is b for a, b in zip(items, value)):
            return value  # a container keeps its identity: who appends to it means this one
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class constexpr:
    """A value known when the kernel is translated; also the annotation that marks such parameters."""

    def __init__(self, value: Any):
        while isinstance(value, constexpr):
            value = value.value
        self.value = value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is wrapped."""
        return self.value(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()})

    def __getitem__(self, index: Any) -> Any:
        return constexpr(self.value[unwrap(index)])

    def __pow__(self, other: Any) -> Any:
        return constexpr(self.value ** unwrap(other))

    def logical_and(self, other: Any) -> constexpr:
        """``and`` of two constexprs."""
        return constexpr(self.value and unwrap(other))

    def logical_or(self, other: Any) -> constexpr:
        """``or`` of two constexprs."""
        return constexpr(self.value or unwrap(other))


def _forward(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: constexpr, other: Any) -> Any:
        other = unwrap(other)
        if getattr(other, "is_tl_tensor", False):
            return fn(self.value, other)
        return constexpr(fn(self.value, other))

    return method


def _backward(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: constexpr(fn(unwrap(other), self.value))


def _unary(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: constexpr(fn(self.value))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and_", "or_", "xor"):
    _fn = getattr(operator, _name)
    _plain = _name.rstrip("_")
    setattr(constexpr, f"__{_plain}__", _forward(_fn))
    setattr(constexpr, f"__r{_plain}__", _backward(_fn))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(constexpr, f"__{_name}__", _forward(getattr(operator, _name)))
for _name in ("neg", "pos", "invert"):
    setattr(constexpr, f"__{_name}__", _unary(getattr(operator, _name)))


def constexpr_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: Python runs `fn` while a kernel is translated; its arguments must be known by then."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return unwrap(fn(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in kwargs.items()}))

    call.is_constexpr_function = True  # type: ignore[attr-defined]
    return call


def const(value: Any) -> Any:
    """Annotation for a pointer that is only read: a store through it is refused."""
    return value
