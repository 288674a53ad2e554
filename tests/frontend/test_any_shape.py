"""Blocks whose sizes are no powers of two, for kernels that ask for it."""

from __future__ import annotations

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic


@triton.jit(non_power_of_two=True)
def rows(o, x, n, W: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, W)
    v = tl.load(x + row * n + lane, mask=lane < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + lane, e / tl.sum(e, 0), mask=lane < n)


@pytest.mark.parametrize("width", [7, 10, 12, 16])
def test_softmax(width):
    x = torch.randn(5, 7)
    o = torch.zeros(5, 7)
    rows[(5,)](o, x, 7, W=width)
    torch.testing.assert_close(o, torch.softmax(x, 1))


@triton.jit(non_power_of_two=True)
def product(o, a, b, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        acc += tl.dot(left, tl.load(b + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0))
    tl.store(o + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


def test_matrix_product():
    a, b, o = torch.randn(20, 29), torch.randn(29, 11), torch.zeros(20, 11)
    product[(3,)](o, a, b, 20, 11, 29, BM=9, BK=6)
    torch.testing.assert_close(o, a @ b)


@triton.jit
def maximum_of(a, b):
    return tl.maximum(a, b)


@triton.jit(non_power_of_two=True)
def movements(o, x, A: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, A)
    j = tl.arange(0, B)
    v = tl.load(x + i[:, None] * B + j[None, :])
    at = o + tl.arange(0, A * B)
    tl.store(at, tl.reshape(tl.trans(v), (A * B,)))
    tl.store(at + A * B, tl.ravel(tl.flip(v, 1)))
    tl.store(at + 2 * A * B, tl.ravel(tl.cumsum(v, 1)))
    tl.store(at + 3 * A * B, tl.ravel(tl.sort(v)))
    tl.store(o + 4 * A * B + i, tl.reduce(v, 1, maximum_of))
    tl.store(o + 4 * A * B + A + j, tl.sum(v, 0) + tl.argmax(v, 0))
    tl.store(o + 4 * A * B + A + B + tl.arange(0, 2 * A * B), tl.ravel(tl.join(v, v * 2)))


def test_movements_and_reductions():
    x = torch.randn(3, 5)
    o = torch.zeros(4 * 15 + 3 + 5 + 30)
    movements[(1,)](o, x, A=3, B=5)
    parts = [x.t(), x.flip(1), x.cumsum(1), x.sort(1).values, x.max(1).values, x.sum(0) + x.argmax(0)]
    torch.testing.assert_close(o, torch.cat([p.reshape(-1) for p in [*parts, torch.stack([x, x * 2], -1)]]))


@triton.jit
def strict(o, W: tl.constexpr):
    tl.store(o + tl.arange(0, W), 1.0)


@triton.jit
def strict_zeros(o, W: tl.constexpr):
    tl.store(o + tl.arange(0, 4), tl.sum(tl.zeros((4, W), tl.float32), 1))


@pytest.mark.parametrize("kernel", [strict, strict_zeros], ids=lambda k: k.__name__)
def test_other_kernels_keep_to_powers_of_two(kernel):
    with pytest.raises(Diagnostic, match="power of two") as refused:
        kernel[(1,)](torch.zeros(8), W=3)
    assert refused.value.slug == "block-shape"
    assert any("non_power_of_two" in remedy for remedy in refused.value.do)
