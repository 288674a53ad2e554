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

from frontend_triton_compat.language.constexpr import constexpr
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
