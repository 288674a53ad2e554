"""Programs renumbered and merged with lanes: ``program * BLOCK + arange`` is one variable.

Input: a `Schedule`. Output: its `table` and `tops`. Law: atoms number the programs uniquely and completely, or they are
not used; two variables merge only if every form that matters holds them in the merged proportion.
"""

from __future__ import annotations

import numpy as np

from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import walk
from frontend_triton_compat.schedule.plan import Schedule


def product_grid(plan: Schedule) -> bool:
    """Whether atoms and program ids in use number the programs uniquely and completely, as a product."""
    used: dict[Var, None] = {}
    for form in plan.demand.roots:
        for var in form.vars:
            if var.kind in ("program", "atom"):
                used[var] = None
    if not any(v.kind == "atom" for v in used):
        return True
    grid = plan.kernel.grid
    columns, sizes = [], []
    active = [False, False, False]
    for var in used:
        if var.kind == "atom":
            assert var.labels is not None
            labels = var.labels
        else:
            axis = plan.affine.programs.index(var)
            shape = [1, 1, 1]
            shape[axis] = -1
            labels = np.arange(grid[axis]).reshape(shape)
        for axis in range(3):
            active[axis] |= labels.shape[axis] > 1
        columns.append(labels)
        sizes.append(var.size or 1)
    space = tuple(n if a else 1 for n, a in zip(grid, active))
    programs = int(np.prod(space))
    if int(np.prod([int(s) for s in sizes], dtype=object)) != programs:
        return False
    key = np.zeros(space, np.int64)
    for labels, size in zip(columns, sizes):
        key = key * size + labels
    return len(np.unique(key)) == programs


def merge(plan: Schedule) -> None:
    """Merge variables until no two that could are left."""
    while True:
        roots = [f.substitute(plan.table) for f in plan.demand.roots]
        pair = next((p for p in _candidates(plan, roots) if _mergeable(plan, roots, *p)), None)
        if pair is None:
            return
        outer, inner = pair
        assert outer.size is not None and inner.size is not None
        name = outer.name if inner.kind == "axis" else inner.name
        merged = Var("fused", outer.size * inner.size, plan.affine.fresh(f"{name}_all"), outer=outer, inner=inner)
        # outer and inner vanish from every form: each holds `outer * inner.size + inner` with one common factor.
        plan.table = {s: f.substitute({inner: Form(0, {merged: 1}), outer: Form()}) for s, f in plan.table.items()}
        plan.table[inner], plan.table[outer] = Form(0, {merged: 1}), Form()
        for part in (outer, inner):
            for var in part.parts():
                plan.tops[var] = merged


def _candidates(plan: Schedule, roots: list[Form]) -> list[tuple[Var, Var]]:
    found: dict[tuple[Var, Var], None] = {}
    for form in roots:
        variables = form.vars
        for inner in variables:
            if inner.size is None or (inner.kind == "axis" and inner.axis is not None and inner.axis.rigid):
                continue
            if inner.kind == "loop":
                continue
            for outer in variables:
                if outer is inner or not _is_lifted_part(plan, outer):
                    continue
                if form.coefficient(outer) == form.coefficient(inner) * inner.size:
                    found[outer, inner] = None
    return list(found)


def _is_lifted_part(plan: Schedule, var: Var) -> bool:
    if var.kind == "fused":
        return all(_is_lifted_part(plan, v) for v in (var.outer, var.inner) if v is not None)
    return plan.lifted(var)


def _mergeable(plan: Schedule, roots: list[Form], outer: Var, inner: Var) -> bool:
    assert inner.size is not None
    for form in roots:
        if form.coefficient(outer) != form.coefficient(inner) * inner.size:
            return False
    axes = {v for v in inner.parts() if v.kind == "axis"}
    if not axes:
        accumulating = {f.loop.var for f in plan.folds.values() if f.sums}
        return not accumulating & {*outer.parts(), *inner.parts()}
    lifted = {v for v in (*outer.parts(), *inner.parts()) if plan.lifted(v)}
    adders = {adder: fold for fold in plan.folds.values() for _, adder in fold.sums.values()}
    for op in walk(plan.kernel.body):
        if op.kind not in ("reduce", "scan", "dot") or not any(r in plan.demand.live for r in op.results):
            continue
        position = op["axis"] if op.kind != "dot" else len(op.operands[0].shape) - 1
        gone = plan.dims[op.operands[0]][position]
        if gone is None or plan.affine.axis_var(gone) not in axes:
            continue
        reads = plan.deps(op.operands[0]) | (plan.deps(op.operands[1]) if op.kind == "dot" else frozenset())
        clash = reads & lifted
        if not clash:
            continue
        # A contraction over iterations and lanes alike is what an accumulating loop is.
        fold = adders.get(op)
        if op.kind == "reduce" and op["fn"] == "sum":
            users = plan.demand.users.get(op.result, [])
            fold = adders.get(users[0]) if len(users) == 1 and users[0].kind == "map" else None
            if fold is not None and users[0]["fn"] != "add":
                return False
        if op.kind == "scan" or fold is None or clash != {fold.loop.var}:
            return False
        if op.kind == "dot" and not all(fold.loop.var in plan.deps(v) for v in op.operands[:2]):
            return False
    return True
