"""Kernels that loaded numbers steer: one program at a time, its scalars on the scalar core.

Input: a `Schedule` in which the programs that steer are single numbers. Output: a `Module`. Law: a number that is no
tile lives in SMEM; tiles come as blocks where the program says which, else by copies of this kernel's own, those of a
loop's next turn under way while this one is computed. Grid steps run in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.access import Slice, Window, chains_of, divide, make_view
from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.base import zero_of
from frontend_triton_compat.emit.control import Control
from frontend_triton_compat.emit.expr import Expr, align, literal, tight, union
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.emit.refusals import untiled
from frontend_triton_compat.emit.tpu import copies, gather
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.outside import Part, Spec
from frontend_triton_compat.emit.tpu.scalars import scalar_form
from frontend_triton_compat.emit.tpu.text import Text
from frontend_triton_compat.forms import Form, Symbol, Var
from frontend_triton_compat.holding import small
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.schedule.overlap import injective

#: Most bytes of all buffers that tiles are copied to.
_BUFFERS = 24 << 20
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


class Steered(Text):
    """Statements of one program; mixed into the emitter of this target."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan, blocks)
        self.orderly = True
        self.buffered = 0  # bytes of the buffers of copies
        self.ahead: dict[Op, tuple[str, str, str, str]] = {}  # load -> function, buffer, counter of turns, their number
        self._kinds: dict[Op, tuple[Spec, tuple[Var | None, ...]] | None] = {}
        for param in plan.views:
            self._settle_view(param)

    def is_number(self, var: Var) -> bool:
        """Whether a variable is one number here."""
        return var.serial or self.blocks.single(var) or var in self.counters

    def number(self, form: Form) -> str:
        """A form without lanes."""
        return self.form(form).code

    # -- conditions

    def value(self, value: Value) -> Expr:
        """A value's expression; a comparison of counters with scalars is written for the side on which it is used."""
        if value not in self.env and self._compares(value):
            op = value.producer
            assert op is not None
            a, b = (self.form(self.plan.form(self.plan.affine.form(v))) for v in op.operands)
            dims = union([a, b])
            return Expr(f"{tight(align(a, dims))} {_SIGNS[op['fn']]} {tight(align(b, dims))}", dims)
        return super().value(value)

    def _on_indices(self, value: Value) -> bool:
        return self._compares(value) or super()._on_indices(value)

    def _compares(self, value: Value) -> bool:
        op = value.producer
        if op is None or op.kind != "map" or op["fn"] not in _SIGNS or not value.shape:
            return False
        if not all(v.type.element.is_int() and not v.type.element.is_bool() for v in op.operands):
            return False
        forms = [self.plan.form(self.plan.affine.form(v)) for v in op.operands]
        opaques = [o for form in forms for o in form.opaques]
        return bool(opaques) and all(not o.value.shape for o in opaques)

    # -- scalars

    def _is_scalar(self, access: Access) -> bool:
        return not access.op.operands[0].shape and all(self.is_number(v) for v in access.form.vars)

    def _index(self, access: Access) -> str:
        """Where a scalar lies in its flat array, brought inside it."""
        view = self.plan.views[access.param]
        form = access.form - Form(view.origin)
        bounds, index = form.range(), self.number(form)
        if bounds is not None and bounds[0] >= 0 and bounds[1] < view.size:
            return index
        return f"jnp.clip({index}, 0, {view.size - 1})"

    def load(self, op: Op) -> None:
        """A number from SMEM, a tile from VMEM."""
        access = self.plan.accesses[op]
        if not self._is_scalar(access):
            super().load(op)
            return
        element = op.result.type.element
        ref = f"{access.param}_out" if access.param in self.plan.written else self.in_smem(access)
        if access.param in self.plan.written:
            self._scalar_output(access)
        wide = ".astype(jnp.int32)" if small(op.operands[0].type.element.element_ty) else ""  # type: ignore[union-attr]
        expr = Expr(f"{ref}[{self._index(access)}]{wide}")
        mask = self.mask(access.mask)
        if mask is not None and mask.code != "True":
            other = self.value(op.operands[-1]) if op["has_other"] else literal(zero_of(element))
            expr = self.masked(mask, expr, other, element.numpy_name)
        self.env[op.result] = self.assign(op.result.name or "loaded", expr, op)

    def _scalar_output(self, access: Access) -> str:
        view = self.plan.views[access.param]
        others = [a for a in self.plan.accesses.values() if a.param == access.param and not self._is_scalar(a)]
        if others:
            raise error(
                "tpu-not-translated",
                f"{access.param!r} is accessed as numbers and as tiles",
                where=others[0].op.where,
                why="numbers are kept in scalar memory, tiles in vector memory",
                do="hold the numbers in a tensor of their own",
            )
        self.in_smem(access)  # counted, and the old values
        self.scalar_outputs[access.param] = f"{access.param}_out"
        assert view.pad == (0, 0) and not view.widened
        return f"{access.param}_out"

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """A number to SMEM, a tile as a block or by a copy."""
        if not self._is_scalar(access):
            if self._as_block(access) is None:
                self._store_tile(access, value, mask)
            else:
                super().write(access, value, mask)
            return
        ref, index = self._scalar_output(access), self._index(access)
        element = access.element
        code = self._plain(value).code if value.dims else value.code
        if value.literal is not None:
            code = literal(value.literal, element.numpy_name).code
        elif small(element):
            code = f"{tight(code)}.astype(jnp.{element.numpy_name})"
        mask = None if mask is None or mask.code == "True" else mask
        if value.vars or (mask is not None and mask.vars):
            raise error(
                "tpu-not-translated",
                f"programs that differ in {(*value.vars, *(mask.vars if mask else ()))[0].name} store one number",
                where=access.op.where,
                why="which of them comes last decides what stays there",
                do="let one program write it, at an address that does not depend on the others",
            )
        if mask is not None:
            self.put(f"@pl.when({self._plain(mask).code})")
            self.put(f"def {self.fresh('store')}():")
            self.put(f"    {ref}[{index}] = {code}", access.op)
        else:
            self.put(f"{ref}[{index}] = {code}", access.op)

    def keep_old_values(self) -> None:
        """Numbers that no store may write begin with what was there."""
        super().keep_old_values()
        lines = []
        for param, ref in self.scalar_outputs.items():
            if self._all_written(param):
                self.smem.pop(param, None)
                continue
            size, old = self.plan.views[param].size, self.smem[param]
            keep, first = self.fresh("keep"), self.fresh("old_numbers")
            lines += [f"def {keep}(i, nothing):", f"    {ref}[i] = {old}[i]", "    return nothing"]
            loop = f"lax.fori_loop(0, {size}, {keep}, None)"
            if self.blocks.grid:
                start = " & ".join(f"(pl.program_id({i}) == 0)" for i in range(len(self.blocks.grid)))
                lines += [f"@pl.when({start})", f"def {first}():", f"    {loop}"]
            else:
                lines.append(loop)
        self.lines[:0] = [f"    {line}" for line in lines]

    def _all_written(self, param: str) -> bool:
        for access in self.plan.accesses.values():
            if access.param == param and access.op.kind == "store" and not access.mask and not access.path:
                n = math.prod(v.count or 1 for v in access.form.vars)
                same = not access.form.opaques and injective(access.form, access.form.vars)
                if same and n == self.plan.views[param].size:
                    return not any(a.param == param and a.op.kind == "load" for a in self.plan.accesses.values())
        return False

    # -- tiles

    def _spec(self, access: Access) -> tuple[Spec, tuple[Var | None, ...]]:
        """As on a grid of blocks; a program's row of a matrix is a row of its own."""
        spec, dims = super()._spec(access)
        if len(spec.block) < 2 or spec.block[-2] is not None:
            return spec, dims
        shape = (*spec.shape[:-1], 1, spec.shape[-1])
        block, index = (*spec.block[:-1], 1, spec.block[-1]), (*spec.index[:-1], 0, spec.index[-1])
        inner = (*spec.inner[:-1], None, spec.inner[-1])
        return Spec(spec.ref, spec.param, block, index, inner, shape, "rows"), (*dims[:-1], None, dims[-1])

    def _swept(
        self, access: Access, i: int, piece: Slice, upright: bool
    ) -> tuple[int | None, Var | int, Part, Var | None]:
        """As on a grid of blocks; a program may have a row of a matrix."""
        if i == len(self.plan.views[access.param].shape) - 2 and piece.start == 0 and list(piece.steps.values()) == [1]:
            (var,) = piece.steps
            if self.blocks.single(var):
                return None, var, None, None
        return super()._swept(access, i, piece, upright)

    def _settle_view(self, param: str) -> None:
        """Choose another view of an argument if some access of it is neither a block nor a copy."""
        plan = self.plan
        accesses = [a for a in plan.accesses.values() if a.param == param and not self._is_scalar(a)]
        if not accesses or self._served(accesses):
            return
        forms = [a.form for a in accesses]
        masks = [
            [plan.form(c.form) for c in plan.demand.accesses[a.op].all_conditions if c.form is not None]
            for a in accesses
        ]
        before = plan.views[param], [plan.windows[a.op] for a in accesses]
        for strides in chains_of(forms, plan.memories[param]):
            windows = [_divided(f, strides, m) for f, m in zip(forms, masks)]
            known = [w for w in windows if w is not None]
            if len(known) < len(windows):
                continue
            plan.views[param] = make_view(plan.memories[param], strides, known, [])
            for access, window in zip(accesses, known):
                plan.windows[access.op] = window
            if self._served(accesses):
                return
        plan.views[param] = before[0]
        for access, old in zip(accesses, before[1]):
            plan.windows[access.op] = old

    def _served(self, accesses: Sequence[Access]) -> bool:
        """Whether each access is a block or a copy."""
        for access in accesses:
            self._kinds.pop(access.op, None)
        try:
            for access in accesses:
                if self._as_block(access) is None and not self._picks(access):
                    copies.sides_of(self, access)
        except Diagnostic:
            return False
        return True

    def _as_block(self, access: Access) -> tuple[Spec, tuple[Var | None, ...]] | None:
        """How a block serves an access, if one does; all of an argument's that is stored to, or none."""
        if access.op not in self._kinds:
            together = [access]
            if access.param in self.plan.written:
                together = [a for a in self.plan.accesses.values() if a.param == access.param]
            found = {a.op: self._block_of(a) for a in together}
            alike = all(f is not None for f in found.values())
            self._kinds.update(found if alike else dict.fromkeys(found))
        return self._kinds[access.op]

    def _block_of(self, access: Access) -> tuple[Spec, tuple[Var | None, ...]] | None:
        window = self.plan.windows[access.op]
        if window is None or any(p.opaques or any(v.count is None for v in p.steps) for p in window.slices):
            return None
        stored = access.op.kind == "store" and any(
            v is not None and v.serial is False and self.blocks.single(v) and v not in access.form.vars
            for v in self.plan.affine.programs
        )
        if stored:
            return None  # several programs share the block: each would begin with the oldest values
        try:
            return self._spec(access)
        except Diagnostic:
            return None

    def _picks(self, access: Access) -> bool:
        """Whether each row of a tile has a number of its own."""
        return gather.picks_rows(self.plan, access) and copies.varies(self, access)

    def sides(self, access: Access) -> tuple[Var | None, ...]:
        """The variables of what a load gives, dimension by dimension."""
        found = self._as_block(access)
        if found is not None:
            return found[1]
        if self._picks(access):
            return gather.dims_of(self, access)
        sides = copies.sides_of(self, access)
        left = tuple(side.var for side in sides if side.taken)
        return (None, *left) if len(sides) == 1 else left

    def _read(self, access: Access) -> Expr:
        if self._as_block(access) is not None:
            return super()._read(access)
        if self._picks(access):
            return gather.rows(self, access)
        sides = copies.sides_of(self, access)
        op = access.op
        if op in self.ahead:
            fetch, buf, counter, trips = self.ahead[op]
            slot = self.assign("slot", Expr(f"lax.rem({counter}, 2)")).code
            self.put(f"@pl.when({counter} + 1 < {trips})")
            self.put(f"def {self.fresh('tile_ahead')}():")
            self.put(f"    {fetch}({counter} + 1, 1 - {slot}).start()")
            self.put(f"{fetch}({counter}, {slot}).wait()")
            _, shifts = copies.source(self, access, sides, self.number)
            return copies.tile(access, sides, buf, shifts, slot)
        ref, buf, sem = self._buffer(access, sides, 1)
        index, shifts = copies.source(self, access, sides, self.number)
        self._copy(f"{ref}.at[{index}]", copies.landing(buf, sides), sem, op)
        return copies.tile(access, sides, buf, shifts)

    def _copy(self, source: str, target: str, sem: str, op: Op) -> None:
        """A copy that is waited for."""
        copy = self.fresh("copy")
        self.put(f"{copy} = pltpu.make_async_copy({source}, {target}, {sem})", op)
        self.put(f"{copy}.start()")
        self.put(f"{copy}.wait()")

    def _store_tile(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """A tile to where run-time numbers say: what is there comes first, and stays where the mask does not hold."""
        sides, op = copies.sides_of(self, access), access.op
        target = [side.var for side in sides]
        mask = None if mask is None or mask.code == "True" else mask
        extra = [v for v in {*value.vars, *(mask.vars if mask else ())} if v not in target]
        if extra:
            raise error(
                "tpu-not-translated",
                f"lanes that differ in {extra[0].name} store to the same place in {access.param!r}",
                where=op.where,
                why="which of them comes last decides what stays there",
                do="let one of them write it, at an address that does not depend on the others",
            )
        alone = mask is not None and not mask.dims
        if alone:  # the program stores, or does not
            self.put(f"@pl.when({mask.code})", op)  # type: ignore[union-attr]
            self.put(f"def {self.fresh('store')}():")
            self.indent += 1
        ref, buf, sem = self._buffer(access, sides, 1)
        index, shifts = copies.source(self, access, sides, self.number)
        whole = all(not side.moved and side.size == side.taken for side in sides if side.taken)
        if not (whole and (mask is None or alone)):
            self._copy(f"{ref}.at[{index}]", copies.landing(buf, sides), sem, op)
        copies.merge(self, access, sides, buf, shifts, value, None if alone else mask)
        self._copy(copies.landing(buf, sides), f"{ref}.at[{index}]", sem, op)
        if alone:
            self.indent -= 1

    def _buffer(self, access: Access, sides: Sequence[copies.Side], slots: int) -> tuple[str, str, str]:
        """The array in HBM, a buffer for a tile of it, and its semaphore."""
        element = access.element
        ref = self.in_hbm(access, copies.room(self, access, sides))
        if access.param in self.plan.written:
            ref = self.hbm_outputs.setdefault(access.param, f"{access.param}_out")
        buf, sem = self.fresh(f"{access.param}_tile"), self.fresh(f"{access.param}_copied")
        shape = tuple(side.room for side in sides if side.taken)
        lead, count = ((slots,), f"(({slots},))") if slots > 1 else ((), "")
        self.buffered += math.prod((*lead, *shape)) * max(element.itemsize, 1)
        if self.buffered > _BUFFERS:
            raise untiled(self.plan, access)
        self.more_scratch[buf] = f"pltpu.VMEM({(*lead, *shape)}, jnp.{element.numpy_name})"
        self.more_scratch[sem] = f"pltpu.SemaphoreType.DMA{count}"
        return ref, buf, sem

    # -- loops

    def serial(self, op: Op) -> None:
        """A loop whose length is known while the program runs only."""
        if self.plan.affine.loops[op].trips is not None:
            super().serial(op)
        else:
            Control.serial(self, op)

    def _dynamic_trips(self, op: Op) -> Expr:
        trips = super()._dynamic_trips(op)
        for access in self.plan.accesses.values():
            loops = [o for o in access.path if o.kind in ("for", "while") and o not in self.plan.folds]
            if loops and loops[-1] is op and access.op.kind == "load":
                self._start_ahead(op, access, trips.code)
        return trips

    def _start_ahead(self, op: Op, access: Access, trips: str) -> None:
        """Let a load's copies run a turn ahead, if its address can be told before the turn."""
        var = self.plan.affine.loops[op].var
        if self._is_scalar(access) or access.param in self.plan.written or self._as_block(access) is not None:
            return
        if self._picks(access):
            return
        saved = self._snapshot()
        try:
            sides = copies.sides_of(self, access)
            ref, buf, sem = self._buffer(access, sides, 2)
            fetch = self.fresh(f"fetch_{access.param}")
            self.put(f"def {fetch}(turn, slot):", access.op)
            self.indent += 1
            at = {v: text for v, text in self.counters.items()} | {var: "turn"}
            index, _ = copies.source(self, access, sides, lambda form: scalar_form(self, form, at))
            into = copies.landing(buf, sides, "slot")
            self.put(f"return pltpu.make_async_copy({ref}.at[{index}], {into}, {sem}.at[slot])")
            self.indent -= 1
        except Diagnostic:
            self._restore(saved)  # some number in it is known in its turn only
            return
        self.put(f"@pl.when({trips} > 0)")
        self.put(f"def {self.fresh('first_tile')}():")
        self.put(f"    {fetch}(0, 0).start()")
        self.ahead[access.op] = (fetch, buf, "", trips)

    def block(self, block: object) -> None:
        """Every live operation of a block; copies that run ahead learn the counter of their loop."""
        for load, (fetch, buf, _, trips) in list(self.ahead.items()):
            access = self.plan.accesses[load]
            loops = [o for o in access.path if o.kind == "for" and o not in self.plan.folds]
            counter = self.counters.get(self.plan.affine.loops[loops[-1]].var, "")
            self.ahead[load] = (fetch, buf, counter, trips)
        super().block(block)  # type: ignore[arg-type]

    def _ordered_while(self, op: Op, data: list[tuple[int, Value, Value]]) -> None:
        """A `while` of one program: what it goes on for is carried as a number."""
        cond, body = op.regions

        def test(values: tuple[Value, ...]) -> str:
            for value, twin in zip(values, cond.args):
                if value in self.env or value.producer is not None:
                    self.env[twin] = self.value(value)
            self.unwritten(cond)
            self.block(cond)
            return f"jnp.where({self._plain(self.value(cond.yields[0])).code}, 1, 0)"

        first = test(op.operands)
        gets_here = self.mask(self.plan.walker.conditions[op])
        if gets_here is not None and gets_here.code != "True":
            first = f"jnp.where({self._plain(gets_here).code}, {first}, 0)"
        first = self.assign("running", Expr(first), op).code
        call = "lax.while_loop(lambda carry: carry[-1] > 0, {step}, {init})"
        self._loop(op, call, [], data, body, op.results, lambda: None, again=(first, lambda: test(body.yields)))

    # -- the module

    def module(self) -> Module:
        """Programs that have numbers only run in one grid step."""
        programs = [v for v in self.plan.affine.programs if v is not None and v.serial]
        if not programs:
            return super().module()
        one, program = self.fresh("one_program"), self.fresh("program")
        self.put(f"def {one}({program}, nothing):")
        self.indent += 1
        left = program
        for i, var in enumerate(programs):
            inner = math.prod(v.size or 1 for v in programs[i + 1 :])
            self.counters[var] = self.fresh(var.name)
            self.put(f"{self.counters[var]} = " + (f"lax.div({left}, {inner})" if inner > 1 else left))
            left = f"lax.rem({program}, {inner})"
        self.after = [
            "        return nothing",
            f"    lax.fori_loop(0, {math.prod(v.size or 1 for v in programs)}, {one}, None)",
        ]
        return super().module()


def _divided(form: Form, strides: tuple[int, ...], mask: Sequence[Form]) -> Window | None:
    """As `divide`, where remainders by no more than a dimension's size may stand in it."""
    inner: dict[Symbol, tuple[int, int]] = {}
    for opaque in form.opaques:
        c = form.coefficient(opaque)
        i = next(i for i, stride in enumerate(strides) if c % stride == 0)
        if i and opaque.fn == "imod" and opaque.forms[1].is_const:
            if c == strides[i] and 0 < opaque.forms[1].const <= strides[i - 1] // strides[i]:
                inner[opaque] = i, c
    window = divide(Form(form.const, {s: c for s, c in form.terms.items() if s not in inner}), strides, mask)
    if window is None:
        return None
    slices = list(window.slices)
    for opaque, (i, _) in inner.items():
        piece = slices[i]
        if piece.start or piece.steps or piece.opaques:
            return None
        slices[i] = Slice(0, {}, {opaque: 1})  # type: ignore[dict-item]
    return Window(tuple(slices))
