"""Values on a GPU: counters, reductions over whole tiles or along one dimension, selections.

Input: operations of the IR. Output: `Expr`s. Law: elements of a tile that are padding never reach a reduction; a
reduced dimension is gone; NaN is treated as the language says, not as the machine's instruction does.
"""

from __future__ import annotations

from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.demand import Conjunct
from frontend_triton_compat.emit.expr import Expr, align, literal, tight, union
from frontend_triton_compat.emit.gpu.operands import Operands
from frontend_triton_compat.forms import Form, Opaque, Var
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.language.table import Row
from frontend_triton_compat.types import INT32, UINT32, TileType, dtype
from pallas_core.targets.mosaic_gpu import SUBSTITUTES

#: What changes nothing in a reduction: fn -> (of floats, of integers as a key of the dtype's limits).
_NEUTRAL = {
    "sum": ("0", "0"),
    "max": ("-jnp.inf", "min"),
    "min": ("jnp.inf", "max"),
    "max_nan": ("-jnp.inf", "min"),
    "min_nan": ("jnp.inf", "max"),
    "argmax": ("-jnp.inf", "min"),
    "argmin": ("jnp.inf", "max"),
}


class GpuTiles(Operands):
    """Statements of values."""

    def extent(self, var: Var) -> int:
        """A block's share of a variable."""
        return self.share.sizes.get(var) or (1 if var in self.grid else super().extent(var))

    # -- counters and names

    def _counter(self, var: Var, dtype_name: str) -> Expr:
        name = self.single_name(var)
        if name is not None:
            return Expr(name)
        if var not in self.share.sizes:
            raise error("internal-error", f"variable {var.name} is counted by nothing")
        code = self.dimensions.counter(var)
        if var in self.grid:
            code = f"({code} + {self.grid[var]} * {self.share.sizes[var]})"
        return Expr(code, (var,))

    def _index_dtype(self, form: Form, element: Any) -> str:
        found = super()._index_dtype(form, element)
        return {"int64": "int32", "uint64": "uint32"}.get(found, found)

    def form(self, form: Form, element: Any = None) -> Expr:
        """Index arithmetic, written where it is used: a counter has the layout of its surroundings."""
        name = self._index_dtype(form, element)
        parts: list[tuple[int, Expr]] = []
        for symbol, c in form.terms.items():
            if isinstance(symbol, Opaque):
                parts.append((c, self.value(symbol.value)))
            else:
                parts.append((c, self._counter(symbol, name)))
        if not parts:
            return literal(form.const)
        dims = union([p for _, p in parts])
        text = ""
        for c, part in parts:
            code = tight(align(part, dims))
            term = code if abs(c) == 1 else f"{code} * {abs(c)}"
            text = f"{text} {'-' if c < 0 else '+'} {term}" if text else (f"-{term}" if c < 0 else term)
        if form.const:
            text += f" {'-' if form.const < 0 else '+'} {abs(form.const)}"
        if name != "int32":
            text = f"{tight(text)}.astype(jnp.{name})"
        return Expr(text, dims)

    def assign(self, hint: str, expr: Expr, op: Op | None = None) -> Expr:
        """Bind an expression to a name."""
        if expr.literal is not None and not expr.dims:
            return expr
        bound = super().assign(hint, Expr(self.dimensions.resolve(expr, expr.dims), expr.dims, None, expr.fills), op)
        if bound.dims:
            self.dimensions.tiles.add(bound.code)
        return bound

    def _condition(self, c: Conjunct) -> Expr:
        found = super()._condition(c)
        if found.code.startswith("~"):  # Mosaic GPU has no `not` of a tile of conditions
            inner = self.value(c.value) if c.value is not None else found
            return Expr(f"{tight(inner.code)} == False", inner.dims) if not inner.dims else self._opposite(inner)
        return found

    def _opposite(self, condition: Expr) -> Expr:
        picked = f"jnp.where({self.dimensions.resolve(condition, condition.dims)}, 0, 1)"
        return Expr(f"{picked} != 0", condition.dims)

    def masked(self, mask: Expr | None, value: Expr, other: Expr, dtype_name: str) -> Expr:
        """``where(mask, value, other)``, every operand a tile or none."""
        if mask is None or mask.code == "True":
            return value
        dims = union([mask, value, other])
        parts = [
            self.spread(mask, [d for d in dims if d is not None], "bool_")
            if dims and not mask.dims
            else align(mask, dims)
        ]
        for e in (value, other):
            parts.append(literal(e.literal, dtype_name).code if e.literal is not None and not dims else align(e, dims))
        if value.literal is not None and other.literal is not None and dims:
            parts[1] = literal(value.literal, dtype_name).code
        return Expr(f"jnp.where({', '.join(parts)})", dims)

    def with_dim(self, expr: Expr, var: Var, of: TileType) -> Expr:
        """An expression that surely has a dimension counting `var`."""
        if var in expr.dims or var not in self.share.sizes:
            return expr
        dims = self.dimensions.union([expr, Expr("", (var,))])
        fills = {**expr.fills, var: Expr(expr.code, expr.dims, expr.literal)}
        return Expr(self.spread(expr, dims, of.element.numpy_name), dims, None, fills)

    def shaped(self, expr: Expr, dims: tuple[Var | None, ...], value: Value) -> str:
        """An expression in exactly these dimensions and the value's dtype."""
        name = self._dtype_name(value)
        if not dims:
            return self.typed(expr, name)
        named = [d for d in dims if d is not None]
        return self.spread(expr, named, name)

    # -- elementwise

    def row_code(self, row: Row, kind: str, op: Op | None) -> str:
        """The expression of a row; its refusal with what Mosaic GPU takes instead."""
        code = row.code_for("gpu", kind)
        if not code.startswith("!"):
            return code
        raise error(
            code[1:],
            f"`{row.name}` on a GPU",
            where=op.where if op is not None else None,
            why="Mosaic GPU has no lowering for it, and nothing that it lowers says the same",
            do=SUBSTITUTES.get(row.name, "compute it outside the kernel, or run the kernel on the CPU"),
        )

    def apply(self, fn: str, operands: list[Expr], element: Any, result: TileType, op: Op | None = None) -> Expr:
        """A row of the table; 8-bit integers are computed with as 32."""
        narrow = isinstance(element, dtype) and element.is_int() and element.primitive_bitwidth == 8
        if not narrow or fn == "where":
            return super().apply(fn, operands, element, result, op)
        wide = INT32 if element.kind == "int" else UINT32
        held = [
            e
            if e.literal is not None
            else Expr(f"{tight(e.code)}.astype(jnp.{wide.numpy_name})", e.dims, None, e.fills)
            for e in operands
        ]
        kind = result.with_element(wide) if result.element == element else result
        found = super().apply(fn, held, wide, kind, op)
        if result.element != element:
            return found
        return Expr(f"{tight(found.code)}.astype(jnp.{element.numpy_name})", found.dims)

    # -- reductions

    def reduce_(self, op: Op) -> Expr:
        """A reduction along one tile axis."""
        source = op.operands[0]
        expr, element, fn = self.value(source), source.type.element, op["fn"]
        var = self.plan.axes(source)[op["axis"]]
        if var is None or var not in self.share.sizes:  # one element
            if fn.startswith("arg"):
                return self.under_new_names(op, Expr("0", (), 0))
            return self.under_new_names(op, expr)
        expr = self.with_dim(expr, var, source.type)
        dims = tuple(d for d in expr.dims if d is not var)
        out = Expr(self.reduction(fn, expr, expr.dims.index(var), element, op), dims)
        if var.extent is not None:
            out = self.count_dropped(fn, out, expr.fills.get(var), var, op)
        return self.under_new_names(op, out)

    def reduction(self, fn: str, expr: Expr, axis: int, element: Any, op: Op) -> str:
        """Source of one reduction; the reduced dimension is gone."""
        if fn not in _NEUTRAL:
            raise error(
                "gpu-unsupported-op",
                f"the reduction `{fn}` on a GPU",
                where=op.where,
                why="Mosaic GPU reduces by sum, max and min only",
                do="write it with tl.sum, tl.max or tl.min, or run the kernel on the CPU",
            )
        var = expr.dims[axis]
        assert var is not None
        if element.is_int() and element.primitive_bitwidth < 32:  # no arithmetic on 8 bits, and bools are numbers here
            wide = UINT32 if element.kind == "uint" else INT32
            code = align(expr, expr.dims)
            number = f"jnp.where({code}, 1, 0)" if element.is_bool() else f"{tight(code)}.astype(jnp.{wide.numpy_name})"
            found = self.reduction(fn, Expr(number, expr.dims), axis, wide, op)
            if fn.startswith("arg") or element.is_bool():
                return found if not element.is_bool() or fn.startswith("arg") or fn == "sum" else f"({found}) != 0"
            return f"({found}).astype(jnp.{element.numpy_name})"
        neutral = _NEUTRAL[fn][0 if element.is_floating() else 1]
        if neutral in ("min", "max"):
            bits, signed = element.primitive_bitwidth, element.kind == "int"
            top = (1 << (bits - signed)) - 1
            neutral = str(top if neutral == "max" else (-top - 1 if signed else 0))
        bound = self.assign("tile", Expr(align(expr, expr.dims), expr.dims), op)
        counter = Expr(self.dimensions.counter(var), (var,))
        inside = self.dimensions.align(counter, expr.dims)
        if self.share.sizes[var] > (var.count or 1):
            kept = Expr(f"jnp.where({inside} < {var.count}, {bound.code}, {neutral})", expr.dims)
            bound = self.assign("tile", kept, op)
        along = "" if len(expr.dims) == 1 else f", axis={axis}"
        floats = element.is_floating()
        if fn == "sum":
            return f"jnp.sum({bound.code}{along})"
        name = "max" if "max" in fn else "min"
        if not floats and not fn.startswith("arg"):
            return f"jnp.{name}({bound.code}{along})"
        return self._extreme(fn, name, bound, inside, neutral, along, floats, op)

    def _extreme(
        self, fn: str, name: str, bound: Expr, inside: str, neutral: str, along: str, floats: bool, op: Op
    ) -> str:
        """The largest or smallest element, or its index: NaN left out, carried, or found."""
        x, dims = bound.code, bound.dims
        rest = tuple(d for i, d in enumerate(dims) if f", axis={i}" != along) if along else ()
        numbers = self.assign("numbers", Expr(f"jnp.where({x} == {x}, {x}, {neutral})", dims), op) if floats else bound
        best = self.assign(name, Expr(f"jnp.{name}({numbers.code}{along})", rest), op)
        if fn in ("max", "min"):
            some = self.assign("some", Expr(f"jnp.max(jnp.where({x} == {x}, 1, 0){along})", rest), op)
            return f"jnp.where({some.code} != 0, {best.code}, jnp.nan)"
        if fn in ("max_nan", "min_nan"):
            lost = self.assign("lost", Expr(f"jnp.max(jnp.where({x} != {x}, 1, 0){along})", rest), op)
            return f"jnp.where({lost.code} != 0, jnp.nan, {best.code})"
        spread = align(best, dims)
        n = self.share.sizes[next(d for d in dims if d not in rest)]  # type: ignore[index]
        found = f"({x} == {spread})" if not floats else f"({x} == {spread}) | ({x} != {x})"
        if floats:  # the first NaN counts as the extreme, where there is one
            lost = self.assign("lost", Expr(f"jnp.max(jnp.where({x} != {x}, 1, 0){along})", rest), op)
            spread_lost = align(lost, dims)
            picked = (
                f"jnp.where({spread_lost} != 0, jnp.where({x} != {x}, 1, 0), jnp.where({x} == {spread}, 1, 0)) != 0"
            )
            found = picked
            if not rest:
                either = f"jnp.where({x} != {x}, 1, jnp.where({x} == {spread}, 1 - {lost.code}, 0))"
                found = f"{either} != 0"
        where = self.dimensions.resolve(Expr(inside, dims), dims)
        return f"jnp.min(jnp.where({found}, {where}, {n}){along})"

    def scan_(self, op: Op) -> Expr:
        """Running reductions have no lowering."""
        raise error(
            "gpu-unsupported-op",
            f"`{op['fn']}` on a GPU",
            where=op.where,
            why="Mosaic GPU has no scans: elements of a tile meet in reductions only",
            do="take the scan outside the kernel, or run the kernel on the CPU",
        )

    def call(self, op: Op) -> None:
        """Operations that move elements about have no lowering."""
        raise error(
            "gpu-unsupported-op",
            f"`{op['fn']}` on a GPU",
            where=op.where,
            why="Mosaic GPU has no sort, gather, join or other move of elements between the threads of a block",
            do="address memory with the wanted order instead, or run the kernel on the CPU",
        )

    def each(self, op: Op) -> None:
        """Scalar functions of the kernel's author."""
        raise error(
            "gpu-not-translated",
            "a reduction, scan or map with a function of your own is not translated for a GPU",
            where=op.where,
            why="Mosaic GPU reduces by sum, max and min only",
            do="use tl.sum, tl.max and their kin where they say the same, or run the kernel on the CPU",
        )

    reduce_by = scan_by = each
