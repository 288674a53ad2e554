"""Tensor descriptors: a tensor in memory whose blocks are loaded and stored with all bounds checked.

Input: a pointer with shape, strides and block shape, in the kernel (`make_tensor_descriptor`) or from the launch.
Output: loads, stores and atomics through tiles of pointers with a mask. Law: elements outside of the tensor read as
padding and are never written; what Triton refuses to describe is refused here, whatever the target could do with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from frontend_triton_compat.language import memory, operators
from frontend_triton_compat.language.aggregate import tensor_descriptor_type, tuple_type
from frontend_triton_compat.language.block_pointer import BlockPointer, scalars
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import arange, static_shape
from frontend_triton_compat.language.semantic import cast, expand_dims, to_tensor
from frontend_triton_compat.language.tensor import Shape, block_type, tensor
from frontend_triton_compat.types import INT32, INT64

_REDUCED = {
    "add": ("uint32", "int32", "uint64", "fp32", "fp16", "bf16"),
    **dict.fromkeys(("min", "max", "and", "or", "xor"), ("uint32", "int32", "uint64", "int64")),
}


@dataclass(frozen=True)
class tensor_descriptor_base:
    """A tensor in memory and the shape of the blocks that are moved.

    Attributes:
        base: pointer to the first element.
        shape: sizes of the tensor, int32 scalars.
        strides: in elements, int64 scalars.
        block_shape: of the blocks.
        padding_option: what elements outside of the tensor read as, ``zero`` or ``nan``.
    """

    base: tensor
    shape: tuple[tensor, ...] = field(metadata={"carry": "known"})
    strides: tuple[tensor, ...] = field(metadata={"carry": "known"})
    block_shape: tuple[int, ...] = field(metadata={"carry": "static"})
    padding_option: str = field(metadata={"carry": "static"})

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.base.dtype.element_ty

    @property
    def block_type(self) -> Any:
        """The type of a block."""
        return block_type(self.dtype, self.block_shape)

    @property
    def type(self) -> Any:
        """The descriptor's type."""
        kinds = [tuple_type([v.dtype for v in part]) for part in (self.shape, self.strides)]
        return tensor_descriptor_type(self.block_type, *kinds)

    def _access(self, offsets: Any, mask_only: bool = False) -> tuple[tensor, Any, Any]:
        offsets = unwrap(offsets)
        if not isinstance(offsets, Sequence) or len(offsets) != len(self.block_shape):
            raise refused(
                f"{len(offsets) if isinstance(offsets, Sequence) else 1} offsets of a descriptor with "
                f"{len(self.block_shape)} dimensions",
                "a block is found by one offset a dimension",
                "pass as many offsets as the block has dimensions",
                f"expected {len(self.block_shape)} offsets",
            )
        block = BlockPointer(
            self.base,
            tuple(cast(v, INT64) for v in self.shape),
            self.strides,
            scalars(offsets, "the offsets", INT32, len(self.block_shape)),
            tuple(self.block_shape),
        )
        every = tuple(range(len(self.block_shape)))
        return block.access(every, "" if mask_only else self.padding_option)

    def load(self, offsets: Any) -> tensor:
        """The block at `offsets`; elements outside of the tensor are padding."""
        current("a descriptor's load")
        pointer, mask, other = self._access(offsets)
        return memory.load(pointer, mask, other)

    def _value(self, value: Any, what: str) -> tensor:
        v = to_tensor(value)
        if v.shape != tuple(self.block_shape):
            raise refused(
                f"{what} of a tile of shape {tuple(v.shape)} through a descriptor of blocks {tuple(self.block_shape)}",
                "a descriptor moves whole blocks",
                f"reshape or broadcast the value to {tuple(self.block_shape)}",
                f"expected {list(self.block_shape)}, but got {list(v.shape)}",
            )
        return v

    def store(self, offsets: Any, value: Any) -> None:
        """Write the block at `offsets`; elements outside of the tensor are dropped."""
        current("a descriptor's store")
        value = self._value(value, "a store")
        pointer, mask, _ = self._access(offsets, mask_only=True)
        memory.store(pointer, value, mask)

    def _reduce(self, fn: str, offsets: Any, value: Any) -> None:
        current(f"a descriptor's atomic_{fn}")
        value = self._value(value, f"atomic_{fn}")
        if self.dtype.name not in _REDUCED[fn]:
            raise fail(
                "atomic-operands",
                f"atomic_{fn} through a descriptor of {self.dtype}",
                why=f"Triton's descriptors do it for {', '.join(_REDUCED[fn])}",
                do="hold the tensor in one of these types",
            ) from ValueError("Unsupported dtype")
        pointer, mask, _ = self._access(offsets, mask_only=True)
        memory.update(fn, pointer, value, mask)

    def atomic_add(self, offsets: Any, value: Any) -> None:
        """Add a block to memory at `offsets`."""
        self._reduce("add", offsets, value)

    def atomic_min(self, offsets: Any, value: Any) -> None:
        """Lower memory at `offsets` to at most a block."""
        self._reduce("min", offsets, value)

    def atomic_max(self, offsets: Any, value: Any) -> None:
        """Raise memory at `offsets` to at least a block."""
        self._reduce("max", offsets, value)

    def atomic_and(self, offsets: Any, value: Any) -> None:
        """Bitwise and of memory at `offsets` with a block."""
        self._reduce("and", offsets, value)

    def atomic_or(self, offsets: Any, value: Any) -> None:
        """Bitwise or of memory at `offsets` with a block."""
        self._reduce("or", offsets, value)

    def atomic_xor(self, offsets: Any, value: Any) -> None:
        """Bitwise exclusive or of memory at `offsets` with a block."""
        self._reduce("xor", offsets, value)

    def _rows(self, rows: Any, column: Any, what: str) -> tuple[tensor, tensor]:
        """Pointers and mask of whole rows that a tile of indices picks."""
        block = tuple(self.block_shape)
        x = to_tensor(rows)
        narrow = 32 // self.dtype.primitive_bitwidth * 8
        problems = (
            (len(block) != 2, f"descriptor must be 2D, but got {list(block)}"),
            (block[0] != 1, f"descriptor block must have 1 row, but got {list(block)}"),
            (len(x.shape) != 1 or not x.dtype.is_int(), f"x offsets must be 1D, but got {list(x.shape)}"),
            (x.numel < 8, f"descriptor {what} must have at least 8 rows, but got {list(x.shape)}"),
            (
                block[-1] < narrow,
                f"descriptor {what} of {self.dtype} must have at least {narrow} columns, but got {block[-1]}",
            ),
        )
        for wrong, words in problems:
            if wrong:
                raise refused(
                    words,
                    f"{what} moves rows of a matrix: blocks of (1, columns), 8 or more integer row numbers",
                    "make the descriptor with block_shape=[1, COLUMNS] and pass a 1-D tile of row numbers",
                    words,
                )
        row = expand_dims(x, 1)
        (start,) = scalars(column, "the column", INT32, 1)
        col = expand_dims(operators.add(start, arange(0, block[1])), 0)
        pointer = operators.add(self.base, operators.mul(cast(row, INT64), self.strides[0]))
        pointer = operators.add(pointer, operators.mul(cast(col, INT64), self.strides[1]))
        mask: Any = None
        for index, size in ((row, self.shape[0]), (col, self.shape[1])):
            inside = operators.and_(operators.compare("ge", index, 0), operators.compare("lt", index, size))
            mask = inside if mask is None else operators.and_(mask, inside)
        return pointer, mask

    def gather(self, *args: Any) -> tensor:
        """Rows by number, from a column on: ``descriptor.gather(row_numbers, column)``."""
        current("a descriptor's gather")
        rows, column = _two(args, "gather")
        pointer, mask = self._rows(rows, column, "gather")
        return memory.load(pointer, mask, float("nan") if self.padding_option == "nan" else 0)

    def scatter(self, value: Any, *args: Any) -> None:
        """Write rows by number, from a column on: ``descriptor.scatter(value, row_numbers, column)``."""
        current("a descriptor's scatter")
        rows, column = _two(args, "scatter")
        pointer, mask = self._rows(rows, column, "scatter")
        memory.store(pointer, value, mask)


@dataclass(frozen=True)
class tensor_descriptor(tensor_descriptor_base):
    """What `tl.make_tensor_descriptor` gives, and what a host's `TensorDescriptor` is in a kernel."""


def refused(what: str, why: str, do: str, triton: str = "") -> Exception:
    """The diagnostic of a descriptor that Triton would refuse; its cause has Triton's words."""
    problem = fail("tensor-descriptor", what, why=why, do=do)
    problem.__cause__ = ValueError(triton or what)
    return problem


def _two(args: tuple[Any, ...], what: str) -> tuple[Any, Any]:
    if len(args) != 2:
        raise refused(
            f"{what} with {len(args)} indices",
            "it takes a tile of row numbers and one column",
            f"descriptor.{what}({'value, ' if what == 'scatter' else ''}row_numbers, column)",
            f"descriptor {what} only supports 2D indexing, but got {len(args)}",
        )
    return args[0], args[1]


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero"
) -> tensor_descriptor:
    """A description of a tensor in memory whose blocks are loaded and stored with all bounds checked."""
    current("tl.make_tensor_descriptor")
    pointer = memory.as_pointer(base, "make_tensor_descriptor")
    shape, strides, block_shape = (unwrap(v) for v in (shape, strides, block_shape))
    rank = len(shape)
    for wrong, words in (
        (not 1 <= rank <= 5, f"Expected 1 <= ndim <= 5 but got {rank} dimensions"),
        (len(strides) != rank, f"Expected {rank} strides but got {len(strides)}"),
        (len(block_shape) != rank, f"Expected block_shape to have {rank} dimensions but got {len(block_shape)}"),
    ):
        if wrong:
            raise refused(
                words,
                "a descriptor has one to five dimensions, each with a size, a stride and a block size",
                "give shape, strides and block_shape one entry a dimension",
                words,
            )
    block = static_shape(tuple(block_shape), "the block shape")
    width = pointer.dtype.element_ty.itemsize
    if block[-1] * width < 16:
        raise refused(
            f"blocks whose rows have {block[-1] * width} bytes",
            "descriptors move 16 bytes or more at a time",
            f"make the last dimension of the block at least {16 // width}",
            "Descriptor block shape must have at least 16 bytes in the last dimension, but got "
            f"{block[-1]} * {width} = {block[-1] * width} bytes",
        )
    sizes = scalars(tuple(shape), "the shape", INT32, rank)
    steps = scalars(tuple(strides), "the strides", INT64, rank)
    last = steps[-1].const
    if last is not None and last != 1:
        raise refused(
            f"a last stride of {last}",
            "the last dimension of a descriptor is contiguous",
            "describe the transposed tensor, and transpose the loaded block with tl.trans",
            f"Tensor descriptor last dim must be 1 but got {last}",
        )
    return tensor_descriptor(pointer, sizes, steps, Shape(block), padding_of(padding_option, pointer))


def given_descriptor(
    pointer: tensor, shape: Sequence[tensor], strides: Sequence[tensor], block_shape: Sequence[int], padding: str
) -> tensor_descriptor:
    """The descriptor of a launch argument, which the host has checked."""
    sizes, steps = scalars(tuple(shape), "the shape", INT32), scalars(tuple(strides), "the strides", INT64)
    return tensor_descriptor(pointer, sizes, steps, Shape(block_shape), padding_of(padding, pointer))


def padding_of(padding: Any, pointer: tensor) -> str:
    """A padding option, checked."""
    padding = unwrap(padding) or "zero"
    if padding not in ("zero", "nan"):
        raise refused(f"padding_option={padding!r}", "blocks are padded with zero or NaN", 'use "zero" or "nan"')
    if padding == "nan" and pointer.dtype.element_ty.is_int():
        words = "Padding option `nan` is not supported for integer blocks"
        raise refused(
            f'padding_option="nan" for {pointer.dtype.element_ty}', "integers have no NaN", 'use "zero"', words
        )
    return padding


def load_tensor_descriptor(desc: Any, offsets: Any) -> tensor:
    """The block of a tensor descriptor at `offsets`."""
    return desc.load(offsets)


def store_tensor_descriptor(desc: Any, offsets: Any, value: Any) -> None:
    """Write a block of a tensor descriptor at `offsets`."""
    desc.store(offsets, value)


def _experimental_descriptor_load(desc: Any, offsets: Any, shape: Any = None, dtype: Any = None) -> tensor:
    """The older name of a descriptor's load; shape and dtype are the descriptor's."""
    return desc.load(offsets)


def _experimental_descriptor_store(desc: Any, value: Any, offsets: Any) -> None:
    """The older name of a descriptor's store."""
    desc.store(offsets, value)
