"""Constants past a crop: what an elementwise operation makes of known numbers.

Input: a row's name and Python numbers. Output: a Python number, or None where it is not known at compile time. Law: the
row's own jax expression is evaluated, in the operation's own dtype; ``-inf`` minus anything that is the same for a
whole row counts as ``-inf``: were that row value ``-inf`` or NaN, every element of the row would give NaN as well.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from frontend_triton_compat.language.table import HELPERS, ROWS
from frontend_triton_compat.types import dtype

_LONGEST = 64


def fold_constant(fn: str, numbers: Sequence[Any], element: Any, result: Any) -> Any:
    """The result of a row on numbers; None when an operand is None and no rule decides without it."""
    if fn == "sub" and len(numbers) == 2 and numbers[1] is None and numbers[0] == float("-inf"):
        return float("-inf")
    if any(n is None for n in numbers) or not isinstance(element, dtype) or not isinstance(result, dtype):
        return None
    return _evaluate(fn, tuple(numbers), element, result)


@functools.cache
def _functions() -> dict[str, Any]:
    """What a row's code may use: the emitted module's imports and the table's functions."""
    scope: dict[str, Any] = {"jnp": jnp, "lax": lax, "jax": jax}
    for texts in HELPERS.values():
        exec(texts.get("cpu", ""), scope)  # our own text
    return scope


@functools.lru_cache(maxsize=4096)
def _evaluate(fn: str, numbers: tuple[Any, ...], element: dtype, result: dtype) -> Any:
    row = ROWS[fn]
    code = row.code_for("cpu", element.kind)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        names = [f"v{i}" for i in range(len(numbers))]
        scope: dict[str, Any] = dict(_functions())
        for name, number in zip(names, numbers):
            is_condition = fn == "where" and name == "v0"
            scope[name] = jnp.asarray(number, jnp.bool_ if is_condition else element.numpy_name.rstrip("_"))
        value = eval(code.format(*names), scope)  # the text is our own table's
        value = np.asarray(value)
    return bool(value) if result.is_bool() else float(value) if result.is_floating() else int(value)
