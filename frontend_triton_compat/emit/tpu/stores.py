"""Stores: what is written to a result's block, and what of it is left as it was.

Input: accesses that store, with windows and masks. Output: statements, and the outputs they need. Law: an output's
block is written whole; what no store reaches begins with the old values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, tight, union
from frontend_triton_compat.emit.refusals import store_conflict, untiled
from frontend_triton_compat.emit.tpu import picked
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.operands import Operands, at_element, free_name
from frontend_triton_compat.emit.tpu.outside import (
    Part,
    Spec,
    Sweep,
    disjoint,
)
from frontend_triton_compat.forms import Var
from frontend_triton_compat.holding import small
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.schedule import Schedule, settle
from frontend_triton_compat.schedule.crop import negative_where
from frontend_triton_compat.schedule.overlap import apart


@dataclass(frozen=True)
class Constant:
    """A store of one number to all of a block.

    Attributes:
        chance: the boolean that decides whether it happens, and which way.
        number: what is stored.
        line: the statement.
    """

    chance: tuple[Value, bool]
    number: Any
    line: str


class Stores(Operands):
    """Stores of a kernel to the results' blocks."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan, blocks)
        self.constants: dict[str, Constant] = {}  # ref -> the store that gave all of it a number, on a condition
        self.kept: set[str] = set()  # refs of outputs whose old contents count
        self.chances: dict[str, list[tuple[tuple[Part, ...], tuple[Value, bool] | None]]] = {}

    def _source(self, access: Access, spec: Spec) -> Spec:
        """The result, where a store may have come before the load."""
        if access.param not in self.plan.written or not self._stored_before(access):
            return super()._source(access, spec)
        if not any(s.param == access.param for s in self.outputs):
            self._output(spec, access.op)
        written = [s for s in self.outputs if s.param == access.param]
        if [s.place for s in written] != [spec.place]:
            raise error(
                "program-order",
                f"{access.param!r} is read again after it was stored to",
                where=access.op.where,
                why="the block that was written is on its way to HBM, the one that is read is another",
                do="keep the stored value in a variable and use that",
            )
        if not self._covered(written[0]):
            self.kept.add(written[0].ref)
        return written[0]

    def _stored_before(self, access: Access) -> bool:
        """Whether a store may have come before a load, in an earlier turn of a loop perhaps."""
        for store in self.plan.accesses.values():
            if store.param != access.param or store.op.kind == "load" or self._exclusive(store, access):
                continue
            if store.order < access.order:
                return True
            for op in set(store.path) & set(access.path):
                loop = self.plan.affine.loops.get(op)
                if op.kind == "while" or (loop is not None and loop.var.serial):
                    same = store.form == access.form and loop is not None and loop.var in store.form.vars
                    if not same or not apart(store.form, store.all_conditions, loop.var):  # type: ignore[union-attr]
                        return True
        return False

    def store(self, op: Op) -> None:
        """A store; its mask may be the array's edge, where the lanes beyond go nowhere."""
        access = self.plan.accesses[op]
        left = [c for c in access.mask if not self._is_edge(access, c)]
        if any(c.form is not None and c.form.is_const for c in left):
            return  # a condition that never holds
        left = [c for c in left if c.loop is None or c.loop in self.active]  # else the step's program still runs it
        self.write(access, self.value(op.operands[1]), self.mask(left))

    def _is_edge(self, access: Access, c: Conjunct) -> bool:
        view, window = self.plan.views[access.param], self.plan.windows[access.op]
        if c.form is None or window is None:
            return False
        for i, piece in enumerate(window.slices):
            gap = c.form - piece.form()
            end = view.shape[i] + (view.origin // view.strides[0] if i == 0 else 0)
            if gap.is_const and -gap.const >= end:
                return True
        return False

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """A block of an output; where the mask does not hold, and beside the store, the old values stay."""
        op = access.op
        spec, target = self._spec(access)
        out = self._output(spec, op)
        element = access.element
        name, held = element.numpy_name, "int32" if small(element) else element.numpy_name
        place = f"{out.ref}{self.part(spec)}"
        mask = None if mask is None or mask.code == "True" else mask
        one = op in self.plan.picked
        if one:  # one element of a row
            hit = picked.hits(self, target, *self.plan.picked[op])  # type: ignore[arg-type]
            dims = union([hit, mask]) if mask is not None else hit.dims
            mask = Expr(f"{tight(align(hit, dims))} & {tight(align(mask, dims))}", dims) if mask is not None else hit
        pinned = self._pinned(access)
        extra = [v for v in dict.fromkeys((*value.vars, *(mask.vars if mask else ()))) if v not in target]
        if any(v in self.blocks.grid and v not in spec.picks for v in pinned) and not self._stays(spec):
            raise untiled(self.plan, access)
        if any(v in pinned for v in extra):
            places = {v: n % self.extent(v) for v, n in pinned.items()}
            value, mask = at_element(value, places), mask and at_element(mask, places)
            extra = [v for v in extra if v not in pinned]
        if extra:
            raise store_conflict(
                op,
                f"programs that differ in {extra[0].name} store to the same place in {access.param!r}",
                f"let one of them store, `if tl.program_id(0) == 0:`, or give {access.param!r} a row for each of them",
            )
        if op.kind == "atomic":
            pass  # what is there counts
        elif mask is not None or any(c.loop is not None for c in access.mask):
            self.chances.setdefault(out.ref, []).append((spec.inner, None if one or pinned else self._chance(access)))
        plain = mask is not None and op.kind == "store" and not (one or pinned or spec.clamped)
        chance = self._chance(access) if plain else None
        number, other = value.literal if not value.dims else None, self._other_side(out, chance, value)
        if mask is not None and other is not None:
            value = self.masked(mask, value, other, held)
            self.pieces.setdefault(out.ref, []).append((spec.inner, op))
        elif mask is not None:
            value = self.masked(mask, value, self._taken(place, target, element), held)
        elif op.kind == "store" and not any(c.loop is not None for c in access.mask):
            self.pieces.setdefault(out.ref, []).append((spec.inner, op))
        narrow = not element.is_bool() and element.primitive_bitwidth < 32
        if narrow and element.is_floating() and len(value.dims) > len(target):
            value = Expr(f"{value.operand}.astype(jnp.float32)", value.dims)  # a column becomes a row in 32 bits
        else:
            narrow = held != name
        if value.literal is not None and not value.dims:
            code, narrow = f"jnp.full({shape_of(target, self.extent)}, {value.code}, jnp.{name})", False
        elif not value.vars and target and len(value.dims) != len(target):  # one number
            one = value.code if not value.dims else f"{value.operand}[{', '.join('0' * len(value.dims))}]"
            kind = "float32" if narrow and element.is_floating() else held
            code = f"jnp.full({shape_of(target, self.extent)}, {one}, jnp.{kind})"
        elif set(value.vars) == set(d for d in target if d):
            code = align(value, target)
            if len(value.dims) > len(target):
                code = align(self._plain(value), target)
            elif len(value.dims) < len(target) and code == value.code:  # broadcasting would do, but a ref does not
                code = f"jnp.broadcast_to({code}, {shape_of(target, self.extent)})"
        else:
            code = f"jnp.broadcast_to({align(value, target)}, {shape_of(target, self.extent)})"
        line = f"{place} = {tight(code)}.astype(jnp.{name})" if narrow else f"{place} = {code}"
        if spec.clamped:
            self.put(f"@pl.when({self._inside(spec)})", op)
            self.put(f"def {self.fresh('stored')}():")
            line = f"    {line}"
        self.put(line, op)
        if chance is not None and number is not None and self.indent == 1 and self._all_of(out, spec.inner):
            self.constants[out.ref] = Constant(chance, number, self.lines[-1])

    def _other_side(self, out: Spec, chance: tuple[Value, bool] | None, value: Expr) -> Expr | None:
        """The number that a store gave all of the block where this one does not happen; None where there is none."""
        constant = self.constants.get(out.ref)
        if constant is None or value.literal is not None or chance != (constant.chance[0], not constant.chance[1]):
            self.constants.pop(out.ref, None)  # what lies there is no longer known
            return None
        return literal(constant.number)

    def _drop_constants(self) -> None:
        """Stores of one number that stores on the other side of the condition write anew."""
        for out in self.outputs:
            constant = self.constants.get(out.ref)
            if constant is None or not self._covered(out) or out.ref in self.kept:
                continue
            named = re.compile(rf"(?<!\w){out.ref}(?:\.at)?\[")
            others = [line for line in self.lines if line is not constant.line]
            if len(others) == len(self.lines) - 1 and not any(named.search(x.partition(" = ")[2]) for x in others):
                self.lines[:] = others

    def _output(self, spec: Spec, op: Op) -> Spec:
        """The result that a spec is, declared on its first use."""
        others = [s for s in self.outputs if s.param == spec.param]
        found = next((s for s in others if s.place == spec.place), None)
        if found is None:
            if others:
                self._refuse_overlap(spec, others, op)
            found = spec.named(free_name(f"{spec.param}_out", {s.ref for s in self.outputs}))
            self.outputs.append(found)
        return found

    def _refuse_overlap(self, spec: Spec, others: Sequence[Spec], op: Op) -> None:
        """Stores through different blocks become results of their own, put together by XLA: they must not meet."""
        stores = [a for a in self.plan.accesses.values() if a.param == spec.param and a.op.kind != "load"]
        mine = next(a for a in stores if a.op is op)
        for other in stores:
            if other.op is not op and not disjoint(self.plan, mine, other) and self._spec(other)[0].place != spec.place:
                raise store_conflict(
                    op,
                    f"{spec.param!r} is stored to through different blocks, which overlap",
                    "give every store to the tensor the same program and the same rows",
                )

    def _pinned(self, access: Access) -> dict[Var, int]:
        """Programs of which a store's conditions let one through, ``if tl.program_id(0) == 0:`` -> which one."""
        ranges: dict[Var, tuple[int, int]] = {}
        for form in (f for c in access.mask for f in negative_where(self.plan, c)):
            if len(form.terms) != 1 or form.opaques:
                continue
            ((var, k),) = form.terms.items()
            assert isinstance(var, Var)
            low, high = ranges.get(var, (0, (var.count or 1) - 1))
            if k > 0:
                high = min(high, (-form.const - 1) // k)
            else:
                low = max(low, form.const // -k + 1)
            ranges[var] = low, high
        out: dict[Var, int] = {}
        for var, (low, high) in ranges.items():
            if low == high and var in self.plan.parts:
                whole, size = self.plan.parts[var]
                out[whole] = low * size
            elif low == high:
                out[var] = low
        return out

    def _stays(self, spec: Spec) -> bool:
        """Whether the grid steps that have one block of a result come one after the other."""
        moving = [v in spec.picks for v in self.blocks.grid if self.blocks.steps(v) > 1]
        return moving == sorted(moving, reverse=True)

    def _chance(self, access: Access) -> tuple[Value, bool] | None:
        """The one boolean that decides whether a store happens, and which way; None where it is not that simple."""
        left = [c for c in access.mask if not self._is_edge(access, c)]
        conditions = [c for c in (settle(self.plan, c) for c in left) if c is not None]
        if len(conditions) != 1 or conditions[0].value is None:
            return None
        return conditions[0].value, conditions[0].negate

    def _either_way(self, out: Spec) -> bool:
        """Whether a condition and its opposite each write all of an output's block."""
        found = {c for inner, c in self.chances.get(out.ref, []) if c and self._all_of(out, inner)}
        return any((value, not negate) in found for value, negate in found)

    def _all_of(self, out: Spec, inner: Sequence[Part]) -> bool:
        """Whether a part of a block is all of it that lies in the array."""
        kept = [i for i, n in enumerate(out.block) if n is not None]
        for part, i in zip(inner, kept):
            size = out.block[i] or 0
            end = size if isinstance(out.picks[i], Var) else min(size, out.shape[i])
            if part is not None and (isinstance(part, Sweep) or part[0] > 0 or part[1] < end):
                return False
        return True

    def _covered(self, out: Spec) -> bool:
        """Whether the stores so far have written all of an output's block."""
        pieces = self.pieces.get(out.ref, [])
        split = {i for inner, _ in pieces for i, part in enumerate(inner) if part is not None}
        if not pieces or any(all(part is None for part in inner) for inner, _ in pieces):
            return bool(pieces)
        if len(split) != 1:
            return False
        (axis,) = split
        kept = [i for i, n in enumerate(out.block) if n is not None]
        size = out.block[kept[axis]]
        assert size is not None
        end = size if isinstance(out.picks[kept[axis]], Var) else min(size, out.shape[kept[axis]])
        reached = 0
        for lo, hi in sorted(stretch for inner, _ in pieces for stretch in _stretches(inner[axis], size)):
            reached = max(reached, hi) if lo <= reached else reached
        return reached >= end

    def keep_old_values(self) -> None:
        """Outputs that no store writes whole begin with what was there."""
        self._drop_constants()
        first: dict[tuple[str, ...], list[str]] = {}
        for out in self.outputs:
            covered = self._covered(out) or self._either_way(out)
            if covered and out.ref not in self.kept:
                continue  # a store that chooses may then choose between new values and nothing in particular
            old = self._input(out)
            named = re.compile(rf"(?<!\w){out.ref}(?:\.at)?\[")
            stores = [i for i, line in enumerate(self.lines) if named.search(line)]
            left, _, right = self.lines[stores[0]].partition(" = ")
            again = tuple(f"pl.program_id({axis}) == 0" for axis in self._comes_again(out))
            again += (self._inside(out),) if out.clamped else ()
            if len(stores) == 1 and left == f"    {out.ref}[...]" and not again:
                self.lines[stores[0]] = f"{left} = {named.sub(f'{old.ref}[', right)}"
                continue  # the only store: it chooses between new and old
            first.setdefault(again, []).append(f"{out.ref}[...] = {old.ref}[...]")
        lines = first.pop((), [])
        for conditions, told in first.items():
            both = " & ".join(f"({c})" if len(conditions) > 1 else c for c in conditions)
            lines += [f"@pl.when({both})", f"def {self.fresh('keep')}():", *(f"    {line}" for line in told)]
        self.lines[:0] = [f"    {line}" for line in (*self.prologue, *lines)]

    def _comes_again(self, out: Spec) -> tuple[int, ...]:
        """The axes of the grid along which an output's block stays the same, step by step."""
        axes = (i for i, v in enumerate(self.blocks.grid) if v not in out.picks and self.blocks.steps(v) > 1)
        return tuple(axes) if self._stays(out) else ()

    def _inside(self, spec: Spec) -> str:
        """Whether a grid step has a block of its own, as source."""
        (clamped,) = spec.clamped
        return f"pl.program_id({self.blocks.grid.index(clamped.var)}) <= {clamped.last}"


def _stretches(part: Part, whole: int) -> list[tuple[int, int]]:
    """The ranges of a block's dimension that an access touches."""
    if part is None:
        return [(0, whole)]
    if not isinstance(part, Sweep):
        return [part]
    starts = [part.start]
    for var, step in part.steps:
        starts = [s + step * k for s in starts for k in range(var.count or 1)]
    return [(s, s + part.size) for s in starts]
