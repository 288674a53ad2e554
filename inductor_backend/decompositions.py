"""Operators taken apart as eager computes them, where torch's own decompositions differ in a value or a layout.

Input: the table of decompositions. Output: entries that replace some of it, and of those that torch applies before the
table is asked. Law: half precision is rounded where eager's kernels round; NotImplemented leaves the operator to its
row, or to ATen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from inductor_backend import interpolation

_HALF = (torch.bfloat16, torch.float16)
_NARROW: dict[torch.dtype, Any] = {torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16}


def ours(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Entries for a copy of `table`."""
    aten = torch.ops.aten
    found: dict[Any, Callable[..., Any]] = {aten.roll.default: _roll}
    for op, replace in (
        (aten.linspace, _linspace),
        (aten.logspace, _logspace),
        (aten.mse_loss_backward, _gradient_of_nothing),
        (aten.smooth_l1_loss_backward, _gradient_of_nothing),
        (aten.huber_loss_backward, _gradient_of_nothing),
        (aten._log_softmax, _log_softmax),
        (aten.grid_sampler_2d, _whole_precision_only),
        (aten.max_unpool2d, _by_channel),
        (aten.nll_loss_forward, _nll_loss),
        (aten.nll_loss2d_forward, _nll_loss),
        (aten.threshold_backward, _threshold_backward),
        (aten.native_batch_norm, _batch_norm),
        (aten._native_batch_norm_legit, _batch_norm),
        (aten._native_batch_norm_legit_functional, _batch_norm),
        (aten._batch_norm_with_update, _batch_norm),
        (aten._batch_norm_with_update_functional, _batch_norm),
    ):
        for overload in (getattr(op, name) for name in op.overloads()):
            if overload in table and "out" not in overload._overloadname:
                found[overload] = functools.partial(replace, table[overload])
    return found | {op: functools.partial(how, table[op]) for op, how in early().items() if op in table}


def early() -> dict[Any, Callable[..., Any]]:
    """Operators that torch takes apart on the way to the table: ours take its way as their first argument."""
    aten = torch.ops.aten
    return {
        aten.upsample_linear1d.vec: functools.partial(_interpolated, interpolation.linear),
        aten.upsample_trilinear3d.vec: functools.partial(_interpolated, interpolation.linear),
        aten.upsample_bicubic2d.vec: functools.partial(_interpolated, interpolation.cubic),
        aten.upsample_bicubic2d.default: functools.partial(_interpolated_by, interpolation.cubic),
        aten.softshrink.default: _softshrink,
        aten.hardshrink.default: _hardshrink,
        aten.multilabel_margin_loss_forward.default: _multilabel_margin,
    }


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


def _by_channel(plain: Callable[..., Any], x: torch.Tensor, *args: Any, **kw: Any) -> Any:
    """The result in channels-last order where the operand is."""
    result = plain(x, *args, **kw)
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
        result = result.contiguous(memory_format=torch.channels_last)
    return result


def _linspace(plain: Callable[..., Any], start: Any, end: Any, steps: int, *, dtype: Any = None, **kw: Any) -> Any:
    """Of whole numbers torch's decomposition keeps the ends' fractions; of half precision it doesn't round the step."""
    dtype = dtype or torch.get_default_dtype()
    if steps > 1 and not dtype.is_complex and (dtype in _HALF or not dtype.is_floating_point):
        return NotImplemented
    return plain(start, end, steps, dtype=dtype, **kw)


def _logspace(
    plain: Callable[..., Any], start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, **kw: Any
) -> Any:
    """Of half precision eager rounds the ends and their distance; powers are in f64."""
    dtype = dtype or torch.get_default_dtype()
    if dtype not in _HALF or steps < 2 or not all(isinstance(v, (int, float, torch.Tensor)) for v in (start, end)):
        return plain(start, end, steps, base, dtype=dtype, **kw)
    ends = [torch.as_tensor(v, dtype=torch.float64).to(dtype) for v in (start, end)]
    first, last = (v.double() for v in ends)
    step = (ends[1] - ends[0]).double() / (steps - 1)
    at = torch.arange(steps)
    exponents = torch.where(at < steps // 2, first + step * at.double(), last - step * (steps - 1 - at).double())
    return torch.pow(base, exponents).to(dtype)


def _gradient_of_nothing(plain: Callable[..., Any], grad: torch.Tensor, x: torch.Tensor, *args: Any) -> Any:
    """Torch's decomposition divides by the number of elements, also where there are none."""
    return torch.zeros_like(x) if not x.numel() else plain(grad, x, *args)


def _interpolated(how: Any, plain: Callable[..., Any], x: torch.Tensor, size: Any, align: bool, scales: Any) -> Any:
    """The `.vec` forms: a size or factors of scale."""
    if x.dtype not in _HALF:
        return plain(x, size, align, scales)
    if size is None:
        size = [int(n * s) for n, s in zip(x.shape[2:], scales, strict=True)]
    return how(x, size, align, scales or [None] * len(size))


def _interpolated_by(how: Any, plain: Callable[..., Any], x: torch.Tensor, size: Any, align: bool, *scales: Any) -> Any:
    """The forms with a size and factors of scale."""
    if x.dtype not in _HALF:
        return plain(x, size, align, *scales)
    return how(x, size, align, [*scales, *[None] * (len(size) - len(scales))])


def _narrowed(value: float, dtype: torch.dtype) -> float:
    """A number in half precision."""
    return float(np.float32(value).astype(_NARROW[dtype]))


def _threshold_backward(plain: Callable[..., Any], grad: torch.Tensor, x: torch.Tensor, threshold: float) -> Any:
    """Half precision is compared with a limit in f32."""
    return torch.where(x.float() <= threshold, 0, grad) if x.dtype in _HALF else plain(grad, x, threshold)


def _hardshrink(plain: Callable[..., Any], x: torch.Tensor, lambd: float = 0.5) -> Any:
    """Half precision is compared with a limit in half precision."""
    return plain(x, _narrowed(lambd, x.dtype) if x.dtype in _HALF else lambd)


def _softshrink(plain: Callable[..., Any], x: torch.Tensor, lambd: float = 0.5) -> Any:
    """Half precision is shrunk in f32; only the gradient's limit is in half precision."""
    if x.dtype not in _HALF:
        return plain(x, lambd)
    inside = lambda v, limit: (v >= -limit) & (v <= limit)
    wide = torch.where(inside(x, _narrowed(lambd, x.dtype)), x.detach(), x).float()
    return torch.where(inside(wide, lambd), wide * 0, wide - torch.sign(wide) * lambd).to(x.dtype)


def _multilabel_margin(plain: Callable[..., Any], x: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    """Torch's decomposition counts the places behind the end of a row of targets as targets."""
    _, is_target = plain(x, target, reduction)
    rows, targets, hits = (torch.atleast_2d(t) for t in (x, target, is_target))
    places = torch.arange(rows.shape[1])
    end = torch.where(targets == -1, places, rows.shape[1]).amin(-1, keepdim=True)
    meant = places < end
    of_targets = rows.gather(1, torch.where(meant, targets, 0))
    margin = 1 - of_targets.unsqueeze(2) + rows.unsqueeze(1)
    counts = meant.unsqueeze(2) & (hits == 0).unsqueeze(1) & (margin > 0)
    each = torch.where(counts, margin, 0).sum((1, 2)) / rows.shape[1]
    return {0: lambda v: v.reshape(x.shape[:-1]), 1: torch.mean, 2: torch.sum}[reduction](each), is_target


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


def _nll_loss(
    plain: Callable[..., Any], x: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, ignored: int
) -> Any:
    """Half precision is summed in half precision, in a cascade of groups of sixteen."""
    count = target.numel()
    if x.dtype not in _HALF or reduction == 0 or x.dim() < 2 or not isinstance(count, int) or count < 2:
        return plain(x, target, weight, reduction, ignored)
    each, _ = plain(x, target, weight, 0, ignored)
    meant = target != ignored
    total_weight = meant.sum().to(x.dtype)
    if weight is not None:
        total_weight = _cascade(torch.where(meant, weight[torch.where(meant, target, 0)], 0).reshape(-1))
    total = _cascade(each.reshape(-1))
    return total / total_weight if reduction == 1 else total, total_weight


def _cascade(v: torch.Tensor) -> torch.Tensor:
    """The sum of a vector as ATen's cascade has it: the first element and every 16 after it are an element above."""
    total: Any = None
    while (count := v.shape[0]) > 1:
        groups, rest = divmod(count - 1, 16)
        part = functools.reduce(torch.add, v[count - rest :].unbind(), v.new_zeros(()))
        total = part if total is None else total + part
        above = functools.reduce(torch.add, v[1 : 1 + 16 * groups].reshape(groups, 16).unbind(1))
        v = torch.cat([v[:1], above])
    return v[0] if total is None else total + v[0]


def _batch_norm(plain: Callable[..., Any], x: torch.Tensor, weight: Any, bias: Any, *args: Any, **kw: Any) -> Any:
    """From statistics rounded to half precision where eager keeps them so."""
    results = plain(x, weight, bias, *args, **kw)
    mean, rstd = results[1:3]
    if x.dtype not in _HALF or mean.dtype != x.dtype or not mean.numel():
        return results
    if weight is not None and weight.dtype != x.dtype:
        return results
    running: list[Any] = []
    if x.dtype is torch.bfloat16:
        *_, momentum, eps = args
        kept = [v for v in args[:2] if isinstance(v, torch.Tensor)] if len(results) > 4 else []
        rstd, running = _bfloat16_statistics(x, mean, kept, momentum, eps)
    along = lambda v: v.float().reshape(1, -1, *[1] * (x.dim() - 2))
    normal = (x.float() - along(mean)) * along(rstd)
    if weight is not None:
        normal = normal * along(weight)
    if bias is not None:
        normal = normal + along(bias)
    return (normal.to(x.dtype), mean, rstd, *results[3 : len(results) - len(running)], *running)


def _bfloat16_statistics(x: Any, mean: Any, running: Any, momentum: float, eps: float) -> tuple[Any, list[Any]]:
    """(1 / deviation, the new running statistics): everything is rounded, the number of elements too."""
    dtype, apart = x.dtype, [0, *range(2, x.dim())]
    number = lambda v: torch.full((), v, dtype=torch.float64).to(dtype)
    count = x.numel() // x.shape[1]
    squares = (torch.var_mean(x.float(), apart, correction=0)[0] * count).to(dtype)
    rstd = (1 / torch.sqrt((squares / number(count)).double() + eps)).to(dtype)
    if not running:
        return rstd, []
    share = number(momentum)
    old_mean, old_var = ((1 - share) * old for old in running)
    spread = (squares / number(count - 1)).float()
    return rstd, [share * mean + old_mean, (share.float() * spread + old_var.float()).to(dtype)]
