"""How often the programs of one grid step run a loop whose bounds depend on the program.

Input: the trip count of every program. Output: the largest count of every grid step, and source for it. Law: the source
gives exactly these numbers; where no short formula does, there is none.
"""

from __future__ import annotations

import numpy as np

from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.forms import Var
from frontend_triton_compat.schedule import Schedule


def counts(plan: Schedule, blocks: Blocks, trips: np.ndarray) -> tuple[np.ndarray, bool, int] | None:
    """Per grid step along one axis: the largest trip count; whether a step's programs agree; the axis of the grid.

    None where the counts depend on more than one program id, or on one that is not on the grid.
    """
    moving = [axis for axis in range(trips.ndim) if (trips != np.take(trips, [0], axis)).any()]
    if len(moving) != 1:
        return None
    program = plan.affine.programs[moving[0]]
    if program is None:
        return None
    top = plan.top(program)
    inner = _elements(top, program)
    if top not in blocks.grid or inner is None:
        return None
    own = np.moveaxis(trips, moving[0], 0).reshape(trips.shape[moving[0]], -1)[:, 0]
    per_step, most, same = blocks.sizes[top], [], True
    for step in range(blocks.steps(top)):
        first, last = step * per_step // inner, ((step + 1) * per_step - 1) // inner
        here = own[first : last + 1]
        most.append(int(here.max()))
        same = same and bool((here == here[0]).all())
    return np.array(most), same, blocks.grid.index(top)


def _elements(top: Var, program: Var) -> int | None:
    """How many values of a merged variable one program has."""
    if top is program:
        return 1
    if top.outer is None or top.inner is None or top.inner.size is None:
        return None
    if program in top.outer.parts():
        below = _elements(top.outer, program)
        return None if below is None else below * top.inner.size
    return None


def clamped(numbers: np.ndarray, index: str) -> str | None:
    """Source of ``numbers[index]`` as a straight line with ends: ``min(max(slope * index + start, low), high)``."""
    at = np.arange(len(numbers))
    low, high = int(numbers.min()), int(numbers.max())
    for k in range(len(numbers) - 1):
        slope = int(numbers[k + 1] - numbers[k])
        if not slope:
            continue
        start = int(numbers[k]) - slope * k
        line = slope * at + start
        if not np.array_equal(np.clip(line, low, high), numbers):
            continue
        text = index if slope == 1 else f"{index} * {slope}"
        text += f" {'-' if start < 0 else '+'} {abs(start)}" if start else ""
        if line.min() < low:
            text = f"jnp.maximum({text}, {low})"
        return f"jnp.minimum({text}, {high})" if line.max() > high else text
    return None
