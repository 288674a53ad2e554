"""Evaluate index maps at every grid point at once.

Input: a traced index map and the coordinates of many grid points. Output: the block indices as numpy arrays, or None
when they depend on prefetched data. Law: same result as jax's own evaluation; the usual integer arithmetic runs in
numpy, so that checking a call compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pallas_core import compat


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "rem": np.fmod,
    "div": _truncated,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.bitwise_not,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
}


class _Unknown(Exception):
    """An operation that numpy does not stand in for."""


def evaluate(index_map: Any, axes: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
    """The block indices at many grid points, or None when they depend on prefetched data.

    Args:
        index_map: of a `compat.Operand`.
        axes: per grid dimension, an int32 array of that coordinate at every point (all of one length).
    """
    jaxpr = getattr(index_map, "jaxpr", index_map)
    count = len(axes[0]) if axes else 1
    prefetched = jaxpr.invars[len(axes) :]
    if prefetched and any(v in prefetched for eqn in compat.equations(jaxpr) for v in eqn.invars if not _literal(v)):
        return None
    values = [*axes, *([None] * len(prefetched))]
    try:
        with np.errstate(all="ignore"):
            found = _run(jaxpr, getattr(index_map, "consts", ()), values)
    except _Unknown:
        if prefetched:
            return None
        found = compat.evaluate_by_jax(index_map, axes)
    return tuple(np.broadcast_to(np.asarray(v, np.int64), (count,)) for v in found)


def _literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _run(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts))
    known.update(zip(jaxpr.invars, values))
    read = lambda v: np.asarray(v.val) if _literal(v) else known[v]
    for eqn in jaxpr.eqns:
        name, args = eqn.primitive.name, [read(v) for v in eqn.invars]
        inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        if name in ("pjit", "jit", "closed_call", "core_call") and inner is not None:
            results = _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), args)
        elif name == "convert_element_type":
            results = [np.asarray(args[0]).astype(eqn.params["new_dtype"])]
        elif name == "select_n":
            results = [np.choose(np.asarray(args[0]).astype(np.intp), args[1:])]
        elif name in _NUMPY:
            results = [_NUMPY[name](*args)]
        else:
            raise _Unknown(name)
        known.update(zip(eqn.outvars, results))
    return [read(v) for v in jaxpr.outvars]
