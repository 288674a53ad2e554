"""Block pointers, taken apart into pointer arithmetic and masks.

Input: base pointer, shape, strides, offsets, block shape. Output: a tile of pointers, a mask and a fill value. Law:
addresses are computed in 64 bits, as Triton does; nothing here reaches the IR.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from frontend_triton_compat.language import operators
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import fail
from frontend_triton_compat.language.creation import arange, static_shape
from frontend_triton_compat.language.semantic import broadcast_to, cast, constant, expand_dims, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import INT32, INT64

PADDINGS = ("", "zero", "nan")


def scalars(values: Any, what: str, t: Any, rank: int | None = None) -> tuple[tensor, ...]:
    """Integers, one a dimension, as scalars of one type."""
    values = unwrap(values)
    values = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    out = tuple(to_tensor(v) for v in values)
    if any(v.shape or not v.dtype.is_int() for v in out) or (rank is not None and len(out) != rank):
        raise fail(
            "memory-access",
            f"{what} of a block pointer: {', '.join(str(v.handle.type) for v in out)}",
            why=f"it needs {rank if rank is not None else 'a tuple of'} integer scalars, one a dimension",
            do="give one integer for every dimension of the tensor",
        )
    return tuple(cast(v, t) for v in out)


@dataclass(frozen=True)
class BlockPointer:
    """What `tl.make_block_ptr` gives; loops may carry and advance it."""

    base: tensor
    sizes: tuple[tensor, ...] = field(metadata={"carry": "known"})
    strides: tuple[tensor, ...] = field(metadata={"carry": "known"})
    offsets: tuple[tensor, ...]
    block_shape: tuple[int, ...] = field(metadata={"carry": "static"})

    @classmethod
    def make(cls, base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any) -> BlockPointer:
        """Check the parts and put them together."""
        sizes = scalars(shape, "the shape", INT64)
        rank = len(sizes)
        block = static_shape(block_shape, "the block shape")
        if len(block) != rank:
            raise fail(
                "memory-access",
                f"a block of {len(block)} dimensions in a tensor of {rank}",
                why="block_shape and shape must have one entry a dimension",
                do="give a block size for every dimension (1 is allowed)",
            )
        strides = scalars(strides, "the strides", INT64, rank)
        return cls(base, sizes, strides, scalars(offsets, "the offsets", INT32, rank), block)

    @property
    def dtype(self) -> Any:
        """The pointer type of the elements."""
        return self.base.dtype

    @property
    def type(self) -> Any:
        """The pointer type of the elements."""
        return self.base.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block."""
        return self.block_shape

    def advanced(self, offsets: Any) -> BlockPointer:
        """The same block further on."""
        steps = scalars(offsets, "the offsets of advance", INT32, len(self.offsets))
        return replace(
            self, offsets=tuple(a if b.const == 0 else operators.add(a, b) for a, b in zip(self.offsets, steps))
        )

    def advance(self, offsets: Any) -> BlockPointer:
        """Method form of `tl.advance`."""
        return self.advanced(offsets)

    def access(self, boundary_check: Any, padding: Any) -> tuple[tensor, Any, Any]:
        """Pointers, mask and fill value of the block.

        Args:
            boundary_check: the dimensions whose bounds are checked.
            padding: ``""``, ``"zero"`` or ``"nan"``.
        """
        padding = unwrap(padding) or ""
        if padding not in PADDINGS:
            raise fail(
                "memory-access",
                f"padding_option={padding!r}",
                why="blocks are padded with zero or NaN",
                do='write padding_option="zero" or padding_option="nan"',
            )
        element = self.base.dtype.element_ty
        if padding == "nan" and element.is_int():
            raise fail(
                "memory-access", f'padding_option="nan" for {element}', why="integers have no NaN", do='use "zero"'
            )
        checks = unwrap(boundary_check)
        checks = tuple(checks) if isinstance(checks, (list, tuple)) else (checks,)
        rank = len(self.block_shape)
        checked = {int(d) % rank for d in checks if -rank <= int(d) < rank}
        if len(checked) != len(set(map(int, checks))):
            raise fail(
                "memory-access",
                f"boundary_check={checks} of a block with {rank} dimensions",
                why="it lists dimensions of the block, each once",
                do=f"use dimensions 0 to {rank - 1}",
            )
        pointer, mask = self.base, None
        for d in range(rank):
            index = operators.add(self.offsets[d], arange(0, self.block_shape[d]))
            for axis in range(rank):
                if axis != d:
                    index = expand_dims(index, axis)
            pointer = operators.add(pointer, operators.mul(cast(index, INT64), self.strides[d]))
            if d in checked:
                size = self.sizes[d]
                if size.const is not None and -(2**31) <= size.const < 2**31:
                    size = constant(size.const, INT32, name=size.handle.name, literal=size.literal)
                inside = operators.and_(operators.compare("ge", index, 0), operators.compare("lt", index, size))
                mask = inside if mask is None else operators.and_(mask, inside)
        pointer = broadcast_to(pointer, self.block_shape)
        if mask is not None:
            mask = broadcast_to(mask, self.block_shape)
        fill = None
        if mask is not None and padding:
            fill = float("nan") if padding == "nan" else 0
        return pointer, mask, fill
