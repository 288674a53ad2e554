"""Operands that eager refuses for the numbers they hold, and whole numbers that a TPU's 32 bits don't hold.

Input: the nodes that check, and one flag each from the jitted segment. Output: nothing, or a diagnostic at the user's
line. Law: the runner looks before anything is returned or written.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Node

from bridge.diagnostics import Diagnostic, Where, error
from inductor_backend.graph import is_assertion, name_of, needed_row, where_of


@dataclass(frozen=True)
class Wraps:
    """The check that an operator's whole numbers fit into 32 bits."""

    node: Node


class Refusal:
    """Says what is wrong with the operands of one segment."""

    def __init__(self, nodes: list[Node | Wraps]):
        self.causes = [_Cause.of(node) for node in nodes]

    def __call__(self, flags: bytes) -> None:
        """Look at one flag per checked operand, of which one is set at least.

        Raises:
            Diagnostic: index-out-of-range, integer-division-by-zero, assertion-failed or tpu-wide-number, at the
                user's line of the first that is set.
        """
        raise refusal(next(cause for cause, flag in zip(self.causes, flags, strict=True) if flag))


@dataclass(frozen=True)
class _Cause:
    """What checks its operands: its operator, the user's line, of an assertion the message; nothing of the graph."""

    operator: str
    where: Where | None
    message: str | None = None
    divides: bool = False
    wraps: bool = False

    @classmethod
    def of(cls, node: Node | Wraps) -> _Cause:
        if isinstance(node, Wraps):
            return cls(name_of(node.node.target), where_of(node.node), wraps=True)
        if is_assertion(node):
            return cls(name_of(node.target), where_of(node), str(node.args[1] if len(node.args) > 1 else ""))
        return cls(name_of(node.target), where_of(node), divides=bool(needed_row(node).divides))


def refusal(cause: _Cause) -> Diagnostic:
    """What eager's own error for a node's operands becomes."""
    if cause.wraps:
        return error(
            "tpu-wide-number",
            f"{cause.operator} gives a whole number beyond 32 bits",
            where=cause.where or Where.caller(),
            why="a TPU has no 64-bit values: int64 is computed in 32 bits there, and this call's number does not fit",
            do="keep such numbers out of the compiled function, or compile for the CPU",
        )
    if cause.message is not None:
        return error(
            "assertion-failed",
            cause.message,
            where=cause.where or Where.caller(),
            why="the function asserts a condition on its data, and this call's data doesn't meet it",
            do="check the data that the message names: run the function uncompiled to see the numbers",
        )
    if cause.divides:
        return error(
            "integer-division-by-zero",
            f"{cause.operator} divides a whole number by zero",
            where=cause.where or Where.caller(),
            why="whole numbers have neither infinity nor NaN: eager PyTorch raises RuntimeError: ZeroDivisionError",
            do=(
                "divide by something else there, and choose afterwards: "
                "torch.where(y == 0, 0, x // torch.where(y == 0, 1, y))",
                "divide floating-point numbers: x / y gives inf or nan",
            ),
        )
    return error(
        "index-out-of-range",
        f"an index of {cause.operator} is out of range",
        where=cause.where or Where.caller(),
        why="an index tensor holds a number that is not a place in the dimension it indexes",
        do="check the indices (labels, token ids) against the size: run the function uncompiled to see the number",
    )
