"""Array functions that emitted TPU kernels call: what Mosaic has a form for, with torch's meaning.

Input: blocks, whose reduced dimensions are there whole. Output: blocks of the same rank; a reduced dimension is 1 then.
Law: 32-bit values at most; half precision is summed and multiplied into f32 and rounded once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.experimental import pallas as pl

lax = jax.lax

_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def narrow(dtype: Any) -> Any:
    """The 32-bit dtype in place of a 64-bit one."""
    name = jnp.dtype(dtype).name
    return jnp.dtype(_NARROW.get(name, name))


def cast(x: Any, dtype: Any) -> Any:
    """Convert as C does; a bool or a narrow float takes the way through 32 bits that a core has."""
    x, dtype = jnp.asarray(x), narrow(dtype)
    if x.dtype == dtype:
        return x
    if dtype == jnp.bool_:
        return x != 0
    if x.dtype == jnp.bool_ and dtype not in (jnp.float32, jnp.int32):
        x = x.astype(jnp.int32)
    return x.astype(dtype)


def _wide(x: Any) -> Any:
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


def whole(x: Any, shape: Sequence[int]) -> Any:
    """`x` with every element of the block present."""
    return x if x.shape == tuple(shape) else jnp.broadcast_to(x, tuple(shape))


def total(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    """Sum; half precision accumulates in f32, bool counts."""
    dtype = narrow(dtype)
    x = _wide(x)
    x = x.astype(jnp.int32) if x.dtype == jnp.bool_ else x
    x = cast(x, jnp.float32) if jnp.issubdtype(dtype, jnp.floating) else x
    return cast(jnp.sum(x, axes, keepdims=True), dtype)


def mean(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    """Mean."""
    count = math.prod(x.shape[a] for a in axes)
    return cast(total(x, axes, jnp.float32) / jnp.float32(count), dtype)


def _extreme(x: Any, axes: tuple[int, ...], largest: bool) -> Any:
    whatever = x.dtype
    if jnp.issubdtype(whatever, jnp.floating):
        x = _wide(x)
        best = (jnp.max if largest else jnp.min)(
            jnp.where(x == x, x, -jnp.inf if largest else jnp.inf), axes, keepdims=True
        )
        lost = jnp.max(jnp.where(x == x, 0.0, 1.0), axes, keepdims=True)
        return jnp.where(lost > 0, jnp.float32(jnp.nan), best).astype(whatever)
    if whatever == jnp.bool_:
        return _extreme(x.astype(jnp.int32), axes, largest) != 0
    return (jnp.max if largest else jnp.min)(x, axes, keepdims=True)


def amax(x: Any, axes: tuple[int, ...]) -> Any:
    """Maximum; NaN wins."""
    return _extreme(x, axes, True)


def amin(x: Any, axes: tuple[int, ...]) -> Any:
    """Minimum; NaN wins."""
    return _extreme(x, axes, False)


def row_max(x: Any, axes: tuple[int, ...]) -> Any:
    """Maximum of rows that nothing but an exponential with its own sum is made of: a NaN shows in the sum."""
    return jnp.max(_wide(x), axes, keepdims=True).astype(x.dtype)


def var_mean(x: Any, axes: tuple[int, ...], correction: float, dtypes: Sequence[Any]) -> tuple[Any, Any]:
    """Variance and mean, in two passes over the block."""
    count = math.prod(x.shape[a] for a in axes)
    x = _wide(x)
    mu = jnp.sum(x, axes, keepdims=True) / jnp.float32(count)
    centred = x - mu
    squares = jnp.sum(centred * centred, axes, keepdims=True)
    return cast(squares / jnp.float32(max(count - correction, 0)), dtypes[0]), cast(mu, dtypes[1])


def softmax(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    """exp(x - max) over its sum."""
    x = _wide(x)
    powers = jnp.exp(x - jnp.max(x, axes, keepdims=True))
    return cast(powers / jnp.sum(powers, axes, keepdims=True), dtype)


def log_softmax(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    """The logarithm of softmax."""
    x = _wide(x)
    x = x - jnp.max(x, axes, keepdims=True)
    return cast(x - jnp.log(jnp.sum(jnp.exp(x), axes, keepdims=True)), dtype)


def logsumexp(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    """log(sum(exp(x))) without overflow."""
    x = _wide(x)
    best = jnp.max(x, axes, keepdims=True)
    best = jnp.where(jnp.abs(best) < jnp.inf, best, 0.0)
    return cast(jnp.log(jnp.sum(jnp.exp(x - best), axes, keepdims=True)) + best, dtype)


def softmax_parts(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """Row maximum and sum of exp(x - max)."""
    best = row_max(x, axes)
    return best, jnp.sum(jnp.exp(x - best), axes, keepdims=True)


def any_of(x: Any, axes: tuple[int, ...]) -> Any:
    """Whether any element is not zero."""
    return jnp.max(jnp.where(x != 0, 1.0, 0.0), axes, keepdims=True) > 0


def all_of(x: Any, axes: tuple[int, ...]) -> Any:
    """Whether no element is zero."""
    return jnp.min(jnp.where(x != 0, 1.0, 0.0), axes, keepdims=True) > 0


def extreme_at(x: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """An extreme along one dimension and the first place where it is; NaN wins."""
    best = _extreme(x, (axis,), largest)
    hit = (x == best) | (x != x) if jnp.issubdtype(x.dtype, jnp.floating) else x == best
    place = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return best, jnp.min(jnp.where(hit, place, jnp.int32(2**31 - 1)), (axis,), keepdims=True)


def pick(x: Any, index: Any, axis: int) -> Any:
    """The element that `index` names along a dimension."""
    place = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return total(jnp.where(place == index, x, jnp.zeros((), x.dtype)), (axis,), x.dtype)


def iota(shape: Sequence[int], axis: int, first: Any, start: int, step: int, dtype: Any) -> Any:
    """Start + step * (number of the element along its whole dimension); a block begins at `first`."""
    number = lax.broadcasted_iota(jnp.int32, tuple(shape), axis) + first
    number = number if step == 1 else number * jnp.int32(step)
    number = number if start == 0 else number + jnp.int32(start)
    return cast(number, dtype)


def kept(x: Any, axis: int, first: Any, length: int) -> Any:
    """`x` with zeros past the end of a dimension, where the last block of a grid reaches beyond it."""
    number = lax.broadcasted_iota(jnp.int32, x.shape, axis) + first
    return jnp.where(number < length, x, jnp.zeros((), x.dtype))


def precision() -> lax.Precision:
    """How exactly f32 is multiplied: as torch.set_float32_matmul_precision says; exactly by default."""
    chosen = torch.get_float32_matmul_precision()
    return lax.Precision.HIGHEST if chosen in ("highest", "high") else lax.Precision.DEFAULT


def precision_name() -> str:
    """The same for what XLA multiplies around the kernels."""
    return "highest" if precision() is lax.Precision.HIGHEST else "default"


def dot(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """A @ b of two matrices, in f32."""
    if a.dtype == jnp.bool_:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    numbers = (((0 if transpose_a else 1,), (1 if transpose_b else 0,)), ((), ()))
    exact = precision() if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(a, b, numbers, preferred_element_type=jnp.float32, precision=exact)


def first(axis: int, size: int) -> Any:
    """The number of the first element of this step's block along a grid axis."""
    return pl.program_id(axis) * size


def _scores(q: Any, k: Any, at: int, causal: bool, scale: float | None, first: Any, mask: Any) -> Any:
    """Scaled and masked products of a block of queries with the keys from `at` on."""
    s = dot(q, k, transpose_b=True) * jnp.float32(q.shape[1] ** -0.5 if scale is None else scale)
    if causal:
        row = lax.broadcasted_iota(jnp.int32, s.shape, 0) + first
        s = jnp.where(lax.broadcasted_iota(jnp.int32, s.shape, 1) + at <= row, s, -jnp.inf)
    if mask is not None:
        part = mask if mask.shape[1] == 1 else mask[:, at : at + k.shape[0]]
        s = jnp.where(part, s, -jnp.inf) if part.dtype == jnp.bool_ else s + part.astype(jnp.float32)
    return s


#: Pieces of keys in all branches of causal attention: more take long to compile.
_MOST_PIECES = 40


def _chunks(length: int) -> list[tuple[int, int]]:
    """Keys in pieces whose products overlap with the softmax of the piece before."""
    size = length if length <= 1024 or length % 512 else 512
    return [(at, min(size, length - at)) for at in range(0, length, size)]


def attention(
    q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, first: Any = 0, mask: Any = None,
    rows: int = 0,
) -> tuple[Any, Any]:  # fmt: skip
    """(softmax(q k' scale + mask) v, the log-sum-exp of every row as a column) for a block of queries of one head.

    A row whose keys are all masked gives 0. Keys that no query of the block sees are left out where `rows`, the number
    of all queries, says how many blocks there are.
    """
    block, keys = q.shape[0], k.shape[0]
    blocks = -(-rows // block) if causal else 1
    groups = min(blocks, 2 * _MOST_PIECES // len(_chunks(keys)) - 1)
    if groups < 2:
        return _attended(q, k, v, causal, scale, first, mask)
    branch: Callable[[], tuple[Any, Any]] | None = None
    step = -(-blocks // groups) * block
    for start in range(0, rows, step):  # a branch for every group of blocks, over the keys that its last block sees
        seen = min(keys, start + step)
        part = mask if mask is None or mask.shape[1] == 1 else mask[:, :seen]
        at = start if step == block else first
        mine = functools.partial(_attended, q, k[:seen], v[:seen], True, scale, at, part, start)
        branch = mine if branch is None else functools.partial(lax.cond, first < start, branch, mine)
    assert branch is not None
    return branch()


def _attended(
    q: Any, k: Any, v: Any, causal: bool, scale: float | None, first: Any, mask: Any, least: int = 0
) -> tuple[Any, Any]:
    """As `attention`, over all keys that are given; the first query is `least` or a later one."""
    best = jnp.full((q.shape[0], 1), -jnp.inf, jnp.float32)
    total = jnp.zeros((q.shape[0], 1), jnp.float32)
    y = jnp.zeros((q.shape[0], v.shape[1]), jnp.float32)
    for at, size in _chunks(k.shape[0]):
        diagonal = causal and at + size > least + 1
        s = _scores(q, k[at : at + size], at, diagonal, scale, first, mask)
        higher = jnp.maximum(best, jnp.max(s, 1, keepdims=True))
        base = jnp.where(higher > -jnp.inf, higher, 0.0)
        p = jnp.exp(s - base)
        kept_share = jnp.exp(best - base)
        total = total * kept_share + jnp.sum(p, 1, keepdims=True)
        y = y * kept_share + dot(p.astype(v.dtype), v[at : at + size])
        best = higher
    base = jnp.where(best > -jnp.inf, best, 0.0)
    return jnp.where(total == 0, 0.0, y / total), jnp.log(total) + base


def attention_backward(
    grad: Any, q: Any, k: Any, v: Any, y: Any, lse: Any,
    causal: bool = False, scale: float | None = None, first: Any = 0, mask: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients for a block of queries, and this block's share of the gradients for all keys and values."""
    factor = jnp.float32(q.shape[1] ** -0.5 if scale is None else scale)
    delta = jnp.sum(grad.astype(jnp.float32) * y.astype(jnp.float32), 1, keepdims=True)
    base = jnp.where(lse > -jnp.inf, lse, 0.0)
    p = jnp.exp(_scores(q, k, 0, causal, scale, first, mask) - base)
    p = jnp.where(lse > -jnp.inf, p, 0.0)
    grad_p = dot(grad, v, transpose_b=True)
    grad_s = (p * (grad_p - delta) * factor).astype(q.dtype)
    return dot(grad_s, k), dot(grad_s, q, transpose_a=True), dot(p.astype(grad.dtype), grad, transpose_a=True)


# ------------------------------------------------------------- operators whose own row Mosaic has no form of
def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """Choose by a bool."""
    condition = condition if jnp.asarray(condition).dtype == jnp.bool_ else condition != 0
    return jnp.where(condition, cast(x, out.dtype), cast(y, out.dtype))


def convert(x: Any, dtype: Any = None, **_: Any) -> Any:
    """Convert as C does."""
    return x if dtype is None else cast(x, dtype)


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """`value` where the mask is true."""
    return jnp.where(mask, cast(value, x.dtype), x)


def clone(x: Any, memory_format: Any = None) -> Any:
    """The same values."""
    return x


def relu(x: Any) -> Any:
    """max(x, 0); NaN stays."""
    return jnp.where(x <= 0, jnp.zeros((), x.dtype), x)


def maximum(x: Any, y: Any) -> Any:
    """The larger; NaN wins, which a core's own maximum does not promise."""
    x, y = _pair(x, y)
    return jnp.where((x > y) | (x != x), x, y) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller; NaN wins."""
    x, y = _pair(x, y)
    return jnp.where((x < y) | (x != x), x, y) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.minimum(x, y)


def _pair(x: Any, y: Any) -> tuple[Any, Any]:
    dtype = jnp.result_type(x, y)
    return jnp.asarray(x, dtype), jnp.asarray(y, dtype)


def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """Limit to [min, max]; NaN stays; max wins when the limits cross."""
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


def hardtanh(x: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    """Limit to [min_val, max_val]."""
    return clamp(x, min_val, max_val)


#: Emitted name -> function.
OPERATORS: dict[str, Callable[..., Any]] = {
    "where_self": where,
    "convert_element_type": convert,
    "_to_copy": convert,
    "masked_fill_Scalar": masked_fill,
    "masked_fill_Tensor": masked_fill,
    "clone": clone,
    "alias": clone,
    "detach": clone,
    "relu": relu,
    "maximum": maximum,
    "minimum": minimum,
    "clamp": clamp,
    "clamp_Tensor": clamp,
    "clamp_min": maximum,
    "clamp_min_Tensor": maximum,
    "clamp_max": minimum,
    "clamp_max_Tensor": minimum,
    "hardtanh": hardtanh,
}
