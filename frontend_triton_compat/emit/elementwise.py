"""Elementwise operations: rows of the op table, filled in; conversions; what they make of elements past a crop.

Input: `map`, `cast` and their kin. Output: `Expr`s. Law: an operand's dimensions are aligned by name; the fill of a
result is the same operation on the operands' fills.
"""

from __future__ import annotations

import math
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.emit.base import TRANSPARENT, Base, helper_names, line_of
from frontend_triton_compat.emit.casts import cast_code, cast_number
from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, tight, union
from frontend_triton_compat.emit.fills import fold_constant
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.language.table import ROWS
from frontend_triton_compat.types import TileType, dtype

_MAX_FILL = 300  # characters; a longer fill expression is not worth its crop


class Elementwise(Base):
    """Statements of operations that work element by element."""

    def arg_(self, op: Op) -> Expr:
        """A run-time scalar argument."""
        raise NotImplementedError

    def program_id_(self, op: Op) -> Expr:
        """A program id used as data."""
        return self.form(self.plan.form(self.plan.affine.form(op.result)), op.result.type.element)

    def arange_(self, op: Op) -> Expr:
        """An `arange` used as data."""
        return self.form(self.plan.form(self.plan.affine.form(op.result)), op.result.type.element)

    def map_(self, op: Op) -> Expr | None:
        """An elementwise operation: its row of the table, filled in."""
        if op.result.type.element.is_bool():
            conditions = self.plan.walker.conjuncts(op.result)
            if not (len(conditions) == 1 and conditions[0].value is op.result):
                mask = self.mask(conditions)
                mask = mask if mask is not None else literal(True)
                if mask.literal is not None:
                    self.env[op.result] = mask
                    return None
                return mask
        operands = [self.value(v) for v in op.operands]
        for i in self._simplified(op):
            e = operands[i]
            if e.literal is None:
                operands[i] = Expr(self.with_helpers(f"kept({e.code})"), e.dims, None, e.fills)
        return self.apply(op["fn"], operands, op.operands[-1].type.element, op.result.type, op)

    def _simplified(self, op: Op) -> list[int]:
        """Operands that XLA would combine with this operation as algebra does, which floats don't obey."""
        if self.target != "cpu" or not op.result.type.element.is_floating():  # type: ignore[union-attr]
            return []
        makers = [self._made_by(v) for v in op.operands]
        fns = [m["fn"] if m is not None else "" for m in makers]
        if op["fn"] in ("add", "sub"):  # (x + a) - b is not x + (a - b)
            constant = [self.value(v).literal is not None for v in op.operands]
            return [
                i
                for i, maker in enumerate(makers)
                if constant[1 - i] and maker is not None and fns[i] in ("add", "sub") and self._has_constant(maker)
            ]
        if (op["fn"] == "mul" and fns == ["exp", "exp"]) or (op["fn"] == "log" and fns == ["exp"]):
            return [0]
        return []

    def _made_by(self, value: Value) -> Op | None:
        """The elementwise operation that a value comes from, moves aside."""
        op = value.producer
        while op is not None and op.kind in TRANSPARENT:
            op = op.operands[0].producer
        return op if op is not None and op.kind == "map" else None

    def _has_constant(self, op: Op) -> bool:
        return any(self.value(v).literal is not None for v in op.operands)

    def apply(self, fn: str, operands: list[Expr], element: Any, result: TileType, op: Op | None = None) -> Expr:
        """A row of the table on expressions, with the fills of the result."""
        row = ROWS.get(fn)
        if row is None:
            raise error("internal-error", f"op {fn!r} has no row in the op table", where=line_of(op))
        kind = element.kind if isinstance(element, dtype) else "int"
        code = self.with_helpers(self.row_code(row, kind, op))
        if self.target in row.spread and _is_spread(operands):
            code = self.with_helpers(row.spread[self.target])
        if self.target == "tpu" and fn in ("maximum", "minimum") and _is_fp32(element):
            bounded = self._bounded(fn, operands)
            if bounded is not None:
                return Expr(bounded, union(operands), None, self._fills(fn, operands, element, result))
        if fn == "where" and operands[0].literal is True and operands[0].dims == ():
            chosen = operands[1]
            return Expr(chosen.code, chosen.dims, chosen.literal, self._fills("where", operands, element, result))
        typed = operands
        strict = "lax." in code or "{0}." in code
        values = operands[1 if fn == "where" else 0 :]
        if strict or helper_names().search(code) or all(e.literal is not None for e in values):
            name = element.numpy_name
            first = operands[:1] if fn == "where" else []
            rest = operands[len(first) :]
            typed = [*first, *(e if e.literal is None else literal(e.literal, name) for e in rest)]
        elif any(_wide(e) for e in operands):  # a bare number beyond int32 has no type of its own
            typed = [literal(e.literal, element.numpy_name) if _wide(e) else e for e in operands]
        dims = union(typed)
        infix = code.startswith("{") or code.startswith("0 -") or code.startswith("~")
        parts = [align(e, dims) for e in typed]
        if strict and len(parts) > 1:  # lax does not broadcast
            shape = shape_of(dims, self.extent)
            parts = (
                [p if e.dims == dims else f"jnp.broadcast_to({p}, {shape})" for p, e in zip(parts, typed)]
                if dims
                else parts
            )
        text = code.format(*(tight(p) if infix or "{0}." in code else p for p in parts))
        return Expr(text, dims, None, self._fills(fn, operands, element, result))

    def _bounded(self, fn: str, operands: list[Expr]) -> str | None:
        """A bound that is a number: one comparison picks it where the other operand is NaN or beyond it."""
        bounds = [e for e in operands if not e.dims and isinstance(e.literal, float) and e.literal == e.literal]
        others = [e for e in operands if e.literal is None and (e.dims or e.code in self.names)]
        if len(bounds) != 1 or len(others) != 1 or bounds[0].literal == 0:  # of zeros the sign would count
            return None
        x = others[0] if others[0].code in self.names else self.assign("value", others[0])
        return f"jnp.where({x.code} {'>' if fn == 'maximum' else '<'} {bounds[0].code}, {x.code}, {bounds[0].code})"

    def _fills(self, fn: str, operands: list[Expr], element: Any, result: TileType) -> dict[Var, Expr]:
        """What the result is past each crop: the same operation on the operands' fills."""
        out: dict[Var, Expr] = {}
        cropped = {v for e in operands for v in (*e.vars, *e.fills) if v.extent is not None}
        for var in cropped:
            parts = [e.fills.get(var) if var in e.vars or var in e.fills else e for e in operands]
            if fn == "where" and parts[0] is not None and parts[0].literal is not None:
                picked = parts[1] if parts[0].literal else parts[2]
                if picked is not None:
                    out[var] = picked
                continue
            if fn == "where" and all(p is not None and p.literal == 0 and not p.dims for p in parts[1:]):
                out[var] = literal(parts[1].literal)  # type: ignore[union-attr]
                continue  # whichever it is
            if any(p is None for p in parts):
                continue
            known = [p for p in parts if p is not None]
            constant = fold_constant(fn, [p.literal for p in known], element, result.element)
            if constant is not None:
                out[var] = literal(constant)
            elif sum(len(p.code) for p in known) < _MAX_FILL:
                bare = [Expr(p.code, p.dims, p.literal) for p in known]
                out[var] = self.apply(fn, bare, element, result)
        return out

    def cast_(self, op: Op) -> Expr:
        """A conversion, with C's meaning for float to a narrow integer."""
        source, target = op.operands[0].type.element, op.result.type.element
        inner = self.value(op.operands[0])

        def converted(e: Expr) -> str:
            return self.with_helpers(cast_code(e, source, target, op.attrs.get("rounding"), self.target, op.where))

        fills = {}
        for var, fill in inner.fills.items():
            narrow = str(source).startswith("fp8") or str(target).startswith("fp8")
            if fill.literal is not None and not narrow:
                fills[var] = literal(cast_number(fill.literal, target))
            else:
                fills[var] = Expr(converted(fill), fill.dims)
        return Expr(converted(inner), inner.dims, None, fills)

    def bitcast_(self, op: Op) -> Expr:
        """The same bits under another type."""
        inner = self.value(op.operands[0])
        code = (
            inner.code if inner.literal is None else literal(inner.literal, op.operands[0].type.element.numpy_name).code
        )
        return Expr(f"lax.bitcast_convert_type({code}, jnp.{op.result.type.element.numpy_name})", inner.dims)


def _is_spread(operands: list[Expr]) -> bool:
    """Whether the last operand has fewer dimensions than the result, or is a constant that is no power of two."""
    last = operands[-1]
    if last.literal is not None:
        return abs(math.frexp(last.literal)[0]) != 0.5 and any(e.literal is None for e in operands)
    return last.dims != union(operands)


def _wide(expr: Expr) -> bool:
    number = expr.literal
    return isinstance(number, int) and not isinstance(number, bool) and not -(2**31) <= number < 2**31


def _is_fp32(element: Any) -> bool:
    return isinstance(element, dtype) and element.is_floating() and element.primitive_bitwidth == 32
