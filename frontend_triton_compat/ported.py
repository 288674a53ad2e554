"""A kernel as a module of its own: the emitted source with the user's lines beside what was made of them.

Input: an emitted `Module`, the kernel, one launch of it. Output: the text of a module that imports jax only. Law: what
it computes is what the emitted source computes: lines are annotated, and a value without a name of the user's that is
used once is written where it is used.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.devices import Target
from frontend_triton_compat.arguments import Call
from frontend_triton_compat.emit.module import Module
from frontend_triton_compat.offline import specs_of, translate

if TYPE_CHECKING:
    from frontend_triton_compat.launch import JITFunction

_MARK = re.compile(r"  # (?:line |(\S+\.py):)(\d+)$")
#: Columns that a line may reach by having values written into it, and beyond which it is broken.
_WIDTH, _WIDE, _ANY = 100, 112, 10**6


@dataclass(frozen=True)
class Ported:
    """One kernel, ready to be put into a module.

    Attributes:
        name: of the function to call.
        head: comments: where it comes from, and the launch.
        imports: import statements.
        helpers: functions that kernels call, by name.
        body: the kernel and the function that calls it.
        example: statements that call it on arrays of the launch's shapes.
    """

    name: str
    head: tuple[str, ...]
    imports: tuple[str, ...]
    helpers: Mapping[str, str]
    body: str
    example: tuple[str, ...]


def port(kernel: JITFunction, arguments: Mapping[str, Any], grid: Any, target: str, launch: str = "") -> Ported:
    """A kernel's form for a target, for a module of its own.

    Args:
        kernel: the kernel, without wrappers.
        arguments: every argument of the launch by name; arrays need no data.
        grid: the launch's grid.
        target: ``tpu:v5e`` ...
        launch: the launch as text, for the head.

    Raises:
        TranslationError: the kernel has no translation for the target.
    """
    module = translate(kernel, (), arguments, grid, target)
    call = kernel._signature.call((), arguments, placeless=True)
    where = kernel.where
    file = where.file if where is not None else ""
    fp16 = Target.parse(target).kind == "gpu"
    takes = [
        line for line in _described(module, call, fp16) if "interpret" not in line or "interpret=False" in module.source
    ]
    users = _Users(file, where.line if where is not None else 0, frozenset(kernel.fn.__code__.co_varnames))
    text = _annotated(module, users, takes)
    place = f"{Path(file).name}:{where.line}" if where is not None else kernel.fn.__name__
    shown = textwrap.wrap(launch, _WIDE, initial_indent="  ", subsequent_indent="      ", break_long_words=False)
    head = [f"`{module.entry}` is {place} for {target}; quoted lines are of that file. Its launch:", *shown]
    imports, helpers, body = _parted(text, module.entry)
    return Ported(
        module.entry, tuple(head if launch else head[:1]), imports, helpers, body, _example(module, call, text, fp16)
    )


_TPU_OR_NOT = (
    "    # Elsewhere than on a TPU every grid step is simulated: small shapes, or patience.",
    '    interpret = False if jax.default_backend() == "tpu" else pltpu.InterpretParams()',
)


_GPU_ONLY = (
    '    if jax.default_backend() != "gpu":',
    '        raise SystemExit("these kernels run on an NVIDIA GPU; without one, `torch-pallas verify` simulates them")',
)


def module_of(parts: Sequence[Ported]) -> str:
    """The text of a module with one or several kernels."""
    imports = dict.fromkeys(line for part in parts for line in part.imports)
    helpers: dict[str, str] = {}
    for part in parts:
        helpers |= part.helpers
    several = len(parts) > 1
    text = ['"""Pallas kernels, written by `torch-pallas port`."""', "", *imports]
    text += [line for helper in helpers.values() for line in ("", "", helper)]
    for part in parts:
        text += ["", "", *(f"# {line}" for line in part.head), part.body]
    text += ["", "", 'if __name__ == "__main__":', "    keys = iter(jax.random.split(jax.random.key(0), 256))"]
    if any("interpret=interpret" in line for part in parts for line in part.example):
        text += _TPU_OR_NOT
    if any("mosaic_gpu" in line for line in imports):
        text += _GPU_ONLY
    for part in parts:
        text += [""] * several + [f"    {line}" if line else "" for line in part.example]
    return "\n".join(text) + "\n"


def _parted(text: str, entry: str) -> tuple[tuple[str, ...], dict[str, str], str]:
    """The imports of a module, its helpers by name, and the rest."""
    lines = text.splitlines()
    imports: list[str] = []
    helpers: dict[str, str] = {}
    rest: list[str] = []
    for node in ast.parse(text).body:
        first = _first(node)
        piece = "\n".join(lines[first - 1 : node.end_lineno])
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(piece)
        elif isinstance(node, ast.FunctionDef) and node.name not in (entry, f"{entry}_kernel"):
            helpers[node.name] = piece
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            rest.append(piece)
    return tuple(imports), helpers, "\n\n\n".join(rest)


def _described(module: Module, call: Call, fp16: bool) -> list[str]:
    """The docstring of the function that is called: what it takes and returns."""
    lines = ["Run the kernel.", "", "Args:"]
    for operand, spec in zip(module.operands, specs_of(module, call, fp16)):
        text = f"    {operand.param}: {spec.dtype.name}[{', '.join(map(str, operand.shape))}]"
        lines.append(text + ("." if operand.scalar else _lying(call, operand.param, operand.shape, operand.start)))
    lines += ["    interpret: whether to run it without a TPU.", "", "Returns:"]
    for result in module.results:
        whole = all(b == (0, n) for b, n in zip(result.box, result.shape))
        part = "" if whole else ", of which [" + ", ".join(f"{lo}:{hi}" for lo, hi in result.box) + "] is written"
        shape = ", ".join(map(str, result.shape))
        text = f"    The new {result.param}[{shape}]{part}"
        lines.append(text + _lying(call, result.param, result.shape, 0))
    return lines


def _lying(call: Call, param: str, shape: Sequence[int], start: int) -> str:
    """How an operand lies in the launch's argument, where it is not simply that."""
    t = call.arrays[param]
    if tuple(t.shape) == tuple(shape) and not start:
        return "."
    strides = f" with strides {tuple(t.stride())}" if hasattr(t, "stride") and not t.is_contiguous() else ""
    begin = f", from its element {start}" if start else ""
    return f", the memory of the launch's {list(t.shape)}{strides}{begin}."


@dataclass
class _Users:
    """The user's source.

    Attributes:
        file: the kernel's.
        defined: its ``def`` line.
        names: that the kernel's source binds: values with such a name stay as they are.
    """

    file: str
    defined: int
    names: frozenset[str]
    _quoted: dict[int, str] = field(default_factory=dict)

    def quote(self, mark: tuple[str, int]) -> str:
        """A line as a comment names it: its number and its text, or the file and the number for one of another file."""
        other, line = mark
        if other:
            return f"{other}:{line}"
        if line not in self._quoted:
            linecache.checkcache(self.file)
            text = linecache.getline(self.file, line).strip()
            following = line
            while text and _open(text) and following - line < 8:
                following += 1
                text += " " + linecache.getline(self.file, following).strip()
            text = text.removeprefix("@").partition("  # ")[0]
            self._quoted[line] = text if len(text) <= _WIDTH - 10 else text[: _WIDTH - 14] + " ..."
        text = self._quoted[line]
        return f"line {line}: {text}" if text else f"line {line}"


def _open(text: str) -> bool:
    return sum(map(text.count, "([{")) > sum(map(text.count, ")]}"))


# -- the user's lines


def _annotated(module: Module, users: _Users, described: Sequence[str]) -> str:
    """The source with the user's lines quoted above what was made of them, and a docstring."""
    plain, marks = _marks(module.source.splitlines())
    tree = ast.parse("\n".join(plain))
    defs = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    kernel = defs.get(f"{module.entry}_kernel")
    entry = defs.get(module.entry)
    edits = _Edits(plain, marks)
    helpers: list[str] = []
    if kernel is not None:
        helpers = _name_lambdas(kernel, edits, {n.name for n in tree.body if isinstance(n, ast.FunctionDef)})
        _inline(kernel, edits, users)
    above: dict[int, str] = {}
    if kernel is not None:
        said: tuple[str, int] | None = None
        for node in _statements(kernel.body):
            mark = marks.get(_first(node))
            if mark is not None and mark != said and _first(node) not in edits.dropped:
                if mark != ("", users.defined):
                    above[_first(node)] = users.quote(mark)
                said = mark
        for node in _statements(kernel.body):
            edits.wrap(node)
        if entry is not None:
            above |= _above_specs(kernel, entry, plain, marks, users)
    if entry is not None:
        at = entry.body[0].lineno - 1
        doc = [f"    {line}".rstrip() for line in described]
        doc[0] = '    """' + described[0]
        edits.lines[at] = "\n".join([*doc, '    """', edits.lines[at]])
    if kernel is not None and helpers:
        edits.lines[kernel.lineno - 1] = "\n".join([*helpers, edits.lines[kernel.lineno - 1]])
    return edits.text(above)


def _marks(lines: Sequence[str]) -> tuple[list[str], dict[int, tuple[str, int]]]:
    """The lines without the marks that the emitter left, and the mark in force at every line."""
    plain: list[str] = []
    marks: dict[int, tuple[str, int]] = {}
    current: tuple[str, int] | None = None
    for number, line in enumerate(lines, 1):
        if line.startswith("def "):
            current = None
        found = _MARK.search(line)
        if found:
            current = (found[1] or "", int(found[2]))
            line = line[: found.start()]
        plain.append(line)
        if current is not None:
            marks[number] = current
    return plain, marks


def _first(node: ast.stmt) -> int:
    """A statement's first line, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """All statements, nested ones too, in the order of the text."""
    out: list[ast.stmt] = []
    for node in body:
        out.append(node)
        for inner in (getattr(node, name, []) for name in ("body", "orelse")):
            out += _statements(inner)
    return out


def _above_specs(
    kernel: ast.FunctionDef,
    entry: ast.FunctionDef,
    lines: Sequence[str],
    marks: Mapping[int, tuple[str, int]],
    users: _Users,
) -> dict[int, str]:
    """For every BlockSpec that has a line of its own: which reference it is of, and the user's line that uses that."""
    refs = [arg.arg for arg in kernel.args.args]
    specs: list[tuple[int, str]] = []
    skipped = 0
    for node in ast.walk(entry):
        if isinstance(node, ast.keyword) and node.arg == "num_scalar_prefetch" and isinstance(node.value, ast.Constant):
            skipped = int(node.value.value)  # type: ignore[arg-type]
    at = skipped
    for wanted in ("in_specs", "out_specs"):
        for node in ast.walk(entry):
            if isinstance(node, ast.keyword) and node.arg == wanted and isinstance(node.value, ast.List | ast.Tuple):
                for spec in node.value.elts:
                    if at < len(refs):
                        specs.append((spec.lineno, refs[at]))
                    at += 1
    out: dict[int, str] = {}
    for line, ref in specs:
        if line in out or not lines[line - 1].lstrip().startswith("pl"):
            continue
        used = next(
            (n for n in range(kernel.body[0].lineno, (kernel.end_lineno or 0) + 1) if _mentions(lines[n - 1], ref)),
            None,
        )
        mark = marks.get(used) if used is not None else None
        known = mark is not None and mark != ("", users.defined)
        out[line] = f"{ref}, {users.quote(mark)}" if known and mark is not None else ref
    return out


def _mentions(line: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", line) is not None


# -- values that are used once


class _Edits:
    """The text's lines, some of them rewritten or dropped."""

    def __init__(self, lines: Sequence[str], marks: Mapping[int, tuple[str, int]]):
        self.lines, self.marks = list(lines), marks
        self.dropped: set[int] = set()

    def replace(self, node: ast.stmt, width: int = _WIDTH) -> bool:
        """Write a statement anew on its line; False where it has become too long."""
        assert node.end_lineno is not None
        indent = " " * node.col_offset
        text = indent + ast.unparse(node)
        if len(text) > width or "\n" in text:
            return False
        self.lines[node.lineno - 1] = text
        self.dropped |= set(range(node.lineno + 1, node.end_lineno + 1))
        return True

    def wrap(self, node: ast.stmt) -> None:
        """Break a statement that is too long, and is a call, at its arguments."""
        line = self.lines[node.lineno - 1]
        if len(line) <= _WIDE or node.lineno in self.dropped or not isinstance(node, ast.Assign | ast.AugAssign):
            return
        value = ast.parse(line.strip()).body[0].value  # type: ignore[attr-defined]
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name | ast.Attribute):
            return
        inner, outer = " " * (node.col_offset + 4), " " * node.col_offset
        parts = [ast.unparse(a) for a in value.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in value.keywords]
        head = line[: line.index("= ") + 2] + ast.unparse(value.func) + "("
        one = inner + ", ".join(parts)
        body = [one] if len(one) <= _WIDE else [f"{inner}{part}," for part in parts]
        self.lines[node.lineno - 1] = "\n".join([head, *body, f"{outer})"])

    def text(self, above: Mapping[int, str]) -> str:
        """The lines, with comments above some."""
        out: list[str] = []
        for number, line in enumerate(self.lines, 1):
            if number in self.dropped:
                continue
            opens = line.lstrip().startswith("@")
            if opens and out and out[-1].strip() and not out[-1].rstrip().endswith(":"):
                out.append("")
            if number in above:
                out.append(f"{line[: len(line) - len(line.lstrip())]}# {above[number]}")
            out.append(line)
        return "\n".join(out)


def _name_lambdas(kernel: ast.FunctionDef, edits: _Edits, taken: set[str]) -> list[str]:
    """Give functions that are written where they are called a name; the lines that define them."""
    known: dict[str, str] = {}
    lines: list[str] = []
    taken = taken | {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name)} | {a.arg for a in kernel.args.args}
    for node in _statements(kernel.body):
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Lambda):
            continue
        text = ast.unparse(call.func)
        if text not in known:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            base = re.sub(r"_\d+$", "", target.id) if isinstance(target, ast.Name) else "computed"
            name = base
            while name in taken or name in known.values():
                name += "_of"
            known[text] = name
            inside = ", ".join(arg.arg for arg in call.func.args.args)
            lines += [f"def {name}({inside}):", f"    return {ast.unparse(call.func.body)}", "", ""]
        call.func = ast.copy_location(ast.Name(known[text], ast.Load()), call.func)
        edits.replace(node, _ANY)
    return lines


def _inline(kernel: ast.FunctionDef, edits: _Edits, users: _Users) -> None:
    """Write values that have no name of the user's, and are used once, where they are used."""
    bound: dict[str, int] = {}
    read: dict[str, int] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name):
            counts = bound if isinstance(node.ctx, ast.Store) else read
            counts[node.id] = counts.get(node.id, 0) + 1
    once = {name for name in bound if bound[name] == read.get(name) == 1 and name not in users.names}
    blocks = [kernel.body]
    for node in _statements(kernel.body):
        blocks += [inner for inner in (getattr(node, name, []) for name in ("body", "orelse")) if inner]
    for block in blocks:
        _inline_block(block, once, edits)


def _inline_block(block: list[ast.stmt], once: set[str], edits: _Edits) -> None:
    i = 0
    while i < len(block):
        node = block[i]
        j = i + 1
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in once:
            name, value = node.targets[0].id, node.value
            while j < len(block) and not _reads(block[j], name):
                j += 1
            if j < len(block) and _may_move(node, block[i + 1 : j], block[j], edits):
                user = block[j]
                before = ast.unparse(user)
                _Substitute(name, value).visit(user)
                if edits.replace(user):
                    edits.dropped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                    del block[i]
                    i = max(0, i - 1)
                    continue
                block[j] = ast.copy_location(ast.parse(before).body[0], user)
                block[j].end_lineno = user.end_lineno
        i += 1


class _Substitute(ast.NodeTransformer):
    """An expression in place of a name."""

    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The expression, where the name is read."""
        return self.value if node.id == self.name and isinstance(node.ctx, ast.Load) else node


def _reads(node: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _may_move(node: ast.Assign, between: Sequence[ast.stmt], user: ast.stmt, edits: _Edits) -> bool:
    """Whether a value may be computed where it is used: same line of the user's, and nothing it reads changes."""
    if not isinstance(user, ast.Assign | ast.AugAssign) or edits.marks.get(node.lineno) != edits.marks.get(user.lineno):
        return False
    names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    inside = [n for n in ast.walk(user) if isinstance(n, ast.Lambda | ast.comprehension | ast.IfExp)]
    if inside:
        return False
    for other in between:
        if not isinstance(other, ast.Assign | ast.AugAssign):
            return False
        targets = other.targets if isinstance(other, ast.Assign) else [other.target]
        for target in targets:
            root = target
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Name) or root.id in names:
                return False
            if root is not target and any(isinstance(n, ast.Subscript) for n in ast.walk(node.value)):
                return False  # a reference is written to, and this value may read one that shares its memory
    return True


# -- an example


def _example(module: Module, call: Call, text: str, fp16: bool) -> tuple[str, ...]:
    """Statements that call the module's function on arrays of the launch's shapes."""
    lines = ["arguments = ("]
    for operand, spec in zip(module.operands, specs_of(module, call, fp16)):
        kind = spec.dtype.name.replace("64", "32")
        if operand.scalar:
            number = call.scalars[operand.param] if operand.param in call.scalars else call.ints[operand.param]
            shown = repr(number) if number == number and abs(number) != float("inf") else f"float({str(number)!r})"
            made = f"jnp.full((1,), {shown}, jnp.{kind})"
        elif kind.startswith(("int", "uint")):
            made = f"jax.random.randint(next(keys), {operand.shape}, 0, 2).astype(jnp.{kind})"
        elif kind == "bool":
            made = f"jax.random.bernoulli(next(keys), shape={operand.shape})"
        else:
            made = f"jax.random.normal(next(keys), {operand.shape}).astype(jnp.{kind})"
        lines.append(f"    {made},  # {operand.param}")
    lines.append(")")
    interpret = ", interpret=interpret" if "pltpu" in text and "interpret=interpret" in text else ""
    names = ", ".join(result.param for result in module.results)
    lines.append(f"for name, result in zip({names.split(', ')!r}, {module.entry}(*arguments{interpret})):")
    lines.append("    print(name, result.dtype, result.shape)")
    return tuple(lines)


__all__ = ["Ported", "module_of", "port"]
