"""The CPU dialect: one Pallas kernel without a grid, every window a whole-array slice.

Input: a `Schedule`. Output: `Module`, the source text of a standalone module and what its entry takes and returns.
Law: the text imports jax and Pallas only and is what runs. An argument arrives as an array of its view's shape, or,
where the storage is too short for that, flat, and is padded first. A stored argument is returned whole; elements
that no program writes come back as they went in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend_triton_compat.access import Slice, View, Window
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit import atomics, prints
from frontend_triton_compat.emit.expr import Expr, align, shape_of, tight, tuple_of, union
from frontend_triton_compat.emit.module import Check, Module, Operand, Result
from frontend_triton_compat.emit.program import Emitter, KeepWhole
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.language.rows_cast import E4B15
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import INT64

#: Elements up to which a column of an array is written by a choice among all columns.
_INTERLEAVED = 4


class CpuEmitter(Emitter):
    """Statements over whole-array refs."""

    target = "cpu"

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

    def waited(self, op: Op, still: str) -> None:
        """Remember the first loop that was given up: the launch says so, and writes nothing."""
        self._check(op, Check(op.where), still)

    def assertion(self, op: Op) -> None:
        """Remember the first assertion that does not hold: the launch says so, and writes nothing."""
        holds = self.value(op.operands[0])
        for var in (*holds.vars, *holds.fills):
            if var.extent is not None:
                raise KeepWhole(var)
        gets_here = self.mask(self.plan.walker.conditions[op])
        fails = Expr(f"~{holds.operand}" if holds.literal is None else str(not holds.literal), holds.dims)
        if gets_here is not None and gets_here.code != "True":
            dims = union([fails, gets_here])
            fails = Expr(f"{tight(align(fails, dims))} & {tight(align(gets_here, dims))}", dims)
        self._check(op, Check(op.where, op["message"]), f"jnp.any({fails.code})")

    def _check(self, op: Op, check: Check, fails: str) -> None:
        self.checks.append(check)
        flag = "failed_out[0]"
        self.put(f"{flag} = jnp.where({fails} & ({flag} == 0), {len(self.checks)}, {flag})", op)

    def atomic(self, op: Op) -> None:
        """An atomic operation: see `atomics`."""
        atomics.atomic(self, op)

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
        flat = f"{ref}[...]" if len(view.shape) == 1 else f"{ref}[{_narrowed(view)}].reshape(-1)"
        return Expr(f"{flat}[jnp.clip({offsets.code}, 0, {view.size - 1})]", offsets.dims)

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
                f"jnp.full({_shape(sizes)}, {value.code}, jnp.{element.numpy_name})"
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
                f"{code}.reshape({_shape(sizes)})"
                if code.isidentifier() or code.endswith(")")
                else f"({code}).reshape({_shape(sizes)})"
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
            return f"{param}_out[{_narrowed(view)}].reshape({view.size // length}, {length})"
        return f"{param}_out[{_narrowed(view)}]" + ("" if len(view.shape) == 1 else ".reshape(-1)")

    def store_flat(self, param: str, new: str, op: Op, rows: Var | None = None) -> None:
        """Give a result new contents, written as a flat array (as `rows`)."""
        view = self.plan.views[param]
        back = "" if len(view.shape) == 1 and rows is None else f".reshape({_shape(list(view.shape))})"
        self.put(f"{param}_out[{_narrowed(view)}] = {new}{back}", op)

    def element_index(self, param: str, at: str) -> str:
        """One element of a result, counted from the view's start, as an index."""
        left, out = at, []
        for stride in self.plan.views[param].strides:
            out.append(left if stride == 1 else f"{tight(left)} // {stride}")
            left = f"{at} % {stride}"
        return ", ".join(out)

    def print_(self, op: Op) -> None:
        """A line for each program that gets here."""
        prints.print_(self, op)

    # -- the module

    def module(self) -> Module:
        """Emit the kernel and the function that calls it."""
        plan = self.plan
        body = plan.kernel.body
        for op in body.ops:  # run-time scalars are read first, in one place
            if op.kind == "arg" and not op.result.type.is_pointer and op.result in plan.demand.live:
                self.env[op.result] = self.assign(op["name"], self.arg_(op), op)
        numbers = [v for v in plan.affine.programs if v is not None] if plan.ordered else []
        if numbers:
            one = self.fresh("one_program")
            program = self.fresh("program")
            self.put(f"def {one}({program}, nothing):  # programs may see each other's writes: one after the other")
            self.indent += 1
            left = program
            for i, var in enumerate(numbers):  # the last axis counts fastest
                inner = math.prod(v.size or 1 for v in numbers[i + 1 :])
                self.counters[var] = self.fresh(var.name)
                self.put(f"{self.counters[var]} = {left}" + (f" // {inner}" if inner > 1 else ""))
                left = f"{program} % {inner}"
        if plan.chunk is not None:
            counter = self.counters[plan.chunk] = self.fresh(plan.chunk.name)
            step = self.fresh("some_programs")
            self.put(f"def {step}({counter}, nothing):  # so many programs at once as memory has room for")
            self.indent += 1
        for op in body.ops:
            if op.kind != "arg":
                self.op(op)
        if numbers:
            self.put("return nothing")
            self.indent -= 1
            self.put(f"lax.fori_loop(0, {math.prod(v.size or 1 for v in numbers)}, {one}, ())")
        if plan.chunk is not None:
            self.put("return nothing")
            self.indent -= 1
            self.put(f"lax.fori_loop(0, {plan.chunk.count}, {step}, ())")
        aliased = [p for p in plan.written if p in self.read_params or p not in self.covered]
        arrays = [p for p in plan.memories if p in self.read_params or p in aliased]
        scalars = list(self.scalars)
        name = self.entry_name()
        ins = [f"{p}_ref" for p in (*arrays, *scalars)]
        outs = [f"{p}_out" for p in plan.written]
        if self.checks:
            outs.append("failed_out")
            self.lines.insert(0, "    failed_out[0] = 0")
        unread = {f"{p}_ref": f"_{p}_ref" for p in arrays if not any(f"{p}_ref" in line for line in self.lines)}
        header = [
            f'"""`{name}` for the CPU: one kernel without a grid, written from {self.origin()}."""',
            "",
            "import jax",
            "import jax.numpy as jnp",
            *(["import numpy as np"] if "print_values" in self.helpers else []),
            "from jax import lax",
            "from jax.experimental import pallas as pl",
        ]
        text = [*header]
        for helper in self.helper_text():
            text += ["", helper]
        text += ["", "", f"def {name}_kernel({', '.join([unread.get(i, i) for i in ins] + outs)}):"]
        text += self.lines or ["    pass"]
        text += ["", "", f"def {name}({', '.join([*arrays, *scalars])}):"]
        operands: list[Operand] = []
        for p in arrays:
            view = plan.views[p]
            if view.pad == (0, 0):
                operands.append(Operand(p, view.shape, view.origin))
            else:
                n = view.size - sum(view.pad)
                operands.append(Operand(p, (n,), view.origin + view.pad[0]))
                text.append(f"    {p} = jnp.pad({p}, {view.pad}).reshape({_shape(list(view.shape))})")
            if view.widened:
                room = tuple((0, w - n) for w, n in zip(view.widths, view.shape))
                text.append(f"    {p} = jnp.pad({p}, {room})  # room for masked blocks that run over the end")
            if self._raw(p):
                text.append(f"    {p} = lax.bitcast_convert_type({p}, jnp.{E4B15})")
        operands += [Operand(s, (1,), scalar=True) for s in scalars]
        shapes = [
            f"jax.ShapeDtypeStruct({_shape(list(plan.views[p].widths))}, jnp.{self.element_of(p).numpy_name})"
            for p in plan.written
        ]
        if self.checks:
            shapes.append("jax.ShapeDtypeStruct((1,), jnp.int32)")
        alias = {arrays.index(p): plan.written.index(p) for p in aliased}
        call = [
            "    results = pl.pallas_call(",
            f"        {name}_kernel,",
            f"        out_shape={tuple_of(shapes)},",
        ]
        if alias:
            call.append(f"        input_output_aliases={alias},")
        call += ["        interpret=True,", f"    )({', '.join([*arrays, *scalars])})"]
        text += call
        results = []
        finals = []
        for i, p in enumerate(plan.written):
            view = plan.views[p]
            whole = f"results[{i}]" + (f"[{_narrowed(view)}]" if view.widened else "")
            if self._raw(p):
                whole = f"lax.bitcast_convert_type({whole}, jnp.uint8)"
            if view.pad == (0, 0):
                finals.append(whole)
                results.append(Result(p, view.shape, view.origin, view.strides, self._box(p)))
            else:
                n = view.size - sum(view.pad)
                finals.append(f"{whole}.reshape(-1)[{view.pad[0]}:{view.pad[0] + n}]")
                results.append(Result(p, (n,), view.origin + view.pad[0], (1,), ((0, n),)))
        if self.checks:
            finals.append(f"results[{len(plan.written)}]")
        text.append(f"    return {tuple_of(finals)}")
        return Module("\n".join(text) + "\n", name, tuple(operands), tuple(results), tuple(self.checks))

    def _raw(self, param: str) -> bool:
        """Whether the elements go over as bytes: neither torch nor jax has Triton's format."""
        return self.element_of(param).numpy_name == E4B15

    def _covers(self, access: Access, indices: list[DimIndex], view: View) -> bool:
        """Whether an unconditional store writes the whole view."""
        if any(o.kind == "while" or (o.kind == "for" and o not in self.plan.folds) for o in access.path):
            return False
        return all(d.text == ":" or (d.text == "0" and n == 1) for d, n in zip(indices, view.widths))

    def _box(self, param: str) -> tuple[tuple[int, int], ...]:
        view = self.plan.views[param]
        whole = tuple((0, n) for n in view.shape)
        box: list[tuple[int, int]] | None = None
        for access in self.plan.accesses.values():
            if access.param != param or access.op.kind == "load":
                continue
            window = self.plan.windows[access.op]
            if window is None or any(s.opaques or any(v.count is None for v in s.steps) for s in window.slices):
                return whole
            bounds = []
            for i, (piece, size) in enumerate(zip(window.slices, view.shape)):
                lo, hi = piece.bounds()
                shift = view.origin // view.strides[0] if i == 0 else 0
                bounds.append((max(0, lo - shift), min(size, hi - shift + 1)))
            box = bounds if box is None else [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(box, bounds)]
        return tuple(box) if box is not None else whole


@dataclass(frozen=True)
class DimIndex:
    """One dimension of an index: its text, the variables it leaves, and how a joint dimension splits into them."""

    text: str
    vars: tuple[Var, ...]
    split: tuple[int, ...] | None
    flip: bool = False
    rows: Expr | None = None
    size: int = 0


def _narrowed(view: View) -> str:
    """The index that takes a widened view back to its memory."""
    if not view.widened:
        return "..."
    return ", ".join(":" if w == n else f":{n}" for w, n in zip(view.widths, view.shape))


def _plus_terms(start: int, terms: list[tuple[str, int]]) -> str:
    parts = [name if step == 1 else f"{name} * {step}" for name, step in terms]
    if start or not parts:
        parts.append(str(start))
    return " + ".join(parts)


def _shape(sizes: list[int]) -> str:
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"


def emit(plan: Schedule) -> Module:
    """The CPU module of a scheduled kernel."""
    return CpuEmitter(plan).module()
