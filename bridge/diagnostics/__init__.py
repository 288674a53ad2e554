"""What went wrong, where, why, and what to do instead.

Every error a user can meet is a `Diagnostic` with a permanent code (``TPB231``), a slug for people
(``atomic-add``), the user's source line, the reason and a remedy. A copy, a fallback or a cast is a *note*
with a code, so silence means that nothing of the kind happened. This package is a leaf: it imports neither
torch nor jax.
"""

from bridge.diagnostics.errors import (
    BackendError,
    Diagnostic,
    DiagnosticNote,
    ShareError,
    TargetError,
    TranslationError,
    error,
    held_notes,
    note,
    strict,
    tell,
)
from bridge.diagnostics.registry import Entry, entries, explain, lookup
from bridge.diagnostics.traces import shortened
from bridge.diagnostics.where import Where

__all__ = [
    "BackendError",
    "Diagnostic",
    "DiagnosticNote",
    "Entry",
    "ShareError",
    "TargetError",
    "TranslationError",
    "Where",
    "entries",
    "error",
    "explain",
    "held_notes",
    "lookup",
    "note",
    "shortened",
    "strict",
    "tell",
]
