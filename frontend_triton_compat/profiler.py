"""`triton.profiler`: the calls around a measured region, without a measurement.

Input: what a program that profiles on a GPU calls. Output: regions that run as they are. Law: no figure is made up:
starting a session is a note that it measures nothing, and reading a profile is a diagnostic.
Source of the names: the public ``triton.profiler`` documentation.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from bridge.diagnostics import note
from frontend_triton_compat.absent import lookup_in

DEFAULT_PROFILE_NAME = "proton"
_sessions = 0


class _Region:
    """A region of a program: a context manager, or a decorator."""

    def __init__(self, name: str = "", metrics: dict[str, Any] | None = None):
        self.name, self.metrics = name, metrics

    def __enter__(self) -> _Region:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, as it is."""
        return fn


class scope(_Region):
    """A named region with metrics."""


class cpu_timed_scope(scope):
    """A named region."""


class state(_Region):
    """A named state."""


class metadata_state(state):
    """The state while metadata is computed."""


def start(
    name: str | None = None,
    *,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: Any = None,
) -> int:
    """Begin a session that measures nothing; a note says so.

    Returns:
        The session's number.
    """
    global _sessions
    note(
        "profiler-without-effect",
        f"the profiling session {name or DEFAULT_PROFILE_NAME!r} measures nothing",
        why="Proton reads a GPU's counters; kernels run on the CPU here",
        do="profile with torch.profiler.profile() or jax.profiler.trace(folder)",
    )
    _sessions += 1
    return _sessions - 1


def activate(session: int | None = None) -> None:
    """Accepted."""


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Accepted."""


def finalize(session: int | None = None, output_format: str | None = "") -> None:
    """Accepted; no file is written."""


def profile(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    context: str = "shadow",
    data: str = "tree",
    backend: str | None = None,
    mode: Any = None,
    hook: Any = None,
) -> Any:
    """Decorator: the function, with a session around every call."""
    if func is None:
        return lambda f: profile(f, name=name)
    inner = func

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        start(name)
        return inner(*args, **kwargs)

    return call


def enter_scope(name: str, *, metrics: dict[str, Any] | None = None) -> int | None:
    """Accepted."""


def exit_scope(name: str | None = None, *, metrics: dict[str, Any] | None = None) -> int | None:
    """Accepted."""


def enter_state(name: str) -> None:
    """Accepted."""


def exit_state() -> None:
    """Accepted."""


def __getattr__(name: str) -> Any:
    inside = sys.modules.get(f"{__name__}.{name}")
    return inside if inside is not None else lookup_in("triton.profiler", name)


__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "cpu_timed_scope",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "metadata_state",
    "profile",
    "scope",
    "start",
    "state",
]
