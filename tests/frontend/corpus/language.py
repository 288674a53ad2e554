"""The language itself: random bits, scans, sorts, descriptors, block pointers, helpers, wrap-around."""

import torch
import torch.nn.functional as F

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def fold_other(x, o, o2, o3, W, T: tl.constexpr, L):
    p = tl.program_id(0)
    acc = 0.0
    mx = -1e30
    ac3 = 0.0
    for k in range(T):
        v = tl.load(x + p * W + k, mask=k < L, other=1.0)
        acc += v
        mx = tl.maximum(mx, v)
        ac3 += tl.exp(v) + k
    tl.store(o + p, acc)
    tl.store(o2 + p, mx)
    tl.store(o3 + p, ac3)


def case_fold_masked_other():
    x = torch.randn(3, 10) - 3
    a, b, c = torch.empty(3), torch.empty(3), torch.empty(3)
    fold_other[(3,)](x, a, b, c, 10, 10, 5)
    y = x.double().clone()
    y[:, 5:] = 1.0
    return [(a, y.sum(1)), (b, y.amax(1)), (c, (y.exp() + torch.arange(10)).sum(1))]


@triton.jit
def fold_other_tile(x, o, o2, n, B: tl.constexpr):
    p = tl.program_id(0)
    acc = tl.zeros([B], tl.float32)
    acc2 = tl.zeros([B], tl.float32)
    for k in range(0, n, B):
        i = k + tl.arange(0, B)
        v = tl.load(x + p * n + i, mask=i < n, other=0.0)
        acc += tl.exp(v)
        acc2 = tl.maximum(acc2, v + i)
    tl.store(o + p * B + tl.arange(0, B), acc)
    tl.store(o2 + p, tl.max(acc2) + tl.sum(acc))


def case_fold_tile_other0():
    x = torch.randn(2, 21)
    o = torch.empty(2, 8)
    o2 = torch.empty(2)
    fold_other_tile[(2,)](x, o, o2, 21, 8)
    y = F.pad(x.double(), (0, 3))
    e = y.exp().view(2, 3, 8).sum(1)
    m = (y + torch.arange(24)).view(2, 3, 8).amax(1).clamp(min=0)
    return [(o, e), (o2, m.amax(1) + e.sum(1))]


@triton.jit
def sum_tile_other(x, o, n, B: tl.constexpr):
    p = tl.program_id(0)
    s = 0.0
    for k in range(0, n, B):
        i = k + tl.arange(0, B)
        v = tl.load(x + p * n + i, mask=i < n, other=2.0)
        s += tl.sum(v * v)
    tl.store(o + p, s)


def case_fold_sum_other2():
    x = torch.randn(2, 21)
    o = torch.empty(2)
    sum_tile_other[(2,)](x, o, 21, 8)
    return [(o, (F.pad(x.double(), (0, 3), value=2) ** 2).sum(1))]


@triton.jit
def sum_2d_other(x, o, oc, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.arange(0, BM)[:, None]
    j = tl.arange(0, BN)[None, :]
    v = tl.load(x + i * N + j, mask=(i < M) & (j < N), other=1.0)
    e = v * 3 + 1
    tl.store(o, tl.sum(tl.sum(e, 1), 0))
    tl.store(o + 1, tl.sum(e))
    tl.store(o + 2, tl.max(tl.min(e, 0), 0))
    tl.store(oc + tl.arange(0, BN), tl.sum(e, 0), mask=tl.arange(0, BN) < N)


def case_sum_2d_other():
    x = torch.randn(5, 11)
    o = torch.empty(3)
    oc = torch.empty(11)
    sum_2d_other[(1,)](x, o, oc, 5, 11, 8, 16)
    y = F.pad(x.double(), (0, 5, 0, 3), value=1) * 3 + 1
    return [(o, torch.stack([y.sum(), y.sum(), y.amin(0).amax()])), (oc, y.sum(0)[:11])]


@triton.jit
def dot_other(A, B, C, K, BK: tl.constexpr, T: tl.constexpr, L):
    i = tl.arange(0, 16)
    k = tl.arange(0, BK)
    acc = tl.zeros([16, 16], tl.float32)
    for t in range(T):
        a = tl.load(A + i[:, None] * (T * BK) + t * BK + k[None, :], mask=(t < L) & (k[None, :] < K), other=1.0)
        b = tl.load(B + (t * BK + k)[:, None] * 16 + i[None, :])
        acc += tl.dot(a, b)
    tl.store(C + i[:, None] * 16 + i[None, :], acc)


def case_dot_other1():
    A = torch.randn(16, 64)
    B = torch.randn(64, 16)
    C = torch.empty(16, 16)
    dot_other[(1,)](A, B, C, 10, 16, 4, 2)
    a = A.double().view(16, 4, 16).clone()
    a[:, 2:] = 1
    a[:, :, 10:] = 1
    return [(C, a.reshape(16, 64) @ B.double(), 1e-3)]


@triton.jit
def store_acc(x, o, fin, n, T, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for t in range(T):
        tl.store(o + t * n + i, acc, mask=i < n)
        acc += tl.load(x + t * n + i, mask=i < n, other=0.0)
    tl.store(fin + i, acc, mask=i < n)


def case_exclusive_prefix_store():
    x = torch.randn(5, 10)
    o = torch.empty(5, 10)
    f = torch.empty(10)
    store_acc[(1,)](x, o, f, 10, 5, 16)
    c = x.double().cumsum(0)
    return [(o, c - x.double()), (f, c[-1])]


@triton.jit
def store_acc2(x, o, n, T, B: tl.constexpr):
    p = tl.program_id(0)
    c = 0.0
    for t in range(T):
        i = t * B + tl.arange(0, B)
        v = tl.load(x + p * n + i, mask=i < n, other=0.0)
        tl.store(o + p * n + i, tl.cumsum(v, 0) + c, mask=i < n)
        c += tl.sum(v)


def case_scan_carry():
    x = torch.randn(3, 37)
    o = torch.empty(3, 37)
    store_acc2[(3,)](x, o, 37, 5, 8)
    return [(o, x.double().cumsum(1))]


@triton.jit
def carry_in_mask(x, o, n, T: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    cnt = 0
    for t in range(T):
        v = tl.load(x + p * T + t)
        tl.store(o + p * T + cnt, v, mask=v > 0)
        cnt += (v > 0).to(tl.int32)


def case_compaction():
    x = torch.randn(3, 20)
    o = torch.zeros(3, 20)
    carry_in_mask[(3,)](x, o, 20, 20, 8)
    w = torch.zeros(3, 20)
    for r in range(3):
        y = x[r][x[r] > 0]
        w[r, : len(y)] = y
    return [(o, w)]


@triton.jit
def compact_vec(x, o, cnt, n, B: tl.constexpr):
    base = 0
    for k in range(0, n, B):
        i = k + tl.arange(0, B)
        v = tl.load(x + i, mask=i < n, other=-1.0)
        keep = v > 0
        pos = base + tl.cumsum(keep.to(tl.int32), 0) - 1
        tl.store(o + pos, v, mask=keep)
        base += tl.sum(keep.to(tl.int32))
    tl.store(cnt, base)


def case_compact_vec():
    x = torch.randn(50)
    o = torch.zeros(50)
    c = torch.zeros(1, dtype=torch.int32)
    compact_vec[(1,)](x, o, c, 50, 16)
    y = x[x > 0]
    w = torch.zeros(50)
    w[: len(y)] = y
    return [(o, w), (c, torch.tensor([len(y)]))]


@triton.jit
def welford(m1, v1, n1, m2, v2, n2):
    n = n1 + n2
    d = m2 - m1
    r = tl.where(n == 0, 0.0, n2 / n)
    return m1 + d * r, v1 + v2 + d * d * n1 * r, n


@triton.jit
def welford_k(x, o, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + p * n + i, mask=m, other=0.0)
    mean, var, c = tl.reduce((v, tl.zeros([B], tl.float32), m.to(tl.float32)), 0, welford)
    tl.store(o + p * 2, mean)
    tl.store(o + p * 2 + 1, var / c)


def case_welford():
    x = torch.randn(4, 21)
    o = torch.empty(4, 2)
    welford_k[(4,)](x, o, 21, 32)
    return [(o, torch.stack([x.double().mean(1), x.double().var(1, unbiased=False)], 1))]


@triton.jit
def lin_rec(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def assoc(a, b, o, T, D, BT: tl.constexpr, BD: tl.constexpr):
    t = tl.arange(0, BT)[:, None]
    d = tl.program_id(0) * BD + tl.arange(0, BD)[None, :]
    m = (t < T) & (d < D)
    av = tl.load(a + t * D + d, mask=m, other=1.0)
    bv = tl.load(b + t * D + d, mask=m, other=0.0)
    _, h = tl.associative_scan((av, bv), 0, lin_rec)
    tl.store(o + t * D + d, h, mask=m)


def case_assoc_scan():
    T, D = 13, 10
    a = torch.rand(T, D)
    b = torch.randn(T, D)
    o = torch.empty(T, D)
    assoc[(3,)](a, b, o, T, D, 16, 4)
    h = torch.zeros(D, dtype=torch.float64)
    w = []
    for t in range(T):
        h = h * a[t] + b[t]
        w.append(h)
    return [(o, torch.stack(w))]


@triton.jit
def argmax_k(x, oi, ov, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + p * n + i, mask=i < n, other=-float("inf"))
    mv, mi = tl.max(v, 0, return_indices=True)
    tl.store(oi + p * 3, mi)
    tl.store(ov + p, mv)
    tl.store(oi + p * 3 + 1, tl.argmin(tl.where(i < n, v, float("inf")), 0))
    tl.store(oi + p * 3 + 2, tl.argmax(tl.where(i < n, -tl.abs(v), -float("inf")), 0))


def case_argmax_ties():
    x = torch.randint(0, 4, (6, 13)).float()
    oi = torch.empty(6, 3, dtype=torch.int32)
    ov = torch.empty(6)
    argmax_k[(6,)](x, oi, ov, 13, 16)
    f = lambda y, fn: torch.tensor([[j for j in range(13) if r[j] == fn(r)][0] for r in y.tolist()])
    return [(oi[:, 0], f(x, max)), (ov, x.amax(1)), (oi[:, 1], f(x, min)), (oi[:, 2], f(x.abs(), min))]


@triton.jit
def topk_loop(x, ov, oi, n, K: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + p * n + i, mask=i < n, other=-float("inf"))
    tot = 0.0
    for k in range(K):
        mv = tl.max(v, 0)
        mi = tl.argmax(v, 0)
        tl.store(ov + p * K + k, mv)
        tl.store(oi + p * K + k, mi)
        tot += mv
        v = tl.where(i == mi, -float("inf"), v)
    for k in range(K):
        tl.store(ov + p * K + k, tl.load(ov + p * K + k) / tot)


def case_topk_renorm():
    x = torch.rand(5, 23)
    ov = torch.empty(5, 4)
    oi = torch.empty(5, 4, dtype=torch.int64)
    topk_loop[(5,)](x, ov, oi, 23, 4, 32)
    v, i = x.topk(4)
    return [(ov, v / v.sum(1, keepdim=True)), (oi, i)]


@triton.jit
def sort_k(x, o, ot, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + p * n + i, mask=i < n, other=float("inf"))
    tl.store(o + p * n + i, tl.sort(v), mask=i < n)
    t = tl.topk(tl.where(i < n, v, -float("inf")), 4)
    tl.store(ot + p * 4 + tl.arange(0, 4), t)


def case_sort_topk():
    x = torch.randn(3, 27)
    o = torch.empty(3, 27)
    ot = torch.empty(3, 4)
    sort_k[(3,)](x, o, ot, 27, 32)
    return [(o, x.sort(1)[0]), (ot, x.topk(4)[0])]


@triton.jit
def hist_k(x, o, n, NB: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=-1)
    h = tl.sum((v[:, None] == tl.arange(0, NB)[None, :]).to(tl.int32), 0)
    tl.store(o + p * NB + tl.arange(0, NB), h)


def case_hist_compare():
    x = torch.randint(0, 16, (100,), dtype=torch.int32)
    o = torch.empty(4, 16, dtype=torch.int32)
    hist_k[(4,)](x, o, 100, 16, 32)
    return [(o.sum(0), torch.bincount(x, minlength=16))]


@triton.jit
def hist_b(x, o, n, NB: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    h = tl.histogram(v, NB, mask=i < n)
    tl.store(o + p * NB + tl.arange(0, NB), h)


def case_hist_builtin():
    x = torch.randint(0, 16, (100,), dtype=torch.int32)
    o = torch.empty(4, 16, dtype=torch.int32)
    hist_b[(4,)](x, o, 100, 16, 32)
    return [(o.sum(0), torch.bincount(x, minlength=16))]


@triton.jit
def gather_k(x, idx, o, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :]
    v = tl.load(x + i * N + j)
    d = tl.load(idx + i * N + j)
    tl.store(o + i * N + j, tl.gather(v, d, 1))


def case_tl_gather():
    x = torch.randn(8, 16)
    d = torch.randint(0, 16, (8, 16), dtype=torch.int32)
    o = torch.empty(8, 16)
    gather_k[(1,)](x, d, o, 8, 16)
    return [(o, x.gather(1, d.long()))]


@triton.jit
def shapes(x, o1, o2, o3, o4, o5, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    p = tl.program_id(0)
    a = tl.arange(0, A)[:, None, None]
    b = tl.arange(0, B)[None, :, None]
    c = tl.arange(0, C)[None, None, :]
    x += p * A * B * C
    v = tl.load(x + a * (B * C) + b * C + c)
    lin = tl.arange(0, A * B * C)
    tl.store(o1 + p * A * B * C + lin, tl.reshape(tl.permute(v, (2, 0, 1)), (A * B * C,)))
    l, r = tl.split(tl.reshape(v, (A * B, C // 2, 2)))
    half = tl.arange(0, A * B)[:, None] * (C // 2) + tl.arange(0, C // 2)[None, :]
    tl.store(o2 + p * A * B * C // 2 + half, l - r)
    j = tl.join(l, r * 2)
    tl.store(o3 + p * A * B * C + lin, tl.ravel(tl.trans(j, (0, 2, 1))))
    tl.store(o4 + p * A * C + tl.arange(0, A)[:, None] * C + tl.arange(0, C)[None, :], tl.sum(v, 1))
    tl.store(o5 + p * A * B * C + lin, tl.reshape(tl.flip(v, 2), (A * B * C,)))


def case_shapes():
    P, A, B, C = 3, 4, 2, 8
    x = torch.randn(P, A, B, C)
    o1, o3, o5 = [torch.empty(P, A * B * C) for _ in range(3)]
    o2 = torch.empty(P, A * B, C // 2)
    o4 = torch.empty(P, A, C)
    shapes[(P,)](x, o1, o2, o3, o4, o5, A, B, C)
    e = x.reshape(P, A * B, C // 2, 2)
    j = torch.stack([e[..., 0], e[..., 1] * 2], -1).transpose(-1, -2).reshape(P, -1)
    return [
        (o1, x.permute(0, 3, 1, 2).reshape(P, -1)),
        (o2, e[..., 0] - e[..., 1]),
        (o3, j),
        (o4, x.sum(2)),
        (o5, x.flip(3).reshape(P, -1)),
    ]


@triton.jit
def desc_mm(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(A, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(B, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c = tl.make_tensor_descriptor(C, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(C.dtype.element_ty))


def case_desc_mm():
    M, N, K = 37, 50, 41
    a, b = torch.randn(M, K), torch.randn(N, K)
    c = torch.empty(M, N)
    desc_mm[(3, 4)](a, b, c, M, N, K, 16, 16, 16)
    return [(c, a.double() @ b.double().T, 1e-3)]


@triton.jit
def desc_dyn(X, O, rows, M, N, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(X, [M, N], [N, 1], [BM, BN])
    o = tl.make_tensor_descriptor(O, [M, N], [N, 1], [BM, BN])
    p = tl.program_id(0)
    r = tl.load(rows + p)
    for j in range(0, N, BN):
        v = d.load([r, j])
        o.store([p * BM, j], v * 2)


def case_desc_dyn_row():
    X = torch.randn(20, 21)
    O = torch.full((20, 21), 5.0)
    rows = torch.tensor([17, -2, 3, 0, 12], dtype=torch.int32)
    desc_dyn[(5,)](X, O, rows, 20, 21, 4, 8)
    P = F.pad(X, (0, 0, 2, 4))
    w = torch.cat([P[r + 2 : r + 6] for r in rows.tolist()]) * 2
    return [(O, w)]


@triton.jit
def bp_copy(X, O, M, N, BM: tl.constexpr, BN: tl.constexpr, OFF: tl.constexpr):
    p = tl.program_id(0)
    a = tl.make_block_ptr(X, (M, N), (N, 1), (p * BM - OFF, -OFF), (BM, BN), (1, 0))
    o = tl.make_block_ptr(O, (M, N), (N, 1), (p * BM, 0), (BM, BN), (1, 0))
    for j in range(0, tl.cdiv(N, BN)):
        v = tl.load(a, boundary_check=(0, 1), padding_option="nan")
        tl.store(o, v, boundary_check=(0, 1))
        a = tl.advance(a, (0, BN))
        o = tl.advance(o, (0, BN))


def case_blockptr_negative_offset():
    X = torch.randn(13, 19)
    O = torch.zeros(13, 19)
    bp_copy[(4,)](X, O, 13, 19, 4, 8, 3)
    w = torch.full((13, 19), float("nan"))
    w[3:, 3:] = X[:-3, :-3]
    return [(O, w)]


@triton.jit
def bp_T(X, O, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a = tl.make_block_ptr(
        X,
        shape=(N, M),
        strides=(1, N),
        offsets=(tl.program_id(1) * BN, tl.program_id(0) * BM),
        block_shape=(BN, BM),
        order=(0, 1),
    )
    o = tl.make_block_ptr(
        O,
        shape=(N, M),
        strides=(M, 1),
        offsets=(tl.program_id(1) * BN, tl.program_id(0) * BM),
        block_shape=(BN, BM),
        order=(1, 0),
    )
    tl.store(o, tl.load(a, boundary_check=(0, 1)), boundary_check=(0, 1))


def case_blockptr_transpose():
    X = torch.randn(13, 19)
    O = torch.zeros(19, 13)
    bp_T[(4, 3)](X, O, 13, 19, 4, 8)
    return [(O, X.T)]


@triton.jit
def dropout(x, o, m, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    k = i < n
    r = tl.rand(seed, i)
    keep = r > p
    tl.store(o + i, tl.where(keep, tl.load(x + i, mask=k) / (1 - p), 0.0), mask=k)
    tl.store(m + i, keep, mask=k)


def case_dropout_bool_mask():
    x = torch.randn(100)
    o = torch.empty(100)
    m = torch.empty(100, dtype=torch.bool)
    dropout[(4,)](x, o, m, 100, 0.3, 123, 32)
    return [(o, torch.where(m, x / 0.7, 0.0)), (m.float().mean()[None], torch.tensor([0.7]), 0.3)]


@triton.jit
def rng4(o, seed, off, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b, c, d = tl.randint4x(seed, i + off)
    tl.store(o + i, a)
    tl.store(o + B + i, b)
    tl.store(o + 2 * B + i, c)
    tl.store(o + 3 * B + i, d)
    tl.store(o + 4 * B + i, tl.randint(seed, i + off, n_rounds=7))


def _phil(seed, c0, rounds=10):
    M = 0xFFFFFFFF
    c = [c0, 0, 0, 0]
    k = [seed & M, (seed >> 32) & M]
    for _ in range(rounds):
        A = 0xD2511F53
        Bq = 0xCD9E8D57
        h0 = (A * c[0]) >> 32
        l0 = (A * c[0]) & M
        h1 = (Bq * c[2]) >> 32
        l1 = (Bq * c[2]) & M
        c = [h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0]
        k = [(k[0] + 0x9E3779B9) & M, (k[1] + 0xBB67AE85) & M]
    return c


def case_philox():
    out = []
    for seed in (7, 2**40 + 5):
        o = torch.empty(5, 16, dtype=torch.int32)
        rng4[(1,)](o, seed, 1000, 16)
        s = lambda v: v - 2**32 if v >= 2**31 else v
        w = torch.tensor(
            [[s(_phil(seed, 1000 + i)[j]) for i in range(16)] for j in range(4)]
            + [[s(_phil(seed, 1000 + i, 7)[0]) for i in range(16)]]
        )
        out.append((o, w, 0))
    return out


@triton.jit
def bisect_vec(x, q, o, n, nq, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < nq
    v = tl.load(q + i, mask=m, other=0.0)
    lo = tl.zeros([B], tl.int32)
    hi = tl.full([B], n, tl.int32)
    while tl.max(hi - lo) > 0:
        mid = (lo + hi) // 2
        t = tl.load(x + mid, mask=lo < hi, other=0.0)
        go = (t < v) & (lo < hi)
        lo = tl.where(go, mid + 1, lo)
        hi = tl.where(go | (lo >= hi), hi, mid)
    tl.store(o + i, lo, mask=m)


def case_searchsorted():
    x = torch.randn(37).sort()[0]
    q = torch.randn(20)
    o = torch.empty(20, dtype=torch.int32)
    bisect_vec[(3,)](x, q, o, 37, 20, 8)
    return [(o, torch.searchsorted(x, q))]


@triton.jit
def helper_ret(x, n):
    if n > 3:
        return x * 2
    else:
        return x + 100


@triton.jit
def elif_k(x, o, n, mode, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + p * B + i)
    if p == 0:
        y = v + 1
    elif p == 1:
        y = v * 2
    elif p == mode:
        y = tl.exp(v)
    else:
        y = helper_ret(v, p)
    tl.store(o + p * B + i, y)


def case_elif():
    x = torch.randn(6, 8)
    o = torch.empty(6, 8)
    elif_k[(6,)](x, o, 8, 2, 8)
    return [(o, torch.stack([x[0] + 1, x[1] * 2, x[2].exp(), x[3] + 100, x[4] * 2, x[5] * 2]))]


@triton.jit
def act_gelu(x):
    return 0.5 * x * (1 + tl.erf(x / 1.4142135))


@triton.jit
def fnparam(x, o, n, ACT: tl.constexpr, DT: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n).to(DT)
    tl.store(o + i, ACT(v), mask=i < n)


def case_fn_param():
    x = torch.randn(30)
    o = torch.empty(30)
    fnparam[(4,)](x, o, 30, act_gelu, tl.float32, 8)
    return [(o, F.gelu(x), 1e-4)]


@triton.jit
def tup(ptrs, o, n, scales, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for k in tl.static_range(len(ptrs)):
        acc += tl.load(ptrs[k] + i, mask=i < n, other=0.0) * scales[k]
    tl.store(o + i, acc, mask=i < n)


def case_tuple_args():
    x, y, z = [torch.randn(10) for _ in range(3)]
    o = torch.empty(10)
    tup[(1,)]((x, y, z), o, 10, (1.0, 2, 0.5), 16)
    return [(o, x + 2 * y + 0.5 * z)]


@triton.jit
def ints(a, b, o, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(a + i)
    y = tl.load(b + i)
    tl.store(o + i, x * y)
    tl.store(o + B + i, x // y)
    tl.store(o + 2 * B + i, x % y)
    tl.store(o + 3 * B + i, x >> 3)
    tl.store(o + 4 * B + i, x << 5)
    tl.store(o + 5 * B + i, x ^ y)
    tl.store(o + 6 * B + i, (x < y).to(tl.int32))
    tl.store(o + 7 * B + i, ~x)
    tl.store(o + 8 * B + i, -x)
    tl.store(o + 9 * B + i, tl.abs(x))
    tl.store(o + 10 * B + i, tl.minimum(x, y))


def case_int32_wrap():
    a = torch.randint(-(2**31), 2**31, (64,), dtype=torch.int64).int()
    b = torch.randint(-(2**31), 2**31, (64,), dtype=torch.int64).int()
    b[:32] = torch.randint(1, 9, (32,))
    b[:8] *= -1
    o = torch.empty(11, 64, dtype=torch.int32)
    ints[(1,)](a, b, o, 64)
    return [
        (
            o,
            torch.stack(
                [
                    a * b,
                    torch.div(a, b, rounding_mode="trunc"),
                    torch.fmod(a, b),
                    a >> 3,
                    a << 5,
                    a ^ b,
                    (a < b).int(),
                    ~a,
                    -a,
                    a.abs(),
                    torch.minimum(a, b),
                ]
            ),
            0,
        )
    ]


def case_int8_wrap():
    a = torch.randint(-128, 128, (64,)).to(torch.int8)
    b = torch.randint(1, 128, (64,)).to(torch.int8)
    o = torch.empty(11, 64, dtype=torch.int8)
    ints[(1,)](a, b, o, 64)
    return [
        (
            o,
            torch.stack(
                [
                    a * b,
                    torch.div(a, b, rounding_mode="trunc"),
                    torch.fmod(a, b),
                    a >> 3,
                    a << 5,
                    a ^ b,
                    (a < b).to(torch.int8),
                    ~a,
                    -a,
                    a.abs(),
                    torch.minimum(a, b),
                ]
            ),
            0,
        )
    ]


def case_uint8():
    a = torch.randint(0, 256, (64,)).to(torch.uint8)
    b = torch.randint(1, 256, (64,)).to(torch.uint8)
    o = torch.empty(11, 64, dtype=torch.uint8)
    ints[(1,)](a, b, o, 64)
    return [
        (
            o,
            torch.stack(
                [
                    a * b,
                    torch.div(a, b, rounding_mode="trunc"),
                    a % b,
                    a >> 3,
                    a << 5,
                    a ^ b,
                    (a < b).to(torch.uint8),
                    ~a,
                    (0 - a.int()).to(torch.uint8),
                    a,
                    torch.minimum(a, b),
                ]
            ),
            0,
        )
    ]


@triton.jit
def boolk(a, b, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(a + i, mask=i < n, other=0)
    y = tl.load(b + i, mask=i < n, other=0)
    tl.store(o + i, (x & ~y) | (x ^ y), mask=i < n)
    tl.store(o + n + i, x == y, mask=i < n)
    tl.store(o + 2 * n + i, tl.where(x, y, not_(y)), mask=i < n)
    tl.store(o + 3 * n + i, tl.sum(x.to(tl.int32)) > 5, mask=i < n)


@triton.jit
def not_(y):
    return y == 0


def case_bool():
    a, b = torch.rand(10) > 0.5, torch.rand(10) > 0.5
    o = torch.empty(4, 10, dtype=torch.bool)
    boolk[(1,)](a, b, o, 10, 16)
    return [(o, torch.stack([(a & ~b) | (a ^ b), a == b, torch.where(a, b, ~b), (a.sum() > 5).expand(10)]))]


@triton.jit
def sliding(x, o, n, W: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for w in range(-W, W + 1):
        j = i + w
        acc += tl.load(x + j, mask=(j >= 0) & (j < n), other=0.0) * (w + W + 1)
    tl.store(o + i, acc, mask=i < n)


def case_stencil():
    x = torch.randn(53)
    o = torch.empty(53)
    sliding[(7,)](x, o, 53, 2, 8)
    return [(o, F.conv1d(x.double()[None, None], torch.arange(1, 6).double()[None, None], padding=2)[0, 0])]


def case_stencil_biggrid():
    x = torch.randn(53)
    o = torch.empty(53)
    sliding[(20,)](x, o, 53, 2, 8)
    return [(o, F.conv1d(x.double()[None, None], torch.arange(1, 6).double()[None, None], padding=2)[0, 0])]


@triton.jit
def conv2d(
    x,
    w,
    o,
    C,
    H,
    W,
    KH: tl.constexpr,
    KW: tl.constexpr,
    OC,
    OH,
    OW,
    ST: tl.constexpr,
    PD: tl.constexpr,
    BP: tl.constexpr,
    BO: tl.constexpr,
    BC: tl.constexpr,
):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    oc = tl.program_id(1) * BO + tl.arange(0, BO)
    nb = tl.program_id(2)
    oh = p // OW
    ow = p % OW
    acc = tl.zeros([BP, BO], tl.float32)
    for kh in range(KH):
        for kw in range(KW):
            for c0 in range(0, C, BC):
                c = c0 + tl.arange(0, BC)
                ih = oh * ST + kh - PD
                iw = ow * ST + kw - PD
                xm = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & (p < OH * OW)
                xv = tl.load(
                    x + nb * C * H * W + c[None, :] * H * W + (ih * W + iw)[:, None],
                    mask=xm[:, None] & (c < C)[None, :],
                    other=0.0,
                )
                wv = tl.load(
                    w + oc[None, :] * C * KH * KW + (c * KH * KW + kh * KW + kw)[:, None],
                    mask=(oc < OC)[None, :] & (c < C)[:, None],
                    other=0.0,
                )
                acc += tl.dot(xv, wv)
    tl.store(
        o + nb * OC * OH * OW + oc[None, :] * OH * OW + p[:, None],
        acc,
        mask=(p < OH * OW)[:, None] & (oc < OC)[None, :],
    )


def case_conv2d():
    N, C, H, W, OC = 2, 5, 9, 11, 7
    x = torch.randn(N, C, H, W)
    w = torch.randn(OC, C, 3, 3)
    r = F.conv2d(x.double(), w.double(), stride=2, padding=1)
    o = torch.empty(r.shape)
    OH, OW = r.shape[2:]
    conv2d[(triton.cdiv(OH * OW, 16), 1, N)](x, w, o, C, H, W, 3, 3, OC, OH, OW, 2, 1, 16, 16, 16)
    return [(o, r, 1e-3)]


@triton.jit
def maxpool(x, o, ix, H, W, OH, OW, B: tl.constexpr):
    nc = tl.program_id(0)
    p = tl.program_id(1) * B + tl.arange(0, B)
    oh = p // OW
    ow = p % OW
    best = tl.full([B], -float("inf"), tl.float32)
    bi = tl.zeros([B], tl.int64)
    for a in tl.static_range(2):
        for b in tl.static_range(2):
            off = (oh * 2 + a) * W + ow * 2 + b
            v = tl.load(x + nc * H * W + off, mask=p < OH * OW, other=-float("inf"))
            better = v > best
            best = tl.where(better, v, best)
            bi = tl.where(better, off.to(tl.int64), bi)
    tl.store(o + nc * OH * OW + p, best, mask=p < OH * OW)
    tl.store(ix + nc * OH * OW + p, bi, mask=p < OH * OW)


def case_maxpool():
    x = torch.randn(2, 3, 9, 7)
    r, i = F.max_pool2d(x, 2, return_indices=True)
    o = torch.empty(r.shape)
    ix = torch.empty(r.shape, dtype=torch.int64)
    maxpool[(6, 2)](x, o, ix, 9, 7, 4, 3, 8)
    return [(o, r), (ix, i)]
