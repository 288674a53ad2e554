"""Reductions as XLA's CPU compiler vectorises them, and as eager rounds them.

Input: an array, and the dimensions to reduce. Output: the reduction. Law: a sum is at least as accurate as eager's: no
partial sum takes more than some hundred numbers one after the other.

XLA reduces along a row element by element, 4 to 20 times slower than along a column. So a row becomes a block of
columns, the lanes, which are reduced to one row first, and that to an element. Barriers keep XLA from making one
reduction of the two again. XLA's library has fast reductions of rows too, but it can't be called without XLA's runtime,
fuses nothing, and loses NaN in maxima; programs that are compiled without it (`bridge.engine.plain`) have this form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from bridge.engine import plain

#: How many columns a row is taken apart into: the first that divides it.
_LANES = (8, 16, 32)
#: Shorter rows are not worth it.
_SHORT = 48
#: How many numbers are reduced one after the other. XLA computes operands of longer reductions beforehand, to memory.
_TURNS = 32

__all__ = ["highest", "plain", "reduced", "total"]

Reduce = Callable[..., Any]


def reduced(x: Any, axes: Sequence[int] | int, reduce: Reduce, join: Reduce, keepdims: bool = False) -> Any:
    """`reduce(x, axes)`.

    Args:
        x: an array.
        axes: what to reduce.
        reduce: the reduction of an array along axes, as jax.numpy has it.
        join: the same for two arrays.
        keepdims: whether the dimensions stay, as 1.
    """
    axes = (axes,) if isinstance(axes, int) else axes
    axes = tuple(sorted(a % max(x.ndim, 1) for a in axes if x.ndim))
    if not plain.get() or not axes or x.size == 0 or jnp.issubdtype(x.dtype, jnp.complexfloating):
        return reduce(x, axes, keepdims=keepdims)
    first = x.ndim
    while first and first - 1 in axes:
        first -= 1
    found, rest = x, list(axes)
    if math.prod(x.shape[first:]) >= _SHORT:
        found = _rows(x.reshape(*x.shape[:first], -1), reduce, join)
        rest = [a for a in axes if a < first]
    if rest:
        longest = max(rest, key=lambda a: found.shape[a])
        if found.shape[longest] > 2 * _TURNS:
            found = _columns(found, longest, reduce, join)
            rest = [a - (a > longest) for a in rest if a != longest]
        found = reduce(found, tuple(rest)) if rest else found
    shape = [1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes]
    return found.reshape(shape)


def total(x: Any, axes: Sequence[int] | int, keepdims: bool = False) -> Any:
    """The sum."""
    return reduced(x, axes, jnp.sum, jnp.add, keepdims)


def highest(x: Any, axes: Sequence[int] | int, keepdims: bool = False) -> Any:
    """The maximum of numbers among which there is no NaN, or for which it doesn't matter."""
    return reduced(x, axes, jnp.max, jnp.maximum, keepdims)


def _turns(n: int) -> int:
    """How many of n partial results to take together: all of them or a divisor, or as many as may be."""
    if n <= _TURNS:
        return n
    return next((t for t in range(_TURNS, _TURNS // 3, -1) if n % t == 0), _TURNS)


def _rows(x: Any, reduce: Reduce, join: Reduce) -> Any:
    """Along the last dimension."""
    n = x.shape[-1]
    forms = [(w, _turns(n // w)) for w in _LANES] + [(w, n // w) for w in range(12, 64) if n // w <= _TURNS]
    lanes, turns = next(((w, t) for w, t in forms if n % (w * t) == 0), forms[0])
    whole = n // (lanes * turns) * lanes * turns
    blocks = x[..., :whole].reshape(*x.shape[:-1], -1, turns, lanes)
    found = _rest(lax.optimization_barrier(reduce(blocks, -2)).reshape(*x.shape[:-1], -1), reduce, join)
    if whole < n:
        rest = x[..., whole:]
        found = join(found, _rows(rest, reduce, join) if n - whole >= _SHORT else reduce(rest, -1))
    return found


def _rest(x: Any, reduce: Reduce, join: Reduce) -> Any:
    """Along the last dimension, of partial results: by halves, as rounding likes it best.

    XLA would fuse a reduction that has one user into it, and then neither is vectorised; halves are two users.
    """
    n = x.shape[-1]
    if n > 4 * _TURNS:
        return join(_rows(x[..., : n // 2], reduce, join), _rows(x[..., n // 2 :], reduce, join))
    odd = None
    while n > 4:
        if n % 2:
            odd = x[..., n - 1] if odd is None else join(odd, x[..., n - 1])
        n //= 2
        x = join(x[..., :n], x[..., n : 2 * n])
    return reduce(x, -1) if odd is None else join(reduce(x, -1), odd)


def _columns(x: Any, axis: int, reduce: Reduce, join: Reduce) -> Any:
    """Along a dimension that is not the last one."""
    n = x.shape[axis]
    turns = _turns(n)
    if turns == n:
        return reduce(x, axis)
    whole = n // turns * turns
    blocks = lax.slice_in_dim(x, 0, whole, axis=axis).reshape(*x.shape[:axis], -1, turns, *x.shape[axis + 1 :])
    found = lax.optimization_barrier(reduce(blocks, axis + 1))
    half = (found.shape[axis] + 1) // 2
    parts = [lax.slice_in_dim(found, a, b, axis=axis) for a, b in ((0, half), (half, found.shape[axis])) if b > a]
    parts = [_columns(part, axis, reduce, join) for part in parts]
    if whole < n:
        parts.append(reduce(lax.slice_in_dim(x, whole, n, axis=axis), axis))
    return functools.reduce(join, parts)
