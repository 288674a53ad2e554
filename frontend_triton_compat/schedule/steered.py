"""Which programs loaded numbers steer: how long they loop, and where they read.

Input: a `Schedule` whose programs all are dimensions. Output: the program variables that have to be one number at a
time, so that the rest may stay dimensions. Law: no loop's bounds, no `while`'s condition and no run-time number in an
address depends on a program that is left a dimension.
"""

from __future__ import annotations

from frontend_triton_compat.forms import Form, Var
from frontend_triton_compat.ir import Value, walk
from frontend_triton_compat.schedule.plan import Schedule


def is_steered(plan: Schedule) -> bool:
    """Whether numbers that are known at run time only decide how long a loop runs or where a program reads."""
    loops = any(
        op.kind == "while" or (op.kind == "for" and plan.affine.loops[op].trips is None)
        for op in walk(plan.kernel.body)
    )
    return loops or any(a.form.opaques for a in plan.demand.accesses.values())


def steering(plan: Schedule) -> frozenset[Var]:
    """The programs that steer."""
    found: set[Var] = set()
    values: list[Value] = []
    for op in walk(plan.kernel.body):
        if op.kind == "for" and not plan.affine.loops[op].uniform:
            values += op.operands[:3]
        elif op.kind == "while":
            values.append(op.regions[0].yields[0])
    work = [a.form for a in plan.demand.accesses.values()]
    while work:
        for opaque in work.pop().opaques:
            if opaque.fn:
                work += opaque.forms
                found |= _programs(form_vars(opaque.forms))
            else:
                values.append(opaque.value)
    for value in values:
        found |= _programs(plan.deps(value))
    return frozenset(found)


def form_vars(forms: tuple[Form, ...]) -> set[Var]:
    """The variables in some forms."""
    return {v for form in forms for v in form.vars}


def _programs(variables: set[Var] | frozenset[Var]) -> set[Var]:
    return {part for v in variables for part in v.parts() if part.kind == "program"}
