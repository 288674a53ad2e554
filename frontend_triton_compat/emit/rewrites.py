"""Atomics that add up over programs, rewritten without atomics: the user's kernel as text, and what to call around it.

Input: a schedule with atomic operations. Output: the text of a kernel in which every program has a copy of what it
updates, and of the lines that add the copies up; or None. Law: a text is given only where it computes the same for
every order of the programs: nobody looks at old values, nothing else touches the tensor, and programs that share a copy
touch different elements of it, as the launch at hand numbers them.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontend_triton_compat.demand import Access
from frontend_triton_compat.emit.updates import (
    BINS,
    Text,
    Update,
    argument,
    axes_that_meet,
    iterations_meet,
    names_bound,
    names_in,
    place_of,
    row_major,
    update_of,
)
from frontend_triton_compat.ir import Op, Param, walk
from frontend_triton_compat.schedule import Schedule


@dataclass(frozen=True)
class Rewrite:
    """See the module.

    Attributes:
        kernel: the kernel's new text, decorators included.
        around: the lines of the launch: allocate copies, launch, add them up; "" where the launch stays.
        axes: axes of the grid whose programs have copies; none where no two programs meet.
        programs: how many copies there are.
    """

    kernel: str
    around: str
    axes: tuple[int, ...]
    programs: int

    def __str__(self) -> str:
        return f"{self.kernel}\n\n{self.around}" if self.around else self.kernel


def without_atomics(plan: Schedule) -> Rewrite | None:
    """The kernel without atomics, or None where they are more than sums over programs."""
    text = Text.of(plan)
    if text is None:
        return None
    updates = []
    for op in walk(plan.kernel.body):
        if op.kind == "atomic":
            update = update_of(plan, op, text)
            if update is None:
                return None
            updates.append(update)
    params = [u.param for u in updates]
    axes = axes_that_meet(plan, updates)
    if not updates or len(params) != len(set(params)) or axes is None:
        return None
    try:
        return _written(plan, text, updates, axes)
    except (_Unclear, SyntaxError):
        return None


def with_comparisons(plan: Schedule, access: Access) -> str | None:
    """The kernel with a gather from a small tensor as a comparison with every place; None where it is not that."""
    memory, op = plan.memories[access.param], access.op
    size = int(np.prod(memory.shape, dtype=np.int64))
    text = Text.of(plan)
    small = size <= BINS and memory.strides == row_major(memory.shape) and len(op.operands[0].shape) == 1
    found = text.load_at(op) if text is not None and small else None
    if text is None or found is None:
        return None
    call, statement = found
    index = place_of(call, access.param)
    if index is None or call.end_lineno is None or access.param in plan.written:
        return None
    page = _Page({n: text.lines[n - 1].rstrip("\n") for n in text.numbers()})
    taken = names_in(text.node) | {a.arg for a in ast.walk(text.node) if isinstance(a, ast.arg)}
    at, table = _fresh(f"{access.param}_at", taken), _fresh(f"{access.param}_table", taken)
    indent = " " * statement.col_offset
    page.before[statement.lineno] = [
        f"{indent}{at} = tl.arange(0, {1 << (size - 1).bit_length()})",
        f"{indent}{table} = tl.load({access.param} + {at}, mask={at} < {size}, other=0)",
    ]
    code = text.source(index)
    code = code if code.isidentifier() else f"({code})"
    new = f"tl.sum(tl.where({code}[:, None] == {at}[None, :], {table}[None, :], 0), axis=1)"
    mask, other = argument(call, 1, "mask"), argument(call, 2, "other")
    if mask is not None and other is not None:
        new = f"tl.where({text.source(mask)}, {new}, {text.source(other)})"
    before = page.lines[call.lineno].encode()[: call.col_offset].decode()
    behind = page.lines[call.end_lineno].encode()[call.end_col_offset :].decode()
    page.lines[call.lineno] = before + new + behind
    page.gone |= set(range(call.lineno + 1, call.end_lineno + 1))
    kernel = textwrap.dedent(page.text())
    try:
        ast.parse(kernel)
    except SyntaxError:
        return None
    return kernel


class _Unclear(Exception):
    """The user's text is not of a form that can be rewritten."""


# -- the new text


def _written(plan: Schedule, text: Text, updates: Sequence[Update], axes: tuple[int, ...]) -> Rewrite:
    page = _Page({n: text.lines[n - 1].rstrip("\n") for n in text.numbers()})
    taken = names_in(text.node) | {a.arg for a in ast.walk(text.node) if isinstance(a, ast.arg)}
    counts = [plan.kernel.grid[axis] for axis in axes]
    sizes = {
        u.param: _fresh(f"{u.param}_size", taken) if axes else str(int(np.prod(plan.memories[u.param].shape)))
        for u in updates
    }
    for update in updates:
        _replace(plan, text, update, sizes[update.param], bool(axes), page, taken)
    body = text.node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
        body = body[1:]
    if axes:
        indent = " " * body[0].col_offset
        own = [f"{indent}{param} += {_number(axes)} * {size}  # a copy of its own" for param, size in sizes.items()]
        start = min([body[0].lineno, *(d.lineno for d in getattr(body[0], "decorator_list", []))])
        page.before.setdefault(start, [])[:0] = own
        _add_parameters(text.node, list(sizes.values()), page.lines)
    kernel = textwrap.dedent(page.text())
    ast.parse(kernel)
    around = _around(plan, updates, sizes, counts) if axes else ""
    return Rewrite(kernel, around, axes, int(np.prod(counts)))


class _Page:
    """Numbered lines, and what is put before and behind some of them."""

    def __init__(self, lines: dict[int, str]):
        self.lines = lines
        self.gone: set[int] = set()
        self.before: dict[int, list[str]] = {}
        self.behind: dict[int, list[str]] = {}

    def put(self, first: int, last: int, new: Sequence[str]) -> None:
        """Lines in place of others; a comment at the end of those stays."""
        note = self.lines[last].partition("  #")[2]
        self.lines[first] = "\n".join(new) + (f"  #{note}" if note else "")
        self.gone |= set(range(first + 1, last + 1))

    def text(self) -> str:
        """All of it."""
        out: list[str] = []
        for n, line in sorted(self.lines.items()):
            out += [*self.before.get(n, ()), *([] if n in self.gone else [line]), *self.behind.get(n, ())]
        return "\n".join(out)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _number(axes: Sequence[int]) -> str:
    """Which copy is a program's."""
    text = f"tl.program_id({axes[0]})"
    for axis in axes[1:]:
        text = f"({text} * tl.num_programs({axis}) + tl.program_id({axis}))"
    return text


def _replace(plan: Schedule, text: Text, update: Update, size: str, copies: bool, page: _Page, taken: set[str]) -> None:
    """Write what stands in place of an atomic: a store, or a sum that a loop adds up and a store behind the loop."""
    call = update.call
    pointer, value = argument(call, 0, "pointer"), argument(call, 1, "val")
    mask = argument(call, 2, "mask")
    assert pointer is not None and value is not None and call.end_lineno is not None
    indent = " " * call.col_offset
    target, new, masked = text.source(pointer), text.source(value), text.source(mask) if mask is not None else None
    extra: list[str] = []
    if update.place is not None:
        at = _fresh(f"{update.param}_at", taken)
        bins = 1 << (int(np.prod(plan.memories[update.param].shape)) - 1).bit_length()
        tile = bool(update.op.operands[0].shape)
        many = bool(update.op.operands[1].shape) and not isinstance(value, ast.Constant)
        wrap = lambda code: (code if code.isidentifier() else f"({code})") + ("[:, None]" if tile else "")
        hit = f"{wrap(text.source(update.place))} == {at}{'[None, :]' if tile else ''}"
        if masked is not None:
            hit = f"{wrap(masked) if _shape_of(update.op) else f'({masked})'} & ({hit})"
        zero = "0.0" if update.op.operands[1].type.element.is_floating() else "0"
        new = f"tl.where({hit}, {wrap(new) if many and tile else new}, {zero})"
        if tile:
            hits = _fresh(f"{update.param}_hits", taken)
            page.before.setdefault(call.lineno, []).append(f"{indent}{hits} = {new}")
            new = f"tl.sum({hits}, axis=0)"
        extra = [f"{at} = tl.arange(0, {bins})"]
        target, masked = f"{update.param} + {at}", f"{at} < {size}"
    fn = update.op.attrs["fn"]
    behind_mask = f", mask={masked}" if masked is not None else ""

    def stored(value: str) -> str:
        """A store of what is in the copy alone, or of the tensor's own elements with the value."""
        if copies:
            return f"tl.store({target}, {value}{behind_mask})"
        old = f"tl.load({target}{behind_mask}{', other=0' if behind_mask else ''})"
        both = f"{old} + {value}" if fn == "add" else f"tl.{fn}imum({old}, {value})"
        return f"tl.store({target}, {both}{behind_mask})"

    store = stored(new)
    if update.loop is None:
        page.before.setdefault(call.lineno, [])[:0] = [f"{indent}{line}" for line in extra]
        page.put(call.lineno, call.end_lineno, [f"{indent}{store}"])
        return
    loop = update.loop
    assert loop.end_lineno is not None
    if update.place is None and names_bound(loop) & names_in(
        pointer, mask
    ):  # every iteration goes elsewhere, or nothing helps
        if iterations_meet(plan, update):
            raise _Unclear
        page.put(call.lineno, call.end_lineno, [f"{indent}{store}"])
        return
    if fn != "add":
        raise _Unclear
    outside = " " * loop.col_offset
    total = _fresh(f"{update.param}_sum", taken)
    shape, kind = _shape_text(plan, update, extra), update.op.operands[1].type.element.numpy_name
    added = new if update.place is not None or masked is None else f"tl.where({masked}, {new}, 0)"
    page.put(call.lineno, call.end_lineno, [f"{indent}{total} += {added}"])
    behind = f"{outside}{stored(total)}"
    first = [f"{outside}{line}" for line in (*extra, f"{total} = tl.zeros({shape}, tl.{kind})")]
    page.before.setdefault(loop.lineno, []).extend(first)
    page.behind.setdefault(loop.end_lineno, []).append(behind)


def _shape_of(op: Op) -> tuple[int, ...]:
    return op.operands[2].shape if len(op.operands) > 2 else ()


def _shape_text(plan: Schedule, update: Update, extra: Sequence[str]) -> str:
    """The shape of a sum, in the kernel's constexprs where they say it."""
    if extra:
        return f"[{extra[0].rpartition(', ')[2].rstrip(')')}]"
    known: dict[int, str] = {}
    for p in plan.kernel.params:
        if p.kind == "constexpr" and type(p.value) is int:
            known[p.value] = "" if p.value in known else p.name
    return "[" + ", ".join(known.get(n) or str(n) for n in update.op.operands[0].shape) + "]"


def _add_parameters(node: ast.FunctionDef, names: Sequence[str], lines: dict[int, str]) -> None:
    """Put parameters behind the last one without a default."""
    args = node.args.args
    plain = args[: len(args) - len(node.args.defaults)]
    if not plain:
        raise _Unclear
    last = plain[-1].annotation or plain[-1]
    assert last.end_lineno is not None and last.end_col_offset is not None
    line = lines[last.end_lineno]
    at = len(line.encode()[: last.end_col_offset].decode())
    lines[last.end_lineno] = line[:at] + "".join(f", {name}" for name in names) + line[at:]


def _around(plan: Schedule, updates: Sequence[Update], sizes: Mapping[str, str], counts: Sequence[int]) -> str:
    """What stands in place of the launch."""
    programs = int(np.prod(counts))
    out = ["# in place of the launch:"]
    copies: dict[str, str] = {}
    taken = {p.name for p in plan.kernel.params}
    for update in updates:
        name = copies[update.param] = _fresh(f"{update.param}_copies", taken)
        fn, memory = update.op.attrs["fn"], plan.memories[update.param]
        if memory.strides != row_major(memory.shape):
            raise _Unclear
        info = "finfo" if update.op.operands[1].type.element.is_floating() else "iinfo"
        shape, kind = f"({programs}, *{update.param}.shape)", f"dtype={update.param}.dtype"
        if fn == "add":
            out.append(f"{name} = torch.zeros({shape}, {kind})")
        else:
            edge = "min" if fn == "max" else "max"
            start = ("-" if fn == "max" else "") + 'float("inf")' if info == "finfo" else None
            out.append(f"{name} = torch.full({shape}, {start or f'torch.iinfo({update.param}.dtype).{edge}'}, {kind})")
    given: list[str] = []
    named = False
    for p in plan.kernel.params:
        text = copies.get(p.name) or (_value(p) if p.kind == "constexpr" else p.name)
        named = named or p.kind == "constexpr"
        given.append(f"{p.name}={text}" if named else text)
    given += [f"{size}={param}.numel()" for param, size in sizes.items()]
    grid = plan.kernel.grid
    while len(grid) > 1 and grid[-1] == 1:
        grid = grid[:-1]
    out.append(f"{plan.kernel.name}[{grid}]({', '.join(given)})")
    for update in updates:
        fn, name = update.op.attrs["fn"], copies[update.param]
        kind = f", dtype={update.param}.dtype" if fn == "add" else ""
        merged = f"{name}.sum(0{kind})" if fn == "add" else f"torch.{fn}imum({update.param}, {name}.a{fn}(0))"
        out.append(f"{update.param} += {merged}" if fn == "add" else f"{update.param}.copy_({merged})")
    return "\n".join(out)


def _value(p: Param) -> str:
    value = getattr(p.value, "value", p.value)
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else p.name


__all__ = ["Rewrite", "without_atomics"]
