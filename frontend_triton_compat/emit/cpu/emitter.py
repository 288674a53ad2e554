"""The module around the statements: the kernel, the function that calls it, and what that takes and returns.

Input: a `Schedule`. Output: `Module`. Law: an argument arrives as an array of its view's shape, or, where the storage
is too short for that, flat, and is padded first; a stored argument is returned whole.
"""

from __future__ import annotations

import math

from frontend_triton_compat.emit import atomics, prints
from frontend_triton_compat.emit.cpu.stores import Stores
from frontend_triton_compat.emit.cpu.windows import narrowed, shape_text
from frontend_triton_compat.emit.expr import Expr, align, tight, tuple_of, union
from frontend_triton_compat.emit.module import Check, Module, Operand, Result
from frontend_triton_compat.emit.program import KeepWhole
from frontend_triton_compat.ir import Op
from frontend_triton_compat.language.rows_cast import E4B15


class CpuEmitter(Stores):
    """Statements over whole-array refs."""

    target = "cpu"

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

    def print_(self, op: Op) -> None:
        """A line for each program that gets here."""
        prints.print_(self, op)

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
                text.append(f"    {p} = jnp.pad({p}, {view.pad}).reshape({shape_text(list(view.shape))})")
            if view.widened:
                room = tuple((0, w - n) for w, n in zip(view.widths, view.shape))
                text.append(f"    {p} = jnp.pad({p}, {room})  # room for masked blocks that run over the end")
            if self._raw(p):
                text.append(f"    {p} = lax.bitcast_convert_type({p}, jnp.{E4B15})")
        operands += [Operand(s, (1,), scalar=True) for s in scalars]
        shapes = [
            f"jax.ShapeDtypeStruct({shape_text(list(plan.views[p].widths))}, jnp.{self.element_of(p).numpy_name})"
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
            whole = f"results[{i}]" + (f"[{narrowed(view)}]" if view.widened else "")
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
