"""Gathers and scatters.

Input: the rewriter at a node. Output: its dimensions. Law: an index that pads is in range and reads or adds nothing
that counts; an index out of the call's own range is still refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Rewriter
from inductor_backend.buckets.rules.table import broadcast, named, operand, rule, wide
from inductor_backend.graph import name_of

aten, prims = torch.ops.aten, torch.ops.prims


def _checked(r: Rewriter, index: Any, dim: Dim, negative: bool) -> Node:
    """An index whose padding is in range; into a padded dimension, one that is out of the call's own range stays so."""
    index = r.filled(index, 0)
    if not r.varies(dim):
        return index
    if len(dim) != 1:
        raise r.refuse("it indexes a padded dimension that is several in one")
    dims, length = r.dims[index], r.number(dim[0])
    if index.meta["val"].dtype != torch.int64:
        index = wide(r, index, torch.int64)
    if negative:
        behind = r.call(aten.add.Tensor, index, length, dims=dims)
        wrapped = r.call(aten.where.self, r.call(aten.lt.Scalar, index, 0, dims=dims), behind, index, dims=dims)
        beyond = r.call(aten.lt.Scalar, wrapped, 0, dims=dims)
        index = wrapped
    far = r.call(aten.full.default, [], 1 << 40, dtype=torch.int64, device=torch.device("cpu"))
    outside = r.call(aten.ge.Tensor, index, length, dims=dims)
    if negative:
        outside = r.call(aten.bitwise_or.Tensor, outside, beyond, dims=dims)
    return r.call(aten.where.self, outside, far, index, dims=dims)


@rule("aten.embedding.default")
def embedding(r: Rewriter, node: Any) -> list[Dim]:
    """Rows of a table."""
    table = operand(r, node.args[0])
    r.set_argument(1, _checked(r, node.args[1], table[0], False))
    return [*operand(r, node.args[1]), *table[1:]]


@rule("aten.embedding_dense_backward.default")
def embedding_backward(r: Rewriter, node: Any) -> list[Dim]:
    """Sums of gradients: what pads adds zeros to the first row."""
    if len(node.args) > 4 and node.args[4]:
        raise r.refuse("it counts its indices")
    r.set_argument(0, r.filled(node.args[0], 0))
    r.set_argument(1, r.filled(node.args[1], 0))
    return r.given_dims(node)


def _indexed(r: Rewriter, node: Any) -> tuple[list[Any], list[Dim], int, list[int]]:
    """(indices with their padding in range, their dimensions, where these go, the indexed dimensions)."""
    dims, indices = operand(r, node.args[0]), list(node.args[1])
    places = [d for d, i in enumerate(indices) if i is not None]
    if any(i.meta["val"].dtype in (torch.bool, torch.uint8) for i in indices if i is not None):
        raise r.refuse("it indexes by a mask")
    for d in places:
        indices[d] = _checked(r, indices[d], dims[d], True)
    together = broadcast(r, *[operand(r, indices[d]) for d in places])
    adjacent = places == list(range(places[0], places[0] + len(places)))
    return indices, together, places[0] if adjacent else 0, places


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(r: Rewriter, node: Any) -> list[Dim]:
    """Elements by index tensors."""
    indices, together, start, places = _indexed(r, node)
    r.set_argument(1, indices)
    rest = [dim for d, dim in enumerate(r.dims[node.args[0]]) if d not in places]
    return [*rest[:start], *together, *rest[start:]]


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(r: Rewriter, node: Any) -> list[Dim]:
    """Elements added to by index tensors: what pads adds zeros."""
    dims = operand(r, node.args[0])
    indices, together, start, places = _indexed(r, node)
    accumulate = bool(named(node, 3, "accumulate", False))
    if any(map(r.varies, together)) and not accumulate:
        raise r.refuse("what pads would be written over elements")
    rest = [dim for d, dim in enumerate(dims) if d not in places]
    broadcast(r, [*rest[:start], *together, *rest[start:]], operand(r, node.args[2]))
    values = node.args[2]
    if any(map(r.varies, together)):
        if len(operand(r, values)) != len(rest) + len(together):
            raise r.refuse("its values are broadcast")
        for d in range(len(together)):
            if r.varies(together[d]) and r.dims[values][start + d] == ():
                raise r.refuse("its values are broadcast")
        values = r.filled(values, 0, [start + d for d in range(len(together))])
    node.args = (node.args[0], indices, values, *node.args[3:])
    return dims


@rule("aten._unsafe_masked_index_put_accumulate.default")
def masked_index_put(r: Rewriter, node: Any) -> list[Dim]:
    """Elements added to where a mask is true: it is not where padding lies."""
    x, mask, given, values = node.args
    dims = operand(r, x)
    places = [d for d, i in enumerate(given) if i is not None]
    if any(r.varies(dims[d]) for d in places):
        raise r.refuse("it indexes a padded dimension")
    together, whole = broadcast(r, *[operand(r, given[d]) for d in places]), operand(r, values)
    start = places[0] if places == list(range(places[0], places[0] + len(places))) else 0
    if len(whole) != len(together) + len(dims) - len(places):
        raise r.refuse("its values are broadcast")
    if any(r.varies(dim) and whole[start + i] != dim for i, dim in enumerate(together)):
        raise r.refuse("its values are broadcast")
    broadcast(r, whole, operand(r, mask))
    # An index that pads may be anything: it is brought into range, and adds a zero.
    r.set_argument(3, r.filled(values, 0))
    return dims


@rule("aten.index_select.default")
def index_select(r: Rewriter, node: Any) -> list[Dim]:
    """Slices of one dimension by an index vector."""
    dims = list(operand(r, node.args[0]))
    d = node.args[1] % len(dims)
    r.set_argument(2, _checked(r, node.args[2], dims[d], False))
    dims[d] = (r.dims[node.args[2]] or [()])[0]
    return dims


def _lined_up(r: Rewriter, x: Sequence[Dim], d: int, index: Sequence[Dim]) -> None:
    """Check that an index tensor takes every line of `x`, or a static part of them."""
    for i, (a, b) in enumerate(zip(x, index)):
        if i != d and a != b and (r.varies(a) or r.varies(b)):
            raise r.refuse("its index is padded in other places")


@rule("aten.gather.default")
def gather(r: Rewriter, node: Any) -> list[Dim]:
    """Elements of lines by an index for each."""
    dims, chosen = operand(r, node.args[0]), operand(r, node.args[2])
    d = node.args[1] % max(len(dims), 1)
    _lined_up(r, dims, d, chosen)
    r.set_argument(2, _checked(r, node.args[2], dims[d] if dims else (), False))
    return chosen


@rule("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default")
def scatter(r: Rewriter, node: Any) -> list[Dim]:
    """Elements of lines replaced or added to; what pads a line's index adds zeros to it."""
    dims, chosen = operand(r, node.args[0]), operand(r, node.args[2])
    d = node.args[1] % max(len(dims), 1)
    _lined_up(r, dims, d, chosen)
    if dims and r.varies(chosen[d]) and name_of(node.target) != "aten.scatter_add.default":
        raise r.refuse("what pads would be written over elements")
    if name_of(node.target) != "aten.scatter.value":
        _lined_up(r, chosen, -1, operand(r, node.args[3]))
        if dims and r.varies(chosen[d]):
            r.set_argument(3, r.filled(node.args[3], 0, [d]))
    r.set_argument(2, _checked(r, node.args[2], dims[d] if dims else (), False))
    return dims


@rule("aten.index_add.default")
def index_add(r: Rewriter, node: Any) -> list[Dim]:
    """Slices added to by an index vector; what pads adds zeros."""
    x, d, index, source = node.args[:4]
    dims, given = operand(r, x), operand(r, source)
    d %= max(len(dims), 1)
    _lined_up(r, dims, d, given)
    if given and operand(r, index) and given[d] != r.dims[index][0]:
        raise r.refuse("its index is padded in other places")
    if given:
        r.set_argument(3, r.filled(source, 0, [d]))
    r.set_argument(2, _checked(r, index, dims[d] if dims else (), False))
    return dims


@rule("aten.bucketize.Tensor")
def bucketize(r: Rewriter, node: Any) -> list[Dim]:
    """Where elements lie between boundaries."""
    if any(map(r.varies, operand(r, node.args[1]))):
        raise r.refuse("its boundaries are padded")
    return operand(r, node.args[0])
