"""`aggregate`: classes whose objects hold tiles, and the names of compound types.

Input: a class with annotated fields. Output: the class, its objects usable in kernels: passed to helpers, carried by
loops, chosen by branches. Law: a field annotated ``tl.constexpr`` is known while the kernel is translated and the same
on every path; methods decorated with ``triton.jit`` are bound to the object, as in Triton.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from frontend_triton_compat.language.constexpr import constexpr, unwrap
from frontend_triton_compat.language.context import current


class _Method:
    """A kernel's function as a method: the object comes first."""

    def __init__(self, fn: Any):
        self.fn = fn

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.fn if instance is None else functools.partial(self.fn, instance)


def _is_constexpr(annotation: Any) -> bool:
    text = annotation if isinstance(annotation, str) else ""
    return annotation is constexpr or text.split(".")[-1] == "constexpr"


def _is_jit(value: Any) -> bool:
    return hasattr(value, "__translated__")


def _translating(fn: Any) -> Callable[..., None]:
    """An ``__init__`` under ``triton.jit``, run in the kernel that makes the object."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        current(f"{type(self).__name__}()").call(fn, (self, *args), kwargs)

    return __init__


def aggregate(cls: type) -> type:
    """Decorator: objects of the class are values in kernels.

    Args:
        cls: a class with annotated fields. Without an ``__init__`` of its own, it takes the fields in their order.
    """
    own = cls.__dict__.get("__init__")
    for name, annotation in inspect.get_annotations(cls).items():
        if _is_constexpr(annotation):
            given = cls.__dict__.get(name, dataclasses.MISSING)
            setattr(cls, name, dataclasses.field(default=given, metadata={"carry": "static"}))
    inherited = cls.__init__ is not object.__init__ and "__init__" not in cls.__dict__
    keeps = own is not None or (inherited and not inspect.get_annotations(cls))
    for name, member in list(cls.__dict__.items()):
        if _is_jit(member):
            setattr(cls, name, _translating(member) if name == "__init__" else _Method(member))
    cls.__triton_aggregate__ = True  # type: ignore[attr-defined]
    return dataclass(init=not keeps, eq=False, repr=False)(cls)


class tuple_type:
    """The type of a tuple.

    Attributes:
        types: the types of its parts.
        fields: their names, for a named tuple.
    """

    def __init__(self, types: Sequence[Any], fields: Sequence[str] | None = None):
        self.types, self.fields = list(types), None if fields is None else list(fields)

    @property
    def name(self) -> str:
        """As Triton writes it: ``[int32,fp32]``."""
        names = [""] * len(self.types) if self.fields is None else [f"{field}:" for field in self.fields]
        return "[" + ",".join(f"{n}{t}" for n, t in zip(names, self.types)) + "]"

    def __str__(self) -> str:
        return self.name

    def __getitem__(self, index: int) -> Any:
        return self.types[index]

    def __iter__(self) -> Any:
        return iter(self.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple_type) and (self.types, self.fields) == (other.types, other.fields)

    def __hash__(self) -> int:
        return hash(self.name)


class constexpr_type:
    """The type of a value that is known while the kernel is translated: one a value, as in Triton."""

    def __init__(self, value: Any):
        self.value = unwrap(value)

    def __str__(self) -> str:
        return f"constexpr[{self.value}]"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr_type) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash(str(self))


def type_of(value: Any) -> Any:
    """What Triton calls ``value.type``: of a tile, of a tuple, of anything known while the kernel is translated."""
    if isinstance(value, tuple):
        return tuple_type([type_of(v) for v in value], getattr(value, "_fields", None))
    return value.type if hasattr(value, "type") else constexpr_type(value)


def is_aggregate(value: Any) -> bool:
    """Whether a value is an object of an aggregate."""
    return getattr(type(value), "__triton_aggregate__", False)


def aggregate_replace(instance: Any, **changes: Any) -> Any:
    """A copy of an aggregate with other values in some fields."""
    if not is_aggregate(instance):
        raise TypeError(f"aggregate_replace expects an aggregate instance, got {type(instance).__name__}")
    fields = [f.name for f in dataclasses.fields(instance)]
    for name in changes:
        if name not in fields:
            raise TypeError(f"{type(instance).__name__} has no field {name!r}")
    out = object.__new__(type(instance))
    for name in fields:
        object.__setattr__(out, name, changes.get(name, getattr(instance, name)))
    return out


def builtin(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of the genuine package's own functions; here one more helper, whose ``_semantic`` means nothing."""
    fn.__triton_builtin__ = True  # type: ignore[attr-defined]
    return fn


def is_builtin(fn: Any) -> bool:
    """Whether a function was decorated with `builtin`."""
    return getattr(fn, "__triton_builtin__", False)


class tensor_descriptor_type:
    """The type of a tensor descriptor.

    Attributes:
        block_type: of the blocks that it loads and stores.
        shape_type, strides_type: of its shape and strides.
    """

    def __init__(self, block_type: Any, shape_type: Any = None, strides_type: Any = None):
        self.block_type, self.shape_type, self.strides_type = block_type, shape_type, strides_type

    def __str__(self) -> str:
        return f"tensor_descriptor<{self.block_type}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tensor_descriptor_type) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(str(self))
