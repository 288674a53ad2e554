"""Python values that hold tiles, taken apart for loops and branches and put together again.

Input: any value of a variable: a tile, a number, a (named) tuple, list, dict or dataclass of such, or anything else.
Output: the tiles in it and a tree that rebuilds the value. Law: what holds no tile is static: it must be the same
object on every path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from frontend_triton_compat.language.semantic import points_nowhere, to_tensor
from frontend_triton_compat.language.tensor import address, is_number, tensor


@dataclass(frozen=True)
class Tree:
    """Structure of a value: a tile (``tile``), something ``static``, a ``known`` scalar, or a container with parts."""

    kind: str
    static: Any = None
    parts: tuple[Tree, ...] = ()

    def build(self, tiles: Iterator[tensor]) -> Any:
        """The value with `tiles` in the places of its tiles."""
        if self.kind == "tile":
            return next(tiles)
        if self.kind in ("static", "known"):
            return self.static
        return self.static(*[p.build(tiles) for p in self.parts])

    def same(self, other: Tree) -> bool:
        """Whether two values have the same structure and the same static parts."""
        if self.kind != other.kind or len(self.parts) != len(other.parts):
            return False
        if self.kind == "static" and not _equal(self.static, other.static):
            return False
        if self.kind == "known":
            a, b = self.static, other.static
            return a.dtype == b.dtype and a.const == b.const
        return all(a.same(b) for a, b in zip(self.parts, other.parts))

    def __str__(self) -> str:
        if self.kind == "static":
            return "None" if self.static is None else f"a Python value of type {type(self.static).__name__}"
        return self.kind


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or tiles_in(a):
        return False
    try:
        return bool(a == b)
    except Exception:  # a type with an equality of its own that gives no truth value
        return False


def flatten(value: Any) -> tuple[list[tensor], Tree]:
    """The tiles in a value, numbers included as constants, and the tree around them."""
    tiles: list[tensor] = []
    return tiles, _walk(value, tiles)


def describe(tiles: list[tensor], tree: Tree) -> str:
    """A value's structure and types, for messages and comparison."""
    if tree.kind in ("tile", "static") and len(tiles) <= 1:
        return str(tiles[0].handle.type) if tiles else str(tree)
    return f"{tree} ({', '.join(str(t.handle.type) for t in tiles)})"


@dataclass(frozen=True)
class Static:
    """A part of a dataclass that never holds tiles: a field with ``metadata={"carry": "static"}``."""

    value: Any


@dataclass(frozen=True)
class Known:
    """A tuple of scalars whose known numbers stay known in a loop: ``metadata={"carry": "known"}``."""

    value: tuple[tensor, ...]


def _walk(value: Any, tiles: list[tensor]) -> Tree:
    if isinstance(value, address):
        raise points_nowhere("a choice by `if` or a loop")
    if isinstance(value, Static):
        return Tree("static", value.value)
    if isinstance(value, Known):
        parts = [Tree("known", v) if v.const is not None else _walk(v, tiles) for v in value.value]
        return Tree(f"a tuple of {len(parts)}", lambda *p: tuple(p), tuple(parts))
    if isinstance(value, tensor) or (is_number(value) and type(value) in (bool, int, float)):
        tiles.append(to_tensor(value))
        return Tree("tile")
    container = _container(value)
    if container is None:
        return Tree("static", value)
    kind, make, parts = container
    children = tuple(_walk(p, tiles) for p in parts)
    if all(c.kind == "static" for c in children):
        return Tree("static", value)
    return Tree(kind, make, children)


def _container(value: Any) -> tuple[str, Callable[..., Any], list[Any]] | None:
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return f"{type(value).__name__} of {len(value)}", type(value), list(value)
        return f"a tuple of {len(value)}", lambda *p: tuple(p), list(value)
    if type(value) is list:
        return f"a list of {len(value)}", lambda *p: list(p), value
    if type(value) is dict:
        keys = tuple(value)
        return f"a dict with the keys {keys}", lambda *p: dict(zip(keys, p)), list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        marks = {f.name: f.metadata.get("carry") for f in dataclasses.fields(value)}
        wrap = {"static": Static, "known": Known}
        parts = [wrap.get(str(marks[n]), lambda v: v)(getattr(value, n)) for n in names]
        return type(value).__name__, _rebuilder(value, names), parts
    return None


def _rebuilder(value: Any, names: list[str]) -> Callable[..., Any]:
    def make(*parts: Any) -> Any:
        out = object.__new__(type(value))
        for name, part in zip(names, parts):
            object.__setattr__(out, name, part)
        return out

    return make


def tiles_in(value: Any) -> list[tensor]:
    """The tiles in a value; numbers are left out and nothing is emitted."""
    if isinstance(value, tensor):
        return [value]
    if isinstance(value, (Static, Known)):
        return [] if isinstance(value, Static) else list(value.value)
    container = _container(value)
    return [] if container is None else [t for part in container[2] for t in tiles_in(part)]


def numbers(value: Any) -> Any:
    """The value with tiles that are known numbers replaced by those numbers."""
    if isinstance(value, tensor):
        return value if value.const is None else value.const
    if type(value) in (tuple, list):
        return type(value)(numbers(v) for v in value)
    if type(value) is dict:
        return {k: numbers(v) for k, v in value.items()}
    return value


class Contents:
    """What the Python containers among some variables hold, to find out and undo changes in place."""

    def __init__(self, variables: list[dict[str, Any]]):
        self.found: dict[int, tuple[str, Any]] = {}
        for scope in variables:
            for name, value in scope.items():
                self._collect(name, value)
        self.before = self.now()

    def _collect(self, name: str, value: Any) -> None:
        if id(value) in self.found:
            return
        if type(value) in (list, dict, set):
            self.found[id(value)] = (name, value)
        inner = value.values() if type(value) is dict else value if isinstance(value, (list, tuple)) else ()
        for part in inner:
            self._collect(name, part)

    def now(self) -> list[list[Any]]:
        """The contents of every container."""
        return [list(v.items()) if type(v) is dict else list(v) for _, v in self.found.values()]

    def changed(self, state: list[list[Any]]) -> str:
        """The name of a container that holds something else in `state`, or an empty string."""
        for (name, _), old, new in zip(self.found.values(), self.before, state):
            if len(old) != len(new) or not all(map(_identical, old, new)):
                return name
        return ""

    def restore(self, state: list[list[Any]] | None = None) -> None:
        """Put contents back: those of the beginning, or of `state`."""
        for (_, value), old in zip(self.found.values(), self.before if state is None else state):
            if type(value) is list:
                value[:] = old
            else:
                value.clear()
                value.update(old)


def _identical(a: Any, b: Any) -> bool:
    return a is b or (type(a) is tuple and type(b) is tuple and len(a) == len(b) and all(map(_identical, a, b)))
