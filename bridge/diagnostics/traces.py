"""Tracebacks of diagnostics: the user's frames, without ours.

Input: a diagnostic on its way to the user. Output: the same one, its traceback and those of its causes cut down. Law: a
frame of the user's stays, and so does everything where the defect is ours; ``TORCH_PALLAS_TRACEBACK=full`` keeps all.
"""

from __future__ import annotations

import os
from types import TracebackType

from bridge.diagnostics.errors import Diagnostic
from bridge.diagnostics.where import is_library, is_ours


def shortened(problem: Diagnostic) -> Diagnostic:
    """`problem` without our frames and those of libraries, ready to be raised again."""
    if problem.slug == "internal-error" or os.environ.get("TORCH_PALLAS_TRACEBACK", "").lower() == "full":
        return problem
    error: BaseException | None = problem
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _users(error.__traceback__)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return problem


def _users(trace: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (is_ours(file) or is_library(file) or file.startswith("<torch-pallas")):
            kept.append(trace)
        trace = trace.tb_next
    chain = None
    for one in reversed(kept):
        chain = TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain
