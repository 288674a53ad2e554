"""Evaluate index maps at every grid point at once, and the integers of a kernel that are known before it runs.

Input: a traced index map and the coordinates of many grid points, or a kernel. Output: the block indices as numpy
arrays, or None when they depend on prefetched data; or the kernel's equations with their known inputs. Law: same result
as jax's own evaluation; the usual integer arithmetic runs in numpy, so that checking a call compiles nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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


_CALLS = frozenset({"pjit", "jit", "closed_call", "core_call"})
#: Tables of indices with more elements than this are not computed.
MAX_KNOWN = 1 << 14


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


def known_inputs(jaxpr: Any, given: Sequence[Any] = ()) -> Iterator[tuple[Any, list[Any]]]:
    """Every equation of a kernel, nested ones included, with the value of each input that needs no data.

    Args:
        jaxpr: the kernel's.
        given: values of its inputs, None where unknown.

    Yields:
        An equation, and per input a numpy array of integers, or None.
    """
    jaxpr, consts = getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts)) | dict(zip(jaxpr.invars, given))
    for eqn in jaxpr.eqns:
        values = [_integers(v.val if _literal(v) else known.get(v), v.aval) for v in eqn.invars]
        yield eqn, values
        for inner in compat.sub_jaxprs(eqn):
            count, name = len(getattr(inner, "jaxpr", inner).invars), eqn.primitive.name
            passed = values[1:] if name == "cond" else values if name in _CALLS else []
            yield from known_inputs(inner, passed if len(passed) == count else ())
        if _is_worth_it(eqn) and all(v is not None for v in values):
            try:
                with np.errstate(all="ignore"):
                    found = _run_equation(eqn, values)
            except _Unknown:
                continue
            known.update(zip(eqn.outvars, found))


def _is_worth_it(eqn: Any) -> bool:
    """Whether an equation's results are integers that are worth computing: few, and of a shape that is known."""
    return all(
        getattr(v.aval, "dtype", None) is not None
        and np.issubdtype(v.aval.dtype, np.integer)
        and math.prod(v.aval.shape) <= MAX_KNOWN
        for v in eqn.outvars
    )


def _integers(value: Any, aval: Any) -> np.ndarray | None:
    """A known value as integers, or None."""
    if value is None or not hasattr(aval, "dtype"):
        return None
    found = np.asarray(value)
    return found.astype(aval.dtype) if found.dtype.kind in "iub" and found.size <= MAX_KNOWN else None


def _literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _run(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts))
    known.update(zip(jaxpr.invars, values))
    read = lambda v: np.asarray(v.val) if _literal(v) else known[v]
    for eqn in jaxpr.eqns:
        args = [read(v) for v in eqn.invars]
        known.update(zip(eqn.outvars, _run_equation(eqn, args)))
    return [read(v) for v in jaxpr.outvars]


def _run_equation(eqn: Any, args: Sequence[Any]) -> list[Any]:
    name = eqn.primitive.name
    inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    if name in _CALLS and inner is not None:
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), args)
    if name == "convert_element_type":
        return [np.asarray(args[0]).astype(eqn.params["new_dtype"])]
    if name == "select_n":
        return [np.choose(np.asarray(args[0]).astype(np.intp), args[1:])]
    if name == "iota" and not args:
        shape, axis = eqn.params["shape"], eqn.params["dimension"]
        return [np.indices(shape, eqn.params["dtype"])[axis]]
    if name == "broadcast_in_dim" and len(args) == 1:
        shape = [1] * len(eqn.params["shape"])
        for size, axis in zip(np.shape(args[0]), eqn.params["broadcast_dimensions"]):
            shape[axis] = size
        return [np.broadcast_to(np.reshape(args[0], shape), eqn.params["shape"])]
    if name in _NUMPY:
        return [_NUMPY[name](*args)]
    raise _Unknown(name)
