"""Counters along rows or along lanes: index arithmetic is written for the side on which it is used.

Input: index arithmetic and masks of the IR. Output: `Expr`s of two dimensions. Law: a variable that counts an operand's
lanes in one statement may count its rows in another (the keys of attention do): moving a vector from one to the other
costs shuffles, a second `iota` costs nothing, so index arithmetic is written anew for every side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from frontend_triton_compat.emit.expr import Expr, literal, tight, union
from frontend_triton_compat.emit.tpu.blocks import Blocks
from frontend_triton_compat.emit.tpu.stores import Stores
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import INT32


class Facing(Stores):
    """Counters and masks with a side."""

    def __init__(self, plan: Schedule, blocks: Blocks):
        super().__init__(plan, blocks)
        self._side: dict[Var, bool] = {}  # variable -> whether it counts rows where something is being written
        self._lazy: dict[Value, bool] = {}
        self.at: tuple[int, int] | None = None  # the axis and the step of it that statements are written for

    def upright(self, var: Var) -> bool:
        """Whether a variable counts rows in what is being written; unless that says, whether it does in the arrays."""
        if var in self._side:
            return self._side[var]
        slices = [w.slices for w in self.plan.windows.values() if w is not None and len(w.slices) > 1]
        return not any(var in s[-1].steps for s in slices) and any(var in p.steps for s in slices for p in s[:-1])

    @contextmanager
    def beside(self, dims: Sequence[Var | None]) -> Iterator[None]:
        """Write index arithmetic to go with something of these dimensions."""
        before = self._side
        self._side = dict.fromkeys((d for d in dims[:-1] if d is not None), True)
        if dims and dims[-1] is not None:
            self._side[dims[-1]] = False
        try:
            yield
        finally:
            self._side = before

    def face(self, variables: Sequence[Var]) -> tuple[bool, ...]:
        """What tells one side's index arithmetic from another's."""
        return tuple(self.upright(v) for v in variables)

    def iota(self, var: Var, dtype_name: str) -> Expr:
        """A counter along lanes, or rows, moved by the grid step."""
        n = self.extent(var)
        column = self.upright(var)
        code = f"lax.broadcasted_iota(jnp.{dtype_name}, {(n, 1) if column else (1, n)}, {0 if column else 1})"
        if var in self.blocks.grid and self.blocks.steps(var) > 1:
            axis = self.blocks.grid.index(var)
            first = self.at[1] * n if self.at is not None and self.at[0] == axis else f"pl.program_id({axis}) * {n}"
            code = f"{code} + {first}" if first else code
        return Expr(code, (var, None) if column else (None, var))

    def value(self, value: Value) -> Expr:
        """A value's expression; a condition on indices is written where it is used."""
        if value not in self.env and self._on_indices(value):
            mask = self.mask(self.plan.walker.conjuncts(value))
            return mask if mask is not None else literal(True)
        return super().value(value)

    def map_(self, op: Op) -> Expr | None:
        """An elementwise operation; conditions on indices wait until they are used."""
        if self._on_indices(op.result):
            return None
        data = [self.value(v) for v in op.operands if not self._is_index(v)]
        with self.beside(union(data)):
            return self._same_place(op, data) or super().map_(op)

    def _same_place(self, op: Op, data: Sequence[Expr]) -> Expr | None:
        """Whether a counter's place is a number that was computed: what all lanes add to it leaves the number."""
        if op["fn"] not in ("eq", "ne") or len(data) != 1 or op.operands[0].type.element != INT32:
            return None
        index = op.operands[0] if self._is_index(op.operands[0]) else op.operands[1]
        form = self.plan.form(self.plan.affine.form(index))
        lanes = Form(0, {v: c for v, c in form.terms.items() if isinstance(v, Var) and v.kind == "axis"})
        rest, number = form - lanes, data[0]
        conditions = self.plan.walker.conjuncts(op.result)
        if len(conditions) != 1 or conditions[0].value is not op.result or rest.opaques or not lanes.terms:
            return None
        if rest == Form(0) or number.literal is not None or set(lanes.vars) & set(number.vars):
            return None
        moved = self.form(rest, INT32)
        if moved.vars:
            return None
        left = Expr(f"{number.operand} - {tight(moved.code)}", number.dims)
        return self.apply(op["fn"], [self.form(lanes, INT32), left], INT32, op.result.type, op)

    def _is_index(self, value: Value) -> bool:
        op = value.producer
        while op is not None and op.kind in ("splat", "broadcast", "expand_dims", "trans"):
            value, op = op.operands[0], op.operands[0].producer
        return value in self.plan.demand.indexed or self._on_indices(value)

    def _on_indices(self, value: Value) -> bool:
        if value not in self._lazy:
            op = value.producer
            yes = op is not None and op.kind == "map" and value.type.element.is_bool() and bool(value.shape)
            if yes:
                found = self.plan.walker.conjuncts(value)
                yes = all(c.form is not None and not self.plan.form(c.form).opaques for c in found)
            self._lazy[value] = yes
        return self._lazy[value]

    def load(self, op: Op) -> None:
        """A load whose mask goes with what is read."""
        with self.beside(self.sides(self.plan.accesses[op])):
            super().load(op)
