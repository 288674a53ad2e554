"""Branches that write to what they are given, as branches that return the new values too.

Input: a graph in which AOTAutograd has made such a `cond` functional. Output: a copy whose `cond` is a plain one, with
the written tensors' new values behind its results; the graph itself where it has none. Law: what a branch does not
write comes out as it went in; a write through a view keeps the operator as it is.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from inductor_backend import compat
from inductor_backend.compat import HigherOrderOperator
from inductor_backend.constants import value_of
from inductor_backend.graph import is_mutable, is_write


def returned(gm: GraphModule) -> GraphModule:
    """A graph whose branches write nothing, where that can be said of them."""
    if not any(_branches(n) for n in gm.graph.nodes):
        return gm
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {})).meta = dict(gm.graph.output_node().meta)
    held = {str(n.target): value_of(gm, n) for n in graph.nodes if n.op == "get_attr"}
    for node in [n for n in graph.nodes if _branches(n)]:
        operands, written = _operands(node)
        names = [str(node.kwargs[k].target) for k in ("true_fn", "false_fn")]
        if operands is None or any(not _epilogues(held[name]) for name in names):
            continue
        with graph.inserting_before(node):
            sides = []
            for name in names:
                held[f"{name}_returning_{len(held)}"] = _returning(held[name], written)
                sides.append(graph.get_attr(list(held)[-1]))
            made = graph.call_function(cast(Any, node.args[0]), (node.kwargs["pred"], *sides, operands))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
    return GraphModule(held, graph)


def _branches(node: Node) -> bool:
    """Whether a node is the functional form of a `cond`."""
    op = node.args[0] if node.op == "call_function" and compat.functional_form(node.target) else None
    return isinstance(op, HigherOrderOperator) and getattr(op, "__name__", "") == "cond"


def _operands(node: Node) -> tuple[list[Any] | None, list[int]]:
    """(what the branches take, which of it is written, in the order of the new values); None for views."""
    kwargs: Any = node.kwargs
    operands, written = [], {}
    for i in itertools.count():
        about = {k for k in kwargs if k.startswith(f"_operand{i}_")}
        if f"operand{i}" in kwargs:
            operands.append(kwargs[f"operand{i}"])
        elif about == {f"_operand{i}_base_index"}:
            base = kwargs[f"_operand{i}_base_index"]
            if base is None or base in written:
                return None, []
            written[base] = i
            operands.append(kwargs["_all_bases"][base])
        elif about:
            return None, []
        else:
            break
    if sorted(written) != list(range(len(kwargs["_all_bases"]))):
        return None, []
    return operands, [written[base] for base in sorted(written)]


def _epilogues(gm: GraphModule) -> bool:
    """Whether a branch writes at its end only."""
    return all(is_write(n) or not is_mutable(n) for n in gm.graph.nodes if n.op == "call_function")


def _returning(gm: GraphModule, written: list[int]) -> GraphModule:
    """A branch that returns what it would write to some of its operands."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    results: Any = graph.graph_copy(gm.graph, copies)
    given = [n for n in graph.nodes if n.op == "placeholder"]
    news: dict[Node, Any] = {}
    for n in list(graph.nodes):
        if n.op == "call_function" and is_mutable(n):
            news[n.args[0]] = n.args[1]  # pyright: ignore[reportArgumentType]
            n.replace_all_uses_with(n.args[1])  # pyright: ignore[reportArgumentType]
            graph.erase_node(n)
    for i in written:
        if given[i] not in news:
            news[given[i]] = graph.call_function(torch.ops.aten.clone.default, (given[i],))
            news[given[i]].meta = dict(given[i].meta)
    graph.output((*results, *(news[given[i]] for i in written)))
    graph.output_node().meta = dict(gm.graph.output_node().meta)
    held = {str(n.target): value_of(gm, n) for n in graph.nodes if n.op == "get_attr"}
    return GraphModule(held, graph)
