"""How a result becomes the tensor that eager would have returned: its strides, and whose memory it lies in.

Input: a plan and dense exported values. Output: tensors, and for every output the value it is cut out of. Law: outputs
that share memory in eager share it here; a result that stands alone keeps no more memory than it needs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from bridge.layout import row_major
from inductor_backend.graph import Graph, Spec, flat, shared_root, view_base


class Finish:
    """How an exported, dense result becomes the tensor that eager would have returned."""

    def __init__(self, spec: Spec):
        self.spec = spec
        order = spec.order()
        self.plain = order is not None and order == tuple(range(len(order))) and spec.strides == row_major(spec.shape)
        self.dense = order is not None

    def __call__(self, t: torch.Tensor) -> torch.Tensor:
        """The result with its strides; dense layouts are views of the exported memory, others are copied out."""
        if self.spec.numel == 0:
            return torch.empty_strided(self.spec.shape, self.spec.strides, dtype=self.spec.dtype)
        if self.plain:
            return t
        if self.dense:
            return t.as_strided(self.spec.shape, self.spec.strides)
        base = torch.empty_strided(self.spec.shape, self.spec.strides, dtype=self.spec.dtype)
        if any(s == 0 and n > 1 for s, n in zip(self.spec.strides, self.spec.shape)):
            for dim, (s, n) in enumerate(zip(self.spec.strides, self.spec.shape)):
                if s == 0 and n > 1:
                    t = t.narrow(dim, 0, 1)
            narrow = base
            for dim, (s, n) in enumerate(zip(self.spec.strides, self.spec.shape)):
                if s == 0 and n > 1:
                    narrow = narrow.narrow(dim, 0, 1)
            narrow.copy_(t)
            return base
        return base.copy_(t)


def export_bases(plan: Graph) -> dict[Node, Node]:
    """The node whose storage stands behind an output: itself, or the dense value it is a view of.

    A view that leaves elements out gets memory of its own, unless another output lives in the same memory.
    """
    written = {w.target for w in plan.writes}
    outputs = [n for n in dict.fromkeys(flat(plan.outputs)) if isinstance(plan.specs.get(n), Spec)]
    sharers: dict[Node, int] = {}
    for node in outputs:
        root = shared_root(node)
        sharers[root] = sharers.get(root, 0) + 1

    def base_of(node: Node) -> Node:
        if node in plan.static or not isinstance(plan.specs.get(node), Spec):
            return node
        base = view_base(node, crop=True)
        if base.op == "placeholder":
            return node if base in written or base in plan.static else base
        root = shared_root(node)
        for base in (root, view_base(node)) if sharers.get(root, 0) > 1 else (view_base(node),):
            if base is not node and base.op != "placeholder" and _can_hold(plan.specs.get(base), plan.specs[node]):
                return base
        return node

    return {node: base_of(node) for node in [*flat(plan.outputs), *(w.source for w in plan.writes)]}


def _can_hold(base: Any, spec: Spec) -> bool:
    """Whether a view can be cut out of an exported value: dense, and no offset to convert between dtypes."""
    return isinstance(base, Spec) and base.order() is not None and (base.dtype == spec.dtype or base.offset == 0)
