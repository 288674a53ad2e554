"""The syntax tree of a Python function, with places in the user's file.

Input: a function object. Output: its `ast` node and a `Source` that turns nodes into `Where`. Law: lines and columns
are those of the file, whatever decorates or surrounds the function; text that can't be read is a diagnostic.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import types
from dataclasses import dataclass
from functools import lru_cache

from bridge.diagnostics import Where, error
from frontend_triton_compat.parse.executed import executed_file


@dataclass(frozen=True)
class Source:
    """A file and the function in it that is being read.

    Attributes:
        file: path as Python reports it.
        function: the function's name.
        line_shift: to add to a node's line.
        col_shift: to add to a node's column.
    """

    file: str
    function: str
    line_shift: int = 0
    col_shift: int = 0

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
        return Where(self.file, line, start + 1, end + 1, self.function)


def _column(text: str, offset: int) -> int:
    # ast counts bytes of UTF-8; people count characters
    if text.isascii():
        return offset
    return len(text.encode()[:offset].decode(errors="ignore"))


@lru_cache(maxsize=64)
def _module(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def read_function(fn: types.FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, Source]:
    """The node of a function (or lambda) and its source.

    Raises:
        Diagnostic: the text is not available (``no-source``).
    """
    code = fn.__code__
    text = "".join(linecache.getlines(code.co_filename, fn.__globals__))
    tree = _module(text) if text else None
    if tree is not None:
        found = _find(tree, code)
        if found is not None:
            return found, Source(code.co_filename, fn.__name__)
    executed = None if text else executed_file(fn)
    if executed is not None:
        tree = _module("".join(linecache.getlines(executed)))
        found = _find(tree, code) if tree is not None else None
        if found is not None:
            return found, Source(executed, fn.__name__)
    return _from_inspect(fn)


def _find(tree: ast.Module, code: types.CodeType) -> ast.FunctionDef | ast.Lambda | None:
    lambdas = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            if names == list(code.co_varnames[: code.co_argcount]):
                lambdas.append(node)
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
