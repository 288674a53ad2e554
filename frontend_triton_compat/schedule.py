"""From one program to the whole grid: which variables exist, how far they run, and where every access goes.

Input: a `Kernel` and the `Memory` of its pointer arguments. Output: `Schedule`, which a target's emitter prints. The
steps, in order: name dimensions, find affine forms, find what is live, fold loops into variables, renumber programs
when their tiles form a product grid, merge ``program * BLOCK + arange`` into one variable, crop variables to what the
masks let through, drop masks that became true, and divide accesses into windows.
Law: for every element that Triton defines, the scheduled kernel computes what the programs compute one by one.
Programs of one launch do not see each other's writes, as on a GPU, where their order is undefined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from frontend_triton_compat.access import Memory, Slice, View, Window, choose_strides, divide, make_view
from frontend_triton_compat.affine import Affine, Form, Loop, Opaque, Symbol, Var, simplify
from frontend_triton_compat.demand import Access, Conjunct, Demand, Walker
from frontend_triton_compat.dims import Dims, infer
from frontend_triton_compat.ir import Kernel, Op, Value, walk

#: A folded loop may not make a computed value larger than this many elements.
FOLD_LIMIT = 1 << 26
_ACCUMULATE = {"add": "sum", "max": "max", "min": "min", "maximum": "max", "minimum": "min"}


@dataclass(eq=False)
class Fold:
    """A loop that became a variable.

    Attributes:
        loop: the loop.
        sums: carried values that only accumulate: block argument -> (reduction, the operation that adds).
    """

    loop: Loop
    sums: dict[Value, tuple[str, Op]] = field(default_factory=dict)


@dataclass(eq=False)
class Schedule:
    """See the module.

    Attributes:
        folds: loops that became variables; every other loop stays a loop.
        table: merged variables, as forms of the merged one.
        tops: variable -> the merged variable it is part of.
        batch: program and folded-loop variables that are not merged into a tile axis, outermost first.
        accesses: per operation, with final forms and the conditions that are left.
        views: per parameter.
        windows: per access; None for one that goes through computed indices.
        written: parameters that are stored to.
    """

    kernel: Kernel
    dims: Dims
    affine: Affine
    demand: Demand
    walker: Walker
    memories: Mapping[str, Memory]
    folds: dict[Op, Fold] = field(default_factory=dict)
    table: dict[Symbol, Form] = field(default_factory=dict)
    tops: dict[Var, Var] = field(default_factory=dict)
    batch: list[Var] = field(default_factory=list)
    accesses: dict[Op, Access] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    windows: dict[Op, Window | None] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    resolved: dict[Opaque, Form | None] = field(default_factory=dict)
    _deps: dict[Value, frozenset[Var]] = field(default_factory=dict)

    # -- forms

    def form(self, form: Form) -> Form:
        """A form over the final variables, run-time values resolved where ranges allow it."""
        out = form.substitute(self.table)
        table: dict[Symbol, Form] = {}
        for opaque in out.opaques:
            if opaque.fn:
                simple = simplify(opaque.fn, *(self.form(f) for f in opaque.forms))
                if simple is not None:
                    table[opaque] = simple
        return self.form(out.substitute(table)) if table else out

    def top(self, var: Var) -> Var:
        """The merged variable that a variable ended up in, or itself."""
        return self.tops.get(var, var)

    def axes(self, value: Value) -> tuple[Var | None, ...]:
        """The final variables of a value's tile dimensions."""
        return tuple(None if a is None else self.top(self.affine.axis_var(a)) for a in self.dims[value])

    def lifted(self, symbol: Symbol) -> bool:
        """Whether a variable counts programs or folded iterations (rather than tile elements or loop steps)."""
        if not isinstance(symbol, Var):
            return False
        if symbol.kind == "loop":
            return any(f.loop.var is symbol for f in self.folds.values())
        return symbol.kind in ("program", "atom")

    def outline(self) -> tuple[object, ...]:
        """What the schedule looks like, numbers that are only data aside: for comparing two schedules."""
        windows = []
        for op, access in self.accesses.items():
            window = self.windows[op]
            slices = window.slices if window is not None else ()
            windows.append((op.kind, access.param, len(access.mask), window is None, tuple(map(_slice_outline, slices))))
        views = {p: (v.shape, v.strides, v.origin, v.pad, v.widths) for p, v in self.views.items()}
        loops = [(loop.var.size, loop.step) for loop in self.affine.loops.values()]
        return (windows, views, [(v.name, v.count) for v in self.batch], loops, len(self.folds))

    # -- dependence

    def deps(self, value: Value) -> frozenset[Var]:
        """The program and folded-loop variables that a value's data depends on."""
        if value not in self._deps:
            self._deps[value] = frozenset()  # cuts the cycle through a carried value
            while True:
                found = self._find_deps(value)
                if found == self._deps[value]:
                    break
                self._deps[value] = found
        return self._deps[value]

    def _form_deps(self, form: Form) -> frozenset[Var]:
        out = frozenset(v for v in form.vars if self.lifted(v))
        for opaque in form.opaques:
            out |= frozenset().union(*map(self._form_deps, opaque.forms)) if opaque.fn else self.deps(opaque.value)
        return out

    def _mask_deps(self, mask: Iterable[Conjunct]) -> frozenset[Var]:
        out: frozenset[Var] = frozenset()
        for c in mask:
            if c.form is not None:
                out |= self._form_deps(c.form)
            elif c.value is not None:
                out |= self.deps(c.value)
            elif c.loop is not None and c.loop.kind == "for":
                out |= frozenset().union(*(self.deps(v) for v in c.loop.operands[:3]))
        return out

    def _find_deps(self, value: Value) -> frozenset[Var]:
        if value in self.demand.indexed:
            return self._form_deps(self.affine.form(value))
        if value in self.walker._carried:
            op, i = self.walker._carried[value]
            first = 3 if op.kind == "for" else 0
            inner = op.regions[0] if op.kind == "for" else op.regions[1]
            own = self.deps(op.operands[first + i]) | self.deps(inner.yields[i])
            if op.kind == "while":
                return own | self.deps(op.regions[0].yields[0])
            loop = self.affine.loops[op]
            return own if loop.uniform else own | self._mask_deps([Conjunct(loop=op)])
        op = value.producer
        if op is None:
            return frozenset()
        if op.kind in ("load", "atomic"):
            access = self.demand.accesses.get(op)
            out = self._form_deps(self.affine.form(op.operands[0]))
            if access is not None:
                out |= self._mask_deps(access.mask)
            return out | (self.deps(op.operands[-1]) if op.kind == "load" and op["has_other"] else frozenset())
        if op.kind == "for":
            i = op.results.index(value)
            out = self.deps(op.regions[0].args[1 + i])
            return out - {self.affine.loops[op].var}
        if op.kind == "while":
            return self.deps(op.regions[1].args[op.results.index(value)])
        if op.kind == "if":
            i = op.results.index(value)
            picked = self.deps(op.regions[0].yields[i]) | self.deps(op.regions[1].yields[i])
            return picked | self.deps(op.operands[0])
        return frozenset().union(*(self.deps(v) for v in op.operands))


def _slice_outline(piece: Slice) -> tuple[object, ...]:
    steps = sorted((v.name, v.count, step) for v, step in piece.steps.items())
    return (piece.start, steps, sorted(piece.opaques.values()))


def schedule(
    kernel: Kernel,
    memories: Mapping[str, Memory],
    uncropped: frozenset[str] = frozenset(),
    aliases: Mapping[str, tuple[str, int]] | None = None,
) -> Schedule:
    """Schedule a kernel for the whole grid.

    Args:
        kernel: the parsed kernel; its index arithmetic is rewritten in place.
        memories: what each pointer parameter points at.
        uncropped: names of variables that must keep their full size (an emitter found that it needs all of them).
        aliases: parameters that point into another one's memory: name -> (that parameter, offset in elements).
    """
    dims = infer(kernel)
    plan = _analyse(kernel, dims, memories, aliases or {}, atoms=True)
    if not _product_grid(plan):
        plan = _analyse(kernel, dims, memories, aliases or {}, atoms=False)
    _merge(plan)
    _crop(plan, uncropped)
    _finish_accesses(plan)
    _make_windows(plan)
    _order_batch(plan)
    return plan


def _analyse(
    kernel: Kernel, dims: Dims, memories: Mapping[str, Memory], aliases: Mapping[str, tuple[str, int]], atoms: bool
) -> Schedule:
    affine = Affine(kernel, dims, atoms, aliases)
    walker = Walker(kernel, dims, affine)
    plan = Schedule(kernel, dims, affine, walker.out, walker, memories)
    _fold(plan)
    return plan


# -- loops to variables


def _fold(plan: Schedule) -> None:
    for op in walk(plan.kernel.body):
        if op.kind == "for":
            fold = _foldable(plan, op)
            if fold is not None:
                plan.folds[op] = fold
    changed = True
    while changed:
        changed = False
        plan._deps.clear()
        for op, fold in list(plan.folds.items()):
            if _too_large(plan, fold):
                del plan.folds[op]
                changed = True
                break
    plan._deps.clear()
    for op, loop in plan.affine.loops.items():
        loop.var.serial = op not in plan.folds


def _foldable(plan: Schedule, op: Op) -> Fold | None:
    loop, demand = plan.affine.loops[op], plan.demand
    if loop.trips is None or loop.step is None or not loop.trips.max() > 0:
        return None
    body = op.regions[0]
    fold = Fold(loop)
    for i, arg in enumerate(body.args[1:]):
        if arg not in demand.live or arg in demand.indexed or arg in loop.carried:
            continue
        adder = body.yields[i].producer
        users = [u for u in demand.users.get(arg, []) if any(r in demand.live for r in u.results)]
        if adder is None or users != [adder] or adder not in body.ops:
            return None
        if any(u.kind == "store" or any(r in demand.live for r in u.results) for u in demand.users.get(adder.result, [])):
            return None  # somebody looks at the running total
        if [v.producer for v in body.yields].count(adder) > 1:
            return None
        if adder.kind == "map" and adder["fn"] in _ACCUMULATE and adder.operands.count(arg) == 1:
            fold.sums[arg] = (_ACCUMULATE[adder["fn"]], adder)
        elif adder.kind == "dot" and adder.operands[2] is arg and arg not in adder.operands[:2]:
            fold.sums[arg] = ("sum", adder)
        else:
            return None
    if fold.sums and not loop.uniform:
        return None
    inside = [a for o, a in demand.accesses.items() if op in a.path]
    stored = [a for a in inside if a.op.kind != "load"]
    if any(o.kind in ("while", "print_", "assert_") for o in walk(body)):
        return None
    for store in stored:
        if loop.var not in store.form.vars or store.form.opaques or store.op.kind == "atomic":
            return None
        for other in inside:
            if other is not store and _same_memory(plan, other, store) and other.form != store.form:
                return None
    return fold


def _same_memory(plan: Schedule, a: Access, b: Access) -> bool:
    return a.param == b.param


def _too_large(plan: Schedule, fold: Fold) -> bool:
    adders = {adder for _, adder in fold.sums.values()}
    for op in walk(fold.loop.op.regions[0]):
        if op.kind == "load" or op in adders:
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


# -- renumbering programs


def _product_grid(plan: Schedule) -> bool:
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


# -- merging variables


def _merge(plan: Schedule) -> None:
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


# -- cropping


def _crop(plan: Schedule, uncropped: frozenset[str]) -> None:
    accesses = plan.demand.accesses
    variables: dict[Var, None] = {}
    for access in accesses.values():
        for form in [access.form, *(c.form for c in access.all_conditions if c.form is not None)]:
            for var in plan.form(form).vars:
                variables[var] = None
    reduced = _reduced_vars(plan)
    for var in variables:
        axes = [v.axis for v in var.parts() if v.kind == "axis" and v.axis is not None]
        if var.size is None or var.name in uncropped or any(a.rigid for a in axes):
            continue
        if var.kind == "loop" and not plan.lifted(var):
            continue
        bounds: list[int | None] = []
        for access in accesses.values():
            if not _involves(plan, access, var):
                continue
            if access.op.kind == "load" and var not in reduced:
                continue
            bounds.append(_bound(plan, access, var))
        if bounds and None not in bounds:
            n = max(b for b in bounds if b is not None)
            if 0 < n < var.size:
                var.extent = n


def _reduced_vars(plan: Schedule) -> set[Var]:
    out: set[Var] = set()
    for op in walk(plan.kernel.body):
        if op.kind in ("reduce", "scan", "dot"):
            position = op["axis"] if op.kind != "dot" else len(op.operands[0].shape) - 1
            for operand in op.operands[:1] if op.kind != "dot" else op.operands[:2]:
                where = position if operand is op.operands[0] else len(operand.shape) - 2
                axis = plan.dims[operand][where]
                if axis is not None:
                    out.add(plan.top(plan.affine.axis_var(axis)))
    return out | {plan.top(f.loop.var) for f in plan.folds.values() if f.sums}


def _involves(plan: Schedule, access: Access, var: Var) -> bool:
    if var in plan.form(access.form).vars:
        return True
    values = access.op.operands[1:2] if access.op.kind != "load" else ()
    tiles = [v for value in (*values, access.op.operands[0]) for v in plan.axes(value)]
    lifted = [plan.top(v) for value in values for v in plan.deps(value)]
    return var in tiles or var in lifted


def _bound(plan: Schedule, access: Access, var: Var) -> int | None:
    best: int | None = None
    for c in access.all_conditions:
        if c.form is None:
            continue
        form = plan.form(c.form)
        k = form.coefficient(var)
        if len(form.terms) == 1 and k > 0:  # k * var + const < 0
            n = (-form.const - 1) // k + 1
            best = n if best is None else min(best, n)
    return best


def too_small(plan: Schedule) -> tuple[Access, int, int] | None:
    """A store whose mask allows more than all programs together reach: (access, reached, allowed)."""
    for access in plan.demand.accesses.values():
        if access.op.kind != "store":
            continue
        for condition in access.mask:
            if condition.form is None:
                continue
            form = plan.form(condition.form)
            (var, *rest) = form.terms or (None,)
            if rest or not isinstance(var, Var) or var.size is None or form.terms[var] != 1:
                continue
            counts_programs = any(v.kind == "program" for v in var.parts())
            if counts_programs and var.size < -form.const:
                return access, var.size, -form.const
    return None


# -- masks and windows


def _finish_accesses(plan: Schedule) -> None:
    plan._deps.clear()
    pending = True
    while pending:
        pending = False
        plan.accesses = {}
        for op, access in list(plan.demand.accesses.items()):
            needed = access.mask if op.kind == "load" else access.all_conditions
            mask = [c for c in (settle(plan, c) for c in needed) if c is not None]
            form = plan.form(access.form)
            plan.accesses[op] = Access(op, access.param, form, _unique(mask), (), access.order, access.path)
            for left in [form, *(c.form for c in mask if c.form is not None)]:
                for opaque in left.opaques:
                    if opaque.value not in plan.demand.live:
                        plan.walker.need(opaque.value)
                        pending = True
            for c in mask:
                if c.value is not None and c.value not in plan.demand.live:
                    plan.walker.need(c.value)
                    pending = True
        plan.walker._drain()
    params = {a.param: None for a in plan.accesses.values() if a.op.kind != "load"}
    plan.written = list(params)


def settle(plan: Schedule, c: Conjunct) -> Conjunct | None:
    """A condition over the final variables; None when it is always true."""
    if c.form is None:
        return c
    form = plan.form(c.form)
    bounds = form.range()
    if bounds is not None and bounds[1] < 0:
        return None
    return Conjunct(form=form)


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


def _make_windows(plan: Schedule) -> None:
    by_param: dict[str, list[Access]] = {}
    for access in plan.accesses.values():
        by_param.setdefault(access.param, []).append(access)
    for param, accesses in by_param.items():
        memory = plan.memories[param]
        forms = [a.form for a in accesses]
        masks = [
            [plan.form(c.form) for c in plan.demand.accesses[a.op].all_conditions if c.form is not None] for a in accesses
        ]
        strides = choose_strides(forms, masks, memory)
        windows = [divide(f, strides, m) for f, m in zip(forms, masks)]
        scattered = [a.form for a, w in zip(accesses, windows) if w is None]
        plan.views[param] = make_view(memory, strides, [w for w in windows if w is not None], scattered)
        for access, window in zip(accesses, windows):
            plan.windows[access.op] = window


def _order_batch(plan: Schedule) -> None:
    """Outermost first: the variable with the longest stride in the accesses."""
    reach: dict[Var, int] = {}
    candidates = [v for v in plan.affine.programs if v is not None]
    candidates += [*plan.affine.atoms.values(), *(f.loop.var for f in plan.folds.values())]
    for var in candidates:
        top = plan.top(var)
        if not any(v.kind == "axis" for v in top.parts()):
            reach.setdefault(top, 0)
    for access in plan.accesses.values():
        for var in access.form.vars:
            if var in reach:
                reach[var] = max(reach[var], abs(access.form.coefficient(var)))
    plan.batch = sorted(reach, key=lambda v: -reach[v])
    for i, var in enumerate(plan.batch):
        var.rank = i - len(plan.batch)
