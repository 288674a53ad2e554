"""A running total that goes through an inner loop is the inner loop's own total, added once.

Input: a kernel. Output: the same kernel, changed in place: ``for c: for i: total += x`` becomes ``for c: part = 0; for
i: part += x; total += part``. Law: only values that nobody looks at on the way; sums may be grouped anew, as a folded
loop does anyway. Both loops then only accumulate, and both can become variables. Products of tiles stay as they are: a
loop around them is better kept than summed over at full size.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.types import TileType


def split_totals(kernel: Kernel) -> None:
    """Give every inner loop its own total, innermost first."""
    uses: dict[Value, int] = {}
    for block in _blocks(kernel.body):
        for value in block.yields:
            uses[value] = uses.get(value, 0) + 1
        for op in block.ops:
            for value in op.operands:
                uses[value] = uses.get(value, 0) + 1
    _visit(kernel.body, uses)


def _blocks(body: Block) -> list[Block]:
    return [body, *(region for op in walk(body) for region in op.regions)]


def _visit(block: Block, uses: dict[Value, int]) -> None:
    for op in block.ops:
        for region in op.regions:
            _visit(region, uses)
        if op.kind == "for":
            _split(op.regions[0], uses)


def _split(body: Block, uses: dict[Value, int]) -> None:
    for i, total in enumerate(body.args[1:]):
        inner = body.yields[i].producer
        if inner is None or inner.kind != "for" or inner not in body.ops or uses[body.yields[i]] != 1:
            continue
        j = inner.results.index(body.yields[i])
        if inner.operands[3 + j] is not total or uses[total] != 1 or not _only_adds(inner, j, uses):
            continue
        at = body.ops.index(inner)
        zero = _zero(total, inner)
        add = Op("map", (total, inner.results[j]), {"fn": "add"}, inner.where)
        add.results = (Value(total.type, total.name, producer=add),)
        inner.operands = (*inner.operands[: 3 + j], zero[-1].result, *inner.operands[4 + j :])
        body.ops[at : at + 1] = [*zero, inner, add]
        body.yields = (*body.yields[:i], add.result, *body.yields[i + 1 :])
        uses[add.result] = uses[zero[-1].result] = 1


def _only_adds(loop: Op, j: int, uses: dict[Value, int]) -> bool:
    body = loop.regions[0]
    arg, adder = body.args[1 + j], body.yields[j].producer
    if adder is None or adder.kind != "map" or adder["fn"] != "add" or adder not in body.ops:
        return False
    terms = [v for v in adder.operands if v is not arg]
    if uses.get(arg) != 1 or uses[adder.result] != 1 or len(terms) != 1:
        return False
    term = terms[0].producer
    return term is None or term.kind != "dot"


def _zero(like: Value, where: Op) -> list[Op]:
    """Operations whose last result is a zero of the same type."""
    element = like.type.element
    const = Op("const", (), {"value": 0.0 if element.is_floating() else 0, "name": ""}, where.where)
    const.results = (Value(TileType(element), producer=const),)
    if not like.shape:
        return [const]
    splat = Op("splat", (const.result,), {}, where.where)
    splat.results = (Value(like.type, producer=splat),)
    return [const, splat]
