"""Operators that a checkpointed forward graph runs with the state of the random generator kept for the backward graph.

Input: a graph of the partitioner's, where `run_and_save_rng_state` and `run_with_rng_state` wrap every operator that
may draw random numbers. Output: the same graph, changed in place. Law: an operator that draws none here (attention
without dropout, which is tagged as random all the same) is called as it is, so that its row applies; the state of a
generator has its real size, where the tracer has made a symbol of it that nothing would ever bind.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from inductor_backend.compat import OpOverload


def unwrap_states(gm: torch.fx.GraphModule) -> None:
    """Take the wrapping off operators that draw no random numbers; give states their size."""
    changed = False
    for node in list(gm.graph.nodes):
        kind = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if kind == "run_and_save_rng_state":
            changed = True
            _saving(gm.graph, node)
        elif kind == "run_with_rng_state" and not _draws(node.args[1], node.args[2:], node.kwargs):
            changed = True
            with gm.graph.inserting_before(node):
                plain = gm.graph.call_function(node.args[1], tuple(node.args[2:]), dict(node.kwargs))
            plain.meta = dict(node.meta)
            node.replace_all_uses_with(plain)
            gm.graph.erase_node(node)
    if changed:
        gm.graph.lint()


def draws(node: Node) -> bool:
    """Whether a node moves the state of torch's generator on."""
    if getattr(node.target, "__name__", "") == "run_and_save_rng_state":
        return _draws(node.args[0], node.args[1:], node.kwargs)
    return _draws(node.target, node.args, node.kwargs)


def _draws(op: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call of an operator draws random numbers: dropout of probability zero does not."""
    if not isinstance(op, OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    for place, argument in enumerate(op._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p", argument.default_value)
            return given != 0
    return True


def _saving(graph: torch.fx.Graph, node: Node) -> None:
    op, *args = node.args
    state, users = torch.get_rng_state(), list(node.users)
    kept = plain = None
    if not _draws(op, args, node.kwargs):
        with graph.inserting_before(node):
            kept = graph.call_function(torch.get_rng_state)
            plain = graph.call_function(op, tuple(args), dict(node.kwargs))  # pyright: ignore[reportArgumentType]
    for user in users:
        made = plain if user.args[1] else kept
        target = made or user
        target.meta = {**node.meta, **user.meta} if user.args[1] else {**node.meta, "val": state}
        if made is not None:
            user.replace_all_uses_with(made)
            graph.erase_node(user)
    if plain is not None:
        graph.erase_node(node)
