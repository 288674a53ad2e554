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


@triton.jit
def rows_to(o, x, ids, stride, width, HOW: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.load(ids + tl.program_id(0))
    if row == -1:
        return
    for start in range(0, width, BLOCK):
        col = start + tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * width + col, mask=col < width)
        if HOW == "set":
            tl.store(o + row * stride + col, v, mask=col < width)
        elif HOW == "add":
            tl.atomic_add(o + row * stride + col, v, mask=col < width)
        else:
            tl.atomic_max(o + row * stride + col, v, mask=col < width)


def rows_by_hand(o, x, ids, how):
    for row, values in zip(ids.tolist(), x):
        if row != -1 and row < len(o):
            o[row] = {"set": values, "add": o[row] + values, "max": torch.maximum(o[row], values)}[how]


@pytest.mark.parametrize("how", ["set", "add", "max"])
@pytest.mark.parametrize(
    ("width", "stride", "block", "before"),
    [(16, 16, 16, 0), (32, 32, 8, 0), (37, 37, 64, 0), (37, 37, 16, 0), (16, 24, 16, 3), (8, 32, 8, 8), (1, 1, 1, 0)],
)
def test_rows_at_places_that_are_loaded(how, width, stride, block, before):
    ids = torch.tensor([3, 0, -1, 3, 5, 0, 99])  # twice the same, left out, behind the end
    x = torch.randint(-50, 50, (7, width)).float()
    memory = torch.randint(-50, 50, (6 * stride + 2 * before,)).float()
    wanted = memory.clone()
    view = lambda m: m[before:].as_strided((6, width), (stride, 1))
    rows_by_hand(view(wanted), x, ids, how)
    rows_to[(7,)](view(memory), x, ids, stride, width, HOW=how, BLOCK=block)
    assert torch.equal(memory, wanted)
