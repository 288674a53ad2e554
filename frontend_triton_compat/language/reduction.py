"""Reductions and scans: sum, max, argmax, reduce, cumsum, associative_scan, softmax.

Input: handles. Output: handles. Law: small types are widened as Triton does before reducing, so the IR's `reduce`
keeps its operand's type (argmax and argmin give int32).
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language import math as tl_math
from frontend_triton_compat.language import operators, semantic, shaping
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import as_dtype
from frontend_triton_compat.language.semantic import cast, emit, to_tensor
from frontend_triton_compat.language.shaping import normal_axis
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import BF16, FP32, INT32, UINT32, TileType, dtype


def _tile(x: Any, what: str) -> tensor:
    current(f"tl.{what}")
    x = to_tensor(x)
    if not x.shape:
        raise fail(
            "shape-mismatch",
            f"{what} of a scalar",
            why="there is nothing to reduce",
            do="use the scalar itself, or make a tile of it with tl.full",
        )
    return x


def _reduce(fn: str, x: tensor, axis: Any, keep_dims: Any, element: dtype | None = None, **attrs: Any) -> tensor:
    """One reduce op, or one a dimension when `axis` is None."""
    keep = bool(unwrap(keep_dims))
    if unwrap(axis) is None:
        rank = len(x.shape)
        for d in reversed(range(rank)):
            x = _reduce_axis(fn, x, d, element, attrs)
        return semantic.broadcast_to(x, (1,) * rank) if keep else x
    axis = normal_axis(axis, len(x.shape), fn)
    out = _reduce_axis(fn, x, axis, element, attrs)
    return semantic.expand_dims(out, axis) if keep else out


def _reduce_axis(fn: str, x: tensor, axis: int, element: dtype | None, attrs: dict[str, Any]) -> tensor:
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return emit("reduce", [x], [TileType(element or x.dtype, shape)], fn=fn, axis=axis, **attrs)[0]


def _sum_type(t: dtype, asked: Any) -> dtype:
    if unwrap(asked) is not None:
        return as_dtype(asked)
    if t.is_int() and t.primitive_bitwidth < 32:
        return INT32 if t.is_int_signed() else UINT32
    return t


def sum(input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> tensor:
    """Sum over an axis, or of everything; small integers are summed in 32 bits."""
    x = _tile(input, "sum")
    x = cast(x, _sum_type(x.dtype, dtype))
    return _reduce("xor_sum" if x.dtype.is_bool() else "sum", x, axis, keep_dims)  # one bit counts modulo 2


def _widened(x: tensor) -> tensor:
    if x.dtype.primitive_bitwidth >= 32:
        return x
    return cast(x, FP32 if x.dtype.is_floating() else INT32)


def _extreme(fn: str, x: Any, axis: Any, indices: Any, tie_break_left: Any, keep_dims: Any) -> Any:
    x = _tile(x, fn)
    if unwrap(indices):
        x = cast(x, FP32) if x.dtype == BF16 else x
        value = fn + "_nan" if x.dtype.is_floating() else fn  # the element at the index: NaN, if there is one
        return _reduce(value, x, axis, keep_dims), _arg(f"arg{fn}", x, axis, tie_break_left, keep_dims)
    return _reduce(fn, _widened(x), axis, keep_dims)


def _arg(fn: str, x: tensor, axis: Any, tie_break_left: Any, keep_dims: Any) -> tensor:
    rank = len(x.shape)
    if unwrap(axis) is None:
        flat = _reduce(fn, shaping.reshape(x, x.numel), 0, False, INT32, tie_break_left=bool(unwrap(tie_break_left)))
        return semantic.broadcast_to(flat, (1,) * rank) if unwrap(keep_dims) else flat
    return _reduce(fn, x, axis, keep_dims, INT32, tie_break_left=bool(unwrap(tie_break_left)))


def max(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """Largest element over an axis; with `return_indices` also its first index."""
    return _extreme("max", input, axis, return_indices, return_indices_tie_break_left, keep_dims)


def min(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """Smallest element over an axis; with `return_indices` also its first index."""
    return _extreme("min", input, axis, return_indices, return_indices_tie_break_left, keep_dims)


def argmax(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> tensor:
    """Index of the largest element over an axis, int32."""
    x = _tile(input, "argmax")
    return _arg("argmax", cast(x, FP32) if x.dtype == BF16 else x, axis, tie_break_left, keep_dims)


def argmin(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> tensor:
    """Index of the smallest element over an axis, int32."""
    x = _tile(input, "argmin")
    return _arg("argmin", cast(x, FP32) if x.dtype == BF16 else x, axis, tie_break_left, keep_dims)


def _integers(x: tensor, what: str) -> tensor:
    if not x.dtype.is_int():
        raise fail(
            "operand-type", f"{what} of {x.dtype}", why="it works on bits", do="bitcast to an integer type first"
        )
    return x


def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False) -> tensor:
    """Exclusive or of the elements over an axis."""
    return _reduce("xor_sum", _integers(_tile(input, "xor_sum"), "xor_sum"), axis, keep_dims)


def reduce_or(input: Any, axis: Any = None, keep_dims: Any = False) -> tensor:
    """Bitwise or of the elements over an axis."""
    return _reduce("or_sum", _integers(_tile(input, "reduce_or"), "reduce_or"), axis, keep_dims)


# -- scans -------------------------------------------------------------------------------------------------------


def _scan(fn: str, x: tensor, axis: Any, reverse: Any) -> tensor:
    axis = normal_axis(axis, len(x.shape), fn)
    return emit("scan", [x], [x.handle.type], fn=fn, axis=axis, reverse=bool(unwrap(reverse)))[0]


def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> tensor:
    """Running sum along an axis; small integers in 32 bits."""
    x = _tile(input, "cumsum")
    x = cast(x, FP32) if x.dtype == BF16 else x
    x = cast(x, _sum_type(x.dtype, dtype))
    if x.dtype.is_bool():  # one bit counts modulo 2
        return cast(operators.and_(_scan("cumsum", cast(x, INT32), axis, reverse), to_tensor(1)), x.dtype)
    return _scan("cumsum", x, axis, reverse)


def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> tensor:
    """Running product along an axis."""
    x = _tile(input, "cumprod")
    if x.dtype.is_bool():
        return cast(_scan("cumprod", cast(x, INT32), axis, reverse), x.dtype)
    return _scan("cumprod", cast(x, FP32) if x.dtype == BF16 else x, axis, reverse)


def softmax(x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> tensor:
    """``exp(x - max) / sum(exp(x - max))`` over an axis (axis 0 by default)."""
    x = _tile(x, "softmax")
    axis = 0 if unwrap(dim) is None else dim
    keep = len(x.shape) > 1
    z = operators.sub(x, max(x, axis, keep_dims=keep))
    e = tl_math.exp(z)
    return tl_math.fdiv(e, sum(e, axis, keep_dims=keep))
