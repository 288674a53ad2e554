"""Kernels as people write them, launched on torch tensors, against eager PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


def close(got, want, tol=2e-5):
    torch.testing.assert_close(got, want, rtol=tol, atol=tol)


@triton.jit
def layer_norm_fwd(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    mean = 0.0
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


@pytest.mark.parametrize("rows,n,block", [(5, 300, 128), (3, 256, 64), (1, 7, 16), (4, 128, 128)])
def test_layer_norm_three_passes(rows, n, block):
    x, w, b = torch.randn(rows, n), torch.randn(n), torch.randn(n)
    y, mean, rstd = torch.empty_like(x), torch.empty(rows), torch.empty(rows)
    layer_norm_fwd[(rows,)](x, y, w, b, mean, rstd, x.stride(0), n, 1e-5, BLOCK=block)
    close(y, F.layer_norm(x, (n,), w, b, 1e-5))
    close(mean, x.mean(1))
    close(rstd, 1 / torch.sqrt(x.var(1, unbiased=False) + 1e-5))


@triton.jit
def layer_norm_bwd_dx(DX, DY, DW, DB, X, W, Mean, Rstd, stride, N, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    DW = DW + row * N + cols
    DB = DB + row * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = (x - mean) * rstd
    wdy = w * dy
    xhat = tl.where(mask, xhat, 0.0)
    wdy = tl.where(mask, wdy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + cols, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)
    tl.store(DW, (dy * xhat), mask=mask)
    tl.store(DB, dy, mask=mask)


@triton.jit
def sum_columns(P, Out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, M, BM):
        rows = i + tl.arange(0, BM)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        acc += tl.load(P + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(Out + cols, tl.sum(acc, axis=0), mask=cols < N)


@pytest.mark.parametrize("rows,n", [(6, 100), (9, 256), (33, 65)])
def test_layer_norm_backward(rows, n):
    x = torch.randn(rows, n, requires_grad=True)
    w, b = torch.randn(n, requires_grad=True), torch.randn(n, requires_grad=True)
    dy = torch.randn(rows, n)
    F.layer_norm(x, (n,), w, b).backward(dy)
    xd = x.detach()
    mean = xd.mean(1)
    rstd = 1 / torch.sqrt(xd.var(1, unbiased=False) + 1e-5)
    dx, dw, db = torch.empty_like(xd), torch.empty(rows, n), torch.empty(rows, n)
    layer_norm_bwd_dx[(rows,)](dx, dy, dw, db, xd, w.detach(), mean, rstd, n, n, GROUP=1, BLOCK=256)
    close(dx, x.grad)
    out_w, out_b = torch.empty(n), torch.empty(n)
    grid = lambda meta: (triton.cdiv(n, meta["BN"]),)
    sum_columns[grid](dw, out_w, rows, n, BM=8, BN=32)
    sum_columns[grid](db, out_b, rows, n, BM=8, BN=32)
    close(out_w, w.grad)
    close(out_b, b.grad)


@triton.jit
def matmul_bias_2d(
    A, B, C, bias, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    pm, pn = tl.program_id(0), tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(
            A + om[:, None] * sam + (k + ok)[None, :] * sak, mask=(om[:, None] < M) & (k + ok[None, :] < K), other=0.0
        )
        b = tl.load(
            B + (k + ok)[:, None] * sbk + on[None, :] * sbn, mask=(k + ok[:, None] < K) & (on[None, :] < N), other=0.0
        )
        acc += tl.dot(a, b)
    acc += tl.load(bias + on, mask=on < N, other=0.0)[None, :]
    tl.store(C + om[:, None] * scm + on[None, :] * scn, acc, mask=(om[:, None] < M) & (on[None, :] < N))


@pytest.mark.parametrize("m,n,k", [(64, 64, 64), (37, 53, 29), (1, 100, 3), (100, 1, 16)])
def test_matmul_bias_on_strided_views(m, n, k):
    a = torch.randn(k, m).t()
    b = torch.randn(k, 2 * n)[:, ::2]
    c = torch.full((n, m), 9.0).t()
    bias = torch.randn(n)
    matmul_bias_2d[(triton.cdiv(m, 32), triton.cdiv(n, 32))](
        a, b, c, bias, m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=32, BN=32, BK=16
    )
    close(c, a @ b + bias, 1e-4)


@triton.jit
def batched_matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2)
    A += batch * M * K
    B += batch * K * N
    C += batch * M * N
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    pa = A + om[:, None] * K + ok[None, :]
    pb = B + ok[:, None] * N + on[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        a = tl.load(pa, mask=(om[:, None] < M) & (ok[None, :] < left), other=0.0)
        b = tl.load(pb, mask=(ok[:, None] < left) & (on[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        pa += BK
        pb += BK * N
    tl.store(C + om[:, None] * N + on[None, :], acc, mask=(om[:, None] < M) & (on[None, :] < N))


@pytest.mark.parametrize("batch,m,n,k", [(3, 32, 32, 32), (2, 33, 20, 45)])
def test_batched_matmul(batch, m, n, k):
    a, b, c = torch.randn(batch, m, k), torch.randn(batch, k, n), torch.empty(batch, m, n)
    batched_matmul[(triton.cdiv(m, 16), triton.cdiv(n, 16), batch)](a, b, c, m, n, k, BM=16, BN=16, BK=16)
    close(c, a @ b, 1e-4)


@triton.jit
def softmax_bwd(DX, DY, Y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    y = tl.load(Y + row * stride + cols, mask=mask, other=0.0)
    dy = tl.load(DY + row * stride + cols, mask=mask, other=0.0)
    s = tl.sum(y * dy, axis=0)
    tl.store(DX + row * stride + cols, y * (dy - s), mask=mask)


def test_softmax_backward_in_place():
    x = torch.randn(7, 50, requires_grad=True)
    y = torch.softmax(x, -1)
    dy = torch.randn(7, 50)
    y.backward(dy)
    out = dy.clone()
    softmax_bwd[(7,)](out, out, y.detach(), 50, 50, BLOCK=64)  # gradient over its own input
    close(out, x.grad)


@triton.jit
def group_norm(X, Y, W, B, HW, C, eps, CG: tl.constexpr, BLOCK: tl.constexpr):
    b, g = tl.program_id(0), tl.program_id(1)
    base = (b * C + g * CG) * HW
    offs = tl.arange(0, BLOCK)
    mask = offs < CG * HW
    x = tl.load(X + base + offs, mask=mask, other=0.0)
    n = CG * HW
    mean = tl.sum(x) / n
    d = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d) / n + eps)
    c = g * CG + offs // HW
    w = tl.load(W + c, mask=mask)
    bias = tl.load(B + c, mask=mask)
    tl.store(Y + base + offs, d * rstd * w + bias, mask=mask)


def test_group_norm_with_channel_index_by_division():
    x, w, b = torch.randn(2, 6, 4, 5), torch.randn(6), torch.randn(6)
    y = torch.empty_like(x)
    group_norm[(2, 3)](x, y, w, b, 20, 6, 1e-5, CG=2, BLOCK=64)
    close(y, F.group_norm(x, 3, w, b))


@triton.jit
def attention(
    Q, K, V, O, L, sb, sh, sm, H, S, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    start_m = tl.program_id(0)
    bh = tl.program_id(1)
    off = (bh // H) * sb + (bh % H) * sh
    om = start_m * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    q = tl.load(Q + off + om[:, None] * sm + od[None, :], mask=om[:, None] < S, other=0.0)
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    hi = (start_m + 1) * BM if CAUSAL else S
    for start_n in range(0, hi, BN):
        n = start_n + on
        k = tl.load(K + off + n[None, :] * sm + od[:, None], mask=n[None, :] < S, other=0.0)
        qk = tl.dot(q, k) * scale
        if CAUSAL:
            qk = tl.where(om[:, None] >= n[None, :], qk, float("-inf"))
        qk = tl.where(n[None, :] < S, qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        alpha = tl.exp(m_i - m_new)
        p = tl.exp(qk - m_new[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(V + off + n[:, None] * sm + od[None, :], mask=n[:, None] < S, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_new
    tl.store(O + off + om[:, None] * sm + od[None, :], acc / l_i[:, None], mask=om[:, None] < S)
    tl.store(L + bh * S + om, m_i + tl.log(l_i), mask=om < S)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 2, 64, 16), (1, 3, 45, 32)])
def test_attention_batch_and_head_from_one_program_id(causal, shape):
    b, h, s, d = shape
    q, k, v = (torch.randn(b, s, h, d).transpose(1, 2) for _ in range(3))
    o = torch.empty(b, s, h, d).transpose(1, 2)
    lse = torch.empty(b, h, s)
    attention[(triton.cdiv(s, 32), b * h)](
        q, k, v, o, lse, q.stride(0), q.stride(1), q.stride(2), h, s, d**-0.5, CAUSAL=causal, BM=32, BN=16, D=d
    )
    close(o, F.scaled_dot_product_attention(q, k, v, is_causal=causal), 1e-4)
    scores = q @ k.transpose(-1, -2) * d**-0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(s, s, dtype=torch.bool).tril(), float("-inf"))
    close(lse, torch.logsumexp(scores, -1), 1e-4)


@triton.jit
def cross_entropy(X, T, Loss, DX, stride, V, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(T + row)
    cols = tl.arange(0, BLOCK)
    mask = cols < V
    if target == ignore:
        tl.store(DX + row * stride + cols, 0.0, mask=mask)
        tl.store(Loss + row, 0.0)
        return
    x = tl.load(X + row * stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    m = tl.max(x, 0)
    e = tl.exp(x - m)
    s = tl.sum(e, 0)
    xt = tl.load(X + row * stride + target)
    tl.store(Loss + row, tl.log(s) + m - xt)
    g = e / s - tl.where(cols == target, 1.0, 0.0)
    tl.store(DX + row * stride + cols, g, mask=mask)


def test_cross_entropy_one_block_with_early_return():
    x = torch.randn(6, 37, requires_grad=True)
    t = torch.tensor([3, -100, 36, 0, -100, 7])
    want = F.cross_entropy(x, t, reduction="none")
    want.sum().backward()
    loss, dx = torch.full((6,), 7.0), torch.full((6, 37), 7.0)
    cross_entropy[(6,)](x.detach(), t, loss, dx, 37, 37, -100, BLOCK=64)
    close(loss, want.detach())
    close(dx, x.grad)


@triton.jit
def rope_interleaved(X, Cos, Sin, Y, stride, D: tl.constexpr):
    t = tl.program_id(0)
    i = tl.arange(0, D // 2)
    even = tl.load(X + t * stride + 2 * i)
    odd = tl.load(X + t * stride + 2 * i + 1)
    c = tl.load(Cos + t * (D // 2) + i)
    s = tl.load(Sin + t * (D // 2) + i)
    tl.store(Y + t * stride + 2 * i, even * c - odd * s)
    tl.store(Y + t * stride + 2 * i + 1, even * s + odd * c)


def test_interleaved_rope_strided_loads_and_stores():
    x, ang = torch.randn(5, 16), torch.rand(5, 8)
    y = torch.full((5, 16), 3.0)
    rope_interleaved[(5,)](x, ang.cos(), ang.sin(), y, 16, D=16)
    e, o = x[:, ::2], x[:, 1::2]
    want = torch.stack([e * ang.cos() - o * ang.sin(), e * ang.sin() + o * ang.cos()], -1).flatten(1)
    close(y, want)


@triton.jit
def persistent_matmul(A, B, C, M, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    start = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in range(start, tiles, SMS):
        pm = tile // tiles_n
        pn = tile % tiles_n
        om = pm * BM + tl.arange(0, BM)
        on = pn * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            ok = k + tl.arange(0, BK)
            a = tl.load(A + om[:, None] * K + ok[None, :], mask=(om[:, None] < M) & (ok[None, :] < K), other=0.0)
            b = tl.load(B + ok[:, None] * N + on[None, :], mask=(ok[:, None] < K) & (on[None, :] < N), other=0.0)
            acc += tl.dot(a, b)
        tl.store(C + om[:, None] * N + on[None, :], acc, mask=(om[:, None] < M) & (on[None, :] < N))


@pytest.mark.parametrize("m,n,k,sms", [(64, 48, 32, 4), (50, 70, 33, 5)])
def test_persistent_matmul(m, n, k, sms):
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.zeros(m, n)
    persistent_matmul[(sms,)](a, b, c, m, n, k, SMS=sms, BM=16, BN=16, BK=16)
    close(c, a @ b, 1e-4)


@triton.jit
def gelu_dropout(X, Y, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(X + offs, mask=mask)
    g = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    keep = tl.rand(seed, offs) > p
    tl.store(Y + offs, tl.where(keep, g / (1 - p), 0.0), mask=mask)


def test_gelu_dropout_keeps_the_right_share():
    x = torch.randn(10_000)
    y = torch.empty_like(x)
    gelu_dropout[(triton.cdiv(10_000, 1024),)](x, y, 10_000, 0.25, 123, BLOCK=1024)
    kept = y != 0
    close(y[kept], (F.gelu(x) / 0.75)[kept], 1e-4)
    assert abs(kept.float().mean().item() - 0.75) < 0.02


@triton.jit
def partial_sums(X, Out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(Out + pid, tl.sum(tl.load(X + offs, mask=offs < n, other=0.0)))


@pytest.mark.parametrize("n", [1, 100, 128, 1000])
def test_partial_sums_per_program(n):
    x = torch.randn(n)
    p = triton.cdiv(n, 128)
    out = torch.empty(p)
    partial_sums[(p,)](x, out, n, BLOCK=128)
    close(out, F.pad(x, (0, p * 128 - n)).reshape(p, 128).sum(1))


@triton.jit
def conv1d(X, W, Y, n, K: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for k in tl.static_range(K):
        i = offs + k - K // 2
        acc += tl.load(X + i, mask=(i >= 0) & (i < n), other=0.0) * tl.load(W + k)
    tl.store(Y + offs, acc, mask=offs < n)


@pytest.mark.parametrize("n", [5, 64, 200])
def test_conv1d_reads_before_the_start(n):
    x, w, y = torch.randn(n), torch.randn(5), torch.empty(n)
    conv1d[(triton.cdiv(n, 64),)](x, w, y, n, K=5, BLOCK=64)
    close(y, F.conv1d(x[None, None], w[None, None], padding=2)[0, 0])


@triton.jit
def kth_newton_sqrt(X, Y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + offs, mask=offs < n, other=1.0)
    g = x
    steps = 0
    while steps < 12:
        g = 0.5 * (g + x / g)
        steps += 1
    tl.store(Y + offs, g, mask=offs < n)


def test_while_with_tile_state():
    x = torch.rand(100) + 0.1
    y = torch.empty(100)
    kth_newton_sqrt[(2,)](x, y, 100, BLOCK=64)
    close(y, x.sqrt())


@triton.jit
def paged_copy(Pages, Table, Out, n_pages, PAGE: tl.constexpr, D: tl.constexpr):
    seq, slot = tl.program_id(0), tl.program_id(1)
    page = tl.load(Table + seq * n_pages + slot)
    r = tl.arange(0, PAGE)[:, None]
    d = tl.arange(0, D)[None, :]
    v = tl.load(Pages + page * PAGE * D + r * D + d)
    tl.store(Out + (seq * n_pages + slot) * PAGE * D + r * D + d, v)


def test_block_table_picks_pages():
    pages, table = torch.randn(10, 4, 8), torch.randint(0, 10, (3, 5), dtype=torch.int32)
    out = torch.empty(3, 5, 4, 8)
    paged_copy[(3, 5)](pages, table, out, 5, PAGE=4, D=8)
    assert torch.equal(out, pages[table.long()])


@triton.jit
def scatter_rows(X, Index, Out, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    to = tl.load(Index + row)
    cols = tl.arange(0, BLOCK)
    mask = cols < D
    tl.store(Out + to * D + cols, tl.load(X + row * D + cols, mask=mask), mask=mask)


def test_scatter_of_whole_rows_keeps_the_rest():
    x, index = torch.randn(4, 10), torch.tensor([6, 0, 3, 5])
    out = torch.full((8, 10), -1.0)
    scatter_rows[(4,)](x, index, out, 10, BLOCK=16)
    want = torch.full((8, 10), -1.0)
    want[index] = x
    assert torch.equal(out, want)


@triton.jit
def max_pool_rows(X, Y, I, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + cols, mask=cols < n, other=-float("inf"))
    best, at = tl.max(x, 0, return_indices=True)
    tl.store(Y + row, best)
    tl.store(I + row, at)


def test_max_with_indices():
    x = torch.randn(9, 33)
    y, i = torch.empty(9), torch.empty(9, dtype=torch.int32)
    max_pool_rows[(9,)](x, y, i, 33, 33, BLOCK=64)
    v, j = x.max(1)
    assert torch.equal(y, v) and torch.equal(i.long(), j)


@triton.jit
def if_on_program(X, Y, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + offs, mask=offs < n)
    if pid % 2 == 0:
        y = x * 2
    else:
        y = x - 1
    if pid == 1:
        tl.store(Y + offs, y + 100, mask=offs < n)
    else:
        tl.store(Y + offs, y, mask=offs < n)


def test_branches_on_the_program_id():
    x = torch.randn(100)
    y = torch.zeros(100)
    if_on_program[(4,)](x, y, 100, BLOCK=32)
    pid = torch.arange(100) // 32
    want = torch.where(pid % 2 == 0, x * 2, x - 1) + torch.where(pid == 1, 100.0, 0.0)
    close(y, want)


@triton.jit
def outer_product(X, Y, O, n, m, BN: tl.constexpr, BM: tl.constexpr):
    i = tl.arange(0, BN)
    j = tl.arange(0, BM)
    x = tl.load(X + i, mask=i < n)
    y = tl.load(Y + j, mask=j < m)
    tl.store(O + i[:, None] * m + j[None, :], x[:, None] * y[None, :], mask=(i[:, None] < n) & (j[None, :] < m))


def test_outer_product_and_one_tile_both_ways():
    x, y = torch.randn(10), torch.randn(7)
    o = torch.empty(10, 7)
    outer_product[(1,)](x, y, o, 10, 7, BN=16, BM=8)
    close(o, torch.outer(x, y))
    o = torch.empty(10, 10)
    outer_product[(1,)](x, x, o, 10, 10, BN=16, BM=16)
    close(o, torch.outer(x, x))


@triton.jit
def gram(X, O, N: tl.constexpr, D: tl.constexpr):
    r = tl.arange(0, N)[:, None] * D + tl.arange(0, D)[None, :]
    x = tl.load(X + r)
    s = tl.dot(x, tl.trans(x))
    i = tl.arange(0, N)
    tl.store(O + i[:, None] * N + i[None, :], tl.where(i[:, None] >= i[None, :], s, 0.0))


def test_a_tile_times_its_own_transpose():
    x, o = torch.randn(16, 32), torch.empty(16, 16)
    gram[(1,)](x, o, N=16, D=32)
    close(o, (x @ x.t()).tril(), 1e-4)


@triton.jit
def rowwise_quant(X, Q, S, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + cols, mask=cols < n, other=0.0)
    scale = tl.max(tl.abs(x), 0) / 127.0
    q = x / scale
    q = tl.where(q >= 0, q + 0.5, q - 0.5)
    tl.store(Q + row * n + cols, q.to(tl.int8), mask=cols < n)
    tl.store(S + row, scale)


def test_rowwise_int8_quantisation():
    x = torch.randn(5, 50)
    q, s = torch.empty(5, 50, dtype=torch.int8), torch.empty(5)
    rowwise_quant[(5,)](x, q, s, 50, BLOCK=64)
    scale = x.abs().amax(1) / 127
    v = x / scale[:, None]
    want = torch.where(v >= 0, v + 0.5, v - 0.5).to(torch.int8)
    close(s, scale)
    assert (q.int() - want.int()).abs().max() <= 1 and (q != want).float().mean() < 0.01


@triton.jit
def alibi_bias(S, slopes, O, n, BLOCK: tl.constexpr):
    h, i = tl.program_id(0), tl.program_id(1)
    j = tl.arange(0, BLOCK)
    m = (j < n) & (j <= i)
    s = tl.load(S + h * n * n + i * n + j, mask=m, other=-float("inf"))
    s += tl.load(slopes + h) * (j - i)
    s = s - tl.max(s, 0)
    e = tl.where(m, tl.exp(s), 0.0)
    tl.store(O + h * n * n + i * n + j, e / tl.sum(e, 0), mask=j < n)


def test_triangular_mask_from_program_and_lane():
    h, n = 2, 20
    s, slopes, o = torch.randn(h, n, n), torch.rand(h), torch.empty(h, n, n)
    alibi_bias[(h, n)](s, slopes, o, n, BLOCK=32)
    i = torch.arange(n)
    t = s + slopes[:, None, None] * (i[None, :] - i[:, None])
    want = torch.softmax(t.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -math.inf), -1)
    close(o, want)


@triton.jit
def fill_diagonal(O, n, value, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(O + i * n + i, value, mask=i < n)


def test_store_along_the_diagonal():
    o = torch.zeros(10, 10)
    fill_diagonal[(2,)](o, 10, 2.5, BLOCK=8)
    assert torch.equal(o, torch.eye(10) * 2.5)


@triton.jit
def reverse(X, Y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + (n - 1 - offs), tl.load(X + offs, mask=offs < n), mask=offs < n)


def test_reversed_store():
    x, y = torch.randn(100), torch.empty(100)
    reverse[(4,)](x, y, 100, BLOCK=32)
    assert torch.equal(y, x.flip(0))


@triton.jit
def running_state(X, Y, n, D: tl.constexpr):
    d = tl.arange(0, D)
    h = tl.zeros([D], dtype=tl.float32)
    for t in range(n):
        h = 0.9 * h + tl.load(X + t * D + d)
        tl.store(Y + t * D + d, h)


def test_recurrence_stores_every_step():
    x, y = torch.randn(11, 8), torch.empty(11, 8)
    running_state[(1,)](x, y, 11, D=8)
    h, want = torch.zeros(8), []
    for t in range(11):
        h = 0.9 * h + x[t]
        want.append(h)
    close(y, torch.stack(want))


@triton.jit
def prefix_in_place(X, n):
    total = 0.0
    for i in range(n):
        total += tl.load(X + i)
        tl.store(X + i, total)


def test_loop_reads_what_it_wrote():
    x = torch.randn(20)
    want = x.cumsum(0)
    prefix_in_place[(1,)](x, 20)
    close(x, want)


@triton.jit
def shift_down(X, n):
    for i in range(n - 1):
        tl.store(X + i + 1, tl.load(X + i))


def test_loop_that_propagates_through_memory():
    x = torch.arange(6.0)
    shift_down[(1,)](x, 6)
    assert x.tolist() == [0.0] * 6


@triton.jit
def noise(X, Y, n, seed, shift, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    keep = tl.rand(seed, offs) > 0.5
    tl.store(Y + offs, tl.where(keep, tl.load(X + offs + shift, mask=mask), 0.0), mask=mask)


def test_an_integer_that_is_data_alone_compiles_once_more_and_then_never():
    x, y = torch.randn(300), torch.empty(200)
    masks = []
    for seed in range(6):
        noise[(2,)](x, y, 200, seed, 0, BLOCK=128)
        masks.append(y != 0)
    assert len(noise.cache) == 2
    assert all(not torch.equal(masks[0], m) for m in masks[1:])
    for shift in (1, 2, 3):  # an offset is part of the schedule
        noise[(2,)](x, y, 200, 0, shift, BLOCK=128)
        assert torch.equal(y != 0, masks[0] & (x[shift : shift + 200] != 0))
        assert torch.equal(y[masks[0]], x[shift : shift + 200][masks[0]])
    assert len(noise.cache) == 5


@triton.jit
def pairwise_max(X, Y, O, n, BLOCK: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    x = tl.load(X + row * D + d)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        y = tl.load(Y + j[:, None] * D + d[None, :], mask=j[:, None] < n, other=0.0)
        near = -tl.sum(tl.abs(y - x[None, :]), axis=1)
        best = tl.maximum(best, tl.where(j < n, near, -float("inf")))
    tl.store(O + row, tl.max(best, axis=0))


def test_programs_run_in_chunks_where_all_at_once_would_not_fit(monkeypatch):
    from frontend_triton_compat.schedule import chunks

    x, y = torch.randn(60, 16), torch.randn(100, 16)
    want = -(x[:, None] - y[None]).abs().sum(-1).min(1).values
    out = torch.empty(60)
    args = (x, y, out, 100)
    assert "some_programs" not in pairwise_max[(60,)].source(*args, BLOCK=32, D=16)
    monkeypatch.setattr(chunks, "SMALL", 4000)
    assert "some_programs" in pairwise_max[(60,)].source(*args, BLOCK=32, D=16)
    pairwise_max[(60,)](*args, BLOCK=32, D=16)
    close(out, want)


@pytest.mark.parametrize("name", ["softmax", "attention", "matmul"])
def test_chunks_change_nothing(name, monkeypatch):
    from frontend_triton_compat.schedule import chunks

    monkeypatch.setattr(chunks, "SMALL", 200)
    monkeypatch.setattr(chunks, "BLOW_UP", 0)
    if name == "softmax":
        x, dy = torch.randn(12, 50), torch.randn(12, 50)
        out = torch.empty_like(x)
        softmax_bwd[(12,)](out, dy, torch.softmax(x, -1), 50, 50, BLOCK=64)
        y = torch.softmax(x, -1)
        close(out, y * (dy - (y * dy).sum(-1, keepdim=True)))
    elif name == "attention":
        q, k, v = (torch.randn(2, 3, 40, 16) for _ in range(3))
        o, lse = torch.empty_like(q), torch.empty(2, 3, 40)
        attention[(3, 6)](q, k, v, o, lse, 3 * 640, 640, 16, 3, 40, 0.25, CAUSAL=True, BM=16, BN=16, D=16)
        close(o, F.scaled_dot_product_attention(q, k, v, is_causal=True), 1e-4)
    else:
        a, b, c = torch.randn(4, 20, 30), torch.randn(4, 30, 20), torch.empty(4, 20, 20)
        batched_matmul[(2, 2, 4)](a, b, c, 20, 20, 30, BM=16, BN=16, BK=16)
        close(c, a @ b, 1e-4)


@triton.jit
def square_of_tile(A, Bp, O, B: tl.constexpr, TRANS: tl.constexpr):
    r = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    a = tl.load(A + r)
    b = tl.trans(tl.load(Bp + r)) if TRANS else tl.load(Bp + r)
    tl.store(O + r, tl.dot(a, b) + tl.dot(a, a))


@pytest.mark.parametrize("trans", [False, True])
def test_dot_of_tiles_with_one_offset_tile(trans):
    a, b, o = torch.randn(8, 8), torch.randn(8, 8), torch.empty(8, 8)
    square_of_tile[(1,)](a, b, o, B=8, TRANS=trans)
    close(o, a @ (b.t() if trans else b) + a @ a, 1e-4)


def test_a_launch_inside_a_compiled_function_is_part_of_the_graph():
    import torch._dynamo as dynamo

    def f(x):
        y = x * 2
        out = torch.empty(4, 2)
        partial_sums[(4,)](y, out, y.numel(), BLOCK=32)
        return y.sum() + out.reshape(-1)[:4].sum()

    x = torch.randn(100)
    dynamo.reset()
    dynamo.utils.counters.clear()
    got = torch.compile(f, backend="eager", fullgraph=True)(x)
    close(got, 4 * x.sum(), 1e-4)
    assert not dynamo.utils.counters["graph_break"]
