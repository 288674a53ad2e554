"""The op table's row and the table itself: one op, one row.

Input: rows registered by the modules of this package at import. Output: `ROWS`, read by the language's functions, by
the emitters, by the reference interpreter in the tests and by the docs. Law: a name is registered once (reductions
have a table of their own, see `row_for`); a row says
everything about its op: how it is written in jax, its result type, what it accepts, the NumPy truth it is tested
against, and what each target makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.diagnostics import error


@dataclass(frozen=True)
class Row:
    """One operation on tiles.

    Attributes:
        name: the op's name in the IR.
        family: ``unary``, ``binary``, ``compare``, ``ternary``, ``reduce``, ``scan`` or ``call``.
        code: a jax expression with ``{0}``, ``{1}``, ... for the operands (``{axis}`` for reductions and scans).
            It may use ``jnp``, ``lax``, ``jax`` and the functions in `HELPERS`; a
            reduction keeps its dimension. Operands have their final dtype already.
        accepts: what the operands may be: ``any``, ``float``, ``wide`` (fp32, fp64), ``fp32``, ``fp64``, ``int32``,
            ``int``, ``number`` (no bool), ``bool``.
        result: ``same`` as the first operand (default), ``bool``, ``int32``, or ``unsigned``.
        reference: the NumPy function that says what is right, or None where `code` is itself NumPy's meaning.
        identity: for a reduction, the value that changes nothing, as a jax expression for dtype ``{dtype}``.
        code_by_kind: an expression that replaces `code` for operands of one kind (``int``, ``uint``, ``bool``).
        targets: per target family, an expression that replaces `code`, or ``!slug`` for the diagnostic that says
            why the target refuses it; absent means that `code` works there. A key like ``tpu:float`` is for
            operands of one kind.
        spread: per target family, an expression that replaces `code` where the last operand is a constant or has
            fewer dimensions than the result.
        domain: sample domain of the property test, e.g. ``(-5.0, 5.0)``.
        doc: one line for the docs.
    """

    name: str
    family: str
    code: str
    accepts: str = "any"
    result: str = "same"
    reference: Callable[..., Any] | None = None
    identity: str | None = None
    code_by_kind: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    spread: dict[str, str] = field(default_factory=dict)
    domain: tuple[float, float] = (-4.0, 4.0)
    doc: str = ""

    def code_for(self, target: str, kind: str) -> str:
        """The expression for a target family (``cpu``, ``tpu``, ``gpu``) and an operand kind; may start with ``!``."""
        special = self.targets.get(f"{target}:{kind}") or self.targets.get(target)
        return special or self.code_by_kind.get(kind) or self.code


ROWS: dict[str, Row] = {}
#: Reductions by the name in `fn`: ``max`` of two tiles and ``max`` over an axis are different rows.
REDUCTIONS: dict[str, Row] = {}
#: Functions that a row's code may call: name -> target family -> source, printed into the emitted module.
HELPERS: dict[str, dict[str, str]] = {}


def register(*rows: Row) -> None:
    """Add rows to the table.

    Raises:
        Diagnostic: a name is there already (a defect of this package).
    """
    for row in rows:
        table = REDUCTIONS if row.family == "reduce" else ROWS
        if row.name in table:
            raise error("internal-error", f"op {row.name!r} is registered twice in the op table")
        table[row.name] = row


def row_for(kind: str, fn: str) -> Row:
    """The row of an IR operation: `kind` is ``map``, ``reduce``, ``scan`` or ``call``, `fn` its attribute.

    Raises:
        KeyError: there is no such row.
    """
    return REDUCTIONS[fn] if kind == "reduce" else ROWS[fn]
