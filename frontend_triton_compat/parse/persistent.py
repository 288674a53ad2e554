"""Persistent programs: ``for tile in range(pid, tiles, programs)`` is a grid of `tiles` programs.

Input: a kernel. Output: the same kernel, changed in place: the loop's body is the program, and the grid has a program a
tile. Law: the loop is all that the program does, goes round the grid's programs, and carries nothing but counters that
follow from the tile's number; then every tile is done once, as before.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Kernel, Op, Value, walk
from frontend_triton_compat.parse.lower_bounds import substitute

_EFFECTS = ("store", "atomic", "assert_", "print_", "while")


def a_program_a_tile(kernel: Kernel) -> bool:
    """Make the loop over a program's tiles a grid of programs; whether there was one."""
    doing = [op for op in kernel.body.ops if any(inner.kind in _EFFECTS for inner in _all(op))]
    if len(doing) != 1 or doing[0].kind != "for":
        return False
    (loop,) = doing
    start, tiles, step = loop.operands[0], _const(loop.operands[1]), _const(loop.operands[2])
    origin = _from_program(start)
    if origin is None or origin[1] != 0 or tiles is None or tiles <= 0 or step is None:
        return False
    axis = origin[0]
    body = loop.regions[0]
    args = dict(zip(body.args, (start, *loop.operands[3:])))
    if step != kernel.grid[axis] or any(arg.type != value.type for arg, value in args.items()):
        return False
    counters = zip(body.args[1:], loop.operands[3:], body.yields)
    if not all(_counts(arg, new, step) and _axis(init) == axis for arg, init, new in counters):
        return False
    if any(_uses(op, set(loop.results)) for op in walk(kernel.body)) or _looked_at(kernel, loop, axis):
        return False
    at = kernel.body.ops.index(loop)
    kernel.body.ops[at : at + 1] = body.ops
    substitute(kernel.body, args)
    kernel.grid = (*kernel.grid[:axis], tiles, *kernel.grid[axis + 1 :])  # type: ignore[assignment]
    return True


def _all(op: Op) -> list[Op]:
    return [op, *(inner for region in op.regions for inner in walk(region))]


def _uses(op: Op, values: set[Value]) -> bool:
    return any(v in values for v in (*op.operands, *(y for region in op.regions for y in region.yields)))


def _axis(value: Value) -> int | None:
    origin = _from_program(value)
    return None if origin is None else origin[0]


def _counts(arg: Value, new: Value, step: int) -> bool:
    """Whether a carried value grows by the number of programs."""
    op = new.producer
    if op is None or op.kind != "map" or op["fn"] != "add":
        return False
    return any(one is arg and _const(other) == step for one, other in (op.operands, op.operands[::-1]))


def _looked_at(kernel: Kernel, loop: Op, axis: int) -> bool:
    """Whether something beside the loop's start and counters looks at the program's number."""
    used: set[Op] = set()
    left = [loop.operands[0], *loop.operands[3:]]
    while left:
        op = left.pop().producer
        if op is not None and op not in used and op.kind != "const":
            used.add(op)
            left += op.operands
    numbers = {r for op in used for r in op.results}
    numbers |= {op.result for op in walk(kernel.body) if op.kind == "program_id" and op["axis"] == axis}
    return any(op not in used and op is not loop and _uses(op, numbers) for op in walk(kernel.body))


def _from_program(value: Value) -> tuple[int, int] | None:
    """A number as (axis, distance from the program's number on it)."""
    op = value.producer
    if op is None:
        return None
    if op.kind == "program_id":
        return op["axis"], 0
    if op.kind == "cast":
        return _from_program(op.operands[0])
    if op.kind != "map" or op["fn"] not in ("add", "sub"):
        return None
    first, second = op.operands
    if op["fn"] == "add" and _const(first) is not None:
        first, second = second, first
    origin, distance = _from_program(first), _const(second)
    if origin is None or distance is None:
        return None
    return origin[0], origin[1] + (distance if op["fn"] == "add" else -distance)


def _const(value: Value) -> int | None:
    op = value.producer
    while op is not None and op.kind == "cast":
        op = op.operands[0].producer
    return int(op["value"]) if op is not None and op.kind == "const" else None
