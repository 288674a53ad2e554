"""The syntax tree of a Python function, with places in the user's file.

Input: a function object. Output: its `ast` node and a `Source` that turns nodes into `Where`. Law: lines and columns
are those of the file, whatever decorates or surrounds the function; text that can't be read is a diagnostic.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
import types
import weakref
from dataclasses import dataclass
from functools import lru_cache

from bridge.diagnostics import Where, error
from frontend_triton_compat.parse.executed import file_of, is_replaced, lines_of


@dataclass(frozen=True)
class Source:
    """A file and the function in it that is being read.

    Attributes:
        file: path as Python reports it.
        function: the function's name.
        line_shift: to add to a node's line.
        col_shift: to add to a node's column.
        called_from: for a helper, the place of its call.
    """

    file: str
    function: str
    line_shift: int = 0
    col_shift: int = 0
    called_from: Where | None = None

    def where(self, node: ast.AST) -> Where:
        """The place of a node; a node over several lines is marked to the end of its first line."""
        line = getattr(node, "lineno", 1) + self.line_shift
        text = linecache.getline(self.file, line)
        start = _column(text, getattr(node, "col_offset", 0) + self.col_shift)
        end_line = (getattr(node, "end_lineno", None) or getattr(node, "lineno", 1)) + self.line_shift
        end_offset = getattr(node, "end_col_offset", None)
        if end_offset is None:
            end = start + 1
        elif end_line == line:
            end = _column(text, end_offset + self.col_shift)
        else:
            end = max(len(text.rstrip()), start + 1)
        return Where(self.file, line, start + 1, end + 1, self.function, self.called_from)


def _column(text: str, offset: int) -> int:
    # ast counts bytes of UTF-8; people count characters
    if text.isascii():
        return offset
    return len(text.encode()[:offset].decode(errors="ignore"))


@dataclass(frozen=True)
class _Functions:
    """The functions of a text: by name and first line, decorators included; lambdas by line."""

    named: dict[tuple[str, int], ast.FunctionDef]
    lambdas: dict[int, list[ast.Lambda]]


@lru_cache(maxsize=64)
def _functions(text: str) -> _Functions | None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    named: dict[tuple[str, int], ast.FunctionDef] = {}
    lambdas: dict[int, list[ast.Lambda]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            named.setdefault((node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])), node)
        elif isinstance(node, ast.Lambda):
            lambdas.setdefault(node.lineno, []).append(node)
    return _Functions(named, lambdas)


#: functions whose text was looked at
_read: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()


def was_read(fn: types.FunctionType) -> bool:
    """Whether `read_function` was asked for this function."""
    return fn in _read


def text_of(fn: types.FunctionType) -> tuple[list[str], int]:
    """The lines from the function's first one on, decorators included, and its number; no lines and 0 for no text."""
    lines = lines_of(fn)
    if not lines:
        return [], 0
    place = place_of(fn)
    first = place.line if is_replaced(fn) and place else fn.__code__.co_firstlineno
    return lines[first - 1 :], first


def read_function(fn: types.FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, Source]:
    """The node of a function (or lambda) and its source.

    Raises:
        Diagnostic: the text is not available (``no-source``).
    """
    _read.add(fn)
    file = file_of(fn)
    text = "".join(lines_of(fn))
    if is_replaced(fn):
        return _replacing(fn, text), Source(file, fn.__name__)
    functions = _functions(text) if text else None
    if functions is not None:
        found = _find(functions, fn.__code__)
        if found is not None:
            return found, Source(file, fn.__name__)
    return _from_inspect(fn)


def place_of(fn: object) -> Where | None:
    """The ``def`` line of a function in the text that is translated; a lambda's line; None for anything else."""
    if not isinstance(fn, types.FunctionType):
        return Where.of_function(fn)
    code, lines = fn.__code__, lines_of(fn)
    first = 1 if is_replaced(fn) else code.co_firstlineno
    head = re.compile(rf"\s*def\s+{re.escape(code.co_name)}\b")
    line = next((i for i in range(first, len(lines) + 1) if head.match(lines[i - 1])), code.co_firstlineno)
    return Where(file_of(fn), line, function=code.co_name)


def _replacing(fn: types.FunctionType, text: str) -> ast.FunctionDef:
    """The function that a replaced text defines: its only statement."""
    line, column, why = place_of(fn).line, 0, "it is not one `def` statement"  # type: ignore[union-attr]
    try:
        body = ast.parse(text).body
        if len(body) == 1 and isinstance(body[0], ast.FunctionDef):
            return body[0]
    except SyntaxError as problem:
        line, column, why = problem.lineno or line, problem.offset or 0, f"{type(problem).__name__}: {problem.msg}"
    raise error(
        "no-source",
        f"the text that {fn.__qualname__} was given in place of its own can't be read",
        where=Where(file_of(fn), line, column, function=fn.__name__),
        why=why,
        do="give it the whole function, without decorators: kernel._unsafe_update_src(kernel.src.replace(...))",
    )


def _find(functions: _Functions, code: types.CodeType) -> ast.FunctionDef | ast.Lambda | None:
    if code.co_name != "<lambda>":
        return functions.named.get((code.co_name, code.co_firstlineno))
    wanted = list(code.co_varnames[: code.co_argcount])
    lambdas = [
        node
        for node in functions.lambdas.get(code.co_firstlineno, [])
        if [a.arg for a in (*node.args.posonlyargs, *node.args.args)] == wanted
    ]
    return lambdas[0] if len(lambdas) == 1 else None


def _from_inspect(fn: types.FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, Source]:
    code = fn.__code__
    try:
        lines, first = inspect.getsourcelines(fn)
        block = "".join(lines)
        text = textwrap.dedent(block)
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError, IndentationError) as problem:
        raise error(
            "no-source",
            f"the source text of {fn.__qualname__} can't be read",
            where=Where(code.co_filename, code.co_firstlineno, function=fn.__name__),
            why="a kernel is translated from its Python text, and there is none behind this function",
            do=(
                "define the kernel in a .py file (or a notebook cell) instead of an interactive prompt",
                "or keep the text that exec() gets in a variable: text = ...; exec(text, scope)",
            ),
        ) from problem
    node = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == code.co_name), None)
    if node is None:
        raise error(
            "no-source",
            f"no definition of {fn.__qualname__} in its file",
            where=Where(code.co_filename, code.co_firstlineno, function=fn.__name__),
            why="the file has changed since it was imported, or the function was renamed",
            do="start Python again, and define the kernel with `def`",
        )
    shift = len(block) - len(block.lstrip()) - (len(text) - len(text.lstrip()))
    return node, Source(code.co_filename, fn.__name__, first - 1, shift)
