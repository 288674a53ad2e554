"""Memory that nothing was written to, in deterministic mode.

Input: an ATen graph. Output: the same graph, changed in place. Law: where eager fills new memory
(`torch.use_deterministic_algorithms(True)`), it is filled with the same: NaN, the largest whole number, True. Dynamo
guards on the mode, so a graph is traced for one.
"""

from __future__ import annotations

from typing import Any

import torch

from inductor_backend.compat import fills_new_memory

_NEW = {
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", "aten.empty_permuted.default",
}  # fmt: skip


def fill_uninitialised(gm: torch.fx.GraphModule) -> None:
    """Fill what eager fills."""
    if not fills_new_memory():
        return
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or str(node.target) not in _NEW:
            continue
        with gm.graph.inserting_after(node):
            filled = gm.graph.call_function(torch.ops.aten.fill.Scalar, (node, _filling(node.meta["val"].dtype)))
        filled.meta = dict(node.meta)
        node.replace_all_uses_with(filled, delete_user_cb=lambda user, own=filled: user is not own)


def _filling(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max
