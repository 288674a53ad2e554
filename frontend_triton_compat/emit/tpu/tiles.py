"""Operations on whole tiles in the forms that Mosaic has: calls, combinations of the kernel author's, selections.

Input: `call`, `reduce_by`, `scan_by`, `each` and `where`. Output: statements. Law: programs are leading dimensions of a
tile, so an axis moves up by their number; what is too long for its form is refused by name, before the compiler sees
it; 16-bit floats are chosen between as fp32, because a mask of 32-bit numbers has another layout than theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.diagnostics import error
from frontend_triton_compat.emit.base import TRANSPARENT
from frontend_triton_compat.emit.expr import Expr, align, chosen, shape_of, tight, union
from frontend_triton_compat.emit.program import Emitter
from frontend_triton_compat.emit.refusals import combine_refused, no_form
from frontend_triton_compat.emit.tpu.nans import plain_extremes
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.holding import NARROWED, float_range
from frontend_triton_compat.ir import Block, Op, Value, walk
from frontend_triton_compat.language.table import ROWS, Row
from frontend_triton_compat.schedule import Schedule
from frontend_triton_compat.types import FP32, INT32, TileType

#: The longest axis an operation is written out for, and what to do beyond it.
LONGEST = {
    "sort": (1024, "sort blocks of 1024, or call torch.sort outside of the kernel"),
    "topk": (1024, "take the k largest of blocks of 1024 and then of those, or call torch.topk outside of the kernel"),
    "bitonic_merge": (4096, "merge shorter runs, or call torch.sort outside of the kernel"),
    "flip": (8192, "load the elements in reverse order instead: offsets n - 1 - tl.arange(0, n)"),
    "gather": (256, "write it as a product with one-hot rows: tl.dot((index[:, None] == tl.arange(0, n)), source)"),
    "histogram": (256, "count fewer bins a launch, or call torch.bincount outside of the kernel"),
}
#: Most products that one over two dimensions is written as.
_MOST_PRODUCTS = 32
#: Operations whose network pairs elements at distances that are powers of two.
_PAIRED = ("sort", "topk", "bitonic_merge", "flip")


#: Maxima and minima of floats that carry NaN, for where leaving it out changes nothing (`nans.py`).
_CARRIES_NAN = {
    "max": "jnp.max({0}, axis={axis}, keepdims=True)",
    "min": "jnp.min({0}, axis={axis}, keepdims=True)",
    "maximum": "jnp.maximum({0}, {1})",
    "minimum": "jnp.minimum({0}, {1})",
}


class TileForms(Emitter):
    """Statements of operations on whole tiles."""

    def __init__(self, plan: Schedule):
        super().__init__(plan)
        self.plain = plain_extremes(plan)

    def call(self, op: Op) -> None:
        """An operation that moves elements about, on the tiles of all programs of a step at once."""
        row = ROWS[op["fn"]]
        self._check_length(op)
        operands = [self.whole(v) for v in op.operands]
        lead = [v for v in self.plan.batch if any(v in e.dims for e in operands)]
        parts = []
        for e, v in zip(operands, op.operands):
            dims = (*lead, *self.plan.axes(v))
            code = align(e, dims)
            if e.dims != dims:
                code = f"jnp.broadcast_to({code}, {shape_of(dims, self.extent)})"
            parts.append(self.assign(v.name or "tile", Expr(code, dims), op).code)
        attrs = {k: repr(v + len(lead) if k == "axis" and v >= 0 else v) for k, v in op.attrs.items()}
        code = self.with_helpers(self.row_code(row, op.operands[0].type.element.kind, op))
        text = chosen(code.format(*parts, **attrs))
        bound = [self.fresh(r.name or op["fn"]) for r in op.results]
        self.put(f"{', '.join(bound)} = {text}", op)
        for name, result in zip(bound, op.results):
            self.env[result] = Expr(name, (*lead, *self.plan.axes(result)))

    def product(self, a: Expr, b: Expr, contracted: Sequence[Var], batch: Sequence[Var], how: str) -> str:
        """A product; a core contracts one dimension, so that one over several is a sum of products."""
        if len(contracted) == 1 or self.extent(contracted[-1]) > _MOST_PRODUCTS:
            return super().product(a, b, contracted, batch, how)
        *rest, var = contracted
        at = self.fresh("part")
        a, b = (
            Expr(
                f"{e.operand}[{', '.join(at if d is var else ':' for d in e.dims[: e.dims.index(var) + 1])}]",
                tuple(d for d in e.dims if d is not var),
            )
            for e in (a, b)
        )
        return f"sum({self.product(a, b, rest, batch, how)} for {at} in range({self.extent(var)}))"

    def reduce_(self, op: Op) -> Expr:
        """A reduction; an extreme element and its index, where both are asked for, by one pair of reductions."""
        if op.result in self.env:
            return self.env[op.result]
        whole = self._whole_numbers(op)
        if whole is not None:
            axis = whole.dims.index(self.plan.axes(op.operands[0])[op["axis"]])
            text = f"jnp.sum({whole.code}, axis={axis}, keepdims=True).astype(jnp.int32)"
            return Expr(text, tuple(None if i == axis else d for i, d in enumerate(whole.dims)))
        other, value = self._index_of(op), op.operands[0]
        var, expr = self.plan.axes(value)[op["axis"]], self.value(value)
        if other is None or var is None or all(d is not var for d in expr.dims):
            return super().reduce_(op)
        edge, fill = float("-inf") if op["fn"] == "max_nan" else float("inf"), expr.fills.get(var)
        if var.extent is not None and (fill is None or fill.literal != edge):
            return super().reduce_(op)
        axis = expr.dims.index(var)
        dims = tuple(None if i == axis else d for i, d in enumerate(expr.dims))
        helper = "largest_found" if op["fn"] == "max_nan" else "smallest_found"
        names = [self.fresh(r.name or fn) for r, fn in ((op.result, op["fn"][:3]), (other.result, "at"))]
        self.put(f"{', '.join(names)} = {self.with_helpers(f'{helper}({expr.code}, {axis})')}", op)
        self.env[other.result] = self.under_new_names(other, Expr(names[1], dims))
        return self.under_new_names(op, Expr(names[0], dims))

    def _index_of(self, op: Op) -> Op | None:
        """The reduction that finds where the extreme element is that this one finds."""
        if op["fn"] not in ("max_nan", "min_nan") or op.operands[0].shape[op["axis"]] >= 1 << 22:
            return None
        arg = f"arg{op['fn'][:3]}"
        for user in self.plan.demand.users.get(op.operands[0], []):
            same = user.kind == "reduce" and user["fn"] == arg and user["axis"] == op["axis"]
            same = same and self.plan.walker.path.get(user) == self.plan.walker.path.get(op)
            if same and user.result in self.plan.demand.live and user.result not in self.env:
                return user
        return None

    def row_code(self, row: Row, kind: str, op: Op | None) -> str:
        """The expression of a row, or the reason why there is none."""
        if op in self.plain and row.name in _CARRIES_NAN:
            return _CARRIES_NAN[row.name]
        if op is not None and op.kind == "reduce" and op["fn"] == row.name:
            known = self._of_known_range(op)
            if known:
                return known
        code = row.code_for("tpu", kind)
        if code == "!tpu-no-form":
            raise no_form(op, row, "tpu")
        return super().row_code(row, kind, op)

    def _of_known_range(self, op: Op) -> str:
        """A cheaper reduction of numbers whose range is known; empty where there is none."""
        element, n = op.operands[0].type.element, op.operands[0].shape[op["axis"]]
        least, most = float_range(op.operands[0])
        if op["fn"] == "sum" and element == INT32 and max(-least, most) * n < 1 << 24:
            return "small_sum({0}, {axis})"
        if op["fn"] == "max" and element == FP32 and _above_minus_infinity(op.operands[0]):
            return "bounded_max({0}, {axis})"
        return ""

    def _whole_numbers(self, op: Op) -> Expr | None:
        """The floats that integers were converted from, where their sum is the integers' sum, exactly."""
        if not self._of_known_range(op).startswith("small_sum"):
            return None
        value = op.operands[0]
        while value.producer is not None and value.producer.kind == "cast" and value.type.element == INT32:
            value = value.producer.operands[0]
        var = self.plan.axes(op.operands[0])[op["axis"]]
        if value.type.element != FP32 or not _integral(value) or var is None or var.extent is not None:
            return None
        found = self.value(value)
        return found if var in found.dims and found.literal is None else None

    def _check_length(self, op: Op) -> None:
        name = op["fn"].removesuffix("_masked")
        if name not in LONGEST:
            return
        most, instead = LONGEST[name]
        axis = op.attrs.get("axis", -1)
        n = op.attrs.get("num_bins") or op.operands[0].shape[axis]
        if n <= most and (name not in _PAIRED or n & (n - 1) == 0):
            return
        raise error(
            "tpu-tile-too-long",
            f"{name} of {n} {'bins' if name == 'histogram' else 'elements'} on a TPU",
            where=op.where,
            why="a TPU core does not sort, pick by index or count; what it is made of instead takes "
            + (f"at most {most}" if n > most else "a power of two"),
            do=instead,
        )

    def reduce_by(self, op: Op) -> None:
        """A reduction by the author's function."""
        self._straight(op)
        super().reduce_by(op)

    def scan_by(self, op: Op) -> None:
        """A scan by the author's function."""
        self._straight(op)
        super().scan_by(op)

    def each(self, op: Op) -> None:
        """The author's function of every element."""
        self._straight(op)
        super().each(op)

    def _straight(self, op: Op) -> None:
        """Refuse a function that loops: each element would loop for itself."""
        body: Block = op["body"]
        if any(inner.kind in ("for", "while") for inner in walk(body)):
            raise combine_refused(op)

    # -- index arithmetic that is data

    def _index_dtype(self, form: Form, element: Any) -> str:
        """32 bits, where they hold it."""
        name = super()._index_dtype(form, element)
        if name not in ("int64", "uint64"):
            return name
        bounds = form.range()
        if bounds is not None and not -(2**31) <= bounds[0] <= bounds[1] < 2**31:
            raise error(
                "tpu-dtype",
                f"index arithmetic on a TPU that reaches {bounds[1] if bounds[1] >= 2**31 else bounds[0]}",
                where=self.plan.kernel.where,
                why="a TPU core has no 64-bit registers",
                do="split the number into a high and a low part, or compute it outside of the kernel with torch",
            )
        return "int32" if name == "int64" else "uint32"

    # -- selections

    def apply(self, fn: str, operands: list[Expr], element: Any, result: TileType, op: Op | None = None) -> Expr:
        """A row of the table; a choice between 16-bit floats is made in fp32, 64-bit indices are held in 32 bits."""
        element = NARROWED.get(element, element)
        if fn == "where" or (hasattr(element, "is_bool") and element.is_bool()):
            dims = union(operands)
            operands = [self.turned(e, dims) if i == 0 or fn != "where" else e for i, e in enumerate(operands)]
        if fn in ("maximum", "minimum") and op not in self.plain:
            order = ">" if fn == "maximum" else "<"
            number = next((e for e in operands if e.literal is not None and e.literal == e.literal), None)
            other = next((e for e in operands if e.literal is None), None)
            if number is not None and other is not None and op is not None:  # NaN compares as false: the number stays
                own = (
                    op.kind == "map" and op["fn"] == fn
                )  # a loop's extreme comes with the loop, whose operands are bounds
                ranged = own and float_range(op.operands[operands.index(other)]) != (float("-inf"), float("inf"))
                if ranged:  # no NaN here
                    code = super().row_code(ROWS[f"{fn}_nan"], element.kind, op)
                    text = code.format(*(e.code for e in operands))
                    return Expr(text, other.dims, None, self._fills(fn, operands, element, result))
                text = f"jnp.where({other.operand} {order} {number.code}, {other.code}, {number.code})"
                return Expr(text, other.dims, None, self._fills(fn, operands, element, result))
        out = super().apply(fn, operands, element, result, op)
        if fn == "where" and out.code.startswith("jnp.where(") and _narrow(element):
            wide = [operands[0], *(self._widened(e) for e in operands[1:])]
            picked = super().apply(fn, wide, element, result, op)
            return Expr(f"{picked.operand}.astype(jnp.{element.numpy_name})", picked.dims, None, out.fills)
        return out

    def masked(self, mask: Expr | None, value: Expr, other: Expr, dtype_name: str) -> Expr:
        """``where(mask, value, other)``; of 16-bit floats in fp32, of one bit by logic."""
        if mask is None or mask.code == "True":
            return value
        mask = self.turned(mask, union([mask, value, other]))
        if dtype_name == "bfloat16":
            picked = super().masked(mask, self._widened(value), self._widened(other), "float32")
            return Expr(f"{picked.operand}.astype(jnp.bfloat16)", picked.dims)
        if dtype_name == "bool_":
            dims = union([mask, value, other])
            on, yes, no = (tight(align(e, dims)) for e in (mask, value, other))
            if other.literal is False:
                return Expr(f"{on} & {yes}", dims)
            return Expr(f"({on} & {yes}) | (~{on} & {no})", dims)
        return super().masked(mask, value, other, dtype_name)

    def turned(self, mask: Expr, dims: Sequence[Var | None]) -> Expr:
        """Bits can't leave the lanes: a tile of them that needs another last dimension is moved as numbers."""
        if mask.literal is not None or not mask.vars or not align(mask, dims).endswith("None]"):
            return mask
        moved = align(Expr(f"{mask.operand}.astype(jnp.int32)", mask.dims), dims)
        return Expr(f"({moved} != 0)", tuple(dims), None, mask.fills)

    def _widened(self, expr: Expr) -> Expr:
        if expr.literal is not None:
            return expr
        return Expr(f"{expr.operand}.astype(jnp.float32)", expr.dims)


def _above_minus_infinity(value: Value) -> bool:
    """Whether a float is a number above -infinity, or NaN."""
    op = value.producer
    while op is not None and op.kind in TRANSPARENT:
        op = op.operands[0].producer
    if op is None or op.kind not in ("map", "const"):
        return False
    if op.kind == "const":
        return op["value"] != float("-inf")
    if op["fn"] == "where":
        return all(_above_minus_infinity(v) for v in op.operands[1:])
    return op["fn"] in ("abs", "exp", "exp2", "sigmoid") or float_range(value)[0] > float("-inf")


def _integral(value: Value) -> bool:
    """Whether a float was rounded to a whole number last."""
    op = value.producer
    if op is None or op.kind != "map":
        return False
    if op["fn"] == "where":
        return all(_integral(v) for v in op.operands[1:])
    return op["fn"] in ("floor", "ceil", "rint", "trunc")


def _narrow(element: Any) -> bool:
    return element.kind == "float" and element.primitive_bitwidth == 16
