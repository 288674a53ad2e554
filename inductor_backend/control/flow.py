"""Nodes of ours in place of `cond`, `while_loop`, `scan` and `map`: operands as lists, subgraphs beside them.

Input: a graph of the partitioner's. Output: a copy whose control flow is `Flow` nodes; the graph itself where it has
none. Law: a subgraph computes from its operands alone: constants and seeds that it holds become operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from inductor_backend import launches
from inductor_backend.compat import HigherOrderOperator
from inductor_backend.constants import fold_constants, value_of
from inductor_backend.control.spelled import spell
from inductor_backend.control.writes import returned
from inductor_backend.graph import name_of
from inductor_backend.lists import expand_lists
from inductor_backend.states import unwrap_states
from inductor_backend.uninitialised import fill_uninitialised


def _flow(name: str) -> Callable[..., Any]:
    """A target of graph nodes; the operator's own arguments, but for its subgraphs, are its arguments."""

    def target(*lists: Any) -> Any:
        raise NotImplementedError("a plan holds the subgraphs")

    target.__name__ = name
    return target


#: Operator -> what stands for it, and how many subgraphs it has.
_KINDS = {
    "cond": (_flow("cond"), 2),
    "while_loop": (_flow("while_loop"), 2),
    "scan": (_flow("scan"), 1),
    "map_impl": (_flow("map"), 1),
}
_SEEDS = ("prims.inductor_seeds.default", "prims.inductor_seed.default")


@dataclass(frozen=True)
class Flow:
    """The subgraphs of a node.

    Attributes:
        kind: "cond", "while_loop", "scan" or "map".
        graphs: in the operator's order; all take the operands of the node, list after list.
        call: the operator.
    """

    kind: str
    graphs: tuple[GraphModule, ...]
    call: HigherOrderOperator


def flow_of(node: Node) -> Flow | None:
    """The control flow that a node is."""
    return node.meta.get("flow") if node.op == "call_function" else None


def collected(gm: GraphModule) -> GraphModule:
    """A graph with its control flow written out or as `Flow` nodes; `gm` itself if it has none."""
    if not any(isinstance(n.target, HigherOrderOperator) for n in gm.graph.nodes):
        return gm
    gm = returned(spell(gm, prepared))
    kinds = {n: n.target.name() for n in gm.graph.nodes if isinstance(n.target, HigherOrderOperator)}
    if not any(kind in _KINDS for kind in kinds.values()):
        return gm
    graph, held = torch.fx.Graph(), {}
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.op == "get_attr":
            held[node.target] = value_of(gm, node)
    _copy_output_meta(gm.graph, graph)
    for node in list(graph.nodes):
        if isinstance(node.target, HigherOrderOperator) and node.target.name() in _KINDS:
            _replace(graph, node, held)
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return GraphModule(held, graph)


def _copy_output_meta(old: torch.fx.Graph, new: torch.fx.Graph) -> None:
    new.output_node().meta = dict(old.output_node().meta)


def prepared(gm: GraphModule) -> GraphModule:
    """A subgraph as the graph around it is."""
    tidy(gm)
    return collected(launches.collected(gm))


def tidy(gm: GraphModule) -> None:
    """What a graph of the partitioner's, or a subgraph of it, goes through first; it is changed in place."""
    expand_lists(gm)
    unwrap_states(gm)
    fill_uninitialised(gm)
    fold_constants(gm)


def _replace(graph: torch.fx.Graph, node: Node, held: dict[str, Any]) -> None:
    """Put a `Flow` node in the place of an operator."""
    target, count = _KINDS[node.target.name()]  # pyright: ignore[reportAttributeAccessIssue]
    args: list[Any] = list(node.args)
    first = next(i for i, a in enumerate(args) if isinstance(a, Node) and isinstance(_module(a, held), GraphModule))
    graphs = [prepared(_module(args[first + k], held)) for k in range(count)]
    lists = [list(a) if isinstance(a, (list, tuple)) else [a] for a in (*args[:first], *args[first + count :])]
    repeated = target.__name__ != "cond"
    lifted = [_lifted(g, repeated) for g in graphs]
    with graph.inserting_before(node):
        outside = [_outside(graph, nodes, g, held) for g, nodes in zip(graphs, lifted)]
        lists[-1] += [n for nodes in outside for n in nodes]
        made = graph.call_function(target, tuple(lists))
    whole = tuple(_widened(g, k, lifted) for k, g in enumerate(graphs)) if any(lifted) else tuple(graphs)
    made.meta.update(node.meta)
    made.meta["flow"] = Flow(target.__name__, whole, node.target)  # pyright: ignore[reportArgumentType]
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _module(node: Any, held: dict[str, Any]) -> Any:
    return held.get(str(node.target)) if isinstance(node, Node) and node.op == "get_attr" else None


def _lifted(gm: GraphModule, repeated: bool) -> list[Node]:
    """The nodes of a subgraph that are computed outside: tensors that it holds, seeds if it runs once."""
    return [
        n
        for n in gm.graph.nodes
        if (n.op == "get_attr" and isinstance(value_of(gm, n), torch.Tensor))
        or (n.op == "call_function" and name_of(n.target) in _SEEDS and not repeated)
    ]


def _outside(graph: torch.fx.Graph, inner: list[Node], gm: GraphModule, held: dict[str, Any]) -> list[Node]:
    """The same nodes in the graph around."""
    made = []
    for n in inner:
        if n.op == "get_attr":
            name = f"held_{len(held)}"
            held[name] = value_of(gm, n)
            new = graph.get_attr(name)
            new.meta = {**n.meta, "val": n.meta.get("val", held[name])}
        else:
            new = graph.node_copy(n)
        made.append(new)
    return made


def _widened(gm: GraphModule, which: int, lifted: list[list[Node]]) -> GraphModule:
    """A subgraph that takes what was lifted out of it, and out of its siblings, as operands."""
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for n in gm.graph.nodes:
        if n.op == "placeholder":
            copies[n] = graph.node_copy(n)
    for k, nodes in enumerate(lifted):
        for i, n in enumerate(nodes):
            new = graph.placeholder(f"lifted_{k}_{i}")
            new.meta["val"] = n.meta.get("val", value_of(gm, n) if n.op == "get_attr" and k == which else None)
            if k == which:
                copies[n] = new
    graph.output(graph.graph_copy(gm.graph, copies))
    _copy_output_meta(gm.graph, graph)
    held = {str(n.target): value_of(gm, n) for n in graph.nodes if n.op == "get_attr"}
    return GraphModule(held, graph)


def on_tensors(node: Node) -> Callable[..., Any] | None:
    """The function that a `Flow` node is on torch tensors; None for another node."""
    flow = flow_of(node)
    if flow is None:
        return None

    def run(*lists: Any) -> Any:
        if flow.kind == "cond":
            (pred,), operands = lists
            return flow.call(pred, *flow.graphs, tuple(operands))
        return flow.call(*flow.graphs, *map(tuple, lists))

    return run
