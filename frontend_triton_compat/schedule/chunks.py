"""Programs a chunk at a time, where all at once would take too much memory.

Input: a `Schedule` with cropped variables. Output: perhaps its `chunk`: a program variable split into a serial part and
a part that stays a dimension. Law: chunks run one after the other over the whole kernel; programs are independent, so
the result is the same.
"""

from __future__ import annotations

from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import walk
from frontend_triton_compat.schedule.plan import Schedule

#: Elements that a computed value may have whatever the arguments' sizes are.
SMALL = 1 << 24
#: How many times larger than the largest argument a computed value may be.
BLOW_UP = 4


def chunk(plan: Schedule) -> None:
    """Split a program variable if some value would be much larger than every argument."""
    largest = max((_numel(m.shape) for m in plan.memories.values()), default=1)
    allowed = max(SMALL, BLOW_UP * largest)
    worst, variables = 1, frozenset()
    for op in walk(plan.kernel.body):
        for value in op.results:
            live = value in plan.demand.live and value not in plan.demand.indexed
            if not live or value.type.is_pointer or op.kind in ("splat", "broadcast", "expand_dims", "trans", "const"):
                continue
            lifted = frozenset(plan.top(v) for v in plan.deps(value))
            n = 1
            for var in {*lifted, *(v for v in plan.axes(value) if v is not None)}:
                n *= var.count or 1
            if n > worst:
                worst, variables = n, lifted
    candidates = [v for v in variables if v.count and not any(p.kind in ("axis", "loop") for p in v.parts())]
    if worst <= allowed or not candidates:
        return
    var = max(candidates, key=lambda v: v.count or 1)
    assert var.count is not None
    size = _divisor(var.count, max(1, var.count * allowed // worst))
    if size == var.count:
        return
    outer = Var("loop", var.count // size, plan.affine.fresh(f"{var.name}_chunk"), serial=True)
    inner = Var("program", size, plan.affine.fresh(f"{var.name}_part"))
    split = Form(0, {outer: size, inner: 1})
    plan.table = {s: f.substitute({var: split}) for s, f in plan.table.items()}
    plan.table[var] = split
    for part in var.parts():
        plan.tops[part] = inner
    plan.chunk = outer


def _numel(shape: tuple[int, ...]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def _divisor(n: int, limit: int) -> int:
    """The largest divisor of `n` that is at most `limit`."""
    return next(d for d in range(min(n, limit), 0, -1) if n % d == 0)
