"""`tl.tensor`: what a kernel's author holds while the kernel is translated.

Input: an IR value. Output: a handle with Triton's attributes; `methods` gives it its operators. Law: a handle is
immutable; `const` is its number when it is known at translation, `literal` says that the number came from the
kernel's own text (and so may shape blocks), not from a launch argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from frontend_triton_compat import ir
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import fail
from frontend_triton_compat.types import TileType, dtype, pointer_type


class Shape(tuple[int, ...]):
    """Sizes of a tile; as in Triton, lists and tuples are added to it and compared with it alike."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple)):
            return tuple.__eq__(self, tuple(unwrap(v) for v in other))
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __add__(self, other: Any) -> Any:
        return Shape((*self, *other)) if isinstance(other, (list, tuple)) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Shape((*other, *self)) if isinstance(other, (list, tuple)) else NotImplemented

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Shape(found) if isinstance(index, slice) else found


@dataclass(frozen=True)
class block_type:
    """Type of a tile: element type and shape."""

    element_ty: Any
    shape: tuple[int, ...]

    @property
    def scalar(self) -> Any:
        """The element type."""
        return self.element_ty

    @property
    def numel(self) -> int:
        """Number of elements."""
        return TileType(self.element_ty, tuple(self.shape)).numel

    @property
    def name(self) -> str:
        """Triton's spelling, e.g. ``<['16'], fp32>``."""
        return str(self)

    def get_block_shapes(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.shape)

    def with_element_ty(self, element_ty: Any) -> block_type:
        """The same shape with other elements."""
        return block_type(element_ty, self.shape)

    def is_block(self) -> bool:
        """True."""
        return True

    def is_ptr(self) -> bool:
        """False: a tile of pointers is a tile."""
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):
            return getattr(self.element_ty, name)
        if name in ("primitive_bitwidth", "int_bitwidth"):
            return getattr(self.element_ty, name)
        raise AttributeError(f"block_type has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{self.element_ty}[{', '.join(map(str, self.shape))}]"


class tensor:
    """A value of the kernel: a scalar or a tile.

    Attributes:
        handle: the IR value.
        literal: whether a known number came from the kernel's text.
    """

    is_tl_tensor = True

    def __init__(self, handle: ir.Value, literal: bool = False):
        self.handle = handle
        self.literal = literal

    @property
    def dtype(self) -> Any:
        """Element type (a pointer type for pointers)."""
        return self.handle.type.element

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, all known at translation; ``()`` for a scalar."""
        return Shape(self.handle.type.shape)

    @property
    def type(self) -> Any:
        """`block_type` of a tile, the element type of a scalar."""
        t = self.handle.type
        return block_type(t.element, Shape(t.shape)) if t.shape else t.element

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.handle.type.numel

    @property
    def const(self) -> int | float | bool | None:
        """The number of a scalar that is known at translation, else None."""
        op = self.handle.producer
        return op.attrs["value"] if op is not None and op.kind == "const" else None

    @property
    def value(self) -> Any:
        """The number of a scalar known at translation (Triton's ``constexpr.value``)."""
        return self._number("its .value")

    def _number(self, use: str) -> Any:
        value = self.const
        if value is not None:
            return value
        kind = f"a tile of shape {self.shape}" if self.shape else f"a run-time scalar of type {self.dtype}"
        raise fail(
            "tile-as-condition" if use == "a condition" else "needs-constexpr",
            f"{kind} is used as {use}",
            why="Python code runs once, when the kernel is translated; this value is known only when the kernel runs",
            do=(
                "choose element by element with tl.where(condition, x, y)",
                "or reduce it to a scalar first: `if tl.max(condition.to(tl.int32), 0) != 0:`",
            )
            if use == "a condition"
            else "pass the number as a tl.constexpr parameter, or keep it a tile and use tl functions on it",
        )

    def __bool__(self) -> bool:
        return bool(self._number("a condition"))

    def __index__(self) -> int:
        value = self._number("a Python integer")
        if isinstance(value, float):
            raise TypeError("a float can't be used as an integer")
        return int(value)

    def __int__(self) -> int:
        return int(self._number("a Python integer"))

    def __float__(self) -> float:
        return float(self._number("a Python float"))

    def __hash__(self) -> int:
        value = self.const
        return hash(value) if value is not None else id(self)

    def __format__(self, spec: str) -> str:
        value = self.const
        return format(value, spec) if value is not None else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise fail(
            "not-translated",
            f"a tile of shape {self.shape} can't be iterated over",
            why="a tile is one value; its elements have no order of execution",
            do="work on the whole tile, or load the elements one by one in a `for i in range(n)` loop",
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise fail(
            "not-translated",
            "elements of a tile can't be assigned",
            why="tiles are values: an operation gives a new tile",
            do="build the new tile with tl.where(tl.arange(0, N) == i, value, tile)",
        )

    def __str__(self) -> str:
        value = self.const
        return str(value) if value is not None else f"{self.handle.type}"

    def __repr__(self) -> str:
        return f"tensor({self})"


class address(tensor):
    """A pointer made from an integer: it can be chosen, compared, stored and cast back, but points into no argument."""


def is_pointer(x: Any) -> bool:
    """Whether a handle holds pointers."""
    return isinstance(x, tensor) and isinstance(x.dtype, pointer_type)


def is_number(x: Any) -> bool:
    """Whether `x` is a plain Python number."""
    return isinstance(x, (bool, int, float)) and not isinstance(x, dtype)
