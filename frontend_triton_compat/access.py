"""Pointer arithmetic to windows: which part of which argument an access touches.

Input: the affine form of an access, in elements from the argument's pointer. Output: a `View` of the argument (its
memory as a row-major array of some shape) and, per access, a `Window` into the view: per dimension a start and the
variables that move it. Law: the window addresses exactly the elements of the form; a form that does not divide
cleanly by the view's strides has no window and is read through computed indices.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from frontend_triton_compat.forms import Form, Opaque, Var


@dataclass(frozen=True)
class Memory:
    """What a pointer argument points at.

    Attributes:
        param: the parameter's name.
        shape, strides: the tensor's, strides in elements.
        before, after: elements of its storage that exist before and from the pointer on.
    """

    param: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    before: int
    after: int

    @property
    def expanded(self) -> bool:
        """Whether a dimension steps nowhere, so that its elements are one place in memory."""
        return any(s == 0 and n > 1 for s, n in zip(self.strides, self.shape))


@dataclass(frozen=True)
class Slice:
    """One dimension of a window: ``start + sum(step * var) + sum(step * run-time value)``, in the view's units."""

    start: int
    steps: dict[Var, int] = field(default_factory=dict)
    opaques: dict[Opaque, int] = field(default_factory=dict)

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest coordinate (run-time values counted as 0)."""
        lo = hi = self.start
        for var, step in self.steps.items():
            last = step * ((var.count or 1) - 1)
            lo, hi = lo + min(0, last), hi + max(0, last)
        return lo, hi

    def reach(self) -> int:
        """The last coordinate that is touched when several variables share the dimension: whole periods of each."""
        moving = sorted((s for v, s in self.steps.items() if not v.serial), reverse=True)
        last = self.bounds()[1]
        if len(moving) > 1 and moving[-1] > 0:
            outer = next(v for v, s in self.steps.items() if s == moving[0] and not v.serial)
            serial = sum(max(0, s * ((v.count or 1) - 1)) for v, s in self.steps.items() if v.serial)
            last = max(last, self.start + serial + moving[0] * (outer.count or 1) - 1)
        return last

    def form(self) -> Form:
        """The coordinate as a form."""
        return Form(self.start, {**self.steps, **self.opaques})


@dataclass(frozen=True)
class Window:
    """One slice a dimension of the view."""

    slices: tuple[Slice, ...]


@dataclass(eq=False)
class View:
    """An argument's memory as a row-major array.

    Attributes:
        memory: the argument.
        strides: elements between neighbours of every dimension, ending with 1.
        shape: sizes; the first is as long as the accesses need.
        origin: element, counted from the pointer, where the view starts.
        pad: elements of the view that lie before and behind the storage and must be made up.
        roams: whether run-time numbers decide where an access goes: the view is then all of the storage.
        widths: sizes as the kernel sees them: inner dimensions are widened where a masked block runs over their end.
    """

    memory: Memory
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    origin: int
    pad: tuple[int, int]
    widths: tuple[int, ...]
    roams: bool = False

    @property
    def widened(self) -> bool:
        """Whether the kernel sees a larger array than the memory is."""
        return self.widths != self.shape

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n


def divide(form: Form, strides: Sequence[int], mask: Sequence[Form] = ()) -> Window | None:
    """Write a form as a window over strides (descending, ending with 1); None where it does not divide cleanly.

    A coordinate may run over the end of its dimension if the mask (forms that are negative where it holds) shuts those
    lanes out.
    """
    starts = [0] * len(strides)
    rest = form.const
    for i, stride in enumerate(strides):
        starts[i], rest = divmod(rest, stride)
    steps: list[dict[Var, int]] = [{} for _ in strides]
    opaques: list[dict[Opaque, int]] = [{} for _ in strides]
    for symbol, c in form.terms.items():
        i = next(i for i, stride in enumerate(strides) if c % stride == 0)
        if isinstance(symbol, Var):
            steps[i][symbol] = c // strides[i]
        else:
            opaques[i][symbol] = c // strides[i]
    slices = [Slice(s, v, o) for s, v, o in zip(starts, steps, opaques)]
    _carry_up(slices, strides)
    for i, piece in enumerate(slices[1:], 1):
        lo, hi = piece.bounds()
        unknown = piece.opaques or any(v.count is None for v in piece.steps)
        size = strides[i - 1] // strides[i]
        if unknown or lo < 0 or (hi >= size and not _shut_out(piece, size, mask)):
            return None
    seen: set[Var] = set()
    for piece in slices:
        if seen & set(piece.steps):
            return None
        seen |= set(piece.steps)
    return Window(tuple(slices))


def _shut_out(piece: Slice, size: int, mask: Sequence[Form]) -> bool:
    """Whether the mask says ``coordinate < n`` for some n that is at most the dimension's size."""
    coordinate = piece.form()
    gaps = [(condition - coordinate) for condition in mask]
    return any(gap.is_const and -gap.const <= size for gap in gaps)


def _carry_up(slices: list[Slice], strides: Sequence[int]) -> None:
    """A start that would leave its dimension with the variables' reach moves to the next outer one, if whole."""
    for i in range(len(slices) - 1, 0, -1):
        size = strides[i - 1] // strides[i]
        lo, _ = slices[i].bounds()
        if lo >= size:
            whole = lo // size
            slices[i] = Slice(slices[i].start - whole * size, slices[i].steps, slices[i].opaques)
            slices[i - 1] = Slice(slices[i - 1].start + whole, slices[i - 1].steps, slices[i - 1].opaques)


def choose_strides(
    forms: Sequence[Form], masks: Sequence[Sequence[Form]], memory: Memory, blocked: bool = False
) -> tuple[int, ...]:
    """The strides under which most accesses divide cleanly; more dimensions only where they help.

    With `blocked`, a serial variable that moves along the lanes by whole vectors needs no dimension of its own.
    """
    best, best_score = (1,), (-1, 0, 0)
    for chain in chains_of(forms, memory):
        windows = [divide(f, chain, m) for f, m in zip(forms, masks)]
        clean = sum(w is not None for w in windows)
        # One variable a dimension is what a block is made of; ties go to fewer dimensions.
        slices = [s for w in windows if w for s in w.slices]
        moving = [_moving(s, blocked and i == len(chain) - 1) for w in windows if w for i, s in enumerate(w.slices)]
        crowded = sum(len(steps) + len(s.opaques) > 1 for s, steps in zip(slices, moving))
        scattered = sum(
            step != 1 for s, steps in zip(slices, moving) for step in (*steps.values(), *s.opaques.values())
        )
        score = (clean, -crowded - scattered, -len(chain))
        if score > best_score:
            best, best_score = chain, score
    return best


def chains_of(forms: Sequence[Form], memory: Memory) -> list[tuple[int, ...]]:
    """Strides that a view of an argument may have, each once."""
    own = sorted({abs(s) for s, n in zip(memory.strides, memory.shape) if n > 1 and s} | {1}, reverse=True)
    coefficients: set[int] = {1}
    for form in forms:
        coefficients |= {abs(c) for c in form.terms.values()}
    candidates = [(1,)]
    for pool in (own, sorted(coefficients, reverse=True), sorted(coefficients | set(own), reverse=True)):
        candidates += _chains(pool)
    return list(dict.fromkeys(candidates))


def _moving(piece: Slice, lanes: bool) -> dict[Var, int]:
    """The variables that make a dimension crowded: not those that only pick which whole vectors of lanes are meant."""
    return {v: step for v, step in piece.steps.items() if not (lanes and v.serial and step % 128 == 0)}


def _chains(pool: Sequence[int]) -> list[tuple[int, ...]]:
    """Descending chains in which every stride divides the one before, greedily from either end."""
    down: list[int] = []
    for s in pool:
        if not down or down[-1] % s == 0:
            down.append(s)
    up: list[int] = []
    for s in reversed(pool):
        if not up or s % up[-1] == 0:
            up.append(s)
    up.reverse()
    chains = [tuple(down), tuple(up)]
    for chain in list(chains):
        for k in range(1, len(chain)):
            chains.append(chain[k:])
            chains.append((*chain[: k - 1], *chain[k:]) if chain[k:] else chain)
    return [c for c in chains if c and c[-1] == 1]


def make_view(memory: Memory, strides: tuple[int, ...], windows: Sequence[Window], forms: Sequence[Form]) -> View:
    """The smallest view that holds every window, and for accesses by computed index everything the tensor has."""
    lows, highs, roams = [], [], False
    for window in windows:
        lo, hi = window.slices[0].bounds()[0], window.slices[0].reach()
        if window.slices[0].opaques or any(v.count is None for v in window.slices[0].steps):
            lo, hi = _storage_rows(memory, strides[0])
            roams = True
        lows.append(lo)
        highs.append(hi)
    if forms or not windows:
        lo, hi = _storage_rows(memory, strides[0])
        roams = True
        lows.append(lo)
        highs.append(hi)
    lo, hi = min(lows), max(highs)
    if lo * strides[0] >= memory.after or (hi + 1) * strides[0] <= -memory.before:
        lo, hi = min(lo, 0), max(hi, 0)  # everything is behind a mask; some real memory to stand on
    shape = (hi - lo + 1, *(a // b for a, b in itertools.pairwise(strides)))
    origin, size = lo * strides[0], (hi - lo + 1) * strides[0]
    short = origin + size - memory.after  # elements missing at the end of the storage
    pad = (max(0, -origin - memory.before), max(0, short))
    widths = list(shape)
    for window in windows:
        for i, piece in enumerate(window.slices[1:], 1):
            widths[i] = max(widths[i], piece.reach() + 1)
    return View(memory, strides, shape, origin, pad, tuple(widths), roams)


def _storage_rows(memory: Memory, stride: int) -> tuple[int, int]:
    """First and last index along the outermost dimension of whole rows in the storage, and of the tensor itself."""
    lo = sum(min(0, s * (n - 1)) for s, n in zip(memory.strides, memory.shape) if n)
    hi = sum(max(0, s * (n - 1)) for s, n in zip(memory.strides, memory.shape) if n)
    return min(lo // stride, -(memory.before // stride)), max(hi // stride, memory.after // stride - 1)
