"""A TPU grid that reaches beyond the blocks of one of its arrays (fewer heads, fewer rows); products in two loops."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from tests.frontend.on_tpu import against_cpu


@triton.jit
def heads(q, k, rows, D: tl.constexpr, Q: tl.constexpr, K: tl.constexpr):
    row, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    if row < rows:
        if head < Q:
            at = q + (row * Q + head) * D + d
            tl.store(at, tl.load(at) * 2)
        if head < K:
            at = k + (row * K + head) * D + d
            tl.store(at, tl.load(at) + 1)


@triton.jit
def fewer_rows(out, extra, x, w, n, few, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(out + r * n + c, v * 2, mask=c < n)
    tl.store(
        extra + r * n + c, v + tl.load(w + r * n + c, mask=(c < n) & (r < few), other=0.0), mask=(c < n) & (r < few)
    )


@triton.jit
def packed(out, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.int32)
    part = K // PARTS
    for i in range(PARTS):
        for j in range(0, part, BK):
            rk = j + tl.arange(0, BK)
            left = tl.load(a + rm[:, None] * K + (i * part + rk)[None, :], mask=rm[:, None] < M, other=0)
            right = tl.load(b + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0)
            digit = (right.to(tl.int32) >> (2 * i)) & 3
            acc += tl.dot(left, (digit - 1).to(tl.int8), out_dtype=tl.int32)
    tl.store(out + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def launches():
    torch.manual_seed(0)
    yield heads, (torch.randn(40, 6, 128), torch.randn(40, 2, 128), 40), {"D": 128, "Q": 6, "K": 2}, (40, 6)
    yield heads, (torch.randn(9, 2, 64), torch.randn(9, 5, 64), 9), {"D": 64, "Q": 2, "K": 5}, (9, 5)
    big, small = torch.randn(3001, 300), torch.randn(700, 300)
    yield fewer_rows, (torch.zeros(3001, 300), small.clone(), big, small, 300, 700), {"W": 512}, (3001,)
    a, b = torch.randint(-8, 8, (40, 512), dtype=torch.int8), torch.randint(0, 255, (128, 150), dtype=torch.uint8)
    sizes = {"BM": 16, "BN": 32, "BK": 64, "PARTS": 4}
    yield packed, (torch.zeros(40, 150, dtype=torch.int32), a, b, 40, 150, 512), sizes, (3, 5)


LAUNCHES = list(launches())


@pytest.mark.parametrize("kernel,args,meta,grid", LAUNCHES, ids=[x[0].fn.__name__ for x in LAUNCHES])
def test_values_are_the_cpu_forms(kernel, args, meta, grid):
    against_cpu(kernel, args, meta, grid)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("at", [pytest.param(0, marks=pytest.mark.slow), 3], ids=["heads", "packed"])
def test_the_compiler_takes_them(at):
    kernel, args, meta, grid = LAUNCHES[at]
    verdict = kernel[grid].check(*args, **meta, target="tpu:v5e")
    assert verdict.verdict == "ok", verdict.message
