"""Whether a computation in 32 bits left them: what a segment for a TPU asks where ranges prove nothing.

Input: an operator's operands, its result in 32 bits, the operator as a function. Output: a bool array without
dimensions, true where eager's number is not the result. Law: never false where a number wrapped around; true where none
did only for sums whose terms, without their signs, are far beyond 32 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_HALF = float(2**31)
#: By how much f32 may miss a sum, as a share of the sum of absolute values, for every term.
_MISS = 2.0**-24


def _floats(operands: tuple[Any, ...]) -> list[Any]:
    return [a.astype(jnp.float32) if jnp.issubdtype(a.dtype, jnp.integer) else a for a in operands]


def _exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return run


def approximately(function: Callable[..., Any], result: Any, *operands: Any) -> Any:
    """For operators whose f32 result is right but for a small share of itself: wrapping moves by 2**32 at least."""
    near = function(*_floats(operands))
    return jnp.any(jnp.abs(near - result.astype(jnp.float32)) >= _HALF)


@_exactly
def summed(function: Callable[..., Any], result: Any, *operands: Any) -> Any:
    """For sums of terms of either sign: f32 misses by a share of the sum of their absolute values."""
    floats = _floats(operands)
    near, size = function(*floats), function(*map(jnp.abs, floats))
    share = _MISS * max(a.size for a in operands)
    return jnp.any(jnp.abs(near - result.astype(jnp.float32)) + share * jnp.abs(size) >= _HALF)


def shifted(x: Any, y: Any) -> Any:
    """`x << y` of floats."""
    return x * jnp.exp2(jnp.asarray(y, jnp.float32))


def from_float(x: Any) -> Any:
    """For a float made whole; what is not finite has no number either."""
    x = x.astype(jnp.float32)
    return ~jnp.all((x >= -_HALF) & (x < _HALF))
