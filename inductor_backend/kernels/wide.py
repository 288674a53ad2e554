"""Values of 64 bits, which a TPU does not have: refused, proved to fit into 32, checked when a graph runs, or told of.

Input: a plan. Output: `plan.wraps`, what the emitted source checks. Law: double precision is refused; a whole number
that 32 bits don't hold is never computed in silence.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from bridge.devices import Target
from bridge.diagnostics import error, note
from inductor_backend.emit import reject
from inductor_backend.graph import Graph, Spec, arguments, flat, name_of, where_of
from inductor_backend.ops.whole import INT32, known
from inductor_backend.spans import spans_of


def refuse_wide(plan: Graph, target: Target) -> None:
    """Look for values of 64 bits, which a TPU does not have, and have whole numbers checked that may need them.

    Raises:
        Diagnostic: tpu-wide-number: a value of the graph is float64 or complex128.
    """
    for node, specs in plan.specs.items():
        for spec in specs if isinstance(specs, list) else [specs]:
            name = str(spec.dtype).removeprefix("torch.") if isinstance(spec, Spec) and node not in plan.aten else ""
            if name in ("float64", "complex128"):
                raise error(
                    "tpu-wide-number",
                    f"a graph compiled for '{target}' computes in {name}",
                    where=where_of(node),
                    why="a TPU has no 64-bit values, and half of the digits would be lost.",
                    do="convert to float32 (or complex64) first, or compile for the CPU",
                )
    found = spans_of(plan)
    plan.wraps = found.checked
    for node in found.unproven:
        note(
            "tpu-wide-number",
            f"{name_of(node.target)} gives int64 numbers, which '{target}' computes in 32 bits",
            where=where_of(node),
            why="a TPU has no 64-bit values; a number beyond 32 bits wraps around, as in jax without x64.",
            do="nothing where the numbers fit; compile for the CPU where they may not",
        )


def reject_wide(node: Node, plan: Graph) -> str | None:
    """As `emit.reject`, of a machine without 64 bits: what holds a number beyond 32 bits runs in ATen."""
    reason = reject(node, plan)
    if reason is not None:
        return reason
    schema = node.target._schema.arguments  # pyright: ignore[reportAttributeAccessIssue]
    given = dict(zip((a.name for a in schema), arguments(node))) | dict(node.kwargs)
    for argument in schema:
        value = given.get(argument.name)
        value = plan.static.get(value, value) if isinstance(value, Node) else value
        data = any(kind in str(argument.type) for kind in ("number", "Tensor"))
        if data and isinstance(value, int) and not known(value) <= INT32 and _holds_whole(node, plan):
            return f"{value} needs more than the 32 bits of a TPU's whole numbers"
    if name_of(node.target) == "aten.view.dtype":
        sizes = {spec.dtype.itemsize for n in (node, *flat(node.args)) if isinstance(spec := plan.specs.get(n), Spec)}
        if 8 in sizes:
            return "a TPU's whole numbers have 32 bits, and this looks at 64"
    return None


def _holds_whole(node: Node, plan: Graph) -> bool:
    return any(
        isinstance(spec := plan.specs.get(n), Spec) and spec.dtype == torch.int64 for n in (node, *flat(node.args))
    )
