"""Attention and recurrences: flash forward and backward, paged, varlen, chunked linear attention, delta rule."""

import math

import torch
import torch.nn.functional as F

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def fa_fwd(
    Q,
    K,
    V,
    O,
    L,
    sm,
    sqb,
    sqh,
    sqm,
    skb,
    skh,
    skn,
    svb,
    svh,
    svn,
    sob,
    soh,
    som,
    H,
    HK,
    N,
    M,
    CAUSAL: tl.constexpr,
    WIN: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    sm_ = tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    hk = h // (H // HK)
    om = sm_ * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    q = tl.load(Q + b * sqb + h * sqh + om[:, None] * sqm + od[None, :], mask=om[:, None] < M, other=0.0)
    Kp = K + b * skb + hk * skh + on[None, :] * skn + od[:, None]
    Vp = V + b * svb + hk * svh + on[:, None] * svn + od[None, :]
    m_i = tl.full([BM], float("-inf"), tl.float32)
    l_i = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    lo = 0
    hi = N
    if CAUSAL:
        hi = tl.minimum(N, (sm_ + 1) * BM + (N - M))
    if WIN > 0:
        lo = tl.maximum(0, (sm_ * BM + (N - M) - WIN + 1) // BN * BN)
    for n in range(lo, hi, BN):
        n = tl.multiple_of(n, BN)
        k = tl.load(Kp + n * skn, mask=(n + on)[None, :] < N, other=0.0)
        s = tl.dot(q, k) * sm
        ok = (n + on)[None, :] < N
        if CAUSAL:
            ok = ok & (om[:, None] + (N - M) >= (n + on)[None, :])
        if WIN > 0:
            ok = ok & (om[:, None] + (N - M) - (n + on)[None, :] < WIN)
        s = tl.where(ok, s, float("-inf"))
        mn = tl.maximum(m_i, tl.max(s, 1))
        mu = tl.where(mn == float("-inf"), 0.0, mn)
        p = tl.exp(s - mu[:, None])
        al = tl.exp(m_i - mu)
        l_i = l_i * al + tl.sum(p, 1)
        acc = acc * al[:, None]
        v = tl.load(Vp + n * svn, mask=(n + on)[:, None] < N, other=0.0)
        acc += tl.dot(p.to(v.dtype), v)
        m_i = mn
    acc = acc / l_i[:, None]
    tl.store(O + b * sob + h * soh + om[:, None] * som + od[None, :], acc, mask=om[:, None] < M)
    tl.store(L + bh * M + om, m_i + tl.log(l_i), mask=om < M)


def _fa(B, H, HK, M, N, D, causal, win, BM, BN, bshd=False, dt=torch.float32):
    mk = lambda n, h: torch.randn(B, n, h, D).to(dt).transpose(1, 2) if bshd else torch.randn(B, h, n, D).to(dt)
    q, k, v = mk(M, H), mk(N, HK), mk(N, HK)
    o = torch.empty_like(q)
    L = torch.empty(B, H, M)
    fa_fwd[(triton.cdiv(M, BM), B * H)](
        q,
        k,
        v,
        o,
        L,
        D**-0.5,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *o.stride()[:3],
        H,
        HK,
        N,
        M,
        causal,
        win,
        BM,
        BN,
        D,
    )
    kk = k.double().repeat_interleave(H // HK, 1)
    vv = v.double().repeat_interleave(H // HK, 1)
    s = q.double() @ kk.transpose(-1, -2) * D**-0.5
    i = torch.arange(M)[:, None] + N - M
    j = torch.arange(N)[None]
    ok = torch.ones(M, N, dtype=torch.bool)
    if causal:
        ok &= i >= j
    if win:
        ok &= i - j < win
    s = s.masked_fill(~ok, -math.inf)
    return [
        (o, s.softmax(-1) @ vv, 1e-3 if dt == torch.float32 else 2e-2),
        (L, s.logsumexp(-1), 1e-3 if dt == torch.float32 else 2e-2),
    ]


def case_fa_full():
    return _fa(2, 2, 2, 50, 70, 16, False, 0, 16, 32)


def case_fa_causal_gqa():
    return _fa(2, 4, 2, 50, 50, 32, True, 0, 16, 16)


def case_fa_causal_bshd():
    return _fa(2, 4, 1, 33, 65, 16, True, 0, 32, 16, True)


def case_fa_win():
    return _fa(1, 2, 2, 100, 100, 16, True, 20, 16, 16)


def case_fa_fp16():
    return _fa(1, 2, 2, 64, 64, 16, True, 0, 32, 32, False, torch.float16)


def case_fa_bf16():
    return _fa(1, 2, 2, 64, 64, 64, True, 0, 32, 32, True, torch.bfloat16)


@triton.jit
def fa_bwd_pre(O, DO, Delta, N, D: tl.constexpr, BM: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    bh = tl.program_id(1)
    od = tl.arange(0, D)
    o = tl.load(O + bh * N * D + om[:, None] * D + od[None, :], mask=om[:, None] < N, other=0.0)
    do = tl.load(DO + bh * N * D + om[:, None] * D + od[None, :], mask=om[:, None] < N, other=0.0).to(tl.float32)
    tl.store(Delta + bh * N + om, tl.sum(o * do, axis=1), mask=om < N)


@triton.jit
def _dkdv(
    dk,
    dv,
    Q,
    k,
    v,
    DO,
    Lse,
    De,
    N,
    start_n,
    start_m,
    num_steps,
    sm,
    D: tl.constexpr,
    BM1: tl.constexpr,
    BN1: tl.constexpr,
    MASK: tl.constexpr,
):
    om = start_m + tl.arange(0, BM1)
    on = start_n + tl.arange(0, BN1)
    od = tl.arange(0, D)
    qT = Q + om[None, :] * D + od[:, None]
    do_p = DO + om[:, None] * D + od[None, :]
    cur = start_m
    for _ in range(num_steps):
        q = tl.load(qT)
        om = cur + tl.arange(0, BM1)
        l = tl.load(Lse + om)
        qk = tl.dot(k, q)
        p = tl.math.exp2(qk - l[None, :])
        if MASK:
            p = tl.where(om[None, :] >= on[:, None], p, 0.0)
        do = tl.load(do_p)
        dv += tl.dot(p.to(do.dtype), do)
        di = tl.load(De + om)
        dp = tl.dot(v, tl.trans(do)).to(tl.float32)
        ds = p * (dp - di[None, :])
        dk += tl.dot(ds.to(q.dtype), tl.trans(q))
        cur += BM1
        qT += BM1 * D
        do_p += BM1 * D
    return dk, dv


@triton.jit
def _dq(
    dq,
    q,
    K,
    V,
    do,
    l,
    De,
    N,
    start_m,
    start_n,
    num_steps,
    D: tl.constexpr,
    BM2: tl.constexpr,
    BN2: tl.constexpr,
    MASK: tl.constexpr,
):
    om = start_m + tl.arange(0, BM2)
    on = start_n + tl.arange(0, BN2)
    od = tl.arange(0, D)
    kT = K + on[None, :] * D + od[:, None]
    vT = V + on[None, :] * D + od[:, None]
    di = tl.load(De + om)
    cur = start_n
    for _ in range(num_steps):
        k = tl.load(kT)
        v = tl.load(vT)
        qk = tl.dot(q, k)
        p = tl.math.exp2(qk - l)
        if MASK:
            on = cur + tl.arange(0, BN2)
            p = tl.where(om[:, None] >= on[None, :], p, 0.0)
        dp = tl.dot(do, v).to(tl.float32)
        ds = p * (dp - di[:, None])
        dq += tl.dot(ds.to(k.dtype), tl.trans(k))
        cur += BN2
        kT += BN2 * D
        vT += BN2 * D
    return dq


@triton.jit
def fa_bwd(
    Q,
    K,
    V,
    sm,
    DO,
    DQ,
    DK,
    DV,
    Lse,
    De,
    H,
    N,
    BM1: tl.constexpr,
    BN1: tl.constexpr,
    BM2: tl.constexpr,
    BN2: tl.constexpr,
    BLK: tl.constexpr,
    D: tl.constexpr,
):
    LN2: tl.constexpr = 0.6931471824645996
    bhid = tl.program_id(2)
    off = (bhid * N).to(tl.int64)
    adj = (D * N * (bhid % H) + H * N * D * (bhid // H)).to(tl.int64)
    pid = tl.program_id(0)
    Q += adj
    K += adj
    V += adj
    DO += adj
    DQ += adj
    DK += adj
    DV += adj
    Lse += off
    De += off
    od = tl.arange(0, D)
    start_n = pid * BN1
    start_m = start_n
    MB: tl.constexpr = BM1 // BLK
    on = start_n + tl.arange(0, BN1)
    dv = tl.zeros([BN1, D], dtype=tl.float32)
    dk = tl.zeros([BN1, D], dtype=tl.float32)
    k = tl.load(K + on[:, None] * D + od[None, :])
    v = tl.load(V + on[:, None] * D + od[None, :])
    ns = BN1 // MB
    dk, dv = _dkdv(dk, dv, Q, k, v, DO, Lse, De, N, start_n, start_m, ns, sm, D, MB, BN1, MASK=True)
    start_m += ns * MB
    ns = (N - start_m) // BM1
    dk, dv = _dkdv(dk, dv, Q, k, v, DO, Lse, De, N, start_n, start_m, ns, sm, D, BM1, BN1, MASK=False)
    tl.store(DV + on[:, None] * D + od[None, :], dv)
    dk *= sm
    tl.store(DK + on[:, None] * D + od[None, :], dk)
    start_m = pid * BM2
    end_n = start_m + BM2
    NB: tl.constexpr = BN2 // BLK
    om = start_m + tl.arange(0, BM2)
    q = tl.load(Q + om[:, None] * D + od[None, :])
    dq = tl.zeros([BM2, D], dtype=tl.float32)
    do = tl.load(DO + om[:, None] * D + od[None, :])
    l = tl.load(Lse + om)[:, None]
    ns = BM2 // NB
    dq = _dq(dq, q, K, V, do, l, De, N, start_m, end_n - ns * NB, ns, D, BM2, NB, MASK=True)
    end_n -= ns * NB
    ns = end_n // BN2
    dq = _dq(dq, q, K, V, do, l, De, N, start_m, end_n - ns * BN2, ns, D, BM2, BN2, MASK=False)
    dq *= LN2
    tl.store(DQ + om[:, None] * D + od[None, :], dq)


def case_fa_bwd_tutorial():
    B, H, N, D = 2, 2, 128, 16
    q, k, v = [torch.randn(B, H, N, D, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    do = torch.randn(B, H, N, D, dtype=torch.float64)
    sm = D**-0.5
    s = (q @ k.transpose(-1, -2) * sm).masked_fill(torch.ones(N, N).triu(1).bool(), -math.inf)
    o = s.softmax(-1) @ v
    o.backward(do)
    lse = (s.logsumexp(-1) * 1.4426950408889634).float().detach().contiguous()
    De = torch.empty(B, H, N)
    fa_bwd_pre[(N // 32, B * H)](o.float().detach(), do.float(), De, N, D, 32)
    f = lambda t: t.detach().float()
    dq, dk, dv = [torch.empty(B, H, N, D) for _ in range(3)]
    fa_bwd[(N // 32, 1, B * H)](
        f(q), f(k) * (sm * 1.4426950408889634), f(v), sm, f(do), dq, dk, dv, lse, De, H, N, 16, 32, 32, 16, 2, D
    ) if False else fa_bwd[(N // 32, 1, B * H)](
        f(q), f(k) * (sm * 1.4426950408889634), f(v), sm, f(do), dq, dk, dv, lse, De, H, N, 16, 32, 32, 16, 1, D
    )
    return [(De, (o * do).sum(-1)), (dv, v.grad, 1e-3), (dk, k.grad, 1e-3), (dq, q.grad, 1e-3)]


@triton.jit
def varlen_fwd(
    Q, K, V, O, cu_q, cu_k, sm, H, sq, sh, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    start_m = tl.program_id(0)
    b = tl.program_id(1)
    h = tl.program_id(2)
    qs = tl.load(cu_q + b)
    qe = tl.load(cu_q + b + 1)
    ks = tl.load(cu_k + b)
    ke = tl.load(cu_k + b + 1)
    lq = qe - qs
    lk = ke - ks
    if start_m * BM >= lq:
        return
    om = start_m * BM + tl.arange(0, BM)
    on = tl.arange(0, BN)
    od = tl.arange(0, D)
    q = tl.load(Q + (qs + om)[:, None] * sq + h * sh + od[None, :], mask=(om < lq)[:, None], other=0.0)
    m_i = tl.full([BM], -1e30, tl.float32)
    l_i = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    end = lk
    if CAUSAL:
        end = tl.minimum((start_m + 1) * BM + lk - lq, lk)
    for n in range(0, end, BN):
        k = tl.load(K + (ks + n + on)[None, :] * sq + h * sh + od[:, None], mask=(n + on < lk)[None, :], other=0.0)
        s = tl.dot(q, k) * sm
        msk = (n + on < lk)[None, :]
        if CAUSAL:
            msk = msk & (om[:, None] + lk - lq >= (n + on)[None, :])
        s = tl.where(msk, s, -1e30)
        mn = tl.maximum(m_i, tl.max(s, 1))
        p = tl.where(msk, tl.exp(s - mn[:, None]), 0.0)
        al = tl.exp(m_i - mn)
        l_i = l_i * al + tl.sum(p, 1)
        v = tl.load(V + (ks + n + on)[:, None] * sq + h * sh + od[None, :], mask=(n + on < lk)[:, None], other=0.0)
        acc = acc * al[:, None] + tl.dot(p, v)
        m_i = mn
    tl.store(O + (qs + om)[:, None] * sq + h * sh + od[None, :], acc / l_i[:, None], mask=(om < lq)[:, None])


def _varlen(causal, lens):
    H, D = 2, 16
    cu = torch.tensor([0] + lens).cumsum(0).int()
    T = int(cu[-1])
    q, k, v = [torch.randn(T, H, D) for _ in range(3)]
    o = torch.full((T, H, D), 7.0)
    varlen_fwd[(triton.cdiv(max(lens), 16), len(lens), H)](q, k, v, o, cu, cu, D**-0.5, H, H * D, D, 16, 16, D, causal)
    w = torch.full((T, H, D), 7.0, dtype=torch.float64)
    for i, L in enumerate(lens):
        if not L:
            continue
        a, b = int(cu[i]), int(cu[i + 1])
        qq, kk, vv = [t[a:b].double().transpose(0, 1) for t in (q, k, v)]
        s = qq @ kk.transpose(-1, -2) * D**-0.5
        if causal:
            s = s.masked_fill(torch.ones(L, L).triu(1).bool(), -math.inf)
        w[a:b] = (s.softmax(-1) @ vv).transpose(0, 1)
    return [(o, w, 1e-3)]


def case_varlen():
    return _varlen(False, [5, 37, 0, 16, 1])


def case_varlen_causal():
    return _varlen(True, [5, 37, 0, 16, 1])


@triton.jit
def paged(
    out,
    q,
    kc,
    vc,
    bt,
    sl,
    scale,
    alibi,
    bts,
    qs0,
    qs1,
    ks0,
    ks1,
    ks2,
    ks3,
    x: tl.constexpr,
    NQ: tl.constexpr,
    BS: tl.constexpr,
    HS: tl.constexpr,
    USE_ALIBI: tl.constexpr,
):
    s = tl.program_id(0)
    kh = tl.program_id(1)
    n = tl.load(sl + s)
    nb = (n + BS - 1) // BS
    od = tl.arange(0, HS)
    oh = tl.arange(0, NQ)
    qv = tl.load(q + s * qs0 + (kh * NQ + oh)[:, None] * qs1 + od[None, :])
    M = tl.full([NQ], float("-inf"), tl.float32)
    L = tl.full([NQ], 1.0, tl.float32)
    acc = tl.zeros([NQ, HS], tl.float32)
    if USE_ALIBI:
        sl_ = tl.load(alibi + kh * NQ + oh)
    for j in range(0, nb):
        pb = tl.load(bt + s * bts + j).to(tl.int64)
        on = tl.arange(0, BS)
        # k cache: [nblk, H, HS//x, BS, x]
        kp = kc + pb * ks0 + kh * ks1 + (od[:, None] // x) * ks2 + on[None, :] * ks3 + (od[:, None] % x)
        vp = vc + pb * ks0 + kh * ks1 + od[None, :] * BS + on[:, None]
        k = tl.load(kp)
        v = tl.load(vp)
        pos = j * BS + on
        ok = pos < n
        S = tl.sum(qv[:, :, None] * k[None, :, :], axis=1) * scale
        if USE_ALIBI:
            S += sl_[:, None] * (pos - n + 1)[None, :]
        S = tl.where(ok[None, :], S, float("-inf"))
        mj = tl.maximum(M, tl.max(S, axis=1))
        P = tl.exp(S - mj[:, None])
        a = tl.exp(M - mj)
        acc = acc * a[:, None]
        L = tl.where(j == 0, 0.0, L * a) + tl.sum(P, axis=1)
        M = mj
        acc += tl.sum(P[:, :, None] * v[None, :, :], axis=1)
    acc = acc / L[:, None]
    tl.store(out + s * qs0 + (kh * NQ + oh)[:, None] * qs1 + od[None, :], acc)


def case_paged():
    S, KH, NQ, HS, BS, x, NB = 4, 2, 2, 16, 8, 4, 13
    lens = torch.tensor([1, 17, 8, 31], dtype=torch.int32)
    bt = torch.randperm(NB)[:NB][None].expand(4, -1).contiguous()[:, :4].int().clone()
    pool = torch.randperm(NB)
    bt = torch.stack([pool[torch.randperm(NB)[:4]] for _ in range(S)]).int()
    kc = torch.randn(NB, KH, HS // x, BS, x)
    vc = torch.randn(NB, KH, HS, BS)
    q = torch.randn(S, KH * NQ, HS)
    o = torch.empty_like(q)
    al = torch.rand(KH * NQ)
    paged[(S, KH)](
        o,
        q,
        kc,
        vc,
        bt,
        lens,
        HS**-0.5,
        al,
        bt.stride(0),
        q.stride(0),
        q.stride(1),
        kc.stride(0),
        kc.stride(1),
        kc.stride(2),
        kc.stride(3),
        x,
        NQ,
        BS,
        HS,
        True,
    )
    w = torch.empty(S, KH * NQ, HS, dtype=torch.float64)
    for s in range(S):
        n = int(lens[s])
        ks = []
        vs = []
        for t in range(n):
            b = int(bt[s, t // BS])
            ks.append(kc[b, :, :, t % BS, :].reshape(KH, HS))
            vs.append(vc[b, :, :, t % BS])
        K = torch.stack(ks, 1).double().repeat_interleave(NQ, 0)
        V = torch.stack(vs, 1).double().repeat_interleave(NQ, 0)
        sc = (
            torch.einsum("hd,htd->ht", q[s].double(), K) * HS**-0.5
            + al.double()[:, None] * (torch.arange(n) - n + 1)[None]
        )
        w[s] = torch.einsum("ht,htd->hd", sc.softmax(-1), V)
    return [(o, w, 1e-3)]


@triton.jit
def kv_write(k, cache, slot, ks, cs, bs: tl.constexpr, N: tl.constexpr):
    t = tl.program_id(0)
    s = tl.load(slot + t)
    if s < 0:
        return
    b = s // bs
    o = s % bs
    i = tl.arange(0, N)
    tl.store(cache + b * cs + o * N + i, tl.load(k + t * ks + i))


def case_kv_write():
    k = torch.randn(6, 16)
    c = torch.zeros(4, 8, 16)
    slot = torch.tensor([3, -1, 31, 8, -1, 0])
    kv_write[(6,)](k, c, slot, 16, 128, 8, 16)
    w = torch.zeros(32, 16)
    for t, s in enumerate(slot.tolist()):
        if s >= 0:
            w[s] = k[t]
    return [(c, w.view(4, 8, 16))]


@triton.jit
def decode_stage1(
    Q,
    K,
    V,
    sm,
    Bt,
    Sl,
    Att,
    H,
    sbt,
    sqb,
    sqh,
    skb,
    smb,
    smh,
    sms,
    GRP: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    NSPLIT: tl.constexpr,
    PAGE: tl.constexpr,
):
    b = tl.program_id(0)
    h = tl.program_id(1)
    sp = tl.program_id(2)
    hk = h // GRP
    od = tl.arange(0, D)
    n = tl.load(Sl + b)
    q = tl.load(Q + b * sqb + h * sqh + od)
    per = tl.cdiv(n, NSPLIT)
    st = per * sp
    en = tl.minimum(st + per, n)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    if en > st:
        for s in range(st, en, BN):
            on = s + tl.arange(0, BN)
            pg = tl.load(Bt + sbt * b + on // PAGE, mask=on < en, other=0)
            loc = pg * PAGE + on % PAGE
            k = tl.load(K + loc[:, None] * skb + hk * D + od[None, :], mask=(on[:, None] < en), other=0.0)
            qk = tl.sum(q[None, :] * k, 1) * sm
            qk = tl.where(on < en, qk, float("-inf"))
            v = tl.load(V + loc[:, None] * skb + hk * D + od[None, :], mask=(on[:, None] < en), other=0.0)
            mn = tl.maximum(tl.max(qk, 0), m)
            re = tl.exp(m - mn)
            p = tl.exp(qk - mn)
            acc *= re
            acc += tl.sum(p[:, None] * v, 0)
            l = l * re + tl.sum(p, 0)
            m = mn
        tl.store(Att + b * smb + h * smh + sp * sms + od, acc / l)
        tl.store(Att + b * smb + h * smh + sp * sms + D, m + tl.log(l))


@triton.jit
def decode_stage2(Mid, O, Sl, smb, smh, sms, sob, soh, NSPLIT: tl.constexpr, D: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    n = tl.load(Sl + b)
    od = tl.arange(0, D)
    s = 0.0
    m = -float("inf")
    acc = tl.zeros([D], dtype=tl.float32)
    for i in range(0, NSPLIT):
        per = tl.cdiv(n, NSPLIT)
        st = per * i
        en = tl.minimum(st + per, n)
        if en > st:
            tv = tl.load(Mid + b * smb + h * smh + i * sms + od)
            tlg = tl.load(Mid + b * smb + h * smh + i * sms + D)
            mn = tl.maximum(tlg, m)
            os = tl.exp(m - mn)
            acc *= os
            e = tl.exp(tlg - mn)
            acc += e * tv
            s = s * os + e
            m = mn
    tl.store(O + b * sob + h * soh + od, acc / s)


def case_decode_split():
    B, H, HK, D, PAGE, NP = 3, 4, 2, 16, 4, 20
    sl = torch.tensor([1, 30, 13], dtype=torch.int32)
    bt = torch.stack([torch.randperm(NP)[:10] for _ in range(B)]).int()
    kc, vc = torch.randn(NP * PAGE, HK, D), torch.randn(NP * PAGE, HK, D)
    q = torch.randn(B, H, D)
    NS = 4
    mid = torch.full((B, H, NS, D + 1), float("nan"))
    o = torch.empty(B, H, D)
    decode_stage1[(B, H, NS)](
        q, kc, vc, D**-0.5, bt, sl, mid, H, bt.stride(0), H * D, D, HK * D, *mid.stride()[:3], H // HK, 8, D, NS, PAGE
    )
    decode_stage2[(B, H)](mid, o, sl, *mid.stride()[:3], H * D, D, NS, D)
    w = torch.empty(B, H, D, dtype=torch.float64)
    for b in range(B):
        n = int(sl[b])
        loc = [int(bt[b, t // PAGE]) * PAGE + t % PAGE for t in range(n)]
        K = kc[loc].double().repeat_interleave(2, 1)
        V = vc[loc].double().repeat_interleave(2, 1)
        p = (torch.einsum("hd,thd->ht", q[b].double(), K) * D**-0.5).softmax(-1)
        w[b] = torch.einsum("ht,thd->hd", p, V)
    return [(o, w, 1e-3)]


# fla
@triton.jit
def chunk_cumsum(s, o, T, H: tl.constexpr, BT: tl.constexpr, REV: tl.constexpr):
    it, ibh = tl.program_id(0), tl.program_id(1)
    ib, ih = ibh // H, ibh % H
    ps = tl.make_block_ptr(s + ib * T * H + ih, (T,), (H,), (it * BT,), (BT,), (0,))
    po = tl.make_block_ptr(o + ib * T * H + ih, (T,), (H,), (it * BT,), (BT,), (0,))
    b = tl.load(ps, boundary_check=(0,)).to(tl.float32)
    c = tl.cumsum(b, axis=0)
    if REV:
        z = tl.sum(b, axis=0)
        c = -c + z[None] + b
    tl.store(po, c.to(po.dtype.element_ty), boundary_check=(0,))


def case_chunk_cumsum():
    out = []
    for rev in (False, True):
        B, T, H, BT = 2, 37, 3, 16
        s = torch.randn(B, T, H)
        o = torch.empty_like(s)
        chunk_cumsum[(triton.cdiv(T, BT), B * H)](s, o, T, H, BT, rev)
        w = torch.cat(
            [c.double().cumsum(1) if not rev else c.double().flip(1).cumsum(1).flip(1) for c in s.split(BT, 1)], 1
        )
        out.append((o, w))
    return out


@triton.jit
def recurrent(
    q,
    k,
    v,
    g,
    o,
    h0,
    ht,
    scale,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
    USE_H0: tl.constexpr,
    REV: tl.constexpr,
):
    iv, ik, inh = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    ib, ih = inh // H, inh % H
    ok = ik * BK + tl.arange(0, BK)
    ov = iv * BV + tl.arange(0, BV)
    base = (ib * T + ((T - 1) if REV else 0)) * H + ih
    pq = q + base * K + ok
    pk = k + base * K + ok
    pv = v + base * V + ov
    pg = g + base
    po = o + base * V + ov
    mk = ok < K
    mv = ov < V
    mh = mk[None, :] & mv[:, None]
    h = tl.zeros([BV, BK], dtype=tl.float32)
    if USE_H0:
        h += tl.load(h0 + inh * K * V + ok[None, :] * V + ov[:, None], mask=mh, other=0).to(tl.float32)
    for _ in range(0, T):
        bq = tl.load(pq, mask=mk, other=0).to(tl.float32) * scale
        bk = tl.load(pk, mask=mk, other=0).to(tl.float32)
        bv = tl.load(pv, mask=mv, other=0).to(tl.float32)
        bg = tl.load(pg).to(tl.float32)
        h = h * tl.exp(bg)
        h += bk[None, :] * bv[:, None]
        bo = tl.sum(h * bq[None, :], axis=1)
        tl.store(po, bo.to(po.dtype.element_ty), mask=mv)
        pq += (-1 if REV else 1) * H * K
        pk += (-1 if REV else 1) * H * K
        pv += (-1 if REV else 1) * H * V
        po += (-1 if REV else 1) * H * V
        pg += (-1 if REV else 1) * H
    tl.store(ht + inh * K * V + ok[None, :] * V + ov[:, None], h, mask=mh)


def _rec(rev):
    B, T, H, K, V = 2, 9, 2, 12, 20
    q, k, v = torch.randn(B, T, H, K), torch.randn(B, T, H, K), torch.randn(B, T, H, V)
    g = -torch.rand(B, T, H)
    h0 = torch.randn(B, H, K, V)
    ht = torch.empty(B, H, K, V)
    o = torch.empty(B, T, H, V)
    recurrent[(triton.cdiv(V, 8), 1, B * H)](q, k, v, g, o, h0, ht, K**-0.5, T, H, K, V, 16, 8, True, rev)
    h = h0.double()
    w = torch.empty(B, T, H, V, dtype=torch.float64)
    for t in reversed(range(T)) if rev else range(T):
        h = h * g[:, t].double().exp()[..., None, None] + k[:, t].double()[..., None] * v[:, t].double()[..., None, :]
        w[:, t] = torch.einsum("bhk,bhkv->bhv", q[:, t].double() * K**-0.5, h)
    return [(o, w), (ht, h)]


def case_recurrent():
    return _rec(False)


def case_recurrent_rev():
    return _rec(True)


@triton.jit
def delta_rec(q, k, v, beta, u, o, scale, T, K: tl.constexpr, V: tl.constexpr):
    i = tl.program_id(0)
    ok = tl.arange(0, K)
    ov = tl.arange(0, V)
    h = tl.zeros([K, V], tl.float32)
    for t in range(T):
        bk = tl.load(k + (i * T + t) * K + ok)
        bq = tl.load(q + (i * T + t) * K + ok) * scale
        bv = tl.load(v + (i * T + t) * V + ov)
        bb = tl.load(beta + i * T + t)
        bv -= tl.sum(h * bk[:, None], 0)
        bv *= bb
        tl.store(u + (i * T + t) * V + ov, bv)
        h += bk[:, None] * bv[None, :]
        tl.store(o + (i * T + t) * V + ov, tl.sum(h * bq[:, None], 0))


def case_delta_rec():
    B, T, K, V = 3, 10, 8, 16
    q, k, v = torch.randn(B, T, K), F.normalize(torch.randn(B, T, K), dim=-1), torch.randn(B, T, V)
    be = torch.rand(B, T)
    u = torch.empty(B, T, V)
    o = torch.empty(B, T, V)
    delta_rec[(B,)](q, k, v, be, u, o, 0.3, T, K, V)
    h = torch.zeros(B, K, V, dtype=torch.float64)
    w = torch.empty(B, T, V, dtype=torch.float64)
    wu = w.clone()
    for t in range(T):
        kk = k[:, t].double()
        vv = (v[:, t].double() - torch.einsum("bkv,bk->bv", h, kk)) * be[:, t, None].double()
        wu[:, t] = vv
        h = h + kk[..., None] * vv[:, None]
        w[:, t] = torch.einsum("bk,bkv->bv", q[:, t].double() * 0.3, h)
    return [(o, w), (u, wu)]


@triton.jit
def chunk_h(k, v, h, ht, T, NT, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    ik, iv, ibh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    bh = tl.zeros([BK, BV], tl.float32)
    for it in range(NT):
        pk = tl.make_block_ptr(k + ibh * T * K, (K, T), (1, K), (ik * BK, it * BT), (BK, BT), (0, 1))
        pv = tl.make_block_ptr(v + ibh * T * V, (T, V), (V, 1), (it * BT, iv * BV), (BT, BV), (1, 0))
        ph = tl.make_block_ptr(h + ibh * NT * K * V + it * K * V, (K, V), (V, 1), (ik * BK, iv * BV), (BK, BV), (1, 0))
        tl.store(ph, bh.to(ph.dtype.element_ty), boundary_check=(0, 1))
        bk = tl.load(pk, boundary_check=(0, 1))
        bv = tl.load(pv, boundary_check=(0, 1))
        bh += tl.dot(bk, bv)
    ph = tl.make_block_ptr(ht + ibh * K * V, (K, V), (V, 1), (ik * BK, iv * BV), (BK, BV), (1, 0))
    tl.store(ph, bh, boundary_check=(0, 1))


@triton.jit
def chunk_o(
    q, k, v, h, o, scale, T, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    iv, it, ibh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    NT = tl.cdiv(T, BT)
    oi = tl.arange(0, BT)
    ms = oi[:, None] >= oi[None, :]
    bo = tl.zeros([BT, BV], tl.float32)
    bs = tl.zeros([BT, BT], tl.float32)
    for ik in range(tl.cdiv(K, BK)):
        pq = tl.make_block_ptr(q + ibh * T * K, (T, K), (K, 1), (it * BT, ik * BK), (BT, BK), (1, 0))
        pk = tl.make_block_ptr(k + ibh * T * K, (K, T), (1, K), (ik * BK, it * BT), (BK, BT), (0, 1))
        ph = tl.make_block_ptr(h + (ibh * NT + it) * K * V, (K, V), (V, 1), (ik * BK, iv * BV), (BK, BV), (1, 0))
        bq = tl.load(pq, boundary_check=(0, 1))
        bq = (bq * scale).to(bq.dtype)
        bk = tl.load(pk, boundary_check=(0, 1))
        bh = tl.load(ph, boundary_check=(0, 1))
        bo += tl.dot(bq, bh, allow_tf32=False)
        bs += tl.dot(bq, bk, allow_tf32=False)
    bs = tl.where(ms, bs, 0)
    pv = tl.make_block_ptr(v + ibh * T * V, (T, V), (V, 1), (it * BT, iv * BV), (BT, BV), (1, 0))
    bv = tl.load(pv, boundary_check=(0, 1))
    bo += tl.dot(bs.to(bv.dtype), bv)
    po = tl.make_block_ptr(o + ibh * T * V, (T, V), (V, 1), (it * BT, iv * BV), (BT, BV), (1, 0))
    tl.store(po, bo.to(po.dtype.element_ty), boundary_check=(0, 1))


def case_chunk_linear_attn():
    B, T, K, V, BT = 2, 50, 24, 40, 16
    q, k, v = torch.randn(B, T, K), torch.randn(B, T, K), torch.randn(B, T, V)
    NT = triton.cdiv(T, BT)
    h = torch.empty(B, NT, K, V)
    ht = torch.empty(B, K, V)
    o = torch.empty(B, T, V)
    chunk_h[(2, 3, B)](k, v, h, ht, T, NT, K, V, BT, 16, 16)
    chunk_o[(3, NT, B)](q, k, v, h, o, K**-0.5, T, K, V, BT, 16, 16)
    w = ((q.double() @ k.double().transpose(1, 2)) * K**-0.5).tril() @ v.double()
    return [(ht, k.double().transpose(1, 2) @ v.double(), 1e-3), (o, w, 1e-3)]


@triton.jit
def solve_tril(A, Ai, T, BT: tl.constexpr):
    it, ib = tl.program_id(0), tl.program_id(1)
    pA = tl.make_block_ptr(A + ib * T * BT, (T, BT), (BT, 1), (it * BT, 0), (BT, BT), (1, 0))
    b = -tl.where(
        tl.arange(0, BT)[:, None] > tl.arange(0, BT)[None, :], tl.load(pA, boundary_check=(0, 1)).to(tl.float32), 0
    )
    oi = tl.arange(0, BT)
    for i in range(1, min(BT, T - it * BT)):
        ba = -tl.load(A + (ib * T + it * BT + i) * BT + oi)
        ba = tl.where(oi < i, ba, 0)
        ba = ba + tl.sum(ba[:, None] * b, 0)
        b = tl.where((oi == i)[:, None], ba, b)
    b += oi[:, None] == oi[None, :]
    pO = tl.make_block_ptr(Ai + ib * T * BT, (T, BT), (BT, 1), (it * BT, 0), (BT, BT), (1, 0))
    tl.store(pO, b, boundary_check=(0, 1))


def case_solve_tril():
    B, T, BT = 2, 48, 16
    A = torch.randn(B, T, BT) * 0.2
    o = torch.empty(B, T, BT)
    solve_tril[(3, B)](A, o, T, BT)
    w = torch.linalg.inv(torch.eye(BT, dtype=torch.float64) + A.double().view(B, 3, BT, BT).tril(-1)).reshape(B, T, BT)
    return [(o, w, 1e-3)]


def case_solve_tril_ragged():
    B, T, BT = 2, 41, 16
    A = torch.randn(B, T, BT) * 0.2
    o = torch.empty(B, T, BT)
    solve_tril[(3, B)](A, o, T, BT)
    Ap = torch.cat([A, torch.zeros(B, 7, BT)], 1)
    w = torch.linalg.inv(torch.eye(BT, dtype=torch.float64) + Ap.double().view(B, 3, BT, BT).tril(-1)).reshape(
        B, 48, BT
    )[:, :T]
    return [(o, w, 1e-3)]


@triton.jit
def varlen_cumsum(s, o, cu, ci, T, BT: tl.constexpr):
    it = tl.program_id(0)
    n, c = tl.load(ci + it * 2).to(tl.int32), tl.load(ci + it * 2 + 1).to(tl.int32)
    bos, eos = tl.load(cu + n).to(tl.int32), tl.load(cu + n + 1).to(tl.int32)
    T = eos - bos
    p = tl.make_block_ptr(s + bos, (T,), (1,), (c * BT,), (BT,), (0,))
    po = tl.make_block_ptr(o + bos, (T,), (1,), (c * BT,), (BT,), (0,))
    tl.store(po, tl.cumsum(tl.load(p, boundary_check=(0,)), 0), boundary_check=(0,))


def case_varlen_cumsum_blockptr():
    lens = [5, 17, 1, 32]
    cu = torch.tensor([0] + lens).cumsum(0)
    ci = torch.tensor([[i, c] for i, L in enumerate(lens) for c in range(triton.cdiv(L, 8))])
    s = torch.randn(sum(lens))
    o = torch.zeros_like(s)
    varlen_cumsum[(len(ci),)](s, o, cu, ci, sum(lens), 8)
    w = torch.cat([torch.cat([c.double().cumsum(0) for c in x.split(8)]) for x in s.split(lens)])
    return [(o, w)]
