"""Operators on lists of tensors (`_foreach_add`, which optimisers are made of) as one operator a tensor.

Input: the graph that the partitioner left. Output: the same graph, changed in place. Law: an expanded operator means
what its elements mean one by one, so that rows, fusion and notes treat it as they treat any other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.compat import OpOverload

#: (operator of one element, positional arguments, keyword arguments).
_Call = tuple[str, tuple[Any, ...], dict[str, Any]]

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac",
    "lgamma", "log", "log10", "log1p", "log2", "max", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
#: List operator -> operators of a tensor with a tensor, and with a number.
_BINARY = {
    "add": ("add.Tensor", "add.Scalar"),
    "sub": ("sub.Tensor", "sub.Scalar"),
    "mul": ("mul.Tensor", "mul.Scalar"),
    "div": ("div.Tensor", "div.Scalar"),
    "maximum": ("maximum.default", "clamp_min.default"),
    "minimum": ("minimum.default", "clamp_max.default"),
    "clamp_min": ("maximum.default", "clamp_min.default"),
    "clamp_max": ("minimum.default", "clamp_max.default"),
    "pow": ("pow.Tensor_Tensor", "pow.Tensor_Scalar"),
    "copy": ("copy.default", "copy.default"),
}


def _element(name: str, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any], i: int) -> _Call | None:
    """What the i-th result is; None for an operator that stays whole."""
    lists = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
    if name in _UNARY and overload == "default":
        return f"{name}.default", (lists[0],), kwargs
    if name in _BINARY and overload in ("List", "Scalar", "ScalarList", "Tensor", "default"):
        target = _BINARY[name][0 if isinstance(lists[1], Node) else 1]
        extra = {k: v for k, v in kwargs.items() if k == "alpha"}
        extra |= {"alpha": lists[2]} if len(lists) > 2 and name in ("add", "sub") else {}
        return target, (lists[0], lists[1]), extra
    if name == "pow" and overload == "ScalarAndTensor":
        return "pow.Scalar", (lists[0], lists[1]), {}
    if name in ("addcmul", "addcdiv") and overload in ("Scalar", "ScalarList"):
        value = kwargs.get("value", lists[3] if len(lists) > 3 else 1)
        return f"{name}.default", tuple(lists[:3]), {"value": value}
    if name == "lerp" and overload in ("List", "Scalar", "ScalarList"):
        return ("lerp.Tensor" if isinstance(lists[2], Node) else "lerp.Scalar"), tuple(lists), {}
    if name == "norm" and overload == "Scalar":
        return "linalg_vector_norm.default", (lists[0], lists[1] if len(lists) > 1 else 2), kwargs
    if name == "zero" and overload == "default":
        return "full_like.default", (lists[0], 0), {}
    return None


def expand_lists(gm: torch.fx.GraphModule) -> None:
    """Replace every list operator by one operator a tensor, where its elements have one."""
    changed = False
    for node in list(gm.graph.nodes):
        if isinstance(node.target, OpOverload) and node.target._schema.name.startswith("aten::_foreach_"):
            changed |= _expand(gm.graph, node)
    if changed:
        gm.recompile()


def _expand(graph: torch.fx.Graph, node: Any) -> bool:
    name = node.target._schema.name.removeprefix("aten::_foreach_")
    overload = node.target._schema.overload_name or "default"
    values = node.meta.get("val")
    whole = node.target._schema.is_mutable or not isinstance(values, (list, tuple))
    if whole or any(user.target is not operator.getitem for user in node.users):
        return False
    calls = [_element(name, overload, node.args, dict(node.kwargs), i) for i in range(len(values))]
    if None in calls:
        return False
    made: dict[int, Node] = {}
    for user in list(node.users):
        i = user.args[1]
        if i not in made:
            target, args, kwargs = calls[i]
            with graph.inserting_before(user):
                made[i] = graph.call_function(_overload(target), args, kwargs)
            made[i].meta.update({k: v for k, v in node.meta.items() if k != "val"})
            made[i].meta["val"] = values[i]
        user.replace_all_uses_with(made[i])
        graph.erase_node(user)
    graph.erase_node(node)
    return True


def _overload(name: str) -> Callable[..., Any]:
    op, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, op), overload)
