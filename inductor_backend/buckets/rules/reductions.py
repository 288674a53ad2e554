"""Reductions, norms, scans and orders.

Input: the rewriter at a node. Output: its dimensions. Law: what pads a dimension that is reduced takes the value that
leaves the result as it is; numbers of elements are the call's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from inductor_backend.buckets.lines import Dim
from inductor_backend.buckets.rewrite import Rewriter
from inductor_backend.buckets.rules.table import axes_of, named, operand, rule, untouched, wide
from inductor_backend.graph import name_of

aten, prims = torch.ops.aten, torch.ops.prims


def _lowest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return -math.inf
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return math.inf
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def _reduced(dims: Sequence[Dim], axes: Sequence[int], keepdim: bool) -> list[Dim]:
    if keepdim:
        return [() if d in axes else dim for d, dim in enumerate(dims)]
    return [dim for d, dim in enumerate(dims) if d not in axes]


def reduction(fill: Callable[[torch.dtype], Any], *names: str, whole: bool = False, results: int = 1) -> None:
    """The rule of a reduction that some value leaves as it is; `whole` ones have no list of dimensions."""

    def reduce(r: Rewriter, node: Any) -> Any:
        dims = operand(r, node.args[0])
        axes = list(range(len(dims))) if whole else axes_of(dims, named(node, 1, "dim"))
        r.set_argument(0, r.filled(node.args[0], fill(node.args[0].meta["val"].dtype), axes))
        left = _reduced(dims, axes, not whole and bool(named(node, 2, "keepdim", False)))
        return left if results == 1 else [left] * results

    rule(*names)(reduce)


reduction(lambda dtype: 0, "aten.sum.default", whole=True)
reduction(lambda dtype: 0, "aten.sum.dim_IntList")
reduction(lambda dtype: 1, "aten.prod.default", whole=True)
reduction(lambda dtype: 1, "aten.prod.dim_int")
reduction(_lowest, "aten.max.default", whole=True)
reduction(_highest, "aten.min.default", whole=True)
reduction(_lowest, "aten.amax.default", "aten.logsumexp.default")
reduction(_highest, "aten.amin.default")
reduction(lambda dtype: 0, "aten.any.default", whole=True)
reduction(lambda dtype: 0, "aten.any.dim", "aten.any.dims")
reduction(lambda dtype: 1, "aten.all.default", whole=True)
reduction(lambda dtype: 1, "aten.all.dim", "aten.all.dims")


@rule("aten._assert_async.default", "aten._assert_async.msg")
def assertion(r: Rewriter, node: Any) -> list[Dim]:
    """A condition that holds for what pads."""
    r.set_argument(0, r.filled(node.args[0], 1))
    return []


def _mean(r: Rewriter, x: Any, axes: list[int], keep: bool) -> Node:
    """The mean of a tensor's own elements."""
    dims = r.dims[x]
    total = r.call(aten.sum.dim_IntList, r.filled(x, 0, axes), axes, keep, dims=_reduced(dims, axes, keep))
    count = r.product([part for d in axes for part in dims[d]])
    return r.call(aten.div.Tensor, total, count, dims=r.dims[total])


def _opmath(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@rule("aten.mean.default", "aten.mean.dim")
def mean(r: Rewriter, node: Any) -> list[Dim] | None:
    """The sum of the call's own elements over their number."""
    x, dims = node.args[0], operand(r, node.args[0])
    whole = name_of(node.target) == "aten.mean.default"
    axes = list(range(len(dims))) if whole else axes_of(dims, named(node, 1, "dim"))
    keep = not whole and bool(named(node, 2, "keepdim", False))
    if not any(r.varies(dims[d]) for d in axes):
        return _reduced(dims, axes, keep)
    out = node.meta["val"].dtype
    found = _mean(r, wide(r, x, _opmath(out)), axes, keep)
    r.replace(wide(r, found, out))
    return None


def _squares(r: Rewriter, node: Any) -> tuple[Node, Node, list[int], bool] | None:
    """(the variance, the mean, the axes, keepdim) of the call's own elements; None where no axis is padded."""
    x, dims = node.args[0], operand(r, node.args[0])
    axes, keep = axes_of(dims, named(node, 1, "dim")), bool(node.kwargs.get("keepdim", False))
    if not any(r.varies(dims[d]) for d in axes):
        return None
    correction = node.kwargs.get("correction")
    correction = 1 if correction is None else correction
    if correction != int(correction) or x.meta["val"].dtype.is_complex:
        raise r.refuse("its correction is no whole number")
    x = wide(r, x, _opmath(x.meta["val"].dtype))
    middle = _mean(r, x, axes, True)
    rest = r.filled(r.call(aten.sub.Tensor, x, middle, dims=dims), 0, axes)
    squares = r.call(aten.mul.Tensor, rest, rest, dims=dims)
    total = r.call(aten.sum.dim_IntList, squares, axes, keep, dims=_reduced(dims, axes, keep))
    count: Any = r.product([part for d in axes for part in dims[d]])
    if correction:
        count = r.call(aten.clamp_min.default, r.call(aten.sub.Tensor, count, int(correction)), 0)
    variance = r.call(aten.div.Tensor, total, count, dims=r.dims[total])
    if not keep:
        middle = r.call(aten.squeeze.dims, middle, axes, dims=_reduced(dims, axes, False))
    return variance, middle, axes, keep


@rule("aten.var.correction", "aten.std.correction")
def variance(r: Rewriter, node: Any) -> list[Dim] | None:
    """Mean square distance from the mean."""
    found = _squares(r, node)
    if found is None:
        dims = operand(r, node.args[0])
        return _reduced(dims, axes_of(dims, named(node, 1, "dim")), bool(node.kwargs.get("keepdim", False)))
    value = found[0]
    if "std" in name_of(node.target):
        value = r.call(aten.sqrt.default, value, dims=r.dims[value])
    r.replace(wide(r, value, node.meta["val"].dtype))
    return None


@rule("aten.var_mean.correction")
def var_mean(r: Rewriter, node: Any) -> Any:
    """Variance and mean: their readers get one each."""
    found = _squares(r, node)
    if found is None:
        dims = operand(r, node.args[0])
        left = _reduced(dims, axes_of(dims, named(node, 1, "dim")), bool(node.kwargs.get("keepdim", False)))
        return [left, left]
    out = node.meta["val"][0].dtype
    results = [wide(r, found[0], out), wide(r, found[1], out)]
    r.dims[node] = None
    for user in list(node.users):
        made = results[user.args[1]]
        made.meta["val"] = user.meta["val"]
        user.replace_all_uses_with(made)
        r.graph.erase_node(user)
    r.graph.erase_node(node)
    return None


@rule("aten.native_layer_norm.default")
def layer_norm(r: Rewriter, node: Any) -> Any:
    """Rows by themselves, where the rows are not padded."""
    dims, normalised = operand(r, node.args[0]), len(node.args[1])
    untouched(r, node, range(len(dims) - normalised, len(dims)))
    left = _reduced(dims, range(len(dims) - normalised, len(dims)), True)
    return [dims, left, left]


@rule("aten._softmax.default", "aten._log_softmax.default")
def softmax(r: Rewriter, node: Any) -> list[Dim]:
    """A row: what pads it has no weight."""
    dims = operand(r, node.args[0])
    r.set_argument(0, r.filled(node.args[0], -math.inf, [node.args[1]]))
    return dims


@rule("prims.prepare_softmax_online.default")
def softmax_parts(r: Rewriter, node: Any) -> Any:
    """The maximum of a row, and the sum of its exponentials."""
    dims = operand(r, node.args[0])
    r.set_argument(0, r.filled(node.args[0], -math.inf, [node.args[1]]))
    left = _reduced(dims, axes_of(dims, node.args[1]), True)
    return [left, left]


@rule("aten.linalg_vector_norm.default")
def vector_norm(r: Rewriter, node: Any) -> list[Dim]:
    """A norm that zeros leave as it is."""
    dims = operand(r, node.args[0])
    axes = axes_of(dims, named(node, 2, "dim"))
    if named(node, 1, "ord", 2) < 0 and any(r.varies(dims[d]) for d in axes):
        raise r.refuse("a norm of negative order is not one that zeros leave as it is")
    r.set_argument(0, r.filled(node.args[0], 0, axes))
    return _reduced(dims, axes, bool(named(node, 3, "keepdim", False)))


def _places(fill: Callable[[torch.dtype], Any], *names: str, both: bool) -> None:
    def place(r: Rewriter, node: Any) -> Any:
        dims = operand(r, node.args[0])
        given = named(node, 1, "dim")
        axes = axes_of(dims, given)
        if any(r.varies(dims[d]) for d in axes) and (len(axes) > 1 or not r.single(dims[axes[0]])):
            raise r.refuse("places are counted across padding")
        r.set_argument(0, r.filled(node.args[0], fill(node.args[0].meta["val"].dtype), axes))
        left = _reduced(dims, axes, bool(named(node, 2, "keepdim", False)))
        return [left, left] if both else left

    rule(*names)(place)


_places(_lowest, "aten.argmax.default", both=False)
_places(_highest, "aten.argmin.default", both=False)
_places(_lowest, "aten.max.dim", both=True)
_places(_highest, "aten.min.dim", both=True)


def _scan(fill: Callable[[torch.dtype], Any], *names: str, both: bool = False) -> None:
    def scan(r: Rewriter, node: Any) -> Any:
        dims = operand(r, node.args[0])
        d = node.args[1] % max(len(dims), 1)
        if dims and r.varies(dims[d]):
            if not r.single(dims[d]):
                raise r.refuse("it runs across padding")
            r.set_argument(0, r.filled(node.args[0], fill(node.args[0].meta["val"].dtype), [d]))
        return [dims, dims] if both else dims

    rule(*names)(scan)


_scan(lambda dtype: 0, "aten.cumsum.default")
_scan(lambda dtype: 1, "aten.cumprod.default")
_scan(_lowest, "aten.logcumsumexp.default")
_scan(_lowest, "aten.cummax.default", both=True)
_scan(_highest, "aten.cummin.default", both=True)


@rule("aten.sort.default", "aten.sort.stable", "aten.topk.default")
def ordered(r: Rewriter, node: Any) -> Any:
    """Rows by themselves, where the rows are not padded."""
    dims = list(operand(r, node.args[0]))
    topk = name_of(node.target) == "aten.topk.default"
    given = named(node, 2, "dim", -1) if topk else node.kwargs.get("dim", node.args[-1] if len(node.args) > 1 else -1)
    if isinstance(given, bool):
        given = node.args[-2]
    d = given % len(dims)
    if r.varies(dims[d]):
        raise r.refuse("it orders elements along a padded dimension")
    dims[d] = r.given_dims(node, node.meta["val"][0])[d]
    return [dims, dims]
