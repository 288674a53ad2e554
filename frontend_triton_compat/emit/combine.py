"""The kernel author's scalar functions: written once as a function on scalars, spread over tiles by jax.

Input: `reduce_by`, `scan_by` and `each`. Output: a nested function and one statement that applies it. Law: inside the
function every value is a scalar, so both sides of a branch are computed and one is picked; elements are combined in
order, neighbours first.
"""

from __future__ import annotations

from collections.abc import Sequence

from frontend_triton_compat.emit.base import KeepWhole
from frontend_triton_compat.emit.expr import Expr, align, literal, tuple_of, union
from frontend_triton_compat.emit.tiles import Tiles
from frontend_triton_compat.forms import Var
from frontend_triton_compat.ir import Block, Op, Value

Dims = tuple[Var | None, ...]


class Combine(Tiles):
    """Statements of operations with a scalar function."""

    def reduce_by(self, op: Op) -> None:
        """Several tiles reduced together along one axis."""
        tiles, dims, axis = self._together(op, op["axis"])
        if axis is None:  # one element: its own combination
            self.env.update({r: self.under_new_names(op, t) for r, t in zip(op.results, tiles)})
            return
        out = tuple(None if i == axis else d for i, d in enumerate(dims))
        self._apply(op, "reduce_by", tiles, f"{axis}", out)

    def scan_by(self, op: Op) -> None:
        """A running combination of several tiles along one axis."""
        tiles, dims, axis = self._together(op, op["axis"])
        if axis is None:  # one element: its own combination
            self.env.update({r: self.under_new_names(op, t) for r, t in zip(op.results, tiles)})
            return
        self._apply(op, "scan_by", tiles, f"{axis}, {op['reverse']}", dims)

    def each(self, op: Op) -> None:
        """A scalar function of every element."""
        operands = [self._typed(self.value(v), v) for v in op.operands]
        dims = union(operands)
        name = self._function(op)
        text = f"jnp.vectorize({name})({', '.join(align(e, dims) for e in operands)})"
        results = [self.fresh(r.name or "each") for r in op.results]
        self.put(f"{results[0] if len(results) == 1 else ', '.join(results)} = {text}", op)
        self._bind(op, results, dims)

    # -- parts

    def _together(self, op: Op, at: int) -> tuple[list[Expr], Dims, int | None]:
        """Operands with one set of dimensions, all of them there along the axis; its position, None for one element."""
        var = self.plan.axes(op.operands[0])[at]
        tiles = [self._typed(self.value(v), v) for v in op.operands]
        if var is None:
            return tiles, (), None
        if var.extent is not None:
            raise KeepWhole(var)
        tiles = [self.with_dim(t, var, v.type) for t, v in zip(tiles, op.operands)]
        dims = union(tiles)
        return [Expr(align(t, dims)) for t in tiles], dims, dims.index(var)

    def _typed(self, expr: Expr, value: Value) -> Expr:
        return expr if expr.literal is None or expr.dims else literal(expr.literal, value.type.element.numpy_name)

    def _apply(self, op: Op, helper: str, tiles: Sequence[Expr], rest: str, dims: Dims) -> None:
        name = self._function(op)
        self.with_helpers(f"{helper}(")
        text = f"{helper}({name}, {tuple_of([t.code for t in tiles])}, {rest})"
        results = [self.fresh(r.name or "combined") for r in op.results]
        self.put(f"{tuple_of(results)} = {text}", op)
        self._bind(op, results, dims)

    def _bind(self, op: Op, names: Sequence[str], dims: Dims) -> None:
        for name, result in zip(names, op.results):
            self.env[result] = self.under_new_names(op, Expr(name, dims))

    def _function(self, op: Op) -> str:
        """Write the scalar function; its name."""
        body: Block = op["body"]
        name = self.fresh("combine" if op.kind != "each" else "scalar")
        arguments = [self.fresh(a.name or "x") for a in body.args]
        self.put(f"def {name}({', '.join(arguments)}):", op)
        self.env.update({a: Expr(n) for a, n in zip(body.args, arguments)})
        self.indent += 1
        self._scalars(body)
        self.put(f"return {self._yielded(body)}")
        self.indent -= 1
        return name

    def _yielded(self, body: Block) -> str:
        values = [self._typed(self.value(v), v).code for v in body.yields]
        return tuple_of(values) if len(values) > 1 else values[0]

    def _scalars(self, block: Block) -> None:
        for op in block.ops:
            if op.kind == "if":
                self._scalar_if(op)
            elif op.kind in ("for", "while"):
                self._scalar_loop(op)
            elif op.kind == "map":
                operands = [self.value(v) for v in op.operands]
                expr = self.apply(op["fn"], operands, op.operands[-1].type.element, op.result.type, op)
                self.env[op.result] = self.assign(op.result.name or op["fn"], expr, op)
            elif op.kind != "const":
                expr = self.cast_(op) if op.kind == "cast" else self.bitcast_(op)
                self.env[op.result] = self.assign(op.result.name or op.kind, expr, op)

    def _scalar_if(self, op: Op) -> None:
        for region in op.regions:
            self._scalars(region)
        condition = self.value(op.operands[0])
        for i, result in enumerate(op.results):
            yes, no = (self.value(region.yields[i]) for region in op.regions)
            picked = self.masked(condition, yes, no, result.type.element.numpy_name)
            self.env[result] = self.assign(result.name or "picked", picked, op)

    def _scalar_loop(self, op: Op) -> None:
        """A loop over scalars as `while_loop`; a `for` carries its counter too."""
        counted = op.kind == "for"
        inits = op.operands[3:] if counted else op.operands
        start = [*op.operands[:1], *inits] if counted else list(inits)
        body = op.regions[-1]

        def unpack(args: Sequence[Value]) -> None:
            names = [self.fresh(a.name or "carried") for a in args]
            self.put(f"{tuple_of(names)} = carry")
            self.env.update({a: Expr(n) for a, n in zip(args, names)})

        more, step = self.fresh("more"), self.fresh("step")
        self.put(f"def {more}(carry):", op)
        self.indent += 1
        if counted:
            unpack(body.args)
            lo, hi, by = self.value(body.args[0]), *(self.value(v) for v in op.operands[1:3])
            up, down = f"({lo.code} < {hi.operand})", f"({lo.code} > {hi.operand})"
            self.put(f"return jnp.where({by.operand} > 0, {up}, {down})")
        else:
            unpack(op.regions[0].args)
            self._scalars(op.regions[0])
            self.put(f"return {self.value(op.regions[0].yields[0]).code}")
        self.indent -= 1
        self.put(f"def {step}(carry):")
        self.indent += 1
        unpack(body.args)
        self._scalars(body)
        finals = [self._typed(self.value(v), v).code for v in body.yields]
        if counted:
            counter, by = self.value(body.args[0]), self.value(op.operands[2])
            finals.insert(0, f"{counter.code} + {by.operand}")
        self.put(f"return {tuple_of(finals)}")
        self.indent -= 1
        init = tuple_of([self._typed(self.value(v), v).code for v in start])
        results = [self.fresh(r.name or "carried") for r in op.results]
        left = [*(["_"] if counted else []), *results]
        self.put(f"{tuple_of(left)} = lax.while_loop({more}, {step}, {init})", op)
        self.env.update({r: Expr(n) for r, n in zip(op.results, results)})
