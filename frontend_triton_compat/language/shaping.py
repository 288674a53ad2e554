"""Operations that regroup elements: reshape, trans, broadcast_to, join, split, cat, flip, gather, `x[:, None]`.

Input: handles. Output: handles. Law: elements keep their row-major order under reshape; every result dimension is a
power of two.
"""

from __future__ import annotations

from typing import Any

from frontend_triton_compat.language import semantic
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.context import current, fail
from frontend_triton_compat.language.creation import static_int, static_shape
from frontend_triton_compat.language.semantic import emit, to_tensor
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.types import INT32, TileType


def _dims(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) == 1 and isinstance(unwrap(args[0]), (list, tuple)):
        return tuple(unwrap(args[0]))
    return tuple(args)


def normal_axis(axis: Any, rank: int, what: str) -> int:
    """An axis as a number from 0 to rank - 1.

    Raises:
        Diagnostic: there is no such axis.
    """
    axis = static_int(axis, f"the axis of {what}")
    if not -rank <= axis < rank:
        raise fail(
            "shape-mismatch",
            f"{what} over axis {axis} of a tile with {rank} dimensions",
            why=f"the axes are 0 to {rank - 1}" if rank else "a scalar has no axes",
            do="give an axis that the tile has",
            triton=f"invalid axis {axis}. Expected {-rank} <= axis < {rank}",
        )
    return axis % rank


def reshape(input: Any, *shape: Any, can_reorder: Any = False) -> tensor:
    """The same elements in another shape, in row-major order."""
    current("tl.reshape")
    x = to_tensor(input)
    sizes = static_shape(_dims(shape), "the new shape")
    target = TileType(x.dtype, sizes)
    if target.numel != x.numel:
        raise fail(
            "shape-mismatch",
            f"reshape of {x.shape} to {sizes}",
            why=f"{x.numel} elements can't fill {target.numel} places",
            do="keep the number of elements, or use tl.broadcast_to to repeat them",
        )
    if x.shape == sizes:
        return x
    if not x.shape:
        return semantic.splat(x, sizes)
    return emit("reshape", [x], [target])[0]


def view(input: Any, *shape: Any) -> tensor:
    """Another name of `reshape` (Triton leaves the order of the elements open)."""
    return reshape(input, *shape, can_reorder=True)


def ravel(x: Any, can_reorder: Any = False) -> tensor:
    """All elements in one dimension."""
    return reshape(x, to_tensor(x).numel)


def expand_dims(input: Any, axis: Any) -> tensor:
    """New dimensions of size 1 at one axis or several."""
    current("tl.expand_dims")
    x = to_tensor(input)
    axes = [static_int(a, "the axis of expand_dims") for a in _dims((axis,))]
    rank = len(x.shape) + len(axes)
    normal = sorted(normal_axis(a, rank, "expand_dims") for a in axes)
    if len(set(normal)) != len(normal):
        raise fail(
            "shape-mismatch",
            f"expand_dims names an axis twice: {normal}",
            why="each axis is one new dimension of the result, counted in the result; negative ones count from its end",
            do="name every new dimension once",
            triton=f"expand_dims received duplicate axes, normalized axes = {normal}",
        )
    for a in normal:
        x = semantic.expand_dims(x, a)
    return x


def unsqueeze(input: Any, axis: Any) -> tensor:
    """Another name of `expand_dims`."""
    return expand_dims(input, axis)


def squeeze(input: Any, axis: Any) -> tensor:
    """The tile without a dimension of size 1."""
    current("tl.squeeze")
    x = to_tensor(input)
    d = normal_axis(axis, len(x.shape), "squeeze")
    if x.shape[d] != 1:
        raise fail(
            "shape-mismatch",
            f"squeeze of dimension {d} of a tile of shape {x.shape}",
            why="only a dimension of size 1 can be dropped",
            do="reduce the dimension first: tl.sum(x, axis)",
        )
    shape = x.shape[:d] + x.shape[d + 1 :]
    return reshape(x, *shape) if shape else item(x)


def broadcast_to(input: Any, *shape: Any) -> tensor:
    """A tile grown to a shape: dimensions of size 1 repeat."""
    current("tl.broadcast_to")
    return semantic.broadcast_to(to_tensor(input), static_shape(_dims(shape), "the new shape"))


def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    """Both tiles in their common shape."""
    current("tl.broadcast")
    return semantic.broadcast(to_tensor(input), to_tensor(other))


def permute(input: Any, *dims: Any) -> tensor:
    """The dimensions in another order."""
    current("tl.permute")
    x = to_tensor(input)
    perm = tuple(static_int(d, "a dimension of permute") for d in _dims(dims))
    perm = tuple(d % len(x.shape) if x.shape else d for d in perm)
    if sorted(perm) != list(range(len(x.shape))):
        raise fail(
            "shape-mismatch",
            f"permute of a tile of shape {x.shape} by {perm}",
            why="the arguments must name every dimension once",
            do=f"give a permutation of {tuple(range(len(x.shape)))}",
        )
    if perm == tuple(range(len(perm))):
        return x
    return emit("trans", [x], [TileType(x.dtype, tuple(x.shape[d] for d in perm))], perm=perm)[0]


def trans(input: Any, *dims: Any) -> tensor:
    """The last two dimensions swapped, or the dimensions in the given order."""
    current("tl.trans")
    x = to_tensor(input)
    order = _dims(dims)
    if not order:
        rank = len(x.shape)
        if rank < 2:
            raise fail(
                "shape-mismatch",
                f"trans of a tile of shape {x.shape}",
                why="there are no two dimensions to swap",
                do="add one first: x[:, None]",
            )
        order = (*range(rank - 2), rank - 1, rank - 2)
    return permute(x, *order)


def join(a: Any, b: Any) -> tensor:
    """Two tiles side by side in a new last dimension of size 2."""
    current("tl.join")
    a, b = to_tensor(a), to_tensor(b)
    _same_type(a, b, "join")
    a, b = semantic.broadcast(a, b)
    scalar = not a.shape
    if scalar:
        a, b = semantic.splat(a, (1,)), semantic.splat(b, (1,))
    out = emit("call", [a, b], [TileType(a.dtype, (*a.shape, 2))], fn="join")[0]
    return reshape(out, 2) if scalar else out


def _same_type(a: tensor, b: tensor, what: str) -> None:
    if a.dtype != b.dtype:
        raise fail(
            "operand-type", f"{what} of {a.dtype} and {b.dtype}", why="both must have one type", do="cast one of them"
        )


def split(a: Any) -> tuple[tensor, tensor]:
    """The two halves of a last dimension of size 2."""
    current("tl.split")
    a = to_tensor(a)
    if not a.shape or a.shape[-1] != 2:
        raise fail(
            "shape-mismatch",
            f"split of a tile of shape {a.shape}",
            why="the last dimension must have size 2",
            do="reshape first: tl.split(tl.reshape(x, N // 2, 2))",
        )
    half = TileType(a.dtype, a.shape[:-1])
    if not half.shape:
        pair = TileType(a.dtype, (1,))
        low, high = emit("call", [reshape(a, 1, 2)], [pair, pair], fn="split")
        return _only(low), _only(high)
    low, high = emit("call", [a], [half, half], fn="split")
    return low, high


def _only(x: tensor) -> tensor:
    return emit("reshape", [x], [TileType(x.dtype)])[0]


def item(input: Any) -> tensor:
    """The scalar in a tile of one element."""
    x = to_tensor(input)
    if x.numel != 1:
        raise fail(
            "shape-mismatch", f"item of a tile of shape {x.shape}", why="it has several elements", do="reduce it first"
        )
    return _only(x) if x.shape else x


def interleave(a: Any, b: Any) -> tensor:
    """Elements of two tiles in turn along the last dimension."""
    joined = join(a, b)
    if len(joined.shape) == 1:
        return joined
    return reshape(joined, *joined.shape[:-2], 2 * joined.shape[-2])


def cat(input: Any, other: Any, can_reorder: Any = False, dim: Any = 0) -> tensor:
    """Two tiles one after the other along a dimension."""
    current("tl.cat")
    a, b = to_tensor(input), to_tensor(other)
    _same_type(a, b, "cat")
    axis = normal_axis(dim, len(a.shape), "cat")
    if len(a.shape) != len(b.shape) or any(m != n for i, (m, n) in enumerate(zip(a.shape, b.shape)) if i != axis):
        raise fail(
            "shape-mismatch",
            f"cat of {a.shape} and {b.shape}",
            why="the other dimensions must agree",
            do="broadcast first",
        )
    shape = list(a.shape)
    shape[axis] += b.shape[axis]
    static_shape(tuple(shape), "the result of cat")
    return emit("call", [a, b], [TileType(a.dtype, tuple(shape))], fn="cat", axis=axis)[0]


def flip(x: Any, dim: Any = None) -> tensor:
    """Elements in reverse order along a dimension (the last one by default)."""
    current("tl.flip")
    x = to_tensor(x)
    axis = normal_axis(-1 if unwrap(dim) is None else dim, len(x.shape), "flip")
    return emit("call", [x], [x.handle.type], fn="flip", axis=axis)[0]


def gather(src: Any, index: Any, axis: Any) -> tensor:
    """``src`` picked by `index` along an axis; the other dimensions go along."""
    current("tl.gather")
    src, index = to_tensor(src), to_tensor(index)
    axis = normal_axis(axis, len(src.shape), "gather")
    if not index.dtype.is_int() or len(index.shape) != len(src.shape):
        raise fail(
            "operand-type",
            f"gather of {src.handle.type} by {index.handle.type}",
            why="the index is an integer tile of the same rank",
            do="reshape or cast the index",
        )
    return emit("call", [src, index], [TileType(src.dtype, index.shape)], fn="gather", axis=axis)[0]


def sort(x: Any, dim: Any = None, descending: Any = False) -> tensor:
    """Elements in order along the last dimension."""
    current("tl.sort")
    x = to_tensor(x)
    _last(x, dim, "sort")
    return emit("call", [x], [x.handle.type], fn="sort", axis=len(x.shape) - 1, descending=bool(unwrap(descending)))[0]


def _last(x: tensor, dim: Any, what: str) -> None:
    """Refuse any dimension but the last, as Triton does."""
    axis = normal_axis(-1 if unwrap(dim) is None else dim, len(x.shape), what)
    if axis != len(x.shape) - 1:
        raise fail(
            "not-translated",
            f"{what} along dimension {axis} of a tile of shape {tuple(x.shape)}",
            why="Triton sorts along the last dimension only",
            do=f"move the dimension to the end first: tl.{what}(tl.trans(x))",
        )


def topk(x: Any, k: Any, dim: Any = None) -> tensor:
    """The `k` largest elements along the last dimension, largest first."""
    current("tl.topk")
    x = to_tensor(x)
    _last(x, dim, "topk")
    count = static_shape((k,), "k")[0]
    if count > x.shape[-1]:
        raise fail(
            "shape-mismatch",
            f"topk of {count} elements of a tile of shape {tuple(x.shape)}",
            why="the last dimension has fewer elements",
            do=f"ask for at most {x.shape[-1]}",
        )
    return emit("call", [x], [TileType(x.dtype, (*x.shape[:-1], count))], fn="topk", k=count)[0]


def bitonic_merge(x: Any, dim: Any = None, descending: Any = False) -> tensor:
    """A last dimension that first rises and then falls (or the other way round), in order."""
    current("tl.bitonic_merge")
    x = to_tensor(x)
    _last(x, dim, "bitonic_merge")
    return emit("call", [x], [x.handle.type], fn="bitonic_merge", descending=bool(unwrap(descending)))[0]


def histogram(input: Any, num_bins: Any, mask: Any = None) -> tensor:
    """How often each of the numbers below `num_bins` occurs in a 1-D integer tile, int32."""
    current("tl.histogram")
    x = to_tensor(input)
    bins = static_shape((num_bins,), "num_bins")[0]
    if len(x.shape) != 1 or not x.dtype.is_int():
        raise fail(
            "operand-type",
            f"histogram of {x.handle.type}",
            why="histogram takes a tile of integers with one dimension",
            do="reshape and cast first: tl.histogram(tl.ravel(x).to(tl.int32), BINS)",
        )
    operands, fn = [x], "histogram"
    if unwrap(mask) is not None:
        condition = semantic.broadcast_to(semantic.cast(to_tensor(mask), semantic.INT1), x.shape)
        operands, fn = [x, condition], "histogram_masked"
    return emit("call", operands, [TileType(INT32, (bins,))], fn=fn, num_bins=bins)[0]


def index(x: tensor, slices: Any) -> tensor:
    """``x[:, None]``: whole dimensions and new ones; nothing else."""
    if not isinstance(slices, tuple):
        slices = (slices,)
    if Ellipsis in [s for s in slices if s is Ellipsis]:
        at = slices.index(Ellipsis)
        given = sum(s is not None and s is not Ellipsis for s in slices)
        slices = slices[:at] + (slice(None),) * (len(x.shape) - given) + slices[at + 1 :]
    out, axis = x, 0
    for s in slices:
        s = unwrap(s)
        if s is None:  # Triton lets a `:` at no dimension pass; a new dimension must follow those that there are
            out = semantic.expand_dims(out, normal_axis(axis, len(out.shape) + 1, "a new dimension"))
        elif not (isinstance(s, slice) and s == slice(None)):
            raise fail(
                "not-translated",
                f"unsupported tensor index: {s!r}",
                why="tiles are indexed with `:` and None only; a tile has no addressable elements",
                do=(
                    "load the part that is needed: tl.load(pointer + i)",
                    "or pick it: tl.sum(tl.where(lane == i, x, 0), 0)",
                ),
            )
        axis += 1
    return out
