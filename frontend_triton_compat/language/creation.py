"""Tiles from nothing and the program's place in the grid: arange, full, zeros, program_id, num_programs.

Input: constants. Output: handles. Law: a block's dimensions are powers of two; `num_programs` is a constant because
a kernel is translated for one grid.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.semantic import broadcast_to, cast, constant, emit, to_tensor
from frontend_triton_compat.language.tensor import address, tensor
from frontend_triton_compat.types import INT32, TileType, dtype

ANY_SHAPE = "or allow other sizes, for kernels that need not run on Triton itself: @triton.jit(non_power_of_two=True)"


def static_int(x: Any, what: str) -> int:
    """The Python integer behind an argument that must be known from the kernel's text or a constexpr.

    Raises:
        Diagnostic: it is a run-time value or a launch argument (``needs-constexpr``).
    """
    x = unwrap(x)
    if isinstance(x, tensor):
        if x.const is not None and x.literal and x.dtype.is_int():
            return int(x.const)
        name = f" `{x.handle.name}`" if x.handle.name else ""
        raise fail(
            "needs-constexpr",
            f"{what} depends on the run-time value{name}",
            why="block shapes are fixed when the kernel is translated",
            do="annotate the parameter: BLOCK: tl.constexpr, and mask the elements beyond the run-time size",
        )
    if isinstance(x, bool) or not isinstance(x, int):
        raise fail(
            "needs-constexpr",
            f"{what} is {x!r}, not an integer",
            why="block shapes are integers",
            do="pass an int, or a tl.constexpr parameter that holds one",
        )
    return x


def static_shape(shape: Any, what: str, powers: bool = True) -> tuple[int, ...]:
    """A block shape as ints, checked.

    Raises:
        Diagnostic: a dimension is not known, not positive or not a power of two.
    """
    shape = unwrap(shape)
    if not isinstance(shape, (list, tuple)):
        shape = (shape,)
    sizes = tuple(static_int(s, f"dimension {i} of {what}") for i, s in enumerate(shape))
    powers = powers and not current().any_shape
    for i, size in enumerate(sizes):
        if size < 1 or (powers and size & (size - 1)):
            raise fail(
                "block-shape",
                f"dimension {i} of {what} is {size}",
                why="every dimension of a Triton block is a power of two",
                do=(f"use {1 << max(size, 1).bit_length()} and mask the elements beyond {max(size, 1)}", ANY_SHAPE),
            )
    return sizes


def arange(start: Any, end: Any) -> tensor:
    """The integers from `start` to `end` (exclusive) as an int32 tile; as many as a block may have."""
    current("tl.arange")
    low, high = static_int(start, "the start of arange"), static_int(end, "the end of arange")
    count = high - low
    if count <= 0:
        raise fail(
            "block-shape",
            f"arange({low}, {high}) is empty",
            why="the end must be greater than the start",
            do="give a block size of at least 1",
        )
    if count & (count - 1) and not current().any_shape:
        raise fail(
            "block-shape",
            f"arange({low}, {high}) has {count} elements",
            why="the range of an arange is a power of two",
            do=(f"use {1 << count.bit_length()} elements and mask those beyond: tl.arange(0, B) < {count}", ANY_SHAPE),
        )
    if not (-(2**31) <= low and high <= 2**31):
        raise fail(
            "block-shape",
            f"arange({low}, {high})",
            why="arange gives int32",
            do="add a tl.int64 offset to a small arange",
        )
    return emit("arange", [], [TileType(INT32, (count,))], start=low, end=high)[0]


def full(shape: Any, value: Any, dtype: Any) -> tensor:
    """A tile of `shape` with `value` (a number or a scalar) everywhere."""
    current("tl.full")
    sizes = static_shape(shape, "the shape")
    t = as_dtype(dtype)
    value = unwrap(value)
    if isinstance(value, tensor):
        if value.numel != 1:
            raise fail(
                "shape-mismatch",
                f"full with a value of shape {value.shape}",
                why="full repeats one scalar",
                do="use tl.broadcast_to(value, shape)",
            )
        scalar = cast(value, t)
        return broadcast_to(scalar, sizes)
    to_tensor(value)  # refuses what is not a number
    return broadcast_to(constant(value, t), sizes)


def as_dtype(t: Any) -> dtype:
    """A dtype from a dtype, the genuine package's dtype or its name.

    Raises:
        Diagnostic: `t` is none of these.
    """
    t = unwrap(t)
    if isinstance(t, dtype) or (hasattr(t, "is_ptr") and t.is_ptr()):
        return t
    name = getattr(t, "name", t)
    if isinstance(name, str):
        try:
            return dtype(name)
        except ValueError:
            pass
    raise fail(
        "operand-type",
        f"{t!r} is not a dtype of triton.language",
        why="an element type is one of tl.float32, tl.int32, tl.bfloat16, ...",
        do="pass tl.float32, or x.dtype of another tile",
    )


def zeros(shape: Any, dtype: Any) -> tensor:
    """A tile of zeros."""
    return full(shape, 0, dtype)


def zeros_like(input: Any) -> tensor:
    """Zeros with the shape and type of a tile."""
    x = to_tensor(input)
    return broadcast_to(constant(0, x.dtype), x.shape)


def _axis(axis: Any, what: str) -> int:
    axis = static_int(axis, f"the axis of {what}")
    if axis not in (0, 1, 2):
        raise fail(
            "needs-constexpr",
            f"{what}({axis})",
            why="a grid has the axes 0, 1 and 2",
            do="use 0, 1 or 2",
            triton=f"{what} axis must be 0, 1, or 2 but got {axis}",
        )
    return axis


def program_id(axis: Any) -> tensor:
    """This program's index on a grid axis, int32."""
    current("tl.program_id")
    return emit("program_id", [], [TileType(INT32)], axis=_axis(axis, "program_id"))[0]


def num_programs(axis: Any) -> tensor:
    """Number of programs on a grid axis; a constant of this translation."""
    ctx = current("tl.num_programs")
    axis = _axis(axis, "num_programs")
    return constant(ctx.grid[axis], INT32, name=f"num_programs({axis})", literal=False)


def cast_(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> tensor:
    """`input` in another type; `bitcast` keeps the bits instead of the value."""
    from frontend_triton_compat.language import semantic

    current("tl.cast")
    x = to_tensor(input)
    if isinstance(x, address) and as_dtype(dtype).is_int():
        x = tensor(x.handle)
    if unwrap(bitcast):
        return semantic.bitcast(x, as_dtype(dtype))
    return cast(x, as_dtype(dtype), unwrap(fp_downcast_rounding))
