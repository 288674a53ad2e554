"""Windows: how accesses are written as indices of whole-array refs, and what is read through them.

Input: accesses with windows and views. Output: `DimIndex`es and `Expr`s. Law: a window that no index can say is read
element by element, at computed places that are clipped to the view.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend_triton_compat.access import Slice, View, Window
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.expr import Expr, shape_of
from frontend_triton_compat.emit.module import Check
from frontend_triton_compat.emit.program import Emitter
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import INT64


class Windows(Emitter):
    """Reads of whole-array refs."""

    def __init__(self, plan: Schedule):
        super().__init__(plan)
        self.read_params: dict[str, None] = {}
        self.first_store: dict[str, int] = {}
        for access in plan.accesses.values():
            if access.op.kind != "load":
                self.first_store[access.param] = min(access.order, self.first_store.get(access.param, access.order))
        self.scalars: dict[str, None] = {}
        self.checks: list[Check] = []  # loops that may be given up, assertions
        self.covered: set[str] = set()  # parameters that some store writes whole

    # -- refs

    def _ref(self, access: Access) -> str:
        """The ref that a read goes through: the result's once something may have been stored."""
        param = access.param
        if param in self.plan.written:
            if self.plan.ordered:  # the programs before this one may have stored
                self.read_params[param] = None
                return f"{param}_out"
            stored_inside = any(
                other.param == param and other.op.kind != "load" and set(other.path) & set(access.path)
                for other in self.plan.accesses.values()
            )
            if access.order > self.first_store[param] or stored_inside:
                self.read_params[param] = None
                return f"{param}_out"
        self.read_params[param] = None
        return f"{param}_ref"

    def arg_(self, op: Op) -> Expr:
        """A float argument: the only element of its ref."""
        self.scalars[op["name"]] = None
        return Expr(f"{op['name']}_ref[0]")

    def right_of_dot(
        self, a: Expr, b: Expr, batch: Sequence[Var], contracted: Sequence[Var], element: Any
    ) -> tuple[Expr, list[Var]]:
        """XLA can't run a bf16 product of a transposed left and a right operand that is no plain matrix."""
        b, free = super().right_of_dot(a, b, batch, contracted, element)
        transposed = len(contracted) == 1 and a.dims[: len(batch) + 1] == (*batch, *contracted)
        matrix = len(free) == 1 and b.dims in ((*batch, *contracted, *free), (*batch, *free, *contracted))
        if element.name != "bf16" or matrix or not transposed or len(a.dims) > len(batch) + 2:
            return b, free
        order = (*batch, *contracted, *free)
        merged = Var("axis", math.prod(self.extent(v) for v in free), self.plan.affine.fresh("merged"))
        dims = (*batch, *contracted, merged)
        moved = f"jnp.transpose({b.code}, {tuple(b.dims.index(d) for d in order)})" if b.dims != order else b.operand
        return Expr(f"{moved}.reshape({shape_of(dims, self.extent)})", dims), [merged]

    # -- windows

    def _serial(self, var: Var) -> bool:
        return var in self.counters

    def _slice_index(self, piece: Slice, size: int) -> DimIndex | None:
        """How one dimension of a window is written; None when only computed indices can say it."""
        moving = {v: s for v, s in piece.steps.items() if not self._serial(v)}
        serial = {v: s for v, s in piece.steps.items() if self._serial(v)}
        start = _plus_terms(piece.start, [(self.counters[v], s) for v, s in serial.items()])
        if not moving:
            return DimIndex(start, (), None)
        order = sorted(moving, key=lambda v: -abs(moving[v]))
        if len(order) == 1:
            (var,) = order
            step, n = moving[var], self.extent(var)
            if serial and step != 1:
                return None
            if serial:
                return DimIndex(f"pl.ds({start}, {n})", (var,), None)
            lo = piece.start if step > 0 else piece.start + step * (n - 1)
            last = lo + abs(step) * (n - 1)
            text = (
                ":"
                if (lo, n, abs(step)) == (0, size, 1)
                else f"{lo or ''}:{last + 1}" + (f":{abs(step)}" if abs(step) != 1 else "")
            )
            return DimIndex(text, (var,), None, flip=step < 0)
        ratios = []
        for outer, inner in itertools.pairwise(order):
            if moving[inner] <= 0 or moving[outer] % moving[inner] or moving[outer] <= 0:
                return None
            ratio = moving[outer] // moving[inner]
            if ratio < self.extent(inner):
                return None
            ratios.append(ratio)
        if moving[order[-1]] != 1:
            return None
        split = (self.extent(order[0]), *ratios)
        n = math.prod(split)
        if serial:
            return DimIndex(f"pl.ds({start}, {n})", tuple(order), split)
        text = ":" if (piece.start, n) == (0, size) else f"{piece.start or ''}:{piece.start + n}"
        return DimIndex(text, tuple(order), split)

    def window_indices(self, window: Window, view: View) -> list[DimIndex] | None:
        """A window as an index, a dimension each; None when only computed offsets can say it."""
        out = []
        for i, (piece, size) in enumerate(zip(window.slices, view.widths)):
            if i == 0:
                piece = Slice(piece.start - view.origin // view.strides[0], piece.steps, piece.opaques)
            if piece.opaques or any(v.count is None for v in piece.steps):
                index = self._row_index(piece, size)
            else:
                index = self._slice_index(piece, size)
            if index is None:
                return None
            out.append(index)
        dynamic = [d.text.strip("0123456789:") for d in out[1:]]  # a slice of a ref, or a loop's counter
        if out and out[0].rows is not None and any(dynamic):
            return None
        return out

    def _row_index(self, piece: Slice, size: int) -> DimIndex:
        """Rows picked by run-time numbers: clipped, since masked-off lanes may hold anything."""
        rows = self.form(piece.form(), INT64 if size >= 2**31 else None)
        return DimIndex("", tuple(d for d in rows.dims if d is not None), None, rows=rows, size=size)

    def read(self, access: Access) -> Expr:
        """A window as a slice of the ref, or a gather of computed elements."""
        ref, view = self._ref(access), self.plan.views[access.param]
        window = self.plan.windows[access.op]
        indices = self.window_indices(window, view) if window is not None else None
        if indices is None:
            return self._gather(ref, access, view)
        if indices[0].rows is not None:
            return self._read_rows(ref, indices)
        parts = [d.text for d in indices]
        strided = any(p.count(":") == 2 for p in parts)
        if strided:
            code = f"{ref}[...][{', '.join(parts)}]"
        else:
            code = f"{ref}[...]" if all(p == ":" for p in parts) else f"{ref}[{', '.join(parts)}]"
        return self.unfold(code, indices)

    def unfold(self, code: str, indices: list[DimIndex]) -> Expr:
        """What was read at an index, with a dimension a variable."""
        kept = [d for d in indices if d.vars]
        if any(d.flip for d in kept):
            code = f"{code}[{', '.join('::-1' if d.flip else ':' for d in kept)}]"
        dims = tuple(v for d in kept for v in d.vars)
        if any(d.split for d in kept):
            sizes = [str(n) for d in kept for n in (d.split or (self.extent(d.vars[0]),))]
            code = f"{code}.reshape({', '.join(sizes)})"
            crops = [n for d in kept for n in (d.split or (self.extent(d.vars[0]),))]
            if any(n != self.extent(v) for n, v in zip(crops, dims)):
                code += (
                    f"[{', '.join(f':{self.extent(v)}' if n != self.extent(v) else ':' for n, v in zip(crops, dims))}]"
                )
        return Expr(code, dims)

    def _read_rows(self, ref: str, indices: list[DimIndex]) -> Expr:
        first = indices[0]
        assert first.rows is not None
        plain = self._plain(first.rows)
        picked = f"jnp.clip({plain.code}, 0, {first.size - 1})"
        rest = [d.text for d in indices[1:]]
        inner = f"{ref}[...]" + (f"[{', '.join([':', *rest])}]" if any(r != ":" for r in rest) else "")
        code = f"{inner}[{picked}]"
        tail = [DimIndex(":", d.vars, d.split, d.flip) for d in indices[1:]]
        lead = [DimIndex(":", (v,), None) for v in plain.vars]
        return self.unfold(code, [*lead, *tail])

    def _offsets(self, access: Access, view: View) -> Expr:
        return self.form(access.form - Form(view.origin), INT64 if view.size >= 2**31 else None)

    def _gather(self, ref: str, access: Access, view: View) -> Expr:
        offsets = self._offsets(access, view)
        flat = f"{ref}[...]" if len(view.shape) == 1 else f"{ref}[{narrowed(view)}].reshape(-1)"
        return Expr(f"{flat}[jnp.clip({offsets.code}, 0, {view.size - 1})]", offsets.dims)


@dataclass(frozen=True)
class DimIndex:
    """One dimension of an index: its text, the variables it leaves, and how a joint dimension splits into them."""

    text: str
    vars: tuple[Var, ...]
    split: tuple[int, ...] | None
    flip: bool = False
    rows: Expr | None = None
    size: int = 0


def narrowed(view: View) -> str:
    """The index that takes a widened view back to its memory."""
    if not view.widened:
        return "..."
    return ", ".join(":" if w == n else f":{n}" for w, n in zip(view.widths, view.shape))


def _plus_terms(start: int, terms: list[tuple[str, int]]) -> str:
    parts = [name if step == 1 else f"{name} * {step}" for name, step in terms]
    if start or not parts:
        parts.append(str(start))
    return " + ".join(parts)


def shape_text(sizes: list[int]) -> str:
    """A shape as source."""
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"
