"""Control flow over arrays: what emitted source calls where a graph branches or repeats.

Input: functions from arrays to (results, flags), operands. Output: a list of results, then one bool vector of flags
where there are any. Law: a result is None where the function's is; a flag is set when any run of its function set it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

#: Takes arrays, returns (results, flags: bools without dimensions).
Body = Callable[..., tuple[list[Any], list[Any]]]


def exactly(x: Any, dtype: str) -> Any:
    """An array that keeps its dtype whatever it meets: loops and branches compare dtypes strictly."""
    return jax.lax.convert_element_type(jnp.asarray(x), jnp.dtype(dtype))


def _flags(found: Sequence[Any], before: int = 0, after: int = 0) -> Any:
    return jnp.array([*[False] * before, *found, *[False] * after], jnp.bool_)


def branch(pred: Any, then: Body, other: Body, operands: Sequence[Any], checks: tuple[int, int]) -> list[Any]:
    """What one of two functions gives.

    Args:
        pred: one bool, of any shape.
        then: runs where it is true.
        other: runs where it isn't.
        operands: of both.
        checks: how many flags each has.
    """

    def first(*values: Any) -> Any:
        results, found = then(*values)
        return results, _flags(found, after=checks[1])

    def second(*values: Any) -> Any:
        results, found = other(*values)
        return results, _flags(found, before=checks[0])

    results, flags = jax.lax.cond(jnp.reshape(pred, ()).astype(jnp.bool_), first, second, *operands)
    return [*results, flags] if sum(checks) else results


def loop(test: Body, body: Body, carried: Sequence[Any], operands: Sequence[Any], checks: tuple[int, int]) -> list[Any]:
    """What is carried when a loop ends.

    Args:
        test: whether to go on, of carried and operands.
        body: the next carried values, of the same.
        carried: the first.
        operands: what stays.
        checks: how many flags each has.
    """

    def going(values: Sequence[Any]) -> tuple[Any, Any]:
        (answer,), found = test(*values, *operands)
        return jnp.reshape(answer, ()), _flags(found, after=checks[1])

    def turn(state: Any) -> Any:
        _, flags, values = state
        values, found = body(*values, *operands)
        go, asked = going(values)
        return go, flags | asked | _flags(found, before=checks[0]), values

    carried = [exactly(v, v.dtype) for v in carried]
    go, flags = going(carried)
    _, flags, carried = jax.lax.while_loop(lambda state: state[0], turn, (go, flags, carried))
    return [*carried, flags] if sum(checks) else list(carried)


def steps(body: Body, carried: Sequence[Any], rows: Sequence[Any], operands: Sequence[Any], checks: int) -> list[Any]:
    """What is carried after the last row, and what every step gives besides, stacked.

    Args:
        body: of carried, one row of each, operands: the next carried values, and what is stacked.
        carried: the first.
        rows: arrays of one length in their first dimension.
        operands: what stays.
        checks: how many flags it has.
    """
    count = len(carried)

    def step(state: Any, row: Any) -> Any:
        flags, values = state
        results, found = body(*values, *row, *operands)
        return (flags | _flags(found), results[:count]), results[count:]

    first = (_flags([], after=checks), [exactly(v, v.dtype) for v in carried])
    (flags, values), stacked = jax.lax.scan(step, first, list(rows))
    return [*values, *stacked, flags] if checks else [*values, *stacked]
