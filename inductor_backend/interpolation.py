"""Interpolation of half precision as eager's kernels compute it.

Input: (N, C, ...) tensors, the wanted size, `align_corners`, factors of scale or None. Output: the sampled tensor. Law:
weights are rounded to half precision, sums are not: one dimension after another, the last one first, in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_A = -0.75


def linear(x: torch.Tensor, size: Sequence[int], align: bool, scales: Sequence[float | None]) -> torch.Tensor:
    """Linear in one dimension and in three; in two eager keeps the weights in f32."""

    def weights(place: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        place = place.clamp(min=0)
        first = place.floor()
        second = (place - first).clamp(0, 1).to(x.dtype)
        return first, [1 - second, second]

    return _resampled(x, size, align, scales, weights, 0)


def cubic(x: torch.Tensor, size: Sequence[int], align: bool, scales: Sequence[float | None]) -> torch.Tensor:
    """Bicubic."""
    near = lambda t: ((_A + 2) * t - (_A + 3)) * t * t + 1
    far = lambda t: ((_A * t - 5 * _A) * t + 8 * _A) * t - 4 * _A

    def weights(place: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        first = place.floor()
        t = (place - first).clamp(0, 1)
        return first, [w.to(x.dtype) for w in (far(t + 1), near(t), near(1 - t), far(2 - t))]

    return _resampled(x, size, align, scales, weights, -1)


def _resampled(x: Any, size: Any, align: bool, scales: Any, weights: Any, offset: int) -> torch.Tensor:
    """Sums of neighbours, the first of which lies `offset` beside the place, along every dimension."""
    total: Any = x.float()
    for dim in reversed(range(2, x.dim())):
        count, wanted = x.shape[dim], size[dim - 2]
        place = _step(count, wanted, align, scales[dim - 2]) * _centres(wanted, align, x.device)
        first, factors = weights(place if align else place - 0.5)
        first = first.to(torch.int64) + offset
        part: Any = None
        for k, factor in enumerate(factors):
            index = [None] * dim + [(first + k).clamp(0, count - 1)]
            term = torch.ops.aten._unsafe_index(total, index) * factor.float().reshape(-1, *[1] * (x.dim() - dim - 1))
            part = term if part is None else part + term
        total = part
    lasting: Any = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    by_channel = x.dim() > 3 and x.is_contiguous(memory_format=lasting) and not x.is_contiguous()
    return total.to(x.dtype).contiguous(memory_format=lasting if by_channel else torch.contiguous_format)


def _centres(count: int, align: bool, device: Any) -> torch.Tensor:
    at = torch.arange(count, device=device).to(torch.float32)
    return at if align else at + 0.5


def _step(count: int, wanted: int, align: bool, scale: float | None) -> float:
    """How far neighbours of the result lie apart in the input."""
    if align:
        return (count - 1.0) / (wanted - 1.0) if wanted > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else count / wanted
