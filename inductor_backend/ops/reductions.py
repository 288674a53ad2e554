"""Reductions along dimensions, scans, and the arg-extremes.

Input: arrays and dimension lists as ATen gives them. Output: arrays of torch's dtype. Law: integer sums are int64,
NaN is the largest and the smallest value at once, ties take the first index, a 0-d array has dimensions 0 and -1.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from inductor_backend.ops import library, whole
from inductor_backend.ops.elementary.pieces import on_cpu
from inductor_backend.ops.exact import divide
from inductor_backend.ops.lanes import highest, plain, reduced, total
from inductor_backend.ops.table import REDUCTION, cast, dims, row

lax = jax.lax


def reduction(*names: str, **kw):
    """`row` for a reduction."""
    return row(*names, kind=REDUCTION, **kw)


def _wide(x, out_dtype):
    """The dtype a sum is accumulated in: f32 for half precision, torch's result dtype otherwise."""
    return jnp.float32 if out_dtype in (jnp.bfloat16, jnp.float16) else out_dtype


@reduction("aten.sum.dim_IntList", "aten.sum.default", grows=whole.SUMMED)
def sum_(x, dim=None, keepdim=False, dtype=None, out: Any = None):
    """Sum; half precision accumulates in f32 and rounds once."""
    return total(cast(x, _wide(x, out.dtype)), dims(dim, x.ndim), bool(keepdim) and x.ndim > 0).astype(out.dtype)


@reduction("aten.mean.dim", "aten.mean.default")
def mean(x, dim=None, keepdim=False, dtype=None, out: Any = None):
    """Mean; of nothing it is NaN."""
    axes = dims(dim, x.ndim)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    sums = total(cast(x, _wide(x, out.dtype)), axes, bool(keepdim))
    return divide(sums, jnp.asarray(count, sums.dtype)).astype(out.dtype)


#: Columns that a reduction of rows keeps until the end, and the shortest row that is worth it.
_LANES, _LONG = 64, 128


def _in_lanes(x, axes, reduce, join):
    """`reduce(x, axes)` for an operation that vectorises across columns only.

    XLA's CPU compiler reduces along a row element by element, unless it is a sum or a maximum of floats: 4 to 20 times
    slower than along a column. So a row of blocks is reduced to one block first, and that to an element. The barrier
    keeps XLA from making one reduction of the two again.

    Args:
        x: an array.
        axes: what to reduce.
        reduce: the reduction of an array along axes.
        join: the same for two arrays.
    """
    if plain.get():
        return reduced(x, axes, reduce, join)
    kept = [d for d in range(x.ndim) if d not in axes]
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    if count < _LONG or (kept and max(kept) > min(axes)) or not on_cpu():
        return reduce(x, axes)
    shape = [x.shape[d] for d in kept]
    rows = x.reshape(-1, count)
    whole = count // _LANES * _LANES
    blocks = rows[:, :whole].reshape(rows.shape[0], -1, _LANES)
    found = reduce(lax.optimization_barrier(reduce(blocks, (1,))), (1,))
    if whole < count:
        found = join(found, reduce(rows[:, whole:], (1,)))
    return found.reshape(shape)


@reduction("aten.prod.default", grows=whole.ALL_MULTIPLIED)
def prod(x, dtype=None, out: Any = None):
    """Product of everything."""
    x = cast(x, _wide(x, out.dtype))
    return _in_lanes(x, tuple(range(x.ndim)), jnp.prod, jnp.multiply).astype(out.dtype)


@reduction("aten.prod.dim_int", grows=whole.ALL_MULTIPLIED)
def prod_dim(x, dim, keepdim=False, dtype=None, out: Any = None):
    """Product along one dimension."""
    x, keep = cast(x, _wide(x, out.dtype)), bool(keepdim) and x.ndim > 0
    return reduced(x, dims(dim, x.ndim), jnp.prod, jnp.multiply, keep).astype(out.dtype)


def _two_passes(x, axes, count):
    mu = divide(total(x, axes, True), jnp.asarray(count, x.dtype))
    centred = x - mu
    return mu, total(centred * centred, axes, True)


def _moments(x, axes):
    """(mean, sum of squared deviations, count); the reduced dimensions stay as 1.

    In lanes, two passes cost what any two sums do. XLA's library computes sum and sum of squares in one, at half the
    cost. It loses digits when the mean is large beside the deviation, so the data decides: any such group sends the
    whole array through two passes.
    """
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    if plain.get() or x.dtype != jnp.float32 or x.size < 4096 or count < 32:
        return *_two_passes(x, axes, count), count
    n = jnp.asarray(count, x.dtype)
    mu = divide(total(x, axes, True), n)
    squares = total(x * x, axes, True)
    rest = squares - mu * mu * n
    # Written so that NaN and infinities count as unsafe as well.
    safe = jnp.all(rest > 0.1 * squares)
    mu, rest = lax.cond(safe, lambda v: (mu, rest), lambda v: _two_passes(v, axes, count), x)
    return mu, rest, count


def _variance(x, dim, correction, keepdim, out_dtype):
    complex_in = jnp.issubdtype(x.dtype, jnp.complexfloating)
    axes = dims(dim, x.ndim)
    wide = x if complex_in else cast(x, _wide(x, x.dtype))
    mu, squares, count = _moments(wide, axes)
    if complex_in:
        squares = jnp.sum(jnp.abs(wide - mu) ** 2, axes, keepdims=True)
    divisor = max(count - (1 if correction is None else correction), 0)
    var = divide(squares, jnp.asarray(divisor, squares.dtype))
    if not keepdim:
        var, mu = (jnp.squeeze(v, axes) for v in (var, mu))
    return var.astype(out_dtype), mu.astype(x.dtype)


@reduction("aten.var.correction")
def var(x, dim=None, correction=None, keepdim=False, out: Any = None):
    """Variance, in two passes."""
    return _variance(x, dim, correction, keepdim, out.dtype)[0]


@reduction("aten.var.dim")
def var_dim(x, dim=None, unbiased=True, keepdim=False, out: Any = None):
    """Variance with the older signature."""
    return _variance(x, dim, int(unbiased), keepdim, out.dtype)[0]


@reduction("aten.std.correction", undecomposed=True)
def std(x, dim=None, correction=None, keepdim=False, out: Any = None):
    """Standard deviation; squares that overflow or vanish, where the root doesn't, are summed in f64."""
    if not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype == jnp.float64:
        return jnp.sqrt(_variance(x, dim, correction, keepdim, jnp.finfo(x.dtype).dtype)[0]).astype(out.dtype)
    var = _variance(x, dim, correction, keepdim, jnp.float32)[0]
    in_double = lambda v: jnp.sqrt(_variance(v.astype(jnp.float64), dim, correction, keepdim, jnp.float64)[0])
    if on_cpu():
        held = jnp.all((var > 1e-30) & (var < jnp.inf))
        var = lax.cond(held, lambda v: jnp.sqrt(var), lambda v: in_double(v).astype(jnp.float32), x)
    else:
        var = jnp.sqrt(var)
    return var.astype(out.dtype)


@reduction("aten.var_mean.correction")
def var_mean(x, dim=None, correction=None, keepdim=False, out: Any = None):
    """Variance and mean."""
    return _variance(x, dim, correction, keepdim, out[0].dtype)


def _identity_error(x, axes) -> bool:
    return any(x.shape[a] == 0 for a in axes)


def _extreme(x, axes, keep: bool, largest: bool):
    """The extreme element; NaN wins.

    In a program that is compiled without XLA's library (`plain`), XLA's maximum is that. The library's loses NaN, and
    numbers next to it, but it is the one that is vectorised. So the numbers decide: their sum is NaN where any of them
    is (or where both infinities are among them), and only then a reduction is taken that says what it picks.
    """
    axes = tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    axes = tuple(a % x.ndim for a in axes)
    if jnp.issubdtype(x.dtype, jnp.floating):
        # Half precision is compared in f32, which XLA vectorises on a CPU.
        wide = x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) and on_cpu() else x
        first, taken = (lax.gt, jnp.max) if largest else (lax.lt, jnp.min)
        pick = lambda a, b: jnp.where(first(a, b) | (a != a), a, b)
        least = jnp.array(-jnp.inf if largest else jnp.inf, wide.dtype)
        careful = lambda v: _in_lanes(v, axes, lambda u, along: lax.reduce(u, least, pick, along), pick)
        if plain.get():
            found = reduced(wide, axes, taken, jnp.maximum if largest else jnp.minimum)
        elif wide.size < 2048 or not on_cpu():
            found = careful(wide)
        else:
            sums = jnp.sum(wide)
            found = lax.cond(sums == sums, lambda v: taken(v, axes), careful, wide)
        found = found.astype(x.dtype)
    else:
        found = _in_lanes(x, axes, jnp.max if largest else jnp.min, jnp.maximum if largest else jnp.minimum)
    return jnp.expand_dims(found, axes) if keep else found


@reduction("aten.amax.default", grows=whole.ELEMENTS)
def amax(x, dim=(), keepdim=False):
    """Maximum; NaN wins."""
    return _extreme(x, dims(dim, x.ndim), bool(keepdim) and x.ndim > 0, True)


@reduction("aten.amin.default", grows=whole.ELEMENTS)
def amin(x, dim=(), keepdim=False):
    """Minimum; NaN wins."""
    return _extreme(x, dims(dim, x.ndim), bool(keepdim) and x.ndim > 0, False)


@reduction("aten.max.default", supports=lambda x: x.numel() > 0, grows=whole.ELEMENTS)
def max_default(x):
    """Maximum of everything; NaN wins."""
    return _extreme(x, None, False, True)


@reduction("aten.min.default", supports=lambda x: x.numel() > 0, grows=whole.ELEMENTS)
def min_default(x):
    """Minimum of everything; NaN wins."""
    return _extreme(x, None, False, False)


@reduction("aten.aminmax.default", grows=whole.ELEMENTS)
def aminmax(x, dim=None, keepdim=False):
    """Minimum and maximum."""
    axes = dims(dim, x.ndim)
    keep = bool(keepdim) and x.ndim > 0
    return _extreme(x, axes, keep, False), _extreme(x, axes, keep, True)


def arg_extreme(x, axis: int, largest: bool):
    """(extreme, first index of it) along one axis, kept as a dimension of 1.

    Written as a reduction, a comparison and the smallest index that matches: XLA's own variadic arg-reduction is
    scalar on the CPU.
    """
    best = _extreme(x, axis, True, largest)
    hit = x == best
    if jnp.issubdtype(x.dtype, jnp.floating):
        hit = hit | (x != x)
    position = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    index = _extreme(jnp.where(hit, position, jnp.int32(2**31 - 1)), axis, True, False)
    return best, index.astype(jnp.int64)


def _arg(x, dim, keepdim, largest):
    if x.ndim == 0:
        return jnp.zeros((), jnp.int64)
    if dim is None:
        index = arg_extreme(x.reshape(-1), 0, largest)[1].reshape(())
        return index.reshape((1,) * x.ndim) if keepdim else index
    axis = dim % x.ndim
    index = arg_extreme(x, axis, largest)[1]
    return index if keepdim else jnp.squeeze(index, axis)


@reduction("aten.argmax.default", grows=whole.POSITIONS)
def argmax(x, dim=None, keepdim=False):
    """Index of the maximum; NaN wins, ties take the first."""
    return _arg(x, dim, keepdim, True)


@reduction("aten.argmin.default", grows=whole.POSITIONS)
def argmin(x, dim=None, keepdim=False):
    """Index of the minimum; NaN wins, ties take the first."""
    return _arg(x, dim, keepdim, False)


def _extreme_dim(x, dim, keepdim, largest):
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    best, index = arg_extreme(x, axis, largest)
    return (best, index) if keepdim else (jnp.squeeze(best, axis), jnp.squeeze(index, axis))


@reduction("aten.max.dim", grows=whole.ELEMENTS_AND_POSITIONS)
def max_dim(x, dim, keepdim=False):
    """Maximum along a dimension, and where it is."""
    return _extreme_dim(x, dim, keepdim, True)


@reduction("aten.min.dim", grows=whole.ELEMENTS_AND_POSITIONS)
def min_dim(x, dim, keepdim=False):
    """Minimum along a dimension, and where it is."""
    return _extreme_dim(x, dim, keepdim, False)


def _highest_byte(x, axes, keepdims):
    """A maximum of bytes, which XLA vectorises; it does not vectorise "or" and "and"."""
    largest = lambda v, along, keepdims=False: jnp.max(v, along, keepdims=keepdims, initial=0)
    return reduced(x.astype(jnp.uint8), axes, largest, jnp.maximum, keepdims)


@reduction("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(x, dim=None, keepdim=False, out: Any = None):
    """Whether any element is true."""
    found = _highest_byte(x != 0, dims(dim, x.ndim), bool(keepdim) and x.ndim > 0)
    return (found > 0).astype(out.dtype)


@reduction("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(x, dim=None, keepdim=False, out: Any = None):
    """Whether every element is true."""
    found = _highest_byte(x == 0, dims(dim, x.ndim), bool(keepdim) and x.ndim > 0)
    return (found == 0).astype(out.dtype)


@reduction("aten.logsumexp.default")
def logsumexp(x, dim, keepdim=False, out: Any = None):
    """log(sum(exp(x))) without overflow."""
    x = cast(x, _wide(x, out.dtype))
    axes = dims(dim, x.ndim)
    best = highest(x, axes, True)
    best = jnp.where(jnp.isfinite(best), best, 0)
    found = jnp.log(total(jnp.exp(x - best), axes, True)) + best
    return (found if keepdim and x.ndim else jnp.squeeze(found, axes)).astype(out.dtype)


@reduction("aten._softmax.default")
def softmax(x, dim, half_to_float=False, out: Any = None):
    """exp(x - max) over its sum."""
    if x.ndim == 0:
        return jnp.where(x == x, 1, x).astype(out.dtype)
    x = cast(x, _wide(x, out.dtype))
    powers = jnp.exp(x - highest(x, dim, True))
    return (powers / total(powers, dim, True)).astype(out.dtype)


@reduction("aten._log_softmax.default")
def log_softmax(x, dim, half_to_float=False, out: Any = None):
    """The logarithm of softmax."""
    if x.ndim == 0:
        return jnp.where(x == x, 0, x).astype(out.dtype)
    x = cast(x, _wide(x, out.dtype))
    x = x - highest(x, dim, True)
    return (x - jnp.log(total(jnp.exp(x), dim, True))).astype(out.dtype)


@reduction("aten.linalg_vector_norm.default")
def vector_norm(x, ord=2, dim=None, keepdim=False, dtype=None, out: Any = None):
    """The ord-norm along dimensions."""
    axes = dims(dim, x.ndim)
    wide = _wide(x, out.dtype)
    x = jnp.abs(x).astype(wide)
    keep = bool(keepdim)
    if ord == float("inf"):
        value = _extreme(x, axes, keep, True)
    elif ord == float("-inf"):
        value = _extreme(x, axes, keep, False)
    elif ord == 0:
        value = total((x != 0).astype(wide), axes, keep)
    elif ord == 1:
        value = total(x, axes, keep)
    elif ord == 2:
        value = jnp.sqrt(total(x * x, axes, keep))
    else:
        value = total(x**ord, axes, keep) ** (1.0 / ord)
    return value.astype(out.dtype)


@reduction("prims.prepare_softmax_online.default")
def prepare_softmax_online(x, dim):
    """Row maximum and sum of exp(x - max), the two numbers a softmax needs."""
    best = highest(x, dim, True)
    return best, total(jnp.exp(x - best), dim, True)


# -------------------------------------------------------------------------------------------------------- scans
_BLOCK = 64


def _blocked_cumsum(x):
    """Prefix sums of the last axis as products with a triangle of ones, block by block."""
    length = x.shape[-1]
    blocks = -(-length // _BLOCK)
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * _BLOCK - length)])
    tiles = padded.reshape(*x.shape[:-1], blocks, _BLOCK)
    triangle = (
        lax.broadcasted_iota(jnp.int32, (_BLOCK, _BLOCK), 0) <= lax.broadcasted_iota(jnp.int32, (_BLOCK, _BLOCK), 1)
    ).astype(x.dtype)
    inner = lax.dot_general(tiles, triangle, (((tiles.ndim - 1,), (0,)), ((), ())))
    totals = inner[..., -1]
    carried = jnp.cumsum(totals, -1) - totals if blocks <= _BLOCK else _blocked_cumsum(totals) - totals
    return (inner + carried[..., None]).reshape(*x.shape[:-1], blocks * _BLOCK)[..., :length]


@row("aten.cumsum.default", library=library.an_element(2), grows=whole.SCANNED)
def cumsum(x, dim, dtype=None, out: Any = None):
    """Prefix sums."""
    wide = _wide(x, out.dtype)
    x = cast(x, wide)
    if x.ndim == 0 or x.size == 0:
        return x.astype(out.dtype)
    axis = dim % x.ndim
    if jnp.dtype(wide) not in (jnp.dtype(jnp.float32), jnp.dtype(jnp.float64)) or x.shape[axis] < 2 * _BLOCK:
        return jnp.cumsum(x, axis).astype(out.dtype)
    moved = jnp.moveaxis(x, axis, -1)
    # The triangle multiplies later elements by 0, which an infinity or a NaN among them would turn into NaN.
    value = lax.cond(jnp.all(jnp.isfinite(moved)), _blocked_cumsum, lambda v: jnp.cumsum(v, -1), moved)
    return jnp.moveaxis(value, -1, axis).astype(out.dtype)


@row("aten.cumprod.default", library=library.an_element(3), grows=whole.ALL_MULTIPLIED)
def cumprod(x, dim, dtype=None, out: Any = None):
    """Prefix products."""
    x = cast(x, _wide(x, out.dtype))
    return (jnp.cumprod(x, dim % x.ndim) if x.ndim else x).astype(out.dtype)


@row("aten.logcumsumexp.default", library=library.an_element(250))
def logcumsumexp(x, dim, out: Any = None):
    """Prefix log-sum-exp."""
    return lax.cumlogsumexp(cast(x, _wide(x, out.dtype)), dim % x.ndim).astype(out.dtype) if x.ndim else x


def _cumulative_extreme(x, dim, largest):
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    axis = dim % x.ndim
    position = lax.broadcasted_iota(jnp.int64, x.shape, axis)

    def later(a, b):
        (av, ai), (bv, bi) = a, b
        wins = (bv >= av) if largest else (bv <= av)
        wins = wins | (bv != bv)
        wins = wins & ~((av != av) & (bv == bv))
        return jnp.where(wins, bv, av), jnp.where(wins, bi, ai)

    return lax.associative_scan(later, (x, position), axis=axis)


@row("aten.cummax.default", library=library.an_element(9), grows=whole.ELEMENTS_AND_POSITIONS)
def cummax(x, dim):
    """Running maximum, and where it is; the latest of equal ones."""
    return _cumulative_extreme(x, dim, True)


@row("aten.cummin.default", library=library.an_element(9), grows=whole.ELEMENTS_AND_POSITIONS)
def cummin(x, dim):
    """Running minimum, and where it is; the latest of equal ones."""
    return _cumulative_extreme(x, dim, False)


@row(
    "aten.histc.default",
    supports=lambda x, bins=100, min=0, max=0: x.dtype in (torch.float32, torch.float64) and min < max,
)
def histc(x, bins=100, min=0, max=0):
    """How many elements fall into each of equal bins; those outside, NaN too, count nowhere."""
    flat = x.reshape(-1).astype(jnp.promote_types(x.dtype, jnp.float32))
    inside = (flat >= min) & (flat <= max)
    place = jnp.where(inside, (flat - min) * bins / (max - min), 0).astype(jnp.int64)
    place = jnp.where(inside, jnp.minimum(place, bins - 1), bins)
    return jnp.zeros(bins, jnp.int64).at[place].add(1, mode="drop").astype(x.dtype)


@row("aten._weight_norm_interface_backward.default")
def weight_norm_backward(grad, v, g, norms, dim):
    """Gradients of `g * v / norm(v)` for v and g, the norm over every dimension but `dim`."""
    wide = jnp.promote_types(v.dtype, jnp.float32)
    grad, v_wide, g_wide, norms = (a.astype(wide) for a in (grad, v, g, norms))
    others = tuple(d for d in range(v.ndim) if d != dim % v.ndim)
    along = total(grad * v_wide, others, True) / norms
    grad_v = g_wide / norms * (grad - v_wide * along / norms)
    return grad_v.astype(v.dtype), along.astype(g.dtype)
