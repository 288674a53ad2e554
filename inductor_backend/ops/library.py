"""Where ATen's library (oneDNN, its own loops) does an operator faster on a CPU than XLA, the boundary included.

Input: an operator's arguments, with specs (shape, dtype) for tensors. Output: the microseconds that ATen saves. Law:
such an operator has a row, and runs in a segment of its own because that was measured faster, on one thread of a Zen 4
core, or (infinitely many microseconds) because only ATen rounds its partial sums as eager does; `explain` names it as a
library call, not as a fallback. A graph for a TPU never asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

#: What leaving a jitted function and entering the next costs, in microseconds, with room for a slower machine.
BOUNDARY = 50.0


def _work(x: Any, w: Any, result_space: int) -> float:
    """Millions of multiply-adds of a convolution whose result has `result_space` places."""
    return x.shape[0] * result_space * math.prod(w.shape) / 1e6


def _slowness(w: Any, transposed: bool, groups: int) -> float:
    """Microseconds that XLA takes beyond ATen for a million multiply-adds."""
    rank, channels = len(w.shape) - 2, w.shape[0] // groups if transposed else w.shape[1]
    if rank == 3:
        return 800.0
    if groups > 1:
        return 2500.0 if channels == 1 else 100.0
    if channels < 8:
        return 60.0
    if w.shape[0] < 32 and math.prod(w.shape[2:]) > 1 and not transposed:
        return 13.0  # XLA's library, which has faster ones, takes them from 32 channels on
    # Much of what a dense convolution gains is lost again where its result crosses between the two libraries' caches.
    return 2.5 if math.prod(w.shape[2:]) > 1 else 2.0


def _result_space(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, transposed: bool) -> int:
    rank = len(w.shape) - 2
    each = lambda v: list(v) * rank if len(v) == 1 else list(v)
    total = 1
    for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], each(stride), each(padding), each(dilation), strict=True):
        # A transposed convolution does the work of the convolution whose input it makes.
        total *= n if transposed else (n + 2 * p - d * (k - 1) - 1) // s + 1
    return total


def convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups) -> float:
    """A convolution forward."""
    if len(x.shape) != len(w.shape):
        return 0.0
    if transposed and x.dtype in (torch.bfloat16, torch.float16):
        return added_in_half(x)
    space = _result_space(x, w, stride, padding, dilation, transposed)
    return _work(x, w, space) * _slowness(w, transposed, groups)


def convolution_backward(grad, x, w, sizes, stride, padding, dilation, transposed, *rest) -> float:
    """The gradients of a convolution."""
    groups, mask = rest[1], rest[2]
    forward = convolution(x, w, None, stride, padding, dilation, transposed, None, groups)
    return forward * (mask[0] + mask[1])


def an_element(nanoseconds: float) -> Callable[..., float]:
    """An operator whose time is proportional to the elements of its first operand."""
    return lambda x, *rest, **kw: math.prod(x.shape) * nanoseconds / 1000


def added_in_half(grad: Any, *rest: Any, **kw: Any) -> float:
    """A gradient that eager adds up in half precision, one window after another, which XLA has no form of."""
    return math.inf if grad.dtype in (torch.bfloat16, torch.float16) else 0.0


def pays(saved: Callable[..., float] | None, args: Any, kwargs: Any) -> bool:
    """Whether ATen saves more than a boundary costs."""
    return saved is not None and saved(*args, **kwargs) > BOUNDARY


def wide_keys(x, *rest, **kw) -> float:
    """A sort of keys of 64 bits: XLA sorts pairs of key and position then."""
    return math.prod(x.shape) * 0.08 if x.dtype.itemsize == 8 else 0.0
