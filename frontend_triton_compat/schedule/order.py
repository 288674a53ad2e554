"""Whether programs may run all at once, or one after the other.

Input: a `Schedule` whose live values and accesses are known. Output: a yes or no. Law: programs run at once only if no
order among them could show: what one of them reads, no other writes, and updates of one place commute. Elsewhere they
run as Triton's interpreter runs them: axis 0 outermost, each program in full before the next begins.
"""

from __future__ import annotations

from frontend_triton_compat.demand import Access
from frontend_triton_compat.ir import Kernel, Op, walk
from frontend_triton_compat.schedule.overlap import programs_meet
from frontend_triton_compat.schedule.plan import Schedule

#: Atomic updates whose order does not show in memory, as long as nobody looks at the old values.
COMMUTING = ("add", "max", "min", "and", "or", "xor")


def needs_order(plan: Schedule) -> bool:
    """Whether the order of programs shows through an atomic operation, or may stop one."""
    return any(op.kind == "atomic" and _shows(plan, op) for op in plan.demand.accesses)


def prints(kernel: Kernel) -> bool:
    """Whether programs print, which shows their order."""
    return any(op.kind == "print_" for op in walk(kernel.body))


def races(plan: Schedule) -> bool:
    """Whether a program touches what another one stores, as far as addresses are known in advance.

    On a GPU such a kernel has no meaning of its own; it has one in Triton's interpreter.
    """
    by_param: dict[str, list[Access]] = {}
    for access in plan.demand.accesses.values():
        by_param.setdefault(access.param, []).append(access)
    return any(programs_meet(plan, accesses) for accesses in by_param.values())


def _shows(plan: Schedule, op: Op) -> bool:
    """Whether the order of programs shows through an atomic operation."""
    if op.result in plan.demand.live or op["fn"] not in COMMUTING:
        return True
    access = plan.demand.accesses[op]
    others = [a.op for a in plan.demand.accesses.values() if a.param == access.param and a.op is not op]
    return any(other.kind != "atomic" or other["fn"] != op["fn"] for other in others)
