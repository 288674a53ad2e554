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
from frontend_triton_compat.flow import settle as settle_facts
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
        parts: program variable -> (merged variable, elements a program), where it stays in forms beside what it is
            merged into: it is that one divided by that many.
        picked: loads that a target reads a whole row for -> the row's variable, and which of its elements they want.
        reach: (parameter, dimension) -> how far masked lanes go, where a target lets its blocks run over the end.
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
    parts: dict[Var, tuple[Var, int]] = field(default_factory=dict)
    reach: dict[tuple[str, int], int] = field(default_factory=dict)
    picked: dict[Op, tuple[Var, Form]] = field(default_factory=dict)
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
        if not isinstance(symbol, Var) or (symbol.serial and symbol.kind == "program"):
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
            found: dict[Value, _Sources] = {}

            def sources(v: Value) -> list[Value]:
                found[v] = self._sources(v)
                return found[v].values

            settle_facts(value, self._deps, sources, lambda v: self._from_sources(found[v]), frozenset())
        return self._deps[value]

    def mask_deps(self, mask: Iterable[Conjunct]) -> frozenset[Var]:
        """The program and folded-loop variables that a mask depends on."""
        sources = self._mask_sources(mask)
        for v in sources.values:
            self.deps(v)
        return self._from_sources(sources)

    def _from_sources(self, sources: _Sources) -> frozenset[Var]:
        return frozenset(sources.vars).union(*(self._deps[v] for v in sources.values)) - sources.gone

    def _form_sources(self, form: Form) -> _Sources:
        out = _Sources({v for v in form.vars if self.lifted(v)})
        for opaque in form.opaques:
            if opaque.fn:
                for inner in opaque.forms:
                    out.add(self._form_sources(inner))
            else:
                out.values.append(opaque.value)
        return out

    def _mask_sources(self, mask: Iterable[Conjunct]) -> _Sources:
        out = _Sources()
        for c in mask:
            if c.form is not None:
                out.add(self._form_sources(c.form))
            elif c.value is not None:
                out.values.append(c.value)
            elif c.loop is not None and c.loop.kind == "for":
                out.values += c.loop.operands[:3]
                out.add(self._form_sources(Form(0, {self.affine.loops[c.loop].var: 1})))
        return out

    def _sources(self, value: Value) -> _Sources:
        """What a value's data is made of."""
        if value in self.demand.indexed:
            return self._form_sources(self.affine.form(value))
        if value in self.walker.carried:
            op, i = self.walker.carried[value]
            first = 3 if op.kind == "for" else 0
            out = _Sources(values=[op.operands[first + i], op.regions[-1].yields[i]])
            if op.kind == "while":
                out.values.append(op.regions[0].yields[0])
            elif not self.affine.loops[op].uniform:
                out.add(self._mask_sources([Conjunct(loop=op)]))
            return out
        op = value.producer
        if op is None:
            return _Sources()
        if op.kind in ("load", "atomic"):
            access = self.demand.accesses.get(op)
            out = self._form_sources(self.affine.form(op.operands[0]))
            if access is not None:
                out.add(self._mask_sources(access.mask))
            if op.kind == "load" and op["has_other"]:
                out.values.append(op.operands[-1])
            return out
        if op.kind == "for":
            arg = op.regions[0].args[1 + op.results.index(value)]
            return _Sources(values=[arg], gone=frozenset({self.affine.loops[op].var}))
        if op.kind == "while":
            return _Sources(values=[op.regions[1].args[op.results.index(value)]])
        if op.kind == "if":
            i = op.results.index(value)
            return _Sources(values=[op.operands[0], *(region.yields[i] for region in op.regions)])
        return _Sources(values=list(op.operands))


@dataclass(eq=False)
class _Sources:
    """What a value depends on: variables, the data of other values, less variables that a loop ends."""

    vars: set[Var] = field(default_factory=set)
    values: list[Value] = field(default_factory=list)
    gone: frozenset[Var] = frozenset()

    def add(self, other: _Sources) -> None:
        """Depend on this as well."""
        self.vars |= other.vars
        self.values += other.values


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
