"""What a kernel really computes: live values, accesses with their masks, and every affine form that matters.

Input: `Kernel`, `Dims`, `Affine`, the folded loops. Output: `Demand`. Law: a value is live only if a store, an
assertion or a print depends on its data; index arithmetic that ends in an address or a mask stays a form and is never
computed. Masks are conjunctions: each conjunct is a form that must be negative, or a boolean value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from frontend_triton_compat.affine import Affine, Loop
from frontend_triton_compat.dims import Dims
from frontend_triton_compat.forms import Form
from frontend_triton_compat.ir import Block, Kernel, Op, Value
from frontend_triton_compat.types import dtype, pointer_type

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, eq=False)
class Conjunct:
    """One condition of a mask: ``form < 0``, or `value` (or its negation) is true."""

    form: Form | None = None
    value: Value | None = None
    negate: bool = False
    loop: Op | None = None  # the condition "this program still runs this loop"


@dataclass(eq=False)
class Access:
    """A load, store or atomic that happens.

    Attributes:
        op: the operation.
        param: the argument it touches.
        form: offset in elements from the argument's pointer.
        mask: the conditions of its own mask.
        conditions: those of the enclosing ifs and loops. A load needs them only to know how far it goes: what it reads
            where they do not hold is never looked at.
    """

    op: Op
    param: str
    form: Form
    mask: list[Conjunct]
    conditions: tuple[Conjunct, ...] = ()
    order: int = 0
    path: tuple[Op, ...] = ()  # enclosing loops and ifs

    @property
    def all_conditions(self) -> list[Conjunct]:
        """The mask and the path's conditions."""
        return [*self.conditions, *self.mask]

    @property
    def element(self) -> dtype:
        """The type of an element of what is touched."""
        pointer = self.op.operands[0].type.element
        assert isinstance(pointer, pointer_type)
        return pointer.element_ty


@dataclass
class Demand:
    """See the module."""

    live: set[Value] = field(default_factory=set)
    accesses: dict[Op, Access] = field(default_factory=dict)
    roots: list[Form] = field(default_factory=list)
    indexed: set[Value] = field(default_factory=set)
    users: dict[Value, list[Op]] = field(default_factory=dict)
    tested: list[Form] = field(default_factory=list)  # forms whose sign decides something while the kernel runs


class Walker:
    """Computes a `Demand` by a worklist from the kernel's effects."""

    def __init__(self, kernel: Kernel, dims: Dims, affine: Affine, ordered: bool = False):
        self.dims, self.affine, self.ordered = dims, affine, ordered
        self.out = Demand()
        self.conditions: dict[Op, tuple[Conjunct, ...]] = {}
        self.path: dict[Op, tuple[Op, ...]] = {}
        self.order: dict[Op, int] = {}
        self.carried: dict[Value, tuple[Op, int]] = {}
        self._results: dict[Value, tuple[Op, int]] = {}
        self._work: list[Value] = []
        self.looped: set[Op] = set()  # loops whose bounds are looked at while they run
        self._collect(kernel.body, (), ())
        for op in self.order:
            if op.kind in ("store", "atomic", "assert_", "print_"):
                self._effect(op)
                if ordered:  # no condition stands for the loops around it: they run as often as they should
                    for loop in self.path[op]:
                        if loop.kind in ("for", "while"):
                            self._need_loop(loop)
        self.drain()

    def _collect(self, block: Block, conditions: tuple[Conjunct, ...], path: tuple[Op, ...]) -> None:
        for op in block.ops:
            self.conditions[op], self.path[op], self.order[op] = conditions, path, len(self.order)
            for operand in op.operands:
                self.out.users.setdefault(operand, []).append(op)
            for i, result in enumerate(op.results):
                self._results[result] = (op, i)
            if op.kind == "for":
                inner = conditions + self.loop_condition(self.affine.loops[op])
                for i, arg in enumerate(op.regions[0].args[1:]):
                    self.carried[arg] = (op, i)
                self._collect(op.regions[0], inner, (*path, op))
            elif op.kind == "while":
                for region in op.regions:
                    for i, arg in enumerate(region.args):
                        self.carried[arg] = (op, i)
                    running = (Conjunct(loop=op),) if region is op.regions[1] and not self.ordered else ()
                    self._collect(region, conditions + running, (*path, op))
            elif op.kind == "if":
                then, other = op.regions
                yes = tuple(self.conjuncts(op.operands[0]))
                no = tuple(self.negated(op.operands[0]))
                self._collect(then, conditions + yes, (*path, op))
                self._collect(other, conditions + no, (*path, op))

    def loop_condition(self, loop: Loop) -> tuple[Conjunct, ...]:
        """What holds in a loop: that the program still runs it."""
        if loop.uniform or self.ordered:  # one program runs its loops exactly as often as it should
            return ()
        if loop.step is not None:
            counter = self.affine.form(loop.op.regions[0].args[0])
            form = counter - loop.hi if loop.step > 0 else loop.hi - counter
            if closed(form):
                return (Conjunct(form=form),)
        return (Conjunct(loop=loop.op),)

    # -- masks

    def conjuncts(self, value: Value) -> list[Conjunct]:
        """The conditions whose conjunction a boolean value is."""
        return self._conditions(value, True)

    def negated(self, value: Value) -> list[Conjunct]:
        """The conditions whose conjunction is the opposite of a boolean value."""
        return self._conditions(value, False)

    def _conditions(self, value: Value, holds: bool) -> list[Conjunct]:
        """The conditions whose conjunction says that a boolean value is `holds`."""
        out: list[Conjunct] = []
        work = [(value, holds)]
        while work:
            value, holds = work.pop()
            op = value.producer
            found: list[Conjunct] | None = None
            if op is None:
                pass
            elif op.kind == "const":
                found = [] if bool(op["value"]) == holds else [Conjunct(form=Form(0))]
            elif holds and op.kind in ("splat", "broadcast", "expand_dims", "trans") and op not in self.dims.renames:
                work.append((op.operands[0], True))
                continue
            elif op.kind == "map" and op["fn"] == "not":
                work.append((op.operands[0], not holds))
                continue
            elif op.kind == "map" and op["fn"] == ("and" if holds else "or") and value.type.element.is_bool():
                work += [(op.operands[1], holds), (op.operands[0], holds)]
                continue
            elif op.kind == "map" and op["fn"] in _NEGATED:
                found = self._comparison(op, op["fn"] if holds else _NEGATED[op["fn"]])
            out += [Conjunct(value=value, negate=not holds)] if found is None else found
        return out

    def _comparison(self, op: Op, fn: str) -> list[Conjunct] | None:
        a, b = op.operands
        if not a.type.element.is_int() or a.type.element.is_bool() or fn in ("eq", "ne"):
            return None
        gap = self.affine.form(a) - self.affine.form(b)
        if not closed(gap):
            return None
        one = Form(1)
        return [Conjunct(form={"lt": gap, "le": gap - one, "gt": gap.scale(-1), "ge": gap.scale(-1) - one}[fn])]

    # -- liveness

    def need(self, value: Value) -> None:
        """Mark a value's data as needed."""
        if value not in self.out.live:
            self.out.live.add(value)
            self._work.append(value)

    def need_opaques(self, form: Form) -> None:
        """Mark the run-time values in a form as needed."""
        for opaque in form.opaques:
            self.need(opaque.value)

    def drain(self) -> None:
        """Follow what was marked until nothing new is live."""
        while self._work:
            self._expand(self._work.pop())

    def root(self, form: Form) -> None:
        """Record a form that ends in an address, a mask or data."""
        self.out.roots.append(form)
        for opaque in form.opaques:
            if opaque.fn:
                for inner in opaque.forms:
                    self.root(inner)
            else:
                self.need(opaque.value)

    def need_mask(self, conditions: list[Conjunct] | tuple[Conjunct, ...]) -> None:
        """Mark what a mask depends on."""
        for c in conditions:
            if c.form is not None:
                self.root(c.form)
                self.out.tested.append(c.form)
            elif c.value is not None:
                self.need(c.value)
            elif c.loop is not None:
                self._need_loop(c.loop)

    def _effect(self, op: Op) -> None:
        conditions = list(self.conditions[op])
        if op.kind in ("store", "atomic"):
            self._access(op, mask=op.operands[-1] if op["has_mask"] else None)
            for value in op.operands[1 : len(op.operands) - op["has_mask"]]:
                self.need(value)
        else:
            self.need_mask(conditions)
            for operand in op.operands:
                self.need(operand)

    def _access(self, op: Op, mask: Value | None) -> None:
        pointer = op.operands[0]
        own = self.conjuncts(mask) if mask is not None else []
        access = Access(
            op,
            self.affine.base(pointer),
            self.affine.form(pointer),
            own,
            self.conditions[op],
            self.order[op],
            self.path[op],
        )
        self.out.accesses[op] = access
        self.root(access.form)
        if op.kind == "load":
            self.need_mask(own)
            self.out.roots += [c.form for c in access.conditions if c.form is not None]
        else:
            self.need_mask(access.all_conditions)

    def _expand(self, value: Value) -> None:
        form = self.affine.form(value) if value.type.element.is_int() else None
        if form is not None and not value.type.element.is_bool() and closed(form) and not form.opaques:
            self.out.indexed.add(value)
            self.out.roots.append(form)
            return
        if value in self.carried:
            op, i = self.carried[value]
            self._need_loop(op)
            first = 3 if op.kind == "for" else 0
            self.need(op.operands[first + i])
            self.need((op.regions[0] if op.kind == "for" else op.regions[1]).yields[i])
            if op.kind == "while":
                self.need(op.regions[0].args[i])
                self.need(op.regions[1].args[i])
            return
        if value.owner is not None:  # a loop counter
            self._need_loop(value.owner)
            return
        op, i = self._results[value]
        if op.kind == "for":
            self._need_loop(op)
            arg = op.regions[0].args[1 + i]
            loop = self.affine.loops[op]
            if arg in loop.carried:  # it advanced once an iteration: the result follows from the trip count
                self.need_opaques(loop.carried[arg][0])
                for bound in op.operands[:3]:
                    self.need(bound)
            else:
                self.need(arg)
        elif op.kind == "while":
            self.need(op.regions[1].args[i])
        elif op.kind == "if":
            self.need_mask(self.conjuncts(op.operands[0]))
            self.need(op.regions[0].yields[i])
            self.need(op.regions[1].yields[i])
        elif op.kind == "load":
            self._access(op, op.operands[1] if op["has_mask"] else None)
            if op["has_other"]:
                self.need(op.operands[-1])
        elif value.type.is_pointer:
            for operand in op.operands:
                self.need(operand) if op.kind == "ptr_add" or operand.type.is_pointer else None
        else:
            for operand in op.operands:
                self.need(operand)

    def _need_loop(self, op: Op) -> None:
        """What decides how long a loop runs: bounds that are not known, and whether the program gets there at all."""
        if op in self.looped:
            return
        self.looped.add(op)
        if op.kind == "for":
            loop = self.affine.loops[op]
            if loop.trips is None or not loop.uniform:
                self.out.roots.append(Form(0, {loop.var: 1}))
                for bound in op.operands[:3]:
                    self.need(bound)
            if loop.trips is None or (self.ordered and not loop.uniform):
                self.need_mask(self.conditions[op])
        else:
            self.need(op.regions[0].yields[0])
            self.need_mask(self.conditions[op])


def closed(form: Form) -> bool:
    """Whether a form has only variables in it, run-time values that ranges may still resolve aside."""
    return all(o.fn and all(closed(f) for f in o.forms) for o in form.opaques)
