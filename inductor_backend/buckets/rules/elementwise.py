"""Operators on each element by itself, and those that make a tensor of one value or count.

Input: the rewriter at a node. Output: its dimensions. Law: elements that pad stay where they are; a number made of
sizes enters as the call's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Rewriter
from inductor_backend.buckets.rules.table import broadcast, operand, rule
from inductor_backend.graph import name_of, row_of
from inductor_backend.ops.table import KEEP, POINTWISE, Row

aten, prims = torch.ops.aten, torch.ops.prims

#: Elementwise rows that keep their operands' dtypes: (positions of tensors that broadcast).
_ELEMENTWISE = {
    "aten.where.self", "prims.convert_element_type.default", "aten._to_copy.default", "aten.clone.default",
    "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.copy.default",
    "aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.nan_to_num.default", "aten.complex.default",
    "prims.inductor_force_stride_order.default", "aten.polygamma.default",
}  # fmt: skip
#: These make a tensor of one value.
_MADE = {
    "aten.full.default", "aten.full_like.default", "aten.new_full.default", "aten.fill.Scalar", "aten.fill.Tensor",
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.ones.default",
    "aten.ones_like.default", "aten.new_ones.default", "aten.empty.memory_format", "aten.empty_like.default",
    "aten.new_empty.default", "aten.empty_strided.default", "aten.new_empty_strided.default",
    "aten.empty_permuted.default", "aten.scalar_tensor.default",
}  # fmt: skip
#: Of these, which argument is the value.
_VALUE_AT = {
    "aten.full.default": 1, "aten.full_like.default": 1, "aten.new_full.default": 2, "aten.scalar_tensor.default": 0,
    "aten.fill.Scalar": 1, "aten.fill.Tensor": 1,
}  # fmt: skip


def by_element(entry: Row) -> bool:
    """Whether an operator works on each element by itself."""
    return entry.kind == POINTWISE and (entry.promote != KEEP or entry.name in _ELEMENTWISE)


def elementwise(r: Rewriter, node: Any) -> list[Dim]:
    """An operator on each element by itself."""
    node.args = tuple(r.value(a) for a in node.args)
    node.kwargs = {k: r.value(v) for k, v in node.kwargs.items()}
    entry, value = row_of(node), node.meta["val"]
    dims = [r.dims[a] for a in (*node.args, *node.kwargs.values()) if isinstance(a, Node) and r.dims.get(a) is not None]
    if entry is not None and entry.divides and not value.dtype.is_floating_point and isinstance(node.args[1], Node):
        r.set_argument(1, r.filled(node.args[1], 1))
    return broadcast(r, *dims)


@rule(*_MADE)
def made(r: Rewriter, node: Any) -> list[Dim]:
    """One value everywhere."""
    name = name_of(node.target)
    place = _VALUE_AT.get(name)
    if place is not None:
        r.set_argument(place, r.value(node.args[place]))
    if name.split(".")[1] in ("full_like", "fill", "zeros_like", "ones_like", "empty_like"):
        return operand(r, node.args[0])
    return r.given_dims(node)


@rule("prims.iota.default")
def iota(r: Rewriter, node: Any) -> list[Dim] | None:
    """Numbers that count up: right where padding lies behind them."""
    (dim,) = r.given_dims(node)
    start, step = node.kwargs["start"], node.kwargs["step"]
    moved = r.value(start)
    if not r.single(dim) or r.value(step) is not step:
        raise r.refuse("it counts across padding")
    if moved is start:
        return [dim]
    kwargs = {**node.kwargs, "start": 0}
    counted = r.call(prims.iota.default, *node.args, dims=[dim], **kwargs)
    r.replace(r.call(aten.add.Tensor, counted, moved, dims=[dim]))
    return None
