"""Loops that begin where the program says begin together: at 0, and turns before the start count for nothing.

Input: a kernel. Output: the same kernel, changed in place. Law: a start that is no constant, never negative and a
multiple of the step is the only kind that moves; every carried value keeps what it began with until the start is
reached, so only loops that carry floats and store nothing are changed.
"""

from __future__ import annotations

import math

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.types import INT1, TileType, dtype

_EFFECTS = ("store", "atomic", "assert_", "print_")


def start_together(kernel: Kernel) -> bool:
    """Let loops begin at 0; whether there was one to change."""
    return any([_visit(block) for block in [kernel.body, *(r for op in walk(kernel.body) for r in op.regions)]])


def _visit(block: Block) -> bool:
    found = [op for op in block.ops if op.kind == "for" and _moves(op)]
    for op in found:
        zero = _op("const", (), op.operands[0].type, op, value=0)
        block.ops.insert(block.ops.index(op), zero)
        _keep_until(op, op.operands[0])
        op.operands = (zero.result, *op.operands[1:])
    return bool(found)


def _moves(op: Op) -> bool:
    start, step = op.operands[0], _const(op.operands[2])
    body = op.regions[0]
    if step is None or step <= 0 or _const(start) is not None:
        return False
    if any(inner.kind in _EFFECTS for inner in walk(body)) or not body.yields:
        return False
    floats = all(isinstance(v.type.element, dtype) and v.type.element.is_floating() for v in body.yields)
    return floats and _nonnegative(start) and _multiple(start, step)


def _keep_until(op: Op, start: Value) -> None:
    """Carried values keep what they are in turns before `start`."""
    body = op.regions[0]
    reached = _op("map", (start, body.args[0]), TileType(INT1), op, fn="le")
    body.ops.append(reached)
    kept = []
    for old, new in zip(body.args[1:], body.yields):
        condition = reached.result
        if new.shape:
            spread = _op("splat", (condition,), TileType(INT1, new.shape), op)
            body.ops.append(spread)
            condition = spread.result
        chosen = _op("map", (condition, new, old), new.type, op, fn="where")
        body.ops.append(chosen)
        kept.append(chosen.result)
    body.yields = tuple(kept)


def _op(kind: str, operands: tuple[Value, ...], result: TileType, near: Op, **attrs: object) -> Op:
    made = Op(kind, operands, attrs, near.where)
    made.results = (Value(result, "", producer=made),)
    return made


def _const(value: Value) -> int | None:
    op = value.producer
    while op is not None and op.kind == "cast":
        op = op.operands[0].producer
    return int(op["value"]) if op is not None and op.kind == "const" else None


def _nonnegative(value: Value) -> bool:
    op, known = value.producer, _const(value)
    if known is not None:
        return known >= 0
    if op is None:
        return False
    if op.kind == "cast":
        return _nonnegative(op.operands[0])
    if op.kind != "map":
        return op.kind == "program_id"
    signs = [_nonnegative(v) for v in op.operands]
    return any(signs) if op["fn"] == "max" else all(signs) and op["fn"] in ("add", "mul", "idiv", "imod", "min")


def _multiple(value: Value, n: int) -> bool:
    op, known = value.producer, _const(value)
    if n == 1:
        return True
    if known is not None:
        return known % n == 0
    if op is None:
        return False
    if op.kind == "cast":
        return _multiple(op.operands[0], n)
    if op.kind != "map":
        return False
    if op["fn"] == "mul":
        for one, other in (op.operands, op.operands[::-1]):
            factor = _const(one)
            if factor is not None:
                return _multiple(other, n // math.gcd(factor, n))
        return any(_multiple(v, n) for v in op.operands)
    return op["fn"] in ("add", "sub", "max", "min") and all(_multiple(v, n) for v in op.operands)
