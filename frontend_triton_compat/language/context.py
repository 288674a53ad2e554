"""The kernel that is being translated: where tl functions put their operations and what they blame.

Input: `parse` opens a context for one kernel. Output: `current()` for the functions of this package. Law: contexts
are per thread and nest; outside one, a tl function is an error of the user's, with their line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bridge.diagnostics import Diagnostic, Where, error
from frontend_triton_compat.ir import Builder


@dataclass
class Context:
    """What is known while a kernel is translated.

    Attributes:
        builder: where operations are appended.
        grid: number of programs on the three axes.
        where: the expression of the user's that is being translated.
        call: calls one of the user's functions (a jit function, a plain one) with handles as arguments.
        names: names from outside, with their values, are noted here (a `parse.outside.Outside`).
        any_shape: whether sizes of blocks may be other than powers of two.
        assertions: whether run-time assertions are kept.
        calls: names of the helpers being inlined, outermost first.
        outside: Python containers that were there before the kernel, by identity, and what they are called.
    """

    builder: Builder
    grid: tuple[int, int, int]
    where: Where
    call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    names: Any
    any_shape: bool = False
    assertions: bool = False
    calls: list[str] = field(default_factory=list)
    outside: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def keep(self, value: Any, name: str) -> None:
        """A kernel reads a Python container from outside, and those in it; it must not change them."""
        if isinstance(value, (list, tuple, dict, set)) and id(value) not in self.outside:
            if not isinstance(value, tuple):
                self.outside[id(value)] = (name, value)
            for part in value.values() if isinstance(value, dict) else value:
                self.keep(part, name)

    def refuse_change(self, value: Any) -> None:
        """Check that a container which is about to change belongs to the kernel.

        Raises:
            Diagnostic: it came from outside.
        """
        if id(value) in self.outside:
            name = self.outside[id(value)][0]
            raise fail(
                "not-translated",
                f"the kernel changes {name}, a Python {type(value).__name__} from outside of it",
                why="a kernel is translated once for many launches, so the change would happen once, or never again",
                do="make a container in the kernel: a copy with list(x) or dict(x), or compute before the launch",
            )


_state = threading.local()


def _stack() -> list[Context]:
    if not hasattr(_state, "stack"):
        _state.stack = []
    return _state.stack


@contextmanager
def translating(context: Context) -> Iterator[Context]:
    """Make `context` the current one in this thread."""
    _stack().append(context)
    try:
        yield context
    finally:
        _stack().pop()


def current(name: str = "this function") -> Context:
    """The innermost context.

    Raises:
        Diagnostic: no kernel is being translated (``outside-kernel``).
    """
    stack = _stack()
    if not stack:
        raise error(
            "outside-kernel",
            f"{name} was called outside a kernel",
            where=Where.caller(),
            why="functions of triton.language describe what a kernel does; they have no value on the host",
            do="call it inside a function decorated with @triton.jit, and launch that as kernel[grid](...)",
        )
    return stack[-1]


def active() -> bool:
    """Whether a kernel is being translated in this thread."""
    return bool(_stack())


def fail(slug: str, what: str, *, why: str = "", do: str | tuple[str, ...] = (), triton: str = "") -> Diagnostic:
    """A diagnostic at the expression being translated, ready to be raised.

    Args:
        slug: a slug of the registry.
        what: one line on this case.
        why: the reason.
        do: remedies.
        triton: Triton's own words for this error where programs look for them; they become the diagnostic's cause, as
            in Triton, whose errors are caused by a `ValueError`.
    """
    where = current().where if active() else Where.caller()
    diagnostic = error(slug, what, where=where, why=why, do=do)
    if triton:
        diagnostic.__cause__ = ValueError(triton)
    return diagnostic
