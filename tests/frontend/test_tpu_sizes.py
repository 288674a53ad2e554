"""Block sizes: values with many small ragged steps on the interpreter, block shapes that Mosaic takes at any size."""

import itertools

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat.compiled import load_source
from frontend_triton_compat.emit.tpu import sizes
from frontend_triton_compat.offline import specs_of, translate
from pallas_core import blocks
from pallas_core.offline import lower_for
from tests.frontend.on_tpu import against_cpu


@triton.jit
def bias_gelu(x, b, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    ok = (i < M) & (j < N)
    v = tl.load(x + i * N + j, mask=ok).to(tl.float32) + tl.load(b + j, mask=j < N).to(tl.float32)
    tl.store(o + i * N + j, (v * tl.sigmoid(1.702 * v)).to(o.dtype.element_ty), mask=ok)


@triton.jit
def head_norm(x, w, o, H, S, BS: tl.constexpr, D: tl.constexpr):
    b, h = tl.program_id(0), tl.program_id(1)
    s = tl.program_id(2) * BS + tl.arange(0, BS)[:, None]
    d = tl.arange(0, D)[None, :]
    at = ((b * H + h) * S + s) * D + d
    v = tl.load(x + at, mask=s < S, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, axis=1) / D + 1e-6)
    tl.store(o + at, (v * r[:, None] * tl.load(w + h * D + d)).to(o.dtype.element_ty), mask=s < S)


@triton.jit
def column_sum(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros([BN], tl.float32)
    for r in range(0, M, BM):
        i = r + tl.arange(0, BM)
        ok = (i[:, None] < M) & (j[None, :] < N)
        acc += tl.sum(tl.load(x + i[:, None] * N + j[None, :], mask=ok, other=0.0).to(tl.float32), axis=0)
    tl.store(o + j, acc, mask=j < N)


@triton.jit
def row_sum(x, o, N, BN: tl.constexpr):
    r = tl.program_id(0)
    acc = tl.zeros([BN], tl.float32)
    for c in range(0, N, BN):
        j = c + tl.arange(0, BN)
        acc += tl.load(x + r * N + j, mask=j < N, other=0.0).to(tl.float32)
    tl.store(o + r, tl.sum(acc, axis=0))


@triton.jit
def transpose_batch(x, o, M, N, B: tl.constexpr):
    b = tl.program_id(2)
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    t = tl.load(x + b * M * N + i[:, None] * N + j[None, :], mask=(i[:, None] < M) & (j[None, :] < N))
    tl.store(o + b * M * N + j[:, None] * M + i[None, :], tl.trans(t), mask=(j[:, None] < N) & (i[None, :] < M))


@triton.jit
def batch_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(2)
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        ta = tl.load(
            a + z * M * K + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0
        )
        tb = tl.load(
            b + z * K * N + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0
        )
        acc += tl.dot(ta, tb)
    ok = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + z * M * N + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=ok)


@triton.jit
def matmul_gelu(a, b, bias, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    pa = a + rm[:, None] * am + rk[None, :] * ak
    pb = b + rk[:, None] * bk + rn[None, :] * bn
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        ta = tl.load(pa, mask=(rm[:, None] < M) & (rk[None, :] < left), other=0.0)
        tb = tl.load(pb, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(ta, tb, acc)
        pa += BK * ak
        pb += BK * bk
    acc += tl.load(bias + rn, mask=rn < N).to(tl.float32)[None, :]
    c_at = c + rm[:, None] * N + rn[None, :]
    tl.store(c_at, (acc * tl.sigmoid(acc)).to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def gelu(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(o + i, (v * tl.sigmoid(1.702 * v)).to(o.dtype.element_ty), mask=i < n)


def launches(k, dtype=torch.float32, make=torch.randn):
    """Every kernel at sizes around `k`, none of them a multiple of anything."""
    r = lambda *shape: make(*shape).to(dtype)
    up = triton.cdiv
    m, n = k + 37, 2 * k + 259
    yield bias_gelu, (r(m, n), r(n), r(m, n), m, n), {"BM": 32, "BN": 64}, (up(m, 32), up(n, 64))
    yield head_norm, (r(2, 3, m, 64), r(3, 64), r(2, 3, m, 64), 3, m), {"BS": 16, "D": 64}, (2, 3, up(m, 16))
    yield column_sum, (r(m, n), make(n), m, n), {"BM": 16, "BN": 64}, (up(n, 64),)
    yield row_sum, (r(m, n), make(m), n), {"BN": 64}, (m,)
    yield transpose_batch, (r(2, m, n), r(2, n, m), m, n), {"B": 32}, (up(m, 32), up(n, 32), 2)
    yield (
        batch_matmul,
        (r(2, m, k), r(2, k, n), r(2, m, n), m, n, k),
        {"BM": 32, "BN": 32, "BK": 16},
        (
            up(m, 32),
            up(n, 32),
            2,
        ),
    )
    b = r(n, k).t()
    args = (r(m, k), b, r(n), r(m, n), m, n, k, k, 1, *b.stride())
    yield matmul_gelu, args, {"BM": 32, "BN": 32, "BK": 16}, (up(m, 32), up(n, 32))
    yield gelu, (r(m * n), r(m * n), m * n), {"BLOCK": 1024}, (up(m * n, 1024),)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_many_ragged_steps(monkeypatch, split):
    """Small blocks at small odd sizes: every grid axis has several steps, and the last one runs over the end."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES_ELSEWHERE", (1 << 14, 1 << 14))
    monkeypatch.setattr(sizes, "ONE_DIM", 4096)
    monkeypatch.setattr(sizes, "TILES_ELSEWHERE", (64, 128))
    monkeypatch.setattr(sizes, "SPLIT_TILES_ELSEWHERE", (128, 256, 128))
    if split:
        monkeypatch.setattr(sizes, "_MOST_PRODUCTS_ELSEWHERE", 1)
    torch.manual_seed(0)
    for kernel, args, meta, grid in launches(97):
        if split and kernel not in (batch_matmul, matmul_gelu):
            continue
        module = translate(kernel, args, meta, grid, "tpu:v5e")
        assert "grid=(" in module.source and "grid=(1,)" not in module.source
        against_cpu(kernel, args, meta, grid, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
def test_blocks_of_any_size_lower(dtype, target):
    """Mosaic's rules of block shapes hold whatever the sizes; nothing is compiled."""
    pytest.importorskip("libtpu")
    empty = lambda *shape: torch.empty(*shape, device="meta")
    for k, launch in itertools.product((64, 1000, 4096), range(8)):
        kernel, args, meta, grid = list(launches(k, dtype, empty))[launch]
        if dtype == torch.int8 and kernel in (batch_matmul, matmul_gelu):
            continue  # sums of int8 products are int32
        module = translate(kernel, args, meta, grid, target)
        lower_for(
            load_source(module.source, module.entry),
            specs_of(module, kernel._signature.call(args, meta, placeless=True)),
            target,
        )


@triton.jit
def scaled_rows(x, s, o, N, BN: tl.constexpr):
    r, j = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(s + r, r * 1.0)
    tl.store(o + r * N + j, tl.load(x + r * N + j, mask=j < N) * 2.0, mask=j < N)


@triton.jit
def one_program(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) + 1.0)


def test_an_output_that_comes_back_is_not_shared_by_cores(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES_ELSEWHERE", (1 << 13, 1 << 13))
    x = torch.randn(20, 3000)
    args = (x, torch.zeros(20), torch.zeros(20, 3000), 3000)
    source = translate(scaled_rows, args, {"BN": 512}, (20, 6), "tpu:v5e").source
    assert "'arbitrary')" in source and "('parallel'" in source
    against_cpu(scaled_rows, args, {"BN": 512}, (20, 6))


def test_one_program_may_use_all_of_vmem():
    x = torch.randn(2048)
    args = (x, torch.zeros(2048))
    assert "vmem_limit_bytes" in translate(one_program, args, {"B": 2048}, (1,), "tpu:v5e").source
    against_cpu(one_program, args, {"B": 2048}, (1,))
