"""The launch grid: three numbers, of what the user wrote between the brackets.

Input: a tuple, a number, or a function of the arguments. Output: three positive integers. Law: a grid that cannot run
is a diagnostic at the user's launch, before anything is translated.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat.arguments import launch_line
from frontend_triton_compat.language.constexpr import unwrap

#: Most programs of a launch.
MOST_PROGRAMS = 1 << 24


def grid_of(grid: Any, meta: Mapping[str, Any], defined: Where | None) -> tuple[int, int, int]:
    """The launch grid as three numbers.

    Raises:
        TranslationError: not one to three positive integers.
    """
    if callable(grid) and not _takes_one(grid):
        raise error(
            "launch-grid",
            "the grid function does not take one argument",
            where=launch_line(defined),
            why="it is called with a dict of the launch's arguments",
            do="kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](...)",
        )
    try:
        value = grid(meta) if callable(grid) else grid
    except KeyError as missing:
        raise error(
            "launch-grid",
            f"the grid function asks for {missing}, which the launch does not have",
            where=launch_line(defined),
            why=f"it is given the arguments by name: {', '.join(meta)}",
            do="ask for one of these, or compute the grid from values of your own",
        ) from missing
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    try:
        parts = tuple(unwrap(n) for n in parts)
        sizes = [int(n) for n in parts]
        exact = all(n == s for n, s in zip(parts, sizes))  # a float with a whole value will do, text will not
    except (TypeError, ValueError, OverflowError):
        sizes, exact = [], False
    if not exact or not 1 <= len(sizes) <= 3:
        raise error(
            "launch-grid",
            f"the grid {value!r} is not one to three integers",
            where=launch_line(defined),
            do="kernel[(n_programs,)](...), or a function of the arguments: kernel[lambda meta: (...,)](...)",
        )
    if min(sizes) < 1 and not (min(sizes) == 0 and stands_for_triton()):
        raise no_programs(sizes, defined)
    if math.prod(sizes) > MOST_PROGRAMS:
        raise error(
            "launch-grid",
            f"the grid {tuple(sizes)} has {math.prod(sizes)} programs",
            where=launch_line(defined),
            why=f"programs are numbered when the kernel is translated, {MOST_PROGRAMS} of them at most; all of them "
            "together are a few array operations, so that large programs cost no more than many small ones",
            do="let a program take more elements: a larger BLOCK, and grid = (triton.cdiv(n, BLOCK),)",
        )
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


def stands_for_triton() -> bool:
    """Whether ``import triton`` gives this package: programs written for Triton run, and a grid may be empty there."""
    ours = sys.modules.get(__package__ or "")
    return ours is not None and sys.modules.get("triton") is ours


def no_programs(sizes: Sequence[int], defined: Where | None) -> Diagnostic:
    """The diagnostic of a grid without programs."""
    return error(
        "launch-grid",
        f"the grid {tuple(sizes)} has no programs",
        where=launch_line(defined),
        why="no program would run, so no output would be written; an empty tensor is the usual cause",
        do="skip the launch when there is nothing to do: `if x.numel(): kernel[grid](...)`",
    )


def _takes_one(fn: Callable[..., Any]) -> bool:
    code = getattr(fn, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return True
    bound = 1 if inspect.ismethod(fn) else 0
    required = code.co_argcount - bound - len(fn.__defaults__ or ())  # type: ignore[attr-defined]
    return required <= 1 <= code.co_argcount - bound
