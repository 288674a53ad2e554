"""The ranges of a graph's whole numbers, and the operators whose 64-bit numbers 32 bits may not hold.

Input: a plan. Output: `Spans`. Law: inputs and results of ATen hold 32-bit numbers (the program refuses others), and so
does every result that is checked when the graph runs; nothing else is assumed.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.compat import pytree
from inductor_backend.graph import Graph, Spec, arguments, concrete, row_of
from inductor_backend.ops.whole import INT32, Growth, Known, Range, Unproven, of_dtype


@dataclass
class Spans:
    """What is known of the whole numbers of a graph.

    Attributes:
        ranges: of every value; a list for one with several results, None where nothing is known.
        checked: nodes whose numbers are checked at run time, with how.
        unproven: nodes with int64 results of which nothing is known and nothing can be checked.
    """

    ranges: dict[Node, Any] = field(default_factory=dict)
    checked: dict[Node, Growth] = field(default_factory=dict)
    unproven: list[Node] = field(default_factory=list)


def spans_of(plan: Graph) -> Spans:
    """Follow the ranges through a graph."""
    found = Spans()
    for node in [n for segment in plan.segments for n in segment.nodes]:
        specs = plan.specs[node]
        if specs is None or node in plan.aten or node in plan.inlined:
            continue
        if node.target is operator.getitem:
            source, position = arguments(node)
            several = found.ranges.get(source)
            found.ranges[node] = several[position] if isinstance(several, list) else _outer(specs)
            continue
        entry = row_of(node)
        growth = entry.grows if entry is not None else None
        given = None if growth is None else _applied(growth, node, plan, found)
        if not isinstance(specs, list):
            found.ranges[node] = _kept(specs, given)
            escapes = _escapes(specs, given)
        else:
            each = given if isinstance(given, list) else [given] * len(specs)
            found.ranges[node] = [_kept(s, r) for s, r in zip(specs, each)]
            escapes = any(_escapes(s, r) for s, r in zip(specs, each))
        if not escapes:
            continue
        if growth is not None and growth.check and not isinstance(specs, list) and _distinct(growth, node):
            found.checked[node] = growth
        else:
            found.unproven.append(node)
    return found


def _escapes(spec: Any, given: Range | None) -> bool:
    """Whether a result may need more than 32 bits."""
    return isinstance(spec, Spec) and spec.dtype == torch.int64 and (given is None or not given <= INT32)


def _kept(spec: Any, given: Range | None) -> Range | None:
    """The range of a result whose operator gives `given`, as far as its dtype holds it."""
    outer = _outer(spec)
    if given is None or not isinstance(spec, Spec):
        return outer
    if outer is None:  # of floats, rounding may leave a range by a little
        return Range(given.low - abs(given.low) / 128, given.high + abs(given.high) / 128)
    given = Range(math.floor(given.low), math.ceil(given.high))
    return given & outer if spec.dtype == torch.int64 or given <= outer else outer


def _outer(spec: Any) -> Range | None:
    return of_dtype(spec.dtype) if isinstance(spec, Spec) else None


def _applied(growth: Growth, node: Node, plan: Graph, found: Spans) -> Any:
    def seen(value: Node) -> Any:
        if value in plan.static:
            return plan.static[value]
        spec = plan.specs.get(value)
        if not isinstance(spec, Spec):
            return spec
        return Known(found.ranges.get(value, _outer(spec)), spec.shape, spec.dtype)

    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), seen)
    args, kwargs = pytree.tree_map(lambda value: concrete(value, plan.symbols), (args, kwargs))
    try:
        return growth.range(*args, **kwargs)  # pyright: ignore[reportCallIssue]
    except Unproven:
        return None


def data_of(growth: Growth, node: Node) -> list[Node]:
    """The tensors among a node's arguments that hold its numbers."""
    given = node.args if growth.data is None else [node.args[p] for p in growth.data if p < len(node.args)]
    return list(dict.fromkeys(v for v in given if isinstance(v, Node)))


def _distinct(growth: Growth, node: Node) -> bool:
    """Whether no tensor is an index and holds numbers as well."""
    if growth.data is None:
        return True
    others: list[Node] = []
    torch.fx.map_arg([a for i, a in enumerate(node.args) if i not in growth.data], others.append)
    return not set(others) & set(data_of(growth, node))
