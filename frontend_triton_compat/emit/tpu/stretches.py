"""How often the programs of a grid step run a loop, and which turns come before the first that needs a mask.

Input: the trip count of every program; the conditions in the loop. Output: `Turns`: numbers a grid step, and source for
them. Law: the source gives exactly these numbers; where no short formula does, there is none. A condition that falls
with the turn (``turn * step + ... < 0``) holds in a first stretch of turns, for all lanes and programs of the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.forms import Form, Opaque, Var
from frontend_triton_compat.schedule import Schedule


@dataclass(frozen=True)
class Stretch:
    """Turns of a loop that are written alike.

    Attributes:
        first: source of the first turn's number.
        count: groups of turns, or their source; None: one group, without a loop around it.
        group: turns of a group.
        aligned: whether every turn's part of a block starts at a tile.
        alike: whether all programs of a grid step run all of them.
        conditions: forms that are negative in all of them.
    """

    first: str
    count: int | str | None
    group: int
    aligned: bool = True
    alike: bool = True
    conditions: tuple[Form, ...] = ()


@dataclass(frozen=True)
class Turns:
    """Numbers of turns, one a grid step along an axis (one for all where `axis` is None).

    Attributes:
        axis: the grid's axis.
        stop: how many turns the step's busiest program runs.
        least: how many its idlest runs.
        free: how many turns need no mask.
        conditions: what is known to hold in those.
    """

    axis: int | None
    stop: np.ndarray
    least: np.ndarray
    free: np.ndarray
    conditions: tuple[Form, ...] = ()

    @classmethod
    def of(cls, number: int, agree: bool = True) -> Turns:
        """The same number everywhere."""
        stop = np.array([number])
        return cls(None, stop, stop if agree else np.zeros(1, np.int64), np.zeros(1, np.int64))

    @property
    def none(self) -> np.ndarray:
        """No turns."""
        return np.zeros_like(self.stop)

    @property
    def known(self) -> bool:
        """Whether it is one number."""
        return bool((self.stop == self.stop[0]).all())

    @property
    def agree(self) -> bool:
        """Whether all programs of a step run it equally often."""
        return bool((self.least == self.stop).all())

    def stretches(self) -> list[tuple[np.ndarray, np.ndarray, bool, tuple[Form, ...]]]:
        """(first turn, one behind the last, whether all programs run them, what holds in them)."""
        out = []
        if self.free.any():
            out.append((self.none, self.free, True, self.conditions))
        if (self.stop > self.free).any():
            out.append((self.free, self.stop, self.agree, ()))
        return out

    def source(self, numbers: np.ndarray) -> str | None:
        """Source of one number a grid step."""
        if (numbers == numbers[0]).all():
            return str(int(numbers[0]))
        return clamped(numbers, f"pl.program_id({self.axis})")

    def length(self, start: np.ndarray, stop: np.ndarray) -> int | str:
        """How many turns there are, or source for it ("" where there is none)."""
        text = self.source(stop - start)
        return int(text) if text is not None and text.isdigit() else text or ""

    def divisor(self, start: np.ndarray, stop: np.ndarray) -> int:
        """What divides the number of turns of every step."""
        return math.gcd(*(int(n) for n in stop - start)) or 1

    def at(self, step: int) -> Turns:
        """The numbers of one step of the axis."""
        one = {k: getattr(self, k)[step : step + 1] for k in ("stop", "least", "free")}
        return replace(self, axis=None, **one)

    def without(self, conditions: Sequence[Form], var: Var, blocks: Blocks) -> Turns:
        """With the turns that need no mask because these conditions hold."""
        turns, free, held = self, self.least.copy(), []
        for form in conditions:
            if form.coefficient(var) <= 0 or any(isinstance(s, Opaque) for s in form.terms):
                continue
            moved = [v for v in form.vars if v in blocks.grid and blocks.steps(v) > 1]
            if len(moved) > 1:
                continue
            if moved:
                axis = blocks.grid.index(moved[0])
                if turns.axis is None:
                    n = blocks.steps(moved[0])
                    wide = {k: np.repeat(getattr(turns, k), n) for k in ("stop", "least", "free")}
                    turns, free = replace(turns, axis=axis, **wide), np.repeat(free, n)
                if turns.axis != axis:
                    continue
            rest = np.full(len(free), form.const, np.int64)
            for v, c in form.terms.items():
                assert isinstance(v, Var)
                if v is var:
                    continue
                if v.count is None:
                    break
                if v in moved:
                    block = blocks.sizes[v]
                    at = np.arange(len(free)) * block
                    rest += np.maximum(c * at, c * (np.minimum(at + block, v.count) - 1))
                else:
                    rest += max(0, c * (v.count - 1))
            else:  # turn * step + rest < 0
                free = np.minimum(free, -(rest // form.coefficient(var)))
                held.append(form)
        free = np.clip(free, 0, turns.stop)
        return replace(turns, free=free, conditions=tuple(held)) if held or not turns.agree else turns


def turns_of(plan: Schedule, blocks: Blocks, trips: np.ndarray) -> Turns | None:
    """The turns of a loop; None where they depend on more than one program id, or on one that is not on the grid."""
    moving = [axis for axis in range(trips.ndim) if (trips != np.take(trips, [0], axis)).any()]
    if not moving:
        return Turns.of(int(trips.flat[0]))
    program = plan.affine.programs[moving[0]]
    if len(moving) > 1 or program is None:
        return None
    top = plan.top(program)
    inner = _elements(top, program)
    if top not in blocks.grid or inner is None:
        return None
    own = np.moveaxis(trips, moving[0], 0).reshape(trips.shape[moving[0]], -1)[:, 0]
    per_step, most, least = blocks.sizes[top], [], []
    for step in range(blocks.steps(top)):
        here = own[step * per_step // inner : ((step + 1) * per_step - 1) // inner + 1]
        most.append(int(here.max()))
        least.append(int(here.min()))
    return Turns(blocks.grid.index(top), np.array(most), np.array(least), np.zeros(len(most), np.int64))


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
