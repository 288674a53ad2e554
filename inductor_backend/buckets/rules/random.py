"""Random numbers.

Input: the rewriter at a node. Output: its dimensions. Law: an element's number is the one that it has without padding.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Rewriter
from inductor_backend.buckets.rules.table import rule

aten, prims = torch.ops.aten, torch.ops.prims


@rule("prims.inductor_random.default")
def random(r: Rewriter, node: Any) -> None:
    """Numbers drawn by the place that an element has among the call's own: the same ones as without padding."""
    dims = r.given_dims(node)
    seed = node.args[1]
    counts = _own_places(r, node, dims)
    r.replace(r.call(torch.ops.torch_pallas.random_at.default, counts, seed, node.args[2], dims=dims))


def _own_places(r: Rewriter, node: Any, dims: list[Dim]) -> Node:
    """The position of every element in a tensor of the call's own sizes, counted along its rows."""
    total: Any = None
    parts = [(part, d) for d, dim in enumerate(dims) for part in dim]
    below: list[Any] = []
    for position in reversed(range(len(parts))):
        part = parts[position][0]
        count = part if isinstance(part, int) else r.symbolic(part)
        places = r.call(prims.iota.default, count, start=0, step=1, dtype=torch.int64, device=torch.device("cpu"),
                        requires_grad=False)  # fmt: skip
        step = r.product(below)
        if not (isinstance(step, int) and step == 1):
            places = r.call(aten.mul.Tensor, places, step)
        lined = [count if i == position else 1 for i in range(len(parts))]
        places = r.call(aten.view.default, places, lined)
        total = places if total is None else r.call(aten.add.Tensor, total, places)
        below.append(sympy.sympify(part))
    return r.call(
        aten.view.default, total, [r.symbolic(n) if not isinstance(n, int) else n for n in r.shape(node)], dims=dims
    )
