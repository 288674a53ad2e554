"""Shapes and dtypes without data: `spec`, `like`, and the spec of anything a user may pass.

Input: torch or jax dtypes, tensors, arrays, specs. Output: `jax.ShapeDtypeStruct`, which keeps 64-bit dtypes whatever
jax's x64 mode is. Law: nothing here touches data, and no torch import is needed to read a torch dtype.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bridge.diagnostics import Where, error

Spec = jax.ShapeDtypeStruct


def dtype_of(dtype: Any) -> np.dtype:
    """The numpy (or ml_dtypes) dtype of a torch dtype, a jax dtype, a numpy dtype or a name.

    Raises:
        Diagnostic: ``bad-argument`` when there is no such dtype on the jax side.
    """
    name = str(dtype)
    wanted: Any = name.removeprefix("torch.") if name.startswith("torch.") else dtype
    # ml_dtypes knows complex32, and jax has no operation on it.
    if not name.endswith("complex32") and (isinstance(wanted, (str, np.dtype, type)) or hasattr(wanted, "dtype")):
        try:
            return np.dtype(jnp.dtype(wanted))
        except TypeError:
            pass
    raise error(
        "bad-argument",
        f"{name} is not a dtype that jax has",
        where=Where.caller(),
        why="an output or argument spec needs a dtype that exists on both sides.",
        do="use a dtype such as torch.float32, jnp.bfloat16 or 'int32'",
    )


def spec(shape: Any, dtype: Any) -> Spec:
    """A shape and a dtype, for `out_shape` and for compiling without data.

    Args:
        shape: an int or a sequence of non-negative ints.
        dtype: torch, jax or numpy dtype, or its name.

    Raises:
        Diagnostic: ``bad-argument``.
    """
    return Spec(dims_of(shape), dtype_of(dtype))


def dims_of(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of ints.

    Raises:
        Diagnostic: ``bad-argument``.
    """
    try:
        dims = tuple(operator.index(d) for d in ((shape,) if hasattr(shape, "__index__") else shape))
    except TypeError:
        dims = (-1,)
    if any(d < 0 for d in dims):
        raise error(
            "bad-argument",
            f"{shape!r} is not a shape",
            where=Where.caller(),
            why="a shape is a sequence of non-negative ints.",
            do="for example: pc.spec((512, 1024), torch.float32)",
        )
    return dims


def like(value: Any) -> Spec:
    """The spec of a tensor, an array or a spec; `out_shape=pc.like(x)` reads well.

    Raises:
        Diagnostic: ``bad-argument`` when `value` has no shape and dtype.
    """
    if isinstance(value, Spec) and value.sharding is None and not value.weak_type:
        return value
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        if isinstance(value, tuple) and len(value) == 2:
            return spec(*value)
        raise error(
            "bad-argument",
            f"{type(value).__name__} has no shape and dtype",
            where=Where.caller(),
            why="a kernel is traced for the shapes and dtypes of its arguments.",
            do="pass a tensor, an array, or pc.spec(shape, dtype)",
        )
    return spec(tuple(shape), dtype)


def text(value: Spec) -> str:
    """``float32[8, 128]``."""
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
