"""Memory and control flow: views, aliases, recurrences through memory, nested returns, dynamic bounds."""

import torch
import torch.nn.functional as F

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def raw_time(x, o, T, D, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < D
    for t in range(T):
        h = tl.load(o + (p * T + t - 1) * D + i, mask=m & (t > 0), other=0.0)
        tl.store(o + (p * T + t) * D + i, h * 0.5 + tl.load(x + (p * T + t) * D + i, mask=m, other=0.0), mask=m)


def case_recurrence_through_memory():
    P, T, D = 3, 7, 10
    x = torch.randn(P, T, D)
    o = torch.empty(P, T, D)
    raw_time[(P,)](x, o, T, D, 16)
    h = 0
    w = []
    for t in range(T):
        h = h * 0.5 + x[:, t]
        w.append(h)
    return [(o, torch.stack(w, 1))]


@triton.jit
def hadamard(x, o, n: tl.constexpr, LOG: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, n)
    tl.store(o + p * n + i, tl.load(x + p * n + i))
    tl.debug_barrier()
    for s in tl.static_range(LOG):
        a = tl.load(o + p * n + i)
        b = tl.load(o + p * n + (i ^ (1 << s)))
        tl.debug_barrier()
        tl.store(o + p * n + i, tl.where((i & (1 << s)) == 0, a + b, b - a))
        tl.debug_barrier()


def case_hadamard_memory():
    x = torch.randn(3, 16)
    o = torch.empty(3, 16)
    hadamard[(3,)](x, o, 16, 4)
    H = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(4):
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    return [(o, x.double() @ H)]


@triton.jit
def scratch_T(x, s, o, N: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, N)
    for r in range(N):
        tl.store(s + p * N * N + r * N + i, tl.load(x + p * N * N + r * N + i) * 2)
    tl.debug_barrier()
    for c in range(N):
        tl.store(o + p * N * N + c * N + i, tl.load(s + p * N * N + i * N + c))


def case_scratch_transpose():
    x = torch.randn(3, 8, 8)
    s = torch.empty(3, 8, 8)
    o = torch.empty(3, 8, 8)
    scratch_T[(3,)](x, s, o, 8)
    return [(o, x.transpose(1, 2) * 2), (s, x * 2)]


@triton.jit
def sel_scan(u, dt, A, Bm, C, Dv, o, L, D: tl.constexpr, N: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1)
    n = tl.arange(0, N)
    a = tl.load(A + d * N + n)
    h = tl.zeros([N], tl.float32)
    dd = tl.load(Dv + d)
    for t in range(L):
        uu = tl.load(u + (b * L + t) * D + d)
        de = tl.load(dt + (b * L + t) * D + d)
        de = tl.where(de <= 20.0, tl.log(1 + tl.exp(de)), de)
        h = h * tl.exp(de * a) + de * tl.load(Bm + (b * L + t) * N + n) * uu
        tl.store(o + (b * L + t) * D + d, tl.sum(h * tl.load(C + (b * L + t) * N + n)) + uu * dd)


def case_mamba():
    Bz, L, D, N = 2, 6, 5, 8
    u, dt = torch.randn(Bz, L, D), torch.randn(Bz, L, D)
    A = -torch.rand(D, N)
    Bm, C = torch.randn(Bz, L, N), torch.randn(Bz, L, N)
    Dv = torch.randn(D)
    o = torch.empty(Bz, L, D)
    sel_scan[(Bz, D)](u, dt, A, Bm, C, Dv, o, L, D, N)
    h = torch.zeros(Bz, D, N, dtype=torch.float64)
    w = []
    for t in range(L):
        de = F.softplus(dt[:, t].double())
        h = h * (de[..., None] * A).exp() + de[..., None] * Bm[:, t, None] * u[:, t, :, None]
        w.append((h * C[:, t, None]).sum(-1) + u[:, t] * Dv)
    return [(o, torch.stack(w, 1))]


@triton.jit
def lcs(a, b, dp, la, lb, W):
    p = tl.program_id(0)
    n = tl.load(la + p)
    m = tl.load(lb + p)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            x = tl.load(a + p * W + i - 1)
            y = tl.load(b + p * W + j - 1)
            d = dp + p * (W + 1) * (W + 1)
            if x == y:
                v = tl.load(d + (i - 1) * (W + 1) + j - 1) + 1
            else:
                v = tl.maximum(tl.load(d + (i - 1) * (W + 1) + j), tl.load(d + i * (W + 1) + j - 1))
            tl.store(d + i * (W + 1) + j, v)


def case_lcs_dp():
    W = 6
    a = torch.randint(0, 3, (3, W), dtype=torch.int32)
    b = torch.randint(0, 3, (3, W), dtype=torch.int32)
    la = torch.tensor([6, 3, 0], dtype=torch.int32)
    lb = torch.tensor([5, 6, 2], dtype=torch.int32)
    dp = torch.zeros(3, W + 1, W + 1, dtype=torch.int32)
    lcs[(3,)](a, b, dp, la, lb, W)
    w = torch.zeros(3, W + 1, W + 1, dtype=torch.int32)
    for p in range(3):
        for i in range(1, int(la[p]) + 1):
            for j in range(1, int(lb[p]) + 1):
                w[p, i, j] = (
                    w[p, i - 1, j - 1] + 1 if a[p, i - 1] == b[p, j - 1] else max(w[p, i - 1, j], w[p, i, j - 1])
                )
    return [(dp, w)]


@triton.jit
def interleaved(a, b, x, n, s, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    v = tl.load(x + i, mask=m)
    tl.store(a + i * s, v, mask=m)
    tl.store(b + i * s, -v, mask=m)


def case_interleaved_outputs():
    o = torch.zeros(40)
    x = torch.randn(20)
    interleaved[(3,)](o[::2], o[1::2], x, 20, 2, 8)
    return [(o, torch.stack([x, -x], 1).view(-1))]


def case_interleaved_outputs_swapped():
    o = torch.zeros(40)
    x = torch.randn(20)
    interleaved[(3,)](o[1::2], o[::2], x, 20, 2, 8)
    return [(o, torch.stack([-x, x], 1).view(-1))]


@triton.jit
def copy2(x, o, sx0, sx1, so0, so1, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    m = (i < M) & (j < N)
    tl.store(o + i * so0 + j * so1, tl.load(x + i * sx0 + j * sx1, mask=m) + 1, mask=m)


def _cp(x, o, base=None):
    w = x.clone() + 1
    M, N = x.shape
    copy2[(triton.cdiv(M, 8), triton.cdiv(N, 16))](x, o, *x.stride(), *o.stride(), M, N, 8, 16)
    return [(o, w)]


def case_cp_overlap_windows():
    return _cp(torch.randn(30).as_strided((10, 5), (2, 1)), torch.empty(10, 5))


def case_cp_toeplitz():
    return _cp(torch.randn(30).as_strided((10, 9), (1, 1)), torch.empty(10, 9))


def case_cp_out_strided():
    b = torch.zeros(20, 60)
    r = _cp(torch.randn(9, 17), b[1:19:2, 3:54:3])
    c = torch.zeros(20, 60)
    c[1:19:2, 3:54:3] = r[0][1]
    return r + [(b, c)]


def case_cp_out_weird():
    return _cp(torch.randn(9, 17), torch.zeros(400)[7:].as_strided((9, 17), (18, 1)))


def case_cp_out_coprime():
    return _cp(torch.randn(3, 5), torch.zeros(400).as_strided((3, 5), (7, 25)))


def case_cp_out_small_outer():
    return _cp(torch.randn(5, 7), torch.zeros(400).as_strided((5, 7), (3, 20)))


def case_cp_expanded():
    return _cp(torch.randn(9, 1).expand(9, 17), torch.empty(9, 17))


def case_cp_inplace_T():
    x = torch.randn(9, 17).T
    return _cp(x, x)


def case_cp_0d_like():
    return _cp(torch.randn(1, 1), torch.empty(1, 1))


@triton.jit
def shift_inplace(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + i, mask=m)
    tl.store(y + i, v, mask=m)


def case_shift_inplace_overlap():
    b = torch.randn(20)
    w = b.clone()
    w[1:] = b[:-1]
    shift_inplace[(1,)](b[:-1], b[1:], 19, 32)
    return [(b, w)]


def case_shift_inplace_overlap2():
    b = torch.randn(20)
    w = b.clone()
    w[:-1] = b[1:]
    shift_inplace[(1,)](b[1:], b[:-1], 19, 32)
    return [(b, w)]


@triton.jit
def roll(x, o, n, s, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + (i + s) % n, mask=i < n)
    b = tl.load(x + tl.minimum(i + 2, n - 1), mask=i < n)
    c = tl.load(x + tl.maximum(i - 2, 0), mask=i < n)
    d = tl.load(x + tl.where(i < n // 2, i, n - 1 - i), mask=i < n)
    e = tl.load(x + n - 1 - i, mask=i < n)
    f = tl.load(x + (i // 2) * 2, mask=i < n)
    g = tl.load(x + (i - 3) % n, mask=(i < n) & (i >= 3))
    tl.store(o + i * 7, a, mask=i < n)
    tl.store(o + i * 7 + 1, b, mask=i < n)
    tl.store(o + i * 7 + 2, c, mask=i < n)
    tl.store(o + i * 7 + 3, d, mask=i < n)
    tl.store(o + i * 7 + 4, e, mask=i < n)
    tl.store(o + i * 7 + 5, f, mask=i < n)
    tl.store(o + i * 7 + 6, g, mask=(i < n) & (i >= 3))


def case_index_fns():
    out = []
    for n in (21, 1, 16):
        x = torch.randn(n)
        o = torch.zeros(n, 7)
        roll[(triton.cdiv(n, 8) + 1,)](x, o, n, 5, 8)
        i = torch.arange(n)
        w = torch.stack(
            [
                x[(i + 5) % n],
                x[(i + 2).clamp(max=n - 1)],
                x[(i - 2).clamp(min=0)],
                x[torch.where(i < n // 2, i, n - 1 - i)],
                x[n - 1 - i],
                x[i // 2 * 2],
                torch.where(i >= 3, x[(i - 3) % n], 0.0),
            ],
            1,
        )
        out.append((o, w))
    return out


@triton.jit
def cond_adv(x, flags, o, T, D, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    ptr = x + p * T * D
    acc = tl.zeros([B], tl.float32)
    for t in range(T):
        f = tl.load(flags + p * T + t)
        if f > 0:
            acc = acc * 2 + tl.load(ptr + i, mask=i < D, other=0.0)
            ptr += D
        else:
            acc += 1
    tl.store(o + p * D + i, acc, mask=i < D)


def case_conditional_pointer_advance():
    P, T, D = 4, 6, 5
    x = torch.randn(P, T, D)
    f = torch.randint(0, 2, (P, T), dtype=torch.int32)
    o = torch.empty(P, D)
    cond_adv[(P,)](x, f, o, T, D, 8)
    w = torch.zeros(P, D)
    for p in range(P):
        k = 0
        for t in range(T):
            if f[p, t]:
                w[p] = w[p] * 2 + x[p, k]
                k += 1
            else:
                w[p] += 1
    return [(o, w)]


@triton.jit
def _early(x, n):
    if n == 0:
        return x
    y = x * n
    if n == 1:
        return y + 10
    return y - 10


@triton.jit
def nested_ret(x, o, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + p * B + i)
    if p == 3:
        return
    if p > 3:
        if p == 5:
            tl.store(o + p * B + i, v - 1)
            return
        v = v * 3
    tl.store(o + p * B + i, _early(v, p))


def case_nested_returns():
    x = torch.randn(7, 8)
    o = torch.zeros(7, 8)
    nested_ret[(7,)](x, o, 8, 8)
    return [(o, torch.stack([x[0], x[1] + 10, x[2] * 2 - 10, x[3] * 0, x[4] * 12 - 10, x[5] - 1, x[6] * 18 - 10]))]


@triton.jit
def rev_dyn(x, st, o, W, B: tl.constexpr):
    p = tl.program_id(0)
    s = tl.load(st + p)
    c = 0.0
    for t in range(s, -1, -1):
        c = c * 0.5 + tl.load(x + p * W + t)
        tl.store(o + p * W + t, c)


def case_reverse_dyn():
    x = torch.randn(3, 8)
    st = torch.tensor([7, -1, 3])
    o = torch.zeros(3, 8)
    rev_dyn[(3,)](x, st, o, 8, 8)
    w = torch.zeros(3, 8)
    for p in range(3):
        c = 0
        for t in range(int(st[p]), -1, -1):
            c = c * 0.5 + x[p, t]
            w[p, t] = c
    return [(o, w)]


@triton.jit
def nested_dyn(x, ptr, seg, o, D, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < D
    tot = tl.zeros([B], tl.float32)
    for g in range(tl.load(ptr + p), tl.load(ptr + p + 1)):
        s = tl.load(seg + g)
        e = tl.load(seg + g + 1)
        mx = tl.full([B], -float("inf"), tl.float32)
        for r in range(s, e):
            mx = tl.maximum(mx, tl.load(x + r * D + i, mask=m, other=0.0))
        tot += tl.where(e > s, mx, 0.0)
    tl.store(o + p * D + i, tot, mask=m)


def case_nested_dyn_bounds():
    seg = torch.tensor([0, 3, 3, 7, 8, 12])
    ptr = torch.tensor([0, 2, 2, 5])
    x = torch.randn(12, 5)
    o = torch.empty(3, 5)
    nested_dyn[(3,)](x, ptr, seg, o, 5, 8)
    w = torch.zeros(3, 5)
    for p in range(3):
        for g in range(int(ptr[p]), int(ptr[p + 1])):
            if seg[g + 1] > seg[g]:
                w[p] += x[seg[g] : seg[g + 1]].amax(0)
    return [(o, w)]


@triton.jit
def while_for(x, o, n, T: tl.constexpr):
    p = tl.program_id(0)
    v = tl.load(x + p)
    it = 0
    while (v > 1) & (it < n):
        for k in range(it % 3):
            v = v - 0.1
        v = v / 2
        it += 1
    tl.store(o + p * 2, v)
    tl.store(o + p * 2 + 1, it)


def case_while_with_inner_for():
    x = torch.tensor([100.0, 3.0, 0.5, 17.0])
    o = torch.empty(4, 2)
    while_for[(4,)](x, o, 20, 3)
    w = []
    for v in x.tolist():
        it = 0
        while v > 1 and it < 20:
            v = (v - 0.1 * (it % 3)) / 2
            it += 1
        w.append([v, it])
    return [(o, torch.tensor(w))]


@triton.jit
def mathk(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    a = tl.abs(v) + 0.1
    tl.store(o + i, tl.exp2(v))
    tl.store(o + B + i, tl.log2(a))
    tl.store(o + 2 * B + i, tl.sigmoid(v))
    tl.store(o + 3 * B + i, tl.softmax(v))
    tl.store(o + 4 * B + i, tl.fma(v, a, v))
    tl.store(o + 5 * B + i, tl.floor(v))
    tl.store(o + 6 * B + i, tl.ceil(v))
    tl.store(o + 7 * B + i, tl.clamp(v, -0.5, 0.5))
    tl.store(o + 8 * B + i, tl.math.rsqrt(a))
    tl.store(o + 9 * B + i, tl.cos(v) + tl.sin(v))
    tl.store(o + 10 * B + i, tl.div_rn(v, a))
    tl.store(o + 11 * B + i, tl.extra.cuda.libdevice.pow(a, v))
    tl.store(o + 12 * B + i, tl.extra.cuda.libdevice.log1p(a) + tl.extra.cuda.libdevice.expm1(v))


def case_math():
    x = torch.randn(32)
    o = torch.empty(13, 32)
    mathk[(1,)](x, o, 32)
    v = x.double()
    a = v.abs() + 0.1
    return [
        (
            o,
            torch.stack(
                [
                    v.exp2(),
                    a.log2(),
                    v.sigmoid(),
                    v.softmax(0),
                    v * a + v,
                    v.floor(),
                    v.ceil(),
                    v.clamp(-0.5, 0.5),
                    a.rsqrt(),
                    v.cos() + v.sin(),
                    v / a,
                    a**v,
                    a.log1p() + v.expm1(),
                ]
            ),
        )
    ]


@triton.jit
def mixed(x, idx, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    h = tl.load(x + i, mask=m, other=1)
    r = tl.where(m, h, 0.0)
    tl.store(o + i, r * 3 + tl.load(idx + i, mask=m, other=7), mask=m)
    tl.store(o + n, tl.sum(r))
    tl.store(o + n + 1, tl.max(h))
    tl.store(o + n + 2, tl.sum(h > 0), mask=n > 3)


def case_mixed_dtype():
    x = torch.randn(10).half()
    idx = torch.randint(0, 9, (10,))
    o = torch.empty(13)
    mixed[(1,)](x, idx, o, 10, 16)
    return [
        (
            o,
            torch.cat(
                [
                    (x * 3 + idx.half()).float(),
                    x.sum().float()[None],
                    x.max().float().clamp(min=1)[None],
                    ((x > 0).sum() + 6)[None],
                ]
            ),
            5e-3,
        )
    ]


@triton.jit
def cropprog(x, o, n, other, B: tl.constexpr, T: tl.constexpr):
    p = tl.program_id(0)
    s = 0.0
    for t in range(T):
        r = p * T + t
        s += tl.load(x + r, mask=r < n, other=3.0)
    tl.store(o + p, s)


def case_fold_rowmask_other3():
    x = torch.randn(10)
    o = torch.empty(4)
    cropprog[(4,)](x, o, 10, 0.0, 1, 4)
    return [(o, F.pad(x.double(), (0, 6), value=3).view(4, 4).sum(1))]


def case_fold_rowmask_biggrid():
    x = torch.randn(10)
    o = torch.empty(6)
    cropprog[(6,)](x, o, 10, 0.0, 1, 4)
    return [(o, F.pad(x.double(), (0, 14), value=3).view(6, 4).sum(1))]


@triton.jit
def rowsum_grid(x, o, M, N, RB: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    r = p * RB + tl.arange(0, RB)
    c = tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=(r < M)[:, None] & (c < N)[None, :], other=0.0)
    tl.store(o + p * B + c, tl.sum(tl.exp(v), 0))


def case_partial_colsum_exp0():
    x = torch.randn(10, 5)
    o = torch.empty(4, 8)
    rowsum_grid[(4,)](x, o, 10, 5, 4, 8)
    return [(o, F.pad(x.double(), (0, 3, 0, 6)).exp().view(4, 4, 8).sum(1))]


@triton.jit
def gridstride(x, o, n, B: tl.constexpr):
    p = tl.program_id(0)
    acc = tl.zeros([B], tl.float32)
    for b in range(p * B, n, tl.num_programs(0) * B):
        i = b + tl.arange(0, B)
        v = tl.load(x + i, mask=i < n, other=-1.0)
        acc += v * v
    tl.store(o + p, tl.sum(acc))


def case_gridstride_other():
    x = torch.randn(45)
    o = torch.empty(3)
    gridstride[(3,)](x, o, 45, 8)
    y = F.pad(x.double(), (0, 3), value=-1.0) ** 2
    w = [sum(y[b : b + 8].sum() for b in range(p * 8, 45, 24)) for p in range(3)]
    return [(o, torch.stack(w))]


@triton.jit
def allmasked(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=4.0)
    tl.store(o, tl.sum(v))
    tl.store(o + 1 + i, v, mask=i < n)


def case_mask_excludes_all():
    x = torch.randn(8)
    o = torch.zeros(9)
    allmasked[(1,)](x, o, 0, 8)
    w = torch.zeros(9)
    w[0] = 32
    return [(o, w)]


def case_mask_negative_n():
    x = torch.randn(8)
    o = torch.zeros(9)
    allmasked[(1,)](x, o, -5, 8)
    w = torch.zeros(9)
    w[0] = 32
    return [(o, w)]


@triton.jit
def dot3(a, b, o, Bz: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    z = tl.arange(0, Bz)[:, None, None]
    i = tl.arange(0, M)[None, :, None]
    k = tl.arange(0, K)[None, None, :]
    x = tl.load(a + z * M * K + i * K + k)
    y = tl.load(b + z * M * K + tl.arange(0, K)[None, :, None] * M + tl.arange(0, M)[None, None, :])
    tl.store(o + z * M * M + i * M + tl.arange(0, M)[None, None, :], tl.dot(x, y))


def case_dot3d():
    a = torch.randn(4, 16, 32)
    b = torch.randn(4, 32, 16)
    o = torch.empty(4, 16, 16)
    dot3[(1,)](a, b, o, 4, 16, 32)
    return [(o, a.double() @ b.double(), 1e-3)]


@triton.jit
def strides1(x, o, n, s, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i * s, mask=i < n), mask=i < n)


def case_stride2_input():
    b = torch.randn(41)
    x = b[1::2]
    o = torch.empty(20)
    strides1[(1,)](x, o, 20, 2, 32)
    return [(o, x)]


def case_stride0():
    x = torch.randn(1)
    o = torch.empty(20)
    strides1[(1,)](x, o, 20, 0, 32)
    return [(o, x.expand(20))]


def case_zero_dim():
    x = torch.tensor(3.5)
    o = torch.empty(20)
    strides1[(1,)](x, o, 20, 0, 32)
    return [(o, x.expand(20))]


@triton.jit
def gg_ptrs(ptrs, o, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    x = tl.load(ptrs + p).to(tl.pointer_type(tl.float32))
    tl.store(o + p * n + i, tl.load(x + i, mask=i < n), mask=i < n)


def case_pointer_table():
    a, b = torch.randn(8), torch.randn(8)
    pt = torch.tensor([a.data_ptr(), b.data_ptr()])
    o = torch.empty(2, 8)
    gg_ptrs[(2,)](pt, o, 8, 8)
    return [(o, torch.stack([a, b]))]
