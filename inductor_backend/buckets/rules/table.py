"""Where the rules are registered, and what they share.

Input: the names of operators above a function of the rewriter and a node. Output: `RULES`. Law: an operator has one
rule; a rule returns the dimensions of the result, or None when it has put other nodes in the node's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Rewriter

prims = torch.ops.prims
Rule = Callable[[Rewriter, Any], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some operators."""

    def register(fn: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = fn
        return fn

    return register


def operand(r: Rewriter, node: Any) -> list[Dim]:
    """The dimensions of an operand."""
    dims = r.dims.get(node) if isinstance(node, Node) else None
    if dims is None:
        raise r.refuse("an operand is not a tensor")
    return dims


def broadcast(r: Rewriter, *operands: Sequence[Dim]) -> list[Dim]:
    """The dimensions of what is made of operands element by element."""
    rank = max(len(o) for o in operands)
    found: list[Dim] = [()] * rank
    for dims in operands:
        for d, dim in enumerate(dims, rank - len(dims)):
            if found[d] == ():
                found[d] = dim
            elif dim not in ((), found[d]):
                raise r.refuse("its operands are padded in different places")
    return found


def axes_of(dims: Sequence[Dim], given: Any) -> list[int]:
    """Which dimensions an argument names; all of them for none."""
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return list(range(len(dims)))
    listed = given if isinstance(given, (list, tuple)) else [given]
    return sorted({d % len(dims) for d in listed}) if dims else []


def named(node: Any, position: int, name: str, default: Any = None) -> Any:
    """An argument that is given by position or by name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def wide(r: Rewriter, x: Any, dtype: torch.dtype) -> Node:
    """`x` in another dtype."""
    if x.meta["val"].dtype == dtype:
        return x
    return r.call(prims.convert_element_type.default, x, dtype, dims=r.dims[x])


def untouched(r: Rewriter, node: Any, axes: Any) -> list[Dim]:
    """The first operand's dimensions, of which some may not be padded."""
    dims = operand(r, node.args[0])
    if any(r.varies(dims[d % len(dims)]) for d in (axes if not isinstance(axes, int) else [axes])):
        raise r.refuse("a dimension that it works along is padded")
    return dims
