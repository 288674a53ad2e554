"""Loops to variables: a loop whose iterations only accumulate, or only store, becomes one more variable.

Input: a `Schedule` with forms and live values. Output: its `folds`. Law: iterations of a folded loop do not see each
other's stores, and nothing looks at a running total.
"""

from __future__ import annotations

from frontend_triton_compat.ir import Op, Value, walk
from frontend_triton_compat.schedule.overlap import apart
from frontend_triton_compat.schedule.plan import Fold, Schedule

#: A folded loop may not make a computed value larger than this many elements.
FOLD_LIMIT = 1 << 26
_ACCUMULATE = {"add": "sum", "max": "max", "min": "min", "maximum": "max", "minimum": "min"}


def fold_loops(plan: Schedule, sums: bool = False) -> None:
    """Find the loops that become variables; `sums`: also those whose iterations add to one place of memory."""
    for op in walk(plan.kernel.body):
        if op.kind == "for":
            fold = _foldable(plan, op, sums)
            if fold is not None:
                plan.folds[op] = fold
    changed = True
    while changed:
        changed = False
        plan.forget()
        for op, fold in list(plan.folds.items()):
            if _too_large(plan, fold):
                del plan.folds[op]
                changed = True
                break
    plan.forget()
    for op, loop in plan.affine.loops.items():
        loop.var.serial = op not in plan.folds


def _foldable(plan: Schedule, op: Op, sums: bool) -> Fold | None:
    loop, demand = plan.affine.loops[op], plan.demand
    if loop.trips is None or loop.step is None or not loop.trips.max() > 0:
        return None
    if plan.ordered and not loop.uniform:
        return None  # one program at a time runs it as often as it should; a variable has one size
    body = op.regions[0]
    fold = Fold(loop)
    for i, arg in enumerate(body.args[1:]):
        if arg not in demand.live or arg in demand.indexed or arg in loop.carried:
            continue
        adder = body.yields[i].producer
        if adder is None or len(adder.results) != 1 or _lookers(plan, arg) != [adder] or adder not in body.ops:
            return None
        if _lookers(plan, adder.result):
            return None  # somebody looks at the running total
        if [v.producer for v in body.yields].count(adder) > 1:
            return None
        if adder.kind == "map" and adder["fn"] in _ACCUMULATE and adder.operands.count(arg) == 1:
            fn = _ACCUMULATE[adder["fn"]]
            product = _added_product(plan, adder, arg, body.ops) if fn == "sum" else None
            fold.sums[arg] = (fn, product or adder)
            fold.absorbed |= {adder, product or adder}
        elif adder.kind == "dot" and adder.operands[2] is arg and arg not in adder.operands[:2]:
            fold.sums[arg] = ("sum", adder)
            fold.absorbed.add(adder)
        else:
            return None
    if fold.sums and not loop.uniform:
        return None
    inside = [a for o, a in demand.accesses.items() if op in a.path]
    stored = [a for a in inside if a.op.kind != "load"]
    if any(o.kind in ("while", "print_", "assert_") for o in walk(body)):
        return None
    for store in stored:
        if sums and store.op.kind == "atomic" and store.op["fn"] == "add" and not plan.form(store.form).opaques:
            if store.op.result in demand.live or any(a.param == store.param for a in inside if a.op.kind != "atomic"):
                return None
            continue
        if loop.var not in store.form.vars or store.form.opaques or store.op.kind == "atomic":
            return None
        others = [a for a in inside if a is not store and a.param == store.param]
        if any(other.form != store.form for other in others):
            return None
        outer = {plan.affine.loops[o].var for o in store.path[: store.path.index(op)] if o.kind == "for"}
        if others and not apart(store.form, store.all_conditions, loop.var, outer):
            return None
    return fold


def _added_product(plan: Schedule, adder: Op, arg: Value, ops: list[Op]) -> Op | None:
    """The dot of ``acc += tl.dot(a, b)``, if its product is used for nothing else."""
    (term,) = [v for v in adder.operands if v is not arg]
    dot = term.producer
    if dot is None or dot.kind != "dot" or dot not in ops or plan.demand.users.get(term) != [adder]:
        return None
    start = dot.operands[2].producer
    while start is not None and start.kind in ("splat", "broadcast"):
        start = start.operands[0].producer
    return dot if start is not None and start.kind == "const" and start["value"] == 0 else None


def _lookers(plan: Schedule, value: Value) -> list[Op]:
    """The operations that use a value and count: they have an effect, or a live result."""
    live = plan.demand.live
    return [u for u in plan.demand.users.get(value, []) if not u.results or any(r in live for r in u.results)]


def _too_large(plan: Schedule, fold: Fold) -> bool:
    for op in walk(fold.loop.op.regions[0]):
        if op.kind == "load" or op in fold.absorbed:
            continue
        for value in op.results:
            if value in plan.demand.live and value not in plan.demand.indexed and value.shape:
                variables = plan.deps(value)
                if fold.loop.var in variables:
                    n = value.type.numel
                    for v in variables:
                        n *= v.count or 1
                    if n > FOLD_LIMIT:
                        return True
    return False
