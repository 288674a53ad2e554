"""Kernels as libraries write them on a TPU, at odd sizes: each agrees with torch, and the compiler takes it."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl

r = torch.randn


@triton.jit
def weights_in_8_bits(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        kk = k * BK + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * K + kk[None, :], mask=(i[:, None] < M) & (kk[None, :] < K), other=0.0)
        q = tl.load(w + kk[:, None] * N + j[None, :], mask=(j[None, :] < N) & (kk[:, None] < K), other=0)
        scale = tl.load(s + (k * BK // GROUP) * N + j, mask=j < N, other=0.0)
        acc += tl.dot(x, q.to(tl.float32) * scale[None, :])
    tl.store(c + i[:, None] * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def every_other_panel(a, b, c, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    z = tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK * PARTS)):
        kk = (k * PARTS + z) * BK + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * K + kk[None, :], mask=(i[:, None] < M) & (kk[None, :] < K), other=0.0)
        y = tl.load(b + kk[:, None] * N + j[None, :], mask=(j[None, :] < N) & (kk[:, None] < K), other=0.0)
        acc += tl.dot(x, y)
    tl.store(c + (z * M + i[:, None]) * N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def sums_and_maxima(vals, offs, sums, most, dim, BR: tl.constexpr, BD: tl.constexpr):
    seg = tl.program_id(0)
    first = tl.load(offs + seg)
    last = tl.load(offs + seg + 1)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros((BD,), tl.float32)
    top = tl.full((BD,), -float("inf"), tl.float32)
    for r0 in range(first, last, BR):
        row = r0 + tl.arange(0, BR)
        there = (row[:, None] < last) & (d[None, :] < dim)
        t = tl.load(vals + row[:, None] * dim + d[None, :], mask=there, other=0.0)
        acc += tl.sum(t, 0)
        top = tl.maximum(top, tl.max(tl.where(there, t, -float("inf")), 0))
    tl.store(sums + seg * dim + d, acc, mask=d < dim)
    tl.store(most + seg * dim + d, top, mask=d < dim)


@triton.jit
def shared_heads(
    Q, K, V, O, L, scale, H: tl.constexpr, KH: tl.constexpr, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    pm = tl.program_id(0)
    bh = tl.program_id(1)
    kv = bh // H * KH + bh % H // (H // KH)
    i = pm * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + (bh * S + i[:, None]) * D + d[None, :], mask=i[:, None] < S, other=0.0)
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j0 in range(0, tl.minimum((pm + 1) * BM, S), BN):
        j = j0 + tl.arange(0, BN)
        k = tl.load(K + (kv * S + j[:, None]) * D + d[None, :], mask=j[:, None] < S, other=0.0)
        v = tl.load(V + (kv * S + j[:, None]) * D + d[None, :], mask=j[:, None] < S, other=0.0)
        s = tl.where(i[:, None] >= j[None, :], tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - top[:, None])
        a = tl.exp(m - top)
        l = l * a + tl.sum(p, 1)
        acc = acc * a[:, None] + tl.dot(p, v)
        m = top
    tl.store(O + (bh * S + i[:, None]) * D + d[None, :], acc / l[:, None], mask=i[:, None] < S)
    tl.store(L + bh * S + i, m + tl.log(l), mask=i < S)


@triton.jit
def window(
    Q, K, V, O, scale, S, W: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ROUND: tl.constexpr
):
    pm = tl.program_id(0)
    i = pm * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + i[:, None] * D + d[None, :], mask=i[:, None] < S, other=0.0)
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    first = tl.maximum(0, pm * BM - W)
    if ROUND:
        first = first // BN * BN
    for j0 in range(first, tl.minimum((pm + 1) * BM, S), BN):
        j = j0 + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * D + d[None, :], mask=j[:, None] < S, other=0.0)
        v = tl.load(V + j[:, None] * D + d[None, :], mask=j[:, None] < S, other=0.0)
        seen = (i[:, None] >= j[None, :]) & (i[:, None] - j[None, :] <= W)
        s = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        top = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(top == -float("inf"), 0.0, top)
        p = tl.exp(s - shift[:, None])
        a = tl.exp(m - shift)
        l = l * a + tl.sum(p, 1)
        acc = acc * a[:, None] + tl.dot(p, v)
        m = top
    tl.store(O + i[:, None] * D + d[None, :], acc / l[:, None], mask=i[:, None] < S)


def launches():
    for w, rounded in ((16, False), (20, True)):
        q, k, v = (r(77, 16) for _ in range(3))
        gap = torch.arange(77)[:, None] - torch.arange(77)
        share = (q @ k.T * 0.2).masked_fill((gap < 0) | (gap > w), -torch.inf).softmax(-1)
        meta = {"W": w, "D": 16, "BM": 16, "BN": 16, "ROUND": rounded}
        yield window, (q, k, v, r(77, 16), 0.2, 77), meta, (5,), {"O": share @ v}
    q, k, v = r(2, 4, 45, 32), r(2, 2, 45, 32), r(2, 2, 45, 32)
    k4, v4 = (x.repeat_interleave(2, 1) for x in (k, v))
    score = (q @ k4.mT * 0.2).masked_fill(torch.ones(45, 45).triu(1).bool(), -torch.inf)
    want = {"O": score.softmax(-1) @ v4, "L": score.logsumexp(-1)}
    meta = {"H": 4, "KH": 2, "S": 45, "D": 32, "BM": 16, "BN": 16}
    yield shared_heads, (q, k, v, r(2, 4, 45, 32), r(2, 4, 45), 0.2), meta, (3, 8), want
    x, w, s = r(13, 128), torch.randint(-127, 128, (128, 77), dtype=torch.int8), torch.rand(2, 77)
    meta = {"BM": 16, "BN": 32, "BK": 32, "GROUP": 64}
    want = {"c": x @ (w.float() * s.repeat_interleave(64, 0))}
    yield weights_in_8_bits, (x, w, s, r(13, 77), 13, 77, 128), meta, (1, 3), want
    a, b = r(45, 128), r(128, 77)
    parts = torch.stack([sum(a[:, k : k + 16] @ b[k : k + 16] for k in range(16 * z, 128, 32)) for z in range(2)])
    meta = {"PARTS": 2, "BM": 16, "BN": 32, "BK": 16}
    yield every_other_panel, (a, b, r(2, 45, 77), 45, 77, 128), meta, (3, 3, 2), {"c": parts}
    v, offs = r(29, 45), torch.tensor([0, 3, 3, 20, 28, 29])
    rows = torch.split(v, offs.diff().tolist())
    most = torch.stack([p.amax(0) if len(p) else torch.full((45,), -torch.inf) for p in rows])
    want = {"sums": torch.stack([p.sum(0) for p in rows]), "most": most}
    yield sums_and_maxima, (v, offs, r(5, 45), r(5, 45), 45), {"BR": 8, "BD": 32}, (5, 2), want


LAUNCHES = list(launches())
NAMES = [f"{kernel.fn.__name__}{i}" for i, (kernel, *_) in enumerate(LAUNCHES)]


@pytest.mark.filterwarnings("ignore:TPB272")
@pytest.mark.parametrize("kernel,args,meta,grid,want", LAUNCHES, ids=NAMES)
def test_values(kernel, args, meta, grid, want):
    kernel[grid].verify(*args, target="tpu:v5e", reference=want, rtol=1e-3, atol=1e-3, **meta)


@pytest.mark.tpu_offline
@pytest.mark.filterwarnings("ignore:TPB272")
@pytest.mark.parametrize("kernel,args,meta,grid,want", LAUNCHES, ids=NAMES)
def test_the_compiler_takes_it(kernel, args, meta, grid, want):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target="tpu:v5e", **meta)
    assert verdict.verdict == "ok", str(verdict)
