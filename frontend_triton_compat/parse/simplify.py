"""Clean-up of freshly parsed IR: no dead operations, no carried values that never change.

Input: a kernel. Output: the same kernel, changed in place. Law: what a program stores, asserts and prints is
unchanged; loads whose value nobody uses are dropped.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Block, Kernel, Op, Value, walk
from frontend_triton_compat.parse.choices import split_choices
from frontend_triton_compat.parse.counters import own_counters
from frontend_triton_compat.parse.lower_bounds import drop_lower_bounds, substitute
from frontend_triton_compat.parse.totals import split_totals

_EFFECTS = ("store", "atomic", "assert_", "print_")


def simplify(kernel: Kernel) -> Kernel:
    """Drop invariant and dead carried values, and operations whose results nobody uses."""
    _drop_invariant(kernel.body)
    split_choices(kernel)
    drop_lower_bounds(kernel)
    split_totals(kernel)
    own_counters(kernel)
    live = _live(kernel.body)
    _drop_dead(kernel.body, live)
    return kernel


# -- carried values that never change ----------------------------------------------------------------------------------


def _drop_invariant(body: Block) -> None:
    """A carried value that the body hands on unchanged is its initial value."""
    replaced: dict[Value, Value] = {}
    for op in walk(body):
        if op.kind == "for":
            _trim(op, [i for i, y in enumerate(op.regions[0].yields) if y is op.regions[0].args[i + 1]], replaced, 3, 1)
        elif op.kind == "while":
            _trim(op, [i for i, y in enumerate(op.regions[1].yields) if y is op.regions[1].args[i]], replaced, 0, 0)
    if replaced:
        substitute(body, replaced)
        _drop_invariant(body)


def _trim(op: Op, same: list[int], replaced: dict[Value, Value], first_operand: int, first_arg: int) -> None:
    for i in same:
        init = op.operands[first_operand + i]
        replaced[op.results[i]] = init
        for region in op.regions:
            replaced[region.args[first_arg + i]] = init
    keep_carried(op, [i for i in range(len(op.results)) if i not in same])


def keep_carried(op: Op, kept: list[int]) -> None:
    """Keep only these carried values of a loop."""
    skip_operand, skip_arg = (3, 1) if op.kind == "for" else (0, 0)
    op.operands = (*op.operands[:skip_operand], *(op.operands[skip_operand + i] for i in kept))
    op.results = tuple(op.results[i] for i in kept)
    for region in op.regions:
        region.args = (*region.args[:skip_arg], *(region.args[skip_arg + i] for i in kept))
    body = op.regions[-1]
    body.yields = tuple(body.yields[i] for i in kept)


# -- what nobody uses --------------------------------------------------------------------------------------------------


def _has_effects(op: Op) -> bool:
    return op.kind in _EFFECTS or any(_has_effects(o) for region in op.regions for o in region.ops)


def _live(body: Block) -> set[Value]:
    """Every value that an effect needs, directly or through a loop."""
    live: set[Value] = set()
    work: list[Value] = []

    def need(*values: Value) -> None:
        for v in values:
            if v not in live:
                live.add(v)
                work.append(v)

    owners: dict[Value, tuple[Op, int]] = {}  # block argument -> loop and its place among the carried ones
    for op in walk(body):
        if op.kind in ("for", "while"):
            skip = 1 if op.kind == "for" else 0
            for region in op.regions:
                for i, arg in enumerate(region.args[skip:]):
                    owners[arg] = (op, i)
            if op.kind == "for":
                owners[op.regions[0].args[0]] = (op, -1)
        if op.kind in _EFFECTS:
            need(*op.operands)
        elif op.regions and _has_effects(op):
            _need_control(op, need)
    while work:
        v = work.pop()
        op, place = owners.get(v, (v.producer, -1))
        if op is None:
            continue
        if v in owners:
            _need_control(op, need)
            if place >= 0:
                _need_carried(op, place, need)
        elif op.regions:
            _need_control(op, need)
            i = op.results.index(v)
            if op.kind == "if":
                need(*(region.yields[i] for region in op.regions))
            else:
                _need_carried(op, i, need)
        else:
            need(*op.operands)
    return live


def _need_control(op: Op, need: object) -> None:
    if op.kind == "for":
        need(*op.operands[:3])  # type: ignore[operator]
    elif op.kind == "while":
        need(*op.regions[0].yields)  # type: ignore[operator]
    else:
        need(*op.operands)  # type: ignore[operator]


def _need_carried(op: Op, i: int, need: object) -> None:
    first = 3 if op.kind == "for" else 0
    need(op.operands[first + i], op.regions[-1].yields[i], op.results[i])  # type: ignore[operator]
    for region in op.regions:
        need(region.args[i + (1 if op.kind == "for" else 0)])  # type: ignore[operator]


def _drop_dead(block: Block, live: set[Value]) -> None:
    kept: list[Op] = []
    for op in block.ops:
        if not _has_effects(op) and not any(r in live for r in op.results):
            continue
        if op.kind in ("for", "while"):
            keep_carried(op, [i for i, r in enumerate(op.results) if r in live])
        elif op.kind == "if":
            used = [i for i, r in enumerate(op.results) if r in live]
            op.results = tuple(op.results[i] for i in used)
            for region in op.regions:
                region.yields = tuple(region.yields[i] for i in used)
        for region in op.regions:
            _drop_dead(region, live)
        kept.append(op)
    block.ops[:] = kept
