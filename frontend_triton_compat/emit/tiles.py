"""Operations on whole tiles: reshapes, calls, scans, reductions, contractions.

Input: the operations whose elements meet each other. Output: `Expr`s. Law: a reduction keeps its dimension, as size 1;
elements past a crop count with their fill, and where that is not known the crop is taken back (`KeepWhole`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frontend_triton_compat.emit.base import KeepWhole
from frontend_triton_compat.emit.elementwise import Elementwise
from frontend_triton_compat.emit.expr import Expr, align, chosen, is_call, literal, shape_of, tight, union
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.language.table import REDUCTIONS, ROWS
from frontend_triton_compat.types import TileType


class Tiles(Elementwise):
    """Statements of operations on whole tiles."""

    # -- whole tiles

    def whole(self, value: Value) -> Expr:
        """A value with its batch dimensions first and then every tile dimension at full size, in order."""
        expr = self.value(value)
        axes = self.plan.axes(value)
        for var in axes:
            if var is not None and var.extent is not None:
                raise KeepWhole(var)
        lead = tuple(v for v in self.plan.batch if v in expr.vars)
        dims = (*lead, *axes)
        if expr.literal is not None:
            expr = literal(expr.literal, value.type.element.numpy_name)
        code = align(expr, dims)
        if expr.dims != dims and dims:
            code = f"jnp.broadcast_to({code}, {shape_of(dims, self.extent)})"
        return Expr(code, dims)

    def reshape_(self, op: Op) -> Expr:
        """A row-major regrouping."""
        source, result = self.plan.axes(op.operands[0]), self.plan.axes(op.result)
        if [a for a in source if a] == [a for a in result if a]:
            return self.value(op.operands[0])
        inner = self.whole(op.operands[0])
        lead = inner.dims[: len(inner.dims) - len(source)]
        dims = (*lead, *result)
        return Expr(f"{inner.operand}.reshape({shape_of(dims, self.extent)})", dims)

    def call(self, op: Op) -> None:
        """An operation that moves elements about: on whole tiles, one program at a time through `vmap`."""
        row = ROWS[op["fn"]]
        code = self.with_helpers(self.row_code(row, "float", op))
        operands = [self.whole(v) for v in op.operands]
        lead = [v for v in self.plan.batch if any(v in e.dims for e in operands)]
        names = [f"a{i}" for i in range(len(operands))]
        body = chosen(code.format(*names, **{k: repr(v) for k, v in op.attrs.items()}))
        if not lead:
            text = chosen(code.format(*(e.operand for e in operands), **{k: repr(v) for k, v in op.attrs.items()}))
        else:
            full = []
            for e, v in zip(operands, op.operands):
                dims = (*lead, *self.plan.axes(v))
                full.append(f"jnp.broadcast_to({align(e, dims)}, {shape_of(dims, self.extent)})")
            fn = f"lambda {', '.join(names)}: {body}"
            for _ in lead:
                fn = f"jax.vmap({fn})"
            text = f"{fn}({', '.join(full)})"
        results = [r.name or op["fn"] for r in op.results]
        bound = [self.fresh(r) for r in results]
        self.put(f"{', '.join(bound)} = {text}", op)
        for name, result in zip(bound, op.results):
            self.env[result] = Expr(name, (*lead, *self.plan.axes(result)))

    def scan_(self, op: Op) -> Expr:
        """A running reduction along one axis."""
        expr = self.value(op.operands[0])
        var = self.plan.axes(op.operands[0])[op["axis"]]
        row = ROWS[op["fn"]]
        if var is None:
            return expr
        if var.extent is not None and op.attrs.get("reverse"):
            raise KeepWhole(var)
        expr = self.with_dim(expr, var, op.operands[0].type)
        code = self.row_code(row, op.result.type.element.kind, op)
        axis = expr.dims.index(var)
        text = chosen(code.format(expr.operand, axis=axis, reverse=bool(op.attrs.get("reverse"))))
        return Expr(self.with_helpers(text), expr.dims)

    def with_dim(self, expr: Expr, var: Var, of: TileType) -> Expr:
        """An expression that surely has a dimension counting `var`."""
        if var in expr.dims:
            return expr
        dims = (*expr.dims, var)
        fills = {**expr.fills, var: Expr(expr.code, expr.dims, expr.literal)}  # the same everywhere, past a crop too
        if expr.literal is not None:
            expr = literal(expr.literal, of.element.numpy_name)
        code = f"jnp.broadcast_to({align(expr, dims)}, {shape_of(dims, self.extent)})"
        return Expr(code, dims, None, fills)

    # -- reductions and contractions

    def reduce_(self, op: Op) -> Expr:
        """A reduction along one tile axis; elements past a crop count with their fill."""
        expr, element = self.value(op.operands[0]), op.operands[0].type.element
        var = self.plan.axes(op.operands[0])[op["axis"]]
        if var is None:  # one element: the reduction is that element
            if op["fn"].startswith("arg"):
                zeros = f"jnp.zeros({shape_of(expr.dims, self.extent) if expr.dims else '()'}, jnp.int32)"
                return self.under_new_names(op, Expr(zeros, expr.dims))
            return self.under_new_names(op, expr)
        expr = self.with_dim(expr, var, op.operands[0].type)
        axis = expr.dims.index(var)
        dims = tuple(None if i == axis else d for i, d in enumerate(expr.dims))
        out = Expr(self.reduction(op["fn"], expr, axis, element, op), dims)
        if var.extent is not None:
            out = self.count_dropped(op["fn"], out, expr.fills.get(var), var, op)
        return self.under_new_names(op, out)

    def reduction(self, fn: str, expr: Expr, axis: int, element: Any, op: Op) -> str:
        """Source of one reduction that keeps its dimension."""
        code = self.row_code(REDUCTIONS[fn], element.kind, op)
        return self.with_helpers(code.format(expr.code if is_call(code) else expr.operand, axis=axis))

    def count_dropped(self, fn: str, out: Expr, fill: Expr | None, var: Var, op: Op) -> Expr:
        """A reduction with the elements past the crop counted in: they all are `fill`."""
        assert var.size is not None and var.extent is not None
        if fill is None:
            raise KeepWhole(var)
        value = fill.literal
        dropped = var.size - var.extent
        if fn == "sum":
            if value is not None and value == 0:
                return out
            dims = union([out, fill])
            return Expr(f"{tight(align(out, dims))} + {dropped} * {tight(align(fill, dims))}", dims)
        if fn in ("max", "min", "max_nan", "min_nan"):
            neutral = float("-inf") if fn.startswith("max") else float("inf")
            carries = fn.endswith("_nan")
            if value is not None and (value == neutral or (value != value and not carries)):
                return out
            dims = union([out, fill])
            skips = op.result.type.element.is_floating() and not carries
            name = f"jnp.f{fn}" if skips else f"jnp.{fn[:3]}imum"
            return Expr(f"{name}({align(out, dims)}, {align(fill, dims)})", dims)
        if (
            fn in ("argmax", "argmin")
            and value is not None
            and value == (float("-inf") if fn == "argmax" else float("inf"))
        ):
            return out
        raise KeepWhole(var)

    def dot_(self, op: Op) -> Expr:
        """A contraction, plus the accumulator."""
        product = self.contract(op, ())
        return self.plus(self.value(op.operands[2]), product)

    def plus(self, acc: Expr, term: Expr) -> Expr:
        """``acc + term``; the term alone when the accumulator is zero."""
        if acc.literal is not None and acc.literal == 0:
            return term
        dims = union([acc, term])
        return Expr(f"{tight(align(acc, dims))} + {tight(align(term, dims))}", dims)

    def contract(self, op: Op, also: Sequence[Var]) -> Expr:
        """The product of a dot's operands, contracted over its axis and over folded iterations."""
        a_value, b_value, _ = op.operands
        rank = len(a_value.shape)
        a, b = self.value(a_value), self.value(b_value)
        gone_a, gone_b = self.plan.axes(a_value)[rank - 1], self.plan.axes(b_value)[rank - 2]
        if gone_a is None:
            gone_a = gone_b = Var("axis", 1, self.plan.affine.fresh("unit"))
            a = Expr(
                f"{a.operand}[..., None]" if a.dims else f"jnp.{a_value.type.element.numpy_name}({a.code})[None]",
                (*a.dims, gone_a),
            )
            b = Expr(
                f"{b.operand}[..., None]" if b.dims else f"jnp.{b_value.type.element.numpy_name}({b.code})[None]",
                (*b.dims, gone_b),
            )
        assert gone_b is not None
        a, b = self.with_dim(a, gone_a, a_value.type), self.with_dim(b, gone_b, b_value.type)
        if op in self.plan.dims.renames:
            a, b, gone_a = self._under_result_names(op, a, b, gone_a)
        elif gone_a is not gone_b:  # a unit dimension on one side
            b = Expr(b.code, tuple(gone_a if d is gone_b else d for d in b.dims), None, b.fills)
        contracted = [gone_a]
        for var in also:
            if var in a.dims or var in b.dims:
                a, b = self.with_dim(a, var, a_value.type), self.with_dim(b, var, b_value.type)
                contracted.append(var)
        for var in contracted:
            if var.extent is not None and not any(_is_zero(e.fills.get(var)) for e in (a, b)):
                raise KeepWhole(var)
        a, b = self.real_lanes(self._plain(a), self._plain(b), contracted, element := a_value.type.element)
        batch = [d for d in a.vars if d in b.vars and d not in contracted]
        free_a = [d for d in a.vars if d not in contracted and d not in batch]
        free_b = [d for d in b.vars if d not in contracted and d not in batch]
        accumulate = op.result.type.element
        wide = "int32" if element.is_int() else ("float64" if element.primitive_bitwidth == 64 else "float32")
        dims = (*batch, *free_a, *free_b)
        b, free_b = self.right_of_dot(a, b, batch, contracted, element)
        flat = (*batch, *free_a, *free_b) != dims
        precision = self.dot_precision(op)
        text = self.product(a, b, contracted, batch, f"preferred_element_type=jnp.{wide}{precision}")
        if flat:
            text += f".reshape({shape_of(dims, self.extent)})"
        if accumulate.numpy_name != wide:
            text += f".astype(jnp.{accumulate.numpy_name})"
        return Expr(text, dims)

    def product(self, a: Expr, b: Expr, contracted: Sequence[Var], batch: Sequence[Var], how: str) -> str:
        """Source of a product of two operands."""
        both = {*contracted, *batch}
        free_a, free_b = ([d for d in e.vars if d not in both] for e in (a, b))
        simple = not batch and a.dims == (*free_a, *contracted) and b.dims == (*contracted, *free_b)
        if simple and len(contracted) == 1 and free_a and free_b and len(a.dims) == len(b.dims) == 2:
            return f"jnp.dot({a.code}, {b.code}, {how})"
        at = lambda e, ds: tuple(e.dims.index(d) for d in ds)
        numbers = f"(({at(a, contracted)}, {at(b, contracted)}), ({at(a, batch)}, {at(b, batch)}))"
        return f"lax.dot_general({a.code}, {b.code}, {numbers}, {how})"

    def real_lanes(self, a: Expr, b: Expr, contracted: Sequence[Var], element: Any) -> tuple[Expr, Expr]:
        """A contraction's operands without what a target reads past the end of an array."""
        return a, b

    def _under_result_names(self, op: Op, a: Expr, b: Expr, gone: Var) -> tuple[Expr, Expr, Var]:
        """The operands of a tile times itself, or its transpose: outer dimensions get the result's names."""
        inner = Var("axis", gone.size, self.plan.affine.fresh("inner"))
        result = self.plan.axes(op.result)
        names_a, names_b = self.plan.axes(op.operands[0]), self.plan.axes(op.operands[1])
        table_a = {names_a[-2]: result[-2], names_a[-1]: inner}
        table_b = {names_b[-1]: result[-1], names_b[-2]: inner}
        return (
            Expr(a.code, tuple(d and table_a.get(d, d) for d in a.dims), None, a.fills),
            Expr(b.code, tuple(d and table_b.get(d, d) for d in b.dims), None, b.fills),
            inner,
        )

    def right_of_dot(
        self, a: Expr, b: Expr, batch: Sequence[Var], contracted: Sequence[Var], element: Any
    ) -> tuple[Expr, list[Var]]:
        """A contraction's right operand as the target wants it, and what its dimensions count that stay."""
        return b, [d for d in b.vars if d not in contracted and d not in batch]

    def dot_precision(self, op: Op) -> str:
        """An extra argument for the contraction's precision."""
        return ""

    def _plain(self, expr: Expr) -> Expr:
        """Without dimensions of size 1."""
        if None not in expr.dims:
            return expr
        index = ", ".join("0" if d is None else ":" for d in expr.dims)
        return Expr(f"{expr.operand}[{index}]", expr.vars, None, expr.fills)


def _is_zero(fill: Expr | None) -> bool:
    return fill is not None and fill.literal is not None and fill.literal == 0
