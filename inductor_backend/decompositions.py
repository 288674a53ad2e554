"""Operators taken apart as eager computes them, where torch's own decompositions differ in a value or a layout.

Input: the table of decompositions. Output: entries that replace some of it. Law: half precision is rounded where
eager's kernels round; NotImplemented leaves the operator to its row, or to ATen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_HALF = (torch.bfloat16, torch.float16)


def ours(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Entries for a copy of `table`."""
    aten = torch.ops.aten
    found: dict[Any, Callable[..., Any]] = {aten.roll.default: _roll}
    for op, replace in (
        (aten.linspace, _linspace),
        (aten._log_softmax, _log_softmax),
        (aten.grid_sampler_2d, _whole_precision_only),
        (aten.native_batch_norm, _batch_norm),
        (aten._native_batch_norm_legit, _batch_norm),
        (aten._native_batch_norm_legit_functional, _batch_norm),
        (aten._batch_norm_with_update, _batch_norm),
        (aten._batch_norm_with_update_functional, _batch_norm),
    ):
        for overload in (getattr(op, name) for name in op.overloads()):
            if overload in table and "out" not in overload._overloadname:
                found[overload] = functools.partial(replace, table[overload])
    return found


def _roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """`roll` as slices; torch's own decomposition is an `index_select`, which loses the layout that eager keeps."""
    if not x.numel():
        return x.clone()
    if not dims:
        return _roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    rolled = x
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        first = (size - shift) % size
        rolled = torch.cat([rolled.narrow(dim, first, size - first), rolled.narrow(dim, 0, first)], dim)
    return torch.ops.aten.copy.default(torch.empty_like(x), rolled)


def _linspace(plain: Callable[..., Any], start: Any, end: Any, steps: int, *, dtype: Any = None, **kw: Any) -> Any:
    """Of whole numbers torch's decomposition keeps the ends' fractions; of half precision it doesn't round the step."""
    dtype = dtype or torch.get_default_dtype()
    if steps > 1 and not dtype.is_complex and (dtype in _HALF or not dtype.is_floating_point):
        return NotImplemented
    return plain(start, end, steps, dtype=dtype, **kw)


def _whole_precision_only(plain: Callable[..., Any], x: torch.Tensor, *args: Any, **kw: Any) -> Any:
    """Left to ATen in half precision, whose weights and partial sums are rounded on the way."""
    return NotImplemented if x.dtype in _HALF else plain(x, *args, **kw)


def _log_softmax(plain: Callable[..., Any], x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """Along the last dimension eager rounds the sum and its logarithm to half precision."""
    if x.dtype not in _HALF or half_to_float or x.dim() == 0 or dim % x.dim() != x.dim() - 1 or not x.numel():
        return plain(x, dim, half_to_float)
    wide = x.float()
    wide = wide - wide.amax(dim, keepdim=True)
    total = wide.exp().sum(dim, keepdim=True).to(x.dtype).log()
    return (wide - total.float()).to(x.dtype)


def _batch_norm(plain: Callable[..., Any], x: torch.Tensor, weight: Any, bias: Any, *args: Any, **kw: Any) -> Any:
    """From statistics rounded to half precision where eager keeps them so."""
    results = plain(x, weight, bias, *args, **kw)
    mean, rstd = results[1:3]
    if x.dtype not in _HALF or mean.dtype != x.dtype or not mean.numel():
        return results
    if weight is not None and weight.dtype != x.dtype:
        return results
    along = lambda v: v.float().reshape(1, -1, *[1] * (x.dim() - 2))
    normal = (x.float() - along(mean)) * along(rstd)
    if weight is not None:
        normal = normal * along(weight)
    if bias is not None:
        normal = normal + along(bias)
    return (normal.to(x.dtype), *results[1:])
