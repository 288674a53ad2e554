"""Accesses settled: masks without what is always true, windows into views, the order of batch dimensions.

Input: a `Schedule` with cropped variables. Output: its `accesses`, `views`, `windows`, `written`, `batch`. Law: an
access without a window goes through computed indices, and the values in them are live.
"""

from __future__ import annotations

from frontend_triton_compat.access import choose_strides, divide, make_view
from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.schedule.plan import Schedule, settle


def finish_accesses(plan: Schedule) -> None:
    """Give every access its final form and the conditions that are left."""
    plan.forget()
    pending = True
    while pending:
        pending = False
        plan.accesses = {}
        for op, access in list(plan.demand.accesses.items()):
            needed = access.mask if op.kind == "load" else access.all_conditions
            mask = [c for c in (settle(plan, c) for c in needed) if c is not None]
            form = plan.form(access.form)
            plan.accesses[op] = Access(op, access.param, form, _unique(mask), (), access.order, access.path)
            pending |= _need_opaques(plan, [form, *(c.form for c in mask if c.form is not None)])
            for c in mask:
                if c.value is not None and c.value not in plan.demand.live:
                    plan.walker.need(c.value)
                    pending = True
        settled = (settle(plan, Conjunct(form=form)) for form in list(plan.demand.tested))
        pending |= _need_opaques(plan, [c.form for c in settled if c is not None and c.form is not None])
        plan.walker.drain()
    params = {a.param: None for a in plan.accesses.values() if a.op.kind != "load"}
    plan.written = list(params)


def _need_opaques(plan: Schedule, forms: list[Form]) -> bool:
    """Mark the run-time values that are left in forms as needed; whether one was not."""
    missing = [o.value for form in forms for o in form.opaques if o.value not in plan.demand.live]
    for value in missing:
        plan.walker.need(value)
    return bool(missing)


def _unique(mask: list[Conjunct]) -> list[Conjunct]:
    seen: list[Form] = []
    out = []
    for c in mask:
        if c.form is not None:
            if c.form in seen:
                continue
            seen.append(c.form)
        out.append(c)
    return out


def make_windows(plan: Schedule, blocked: bool = False) -> None:
    """Choose a view for every argument, and a window in it for every access; `blocked` as for `schedule`."""
    by_param: dict[str, list[Access]] = {}
    for access in plan.accesses.values():
        by_param.setdefault(access.param, []).append(access)
    for param, accesses in by_param.items():
        memory = plan.memories[param]
        forms = [a.form for a in accesses]
        masks = [
            [plan.form(c.form) for c in plan.demand.accesses[a.op].all_conditions if c.form is not None]
            for a in accesses
        ]
        strides = choose_strides(forms, masks, memory, blocked)
        windows = [divide(f, strides, m) for f, m in zip(forms, masks)]
        scattered = [a.form for a, w in zip(accesses, windows) if w is None]
        plan.views[param] = make_view(memory, strides, [w for w in windows if w is not None], scattered)
        for access, window in zip(accesses, windows):
            plan.windows[access.op] = window


def order_batch(plan: Schedule) -> None:
    """Outermost first: the variable with the longest stride in the accesses."""
    reach: dict[Var, int] = {}
    candidates = [v for v in plan.affine.programs if v is not None]
    candidates += [*plan.affine.atoms.values(), *(f.loop.var for f in plan.folds.values())]
    for var in candidates:
        top = plan.top(var)
        if not top.serial and not any(v.kind == "axis" for v in top.parts()):
            reach.setdefault(top, 0)
    for access in plan.accesses.values():
        for var in access.form.vars:
            if var in reach:
                reach[var] = max(reach[var], abs(access.form.coefficient(var)))
    plan.batch = sorted(reach, key=lambda v: -reach[v])
    for i, var in enumerate(plan.batch):
        var.rank = i - len(plan.batch)
