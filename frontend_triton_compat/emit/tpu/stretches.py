"""How often the programs of a grid step run a loop, and which turns come before the first that needs a mask.

Input: the trip count of every program; the conditions in the loop. Output: `Turns`: numbers a grid step, and source for
them. Law: the source gives exactly these numbers; where no short formula does, there is none. A condition that falls
with the turn (``turn * step + ... < 0``) holds in a first stretch of turns, for all lanes and programs of the step; one
that rises, in a last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.forms import Form, Opaque, Var
from frontend_triton_compat.ir import Op
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


_NUMBERS = ("stop", "least", "free", "start", "low")


@dataclass(frozen=True)
class Turns:
    """Numbers of turns, one a grid step along an axis (one for all where `axis` is None).

    Attributes:
        axis: the grid's axis.
        stop: how many turns the step's busiest program runs.
        least: how many its idlest runs.
        free: up to which turn `conditions` are known to hold.
        start: turns before this one change nothing.
        low: from which turn on `rising` are known to hold.
    """

    axis: int | None
    stop: np.ndarray
    least: np.ndarray
    free: np.ndarray
    start: np.ndarray
    low: np.ndarray
    conditions: tuple[Form, ...] = ()
    rising: tuple[Form, ...] = ()

    @classmethod
    def of(cls, number: int, agree: bool = True) -> Turns:
        """The same number everywhere."""
        stop, none = np.array([number]), np.zeros(1, np.int64)
        return cls(None, stop, stop if agree else none, none, none, stop)

    @property
    def none(self) -> np.ndarray:
        """No turns."""
        return np.zeros_like(self.stop)

    @property
    def known(self) -> bool:
        """Whether they are one number each."""
        return bool((self.stop == self.stop[0]).all() and (self.start == self.start[0]).all())

    @property
    def agree(self) -> bool:
        """Whether all programs of a step run it equally often."""
        return bool((self.least == self.stop).all())

    def stretches(self) -> list[tuple[np.ndarray, np.ndarray, bool, tuple[Form, ...]]]:
        """(first turn, one behind the last, whether all programs run them, what holds in them)."""
        free, low = (np.clip(n, self.start, self.stop) for n in (self.free, self.low))
        if not self.conditions and self.agree:
            free = self.start
        if not self.rising:
            low = self.stop
        both: tuple[Form, ...] = (*self.conditions, *self.rising) if (low <= free).all() else ()
        first, last = np.minimum(free, low), np.maximum(free, low)
        out = []
        for start, stop, held in (
            (self.start, first, self.conditions), (first, last, both), (last, self.stop, self.rising),
        ):  # fmt: skip
            alike = self.agree or bool((stop <= self.least).all())
            if out and out[-1][3] == held and out[-1][2] == alike:
                out[-1] = (out[-1][0], stop, alike, held)
            elif (stop > start).any():
                out.append((start, stop, alike, held))
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
        one = {k: getattr(self, k)[step : step + 1] for k in _NUMBERS}
        return replace(self, axis=None, **one)

    def without(self, conditions: Sequence[Form], var: Var, blocks: Blocks) -> Turns:
        """With the turns that need no mask because these conditions hold."""
        turns, free, low = self, self.least.copy(), self.start.copy()
        held: list[Form] = []
        rising: list[Form] = []
        for form in conditions:
            step = form.coefficient(var)
            if not step or any(isinstance(s, Opaque) for s in form.terms):
                continue
            moved = [v for v in form.vars if v in blocks.grid and blocks.steps(v) > 1]
            if len(moved) > 1:
                continue
            if moved:
                axis = blocks.grid.index(moved[0])
                if turns.axis is None:
                    n = blocks.steps(moved[0])
                    wide = {k: np.repeat(getattr(turns, k), n) for k in _NUMBERS}
                    turns, free, low = replace(turns, axis=axis, **wide), np.repeat(free, n), np.repeat(low, n)
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
                if step > 0:
                    free = np.minimum(free, -(rest // step))
                    held.append(form)
                else:
                    low = np.maximum(low, rest // -step + 1)
                    rising.append(form)
        free, low = (np.clip(n, turns.start, turns.stop) for n in (free, low))
        return replace(turns, free=free, low=low, conditions=tuple(held), rising=tuple(rising))


def turns_of(plan: Schedule, blocks: Blocks, op: Op) -> Turns | None:
    """The turns of a loop; None where they depend on more than one program id, or on one that is not on the grid."""
    trips = plan.affine.loops[op].trips
    assert trips is not None
    skipped = np.zeros((1, 1, 1), np.int64) if "skip" not in op.attrs else op.attrs["skip"]
    moving = [i for i in range(3) if any((n != np.take(n, [0], i)).any() for n in (trips, skipped))]
    if not moving:
        return replace(Turns.of(int(trips.flat[0])), start=np.array([int(skipped.flat[0])]))
    program = plan.affine.programs[moving[0]]
    if len(moving) > 1 or program is None:
        return None
    top = plan.top(program)
    inner = _elements(top, program)
    if top not in blocks.grid or inner is None:
        return None
    n = plan.kernel.grid[moving[0]]
    ends, starts = (np.broadcast_to(np.moveaxis(x, moving[0], 0).reshape(-1), n) for x in (trips, skipped))
    per_step = blocks.sizes[top]
    numbers = []
    for step in range(blocks.steps(top)):
        here = slice(step * per_step // inner, ((step + 1) * per_step - 1) // inner + 1)
        numbers.append((int(ends[here].max()), int(ends[here].min()), int(starts[here].min())))
    stop, least, start = (np.array(column) for column in zip(*numbers))
    start = np.minimum(start, stop)
    return Turns(blocks.grid.index(top), stop, least, start, start, stop)


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
