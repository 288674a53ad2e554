"""What a kernel takes from outside: globals, closures and attributes of modules, and whether they are still the same.

Input: names as the parser looks them up. Output: `changed`, asked at every launch. Law: a kernel means what Python says
when it is launched: a constant or a helper that was bound anew is seen, and so is a `constexpr`, list, dict or set that
was changed in place.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from frontend_triton_compat.language.constexpr import constexpr

_MISSING = object()


class Outside:
    """Names with their values when they were looked up."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self._cells: dict[int, tuple[types.CellType, Any]] = {}
        self._inside: dict[int, tuple[Any, Any]] = {}

    def name(self, scope: Mapping[str, Any], name: str, value: Any) -> None:
        """A name of a module, or an attribute of one or of a class; what is computed on demand is left out."""
        if not isinstance(value, types.ModuleType) and scope.get(name, _MISSING) is value:
            self._names.setdefault((id(scope), name), (scope, name, value))
            self._look_inside(value)

    def cell(self, cell: types.CellType, value: Any) -> None:
        """A name of an enclosing function."""
        self._cells.setdefault(id(cell), (cell, value))
        self._look_inside(value)

    def _look_inside(self, value: Any) -> None:
        if type(value) in (list, dict, set, constexpr):
            self._inside.setdefault(id(value), (value, _content(value)))

    def changed(self) -> bool:
        """Whether a launch would see anything else now."""
        for scope, name, value in list(self._names.values()):  # another thread may be translating
            if scope.get(name, _MISSING) is not value:
                return True
        for cell, value in list(self._cells.values()):
            try:
                if cell.cell_contents is not value:
                    return True
            except ValueError:
                return True
        return any(not _same(_content(value), content) for value, content in list(self._inside.values()))


def _content(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else type(value)(value)


def _same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    try:
        return type(now) is type(before) and bool(now == before)
    except Exception:  # a type with an equality of its own that gives no truth value
        return False
