"""`Diagnostic`, its families, and notes.

Input: a slug of the registry plus what is particular to this case. Output: an exception (or a warning) whose text
reads what, where, why, do, more. Law: the code and the title come from the registry, never from the caller.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from bridge.diagnostics.registry import Entry, lookup
from bridge.diagnostics.where import Where


def _indented(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"       {line}".rstrip() for line in rest)])


def _render(entry: Entry, what: str, where: Where | None, why: str, do: Sequence[str]) -> str:
    lines = [f"{entry.code} {entry.slug}: {what or entry.title}"]
    if where is not None:
        lines.append(where.render())
    if why:
        lines.append("  why: " + _indented(why))
    lines += ["  do:  " + _indented(remedy) for remedy in do]
    lines.append(f"  more: torch-pallas explain {entry.code}")
    return "\n".join(lines)


class Diagnostic(Exception):
    """An error with a permanent code, the user's source line, the reason and a remedy.

    Attributes:
        code: permanent number, e.g. ``TPB231``.
        slug: permanent name, e.g. ``atomic-add``.
        what: one line on this case.
        where: the user's source line, or None when none is involved.
        why: the reason.
        do: remedies, the best first.
    """

    def __init__(
        self, slug: str, what: str = "", *, where: Where | None = None, why: str = "", do: str | Sequence[str] = ()
    ):
        entry = lookup(slug)
        self.code, self.slug, self.title = entry.code, entry.slug, entry.title
        self.what, self.where, self.why = what or entry.title, where, why
        self.do: tuple[str, ...] = (do,) if isinstance(do, str) else tuple(do)
        super().__init__(_render(entry, what, where, why, self.do))

    def __reduce__(self):
        # Exceptions pickle by calling cls(*args); ours are rebuilt from their parts (worker processes send them).
        return (_rebuild, (type(self), self.slug, self.what, self.where, self.why, self.do))

    def at(self, where: Where) -> Diagnostic:
        """The same diagnostic with a source line, for a caller that knows it; keeps a line that is already there."""
        if self.where is not None:
            return self
        return type(self)(self.slug, self.what, where=where, why=self.why, do=self.do)


def _rebuild(
    cls: type[Diagnostic], slug: str, what: str, where: Where | None, why: str, do: tuple[str, ...]
) -> Diagnostic:
    return cls(slug, what, where=where, why=why, do=do)


class ShareError(Diagnostic):
    """TPB1xx: an array cannot cross between torch and jax as asked."""


class TranslationError(Diagnostic):
    """TPB2xx: a Triton kernel or its launch has no translation."""


class TargetError(Diagnostic):
    """TPB3xx: a Pallas kernel breaks a law of Pallas or of its target."""


class BackendError(Diagnostic):
    """TPB4xx: torch.compile(backend="pallas") can't do what was asked."""


_FAMILY = {
    "shared": Diagnostic,
    "bridge": ShareError,
    "triton": TranslationError,
    "pallas": TargetError,
    "backend": BackendError,
}


def error(
    slug: str, what: str = "", *, where: Where | None = None, why: str = "", do: str | Sequence[str] = ()
) -> Diagnostic:
    """A diagnostic of the family that owns `slug`, ready to be raised.

    Args:
        slug: a slug of the registry.
        what: one line on this case; the registry's title when empty.
        where: the user's source line.
        why: the reason, as a sentence.
        do: one remedy, or several with the best first; code in a remedy is indented by four spaces.
    """
    return _FAMILY[lookup(slug).family](slug, what, where=where, why=why, do=do)


class DiagnosticNote(UserWarning):
    """A note: something was copied, cast or run elsewhere. Carries the same fields as a `Diagnostic`."""

    def __init__(self, diagnostic: Diagnostic):
        self.diagnostic = diagnostic
        self.code, self.slug, self.where = diagnostic.code, diagnostic.slug, diagnostic.where
        super().__init__(str(diagnostic))


_seen: set[tuple[str, str]] = set()
_lock = threading.Lock()
_state = threading.local()


def note(slug: str, what: str = "", *, where: Where | None = None, why: str = "", do: str | Sequence[str] = ()) -> None:
    """Issue a note through `warnings`, once per code and place (the user's line when `where` is None).

    Raises:
        Diagnostic: notes were turned into errors with `strict()`.
    """
    held: list[Diagnostic] | None = getattr(_state, "held", None)
    if held is not None:
        held.append(error(slug, what, where=where, why=why, do=do))
        return
    where = where or Where.caller(2)
    diagnostic = error(slug, what, where=where, why=why, do=do)
    if is_strict():
        raise diagnostic
    key = (diagnostic.code, str(where) if where else what)
    with _lock:
        if key in _seen:
            return
        _seen.add(key)
    if where is None:
        warnings.warn(DiagnosticNote(diagnostic), stacklevel=3)
    else:
        # The warning belongs to the user's line, so that filters by file and module see that one.
        warnings.warn_explicit(DiagnosticNote(diagnostic), DiagnosticNote, where.file, where.line)


@contextmanager
def held_notes() -> Generator[list[Diagnostic]]:
    """Within this context, notes are kept in the list that it gives instead of told. Per thread; see `tell`."""
    before, held = getattr(_state, "held", None), list[Diagnostic]()
    _state.held = held
    try:
        yield held
    finally:
        _state.held = before


def tell(held: Diagnostic) -> None:
    """Issue a note that was held, at the user's line that it had or else the one that calls.

    Raises:
        Diagnostic: notes are errors.
    """
    note(held.slug, held.what, where=held.where or Where.caller(2), why=held.why, do=held.do)


def is_strict() -> bool:
    """Whether notes are errors in this thread."""
    return bool(getattr(_state, "depth", 0))


@contextmanager
def strict() -> Generator[None]:
    """Within this context, a note (a copy, a fallback, a cast) raises as a `Diagnostic`. Per thread."""
    _state.depth = getattr(_state, "depth", 0) + 1
    try:
        yield
    finally:
        _state.depth -= 1
