"""What XLA does around the kernel: operands made of arguments, arguments made of results.

Input: windows that are no blocks of their argument: strided, reversed, starting between blocks, past the tensor's end.
Output: `Spec`s whose array is such a window, dense, and the source that cuts it out and puts it back. Law: the array
holds exactly the window's elements, a dimension a variable; what the kernel does not store to stays as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from frontend_triton_compat.access import Slice, View, Window
from frontend_triton_compat.demand import Access
from frontend_triton_compat.forms import Var
from frontend_triton_compat.schedule import Schedule


@dataclass(frozen=True)
class Sweep:
    """The part of a block that loops move over: ``start + sum(step * counter)`` and `size` elements from there."""

    start: int
    steps: tuple[tuple[Var, int], ...]
    size: int

    def reach(self) -> tuple[int, int]:
        """First element that any turn touches, and the one behind the last."""
        ends = [step * ((var.count or 1) - 1) for var, step in self.steps]
        return self.start + sum(min(0, e) for e in ends), self.start + sum(max(0, e) for e in ends) + self.size


@dataclass(frozen=True)
class Clamped:
    """The block that a variable picks, or the last one there is."""

    var: Var
    last: int


#: A part of one dimension of a block; None for all of it.
Part = tuple[int, int] | Sweep | None


@dataclass(frozen=True)
class Spec:
    """One operand or result of the kernel.

    Attributes:
        ref: its name in the kernel.
        param: the parameter it is a window of.
        block: sizes of the block; None for one element, and no dimension.
        index: per dimension, the grid variable that picks the block, up to the last one perhaps, or a number.
        inner: per dimension that the block has, the part of it that is used.
        shape: of the array.
        made: how the array is made of the parameter's: "" for the parameter itself, "column" for a 1-D one as
            (n, 1), "rows" for rows that are matrices of one row, ".reshape(...)", else an index, perhaps followed by
            more.
        home: the parameter's own shape, where `made` is a reshape.
    """

    ref: str
    param: str
    block: tuple[int | None, ...]
    index: tuple[Var | Clamped | int, ...]
    inner: tuple[Part, ...]
    shape: tuple[int, ...]
    made: str = ""
    home: tuple[int, ...] = ()

    @property
    def picks(self) -> tuple[Var | int, ...]:
        """Per dimension, the grid variable that picks the block, or a number."""
        return tuple(i.var if isinstance(i, Clamped) else i for i in self.index)

    @property
    def clamped(self) -> list[Clamped]:
        """Dimensions that have fewer blocks than the grid has steps."""
        return [i for i in self.index if isinstance(i, Clamped)]

    @property
    def patch(self) -> bool:
        """Whether a result is a part of the parameter's array, put back into it."""
        return bool(self.made) and self.made not in ("column", "rows") and not self.home

    @property
    def place(self) -> tuple[object, ...]:
        """What two accesses share if one block serves both."""
        return (self.param, self.block, self.index, self.made)

    def named(self, ref: str) -> Spec:
        """The same under a name."""
        return dataclasses.replace(self, ref=ref, inner=(None,) * sum(n is not None for n in self.block))

    def array(self, whole: str) -> str:
        """Source of the array, from that of the parameter's."""
        if self.made == "column":
            return f"{whole}.reshape({self.shape[0]}, 1)"
        if self.made == "rows":
            return f"{whole}.reshape{self.shape}"
        return f"{whole}{self.made}"

    def put_back(self, whole: str, new: str) -> str:
        """Source of the parameter's array with a result in its place."""
        if self.made == "column":
            return f"{new}.reshape({self.shape[0]})"
        if self.made == "rows":
            return f"{new}.reshape{(*self.shape[:-2], self.shape[-1])}"
        if not self.made:
            return new
        if self.home:
            return f"{new}.reshape{self.home}"
        return f"{whole}.at{self.made}.set({new})"


def apart_from_tiles(spec: Spec, dims: tuple[Var | None, ...]) -> tuple[Spec, tuple[Var | None, ...]]:
    """One element of a dimension is no block of the last two: a reshape, which costs nothing, moves it out of them."""
    shape, block, index = list(spec.shape), list(spec.block), list(spec.index)
    inner, counted = list(spec.inner), list(dims)
    if None not in block[-2:]:
        return spec, dims
    if block[-1] is None:
        shape, block, index = [*shape, 1, 1], [*block, 1, 1], [*index, 0, 0]
        inner, counted = [*inner, None, None], [*counted, None, None]
    elif len(block) > 2 and block[-1] == shape[-1] and shape[-1] % 128 == 0:  # heads side by side
        shape = [*shape[:-2], shape[-2] * shape[-1]]
        block, index = [*block[:-2], block[-1]], index[:-1]
    else:
        shape.insert(-1, 1)
        block.insert(-1, 1)
        index.insert(-1, 0)
        inner.insert(-1, None)
        counted.insert(-1, None)
    made = dataclasses.replace(
        spec, block=tuple(block), index=tuple(index), inner=tuple(inner), shape=tuple(shape),
        made=f".reshape{tuple(shape)}", home=spec.home or spec.shape,
    )  # fmt: skip
    return made, tuple(counted)


def rows_of(view: View, window: Window) -> list[Slice]:
    """A window's slices, the first one counted from the view's start."""
    first, *rest = window.slices
    return [Slice(first.start - view.origin // view.strides[0], first.steps, first.opaques), *rest]


def dense(slices: Sequence[Slice], sizes: Sequence[int]) -> tuple[str, tuple[int, ...], tuple[Var | None, ...]]:
    """A window as an index of the array: its text, the shape it gives, and what every dimension counts."""
    texts: list[str] = []
    shape: list[int] = []
    order: list[Var | None] = []
    fancy = sum(len(piece.steps) > 1 for piece in slices) > 0
    total = sum(max(1, len(piece.steps)) for piece in slices)
    for piece, size in zip(slices, sizes):
        moving = sorted(piece.steps.items(), key=lambda item: -abs(item[1]))
        if not moving:
            moving = [(None, 1)]  # type: ignore[list-item]
        counts = [1 if v is None else v.count or 1 for v, _ in moving]
        if fancy:  # index arrays, one a dimension of the argument
            terms = [str(piece.start)] if piece.start or len(moving) > 1 else []
            for (var, step), n in zip(moving, counts):
                at = len(order)
                index = ", ".join([":", *["None"] * (total - at - 1)])
                count = f"jnp.arange({n})[{index}]" if total - at > 1 else f"jnp.arange({n})"
                terms.append(count if step == 1 else f"{count} * {step}")
                order.append(var)
                shape.append(n)
            texts.append(" + ".join(terms))
            continue
        ((var, step),) = moving
        last = piece.start + step * (counts[0] - 1)
        stop = last + (1 if step > 0 else -1)
        if (piece.start, last, step) == (0, size - 1, 1):
            texts.append(":")
        else:
            texts.append(f"{piece.start}:{stop if stop >= 0 else ''}" + (f":{step}" if step != 1 else ""))
        order.append(var)
        shape.append(counts[0])
    return f"[{', '.join(texts)}]", tuple(shape), tuple(order)


def disjoint(plan: Schedule, a: Access, b: Access) -> bool:
    """Whether two accesses of one parameter surely touch different elements."""
    mine, other = plan.windows[a.op], plan.windows[b.op]
    if mine is None or other is None:
        return False
    for p, q in zip(mine.slices, other.slices):
        (lo, hi), (low, high) = p.bounds(), q.bounds()
        if not p.opaques and not q.opaques and (hi < low or high < lo):
            return True
        steps = [abs(s) for s in (*p.steps.values(), *q.steps.values())]
        common = _gcd(steps)
        if common > 1 and (p.start - q.start) % common and not p.opaques and not q.opaques:
            return True
    return False


def _gcd(numbers: Sequence[int]) -> int:
    out = 0
    for n in numbers:
        while n:
            out, n = n, out % n
    return out
