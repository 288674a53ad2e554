"""Flat launches by rows: a kernel that takes rows and columns out of flat offsets gets a row of them a program.

Input: a parsed kernel whose tiles all have the shape of one ``program * BLOCK + arange(0, BLOCK)``. Output: the same
kernel, changed in place, with the size that its quotients and remainders ask for in BLOCK's place, and as many programs
as there are rows. Law: every element of the launch is computed as before, by another program; an offset that the launch
did not reach is stored to by none, since a mask says so or there is no such offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from frontend_triton_compat.ir import Kernel, Op, Value
from frontend_triton_compat.types import TileType

#: What an element by element kernel is made of.
_KINDS = {"arg", "const", "program_id", "arange", "splat", "map", "cast", "bitcast", "ptr_add", "load", "store"}


def by_rows(kernel: Kernel) -> bool:
    """Give every program one row of a flat launch; whether the kernel is of that kind. Rewrites it."""
    ops = kernel.body.ops
    found = _offsets(ops)
    if found is None:
        return False
    block, starts, lanes = found
    size, periods = _row(ops)
    total = kernel.grid[0] * block
    if size is None or size == block:
        return False
    stop = _stop(ops, total)
    if stop is None:
        if total % size:
            return False
        stop = total
    rows = -(-stop // size)
    kernel.grid = (rows, *kernel.grid[1:])
    for op in starts:
        i = next(i for i, v in enumerate(op.operands) if _number(v) == block)
        made = Op("const", (), {"value": size}, op.where)
        made.results = (Value(op.operands[i].type, "", made),)
        ops.insert(ops.index(op), made)
        op.operands = tuple(made.result if j == i else v for j, v in enumerate(op.operands))
    for op in lanes:
        op.attrs = {**op.attrs, "end": size}
    for value in (v for op in ops for v in op.results):
        if value.shape:
            value.type = TileType(value.type.element, (size,))
    _spread_rows(kernel, [n for n in periods if n < rows])
    return True


def _spread_rows(kernel: Kernel, periods: list[int]) -> None:
    """Rows counted by several axes of the grid, where quotients and remainders of the row's number ask for it."""
    rows, ops = kernel.grid[0], kernel.body.ops
    ids = [op for op in ops if op.kind == "program_id"]
    chained = all(b % a == 0 for a, b in zip(periods, [*periods[1:], rows]))
    if not periods or len(periods) > 2 or not chained or kernel.grid[1:] != (1, 1) or any(op["axis"] for op in ids):
        return
    steps = [1, *periods, rows]
    counts = [b // a for a, b in pairwise(steps)]
    kernel.grid = (counts[0], counts[1], counts[2] if len(counts) > 2 else 1)
    for op in ids:
        (row,) = op.results
        made: list[Op] = []

        def new(kind: str, *operands: Value, where: Op = op, made: list[Op] = made, **attrs: Any) -> Value:
            made.append(Op(kind, operands, attrs, where.where))
            made[-1].results = (Value(where.result.type, "", made[-1]),)
            return made[-1].result

        total = new("program_id", axis=0)
        for axis, step in enumerate(periods, 1):
            total = new(
                "map", total, new("map", new("program_id", axis=axis), new("const", value=step), fn="mul"), fn="add"
            )
        made[-1].results, row.producer = (row,), made[-1]
        at = ops.index(op)
        ops[at : at + 1] = made


def _offsets(ops: list[Op]) -> tuple[int, list[Op], list[Op]] | None:
    """BLOCK, the multiplications of the program's number with it, and the `arange`s; None where there is more to it."""
    if any(op.kind not in _KINDS or len(op.results) > 1 for op in ops):
        return None
    shapes = {op.result.shape for op in ops if op.results} - {()}
    lanes = [op for op in ops if op.kind == "arange"]
    programs = {op.result for op in ops if op.kind == "program_id" and op["axis"] == 0}
    programs |= {op.result for op in ops if op.kind == "cast" and op.operands[0] in programs}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or not lanes or not programs:
        return None
    ((block,),) = shapes
    starts = [op for op in ops if any(v in programs for v in op.operands) and op.result not in programs]
    if any(op["start"] != 0 for op in lanes) or not all(_is_start(op, block) for op in starts):
        return None
    begun = _spread({op.result for op in starts}, ops)
    counted = {op.result for op in lanes}
    counted |= {op.result for op in ops if op.kind == "cast" and op.operands[0] in counted}
    for op in ops:  # both meet in offsets, and are used nowhere else
        sides = [v in begun for v in op.operands], [v in counted for v in op.operands]
        if any(map(any, sides)) and op.kind != "splat" and not counted.intersection(op.results):
            if op.kind != "map" or op["fn"] != "add" or not all(map(any, sides)):
                return None
    return block, starts, lanes


def _is_start(op: Op, block: int) -> bool:
    return op.kind == "map" and op["fn"] == "mul" and any(_number(v) == block for v in op.operands)


def _spread(values: set[Value], ops: Iterable[Op]) -> set[Value]:
    return values | {op.result for op in ops if op.kind == "splat" and op.operands[0] in values}


def _row(ops: list[Op]) -> tuple[int | None, list[int]]:
    """The length of a row: the smallest number that offsets are divided by, which divides all others.

    Returns:
        The length; how many rows make one of what the other numbers count, in order.
    """
    within = {op.result: 1 for op in ops if op.kind == "map" and op["fn"] == "add" and _has_lanes(op)}
    found: set[int] = set()
    for op in ops:
        if op.kind == "map" and op["fn"] in ("idiv", "imod") and op.operands[0] in within:
            number, unit = _number(op.operands[1]), within[op.operands[0]]
            if not isinstance(number, int) or number < 1:
                return None, []
            found.add(number * unit)
            within[op.result] = number * unit if op["fn"] == "idiv" else unit
    sizes = sorted(found - {1})
    if not sizes or math.gcd(*sizes) != sizes[0]:
        return None, []
    return sizes[0], [n // sizes[0] for n in sizes[1:]]


def _has_lanes(op: Op) -> bool:
    """Whether an operand counts the lanes, converted perhaps."""
    makers = [v.producer for v in op.operands]
    makers += [m.operands[0].producer for m in makers if m is not None and m.kind == "cast"]
    return any(m is not None and m.kind == "arange" for m in makers)


def _stop(ops: list[Op], total: int) -> int | None:
    """One behind the last offset that is touched, where every access has a mask that says so."""
    stops = []
    for op in ops:
        if op.kind not in ("load", "store"):
            continue
        at = 1 if op.kind == "load" else 2
        found = _bounds(op.operands[at]) if op["has_mask"] else []
        if not found or min(found) > total:
            return None
        stops.append(min(found))
    return max(stops, default=0) or None


def _bounds(mask: Value) -> list[int]:
    """Numbers below which the offsets lie where a mask holds."""
    op = mask.producer
    if op is None or op.kind != "map":
        return []
    if op["fn"] in ("and", "logical_and"):
        return [n for v in op.operands for n in _bounds(v)]
    left = op.operands[0].producer
    number = _number(op.operands[1])
    is_offset = left is not None and left.kind == "map" and left["fn"] == "add" and _has_lanes(left)
    return [number] if op["fn"] == "lt" and is_offset and isinstance(number, int) else []


def _number(value: Value) -> int | float | None:
    """The number that a value is in all of its elements."""
    op = value.producer
    while op is not None and op.kind == "splat":
        op = op.operands[0].producer
    return op["value"] if op is not None and op.kind == "const" else None
