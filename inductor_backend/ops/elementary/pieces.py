"""What the elementary functions are made of: polynomials, the bits of a number, powers of two, exact halves.

Input and output: arrays of f32 or f64. Law: nothing here calls a function of the C library, so XLA's CPU compiler
vectorises all of it; products that must be exact are exact with and without contraction to multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

lax = jax.lax

#: dtype -> (the whole numbers of its width, bits after the point, bias of the exponent)
_FORMATS = {"float32": (jnp.int32, 23, 127), "float64": (jnp.int64, 52, 1023)}


def on_cpu() -> bool:
    """Whether what is traced is for a CPU: a TPU has no f64, and is traced without."""
    return jax.dtypes.canonicalize_dtype("float64") == jnp.float64


def for_cpu(x: Any) -> bool:
    """Whether these functions are for an array: f32 or f64 numbers on a CPU. A TPU has its own."""
    return x.dtype.name in _FORMATS and on_cpu()


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """c[0] + c[1] x + ..., by Horner's rule."""
    total = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def bits(x: Any) -> Any:
    """A float's bits as a whole number."""
    return lax.bitcast_convert_type(x, _FORMATS[x.dtype.name][0])


def number(b: Any, dtype: Any) -> Any:
    """The float with these bits."""
    return lax.bitcast_convert_type(b, dtype)


def leading(x: Any) -> Any:
    """`x` with the lower half of its digits cut off: products of two such numbers are exact."""
    half = {"float32": 12, "float64": 27}[x.dtype.name]
    return number(bits(x) & ~((1 << half) - 1), x.dtype)


def with_sign_of(magnitude: Any, x: Any) -> Any:
    """A number of no sign with the sign bit of another."""
    sign = bits(x) & jnp.iinfo(bits(x).dtype).min
    return number(bits(magnitude) | sign, x.dtype)


def nearest(x: Any) -> tuple[Any, Any]:
    """The nearest whole number, as a float and as a whole number; for |x| below a quarter of what the digits hold."""
    whole = jnp.round(x)
    # Exact, so that copies of it in several fusions agree, whatever was contracted to a multiply-add in them.
    shift = jnp.asarray(1.5 * 2.0 ** _FORMATS[x.dtype.name][1], x.dtype)
    return whole, bits(whole + shift) - bits(shift)


def split_exponent(x: Any) -> tuple[Any, Any]:
    """(k as a float, m) with x = 2^k m and m in [sqrt(1/2), sqrt 2); for positive, finite, normal numbers."""
    _, places, _ = _FORMATS[x.dtype.name]
    low = bits(jnp.asarray(0.5**0.5, x.dtype))
    k = (bits(x) - low) >> places
    m = number(bits(x) - (k << places), x.dtype)
    # f64 from int32 is an instruction; from int64 it is one on few processors.
    return k.astype(jnp.int32).astype(x.dtype), m


def power_of_two(n: Any, dtype: Any) -> Any:
    """2^n for a whole n within the exponents' range."""
    _, places, bias = _FORMATS[jnp.dtype(dtype).name]
    return number((n + bias) << places, dtype)


def times_power_of_two(y: Any, n: Any) -> Any:
    """Y * 2^n for y near 1; in two steps, so that neither overflows before the product does."""
    first = n >> 1
    return y * power_of_two(first, y.dtype) * power_of_two(n - first, y.dtype)


def guarded(inside: Callable[..., Any], fast: Callable[..., Any], exact: Callable[..., Any], *operands: Any) -> Any:
    """`fast` where every element lies inside its range, else `exact` for the whole array.

    Args:
        inside: which elements `fast` is right for.
        fast: vectorised.
        exact: right everywhere.
        operands: arrays of one shape.
    """
    # An array this small doesn't repay the look at its range.
    if max(x.size for x in operands) < 512:
        return exact(*operands)
    return lax.cond(jnp.all(inside(*operands)), fast, exact, *operands)
