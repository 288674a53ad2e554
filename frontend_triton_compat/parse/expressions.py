"""Expressions: Python evaluates what is not a tile, tiles append operations.

Input: an expression node. Output: a Python object or a handle. Law: the order of evaluation is Python's; every
operation is blamed on the node that asked for it.
"""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable
from typing import Any

from frontend_triton_compat.ir import Block
from frontend_triton_compat.language import operators
from frontend_triton_compat.language.aggregate import type_of
from frontend_triton_compat.language.constexpr import unwrap
from frontend_triton_compat.language.tensor import tensor
from frontend_triton_compat.parse.foreign import ours
from frontend_triton_compat.parse.frame import Frame
from frontend_triton_compat.parse.structure import flatten

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}
_IN_PLACE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.iadd,
    ast.Sub: operator.isub,
    ast.Mult: operator.imul,
    ast.BitOr: operator.ior,
    ast.BitAnd: operator.iand,
    ast.BitXor: operator.ixor,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def is_run_time(value: Any) -> bool:
    """Whether a value is known only when the kernel runs."""
    return isinstance(value, tensor) and value.const is None


class Expressions(Frame):
    """Evaluates expression nodes."""

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression."""
        method = getattr(self, f"_eval_{type(node).__name__}", None)
        if method is None:
            raise self.fail(
                "not-translated",
                f"a {type(node).__name__} expression",
                node,
                why="the kernel's text is translated, and this construct has no meaning on tiles",
                do="write it with assignments, if, for and calls, or compute it in Python before the launch",
            )
        return method(node)

    # -- leaves --------------------------------------------------------------------------------------------------

    def _eval_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _eval_Name(self, node: ast.Name) -> Any:
        return self.look_up(node.id, node)

    def _eval_Attribute(self, node: ast.Attribute) -> Any:
        base = self.evaluate(node.value)
        self.at(node)
        if node.attr in ("value", "type") and not isinstance(base, tensor) and not hasattr(base, node.attr):
            return base if node.attr == "value" else type_of(base)  # a constexpr, already unwrapped
        try:
            found = getattr(base, node.attr)
            if isinstance(base, types.ModuleType | type) and base.__name__.split(".")[0] != "frontend_triton_compat":
                self.ctx.names.name(vars(base), node.attr, found)
            value = ours(found)
            if isinstance(value, (list, dict, set)):
                self.ctx.keep(value, f"`{ast.unparse(node)}`")
            return value
        except AttributeError as problem:
            name = ast.unparse(node)
            tile = isinstance(base, tensor)
            raise self.fail(
                "not-translated",
                f"`{name}` does not exist",
                node,
                why=f"a tile has no attribute {node.attr!r}" if tile else str(problem),
                do="use a function of triton.language; dir(triton.language) lists them",
            ) from problem

    # -- operators -----------------------------------------------------------------------------------------------

    def _eval_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        self.at(node)
        return unwrap(_BINARY[type(node.op)](left, right))

    def in_place(self, op: ast.operator, left: Any, right: Any) -> Any:
        """``left op= right``: in place for Python containers, a new value for tiles and numbers."""
        if isinstance(left, tensor) or isinstance(right, tensor):
            return _BINARY[type(op)](left, right)
        self.ctx.refuse_change(left)
        return unwrap((_IN_PLACE.get(type(op)) or _BINARY[type(op)])(left, right))

    def _eval_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        self.at(node)
        if isinstance(node.op, ast.Not):
            return operators.logical_not(value) if isinstance(value, tensor) else not value
        return unwrap(_UNARY[type(node.op)](value))

    def _eval_BoolOp(self, node: ast.BoolOp) -> Any:
        conjunction = isinstance(node.op, ast.And)
        combined: Any = None
        value: Any = None
        for part in node.values:
            value = self.evaluate(part)
            if is_run_time(value):
                self.at(node)
                join = operators.logical_and if conjunction else operators.logical_or
                combined = value if combined is None else join(combined, value)
            elif bool(value) != conjunction:
                return value  # known to decide; nothing after it is evaluated
        return value if combined is None else combined

    def _eval_Compare(self, node: ast.Compare) -> Any:
        left = self.evaluate(node.left)
        result: Any = True
        for op, right_node in zip(node.ops, node.comparators):
            right = self.evaluate(right_node)
            self.at(node)
            outcome = unwrap(_COMPARE[type(op)](left, right))
            if not is_run_time(outcome):
                if not outcome:
                    return outcome
                result = result if is_run_time(result) else outcome
            else:
                result = operators.and_(result, outcome) if is_run_time(result) else outcome
            left = right
        return result

    # -- choices -------------------------------------------------------------------------------------------------

    def condition(self, node: ast.expr, statement: str) -> Any:
        """The value of a condition: True, False or a run-time int1 scalar.

        Raises:
            Diagnostic: it is a tile (``tile-as-condition``).
        """
        value = self.evaluate(node)
        self.at(node)
        if not is_run_time(value):
            return bool(value)
        if value.shape:
            raise self.fail(
                "tile-as-condition",
                f"the condition of `{statement}` is a tile of shape {value.shape}",
                node,
                why="a program takes one branch; a tile has many truth values",
                do=(
                    "choose element by element: tl.where(condition, x, y)",
                    "or reduce it first: `if tl.max(condition.to(tl.int32), 0) != 0:`",
                ),
            )
        return operators.truth(value)

    def _eval_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test, "x if ... else y")
        if not is_run_time(condition):
            return self.evaluate(node.body if condition else node.orelse)
        blocks, values = [], []
        for part in (node.body, node.orelse):
            block = Block()
            self.ctx.builder.open(block)
            try:
                values.append(flatten(self.evaluate(part)))
            finally:
                self.ctx.builder.close()
            block.yields = tuple(t.handle for t in values[-1][0])
            blocks.append(block)
        (then, tree), (other, other_tree) = values
        types = [t.handle.type for t in then]
        if not tree.same(other_tree) or types != [t.handle.type for t in other]:
            shown = [", ".join(str(t.handle.type) for t in side) or str(tr) for side, tr in values]
            raise self.fail(
                "branch-type",
                f"the two values of `x if ... else y` have the types {shown[0]} and {shown[1]}",
                node,
                why="the condition is known only at run time, so the result must have one type",
                do="cast one of them, e.g. x.to(tl.float32)",
            )
        self.at(node)
        results = self.ctx.builder.emit("if", [condition.handle], types, self.ctx.where, regions=blocks)
        return tree.build(iter([tensor(r) for r in results]))

    # -- containers ----------------------------------------------------------------------------------------------

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                out.extend(self.evaluate(n.value))
            else:
                out.append(self.evaluate(n))
        return out

    def _eval_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node.elts))

    def _eval_List(self, node: ast.List) -> Any:
        return self._elements(node.elts)

    def _eval_Set(self, node: ast.Set) -> Any:
        return set(self._elements(node.elts))

    def _eval_Dict(self, node: ast.Dict) -> Any:
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                out.update(self.evaluate(value))
            else:
                out[self.evaluate(key)] = self.evaluate(value)
        return out

    def _eval_Slice(self, node: ast.Slice) -> Any:
        return slice(*(None if n is None else self.evaluate(n) for n in (node.lower, node.upper, node.step)))

    def _eval_Subscript(self, node: ast.Subscript) -> Any:
        base, index = self.evaluate(node.value), self.evaluate(node.slice)
        self.at(node)
        return ours(base[index])

    def _eval_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.evaluate(node.value)
        self.at(node)
        self.assign(node.target, value, node)
        return self.env[node.target.id]

    def _eval_Starred(self, node: ast.Starred) -> Any:
        return self.evaluate(node.value)

    # -- text ----------------------------------------------------------------------------------------------------

    def _eval_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return "".join(self.evaluate(v) for v in node.values)

    def _eval_FormattedValue(self, node: ast.FormattedValue) -> Any:
        value = self.evaluate(node.value)
        self.at(node)
        if is_run_time(value):
            raise self.fail(
                "needs-constexpr",
                f"an f-string with the run-time value `{ast.unparse(node.value)}`",
                node,
                why="text is made when the kernel is translated; this value is known only when it runs",
                do='print run-time values with tl.device_print("x =", x)',
            )
        convert = {115: str, 114: repr, 97: ascii}.get(node.conversion)
        spec = self.evaluate(node.format_spec) if node.format_spec is not None else ""
        return format(convert(value) if convert else value, spec)

    # -- comprehensions --------------------------------------------------------------------------------------------

    def _comprehend(self, generators: list[ast.comprehension], emit: Callable[[], None]) -> None:
        """Run `emit` for every combination of the generators' values, in a scope of its own."""

        def level(depth: int) -> None:
            if depth == len(generators):
                emit()
                return
            generator = generators[depth]
            for item in self.iterate(self.evaluate(generator.iter), generator.iter):
                self.assign_raw(generator.target, item)
                if all(bool(self.evaluate(test)) for test in generator.ifs):
                    level(depth + 1)

        outside = self.env
        self.env = dict(outside)
        try:
            level(0)
        finally:
            self.env = outside

    def _eval_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Any:
        out: list[Any] = []
        self._comprehend(node.generators, lambda: out.append(self.evaluate(node.elt)))
        return out

    _eval_GeneratorExp = _eval_ListComp

    def _eval_SetComp(self, node: ast.SetComp) -> Any:
        return set(self._eval_ListComp(node))

    def _eval_DictComp(self, node: ast.DictComp) -> Any:
        out: dict[Any, Any] = {}

        def put() -> None:
            out[self.evaluate(node.key)] = self.evaluate(node.value)

        self._comprehend(node.generators, put)
        return out

    def iterate(self, iterable: Any, node: ast.AST) -> list[Any]:
        """The items of a Python iterable, for a loop that is unrolled."""
        self.at(node)
        items: list[Any] = []
        for item in iterable:
            items.append(ours(item))
            if len(items) > MAX_UNROLL:
                raise self.fail(
                    "not-translated",
                    f"a loop over more than {MAX_UNROLL} Python items",
                    node,
                    why="such a loop is unrolled while the kernel is translated",
                    do="loop over range(n), which stays a loop",
                )
        return items

    def assign(self, target: ast.expr, value: Any, at: ast.AST) -> None:
        """Bind a target as an assignment statement does."""
        raise NotImplementedError

    def assign_raw(self, target: ast.expr, value: Any) -> None:
        """Bind a loop target without turning numbers into constants of the kernel."""
        raise NotImplementedError


MAX_UNROLL = 65536
