"""Sums, products and scans of one bit, and the index that a scalar lets pass.

One bit wraps as every integer does: `1 + 1` is 0 and `1 * 1` is 1, in `+`, in `tl.sum(dtype=tl.int1)`, in running sums
and in functions given to `tl.reduce` and `tl.associative_scan`. A scalar indexed with None may be given one `:` more.
"""

from __future__ import annotations

import numpy as np
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _mul(a, b):
    return a * b


@triton.jit
def _bits(x_ptr, total_ptr, running_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.static_assert(x.dtype == tl.int1)
    tl.store(total_ptr + 0, tl.sum(x, dtype=tl.int1))
    tl.store(total_ptr + 1, tl.reduce(x, 0, _add))
    tl.store(total_ptr + 2, tl.reduce(x, 0, _mul))
    tl.store(total_ptr + 3, tl.sum(x))
    tl.store(running_ptr + i, tl.cumsum(x, dtype=tl.int1))
    tl.store(running_ptr + N + i, tl.associative_scan(x, 0, _add, reverse=True))
    tl.store(running_ptr + 2 * N + i, tl.cumprod(x))
    tl.store(running_ptr + 3 * N + i, tl.cumsum(x))


def test_one_bit_wraps():
    for x in (np.ones(16, bool), np.arange(16) % 3 != 1, np.array([True] * 7 + [False] * 9)):
        totals, running = torch.zeros(4, dtype=torch.int32), torch.zeros(4, 16, dtype=torch.int32)
        _bits[(1,)](torch.from_numpy(x), totals, running, N=16)
        n = x.astype(np.int64)
        assert totals.tolist() == [n.sum() % 2, n.sum() % 2, n.prod(), n.sum()]
        back = n[::-1].cumsum()[::-1]
        np.testing.assert_array_equal(running.numpy(), [n.cumsum() % 2, back % 2, n.cumprod(), n.cumsum()])


@triton.jit
def _everything(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out_ptr[None, None, :], tl.sum(x, axis=None, keep_dims=True))


def test_a_scalar_lets_one_index_pass():
    x, out = torch.arange(64.0).reshape(8, 8), torch.zeros(1, 1)
    _everything[(1,)](x, out, N=8)
    assert out.item() == x.sum()
