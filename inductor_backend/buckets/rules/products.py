"""Matrix products, convolutions, windows and attention.

Input: the rewriter at a node. Output: its dimensions. Law: what pads a dimension that is summed over is zero in every
operand, since zero times infinity is not zero.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Rewriter
from inductor_backend.buckets.rules.table import broadcast, operand, rule, untouched

aten, prims = torch.ops.aten, torch.ops.prims


def _contracted(r: Rewriter, a: int, b: int, left: int, right: int) -> None:
    """Zeros in place of what pads a dimension that is summed over, in both operands."""
    x, y = r.here.args[a], r.here.args[b]
    if operand(r, x)[left] != operand(r, y)[right]:
        raise r.refuse("its operands are padded in different places")
    r.set_argument(a, r.filled(x, 0, [left]))
    r.set_argument(b, r.filled(y, 0, [right]))


@rule("aten.mm.default", "aten.bmm.default")
def product(r: Rewriter, node: Any) -> list[Dim]:
    """A matrix product: what is summed over is masked, the rest are lines by themselves."""
    a, b = operand(r, node.args[0]), operand(r, node.args[1])
    _contracted(r, 0, 1, -1, -2)
    return [*broadcast(r, a[:-2], b[:-2]), a[-2], b[-1]] if len(a) > 2 else [a[-2], b[-1]]


@rule("aten.addmm.default", "aten.baddbmm.default")
def add_product(r: Rewriter, node: Any) -> list[Dim]:
    """A matrix product and something added to it."""
    a, b = operand(r, node.args[1]), operand(r, node.args[2])
    _contracted(r, 1, 2, -1, -2)
    dims = [*(broadcast(r, a[:-2], b[:-2]) if len(a) > 2 else []), a[-2], b[-1]]
    return broadcast(r, dims, operand(r, node.args[0]))


@rule("aten.mv.default")
def matrix_vector(r: Rewriter, node: Any) -> list[Dim]:
    """A matrix times a vector."""
    a = operand(r, node.args[0])
    _contracted(r, 0, 1, -1, -1)
    return [a[0]]


@rule("aten.dot.default", "aten.vdot.default")
def inner(r: Rewriter, node: Any) -> list[Dim]:
    """An inner product."""
    _contracted(r, 0, 1, -1, -1)
    return []


@rule("aten.convolution.default")
def convolution(r: Rewriter, node: Any) -> list[Dim]:
    """Pictures by themselves: only the first dimension may be padded."""
    dims = operand(r, node.args[0])
    untouched(r, node, range(1, len(dims)))
    if any(map(r.varies, operand(r, node.args[1]))) or len(dims) != len(operand(r, node.args[1])):
        raise r.refuse("its weight is padded")
    return [dims[0], *r.given_dims(node)[1:]]


@rule("aten.convolution_backward.default")
def convolution_backward(r: Rewriter, node: Any) -> Any:
    """Gradients: that of the weight is a sum over pictures."""
    grad, x, weight = (operand(r, node.args[i]) for i in range(3))
    if grad[0] != x[0] or any(map(r.varies, [*grad[1:], *x[1:], *weight])) or len(x) != len(weight):
        raise r.refuse("more than its first dimension is padded")
    r.set_argument(0, r.filled(node.args[0], 0))
    r.set_argument(1, r.filled(node.args[1], 0))
    mask = node.args[-1]
    return [x if mask[0] else None, weight if mask[1] else None, [grad[1]] if mask[2] else None]


def _leading(*names: str, count: int, operands: int = 1, results: int = 1) -> None:
    """Operators on pictures by themselves: the last `count` dimensions may not be padded."""

    def lead(r: Rewriter, node: Any) -> Any:
        tensors = [a for a in node.args[:operands] if isinstance(a, Node)]
        for x in tensors:
            if any(r.varies(d) for d in operand(r, x)[-count:]):
                raise r.refuse("a dimension that it moves a window along is padded")
        dims = r.dims[tensors[-1]][:-count]
        values = node.meta["val"] if results > 1 else [node.meta["val"]]
        found = [[*dims, *r.given_dims(node, v)[-count:]] for v in values]
        return found if results > 1 else found[0]

    rule(*names)(lead)


_leading("aten.max_pool2d_with_indices.default", "prims._low_memory_max_pool_with_offsets.default", count=2, results=2)
_leading("prims._low_memory_max_pool_offsets_to_indices.default", "aten.avg_pool2d.default", count=2)
_leading("aten._adaptive_avg_pool2d.default", "aten.constant_pad_nd", count=2)
_leading("aten.max_pool2d_with_indices_backward.default", "aten.avg_pool2d_backward.default", count=2, operands=2)
_leading("aten._adaptive_avg_pool2d_backward.default", count=2, operands=2)
_leading("aten.avg_pool1d.default", count=1)


def _keys_masked(r: Rewriter, node: Any, position: int, q: int, k: int) -> None:
    """A mask that leaves out the keys that pad."""
    dims = operand(r, node.args[k])
    queries = operand(r, node.args[q])
    given = node.kwargs.get("attn_mask", node.args[position] if len(node.args) > position else None)
    if not r.varies(dims[2]):
        return
    own = r.own([(), (), (), dims[2]], [3])
    if given is None:
        mask = own
    elif given.meta["val"].dtype is torch.bool:
        mask = r.call(aten.bitwise_and.Tensor, own, given, dims=broadcast(r, r.dims[own], operand(r, given)))
    else:
        low = r.call(aten.full.default, [], -math.inf, dtype=given.meta["val"].dtype, device=torch.device("cpu"))
        mask = r.call(aten.where.self, own, given, low, dims=broadcast(r, r.dims[own], operand(r, given)))
    broadcast(r, [*queries[:3], dims[2]], r.dims[mask])
    node.kwargs = {**node.kwargs, "attn_mask": mask}
    if len(node.args) > position:
        node.args = node.args[:position]


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(r: Rewriter, node: Any) -> Any:
    """Queries by themselves; keys that pad are left out, and their values are zeros."""
    q, k, v = (operand(r, node.args[i]) for i in range(3))
    if k[2] != v[2] or q[0] != k[0] or any(map(r.varies, (q[3], k[3], v[3]))):
        raise r.refuse("its operands are padded in different places")
    _keys_masked(r, node, 5, 0, 1)
    r.set_argument(2, r.filled(node.args[2], 0, [2]))
    return [[*q[:3], v[3]], q[:3]]


@rule("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(r: Rewriter, node: Any) -> Any:
    """Gradients: zeros in every operand, and the keys that pad left out."""
    q, k, v = (operand(r, node.args[i]) for i in (1, 2, 3))
    if k[2] != v[2] or q[0] != k[0] or any(map(r.varies, (q[3], k[3], v[3]))):
        raise r.refuse("its operands are padded in different places")
    _keys_masked(r, node, 8, 1, 2)
    for position in range(6):
        r.set_argument(position, r.filled(node.args[position], 0))
    return [q, k, v]
