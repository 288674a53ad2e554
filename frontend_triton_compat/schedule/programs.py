"""Programs renumbered and merged with lanes: ``program * BLOCK + arange`` is one variable.

Input: a `Schedule`. Output: its `table` and `tops`. Law: atoms number the programs uniquely and completely, or they are
not used; two variables merge only if every form that matters holds them in the merged proportion.
"""

from __future__ import annotations

import itertools

import numpy as np

from frontend_triton_compat.affine import Numbers, atom_key
from frontend_triton_compat.forms import Form, Symbol, Var
from frontend_triton_compat.ir import ALONG_AXIS, walk
from frontend_triton_compat.schedule.plan import Schedule

#: Reduction -> what joins its parts: a loop that does so reduces over its iterations as well.
_JOINS = {"sum": ("add",), "max": ("max", "maximum"), "min": ("min", "minimum")}


def product_grid(plan: Schedule) -> bool:
    """Whether atoms and program ids in use number the programs uniquely and completely, as a product."""
    used = _used(plan)
    return not any(v.kind == "atom" for v in used) or _is_product(plan, used)


def numbered_by_atoms(plan: Schedule) -> Numbers | None:
    """Program ids that follow from atoms: ``pid`` beside ``pid // N`` and ``pid % N`` is ``N * first + second``.

    Where one of the two is not used, it is made. None where that does not make the numbering a product.
    """
    used = _used(plan)
    told: dict[int, Form] = {}
    atoms = dict(plan.affine.atoms)
    sums: dict[bytes, Form] = {}
    for axis in range(3):
        var = plan.affine.programs[axis]
        others = [v for v in used if v is not var]
        known = [v for v in others if v.kind == "atom"]
        form = _in_terms_of(plan, axis, known) if var in used else None
        if form is None and (found := _digits(plan, axis, known)) is not None:
            digits, made_of = found
            if var not in used and not made_of:
                continue
            form = Form(0, {v: step for v, step in digits.items()})
            made = [v for v in digits if v not in known]
            others = [v for v in others if v not in made_of] + made
            atoms |= {atom_key(v.labels): v for v in made if v.labels is not None}
            sums |= {atom_key(v.labels): f for v, f in made_of.items() if v.labels is not None}
        if form is not None:
            told[axis], used = form, others
    if not told or not _is_product(plan, used):
        return None
    return Numbers(told, {key: v for key, v in atoms.items() if key not in sums}, sums)


def _used(plan: Schedule) -> list[Var]:
    found = {v: None for form in plan.demand.roots for v in form.vars if v.kind in ("program", "atom")}
    return list(found)


def _labels(plan: Schedule, var: Var) -> np.ndarray:
    """A variable's value in every program; size 1 along axes of the grid that it does not depend on."""
    if var.kind == "atom":
        assert var.labels is not None
        return var.labels
    axis = plan.affine.programs.index(var)
    return _along(axis, plan.kernel.grid[axis])


def _along(axis: int, n: int) -> np.ndarray:
    shape = [1, 1, 1]
    shape[axis] = -1
    return np.arange(n).reshape(shape)


def _is_product(plan: Schedule, used: list[Var]) -> bool:
    columns = [_labels(plan, v) for v in used]
    space = tuple(n if any(c.shape[i] > 1 for c in columns) else 1 for i, n in enumerate(plan.kernel.grid))
    programs = int(np.prod(space))
    if int(np.prod([int(v.size or 1) for v in used], dtype=object)) != programs:
        return False
    key = np.zeros(space, np.int64)
    for var, labels in zip(used, columns):
        key = key * (var.size or 1) + labels
    return len(np.unique(key)) == programs


def _in_terms_of(plan: Schedule, axis: int, atoms: list[Var]) -> Form | None:
    """A program id as an affine form of atoms that depend on its axis alone."""
    numbers = _along(axis, plan.kernel.grid[axis])
    mine = [v for v in atoms if _labels(plan, v).shape == numbers.shape]
    columns = [_labels(plan, v).reshape(-1) for v in mine]
    form, total = Form(), np.zeros(numbers.size, np.int64)
    for i, var in enumerate(mine):  # the first program where this atom is 1 and the others are 0
        alone = np.flatnonzero(sum(np.abs(c - (c is columns[i])) for c in columns) == 0)
        if alone.size != 1:
            return None
        form, total = form + Form(0, {var: int(alone[0])}), total + alone[0] * columns[i]
    return form if mine and np.array_equal(total, numbers.reshape(-1)) else None


def _digits(plan: Schedule, axis: int, atoms: list[Var]) -> tuple[dict[Var, int], dict[Var, Form]] | None:
    """A program id as a number with digits, of which these atoms are some, or hold several.

    An atom is ``pid // step % radix``; digits that lie between are made. A head beside its group of heads shares digits
    with it: both are sums of finer ones.

    Returns:
        Every digit with what it counts for, and the atoms that are sums of digits.
    """
    n = plan.kernel.grid[axis]
    numbers = _along(axis, n)
    found: dict[tuple[int, int], Var] = {}
    for var in atoms:
        labels = _labels(plan, var)
        if labels.shape != numbers.shape:
            continue
        step = int(np.argmax(labels.reshape(-1) != 0))
        radix = int(var.size or 1)
        if step < 1 or not np.array_equal(labels, numbers // step % radix):
            return None
        found[step, step * radix] = var
    if not found:
        return None
    cuts = sorted({1, n} | {cut for pair in found for cut in pair})
    digits: dict[Var, int] = {}
    for low, high in itertools.pairwise(cuts):
        if high % low:
            return None
        var = found.pop((low, high), None)
        if var is None:
            labels = numbers // low % (high // low)
            var = Var("atom", high // low, plan.affine.fresh("tile"), labels=labels)
        digits[var] = low
    sums = {
        var: Form(0, {d: at // low for d, at in digits.items() if low <= at < high})
        for (low, high), var in found.items()
    }
    return digits, sums


def merge(plan: Schedule, addresses_only: bool = False) -> None:
    """Merge variables until no two that could are left.

    With `addresses_only` it is enough that addresses hold two variables in proportion: what looks at the program alone,
    such as a loop's bound, sees it as a part of the merged variable (`Schedule.parts`).
    """
    while True:
        roots = [f.substitute(plan.table) for f in plan.demand.roots]
        pair = next((p for p in _candidates(plan, roots) if _mergeable(plan, roots, *p)), None)
        apart = False
        if pair is None and addresses_only:
            addresses = [a.form.substitute(plan.table) for a in plan.demand.accesses.values()]
            whole = (p for p in _candidates(plan, addresses) if p[0].kind == "program" and p[0] not in plan.parts)
            # a lane that is looked at without its program, as in `lane < n`, counts a dimension of its own
            pair = next(
                (p for p in whole if _mergeable(plan, [*addresses, *(f for f in roots if p[1] in f.vars)], *p)), None
            )
            apart = True
        if pair is None:
            return
        outer, inner = pair
        assert outer.size is not None and inner.size is not None
        name = outer.name if inner.kind == "axis" else inner.name
        merged = Var("fused", outer.size * inner.size, plan.affine.fresh(f"{name}_all"), outer=outer, inner=inner)
        # outer and inner vanish from every form: each holds `outer * inner.size + inner` with one common factor.
        told: dict[Symbol, Form] = {inner: Form(0, {merged: 1}), outer: Form()}
        if apart:
            told = {inner: Form(0, {merged: 1, outer: -inner.size})}
            plan.parts[outer] = (merged, inner.size)
        plan.table = {s: f.substitute(told) for s, f in plan.table.items()}
        plan.table.update(told)
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
        if op.kind not in (*ALONG_AXIS, "dot") or not any(r in plan.demand.live for r in op.results):
            continue
        position = op["axis"] if op.kind != "dot" else len(op.operands[0].shape) - 1
        gone = plan.dims[op.operands[0]][position]
        if gone is None or plan.affine.axis_var(gone) not in axes:
            continue
        reads = frozenset().union(*(plan.deps(v) for v in (op.operands[:2] if op.kind == "dot" else op.operands)))
        clash = reads & lifted
        if not clash:
            continue
        # A contraction over iterations and lanes alike is what an accumulating loop is.
        fold = adders.get(op)
        if op.kind == "reduce" and op["fn"] in _JOINS:
            users = plan.demand.users.get(op.result, [])
            fold = adders.get(users[0]) if len(users) == 1 and users[0].kind == "map" else None
            if fold is not None and users[0]["fn"] not in _JOINS[op["fn"]]:
                return False
        if op.kind in ("scan", "scan_by", "reduce_by") or fold is None or clash != {fold.loop.var}:
            return False
        if op.kind == "dot" and not all(fold.loop.var in plan.deps(v) for v in op.operands[:2]):
            return False
    return True
