"""A scheduled kernel as statements: the part of the emitters that no target changes.

Input: a `Schedule`. Output: lines of jax source over refs. Law: one statement an operation that is live, in the
program's order; every program of the grid at once, by named dimensions. A target's emitter says how refs are read
and written, how an index is counted and what stands around the statements.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.affine import Form, Opaque, Var
from frontend_triton_compat.demand import Access, Conjunct, closed
from frontend_triton_compat.emit.expr import Expr, align, literal, shape_of, union
from frontend_triton_compat.emit.fills import fold_constant
from frontend_triton_compat.ir import Block, Op, Value
from frontend_triton_compat.language.table import HELPERS, REDUCTIONS, ROWS
from frontend_triton_compat.schedule import Schedule, settle
from frontend_triton_compat.types import TileType, dtype

_TRANSPARENT = ("splat", "broadcast", "expand_dims", "trans")
_RESERVED = {"jax", "jnp", "lax", "pl", "pltpu", "None", "min", "max", "range", "step", "carry"}
_MAX_FILL = 300  # characters; a longer fill expression is not worth its crop


class KeepWhole(Exception):
    """A variable was cropped, but an operation needs its dropped elements: schedule again without the crop."""

    def __init__(self, var: Var):
        self.var = var
        super().__init__(var.name)


class Emitter:
    """Statements of one scheduled kernel; subclasses add refs, counters and the module around it."""

    target = "cpu"
    #: largest integer dtype of index arithmetic on the target
    wide_int = "int64"

    def __init__(self, plan: Schedule):
        self.plan = plan
        self.lines: list[str] = []
        self.indent = 1
        self.env: dict[Value, Expr] = {}
        self.names: set[str] = set(_RESERVED) | {p.name for p in plan.kernel.params}
        self.helpers: dict[str, None] = {}
        self.counters: dict[Var, str] = {}  # serial loop variable -> its name in the source
        self.active: dict[Op, Expr] = {}  # loop -> which programs still run it
        self.lowered: dict[tuple[Any, ...], Expr] = {}
        self._line = 0

    # -- hooks of a target

    def extent(self, var: Var) -> int:
        """Number of elements that a dimension counting `var` has in the source."""
        if var.count is None:
            raise error("internal-error", f"variable {var.name} has no extent")
        return var.count

    def iota(self, var: Var, dtype_name: str) -> Expr:
        """The counter of a variable along its own dimension."""
        return Expr(f"jnp.arange({self.extent(var)}, dtype=jnp.{dtype_name})", (var,))

    def read(self, access: Access) -> Expr:
        """The elements of an access, masked ones undefined but harmless."""
        raise NotImplementedError

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """Store a value where the mask holds."""
        raise NotImplementedError

    def refuse(self, op: Op) -> Diagnostic:
        """The diagnostic of an operation that the target has no meaning for."""
        return error("not-translated", f"{op.kind} is not translated for {self.target}", where=op.where)

    # -- text

    def fresh(self, hint: str) -> str:
        """A name that the source does not use yet."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in hint) or "t"
        base = base if not (base[0].isdigit() or keyword.iskeyword(base)) else f"t_{base}"
        name, n = base, 1
        while name in self.names:
            n += 1
            name = f"{base}_{n}"
        self.names.add(name)
        return name

    def put(self, line: str, op: Op | None = None) -> None:
        """Append a line, with the user's line number where it changes."""
        note = ""
        if op is not None and op.where.line != self._line:
            self._line = op.where.line
            note = f"  # line {self._line}"
        self.lines.append("    " * self.indent + line + note)

    def assign(self, hint: str, expr: Expr, op: Op | None = None) -> Expr:
        """Bind an expression to a name and return the name as an expression."""
        name = self.fresh(hint)
        self.put(f"{name} = {expr.code}", op)
        return Expr(name, expr.dims, None, expr.fills)

    # -- values

    def value(self, value: Value) -> Expr:
        """A value's expression: already bound, a literal, or index arithmetic written out."""
        found = self.env.get(value)
        if found is not None:
            return found
        op = value.producer
        if op is not None and op.kind == "const":
            return literal(op["value"])
        if op is not None and op.kind in _TRANSPARENT:
            return self._seen_through(op, value)
        if value.type.element.is_int() and not value.type.element.is_bool():
            form = self.plan.form(self.plan.affine.form(value))
            if not any(o.value is value for o in form.opaques):
                return self.form(form, value.type.element)
        if op is not None and op.kind == "arg" and not value.type.is_pointer:
            raise error("internal-error", f"argument {op['name']} was not read")
        raise error("internal-error", f"value {value.name or value} is used before it is computed", where=_where(op))

    def _seen_through(self, op: Op, value: Value) -> Expr:
        inner = self.value(op.operands[0])
        if op not in self.plan.dims.renames or not inner.dims:
            return inner
        source, result = self.plan.axes(op.operands[0]), self.plan.axes(value)
        order = op["perm"] if op.kind == "trans" else None
        table: dict[Var, Var] = {}
        for j, new in enumerate(result):
            if order is not None:
                old = source[order[j]]
            elif j == op["axis"]:
                continue
            else:
                old = source[j if j < op["axis"] else j - 1]
            if old is not None and new is not None:
                table[old] = new
        return Expr(inner.code, tuple(table.get(d, d) if d is not None else None for d in inner.dims))

    def form(self, form: Form, element: Any = None) -> Expr:
        """Index arithmetic as source."""
        name = self._index_dtype(form, element)
        key = (form, name, self.indent)
        if key in self.lowered:
            return self.lowered[key]
        parts: list[tuple[int, Expr]] = []
        for symbol, c in form.terms.items():
            if isinstance(symbol, Var):
                parts.append((c, self._counter(symbol, name)))
            else:
                inner = self.value(symbol.value)
                parts.append((c, Expr(f"{inner.operand}.astype(jnp.{name})", inner.dims)))
        if not parts:
            return literal(form.const)
        dims = union([p for _, p in parts])
        text = ""
        for c, part in parts:
            code = _tight(align(part, dims))
            term = code if abs(c) == 1 else f"{code} * {abs(c)}"
            sign = "-" if c < 0 else "+"
            text = f"{text} {sign} {term}" if text else (f"-{term}" if c < 0 else term)
        if form.const:
            text += f" {'-' if form.const < 0 else '+'} {abs(form.const)}"
        out = Expr(text, dims)
        if len(parts) > 1 or form.const or parts[0][0] != 1:
            out = self.lowered[key] = self.assign("index", out)
        return out

    def _index_dtype(self, form: Form, element: Any) -> str:
        if isinstance(element, dtype):
            return element.numpy_name
        bounds = form.range()
        wide = bounds is None and any(
            isinstance(o.value.type.element, dtype) and o.value.type.element.primitive_bitwidth == 64 for o in form.opaques
        )
        wide = wide or any(o.value.type.is_pointer for o in form.opaques)
        if bounds is not None and (bounds[0] < -(2**31) or bounds[1] >= 2**31):
            wide = True
        return self.wide_int if wide else "int32"

    def _counter(self, var: Var, dtype_name: str) -> Expr:
        if var in self.counters:
            return Expr(f"{self.counters[var]}.astype(jnp.{dtype_name})")
        key = (var, dtype_name, self.indent)
        if key not in self.lowered:
            self.lowered[key] = self.assign(var.name, self.iota(var, dtype_name))
        return self.lowered[key]

    # -- masks

    def mask(self, conditions: Sequence[Conjunct]) -> Expr | None:
        """A conjunction as source; None when it is always true. `fills` says what it is past a crop."""
        parts: list[Expr] = []
        false_past: set[Var] = set()
        for raw in conditions:
            c = settle(self.plan, raw)
            if raw.form is not None:
                false_past |= self._false_past_crop(self.plan.form(raw.form))
            if c is None:
                continue
            parts.append(self._condition(c))
        fills = {v: literal(False) for v in false_past}
        if not parts:
            return None if not fills else Expr("True", (), True, fills)
        dims = union(parts)
        text = " & ".join(_tight(align(p, dims)) for p in parts) if len(parts) > 1 else align(parts[0], dims)
        for p in parts:
            for var, fill in p.fills.items():
                if fill.literal is False:
                    fills[var] = fill
        return Expr(text, dims, None, fills)

    def _false_past_crop(self, form: Form) -> set[Var]:
        out = set()
        for var, c in form.terms.items():
            if isinstance(var, Var) and var.extent is not None and len(form.terms) == 1:
                if c > 0 and c * var.extent + form.const >= 0:
                    out.add(var)
        return out

    def _condition(self, c: Conjunct) -> Expr:
        if c.form is not None:
            form = c.form
            positive = Form(0, {s: k for s, k in form.terms.items() if k > 0})
            negative = Form(form.const, {s: k for s, k in form.terms.items() if k < 0}).scale(-1)
            if not positive.terms:
                right = self.form(negative)
                return Expr(f"0 < {right.operand}", right.dims)
            left, right = self.form(positive), self.form(negative)
            dims = union([left, right])
            return Expr(f"{_tight(align(left, dims))} < {_tight(align(right, dims))}", dims)
        if c.loop is not None:
            return self.active[c.loop]
        assert c.value is not None
        inner = self.value(c.value)
        return Expr(f"~{inner.operand}", inner.dims) if c.negate else inner

    def masked(self, mask: Expr | None, value: Expr, other: Expr, dtype_name: str) -> Expr:
        """``where(mask, value, other)``; the value itself when there is no mask left."""
        if mask is None or mask.code == "True":
            return value
        if value.literal is not None and other.literal is not None:
            value = literal(value.literal, dtype_name)
        dims = union([mask, value, other])
        return Expr(f"jnp.where({align(mask, dims)}, {align(value, dims)}, {align(other, dims)})", dims)

    # -- statements

    def block(self, block: Block) -> None:
        """Every live operation of a block."""
        for op in block.ops:
            self.op(op)

    def op(self, op: Op) -> None:  # noqa: C901 - one branch an operation kind
        plan = self.plan
        if op.kind == "store":
            self.store(op)
            return
        if op.kind in ("for", "while", "if"):
            getattr(self, f"{op.kind}_")(op)
            return
        if op.kind == "atomic":
            raise self.refuse(op)
        if op.kind == "print_":
            for operand in op.operands:
                self.put(f"jax.debug.print({op.attrs.get('prefix', '')!r} + ' {{}}', {self.value(operand).code})", op)
            return
        if op.kind == "assert_" or not any(r in plan.demand.live for r in op.results):
            return
        if all(r in plan.demand.indexed for r in op.results) or op.kind in ("const", *_TRANSPARENT):
            return
        if op.kind == "load":
            self.load(op)
        elif op.kind == "call":
            self.call(op)
        else:
            result = op.result
            if result.type.is_pointer and op.kind == "arg":
                return
            if result.type.is_pointer:
                self.env[result] = self.form(plan.form(plan.affine.form(result)))
                return
            expr = getattr(self, f"{op.kind}_")(op)
            if expr is not None and expr.code in self.names:
                self.env[result] = expr  # nothing but another name
            elif expr is not None:
                self.env[result] = self.assign(result.name or op.attrs.get("fn", op.kind), expr, op)

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
                if mask.literal is True:
                    self.env[op.result] = mask
                    return None
                return mask
        operands = [self.value(v) for v in op.operands]
        return self.apply(op["fn"], operands, op.operands[-1].type.element, op.result.type, op)

    def apply(self, fn: str, operands: list[Expr], element: Any, result: TileType, op: Op | None = None) -> Expr:
        """A row of the table on expressions, with the fills of the result."""
        row = ROWS.get(fn)
        if row is None:
            raise error("internal-error", f"op {fn!r} has no row in the op table", where=_where(op))
        kind = element.kind if isinstance(element, dtype) else "int"
        code = row.code_for(self.target, kind)
        if code.startswith("!"):
            raise error(code[1:], f"{fn} on {self.target}", where=_where(op), why=row.doc)
        if fn == "where" and operands[0].literal is True and operands[0].dims == ():
            chosen = operands[1]
            return Expr(chosen.code, chosen.dims, chosen.literal, self._fills("where", operands, element, result))
        typed = operands
        strict = "lax." in code or "{0}." in code
        if strict or all(e.literal is not None for e in operands[1 if fn == "where" else 0 :]):
            name = element.numpy_name
            first = operands[:1] if fn == "where" else []
            rest = operands[len(first) :]
            typed = [*first, *(e if e.literal is None else literal(e.literal, name) for e in rest)]
        dims = union(typed)
        infix = code.startswith("{") or code.startswith("0 -") or code.startswith("~")
        parts = [align(e, dims) for e in typed]
        if strict and len(parts) > 1:  # lax does not broadcast
            shape = shape_of(dims, self.extent)
            parts = [p if e.dims == dims else f"jnp.broadcast_to({p}, {shape})" for p, e in zip(parts, typed)] if dims else parts
        text = code.format(*(_tight(p) if infix or "{0}." in code else p for p in parts))
        return Expr(text, dims, None, self._fills(fn, operands, element, result))

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
        code = cast_code(inner, source, target)
        fills = {}
        for var, fill in inner.fills.items():
            if fill.literal is not None:
                fills[var] = literal(_cast_number(fill.literal, target))
            else:
                fills[var] = Expr(cast_code(fill, source, target), fill.dims)
        return Expr(code, inner.dims, None, fills)

    def bitcast_(self, op: Op) -> Expr:
        """The same bits under another type."""
        inner = self.value(op.operands[0])
        code = inner.code if inner.literal is None else literal(inner.literal, op.operands[0].type.element.numpy_name).code
        return Expr(f"lax.bitcast_convert_type({code}, jnp.{op.result.type.element.numpy_name})", inner.dims)

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
        code = row.code_for(self.target, "float")
        if code.startswith("!"):
            raise error(code[1:], f"{op['fn']} on {self.target}", where=op.where, why=row.doc)
        operands = [self.whole(v) for v in op.operands]
        lead = [v for v in self.plan.batch if any(v in e.dims for e in operands)]
        names = [f"a{i}" for i in range(len(operands))]
        body = _chosen(code.format(*names, **{k: repr(v) for k, v in op.attrs.items()}))
        if not lead:
            text = _chosen(code.format(*(e.operand for e in operands), **{k: repr(v) for k, v in op.attrs.items()}))
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
        code = row.code_for(self.target, op.result.type.element.kind)
        if code.startswith("!"):
            raise error(code[1:], f"{op['fn']} on {self.target}", where=op.where, why=row.doc)
        axis = expr.dims.index(var)
        return Expr(_chosen(code.format(expr.operand, axis=axis, reverse=bool(op.attrs.get("reverse")))), expr.dims)

    def with_dim(self, expr: Expr, var: Var, of: TileType) -> Expr:
        """An expression that surely has a dimension counting `var`."""
        if var in expr.dims:
            return expr
        dims = (*expr.dims, var)
        if expr.literal is not None:
            expr = literal(expr.literal, of.element.numpy_name)
        return Expr(f"jnp.broadcast_to({align(expr, dims)}, {shape_of(dims, self.extent)})", dims)

    # -- reductions and contractions

    def reduce_(self, op: Op) -> Expr:
        """A reduction along one tile axis; elements past a crop count with their fill."""
        expr, element = self.value(op.operands[0]), op.operands[0].type.element
        var = self.plan.axes(op.operands[0])[op["axis"]]
        if var is None:  # one element: the reduction is that element
            if op["fn"].startswith("arg"):
                return Expr(f"jnp.zeros({shape_of(expr.dims, self.extent) if expr.dims else '()'}, jnp.int32)", expr.dims)
            return expr
        expr = self.with_dim(expr, var, op.operands[0].type)
        axis = expr.dims.index(var)
        dims = tuple(None if i == axis else d for i, d in enumerate(expr.dims))
        out = Expr(self.reduction(op["fn"], expr, axis, element), dims)
        if var.extent is not None:
            out = self._count_dropped(op["fn"], out, expr.fills.get(var), var, op)
        return out

    def reduction(self, fn: str, expr: Expr, axis: int, element: Any) -> str:
        """Source of one reduction that keeps its dimension."""
        row = REDUCTIONS[fn]
        code = row.code_for(self.target, element.kind)
        if code.startswith("!"):
            raise error(code[1:], f"{fn} on {self.target}", why=row.doc)
        return self.with_helpers(code.format(expr.code if _is_call(code) else expr.operand, axis=axis))

    def with_helpers(self, code: str) -> str:
        """Remember the table's functions that some code calls."""
        for name in HELPERS:
            if f"{name}(" in code:
                self.helpers[name] = None
        return code

    def helper_text(self) -> list[str]:
        """The functions that the source calls."""
        return [HELPERS[name][self.target].rstrip("\n") for name in self.helpers]

    def _count_dropped(self, fn: str, out: Expr, fill: Expr | None, var: Var, op: Op) -> Expr:
        assert var.size is not None and var.extent is not None
        if fill is None:
            raise KeepWhole(var)
        value = fill.literal
        dropped = var.size - var.extent
        if fn == "sum":
            if value is not None and value == 0:
                return out
            dims = union([out, fill])
            return Expr(f"{_tight(align(out, dims))} + {dropped} * {_tight(align(fill, dims))}", dims)
        if fn in ("max", "min"):
            neutral = float("-inf") if fn == "max" else float("inf")
            if value is not None and (value == neutral or value != value):
                return out
            dims = union([out, fill])
            name = f"jnp.f{fn}" if op.result.type.element.is_floating() else f"jnp.{fn}imum"
            return Expr(f"{name}({align(out, dims)}, {align(fill, dims)})", dims)
        if fn in ("argmax", "argmin") and value is not None and value == (float("-inf") if fn == "argmax" else float("inf")):
            return out
        raise KeepWhole(var)

    def dot_(self, op: Op) -> Expr:
        """A contraction, plus the accumulator."""
        product = self.contract(op, ())
        return self.plus(self.value(op.operands[2]), product, op.operands[2])

    def plus(self, acc: Expr, term: Expr, value: Value) -> Expr:
        """``acc + term``; the term alone when the accumulator is zero."""
        if acc.literal is not None and acc.literal == 0:
            return term
        dims = union([acc, term])
        return Expr(f"{_tight(align(acc, dims))} + {_tight(align(term, dims))}", dims)

    def contract(self, op: Op, also: Sequence[Var]) -> Expr:
        """The product of a dot's operands, contracted over its axis and over folded iterations."""
        a_value, b_value, _ = op.operands
        rank = len(a_value.shape)
        a, b = self.value(a_value), self.value(b_value)
        gone_a, gone_b = self.plan.axes(a_value)[rank - 1], self.plan.axes(b_value)[rank - 2]
        if gone_a is None:
            gone_a = gone_b = Var("axis", 1, self.plan.affine.fresh("unit"))
            a = Expr(f"{a.operand}[..., None]" if a.dims else f"jnp.{a_value.type.element.numpy_name}({a.code})[None]", (*a.dims, gone_a))
            b = Expr(f"{b.operand}[..., None]" if b.dims else f"jnp.{b_value.type.element.numpy_name}({b.code})[None]", (*b.dims, gone_b))
        assert gone_b is not None
        a, b = self.with_dim(a, gone_a, a_value.type), self.with_dim(b, gone_b, b_value.type)
        if gone_a.extent is not None:
            zero = any(f is not None and f.literal == 0 for f in (a.fills.get(gone_a), b.fills.get(gone_b)))
            if not zero:
                raise KeepWhole(gone_a)
        if gone_a is not gone_b:  # renamed apart: the same elements under two names
            if gone_a in b.dims:
                raise error("internal-error", "a contraction meets itself", where=op.where)
            b = Expr(b.code, tuple(gone_a if d is gone_b else d for d in b.dims))
        contracted = [gone_a]
        for var in also:
            if var in a.dims or var in b.dims:
                a, b = self.with_dim(a, var, a_value.type), self.with_dim(b, var, b_value.type)
                contracted.append(var)
        a, b = self._plain(a), self._plain(b)
        batch = [d for d in a.vars if d in b.vars and d not in contracted]
        free_a = [d for d in a.vars if d not in contracted and d not in batch]
        free_b = [d for d in b.vars if d not in contracted and d not in batch]
        element, accumulate = a_value.type.element, op.result.type.element
        wide = "int32" if element.is_int() else ("float64" if element.primitive_bitwidth == 64 else "float32")
        dims = (*batch, *free_a, *free_b)
        precision = self.dot_precision(op)
        simple = not batch and a.dims == (*free_a, *contracted) and b.dims == (*contracted, *free_b) and len(contracted) == 1
        if simple and free_a and free_b and len(a.dims) == len(b.dims) == 2:
            text = f"jnp.dot({a.code}, {b.code}, preferred_element_type=jnp.{wide}{precision})"
        else:
            at = lambda e, ds: tuple(e.dims.index(d) for d in ds)
            numbers = f"(({at(a, contracted)}, {at(b, contracted)}), ({at(a, batch)}, {at(b, batch)}))"
            text = f"lax.dot_general({a.code}, {b.code}, {numbers}, preferred_element_type=jnp.{wide}{precision})"
        if accumulate.numpy_name != wide:
            text += f".astype(jnp.{accumulate.numpy_name})"
        return Expr(text, dims)

    def dot_precision(self, op: Op) -> str:
        """An extra argument for the contraction's precision."""
        return ""

    def _plain(self, expr: Expr) -> Expr:
        """Without dimensions of size 1."""
        if None not in expr.dims:
            return expr
        index = ", ".join("0" if d is None else ":" for d in expr.dims)
        return Expr(f"{expr.operand}[{index}]", expr.vars, None, expr.fills)

    # -- memory

    def load(self, op: Op) -> None:
        """A load: the window, with `other` (or 0) where the mask does not hold."""
        access = self.plan.accesses[op]
        element = op.result.type.element
        other = self.value(op.operands[-1]) if op["has_other"] else literal(_zero(element))
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

    def store(self, op: Op) -> None:
        """A store."""
        access = self.plan.accesses[op]
        if any(c.form is not None and c.form.is_const for c in access.mask):
            return  # a condition that never holds
        self.write(access, self.value(op.operands[1]), self.mask(access.mask))

    # -- control flow

    def if_(self, op: Op) -> None:
        """Both branches, one after the other: memory effects carry their conditions, results are selected."""
        for region in op.regions:
            self.block(region)
        live = [(i, r) for i, r in enumerate(op.results) if r in self.plan.demand.live]
        if not live:
            return
        conditions = self.plan.walker.conjuncts(op.operands[0])
        mask = self.mask(conditions)
        for i, result in live:
            if result in self.plan.demand.indexed:
                continue
            yes, no = (self.value(region.yields[i]) for region in op.regions)
            if mask is None or mask.code == "True":
                self.env[result] = yes
            else:
                name = "int64" if result.type.is_pointer else result.type.element.numpy_name
                picked = self.masked(Expr(mask.code, mask.dims), yes, no, name)
                self.env[result] = self.assign(result.name or "picked", picked, op)

    def for_(self, op: Op) -> None:
        """A folded loop inline, any other as a loop."""
        fold = self.plan.folds.get(op)
        if fold is None:
            self.serial(op)
            return
        adders = {adder: (arg, fn) for arg, (fn, adder) in fold.sums.items()}
        body = op.regions[0]
        for inner in body.ops:
            if inner not in adders:
                self.op(inner)
        k = fold.loop.var
        for i, arg in enumerate(body.args[1:]):
            if arg not in fold.sums or arg not in self.plan.demand.live:
                continue
            fn, adder = fold.sums[arg]
            init = self.value(op.operands[3 + i])
            total = self._accumulated(adder, arg, fn, k)
            result = op.results[i]
            if fn == "sum":
                expr = self.plus(init, total, op.operands[3 + i])
            else:
                expr = self.apply(adder["fn"], [init, total], result.type.element, result.type, op)
            self.env[result] = self.assign(result.name or arg.name or "acc", expr, adder)

    def _accumulated(self, adder: Op, arg: Value, fn: str, k: Var, bind: bool = True) -> Expr:
        top = self.plan.top(k)
        merged = top is not k
        if adder.kind == "dot":
            one = any(k in self.plan.deps(v) for v in adder.operands[:2])
            term = self.contract(adder, () if merged else (k,))
            if not one:
                term = Expr(f"{term.operand} * {k.size}", term.dims)
            return self.assign("product", term, adder) if bind else term
        term_value = next(v for v in adder.operands if v is not arg)
        term = self.value(term_value)
        if merged:
            return term
        if k in term.dims:
            axis = term.dims.index(k)
            dims = tuple(None if i == axis else d for i, d in enumerate(term.dims))
            return Expr(self.reduction(fn, term, axis, term_value.type.element), dims)
        return Expr(f"{term.operand} * {k.size}", term.dims) if fn == "sum" else term

    def carried(self, op: Op, args: Sequence[Value], inits: Sequence[Value], body: Block) -> list[tuple[int, Value, Value]]:
        """The carried values that are data: (position, block argument, initial value)."""
        loop = self.plan.affine.loops.get(op)
        out = []
        for i, (arg, init) in enumerate(zip(args, inits)):
            if arg not in self.plan.demand.live or arg in self.plan.demand.indexed:
                continue
            if loop is not None and arg in loop.carried:
                continue
            out.append((i, arg, init))
        return out

    def serial(self, op: Op) -> None:
        """A loop that stays one: `fori_loop` over the largest trip count, programs that are done keep their values."""
        loop = self.plan.affine.loops[op]
        body = op.regions[0]
        data = self.carried(op, body.args[1:], op.operands[3:], body)
        counter = self.fresh(loop.var.name)
        if loop.trips is not None:
            trips: Expr = literal(int(loop.trips.max()))
        else:
            trips = self._dynamic_trips(op)
        bounds = None if loop.uniform else self._bounds(op)

        def enter() -> None:
            self.counters[loop.var] = counter
            index = body.args[0]
            if loop.step is None or loop.lo.opaques:
                if index in self.plan.demand.live and index not in self.plan.demand.indexed:
                    assert bounds is not None
                    dims = union([bounds[0], bounds[2]])
                    text = f"{align(bounds[0], dims)} + {counter}.astype(jnp.{index.type.element.numpy_name}) * {align(bounds[2], dims)}"
                    self.env[index] = self.assign(index.name or "i", Expr(text, dims), op)
            if bounds is not None:
                self.active[op] = self._still_running(op, counter, bounds)

        self._loop(op, f"lax.fori_loop(0, {trips.code}, {{step}}, {{init}})", [counter], data, body, op.results, enter)

    def _bounds(self, op: Op) -> tuple[Expr, Expr, Expr]:
        lo, hi, step = (self.value(v) for v in op.operands[:3])
        return lo, hi, step

    def _still_running(self, op: Op, counter: str, bounds: tuple[Expr, Expr, Expr]) -> Expr:
        lo, hi, step = bounds
        dims = union([lo, hi, step])
        name = op.operands[1].type.element.numpy_name
        at = f"{_tight(align(lo, dims))} + {counter}.astype(jnp.{name}) * {_tight(align(step, dims))}"
        constant = self.plan.affine.loops[op].step
        if constant is not None:
            text = f"{at} {'<' if constant > 0 else '>'} {_tight(align(hi, dims))}"
        else:
            text = f"jnp.where({align(step, dims)} > 0, {at} < {_tight(align(hi, dims))}, {at} > {_tight(align(hi, dims))})"
        return self.assign("running", Expr(text, dims), op)

    def _dynamic_trips(self, op: Op) -> Expr:
        lo, hi, step = self._bounds(op)
        dims = union([lo, hi, step])
        gap = f"({_tight(align(hi, dims))} - {_tight(align(lo, dims))})"
        return self.assign("trips", Expr(f"jnp.max(jnp.maximum(0, -(-{gap} // {_tight(align(step, dims))})))"), op)

    def while_(self, op: Op) -> None:
        """A `while`: runs until every program is done; programs that are done keep their values."""
        cond, body = op.regions
        data = self.carried(op, body.args, op.operands, body)
        if not data:
            raise error("not-translated", "a while loop whose condition never changes", where=op.where)

        def test() -> Expr:
            for arg, twin in zip(body.args, cond.args):
                if arg in self.env:
                    self.env[twin] = self.env[arg]
            self.block(cond)
            return self.value(cond.yields[0])

        def enter() -> None:
            self.active[op] = self.assign("running", test(), op)

        self._loop(op, "lax.while_loop({test}, {step}, {init})", [], data, body, op.results, enter, test)

    def _loop(
        self,
        op: Op,
        call: str,
        leading: list[str],
        data: list[tuple[int, Value, Value]],
        body: Block,
        results: Sequence[Value],
        enter: Callable[[], None],
        test: Callable[[], Expr] | None = None,
    ) -> None:
        """Write a loop as a nested function; the carry's dimensions are found by writing the body twice."""
        inits = {arg: self.value(init) for _, arg, init in data}
        dims = {arg: inits[arg].dims for _, arg, _ in data}
        step = self.fresh(f"{(body.args[0].name if body.args else '') or 'while'}_step")
        while True:
            saved = self._snapshot()
            self.put(f"def {step}({', '.join([*leading, 'carry'])}):", op)
            self.indent += 1
            names = self._unpack(data, dims)
            enter()
            self.block(body)
            finals: list[Expr] = []
            for i, arg, _ in data:
                new, old = self.value(body.yields[i]), Expr(names[arg], dims[arg])
                if op in self.active:
                    new = self.masked(self.active[op], new, old, self._dtype_name(arg))
                finals.append(new)
            wanted = {arg: self._carry_dims(dims[arg], final.dims) for (_, arg, _), final in zip(data, finals)}
            if wanted == dims:
                break
            self._restore(saved)
            dims = wanted
        texts = [self._shaped(final, dims[arg], arg) for (_, arg, _), final in zip(data, finals)]
        self.put(f"return {_tuple(texts)}")
        self.indent -= 1
        self._leave(op, body)
        if test is not None:
            more = self.fresh("running")
            self.put(f"def {more}(carry):", op)
            self.indent += 1
            self._unpack(data, dims)
            self.put(f"return jnp.any({test().code})")
            self.indent -= 1
            self._leave(op, op.regions[0])
            call = call.replace("{test}", more)
        start = _tuple([self._shaped(inits[arg], dims[arg], arg) for _, arg, _ in data])
        call = call.replace("{step}", step).replace("{init}", start)
        outs = [self.fresh(results[i].name or arg.name or "carried") for i, arg, _ in data]
        self.put(f"{_tuple(outs)} = {call}" if outs else call, op)
        for name, (i, arg, _) in zip(outs, data):
            self.env[results[i]] = Expr(name, dims[arg])

    def _unpack(self, data: list[tuple[int, Value, Value]], dims: dict[Value, tuple[Var | None, ...]]) -> dict[Value, str]:
        names = {arg: self.fresh(arg.name or "carried") for _, arg, _ in data}
        if names:
            self.put(f"{_tuple(list(names.values()))} = carry")
        for arg, name in names.items():
            self.env[arg] = Expr(name, dims[arg])
        return names

    def _snapshot(self) -> tuple[Any, ...]:
        return (
            len(self.lines), dict(self.env), set(self.names), self.indent, dict(self.lowered), dict(self.counters),
            dict(self.active), self._line,
        )  # fmt: skip

    def _restore(self, saved: tuple[Any, ...]) -> None:
        n, self.env, self.names, self.indent, self.lowered, self.counters, self.active, self._line = saved
        del self.lines[n:]

    def _leave(self, op: Op, block: Block) -> None:
        """Names bound inside a nested function are gone."""
        self.active.pop(op, None)
        self.lowered = {k: v for k, v in self.lowered.items() if k[-1] <= self.indent}
        loop = self.plan.affine.loops.get(op)
        if loop is not None:
            self.counters.pop(loop.var, None)

    def _carry_dims(self, old: tuple[Var | None, ...], new: tuple[Var | None, ...]) -> tuple[Var | None, ...]:
        if set(d for d in new if d) <= set(d for d in old if d) and old:
            return old
        if not old:
            return new
        return union([Expr("", old), Expr("", new)])

    def _shaped(self, expr: Expr, dims: tuple[Var | None, ...], value: Value) -> str:
        """An expression in exactly these dimensions and the value's dtype."""
        name = self._dtype_name(value)
        if expr.literal is not None and not expr.dims:
            if not dims:
                return literal(expr.literal, name).code
            return f"jnp.full({shape_of(dims, self.extent)}, {expr.code}, jnp.{name})"
        if expr.dims == dims:
            return expr.code
        return f"jnp.broadcast_to({align(expr, dims)}, {shape_of(dims, self.extent)})"

    def _dtype_name(self, value: Value) -> str:
        return "int64" if value.type.is_pointer else value.type.element.numpy_name


def cast_code(inner: Expr, source: Any, target: Any) -> str:
    """Source of a conversion between two element types."""
    name = target.numpy_name
    if inner.literal is not None and not inner.dims:
        return literal(_cast_number(inner.literal, target), name).code
    if source == target:
        return inner.code
    if target.is_bool():
        return f"{inner.operand} != 0"
    if source.is_floating() and target.is_int() and target.primitive_bitwidth < 32:
        return f"{inner.operand}.astype(jnp.int32).astype(jnp.{name})"
    return f"{inner.operand}.astype(jnp.{name})"


def _cast_number(value: Any, target: Any) -> Any:
    if target.is_bool():
        return bool(value)
    if target.is_floating():
        return float(value)
    if isinstance(value, float):
        value = int(value) if abs(value) < 2**63 else 0
    bits = target.primitive_bitwidth
    low = int(value) & ((1 << bits) - 1)
    return low - (1 << bits) if target.kind == "int" and low >> (bits - 1) else low


def _zero(element: Any) -> Any:
    return False if element.is_bool() else (0.0 if element.is_floating() else 0)


def _tight(code: str) -> str:
    return Expr(code).operand


def _tuple(parts: list[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _is_call(code: str) -> bool:
    """Whether an operand stands alone between commas in a row's code, so that it needs no parentheses."""
    return "({0}," in code and code.count("{0}") == 1


def _chosen(code: str) -> str:
    """``(a if True else b)`` is ``a``: rows may have a branch on an attribute."""
    match = re.fullmatch(r"\((.*) if (True|False) else (.*)\)", code)
    return code if match is None else match[1] if match[2] == "True" else match[3]


def _where(op: Op | None) -> Any:
    return op.where if op is not None else None


__all__ = ["Emitter", "KeepWhole", "Opaque", "closed"]
