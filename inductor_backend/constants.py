"""Numbers that a graph holds as tensors: written into it.

Input: the graph that the partitioner left. Output: the same graph, changed in place. Law: a tensor without dimensions
is a number; whatever is larger stays the graph's own tensor.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import GraphModule, Node

from inductor_backend.compat import number_of


def value_of(gm: GraphModule, node: Node) -> Any:
    """What a `get_attr` node stands for."""
    return functools.reduce(getattr, str(node.target).split("."), gm)


def fold_constants(gm: GraphModule) -> None:
    """Replace ``torch.tensor(2.0)`` by ``full([], 2.0)``: it needs neither memory nor a step before the rest."""
    changed = False
    for node in list(gm.graph.nodes):
        if node.op != "get_attr" or any(_writes(user) for user in node.users):
            continue
        value = value_of(gm, node)
        if not isinstance(value, torch.Tensor) or value.ndim or value.device.type != "cpu":
            continue
        number = number_of(value)
        if number is None:
            continue
        for user in list(node.users):
            if user.target is torch.ops.aten.lift_fresh_copy.default:
                with gm.graph.inserting_before(user):
                    made = gm.graph.call_function(torch.ops.aten.full.default, ([], number))
                made.kwargs = {"dtype": value.dtype, "device": value.device}
                made.meta = dict(user.meta)
                user.replace_all_uses_with(made)
                gm.graph.erase_node(user)
                changed = True
        if not node.users:
            gm.graph.erase_node(node)
    if changed:
        gm.recompile()


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable
