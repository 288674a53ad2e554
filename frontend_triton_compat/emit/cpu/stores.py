"""Stores: a window as an assignment to the result, or a scatter of computed elements.

Input: accesses that store, values, masks. Output: statements. Law: of two writes to one place the later one stays, in
the order of programs, iterations and elements; masked-off lanes go past the end, where a dropping scatter ignores them.
"""

from __future__ import annotations

import math

from frontend_triton_compat.access import View
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.cpu.windows import DimIndex, Windows, narrowed, shape_text
from frontend_triton_compat.emit.expr import Expr, align, shape_of, tight, union
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.types import INT64

#: Elements up to which a column of an array is written by a choice among all columns.
_INTERLEAVED = 4


class Stores(Windows):
    """Stores to whole-array refs."""

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """A window as an assignment to the ref, or a scatter of computed elements."""
        param, view, op = access.param, self.plan.views[access.param], access.op
        element = access.element
        window = self.plan.windows[op]
        indices = self.window_indices(window, view) if window is not None else None
        mask = None if mask is None or mask.code == "True" else mask
        target = tuple(v for d in indices for v in d.vars) if indices else ()
        extra = [v for v in {*value.vars, *(mask.vars if mask else ())} if v not in target]
        if indices is None or self.awkward(indices) or extra:
            self._scatter(access, value, mask, view)
            return
        if mask is None and self._covers(access, indices, view):
            self.covered.add(param)
        if mask is not None:
            old = self.unfold(self.place(param, indices), indices)
            value = self.masked(mask, value, old, element.numpy_name)
            self.read_params[param] = None
        self.assign_window(access, indices, value)

    def awkward(self, indices: list[DimIndex]) -> bool:
        """Whether a window can be read as it is, but not assigned to."""
        return any(d.rows is not None or d.flip or d.text.count(":") == 2 for d in indices) or any(
            d.split and tuple(self.extent(v) for v in d.vars) != d.split for d in indices
        )

    def place(self, param: str, indices: list[DimIndex]) -> str:
        """A window of a result as the left side of an assignment."""
        parts = [d.text for d in indices]
        return f"{param}_out[...]" if all(p == ":" for p in parts) else f"{param}_out[{', '.join(parts)}]"

    def assign_window(self, access: Access, indices: list[DimIndex], value: Expr) -> None:
        """Put a value in a window whose variables are all that it depends on."""
        op, place = access.op, self.place(access.param, indices)
        element = access.element
        target = tuple(v for d in indices for v in d.vars)
        sizes = [math.prod(self.extent(v) for v in d.vars) for d in indices if d.vars]
        merged = len(sizes) != len(target)
        if value.dims == target and value.literal is None:
            code = value.code
        elif value.literal is not None and not value.dims:
            code = (
                f"jnp.full({shape_text(sizes)}, {value.code}, jnp.{element.numpy_name})"
                if sizes
                else f"jnp.{element.numpy_name}({value.code})"
            )
            merged = False
        elif set(value.vars) == set(target):
            code = align(value, target)
            if len(value.dims) != len(target) and value.vars == target and code == value.code:
                code = self._plain(value).code
        else:
            code = (
                f"jnp.broadcast_to({align(value, target)}, {shape_of(target, self.extent)})"
                if target
                else self._plain(value).code
            )
        if merged:
            code = (
                f"{code}.reshape({shape_text(sizes)})"
                if code.isidentifier() or code.endswith(")")
                else f"({code}).reshape({shape_text(sizes)})"
            )
        lanes = self.plan.views[access.param].widths[-1]
        if sizes and indices[-1].text.isdigit() and 1 < lanes <= _INTERLEAVED:
            # Every second element, say: choosing in one pass over all of them beats an update with gaps by far.
            self.read_params[access.param] = None
            place = self.place(access.param, [*indices[:-1], DimIndex(":", (), None)])
            code = f"jnp.where(jnp.arange({lanes}) == {indices[-1].text}, {tight(code)}[..., None], {place})"
        self.put(f"{place} = {code}", op)

    def _scatter(self, access: Access, value: Expr, mask: Expr | None, view: View) -> None:
        """Masked-off lanes go past the end, where a dropping scatter ignores them."""
        param = access.param
        self.read_params[param] = None
        rows = self.scatter_rows(access, mask)
        named, index = self.scatter_index(access, [value], mask, rows=rows)
        if value.literal is None:
            stored = (
                f"jnp.broadcast_to({align(value, named)}, {shape_of(named, self.extent)})"
                if named
                else self._plain(value).code
            )
        else:
            stored = value.code
        self.store_flat(param, f"{self.flat(param, rows)}.at[{index}].set({stored}, mode='drop')", access.op, rows)

    def scatter_rows(self, access: Access, mask: Expr | None) -> Var | None:
        """The dimension along which every element of an access goes to the next place of one row, all of it or nothing.

        A row at a time is many times faster than an element at a time.
        """
        view = self.plan.views[access.param]
        form = access.form - Form(view.origin)
        for var, step in form.terms.items():
            if step != 1 or not isinstance(var, Var) or var.serial or (mask is not None and var in mask.vars):
                continue
            length = self.extent(var)
            others = [form.const, view.size, *(c for s, c in form.terms.items() if s is not var)]
            if length >= 4 and var in self.plan.axes(access.op.operands[0]) and not any(c % length for c in others):
                return var
        return None

    def scatter_index(
        self,
        access: Access,
        values: list[Expr],
        mask: Expr | None,
        last: tuple[Var, ...] = (),
        rows: Var | None = None,
    ) -> tuple[tuple[Var, ...], str]:
        """Where the elements of an access go in the flat view, masked ones behind its end: dimensions and source.

        Args:
            access: what is stored to.
            values: what is stored; its dimensions are among the result's.
            mask: which elements count.
            last: dimensions that come last, in this order.
            rows: what `scatter_rows` found: places are rows as long as it, and it comes last among the dimensions.
        """
        view = self.plan.views[access.param]
        lanes = tuple(v for v in self.plan.axes(access.op.operands[0]) if v is not None)
        size = view.size
        if rows is None:
            offsets = self._offsets(access, view)
        else:
            length = self.extent(rows)
            form = access.form - Form(view.origin)
            terms = {s: c // length for s, c in form.terms.items() if s is not rows}
            offsets = self.form(Form(form.const // length, terms), INT64 if view.size >= 2**31 else None)
            size //= length
            lanes, last = tuple(v for v in lanes if v is not rows), (rows,)
        dims = union([offsets, *values, *([mask] if mask is not None else [])])
        dims = (*dims, *(v for v in lanes if v not in dims))
        named = (*self._in_order([d for d in dims if d is not None and d not in last], lanes), *last)
        inside = f"{offsets.operand} >= 0"
        if mask is not None:
            both = union([offsets, mask])
            inside = f"({align(Expr(inside, offsets.dims), both)}) & {Expr(align(mask, both)).operand}"
            where = Expr(f"jnp.where({inside}, {align(offsets, both)}, {size})", both)
        else:
            where = Expr(f"jnp.where({inside}, {offsets.code}, {size})", offsets.dims)
        over = named if rows is None else named[:-1]
        index = f"jnp.broadcast_to({align(where, over)}, {shape_of(over, self.extent)})" if over else where.code
        return named, index

    def _in_order(self, variables: list[Var], lanes: tuple[Var, ...]) -> list[Var]:
        """Variables as programs, then iterations, then elements count: of two writes to a place, the later stays."""
        programs = self.plan.affine.programs
        folded = {self.plan.top(f.loop.var): self.plan.walker.order[op] for op, f in self.plan.folds.items()}

        def place(var: Var) -> tuple[int, int]:
            axes = [programs.index(p) for p in var.parts() if p in programs]
            atoms = [p.labels.shape for p in var.parts() if p.labels is not None]
            axes += [next((i for i, n in enumerate(shape) if n > 1), 0) for shape in atoms]
            if axes:
                return 0, min(axes)
            if var in folded:
                return 1, folded[var]
            return 2, lanes.index(var) if var in lanes else len(lanes)

        return sorted(variables, key=place)

    def flat(self, param: str, rows: Var | None = None) -> str:
        """A result as a flat array, or as rows as long as `rows`."""
        view = self.plan.views[param]
        if rows is not None:
            length = self.extent(rows)
            return f"{param}_out[{narrowed(view)}].reshape({view.size // length}, {length})"
        return f"{param}_out[{narrowed(view)}]" + ("" if len(view.shape) == 1 else ".reshape(-1)")

    def store_flat(self, param: str, new: str, op: Op, rows: Var | None = None) -> None:
        """Give a result new contents, written as a flat array (as `rows`)."""
        view = self.plan.views[param]
        back = "" if len(view.shape) == 1 and rows is None else f".reshape({shape_text(list(view.shape))})"
        self.put(f"{param}_out[{narrowed(view)}] = {new}{back}", op)

    def element_index(self, param: str, at: str) -> str:
        """One element of a result, counted from the view's start, as an index."""
        left, out = at, []
        for stride in self.plan.views[param].strides:
            out.append(left if stride == 1 else f"{tight(left)} // {stride}")
            left = f"{at} % {stride}"
        return ", ".join(out)

    def _covers(self, access: Access, indices: list[DimIndex], view: View) -> bool:
        """Whether an unconditional store writes the whole view."""
        if any(o.kind == "while" or (o.kind == "for" and o not in self.plan.folds) for o in access.path):
            return False
        return all(d.text == ":" or (d.text == "0" and n == 1) for d, n in zip(indices, view.widths))
