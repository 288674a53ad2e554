"""A user's file: imported under a name of its own, and the diagnostics when it or a launch in it is missing.

Input: a path. Output: a name to import it under; diagnostics that point into the file. Law: `sys.path`, `sys.modules`
and the import hooks are afterwards as they were, and what the file prints is not part of any output.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat import JITFunction

#: Functions of the language that access memory.
_ACCESS = re.compile(r"load$|store$|atomic_|make_block_ptr|make_tensor_descriptor")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the file prints is not part of the table."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def importable(path: Path) -> Iterator[str]:
    """The name that a file can be imported under: with its packages, so that relative imports work."""
    folder, parts = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    if parts[-1] == "__init__":
        parts.pop()
    name, paths, modules = ".".join(parts), list(sys.path), set(sys.modules)
    if len(parts) == 1:  # a plain file may have any name, also that of a module that is there
        name = f"torch_pallas_checked_{abs(hash(str(path.resolve())))}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
    sys.path.insert(0, str(folder))
    finder = _FileFinder(name, path)
    if len(parts) == 1:
        sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield name
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)  # type: ignore[arg-type]
        sys.path[:] = paths
        for added in set(sys.modules) - modules:
            if added in (name, parts[0]) or added.startswith(parts[0] + "."):
                del sys.modules[added]


class _FileFinder:
    """Import hook for one file under one name."""

    def __init__(self, name: str, path: Path):
        self._name, self._path = name, path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The file's spec under its name, and None for any other."""
        return importlib.util.spec_from_file_location(name, self._path) if name == self._name else None


def no_launch(kernel: JITFunction, has_entry: bool, run: bool, stopped: BaseException | None) -> Diagnostic:
    """The diagnostic of a kernel that nothing launches.

    Args:
        kernel: the kernel.
        has_entry: whether its file has something to run.
        run: whether running it was allowed.
        stopped: what the run raised.
    """
    name = kernel.fn.__name__
    if stopped is not None:
        head = str(stopped).splitlines()[0] if str(stopped) else ""
        why = f"the run that was to show one stopped before it: {type(stopped).__name__}: {head}"
    elif has_entry:
        why = "the file's run() or main() did not launch it"
    elif not run:
        why = "the file was not run"
    else:
        why = "the file has neither a CHECK list nor a run(triton, tl, torch, device) or main() to run"
    return error(
        "no-launch-known",
        f"no launch of {name} is known",
        where=kernel.where,
        why=f"shapes, dtypes and constexprs decide what a kernel becomes on a target; {why}",
        do=(
            f'give one, with your own sizes: --args "{spec_for(kernel)}"',
            "record one: torch-pallas record script.py -o args.json, then --args args.json",
            f'write it into the file: CHECK = ["{spec_for(kernel)}"]',
        ),
    )


def spec_for(kernel: JITFunction) -> str:
    """A launch of a kernel as text: its own parameters, with sizes made up."""
    pointers = _pointers(kernel)
    parts = []
    for name in kernel.arg_names:
        value = "256" if name in kernel._signature.constexprs else "f32[4096]" if name in pointers else "4096"
        parts.append(f"{name}={value}")
    return f"{kernel.fn.__name__}({', '.join(parts)}, grid=(16,))"


def _pointers(kernel: JITFunction) -> set[str]:
    """The parameters that accesses start from, as far as the text shows it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn)))
    except (OSError, SyntaxError):
        return set()
    made: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and (start := _start(node.value)):
                    made.setdefault(target.id, set()).add(start)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _ACCESS.match(node.func.attr):
            places = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("pointer", "base"))]
            found |= {start for place in places if (start := _start(place))}
    work = list(found)
    while work:
        new = made.get(work.pop(), set()) - found
        found |= new
        work += new
    return found


def _start(node: ast.expr) -> str:
    """The name that a sum starts with."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def import_refused(path: Path, problem: BaseException) -> tuple[Diagnostic, int]:
    """The diagnostic of a file that can't be imported, and the line of the file that it points at (0: none)."""
    place, trace = None, problem.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == path.resolve():
            place = Where(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    if isinstance(problem, SyntaxError) and problem.filename and Path(problem.filename).resolve() == path.resolve():
        place = Where(problem.filename, problem.lineno or 1, problem.offset or 0)
    line = place.line if place else 0
    if isinstance(problem, Diagnostic):
        return problem, line
    refused = error(
        "file-not-run",
        f"{path.name} can't be imported: {type(problem).__name__}: {problem}",
        where=place,
        why="a kernel is found by importing its file",
        do=f"make `python -c 'import {path.stem}'` work in its folder, with `import triton` first",
    )
    return refused, line


def kernels_in_text(path: Path) -> list[tuple[str, int]]:
    """Names and lines of the functions under a ``jit`` decorator, read without running the file."""
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, UnicodeDecodeError):
        return []
    return [
        (node.name, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)
    ]
