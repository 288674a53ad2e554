"""Atomics that are plain updates: whether anyone looks at old values, and which programs meet.

Input: a schedule with atomic operations, the user's text. Output: `Update`s, and the axes of the grid whose programs
need copies of their own. Law: what is not proved, with the numbers of the launch at hand, is no `Update`; programs
along all other axes touch different elements.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontend_triton_compat.forms import Form, Opaque, Var
from frontend_triton_compat.ir import Op
from frontend_triton_compat.schedule import Schedule

#: Tensors with at most so many elements can be updated at computed places: each is compared with every place.
BINS = 4096
#: Updates whose copies can be put together afterwards.
FNS = ("add", "max", "min")


@dataclass(frozen=True)
class Update:
    """One atomic operation of the kernel.

    Attributes:
        op: the operation.
        param: the tensor that it updates.
        call: its call in the user's text.
        loop: the outermost loop of the text around it, or None.
        place: None for a tile; the text of the index for a place that is loaded or computed.
    """

    op: Op
    param: str
    call: ast.Call
    loop: ast.stmt | None
    place: ast.expr | None = None


def update_of(plan: Schedule, op: Op, text: Text) -> Update | None:
    """An atomic operation as an update that can be rewritten; None where it is more."""
    access = plan.accesses.get(op)
    fn = op.attrs.get("fn")
    if access is None or fn not in FNS or any(r in plan.demand.live for r in op.results):
        return None
    if any(a.param == access.param for a in plan.accesses.values() if a.op is not op):
        return None
    param = next((p for p in plan.kernel.params if p.name == access.param), None)
    if param is None or param.kind != "pointer":
        return None
    found = text.call_at(op)
    if found is None or argument(found[0], 0, "pointer") is None or argument(found[0], 1, "val") is None:
        return None
    call, loop = found
    window = plan.windows.get(op)
    plain = window is not None and not any(piece.opaques for piece in window.slices)
    if (plain or _apart(plan, access.form)) and _moves(plan, op, access.form):
        return Update(op, access.param, call, loop)
    place = place_of(call, access.param)
    memory = plan.memories[access.param]
    size = int(np.prod(memory.shape, dtype=np.int64))
    flat = len(op.operands[0].shape) <= 1 and memory.strides == row_major(memory.shape) and fn == "add"
    if place is None or not flat or size > BINS or not _oneplace_of(plan.form(access.form)):
        return None
    return Update(op, access.param, call, loop, place)


def _apart(plan: Schedule, form: Form) -> bool:
    """Whether the elements of one program's tile lie apart, and all else in the address follows from its number."""
    if not all(_by_number(plan, opaque) for opaque in form.opaques):
        return False
    own = {v: form.coefficient(v) for v in form.vars if v.kind not in ("program", "atom")}
    return all(v.kind == "axis" for v in own) and told_apart(own)


def told_apart(steps: Mapping[Var, int]) -> bool:
    """Whether a sum of variables times steps tells the values of all of them, as digits of a number do."""
    reach = 0
    for var, step in sorted(((v, abs(step)) for v, step in steps.items()), key=lambda pair: pair[1]):
        if var.count is None or step <= reach:
            return False
        reach += step * (var.count - 1)
    return True


def _moves(plan: Schedule, op: Op, form: Form) -> bool:
    """Whether every dimension of the tile moves the address: no two of its elements are one place."""
    moving = {part for var in plan.form(form).vars for part in var.parts()} | {plan.top(v) for v in form.vars}
    return all(var is None or var in moving or (var.count or 1) == 1 for var in plan.axes(op.operands[0]))


def _by_number(plan: Schedule, opaque: Opaque) -> bool:
    """Whether a value follows from the program's number alone."""
    if plan.affine.grid_value(opaque.value) is not None:
        return True
    forms = opaque.forms if opaque.fn else ()
    return bool(forms) and all(
        all(v.kind in ("program", "atom") for v in f.vars) and all(_by_number(plan, o) for o in f.opaques)
        for f in forms
    )


def _oneplace_of(form: Form) -> bool:
    """Whether an address is the pointer plus one run-time value."""
    return len(form.terms) == 1 and len(form.opaques) == 1 and set(form.terms.values()) == {1} and form.const == 0


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def axes_that_meet(plan: Schedule, updates: Sequence[Update]) -> tuple[int, ...]:
    """The axes of the grid whose programs need copies of their own, for all updates together."""
    every = tuple(i for i, n in enumerate(plan.kernel.grid) if n > 1)
    found: set[int] = set()
    for update in updates:
        window = plan.windows.get(update.op)
        if update.place is not None or window is None:
            return every
        if not all(told_apart(piece.steps) for piece in window.slices):
            return every
        parts = {part for piece in window.slices for var in piece.steps for part in var.parts()}
        labels = [_labels(plan, v) for v in parts if v.kind in ("program", "atom")]
        told = {axis for column in labels for axis in range(3) if column.shape[axis] > 1}
        space = tuple(n if axis in told else 1 for axis, n in enumerate(plan.kernel.grid))
        keys = (
            np.stack([np.broadcast_to(column, space).reshape(-1) for column in labels]) if labels else np.zeros((1, 1))
        )
        if np.unique(keys, axis=1).shape[1] != int(np.prod(space)):
            return every  # several programs update one part of it
        found |= {axis for axis in every if axis not in told}
    return tuple(sorted(found))


def _labels(plan: Schedule, var: Var) -> np.ndarray:
    """A variable's value in every program; size 1 along axes of the grid that it does not depend on."""
    if var.kind == "atom":
        assert var.labels is not None
        return var.labels
    axis = plan.affine.programs.index(var)
    shape = [1, 1, 1]
    shape[axis] = -1
    return np.arange(plan.kernel.grid[axis]).reshape(shape)


def iterations_meet(plan: Schedule, update: Update) -> bool:
    """Whether iterations of a loop may update one element several times, which stores in the loop would lose."""
    window = plan.windows.get(update.op)
    access = plan.accesses[update.op]
    loops = [plan.affine.loops[op].var for op in access.path if op.kind == "for"]
    if window is None or any(op.kind == "while" for op in access.path):
        return True
    parts = {part for piece in window.slices for var in piece.steps for part in var.parts()}
    return not all(told_apart(piece.steps) for piece in window.slices) or not set(loops) <= parts


# -- the user's text


class Text:
    """The kernel's text and tree.

    Attributes:
        lines: of the file.
        node: the function's, with the file's line numbers.
    """

    def __init__(self, lines: Sequence[str], node: ast.FunctionDef, plan: Schedule):
        self.lines, self.node, self.plan = lines, node, plan

    @classmethod
    def of(cls, plan: Schedule) -> Text | None:
        """The text of a kernel that is in a file."""
        where = plan.kernel.where
        lines = linecache.getlines(where.file)
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == plan.kernel.name and first_line(node) <= where.line:
                if where.line <= (node.end_lineno or 0):
                    return cls(lines, node, plan)
        return None

    def numbers(self) -> range:
        """The function's lines, decorators included."""
        return range(first_line(self.node), (self.node.end_lineno or 0) + 1)

    def load_at(self, op: Op) -> tuple[ast.Call, ast.stmt] | None:
        """The call that a load comes from, and the plain statement that it is in."""
        if op.where.file != self.plan.kernel.where.file or op.where.line not in self.numbers():
            return None
        for statement in ast.walk(self.node):
            if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
                continue
            for call in ast.walk(statement):
                if isinstance(call, ast.Call) and (call.lineno, call.col_offset + 1) == (op.where.line, op.where.col):
                    if ast.unparse(call.func) == "tl.load":
                        return call, statement
        return None

    def call_at(self, op: Op) -> tuple[ast.Call, ast.stmt | None] | None:
        """The statement's call that an operation comes from, and the outermost loop around it."""

        def search(body: Sequence[ast.stmt], loop: ast.stmt | None) -> tuple[ast.Call, ast.stmt | None] | None:
            for node in body:
                call = getattr(node, "value", None)
                if isinstance(node, ast.Expr) and isinstance(call, ast.Call) and node.lineno == op.where.line:
                    if ast.unparse(call.func) == f"tl.atomic_{op.attrs['fn']}":
                        return call, loop
                inner = loop or (node if isinstance(node, ast.For | ast.While) else None)
                for part in ("body", "orelse"):
                    found = search(getattr(node, part, []) if not isinstance(node, ast.FunctionDef) else [], inner)
                    if found is not None:
                        return found
            return None

        same = op.where.file == self.plan.kernel.where.file
        inside = self.node.lineno <= op.where.line <= (self.node.end_lineno or 0)
        return search(self.node.body, None) if same and inside else None

    def source(self, node: ast.AST) -> str:
        """A node's text as the user wrote it, on one line."""
        found = ast.get_source_segment("".join(self.lines), node)
        return " ".join((found or ast.unparse(node)).split())


def first_line(node: ast.FunctionDef) -> int:
    """A function's first line, decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument of a call by its position or its name; None where it is not there or can't be told."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    if position < len(call.args):
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg == name), None)


def place_of(call: ast.Call, param: str) -> ast.expr | None:
    """The index in ``param + index``."""
    pointer = argument(call, 0, "pointer")
    if isinstance(pointer, ast.BinOp) and isinstance(pointer.op, ast.Add):
        for base, index in ((pointer.left, pointer.right), (pointer.right, pointer.left)):
            if isinstance(base, ast.Name) and base.id == param and param not in names_in(index):
                return index
    return None


def names_in(*nodes: ast.AST | None) -> set[str]:
    """Every name that is read or bound in some nodes."""
    return {n.id for node in nodes if node is not None for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_bound(node: ast.stmt) -> set[str]:
    """Names that a statement, or one inside it, binds."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
