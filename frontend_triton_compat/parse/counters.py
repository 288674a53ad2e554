"""Counters of lanes that several loops share become each loop's own.

Input: a kernel. Output: the same kernel, changed in place: where ``lane = tl.arange(0, B)`` stands before two loops
that both go over ``i * B + lane``, each gets its own `lane`, and what is made of it alone. Law: only index arithmetic
is done again, so every value is unchanged. Each loop's counter then merges with its lanes.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.parse.lower_bounds import substitute

_MOVES = ("splat", "broadcast", "expand_dims", "trans", "cast", "map", "ptr_add")


def own_counters(kernel: Kernel) -> None:
    """Give every loop its own counters of lanes."""
    _block(kernel.body, {})


def _block(block: Block, known: dict[Value, frozenset[Value]]) -> None:
    loops = _outermost(block)
    times: dict[Value, int] = {}
    for loop in loops:
        for value in {a for v in _from_outside(loop.regions[0]) for a in _counters(v, known)}:
            times[value] = times.get(value, 0) + 1
    shared = {value for value, n in times.items() if n > 1}
    for loop in loops:
        if shared and loop is not loops[0]:  # the first may keep them
            _copy(loop.regions[0], shared, known)
        _block(loop.regions[0], known)


def _from_outside(body: Block) -> list[Value]:
    """What a loop uses that is made before it, in the order of its use."""
    own = {r for op in walk(body) for r in op.results}
    return [v for v in dict.fromkeys(v for op in walk(body) for v in op.operands) if v not in own]


def _outermost(block: Block) -> list[Op]:
    """The loops of a block and of its branches."""
    out = []
    for op in block.ops:
        if op.kind == "for":
            out.append(op)
        elif op.kind == "if":
            out += [loop for region in op.regions for loop in _outermost(region)]
    return out


def _counters(value: Value, known: dict[Value, frozenset[Value]]) -> frozenset[Value]:
    """The `arange`s that a tile is made of, if it is made of index arithmetic alone; else nothing."""
    if value in known:
        return known[value]
    found: frozenset[Value] = frozenset()
    op, element = value.producer, value.type.element
    if op is not None and value.shape and op.kind == "arange":
        found = frozenset({value})
    elif op is not None and value.shape and op.kind in _MOVES and (value.type.is_pointer or element.is_int()):
        tiles = [v for v in op.operands if v.shape]
        parts = [_counters(v, known) for v in tiles]
        if all(p or (v.producer is not None and v.producer.kind == "splat") for p, v in zip(parts, tiles)):
            found = frozenset().union(*parts)
    known[value] = found
    return found


def _copy(body: Block, shared: set[Value], known: dict[Value, frozenset[Value]]) -> None:
    copies: dict[Value, Value] = {}
    ops: list[Op] = []

    def copied(value: Value) -> Value:
        op = value.producer
        if value not in copies and op is not None and _counters(value, known) & shared:
            new = Op(op.kind, tuple(copied(v) for v in op.operands), op.attrs, op.where)
            new.results = (Value(value.type, value.name, producer=new),)
            ops.append(new)
            copies[value] = new.result
        return copies.get(value, value)

    for value in _from_outside(body):
        copied(value)
    if copies:
        substitute(body, copies)
        body.yields = tuple(copies.get(v, v) for v in body.yields)
        body.ops[:0] = ops
