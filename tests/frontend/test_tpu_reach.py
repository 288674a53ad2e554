"""A TPU grid that reaches beyond the blocks of one of its arrays, persistent programs, stores of one program."""

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


@triton.jit
def persistent(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr, P: tl.constexpr
):
    start = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    store_tile = start - P
    for tile in tl.range(start, rows * columns, P, flatten=True):
        first = tile // (G * columns) * G
        size = min(rows - first, G)
        i, j = first + tile % size, tile % (G * columns) // size
        rm, rn = (i * BM + tl.arange(0, BM)) % M, (j * BN + tl.arange(0, BN)) % N
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            rk = k * BK + tl.arange(0, BK)
            left = tl.load(a + rm[:, None] * K + rk[None, :], mask=rk[None, :] < K, other=0.0)
            right = tl.load(b + rk[:, None] * N + rn[None, :], mask=rk[:, None] < K, other=0.0)
            acc += tl.dot(left, right, input_precision="ieee")
        store_tile += P
        first = store_tile // (G * columns) * G
        size = min(rows - first, G)
        i, j = first + store_tile % size, store_tile % (G * columns) // size
        rm, rn = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
        tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def strided_rows(out, x, n, columns, W: tl.constexpr):
    c = tl.arange(0, W)
    for r in tl.range(tl.program_id(0), n, tl.num_programs(0)):
        v = tl.load(x + r * columns + c, mask=c < columns, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + r * columns + c, e / tl.sum(e, axis=0), mask=c < columns)


@triton.jit
def first_of_all(out, told, x, rows, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(out + r * n + c, v * 2, mask=c < n)
    if r == 0:
        tl.store(told, 3.0)
    elif r == rows - 1:
        tl.store(told + 1, tl.sum(v))
    tl.store(told + 2, tl.max(v), mask=r == 7)


@triton.jit
def first_of_each(out, told, x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a, b = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (a[:, None] < M) & (b[None, :] < N)
    v = tl.load(x + a[:, None] * N + b[None, :], mask=inside, other=0.0)
    tl.store(out + a[:, None] * N + b[None, :], v * 2, mask=inside)
    if tl.program_id(0) == 1:
        tl.store(told + b, tl.sum(v, axis=0), mask=b < N)


@triton.jit
def first_block(out, told, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, v * 2, mask=i < n)
    if tl.program_id(0) == 2:
        tl.store(told, 5.0)


def launches():
    torch.manual_seed(0)
    r, z = torch.randn, torch.zeros
    sizes = {"BM": 32, "BN": 64, "BK": 32, "G": 2, "P": 5}
    yield persistent, (r(100, 130), r(130, 200), z(100, 200), 100, 200, 130), sizes, (5,)
    yield strided_rows, (z(50, 300), r(50, 300), 50, 300), {"W": 512}, (8,)
    yield first_of_all, (z(50, 300), r(3), r(50, 300), 50, 300), {"W": 512}, (50,)
    yield first_of_all, (z(3001, 300), r(3), r(3001, 300), 3001, 300), {"W": 512}, (3001,)
    yield first_of_each, (z(70, 300), r(300), r(70, 300), 70, 300), {"BM": 16, "BN": 128}, (5, 3)
    yield first_block, (z(7000), r(1), r(7000), 7000), {"BLOCK": 1024}, (7,)
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
@pytest.mark.parametrize(
    "name", ["persistent", "packed", "first_of_all", "first_of_each", pytest.param("heads", marks=pytest.mark.slow)]
)
def test_the_compiler_takes_them(name):
    kernel, args, meta, grid = next(x for x in reversed(LAUNCHES) if x[0].fn.__name__ == name)
    verdict = kernel[grid].check(*args, **meta, target="tpu:v5e")
    assert verdict.verdict == "ok", verdict.message
