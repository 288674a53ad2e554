"""TPU: kernels that loaded numbers steer, one program at a time; values on the interpreter, verdicts."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def segment_mean(vals, offs, out, dim, BR: tl.constexpr, BD: tl.constexpr):
    seg = tl.program_id(0)
    begin = tl.load(offs + seg)
    end = tl.load(offs + seg + 1)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros((BD,), tl.float32)
    for r0 in range(begin, end, BR):
        r = r0 + tl.arange(0, BR)
        t = tl.load(vals + r[:, None] * dim + d[None, :], mask=(r[:, None] < end) & (d[None, :] < dim), other=0.0)
        acc += tl.sum(t.to(tl.float32), axis=0)
    tl.store(out + seg * dim + d, acc / tl.maximum(end - begin, 1), mask=d < dim)


@triton.jit
def bisect(table, query, out, n):
    pid = tl.program_id(0)
    key = tl.load(query + pid)
    lo = 0
    hi = n
    while lo < hi:
        mid = (lo + hi) // 2
        if tl.load(table + mid) < key:
            lo = mid + 1
        else:
            hi = mid
    tl.store(out + pid, lo)


@triton.jit
def walk_links(links, start, count, out, limit, ROWS: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    at = tl.load(start + row * ROWS + column)
    steps = 0
    while (at >= 0) & (steps < limit):
        at = tl.load(links + at)
        steps += 1
    tl.store(count + row * ROWS + column, steps)
    if steps > 2:
        tl.store(out + row * ROWS + column, at)


@triton.jit
def jag_softmax(vals, offs, out, dim, BR: tl.constexpr, D: tl.constexpr):
    s = tl.program_id(0)
    begin = tl.load(offs + s)
    end = tl.load(offs + s + 1)
    d = tl.arange(0, D)
    m = tl.full((D,), float("-inf"), tl.float32)
    l = tl.zeros((D,), tl.float32)
    for r0 in range(begin, end, BR):
        r = r0 + tl.arange(0, BR)
        x = tl.load(
            vals + r[:, None] * dim + d[None, :], mask=(r < end)[:, None] & (d < dim)[None, :], other=float("-inf")
        )
        nm = tl.maximum(m, tl.max(x, 0))
        l = l * tl.exp(m - nm) + tl.sum(tl.exp(x - nm[None, :]), 0)
        m = nm
    for r0 in range(begin, end, BR):
        r = r0 + tl.arange(0, BR)
        mk = (r < end)[:, None] & (d < dim)[None, :]
        x = tl.load(vals + r[:, None] * dim + d[None, :], mask=mk, other=float("-inf"))
        tl.store(out + r[:, None] * dim + d[None, :], tl.exp(x - m[None, :]) / l[None, :], mask=mk)


@triton.jit
def jag2pad(vals, offs, out, dim, L: tl.constexpr, D: tl.constexpr):
    s = tl.program_id(0)
    begin = tl.load(offs + s)
    n = tl.load(offs + s + 1) - begin
    j = tl.arange(0, L)[:, None]
    d = tl.arange(0, D)[None, :]
    x = tl.load(vals + (begin + j) * dim + d, mask=(j < n) & (d < dim), other=0.0)
    tl.store(out + s * L * dim + j * dim + d, x, mask=d < dim)


@triton.jit
def pad2jag(x, offs, out, dim, L: tl.constexpr, D: tl.constexpr):
    s = tl.program_id(0)
    begin = tl.load(offs + s)
    n = tl.load(offs + s + 1) - begin
    j = tl.arange(0, L)[:, None]
    d = tl.arange(0, D)[None, :]
    v = tl.load(x + s * L * dim + j * dim + d, mask=(j < n) & (d < dim), other=0.0)
    tl.store(out + (begin + j) * dim + d, v, mask=(j < n) & (d < dim))


@triton.jit
def paged(q, kc, vc, bt, lens, out, scale, nb, H: tl.constexpr, D: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    p = tl.arange(0, P)
    L = tl.load(lens + b)
    qv = tl.load(q + (b * H + h) * D + d)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for j in range(0, tl.cdiv(L, P)):
        page = tl.load(bt + b * nb + j)
        k = tl.load(kc + ((page * H + h) * P + p[:, None]) * D + d[None, :])
        v = tl.load(vc + ((page * H + h) * P + p[:, None]) * D + d[None, :])
        s = tl.sum(qv[None, :] * k, 1) * scale
        s = tl.where(j * P + p < L, s, float("-inf"))
        nm = tl.maximum(m, tl.max(s, 0))
        e = tl.exp(s - nm)
        a = tl.exp(m - nm)
        l = l * a + tl.sum(e, 0)
        acc = acc * a + tl.sum(e[:, None] * v, 0)
        m = nm
    tl.store(out + (b * H + h) * D + d, acc / l)


@triton.jit
def varlen(q, k, v, cu, out, scale, H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    mb = tl.program_id(2)
    s0 = tl.load(cu + b)
    n = tl.load(cu + b + 1) - s0
    i = mb * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    if mb * BM >= n:
        return
    qq = tl.load(q + (s0 + i[:, None]) * H * D + h * D + d[None, :], mask=(i < n)[:, None], other=0.0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j0 in range(0, n, BN):
        j = j0 + tl.arange(0, BN)
        kk = tl.load(k + (s0 + j[:, None]) * H * D + h * D + d[None, :], mask=(j < n)[:, None], other=0.0)
        vv = tl.load(v + (s0 + j[:, None]) * H * D + h * D + d[None, :], mask=(j < n)[:, None], other=0.0)
        s = tl.dot(qq, tl.trans(kk)) * scale
        s = tl.where((j < n)[None, :], s, float("-inf"))
        nm = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - nm[:, None])
        a = tl.exp(m - nm)
        l = l * a + tl.sum(p, 1)
        acc = acc * a[:, None] + tl.dot(p, vv)
        m = nm
    tl.store(out + (s0 + i[:, None]) * H * D + h * D + d[None, :], acc / l[:, None], mask=(i < n)[:, None])


@triton.jit
def moe(x, w, eid, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    e = tl.load(eid + pm)
    i = pm * BM + tl.arange(0, BM)
    n = pn * BN + tl.arange(0, BN)
    kk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(x + i[:, None] * K + (k + kk)[None, :])
        b = tl.load(w + e * K * N + (k + kk)[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(out + i[:, None] * N + n[None, :], acc)


@triton.jit
def scatter_rows(x, idx, out, dim, D: tl.constexpr):
    t = tl.program_id(0)
    d = tl.arange(0, D)
    i = tl.load(idx + t)
    tl.store(out + i * dim + d, tl.load(x + t * dim + d, mask=d < dim), mask=(d < dim) & (i >= 0))


@triton.jit
def decode(q, k, v, out, lens, scale, S, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    qv = tl.load(q + (b * H + h) * D + d)
    n = tl.load(lens + b)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for j0 in range(0, n, BN):
        j = j0 + tl.arange(0, BN)
        at = ((b * S + j[:, None]) * H + h) * D + d[None, :]
        s = tl.sum(tl.load(k + at, mask=(j < n)[:, None], other=0.0) * qv[None, :], 1) * scale
        s = tl.where(j < n, s, float("-inf"))
        nm = tl.maximum(m, tl.max(s, 0))
        p = tl.exp(s - nm)
        a = tl.exp(m - nm)
        l = l * a + tl.sum(p, 0)
        acc = acc * a + tl.sum(p[:, None] * tl.load(v + at, mask=(j < n)[:, None], other=0.0), 0)
        m = nm
    tl.store(out + (b * H + h) * D + d, acc / l)


@triton.jit
def kv_write(k, slot, cache, H: tl.constexpr, D: tl.constexpr, P: tl.constexpr):
    t = tl.program_id(0)
    s = tl.load(slot + t)
    if s < 0:
        return
    h = tl.arange(0, H)[:, None]
    d = tl.arange(0, D)[None, :]
    v = tl.load(k + t * H * D + h * D + d)
    tl.store(cache + (s // P) * H * P * D + h * P * D + (s % P) * D + d, v)


@triton.jit
def tok_attn(q, kc, vc, idx, lens, out, scale, nb, D: tl.constexpr, P: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, D)
    p = tl.arange(0, P)
    L = tl.load(lens + b)
    qv = tl.load(q + b * D + d)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for j in range(0, L, P):
        ok = j + p < L
        t = tl.load(idx + b * nb + j + p, mask=ok, other=0)
        k = tl.load(kc + t[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        v = tl.load(vc + t[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        s = tl.where(ok, tl.sum(qv[None, :] * k, 1) * scale, float("-inf"))
        nm = tl.maximum(m, tl.max(s, 0))
        e = tl.exp(s - nm)
        a = tl.exp(m - nm)
        l = l * a + tl.sum(e, 0)
        acc = acc * a + tl.sum(e[:, None] * v, 0)
        m = nm
    tl.store(out + b * D + d, acc / l)


@triton.jit
def jag1d_store(vals, offs, out, B: tl.constexpr):
    s = tl.program_id(0)
    b = tl.load(offs + s)
    e = tl.load(offs + s + 1)
    tot = 0.0
    for i in range(b, e, B):
        o = i + tl.arange(0, B)
        tot += tl.sum(tl.load(vals + o, mask=o < e, other=0.0))
    for i in range(b, e, B):
        o = i + tl.arange(0, B)
        tl.store(out + o, tl.load(vals + o, mask=o < e, other=0.0) / tot, mask=o < e)


@triton.jit
def blocksparse(a, rowptr, cols, x, o, BM: tl.constexpr, BK: tl.constexpr, N: tl.constexpr):
    r = tl.program_id(0)
    b = tl.load(rowptr + r)
    e = tl.load(rowptr + r + 1)
    i = tl.arange(0, BM)
    k = tl.arange(0, BK)
    n = tl.arange(0, N)
    acc = tl.zeros((BM, N), tl.float32)
    for j in range(b, e):
        c = tl.load(cols + j)
        av = tl.load(a + j * BM * BK + i[:, None] * BK + k[None, :])
        xv = tl.load(x + (c * BK + k[:, None]) * N + n[None, :])
        acc += tl.dot(av, xv)
    tl.store(o + (r * BM + i[:, None]) * N + n[None, :], acc)


@triton.jit
def csr_spmv(val, col, ptr, x, y):
    r = tl.program_id(0)
    b = tl.load(ptr + r)
    e = tl.load(ptr + r + 1)
    acc = 0.0
    for j in range(b, e):
        acc += tl.load(val + j) * tl.load(x + tl.load(col + j))
    tl.store(y + r, acc)


def offsets(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


r = torch.randn


def launches():
    few = offsets([3, 0, 17, 8, 1])
    yield "few", segment_mean, (r(29, 20), few, r(5, 20), 20), {"BR": 4, "BD": 16}, (5, 2)
    args = (r(290, 200), offsets([30, 0, 101, 159]), r(4, 200), 200)
    yield "segments", segment_mean, args, {"BR": 16, "BD": 128}, (4, 2)
    args = (r(53, 40).bfloat16(), offsets([7, 30, 16]), r(3, 40), 40)
    yield "segments-bf16", segment_mean, args, {"BR": 8, "BD": 64}, (3, 1)
    table = torch.sort(r(100)).values
    keys = torch.cat([r(20), table[:1], table[-1:], table[-1:] + 1])
    yield "bisect", bisect, (table, keys, torch.empty(23, dtype=torch.int32), 100), {}, (23,)
    cu = offsets([30, 0, 17, 40])
    slots = torch.tensor([3, -1, 17, 40, 5], dtype=torch.int32)
    rows = torch.randperm(40)[:30].int()
    rows[3] = -1
    yield "jagged-softmax", jag_softmax, (r(87, 40), cu, torch.zeros(87, 40), 40), {"BR": 8, "D": 64}, (4,)
    yield "jagged-to-padded", jag2pad, (r(87, 40), cu, torch.zeros(4, 64, 40), 40), {"L": 64, "D": 64}, (4,)
    half = (r(87, 40).bfloat16(), cu, torch.zeros(4, 64, 40).bfloat16(), 40)
    yield "jagged-to-padded-bf16", jag2pad, half, {"L": 64, "D": 64}, (4,)
    yield "padded-to-jagged", pad2jag, (r(4, 64, 40), cu, r(87, 40), 40), {"L": 64, "D": 64}, (4,)
    table = torch.randperm(20)[:15].reshape(3, 5).int()
    lengths = torch.tensor([70, 1, 33], dtype=torch.int32)
    args = (r(3, 4, 64), r(20, 4, 16, 64), r(20, 4, 16, 64), table, lengths, r(3, 4, 64), 0.125, 5)
    yield "paged-attention", paged, args, {"H": 4, "D": 64, "P": 16}, (3, 4)
    lengths = torch.tensor([40, 1, 17], dtype=torch.int32)
    args = (r(3, 2, 32), r(3, 40, 2, 32), r(3, 40, 2, 32), torch.zeros(3, 2, 32), lengths, 0.2, 40)
    yield "decode", decode, args, {"H": 2, "D": 32, "BN": 16}, (3, 2)
    qkv = [r(87, 2, 128) for _ in range(3)]
    args = (*qkv, cu, torch.zeros(87, 2, 128), 0.09)
    yield "varlen-attention", varlen, args, {"H": 2, "D": 128, "BM": 16, "BN": 16}, (4, 2, 3)
    args = (r(64, 64), r(5, 64, 128), torch.tensor([4, 0, 0, 2], dtype=torch.int32), r(64, 128), 64, 128, 64)
    yield "experts", moe, args, {"BM": 16, "BN": 128, "BK": 32}, (4, 1)
    yield "scattered-rows", scatter_rows, (r(30, 50), rows, r(40, 50), 50), {"D": 64}, (30,)
    yield "cache-write", kv_write, (r(5, 2, 64), slots, r(4, 2, 16, 64)), {"H": 2, "D": 64, "P": 16}, (5,)
    tokens, lengths = torch.randint(0, 50, (3, 40), dtype=torch.int32), torch.tensor([33, 1, 40], dtype=torch.int32)
    args = (r(3, 64), r(50, 64), r(50, 64), tokens, lengths, r(3, 64), 0.1, 40)
    yield "token-attention", tok_attn, args, {"D": 64, "P": 16}, (3,)
    yield "jagged-1d", jag1d_store, (r(87).abs(), cu, torch.zeros(87)), {"B": 16}, (4,)
    columns = torch.randint(0, 5, (7,), dtype=torch.int32)
    args = (r(7, 16, 16), torch.tensor([0, 2, 2, 7], dtype=torch.int32), columns, r(80, 128), r(48, 128))
    yield "block-sparse", blocksparse, args, {"BM": 16, "BK": 16, "N": 128}, (3,)
    columns = torch.randint(0, 20, (40,), dtype=torch.int32)
    yield "sparse-rows", csr_spmv, (r(40), columns, offsets([10, 0, 25, 5]), r(20), r(4)), {}, (4,)
    links = torch.randint(-1, 50, (50,), dtype=torch.int32)
    starts = torch.randint(0, 50, (4, 3), dtype=torch.int32)
    args = (links, starts, torch.zeros(4, 3, dtype=torch.int32), torch.full((4, 3), -7, dtype=torch.int32), 9)
    yield "links", walk_links, args, {"ROWS": 3}, (4, 3)


LAUNCHES = list(launches())


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values_on_the_tpu_interpreter(name, kernel, args, meta, grid):
    kernel[grid].verify(*args, target="tpu:v5e", **meta)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target="tpu:v5e", **meta)
    assert verdict.verdict == "ok", str(verdict)


def test_copies_run_a_turn_ahead():
    _, kernel, args, meta, grid = LAUNCHES[1]
    source = kernel[grid].source(*args, target="tpu:v5e", **meta)
    assert "fetch_vals(r0 + 1, 1 - slot).start()" in source
