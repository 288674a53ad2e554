"""What every statement needs: names, lines, the expression of a value, index arithmetic and masks.

Input: a `Schedule`. Output: `Expr`s and lines of source. Law: a name is bound once; a value that is index arithmetic or
a literal is written where it is used; a mask that is always true is no mask.
"""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Sequence
from typing import Any

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.emit.expr import Expr, align, literal, tight, union
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Op, Value
from frontend_triton_compat.language.table import HELPERS, Row
from frontend_triton_compat.schedule import Schedule, settle
from frontend_triton_compat.types import INT64, dtype

TRANSPARENT = ("splat", "broadcast", "expand_dims", "trans")
_RESERVED = {"jax", "jnp", "lax", "pl", "pltpu", "None", "min", "max", "range", "step", "carry"}


class KeepWhole(Exception):
    """A variable was cropped, but an operation needs its dropped elements: schedule again without the crop."""

    def __init__(self, var: Var):
        self.var = var
        super().__init__(var.name)


class Base:
    """Names, lines, values and masks of the source that is being written."""

    target = "cpu"
    #: largest integer dtype of index arithmetic on the target
    wide_int = "int64"

    def __init__(self, plan: Schedule):
        self.plan = plan
        self.lines: list[str] = []
        self.indent = 1
        self.env: dict[Value, Expr] = {}
        self.names: set[str] = set(_RESERVED) | set(HELPERS) | {p.name for p in plan.kernel.params}
        self.helpers: dict[str, None] = {}
        self.counters: dict[Var, str] = {}  # serial loop variable -> its name in the source
        self.active: dict[Op, Expr] = {}  # loop -> which programs still run it
        self.lowered: dict[tuple[Any, ...], Expr] = {}
        self._line = ("", 0)

    # -- hooks of a target

    def extent(self, var: Var) -> int:
        """Number of elements that a dimension counting `var` has in the source."""
        if var.count is None:
            raise error("internal-error", f"variable {var.name} has no extent")
        return var.count

    def iota(self, var: Var, dtype_name: str) -> Expr:
        """The counter of a variable along its own dimension."""
        return Expr(f"jnp.arange({self.extent(var)}, dtype=jnp.{dtype_name})", (var,))

    def face(self, variables: Sequence[Var]) -> Any:
        """What else tells the index arithmetic of one place from another's."""
        return None

    def read(self, access: Access) -> Expr:
        """The elements of an access, masked ones undefined but harmless."""
        raise NotImplementedError

    def write(self, access: Access, value: Expr, mask: Expr | None) -> None:
        """Store a value where the mask holds."""
        raise NotImplementedError

    def refuse(self, op: Op) -> Diagnostic:
        """The diagnostic of an operation that the target has no meaning for."""
        return error("not-translated", f"{op.kind} is not translated for {self.target}", where=op.where)

    def element_of(self, param: str) -> dtype:
        """The type of an element of an argument that is touched."""
        return next(a for a in self.plan.accesses.values() if a.param == param).element

    # -- text

    def origin(self) -> str:
        """File and line that the kernel is defined at."""
        where = self.plan.kernel.where
        return f"{where.file.rsplit('/', 1)[-1]}:{where.line}"

    def entry_name(self) -> str:
        """The kernel's name, unless a function of the table has it."""
        name = self.plan.kernel.name
        return f"{name}_all" if name in HELPERS or name in _RESERVED else name

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
        if op is not None and (op.where.file, op.where.line) != self._line:
            self._line = (op.where.file, op.where.line)
            here = op.where.file == self.plan.kernel.where.file
            note = f"  # {'line ' if here else op.where.file.rsplit('/', 1)[-1] + ':'}{op.where.line}"
        self.lines.append("    " * self.indent + line + note)

    def assign(self, hint: str, expr: Expr, op: Op | None = None) -> Expr:
        """Bind an expression to a name and return the name as an expression; a number stays a number."""
        if expr.literal is not None and not expr.dims:
            return expr
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
        if op is not None and op.kind in TRANSPARENT:
            return self._seen_through(op, value)
        if value.type.is_pointer or (value.type.element.is_int() and not value.type.element.is_bool()):
            form = self.plan.form(self.plan.affine.form(value))
            if not any(o.value is value for o in form.opaques):
                return self.form(form, INT64 if value.type.is_pointer else value.type.element)
        if op is not None and op.kind == "arg" and not value.type.is_pointer:
            raise error("internal-error", f"argument {op['name']} was not read")
        raise error("internal-error", f"value {value.name or value} is used before it is computed", where=line_of(op))

    def _seen_through(self, op: Op, value: Value) -> Expr:
        return self.under_new_names(op, self.value(op.operands[0]))

    def under_new_names(self, op: Op, expr: Expr) -> Expr:
        """An operand, or what was made of it, with its dimensions called what the operation calls them."""
        if op not in self.plan.dims.renames or not expr.dims:
            return expr
        top, var = self.plan.top, self.plan.affine.axis_var
        table = {top(var(a)): top(var(b)) for a, b in self.plan.dims.renaming(op).items()}
        return Expr(expr.code, tuple(table.get(d, d) if d is not None else None for d in expr.dims))

    def form(self, form: Form, element: Any = None) -> Expr:
        """Index arithmetic as source."""
        name = self._index_dtype(form, element)
        key = (form, name, self.face(form.vars), self.indent)
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
            code = tight(align(part, dims))
            term = code if abs(c) == 1 else f"{code} * {abs(c)}"
            sign = "-" if c < 0 else "+"
            text = f"{text} {sign} {term}" if text else (f"-{term}" if c < 0 else term)
        if form.const:
            text += f" {'-' if form.const < 0 else '+'} {abs(form.const)}"
        out = Expr(text, dims)
        if len(parts) > 1 or form.const or parts[0][0] != 1:
            out = self.lowered[key] = self.assign("index", out)
        return out

    def number_dtype(self, value: Value) -> str:
        """The dtype that an integer has in the source."""
        return self._index_dtype(self.plan.form(self.plan.affine.form(value)), value.type.element)

    def _index_dtype(self, form: Form, element: Any) -> str:
        if isinstance(element, dtype):
            return element.numpy_name
        bounds = form.range()
        wide = bounds is None and any(
            isinstance(o.value.type.element, dtype) and o.value.type.element.primitive_bitwidth == 64
            for o in form.opaques
        )
        wide = wide or any(o.value.type.is_pointer for o in form.opaques)
        if bounds is not None and (bounds[0] < -(2**31) or bounds[1] >= 2**31):
            wide = True
        return self.wide_int if wide else "int32"

    def _counter(self, var: Var, dtype_name: str) -> Expr:
        if var in self.counters:
            return Expr(f"{self.counters[var]}.astype(jnp.{dtype_name})")
        key = (var, dtype_name, self.face((var,)), self.indent)
        if key not in self.lowered and var in self.plan.parts:
            whole, size = self.plan.parts[var]
            at = self.form(self.plan.form(Form(0, {whole: 1})))
            over = f">> {size.bit_length() - 1}" if size & (size - 1) == 0 else f"// {size}"
            self.lowered[key] = self.assign(var.name, Expr(f"({at.operand} {over}).astype(jnp.{dtype_name})", at.dims))
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
        for p in parts:
            for var, fill in p.fills.items():
                if fill.literal is False:
                    fills[var] = fill
        if any(p.literal is False for p in parts):
            return Expr("False", (), False, fills)
        parts = [p for p in parts if p.literal is not True] or [literal(True)]
        dims = union(parts)
        parts = [self.turned(p, dims) for p in parts]
        text = " & ".join(tight(align(p, dims)) for p in parts) if len(parts) > 1 else align(parts[0], dims)
        return Expr(text, dims, parts[0].literal if len(parts) == 1 else None, fills)

    def turned(self, mask: Expr, dims: Sequence[Var | None]) -> Expr:
        """A condition that is about to be aligned with these dimensions, in the way that the target can."""
        return mask

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
            if form.is_const:
                return literal(form.const < 0)
            positive = Form(0, {s: k for s, k in form.terms.items() if k > 0})
            negative = Form(form.const, {s: k for s, k in form.terms.items() if k < 0}).scale(-1)
            if not positive.terms:
                right = self.form(negative)
                return Expr(f"0 < {right.operand}", right.dims)
            left, right = self.form(positive), self.form(negative)
            dims = union([left, right])
            return Expr(f"{tight(align(left, dims))} < {tight(align(right, dims))}", dims)
        if c.loop is not None:
            return self.active[c.loop]
        assert c.value is not None
        inner = self.value(c.value)
        if c.negate and inner.literal is not None:
            return literal(not inner.literal)  # ~True is a number in Python
        return Expr(f"~{inner.operand}", inner.dims) if c.negate else inner

    def masked(self, mask: Expr | None, value: Expr, other: Expr, dtype_name: str) -> Expr:
        """``where(mask, value, other)``; the value itself when there is no mask left."""
        if mask is None or mask.code == "True":
            return value
        if value.literal is not None and other.literal is not None:
            value = literal(value.literal, dtype_name)
        dims = union([mask, value, other])
        return Expr(f"jnp.where({align(mask, dims)}, {align(value, dims)}, {align(other, dims)})", dims)

    # -- the op table

    def row_code(self, row: Row, kind: str, op: Op | None) -> str:
        """The expression of a row for this target.

        Raises:
            Diagnostic: the row says that the target refuses the operation.
        """
        code = row.code_for(self.target, kind)
        if code.startswith("!"):
            raise error(code[1:], f"{row.name} on {self.target}", where=line_of(op), why=row.doc)
        return code

    def with_helpers(self, code: str) -> str:
        """Remember the table's functions that some code calls."""
        for name in helper_names().findall(code):
            if name not in self.helpers and self.target in HELPERS[name]:  # else another function's local variable
                self.helpers[name] = None
                self.with_helpers(self._helper(name).partition("\n    ")[2])
        return code

    def helper_text(self) -> list[str]:
        """The functions that the source calls."""
        return [self._helper(name).rstrip("\n") for name in self.helpers]

    def _helper(self, name: str) -> str:
        return HELPERS[name].get(self.target) or HELPERS[name].get("tpu") or HELPERS[name]["cpu"]


@functools.cache
def helper_names() -> re.Pattern[str]:
    """Matches a helper's name that is no attribute."""
    return re.compile(rf"(?<![\w.])({'|'.join(HELPERS)})\b")


def line_of(op: Op | None) -> Any:
    """The user's line of an operation."""
    return op.where if op is not None else None


def zero_of(element: Any) -> Any:
    """What a masked-off lane without `other` reads."""
    return False if element.is_bool() else (0.0 if element.is_floating() else 0)
