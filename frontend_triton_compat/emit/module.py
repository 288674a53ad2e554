"""Emitted source and its interface: what the entry takes and returns.

Input: written by a target's emitter. Output: read by the launcher and the offline checks. Law: `source` is a standalone
module; operands and results are windows of the arguments' memory, counted in elements from the pointer.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.diagnostics import Where


@dataclass(frozen=True)
class Operand:
    """An array that the entry takes.

    Attributes:
        param: the kernel's parameter.
        shape: its shape as handed over.
        start: first element, counted from the pointer.
        scalar: whether it is a run-time scalar instead, handed over as an array of shape (1,).
    """

    param: str
    shape: tuple[int, ...]
    start: int = 0
    scalar: bool = False


@dataclass(frozen=True)
class Result:
    """An array that the entry returns: a stored argument's new contents.

    Attributes:
        param: the kernel's parameter.
        shape: its shape.
        start: first element, counted from the pointer.
        strides: elements between neighbours in the argument's memory.
        box: per dimension, the range of indices that any program may have written.
    """

    param: str
    shape: tuple[int, ...]
    start: int
    strides: tuple[int, ...]
    box: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Check:
    """Something that is looked at while the kernel runs.

    Attributes:
        where: the user's line.
        message: what an assertion says; None for a loop that may wait for ever.
    """

    where: Where
    message: str | None = None


@dataclass(frozen=True)
class Module:
    """Emitted source and its interface.

    Attributes:
        source: the module's text.
        entry: name of the function to call with the operands; it returns a tuple of the results.
        operands: what it takes, in order.
        results: what it returns, in order.
        checks: what may go wrong while it runs; the entry then returns one number more: 0, or which did, from 1.
    """

    source: str
    entry: str
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    checks: tuple[Check, ...] = ()
