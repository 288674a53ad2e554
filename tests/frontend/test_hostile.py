"""Kernels in the styles of libraries, at awkward sizes, against the mathematics in float64."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def persistent(a, b, c, M, N, K, sa, sb, BLOCK: tl.constexpr, GROUP: tl.constexpr, SMS: tl.constexpr):
    down, across = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    for tile in tl.range(tl.program_id(0), down * across, SMS):
        first = tile // (GROUP * across) * GROUP
        rows = min(down - first, GROUP)  # 0 and less in turns that only other programs take
        m = (first + (tile % rows)) * BLOCK + tl.arange(0, BLOCK)
        n = (tile % (GROUP * across)) // rows * BLOCK + tl.arange(0, BLOCK)
        acc = tl.zeros((BLOCK, BLOCK), tl.float32)
        for start in range(0, K, BLOCK):
            k = start + tl.arange(0, BLOCK)
            x = tl.load(a + m[:, None] * sa + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            y = tl.load(b + k[:, None] * sb + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            acc = tl.dot(x, y, acc)
        tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@pytest.mark.parametrize(("size", "programs"), [((70, 50, 33), 3), ((1, 1, 1), 5), ((64, 48, 17), 7)])
def test_tiles_shared_unevenly_by_programs(size, programs):
    m, n, k = size
    a, b, c = torch.randn(m + 1, k + 2)[1:, 1 : k + 1], torch.randn(k, n + 3)[:, 2 : n + 2], torch.full((m, n), 5.0)
    persistent[(programs,)](a, b, c, m, n, k, a.stride(0), b.stride(0), BLOCK=16, GROUP=2, SMS=programs)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)
