"""Reductions and scans: sum, max, argmax, reduce, cumsum, associative_scan, softmax.

Input: handles. Output: handles. Law: small types are widened as Triton does before reducing, so the IR's `reduce`
keeps its operand's type (argmax and argmin give int32); a user's combine function is inlined over a tree of halves.
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
    return _reduce("sum", cast(x, _sum_type(x.dtype, dtype)), axis, keep_dims)


def _widened(x: tensor) -> tensor:
    if x.dtype.primitive_bitwidth >= 32:
        return x
    return cast(x, FP32 if x.dtype.is_floating() else INT32)


def _extreme(fn: str, x: Any, axis: Any, indices: Any, tie_break_left: Any, keep_dims: Any) -> Any:
    x = _tile(x, fn)
    if unwrap(indices):
        x = cast(x, FP32) if x.dtype == BF16 else x
        return _reduce(fn, x, axis, keep_dims), _arg(f"arg{fn}", x, axis, tie_break_left, keep_dims)
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
    return _scan("cumsum", cast(x, _sum_type(x.dtype, dtype)), axis, reverse)


def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> tensor:
    """Running product along an axis."""
    x = _tile(input, "cumprod")
    return _scan("cumprod", cast(x, FP32) if x.dtype == BF16 else x, axis, reverse)


# -- the user's combine function -----------------------------------------------------------------------------------


def _tiles(input: Any, what: str) -> tuple[tensor, ...]:
    values = unwrap(input)
    values = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    return tuple(_tile(v, what) for v in values)


def _combine(combine_fn: Any, a: tuple[tensor, ...], b: tuple[tensor, ...]) -> tuple[tensor, ...]:
    out = current().call(combine_fn, (*a, *b), {})
    out = tuple(out) if isinstance(out, (list, tuple)) else (out,)
    if len(out) != len(a):
        raise fail(
            "return-type",
            f"the combine function returns {len(out)} values for {len(a)} tiles",
            why="it must give one value for every tile that is reduced",
            do="return as many values as there are tiles",
        )
    return tuple(cast(to_tensor(o), x.dtype) for o, x in zip(out, a))


def _halves(x: tensor, axis: int) -> tuple[tensor, tensor]:
    """Elements at even and at odd places along an axis."""
    shape = x.shape
    pairs = shaping.reshape(x, *shape[:axis], shape[axis] // 2, 2, *shape[axis + 1 :])
    rank = len(shape) + 1
    order = [d for d in range(rank) if d != axis + 1] + [axis + 1]
    return shaping.split(shaping.permute(pairs, *order))


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False) -> Any:
    """Reduce one tile or several at once with the kernel author's own associative function."""
    tiles = _tiles(input, "reduce")
    shape = tiles[0].shape
    if unwrap(axis) is None:
        tiles = tuple(shaping.reshape(t, t.numel) for t in tiles)
        axis = 0
    d = normal_axis(axis, len(tiles[0].shape), "reduce")
    flat = len(tiles[0].shape) == 1
    while tiles[0].shape[d] > 1:
        split = [_halves(t, d) for t in tiles]
        tiles = _combine(combine_fn, tuple(s[0] for s in split), tuple(s[1] for s in split))
    kept = tuple(t.shape[:d] + t.shape[d + 1 :] if t.shape else () for t in tiles)
    out = tuple(shaping.item(t) if not k and t.shape else _reshaped(t, k) for t, k in zip(tiles, kept))
    if unwrap(keep_dims):
        target = (1,) * len(shape) if flat and len(shape) > 1 else (*shape[:d], 1, *shape[d + 1 :])
        out = tuple(shaping.reshape(t, *target) if t.shape else semantic.splat(t, target) for t in out)
    return out if isinstance(unwrap(input), (list, tuple)) else out[0]


def _reshaped(x: tensor, shape: tuple[int, ...]) -> tensor:
    return x if x.shape == shape else shaping.reshape(x, *shape)


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Running combination along an axis with the kernel author's own associative function."""
    tiles = _tiles(input, "associative_scan")
    d = normal_axis(axis, len(tiles[0].shape), "associative_scan")
    if unwrap(reverse):
        tiles = tuple(shaping.flip(t, d) for t in tiles)
    tiles = _scan_tree(tiles, d, combine_fn)
    if unwrap(reverse):
        tiles = tuple(shaping.flip(t, d) for t in tiles)
    return tiles if isinstance(unwrap(input), (list, tuple)) else tiles[0]


def _scan_tree(tiles: tuple[tensor, ...], axis: int, combine_fn: Any) -> tuple[tensor, ...]:
    # step k combines every element with the one 2**k places before it; the first 2**k stay as they are
    size, shape = tiles[0].shape[axis], tiles[0].shape
    lane = emit("arange", [], [TileType(INT32, (size,))], start=0, end=size)[0]
    for _ in range(axis):
        lane = semantic.expand_dims(lane, 0)
    while len(lane.shape) < len(shape):
        lane = semantic.expand_dims(lane, len(lane.shape))
    step = 1
    while step < size:
        index = tl_math.maximum(operators.sub(lane, step), 0)
        index = semantic.broadcast_to(index, shape)
        before = tuple(shaping.gather(t, index, axis) for t in tiles)
        combined = _combine(combine_fn, before, tiles)
        inside = semantic.broadcast_to(operators.compare("ge", lane, step), shape)
        tiles = tuple(tl_math.where(inside, c, t) for c, t in zip(combined, tiles))
        step *= 2
    return tiles


def softmax(x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> tensor:
    """``exp(x - max) / sum(exp(x - max))`` over an axis (axis 0 by default)."""
    x = _tile(x, "softmax")
    axis = 0 if unwrap(dim) is None else dim
    keep = len(x.shape) > 1
    z = operators.sub(x, max(x, axis, keep_dims=keep))
    e = tl_math.exp(z)
    return tl_math.fdiv(e, sum(e, axis, keep_dims=keep))
