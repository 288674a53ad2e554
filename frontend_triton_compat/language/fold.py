"""Arithmetic on numbers that are known at translation, exactly as the run-time operation would do it.

Input: the name of a map op, Python numbers, their dtype. Output: the number, or None where it is left to run time
(division by zero, types that Python can't do exactly). Law: integers wrap in their width, `idiv`/`imod` truncate,
fp32 and fp64 round as IEEE says.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from frontend_triton_compat.types import dtype


def wrap(value: int, t: dtype) -> int | bool:
    """An integer as a value of type `t` holds it (two's complement)."""
    if t.kind == "bool":
        return bool(value & 1)
    bits = t.primitive_bitwidth
    value &= (1 << bits) - 1
    if t.kind == "int" and value >> (bits - 1):
        value -= 1 << bits
    return value


def _idiv(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_INT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "idiv": _idiv,
    "imod": lambda a, b: a - _idiv(a, b) * b,
    "min": min,
    "max": max,
    "neg": operator.neg,
    "abs": abs,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
}
_FLOAT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "neg": lambda a: a * 0 - a,
    "abs": abs,
}


def fold(fn: str, values: tuple[Any, ...], t: dtype) -> Any:
    """The result of a map op on known numbers of type `t`, or None to leave it to run time."""
    if fn in _COMPARE:
        return bool(_COMPARE[fn](*values))
    if t.is_int():
        if fn in ("idiv", "imod") and values[1] == 0:
            return None
        if fn in ("shl", "shr"):
            bits = t.primitive_bitwidth
            if t.kind == "bool" or not 0 <= values[1] < bits:
                return None
            return wrap(values[0] << values[1] if fn == "shl" else values[0] >> values[1], t)
        if fn == "umulhi":
            bits = t.primitive_bitwidth
            mask = (1 << bits) - 1
            return wrap((values[0] & mask) * (values[1] & mask) >> bits, t)
        if fn in _INT:
            return wrap(int(_INT[fn](*(int(v) for v in values))), t)
    elif fn in _FLOAT and t.name in ("fp32", "fp64"):
        kind = np.float32 if t.name == "fp32" else np.float64
        with np.errstate(all="ignore"):
            return float(_FLOAT[fn](*(kind(v) for v in values)))
    return None


def fold_cast(value: Any, source: dtype, target: dtype) -> Any:
    """A known number in another type, or None to leave it to run time."""
    if target.is_bool():
        return value != 0
    if source.is_int() and target.is_int():
        return wrap(int(value), target)
    if source.is_int() and target.name in ("fp32", "fp64"):
        return float(np.float32(int(value))) if target.name == "fp32" else float(int(value))
    if source.name in ("fp32", "fp64") and target.name in ("fp32", "fp64"):
        with np.errstate(all="ignore"):
            return float(np.float32(value)) if target.name == "fp32" else float(value)
    return None
