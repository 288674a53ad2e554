"""Arithmetic in fewer operations where every number stays what it was: what a TPU's vector unit is short of is slots.

Input: a parsed kernel (`cheapen`). Output: the kernel, changed in place. Law: the new operations give the same bits for
every operand, NaN and infinities included; a value that something else uses too is left alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.types import TileType

_MOVES = ("splat", "broadcast")


def cheapen(kernel: Kernel) -> Kernel:
    """Rewrite what has a cheaper form. Rewrites the kernel."""
    uses = Counter(v for op in walk(kernel.body) for v in op.operands)
    uses.update(v for op in walk(kernel.body) for region in op.regions for v in region.yields)
    _Cheaper(uses).block(kernel.body)
    return kernel


class _Cheaper:
    """Rewrites blocks; knows how often a value is used."""

    def __init__(self, uses: Counter[Value]):
        self.uses = uses

    def block(self, block: Block) -> None:
        ops: list[Op] = []
        for op in block.ops:
            for region in op.regions:
                self.block(region)
            ops += self._rounded_away(op)
            ops.append(op)
        block.ops[:] = ops

    def _rounded_away(self, op: Op) -> list[Op]:
        """``where(t >= 0, floor(t + a), ceil(t - b))`` as an integer: the conversion cuts towards zero anyway.

        Where the condition holds the sum is not negative, where it does not hold it is negative, or NaN.
        """
        source, target = op.operands[0] if op.operands else None, op.results[0].type.element if op.results else None
        if op.kind != "cast" or source is None or not target.is_int() or target.is_bool():  # type: ignore[union-attr]
            return []
        choice = self._map(source, "where")
        if choice is None or self.uses[source] != 1:
            return []
        condition, up, down = choice.operands
        asked, up, down = self._map(condition, "ge", "gt"), self._map(up, "floor"), self._map(down, "ceil")
        if asked is None or up is None or down is None or _number(asked.operands[1]) != 0:
            return []
        x = asked.operands[0]
        above, below = _moved(up.operands[0], x), _moved(down.operands[0], x)
        if above is None or below is None or not (above >= 0 >= below) or not x.type.element.is_floating():
            return []
        element = x.type.element
        made: list[Op] = []

        def new(kind: str, operands: tuple[Value, ...], shape: tuple[int, ...] = x.shape, **attrs: Any) -> Value:
            made.append(Op(kind, operands, attrs, choice.where))
            made[-1].results = (Value(TileType(element, shape), "", made[-1]),)
            return made[-1].result

        sides = [new("const", (), (), value=c) for c in (above, below)]
        sides = [new("splat", (c,)) for c in sides] if x.shape else sides
        total = new("map", (x, new("map", (condition, *sides), fn="where")), fn="add")
        op.operands = (total,)
        return made

    def _map(self, value: Value, *fns: str) -> Op | None:
        op = value.producer
        return op if op is not None and op.kind == "map" and op["fn"] in fns else None


def _number(value: Value) -> float | None:
    """The number that a value is in all of its elements."""
    op = value.producer
    while op is not None and op.kind in _MOVES:
        op = op.operands[0].producer
    return op["value"] if op is not None and op.kind == "const" else None


def _moved(value: Value, x: Value) -> float | None:
    """What is added to `x` to give a value."""
    op = value.producer
    if op is None or op.kind != "map" or op["fn"] not in ("add", "sub") or op.operands[0] is not x:
        return None
    by = _number(op.operands[1])
    return by if by is None or op["fn"] == "add" else -by
