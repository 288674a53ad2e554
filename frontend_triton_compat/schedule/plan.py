"""The schedule as a value: variables, their extents, accesses and windows.

Input: filled by the passes of this package. Output: read by a target's emitter. Law: `form` gives a form over the final
variables; `deps` says which programs and folded iterations a value's data depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from frontend_triton_compat.access import Memory, Slice, View, Window
from frontend_triton_compat.affine import Affine, Loop
from frontend_triton_compat.demand import Access, Conjunct, Demand, Walker
from frontend_triton_compat.dims import Dims
from frontend_triton_compat.forms import Form, Opaque, Symbol, Var, simplify
from frontend_triton_compat.ir import Kernel, Op, Value


@dataclass(eq=False)
class Fold:
    """A loop that became a variable.

    Attributes:
        loop: the loop.
        sums: carried values that only accumulate: block argument -> (reduction, the operation that adds). A dot whose
            product is added, and nothing else, is itself that operation.
        absorbed: operations that have no statement of their own: those that add.
    """

    loop: Loop
    sums: dict[Value, tuple[str, Op]] = field(default_factory=dict)
    absorbed: set[Op] = field(default_factory=set)


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
        chunk: the serial variable that the whole kernel is run over, or None.
        ordered: whether programs run one after the other, each in full, because they may see each other's writes.
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
    chunk: Var | None = None
    ordered: bool = False
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
        if not isinstance(symbol, Var) or (self.ordered and symbol.kind == "program"):
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
            windows.append(
                (op.kind, access.param, len(access.mask), window is None, tuple(map(_slice_outline, slices)))
            )
        views = {p: (v.shape, v.strides, v.origin, v.pad, v.widths) for p, v in self.views.items()}
        loops = [(loop.var.size, loop.step) for loop in self.affine.loops.values()]
        return (windows, views, [(v.name, v.count) for v in self.batch], loops, len(self.folds))

    # -- dependence

    def forget(self) -> None:
        """Drop what `deps` remembers: folds or live values changed."""
        self._deps.clear()

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

    def mask_deps(self, mask: Iterable[Conjunct]) -> frozenset[Var]:
        """The program and folded-loop variables that a mask depends on."""
        out: frozenset[Var] = frozenset()
        for c in mask:
            if c.form is not None:
                out |= self._form_deps(c.form)
            elif c.value is not None:
                out |= self.deps(c.value)
            elif c.loop is not None and c.loop.kind == "for":
                out |= frozenset().union(*(self.deps(v) for v in c.loop.operands[:3]))
                out |= self._form_deps(Form(0, {self.affine.loops[c.loop].var: 1}))
        return out

    def _find_deps(self, value: Value) -> frozenset[Var]:
        if value in self.demand.indexed:
            return self._form_deps(self.affine.form(value))
        if value in self.walker.carried:
            op, i = self.walker.carried[value]
            first = 3 if op.kind == "for" else 0
            inner = op.regions[0] if op.kind == "for" else op.regions[1]
            own = self.deps(op.operands[first + i]) | self.deps(inner.yields[i])
            if op.kind == "while":
                return own | self.deps(op.regions[0].yields[0])
            loop = self.affine.loops[op]
            return own if loop.uniform else own | self.mask_deps([Conjunct(loop=op)])
        op = value.producer
        if op is None:
            return frozenset()
        if op.kind in ("load", "atomic"):
            access = self.demand.accesses.get(op)
            out = self._form_deps(self.affine.form(op.operands[0]))
            if access is not None:
                out |= self.mask_deps(access.mask)
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


def settle(plan: Schedule, c: Conjunct) -> Conjunct | None:
    """A condition over the final variables; None when it is always true."""
    if c.form is None:
        return c
    form = plan.form(c.form)
    bounds = form.range()
    if bounds is not None and bounds[1] < 0:
        return None
    return Conjunct(form=form)
