"""Which elements meet: whether iterations, or programs, touch one place in memory.

Input: a `Schedule` with accesses, or a form. Output: yes or no. Law: `apart` says yes only if it is so; `programs_meet`
says yes only if it is so, for programs that it looked at, and looks at all where they are not too many. Addresses are
compared as the masks leave them; a form with run-time values in it is never said to meet anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from frontend_triton_compat.demand import Access, Conjunct
from frontend_triton_compat.forms import ARRAY_FN, Form, Opaque, Symbol, Var
from frontend_triton_compat.schedule.plan import Schedule

#: Most addresses that are written out for the question of one loop, and of all programs.
LIMIT = 1 << 21
PROGRAMS_LIMIT = 1 << 18


def injective(form: Form, variables: Iterable[Var]) -> bool:
    """Whether different values of the variables give different values of the form: steps exceed what is below them."""
    reach = 0
    for c, n in sorted((abs(form.coefficient(v)), v.count) for v in variables if v.count != 1):
        if n is None or c <= reach:
            return False
        reach += c * (n - 1)
    return True


def apart(form: Form, conditions: Sequence[Conjunct], var: Var, fixed: Collection[Var] = ()) -> bool:
    """Whether an access of one program touches other elements for every value of `var`.

    Args:
        form: the address.
        conditions: the access happens only where they hold.
        var: a loop's counter, which is in the form.
        fixed: counters of outer loops, which count as fixed like program ids.
    """
    moving = [v for v in form.vars if v.kind in ("axis", "loop") and v not in fixed]
    if form.opaques or var.count is None or any(v.count is None for v in moving):
        return False
    if injective(form, moving):
        return True
    sizes = [v.count or 1 for v in moving]
    if np.prod(sizes, dtype=object) > LIMIT:
        return False
    places: dict[Symbol, np.ndarray] = {}
    for i, (v, n) in enumerate(zip(moving, sizes)):
        places[v] = np.arange(n).reshape([-1 if i == j else 1 for j in range(len(moving))])
    address = _evaluate(Form(0, {v: form.coefficient(v) for v in moving}), places)
    keep = np.ones(sizes, np.bool_)
    for c in conditions:
        if c.form is not None and set(c.form.terms) <= set(moving):
            keep &= _evaluate(c.form, places) < 0
    at, turn = np.broadcast_to(address, sizes)[keep], np.broadcast_to(places[var], sizes)[keep]
    if not at.size:
        return True
    at = at - at.min()
    return len(np.unique(at * sizes[moving.index(var)] + turn)) == len(np.unique(at))


def programs_meet(plan: Schedule, accesses: Sequence[Access]) -> bool:
    """Whether two programs touch one element of an argument so that their order shows."""
    known = [a for a in accesses if _is_known(plan, a)]
    stores = [a for a in known if a.op.kind == "store"]
    if not stores or (len(known) == 1 and not _in_serial_loop(plan, known[0])):
        return False  # one store: its elements are written in the order of programs
    finals = [plan.form(a.form) for a in known]
    if (
        all(f == finals[0] for f in finals)
        and _counts_programs(plan, finals[0])
        and injective(finals[0], finals[0].vars)
    ):
        return False
    elements = sum(int(np.prod([v.count or 1 for v in _own(plan, a)], dtype=object)) for a in known)
    total = int(np.prod(plan.kernel.grid))
    if elements * 2 > PROGRAMS_LIMIT or total < 2:
        return False
    programs = _some_programs(plan.kernel.grid, min(total, PROGRAMS_LIMIT // elements))
    touched = {access: _touched(plan, access, programs) for access in known}
    places, writers = (np.concatenate(column) for column in zip(*(touched[store] for store in stores)))
    everyone = _writers(places, writers)
    for access in known:
        if not _clash(everyone, *touched[access]):
            continue  # whoever writes these places is this program
        for store in stores:
            alone = store is access and not _in_serial_loop(plan, store)
            if not alone and _clash(_writers(*touched[store]), *touched[access]):
                return True
    return False


def _writers(places: np.ndarray, programs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places that are written, each with the first and the last program that does."""
    where, index = np.unique(places, return_inverse=True)
    first, last = np.full(len(where), np.iinfo(np.int64).max), np.full(len(where), -1)
    np.minimum.at(first, index, programs)
    np.maximum.at(last, index, programs)
    return where, first, last


def _clash(written: tuple[np.ndarray, np.ndarray, np.ndarray], at: np.ndarray, who: np.ndarray) -> bool:
    """Whether some program writes what another one touches."""
    where, first, last = written
    if not where.size or not at.size:
        return False
    found = np.searchsorted(where, at)
    found[found == len(where)] = 0
    met = where[found] == at
    return bool((met & ((first[found] != who) | (last[found] != who))).any())


def _in_serial_loop(plan: Schedule, access: Access) -> bool:
    return any(o.kind == "while" or (o.kind == "for" and o not in plan.folds) for o in access.path)


def _counts_programs(plan: Schedule, form: Form) -> bool:
    """Whether every program variable is in a form, alone or merged with lanes."""
    have = {p for v in form.vars for p in v.parts()}
    return all(v in have for v in plan.affine.programs if v is not None)


def _closed(plan: Schedule, form: Form) -> bool:
    """Whether a form's value follows from its variables: others are divisions of these, or known in every program."""
    return all(
        plan.affine.grid_value(o.value) is not None or (o.fn in ARRAY_FN and all(_closed(plan, f) for f in o.forms))
        for o in form.opaques
    )


def _is_known(plan: Schedule, access: Access) -> bool:
    """Whether an access' addresses, and when it happens, are known in advance."""
    conditions = access.all_conditions
    return (
        access.op.kind in ("load", "store")
        and _closed(plan, access.form)
        and all(_holds_known(plan, c) for c in conditions)
        and not any(o.kind == "while" for o in access.path)
        and all(v.count is not None for v in _own(plan, access))
    )


def _holds_known(plan: Schedule, c: Conjunct) -> bool:
    if c.form is not None:
        return _closed(plan, c.form)
    return c.value is not None and plan.affine.grid_value(c.value) is not None


def _variables(form: Form) -> set[Var]:
    return set(form.vars).union(*(_variables(f) for o in form.opaques for f in o.forms), set())


def _opaques(forms: Iterable[Form]) -> list[Opaque]:
    return [o for form in forms for opaque in form.opaques for o in (opaque, *_opaques(opaque.forms))]


def _own(plan: Schedule, access: Access) -> list[Var]:
    """The variables of an access that are no program's: loop counters and lanes."""
    forms = [access.form, *(c.form for c in access.all_conditions if c.form is not None)]
    found = set().union(*map(_variables, forms))
    return sorted((v for v in found if v.kind in ("loop", "axis")), key=lambda v: v.id)


def _some_programs(grid: Sequence[int], count: int) -> np.ndarray:
    """Program numbers in the order in which they run: all, or the first with their neighbours, the last, and others."""
    total = int(np.prod(grid))
    if count >= total:
        return np.arange(total)
    steps = [1, grid[2], grid[1] * grid[2]]
    near = np.concatenate([np.arange(min(8, n)) * s for n, s in zip(reversed(grid), steps)])
    rest = np.random.default_rng(0).choice(total, max(2, count // 2), replace=False)
    first = np.arange(max(2, count // 4))
    return np.unique(np.concatenate([first, near[near < total], total - 1 - first, rest]))


def _touched(plan: Schedule, access: Access, programs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The addresses that programs touch, and which program each time."""
    own = _own(plan, access)
    shape = (len(programs), *(v.count or 1 for v in own))
    grid = plan.kernel.grid
    where = np.unravel_index(programs, grid)
    places: dict[Symbol, np.ndarray] = {}
    for i, v in enumerate(own):
        places[v] = np.arange(v.count or 1).reshape([-1 if j == i + 1 else 1 for j in range(len(shape))])
    column = [-1] + [1] * len(own)
    for axis, v in enumerate(plan.affine.programs):
        if v is not None:
            places[v] = where[axis].reshape(column)
    for v in plan.affine.atoms.values():
        assert v.labels is not None
        places[v] = np.broadcast_to(v.labels, grid)[where].reshape(column)
    for opaque in _opaques([access.form, *(c.form for c in access.all_conditions if c.form is not None)]):
        numbers = plan.affine.grid_value(opaque.value)
        if numbers is not None:
            places[opaque] = np.broadcast_to(numbers, grid)[where].astype(np.int64).reshape(column)
    at = np.broadcast_to(_evaluate(access.form, places), shape)
    keep = np.ones(shape, np.bool_)
    for c in access.all_conditions:
        if c.form is not None:
            keep = keep & (_evaluate(c.form, places) < 0)
        elif c.value is not None:
            numbers = np.broadcast_to(np.asarray(plan.affine.grid_value(c.value)), grid)[where].astype(np.bool_)
            keep = keep & (numbers != c.negate).reshape(column)
    return at[keep], np.broadcast_to(programs.reshape(column), shape)[keep]


def _evaluate(form: Form, places: Mapping[Symbol, np.ndarray]) -> np.ndarray:
    """A form's numbers."""
    out = np.asarray(form.const, np.int64)
    for symbol, c in form.terms.items():
        if isinstance(symbol, Var) or symbol in places:
            out = out + c * places[symbol]
        else:
            out = out + c * ARRAY_FN[symbol.fn](*(_evaluate(f, places) for f in symbol.forms))
    return out
