"""Integer values as affine forms over variables: program ids, loop counters, tile axes.

Input: a `Kernel` and its `Dims`. Output: `Affine`: a `Form` for every integer value, a parameter and a `Form` for every
pointer, a `Loop` for every `for`. Law: a form equals its value for all values of its variables; whatever is not affine
(a loaded index, a wrap-around) stands in the form as an `Opaque` symbol and is computed at run time.
Scalars that depend on program ids alone are known numbers, the launch grid being known: they are evaluated for all
programs with NumPy, and a non-affine one (a grouped tile order) becomes a variable of its own, an *atom*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bridge.diagnostics import Diagnostic, error
from frontend_triton_compat.dims import Axis, Dims
from frontend_triton_compat.forms import ARRAY_FN, Form, Opaque, Symbol, Var, simplify
from frontend_triton_compat.ir import Block, Kernel, Op, Value
from frontend_triton_compat.types import dtype

#: How many divisions, remainders, minima and maxima inside each other are kept as forms; more are computed.
MAX_NESTED = 16


@dataclass(eq=False)
class Loop:
    """What is known of a `for`.

    Attributes:
        op: the operation.
        var: its iteration counter.
        trips: trip count of every program (shape of the grid), or None when it is known only at run time.
        lo, hi: bounds as forms; `step` as an int, or None at run time.
        carried: carried values that advance by a constant: block argument -> (start, step per iteration).
    """

    op: Op
    var: Var
    trips: np.ndarray | None
    lo: Form
    hi: Form
    step: int | None
    carried: dict[Value, tuple[Form, int]] = field(default_factory=dict)

    @property
    def uniform(self) -> bool:
        """Whether every program runs it equally often, known in advance."""
        return self.trips is not None and bool((self.trips == self.trips.flat[0]).all())


@dataclass(frozen=True)
class Numbers:
    """Program ids as forms of atoms.

    Attributes:
        programs: axis of the grid -> the form of its program id.
        atoms: the atoms, by their key.
        sums: what would be an atom and is a form of others, by its key.
    """

    programs: Mapping[int, Form]
    atoms: Mapping[bytes, Var]
    sums: Mapping[bytes, Form] = field(default_factory=dict)


def atom_key(labels: np.ndarray) -> bytes:
    """What tells one atom from another: its value in every program."""
    return np.array(labels.shape).tobytes() + labels.astype(np.int32).tobytes()


def int_range(element: dtype) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    bits = element.primitive_bitwidth
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if element.kind == "int" else (0, 2**bits - 1)


class Affine:
    """The forms of a kernel; see the module."""

    def __init__(
        self,
        kernel: Kernel,
        dims: Dims,
        atoms: bool = True,
        aliases: Mapping[str, tuple[str, int]] | None = None,
        numbers: Numbers | None = None,
    ):
        self.kernel, self.dims, self.use_atoms, self.aliases = kernel, dims, atoms, aliases or {}
        self._names: dict[str, int] = {}
        told: Mapping[int, Form] = numbers.programs if numbers is not None else {}
        self.programs = tuple(
            Var("program", n, self.fresh("pid")) if n > 1 and i not in told else None for i, n in enumerate(kernel.grid)
        )
        self.program_ids = [told.get(i, Form(0, {v: 1} if v else {})) for i, v in enumerate(self.programs)]
        self.axis_vars: dict[Axis, Var] = {}
        self.atoms: dict[bytes, Var] = dict(numbers.atoms) if numbers is not None else {}
        self._sums: Mapping[bytes, Form] = numbers.sums if numbers is not None else {}
        self.loops: dict[Op, Loop] = {}
        self._forms: dict[Value, Form] = {}
        self._bases: dict[Value, str] = {}
        self._grid: dict[Value, np.ndarray] = {}
        self._block(kernel.body)

    def fresh(self, name: str) -> str:
        """A variable name that this kernel does not use yet."""
        count = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}{count}" if count else name

    # -- what the other passes ask

    def form(self, value: Value) -> Form:
        """The form of an integer value, or of a pointer's offset in elements."""
        if value not in self._forms:
            self._forms[value] = Form(0, {Opaque(value): 1})
        return self._forms[value]

    def base(self, pointer: Value) -> str:
        """The parameter that a pointer value points into."""
        return self._bases[pointer]

    def axis_var(self, axis: Axis) -> Var:
        """The variable that counts an axis."""
        if axis not in self.axis_vars:
            self.axis_vars[axis] = Var("axis", axis.size, self.fresh("lane"), axis=axis)
        return self.axis_vars[axis]

    def grid_value(self, value: Value) -> np.ndarray | None:
        """A scalar's value in every program (broadcastable to the grid), if it is known in advance."""
        return self._grid.get(value)

    # -- the walk

    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        if op.kind == "for":
            self._for(op)
        elif op.kind == "while":
            cond, body = op.regions
            for arg, other, init in zip(body.args, cond.args, op.operands):
                self._inherit_base(arg, init)
                self._inherit_base(other, init)
            self._block(cond)
            self._block(body)
            for arg, final in zip(body.args, body.yields):
                if arg.type.is_pointer and not self._same_base(arg, final):
                    raise pointer_choice(op, self._bases.get(arg, "?"), self._bases.get(final, "?"))
            for result, init in zip(op.results, op.operands):
                self._inherit_base(result, init)
        elif op.kind == "if":
            for region in op.regions:
                self._block(region)
            for result, a, b in zip(op.results, op.regions[0].yields, op.regions[1].yields):
                if result.type.is_pointer and not self._same_base(a, b):
                    raise pointer_choice(op, self._bases.get(a, "?"), self._bases.get(b, "?"))
                self._inherit_base(result, a)
                if result.type.element.is_int() or result.type.is_pointer:
                    same = self._same_base(a, b) and self.form(a) == self.form(b)
                    if same:
                        self._forms[result] = self.form(a)
                    elif not result.type.is_pointer and all(v in self._grid for v in (op.operands[0], a, b)):
                        self._grid[result] = np.where(*(self._grid[v] for v in (op.operands[0], a, b)))
                        self._forms[result] = self._scalar_form(result)
        elif len(op.results) == 1:
            self._value(op, op.result)

    def _inherit_base(self, value: Value, source: Value) -> None:
        if source in self._bases:
            self._bases[value] = self._bases[source]

    def _same_base(self, a: Value, b: Value) -> bool:
        return self._bases.get(a) == self._bases.get(b)

    def _value(self, op: Op, result: Value) -> None:
        element = result.type.element
        if op.kind == "arg" and result.type.is_pointer:
            base, offset = self.aliases.get(op["name"], (op["name"], 0))
            self._bases[result], self._forms[result] = base, Form(offset)
            return
        if result.type.is_pointer:
            pointers = [v for v in op.operands if v.type.is_pointer]
            for other in pointers[1:]:
                if not self._same_base(pointers[0], other):
                    raise pointer_choice(op, self._bases.get(pointers[0], "?"), self._bases.get(other, "?"))
            for operand in pointers[:1]:
                self._inherit_base(result, operand)
        if not (element.is_int() or result.type.is_pointer):
            return
        self._note_grid_value(op, result)
        form = self._scalar_form(result) if result in self._grid else self._structural(op, result)
        if form is not None and result in self._grid and any(o.value is result for o in form.opaques):
            form = self._structural(op, result) or form  # no even steps, but what it is made of may have them
        if form is None:
            return
        bounds = form.range()
        if bounds is None and op.kind == "map" and element.is_int() and element.primitive_bitwidth < 32:
            return  # narrow arithmetic wraps around soon
        if bounds is not None and element.is_int() and not element.is_bool():
            lo, hi = int_range(element)  # type: ignore[arg-type]
            if bounds[0] < lo or bounds[1] > hi:
                return  # it wraps around: computed at run time
        self._forms[result] = form

    def _note_grid_value(self, op: Op, result: Value) -> None:
        """Evaluate a scalar for all programs when only program ids and constants are in it."""
        if result.shape or not isinstance(result.type.element, dtype):
            return
        if op.kind == "const":
            if not -(2**63) <= op["value"] < 2**63:
                return  # a uint64 that no signed number holds: data
            value = np.full((1, 1, 1), op["value"], np.bool_ if result.type.element.is_bool() else np.int64)
        elif op.kind == "program_id":
            axis = op["axis"]
            shape = [1, 1, 1]
            shape[axis] = self.kernel.grid[axis]
            value = np.arange(self.kernel.grid[axis], dtype=np.int64).reshape(shape)
        elif op.kind in ("cast", "map") and all(v in self._grid for v in op.operands):
            operands = [self._grid[v] for v in op.operands]
            if op.kind == "map":
                fn = ARRAY_FN.get(op["fn"])
                if fn is None or (op["fn"] in ("idiv", "imod") and not operands[1].all()):
                    return
                value = fn(*operands)
            else:
                value = operands[0]
            value = _wrap(value, result.type.element)
        else:
            return
        self._grid[result] = value

    def _scalar_form(self, result: Value) -> Form:
        """A known scalar as an affine form of program ids, else of an atom, else opaque."""
        values = self._grid[result].astype(np.int64)
        origin = int(values.flat[0])
        form, rebuilt = Form(origin), np.full((1, 1, 1), origin, np.int64)
        for axis, number in enumerate(self.program_ids):
            if number.terms and values.shape[axis] > 1:
                step = int(np.take(values, 1, axis).flat[0]) - origin
                form = form + number.scale(step)
                shape = [1, 1, 1]
                shape[axis] = -1
                rebuilt = rebuilt + step * np.arange(values.shape[axis]).reshape(shape)
        if np.array_equal(np.broadcast_to(rebuilt, values.shape), values):
            return form
        distinct, labels = np.unique(values, return_inverse=True)
        steps = np.diff(distinct)
        if not self.use_atoms or len(distinct) < 2 or (steps != steps[0]).any():
            return Form(0, {Opaque(result): 1})
        labels = labels.reshape(values.shape)
        key = atom_key(labels)
        if key in self._sums:
            return Form(int(distinct[0])) + self._sums[key].scale(int(steps[0]))
        if key not in self.atoms:
            self.atoms[key] = Var("atom", len(distinct), self.fresh(result.name or "tile"), labels=labels)
        atom = self.atoms[key]
        return Form(int(distinct[0]), {atom: int(steps[0])})

    def _structural(self, op: Op, result: Value) -> Form | None:
        x = op.operands
        if op.kind == "arange":
            (axis,) = self.dims[result]
            terms: dict[Symbol, int] = {self.axis_var(axis): 1} if axis is not None else {}
            return Form(op["start"], terms)
        if op.kind in ("splat", "broadcast", "cast") and (x[0].type.element.is_int() or x[0].type.is_pointer):
            return self._through(op, x[0])
        if op.kind in ("expand_dims", "trans", "reshape"):
            if op in self.dims.renames:
                return self._renamed(op, x[0], result)
            kept = [a for a in self.dims[x[0]] if a is not None] == [a for a in self.dims[result] if a is not None]
            return self.form(x[0]) if kept or op.kind == "trans" else None
        if op.kind == "ptr_add":
            return self.form(x[0]) + self.form(x[1])
        if op.kind == "map":
            return self._map(op, x, result)
        return None

    def _through(self, op: Op, source: Value) -> Form | None:
        form = self.form(source)
        if op.kind != "cast":
            return form
        before, after = source.type.element, op.result.type.element
        if after.is_bool() or before.is_bool():
            return None
        if form.range() is None and before != after:
            return None  # a narrower type cuts it off, a wider one must see what has wrapped around before
        return form

    def _renamed(self, op: Op, source: Value, result: Value) -> Form:
        table: dict[Symbol, Form] = {
            self.axis_var(a): Form(0, {self.axis_var(b): 1}) for a, b in self.dims.renaming(op).items()
        }
        form = self.form(source)
        if form.opaques:  # a run-time tile under new names is another symbol
            return Form(0, {Opaque(result): 1})
        return form.substitute(table)

    def _map(self, op: Op, x: tuple[Value, ...], result: Value) -> Form | None:
        fn = op["fn"]
        if result.type.element.is_bool():
            return None
        if fn == "neg":
            return self.form(x[0]).scale(-1)
        if len(x) != 2:
            return None
        a, b = self.form(x[0]), self.form(x[1])
        if fn == "add":
            return a + b
        if fn == "sub":
            return a - b
        if fn == "mul" and (a.is_const or b.is_const):
            return b.scale(a.const) if a.is_const else a.scale(b.const)
        if fn == "shl" and b.is_const and 0 <= b.const < 63:
            return a.scale(1 << b.const)
        if fn in ("imod", "idiv", "min", "max"):
            simple = simplify(fn, a, b)
            if simple is not None:
                return simple
            nested = Opaque(result, fn, (a, b))
            return Form(0, {nested if nested.size <= MAX_NESTED else Opaque(result): 1})
        return None

    # -- loops

    def _for(self, op: Op) -> None:
        lo, hi, step = op.operands[:3]
        body = op.regions[0]
        arrays = [self._grid.get(v) for v in (lo, hi, step)]
        trips: np.ndarray | None = None
        size: int | None = None
        constant_step: int | None = None
        if arrays[2] is not None and (arrays[2] == arrays[2].flat[0]).all() and arrays[2].flat[0] != 0:
            constant_step = int(arrays[2].flat[0])
        if arrays[0] is not None and arrays[1] is not None and constant_step is not None:
            span = (arrays[1] - arrays[0]).astype(np.int64)
            trips = np.maximum(0, -((-span) // constant_step))
            size = int(trips.max())
        var = Var("loop", size, self.fresh(body.args[0].name or "k"))
        loop = Loop(op, var, trips, self.form(lo), self.form(hi), constant_step)
        self.loops[op] = loop
        counter, carried = body.args[0], body.args[1:]
        if constant_step is not None:
            self._forms[counter] = loop.lo + Form(0, {var: constant_step})
        for arg, init in zip(carried, op.operands[3:]):
            self._inherit_base(arg, init)
        self._find_inductions(loop, carried)
        self._block(body)
        for arg, final in zip(carried, body.yields):
            if arg.type.is_pointer and not self._same_base(arg, final):
                raise pointer_choice(op, self._bases.get(arg, "?"), self._bases.get(final, "?"))
        for arg, result, init in zip(carried, op.results, op.operands[3:]):
            self._inherit_base(result, init)
            if arg in loop.carried and loop.uniform and trips is not None:
                start, advance = loop.carried[arg]
                self._forms[result] = start + Form(advance * int(trips.flat[0]))
            elif trips is not None and size == 0 and (init.type.element.is_int() or init.type.is_pointer):
                self._forms[result] = self.form(init)

    def _find_inductions(self, loop: Loop, carried: tuple[Value, ...]) -> None:
        """Carried values that grow by a constant each iteration become affine in the iteration counter."""
        body = loop.op.regions[0]
        candidates = [a for a in carried if a.type.element.is_int() or a.type.is_pointer]
        if not candidates:
            return
        before = (dict(self._forms), dict(self._bases), dict(self._grid), dict(self.loops), dict(self.atoms))
        probes: dict[Value, Opaque] = {}
        for arg in candidates:
            probes[arg] = Opaque(arg)
            self._forms[arg] = Form(0, {probes[arg]: 1})
        self._block(body)
        found: dict[Value, int] = {}
        for arg, final in zip(carried, body.yields):
            if arg in probes and final in self._forms:
                difference = self._forms[final] - Form(0, {probes[arg]: 1})
                if difference.is_const and self._same_base(arg, final):
                    found[arg] = difference.const
        self._forms, self._bases, self._grid, self.loops, self.atoms = before
        self.loops[loop.op] = loop
        inits = dict(zip(carried, loop.op.operands[3:]))
        for arg, advance in found.items():
            loop.carried[arg] = (self.form(inits[arg]), advance)
            self._forms[arg] = self.form(inits[arg]) + Form(0, {loop.var: advance} if advance else {})


def _wrap(values: np.ndarray, element: object) -> np.ndarray:
    assert isinstance(element, dtype)
    if element.is_bool():
        return values.astype(np.bool_)
    if values.dtype == np.bool_:
        return values.astype(np.int64)
    bits = element.primitive_bitwidth
    if bits >= 64:
        return values
    low = values & ((1 << bits) - 1)
    return np.where(low >> (bits - 1), low - (1 << bits), low) if element.kind == "int" else low


def pointer_choice(op: Op, first: str, second: str) -> Diagnostic:
    """The diagnostic for a pointer that is one argument's or another's, as the program runs."""
    return error(
        "pointer-choice",
        f"a pointer that points into {first!r} or into {second!r}",
        where=op.where,
        why="every access belongs to one argument, so that its window is known; here a run-time value decides which",
        do="choose between the loaded values instead of the pointers:\n"
        f"    tl.where(condition, tl.load({first} + i), tl.load({second} + i))",
    )
