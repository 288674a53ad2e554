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
        self.nodes = nodes

    def __call__(self, flags: bytes) -> None:
        """Look at one flag per checked operand, of which one is set at least.

        Raises:
            Diagnostic: index-out-of-range, integer-division-by-zero, assertion-failed or tpu-wide-number, at the
                user's line of the first that is set.
        """
        raise refusal(next(node for node, flag in zip(self.nodes, flags, strict=True) if flag))


def refusal(node: Node | Wraps) -> Diagnostic:
    """What eager's own error for this node's operands becomes."""
    if isinstance(node, Wraps):
        return error(
            "tpu-wide-number",
            f"{name_of(node.node.target)} gives a whole number beyond 32 bits",
            where=where_of(node.node) or Where.caller(),
            why="a TPU has no 64-bit values: int64 is computed in 32 bits there, and this call's number does not fit",
            do="keep such numbers out of the compiled function, or compile for the CPU",
        )
    if is_assertion(node):
        message = node.args[1] if len(node.args) > 1 else ""
        return error(
            "assertion-failed",
            str(message),
            where=where_of(node) or Where.caller(),
            why="the function asserts a condition on its data, and this call's data doesn't meet it",
            do="check the data that the message names: run the function uncompiled to see the numbers",
        )
    if needed_row(node).divides:
        return error(
            "integer-division-by-zero",
            f"{name_of(node.target)} divides a whole number by zero",
            where=where_of(node) or Where.caller(),
            why="whole numbers have no infinity: eager PyTorch raises ZeroDivisionError here",
            do="mask the zeros (torch.where(y == 0, 1, y)), or divide floating-point numbers",
        )
    return error(
        "index-out-of-range",
        f"an index of {name_of(node.target)} is out of range",
        where=where_of(node) or Where.caller(),
        why="an index tensor holds a number that is not a place in the dimension it indexes",
        do="check the indices (labels, token ids) against the size: run the function uncompiled to see the number",
    )
