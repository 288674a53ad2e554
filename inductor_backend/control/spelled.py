"""Higher-order operators written out as plain ones: attention by functions, associative scans, regions that are called.

Input: a graph. Output: a copy with the operators' own eager implementations in their place, traced with the sizes as
they are, symbols included. Law: what is written out is what eager computes; an operator that can't be traced stays, and
says why.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from inductor_backend import compat
from inductor_backend.compat import HigherOrderOperator
from inductor_backend.constants import value_of
from inductor_backend.graph import is_mutable, name_of
from inductor_backend.ops import undecomposed

#: Operators with an eager implementation that is made of array operators alone.
_TRACED = ("flex_attention", "flex_attention_backward", "associative_scan")
#: Operators that call their subgraph, and where its operands begin.
_CALLED = {"invoke_subgraph": 2}
_EMPTY = ("aten.empty.", "aten.new_empty", "aten.empty_")


class Stays(Exception):
    """An operator can't be written out."""


def spell(gm: GraphModule, prepared: Callable[[GraphModule], GraphModule]) -> GraphModule:
    """A graph without the operators of this file, or the graph itself.

    Args:
        gm: the graph.
        prepared: what a subgraph goes through before it is looked at.
    """
    if not any(_kind(n) in (*_TRACED, *_CALLED) for n in gm.graph.nodes):
        return gm
    graph, held = torch.fx.Graph(), {}
    output = graph.graph_copy(gm.graph, {})
    graph.output(output).meta = dict(gm.graph.output_node().meta)
    for node in graph.nodes:
        if node.op == "get_attr":
            held[node.target] = value_of(gm, node)
    for node in list(graph.nodes):
        kind = _kind(node)
        if kind not in (*_TRACED, *_CALLED):
            continue
        try:
            if kind in _CALLED:
                inner, operands = prepared(held[node.args[0].target]), list(node.args[_CALLED[kind] :])
            else:
                inner, operands = _traced(node, held)
                inner = prepared(inner)
            _splice(graph, node, inner, operands, held)
        except Stays as why:
            node.meta["stays"] = str(why)
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return GraphModule(held, graph)


def _kind(node: Node) -> str:
    return node.target.name() if isinstance(node.target, HigherOrderOperator) else ""


def _traced(node: Node, held: dict[str, Any]) -> tuple[GraphModule, list[Node]]:
    """(the eager implementation as a graph, the operands of that)."""
    eager = compat.eager_form(cast(HigherOrderOperator, node.target))
    leaves, spec = compat.pytree.tree_flatten((node.args, node.kwargs))
    operands = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node) and leaf.op != "get_attr"))
    operands = [n for n in operands if isinstance(n.meta.get("val"), torch.Tensor)]
    for leaf in leaves:
        if isinstance(leaf, Node) and isinstance(found := held.get(str(leaf.target)), GraphModule):
            _unprimed(found)
    examples = [n.meta["val"] for n in operands]
    if _kind(node) == "flex_attention_backward":
        # Eager gives the gradients of those tensors alone that ask for them: here, of all that can.
        examples = [e.detach().requires_grad_(e.is_floating_point()) for e in examples]

    def run(*tensors: Any) -> Any:
        values = dict(zip(operands, tensors))

        def known(leaf: Any) -> Any:
            if not isinstance(leaf, Node):
                return leaf
            return held[str(leaf.target)] if leaf.op == "get_attr" else values.get(leaf, leaf.meta.get("val"))

        args, kwargs = compat.pytree.tree_unflatten([known(leaf) for leaf in leaves], spec)
        return eager(*args, **kwargs)

    try:
        inner = compat.traced(run, examples, undecomposed())
    except Exception as failure:
        reason = (str(failure).splitlines() or [""])[0]
        raise Stays(f"its functions can't be traced ({type(failure).__name__}: {reason})") from failure
    _fill_at_once(inner.graph)
    found = next((n for n in inner.graph.nodes if n.op == "call_function" and is_mutable(n)), None)
    if found is not None:
        raise Stays(f"its functions write in place ({name_of(found.target)})")
    return inner, operands


def _unprimed(gm: GraphModule) -> None:
    """Conversions as the operator that vmap has a rule for."""
    for n in list(gm.graph.nodes):
        if name_of(n.target) == "prims.convert_element_type.default":
            n.target = torch.ops.aten._to_copy.default
            n.args, n.kwargs = n.args[:1], {"dtype": n.args[1]}
    gm.recompile()


def _fill_at_once(graph: torch.fx.Graph) -> None:
    """Make values of tensors that are allocated and then filled whole."""
    allocated: set[Node] = set()
    nodes = list(graph.nodes)
    for place, n in enumerate(nodes):
        name = name_of(n.target)
        if name.startswith(_EMPTY):
            allocated.add(n)
        if name != "aten.copy_.default" or n.args[0] not in allocated:
            continue
        old = n.args[0]
        if any(user in nodes[:place] for user in old.users):
            continue
        with graph.inserting_before(n):
            made = graph.call_function(torch.ops.aten.copy.default, (old, n.args[1]))
        made.meta = {**n.meta, "val": old.meta["val"]}
        old.replace_all_uses_with(made, lambda user, made=made: user is not made)
        n.replace_all_uses_with(made)
        graph.erase_node(n)
        nodes[place] = made
        allocated.add(made)


def _splice(graph: torch.fx.Graph, node: Node, inner: GraphModule, operands: list[Any], held: dict[str, Any]) -> None:
    """Put a graph in the place of a node whose results it computes."""
    if not _read_apart(node):
        raise Stays("its results are read together")
    copies: dict[Node, Any] = {}
    placeholders = [n for n in inner.graph.nodes if n.op == "placeholder"]
    for placeholder, operand in zip(placeholders, operands, strict=True):
        copies[placeholder] = operand
    place = {k: node.meta[k] for k in ("stack_trace", "nn_module_stack", "source_fn_stack") if k in node.meta}
    with graph.inserting_before(node):
        for n in inner.graph.nodes:
            if n.op in ("placeholder", "output"):
                continue
            copies[n] = made = graph.node_copy(n, lambda x: copies[x])
            if not made.meta.get("stack_trace"):
                made.meta.update(place)
            if n.op == "get_attr":
                name = f"spelled_{len(held)}"
                held[name] = value_of(inner, n)
                made.target = name
        results = torch.fx.map_arg(inner.graph.output_node().args[0], lambda n: copies[n])
        _handed(graph, node, results, node.meta.get("val"), operands)


def _handed(graph: torch.fx.Graph, node: Node, result: Any, value: Any, operands: list[Any]) -> None:
    """Give those who read a node's value what was computed in its place."""
    if not isinstance(result, (list, tuple)):
        if node.users:
            node.replace_all_uses_with(_as_given(graph, result, value, operands))
    for user in list(node.users):
        i: Any = user.args[1]
        _handed(graph, user, result[i], value[i], operands)
    graph.erase_node(node)


def _read_apart(node: Node) -> bool:
    """Whether those who read a value of several results read one of them each."""
    if not isinstance(node.meta.get("val"), (list, tuple)):
        return True
    return all(user.target is operator.getitem and _read_apart(user) for user in node.users)


def _as_given(graph: torch.fx.Graph, result: Any, value: Any, operands: list[Any]) -> Any:
    """A result that lies as the operator's did."""
    if not isinstance(result, Node) or not isinstance(value, torch.Tensor):
        return result
    found = result.meta.get("val")
    if isinstance(found, torch.Tensor) and found.stride() == value.stride() and result not in operands:
        return result
    made = graph.call_function(torch.ops.aten.clone.default, (result,))
    made.meta = {**result.meta, "val": value}
    return made
