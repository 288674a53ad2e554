"""Arithmetic that XLA's algebra would change: divisions, constants that follow each other, powers, wide formulas.

Input and output: arrays, or a number as one operand. Law: every operation rounds, overflows and is NaN by itself, as
in eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inductor_backend.ops import elementary
from inductor_backend.ops.elementary.pieces import on_cpu

#: Whether an XLA compiler sees what is traced; Mosaic, which takes no operator apart, has no form of a fence.
_fences: ContextVar[bool] = ContextVar("_fences", default=True)


def unfenced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` for a kernel that Mosaic compiles."""

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        token = _fences.set(False)
        try:
            return fn(*args, **kwargs)
        finally:
            _fences.reset(token)

    return call


def fence(x):
    """The same number, from which XLA draws no conclusions.

    XLA computes (a / b) / c as a / (b * c), log(a ** b) as b * log(|a|), exp(a) * exp(b) as exp(a + b), (x + 1e4) - 1e4
    as x: other numbers where something rounds, overflows or is NaN. It doesn't look behind a rounding to the precision
    that a number has already, for which no instruction is emitted.
    """
    if not _fences.get() or x.dtype not in (jnp.float32, jnp.float64):
        return x
    info = jnp.finfo(x.dtype)
    return jax.lax.reduce_precision(x, info.nexp, info.nmant)


def divide(x, y):
    """The quotient, rounded once: XLA multiplies by the reciprocal of a divisor that it knows or that is broadcast.

    Only on a CPU: on a TPU it costs a softmax a quarter of its time.
    """
    if isinstance(y, (int, float)) and math.frexp(y)[0] in (0.5, -0.5):
        return fence(jnp.asarray(x / y))
    if on_cpu() and isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating):
        y = jnp.where(x != x, x, jnp.asarray(y, x.dtype))
    return fence(jnp.asarray(x / y))


def in_double(fn):
    """`fn` of f32 numbers, computed in f64: where the f32 formula loses more digits than eager's does."""

    def wider(*args):
        if jnp.result_type(*args) != jnp.float32:
            return fn(*args)
        return fn(*(jnp.asarray(a, jnp.float64) for a in args)).astype(jnp.float32)

    return wider


def signed(fn, part: str, sign: int):
    """`fn` whose real or imaginary part has the sign of that part of a complex argument, or the opposite one.

    XLA's own take a zero for a positive one, which puts numbers on the wrong side of a branch cut.
    """

    def apply(x):
        y = fn(x)
        if not jnp.issubdtype(y.dtype, jnp.complexfloating):
            return y
        side = sign * getattr(x, part)
        if part == "real":
            return jax.lax.complex(jnp.copysign(y.real, side), y.imag)
        return jax.lax.complex(y.real, jnp.copysign(y.imag, side))

    return apply


def _exponential(fn, largest):
    """`fn`, infinite from where its power is too large.

    It ends with a product, which the compiler joins with a sum that follows: exp(inf) - 1 would be finite.
    """

    def apply(x):
        if x.dtype not in (jnp.float32, jnp.float64):
            return fn(x)
        return fence(jnp.where(x >= float(largest(jnp.finfo(x.dtype))), jnp.inf, fn(x)))

    return apply


exp = _exponential(jnp.exp, lambda info: np.nextafter(np.log(info.max), np.inf))
exp2 = _exponential(elementary.exp2, lambda info: info.maxexp)


def scaled(x, power, shift: int = 2):
    """Exact product with a whole `power` of two, shared among 2 ** shift factors, each of which an exponent holds."""
    bits, bias = jnp.finfo(x.dtype).nmant, jnp.finfo(x.dtype).maxexp - 1
    power = power.astype(jnp.int32) if power.dtype.itemsize < 4 else power
    power = jnp.clip(power, -bias << shift, bias << shift).astype(jnp.int32 if x.dtype == jnp.float32 else jnp.int64)
    for part in range(1 << shift):
        x = fence(x * jax.lax.bitcast_convert_type((((power + part) >> shift) + bias) << bits, x.dtype))
    return x
