"""A scheduled kernel as statements: the part of the emitters that no target changes.

Input: a `Schedule`. Output: lines of jax source over refs. Law: one statement an operation that is live, in the
program's order; every program of the grid at once, by named dimensions. A target's emitter says how refs are read
and written, how an index is counted and what stands around the statements. The parts, each on top of the one before:
`base`, `elementwise`, `tiles`, `combine`, `control`.
"""

from __future__ import annotations

from frontend_triton_compat.emit.base import TRANSPARENT, KeepWhole, zero_of
from frontend_triton_compat.emit.control import Control
from frontend_triton_compat.emit.expr import Expr, align, literal, tight, union
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op

__all__ = ["Emitter", "KeepWhole"]


class Emitter(Control):
    """Statements of one scheduled kernel; subclasses add refs, counters and the module around it."""

    # -- statements

    def op(self, op: Op) -> None:
        """One operation, if its result is looked at."""
        plan = self.plan
        if op.kind == "store":
            self.store(op)
            return
        if op.kind in ("for", "while", "if"):
            getattr(self, f"{op.kind}_")(op)
            return
        if op.kind == "atomic":
            self.atomic(op)
            return
        if op.kind == "print_":
            self.print_(op)
            return
        if op.kind == "assert_":
            self.assertion(op)
            return
        if not any(r in plan.demand.live for r in op.results):
            return
        if all(r in plan.demand.indexed for r in op.results) or op.kind in ("const", *TRANSPARENT):
            return
        if op.kind == "load":
            self.load(op)
        elif op.kind == "call":
            self.call(op)
        elif "body" in op.attrs:  # reduce_by, scan_by, each
            getattr(self, op.kind)(op)
        else:
            result = op.result
            if result.type.is_pointer and op.kind == "arg":
                return
            if result.type.is_pointer:
                if op.kind == "ptr_add" and any(o.value is result for o in plan.affine.form(result).opaques):
                    self.env[result] = self.pointer_sum(op)
                return  # otherwise its offset is a form, written where it is used
            expr = getattr(self, f"{op.kind}_")(op)
            if expr is not None and expr.code in self.names:
                self.env[result] = expr  # nothing but another name
            elif expr is not None:
                self.env[result] = self.assign(result.name or op.attrs.get("fn", op.kind), expr, op)

    def assertion(self, op: Op) -> None:
        """A condition that has to hold in every program."""
        raise self.refuse(op)

    def print_(self, op: Op) -> None:
        """Values printed while the kernel runs."""
        for operand in op.operands:
            self.put(f"jax.debug.print({op.attrs.get('prefix', '')!r} + ' {{}}', {self.value(operand).code})", op)

    def pointer_sum(self, op: Op) -> Expr:
        """A pointer's offset that is data: kept in 64 bits."""
        a, b = (self.value(v) for v in op.operands)
        dims = union([a, b])
        text = f"{tight(align(a, dims))} + {tight(align(b, dims))}"
        return self.assign(op.result.name or "offset", Expr(f"({text}).astype(jnp.{self.wide_int})", dims), op)

    # -- memory

    def load(self, op: Op) -> None:
        """A load: the window, with `other` (or 0) where the mask does not hold."""
        access = self.plan.accesses[op]
        element = op.result.type.element
        other = self.value(op.operands[-1]) if op["has_other"] else literal(zero_of(element))
        raw = self.read(access)
        mask = self.mask(access.mask)
        expr = self.masked(mask, raw, other, element.numpy_name)
        fills: dict[Var, Expr] = {}
        before = self.plan.demand.accesses[op]
        past = set()
        for c in before.all_conditions:
            if c.form is not None:
                past |= self._false_past_crop(self.plan.form(c.form))
        for var in past:
            if var not in other.dims:
                fills[var] = other
            elif var in other.fills:
                fills[var] = other.fills[var]
        self.env[op.result] = self.assign(op.result.name or "loaded", Expr(expr.code, expr.dims, None, fills), op)

    def atomic(self, op: Op) -> None:
        """An atomic operation, on targets that have them."""
        raise self.refuse(op)

    def store(self, op: Op) -> None:
        """A store."""
        access = self.plan.accesses[op]
        if any(c.form is not None and c.form.is_const for c in access.mask):
            return  # a condition that never holds
        self.write(access, self.value(op.operands[1]), self.mask(access.mask))
