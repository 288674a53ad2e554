"""Matrix products: layouts, split and stream K, grouped, quantised, mixtures of experts, embeddings."""

import torch
import torch.nn.functional as F

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def mm(
    A,
    B,
    C,
    bias,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    scm,
    scn,
    ACT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    G: tl.constexpr,
    WRAP: tl.constexpr,
):
    pid = tl.program_id(0)
    npm = tl.cdiv(M, BM)
    npn = tl.cdiv(N, BN)
    npg = G * npn
    gid = pid // npg
    first = gid * G
    gs = min(npm - first, G)
    pm = first + ((pid % npg) % gs)
    pn = (pid % npg) // gs
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    if WRAP:
        am = om % M
        bn = on % N
    else:
        am = om
        bn = on
    ok = tl.arange(0, BK)
    a = A + am[:, None] * sam + ok[None, :] * sak
    b = B + ok[:, None] * sbk + bn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        if WRAP:
            x = tl.load(a, mask=ok[None, :] < K - k * BK, other=0.0)
            y = tl.load(b, mask=ok[:, None] < K - k * BK, other=0.0)
        else:
            x = tl.load(a, mask=(ok[None, :] < K - k * BK) & (am[:, None] < M), other=0.0)
            y = tl.load(b, mask=(ok[:, None] < K - k * BK) & (bn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK * sak
        b += BK * sbk
    if bias is not None:
        acc += tl.load(bias + on, mask=on < N, other=0.0)[None, :]
    if ACT == "leaky":
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    elif ACT == "gelu":
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    c = acc.to(C.dtype.element_ty)
    tl.store(C + om[:, None] * scm + on[None, :] * scn, c, mask=(om[:, None] < M) & (on[None, :] < N))


def _mm(M, N, K, dt=torch.float32, ta=False, tb=False, tc=False, act="", bias=False, wrap=True, BM=16, BN=32, BK=16):
    a = (torch.randn(K, M).T if ta else torch.randn(M, K)).to(dt)
    b = (torch.randn(N, K).T if tb else torch.randn(K, N)).to(dt)
    c = torch.empty(N, M, dtype=dt).T if tc else torch.empty(M, N, dtype=dt)
    bi = torch.randn(N) if bias else None
    mm[lambda m: (triton.cdiv(M, m["BM"]) * triton.cdiv(N, m["BN"]),)](
        a, b, c, bi, M, N, K, *a.stride(), *b.stride(), *c.stride(), ACT=act, BM=BM, BN=BN, BK=BK, G=3, WRAP=wrap
    )
    w = a.double() @ b.double()
    if bias:
        w = w + bi
    if act == "leaky":
        w = F.leaky_relu(w, 0.01)
    if act == "gelu":
        w = F.gelu(w)
    return [(c, w, 1e-3 if dt == torch.float32 else 3e-2)]


def case_mm_wrap():
    return _mm(50, 70, 40)


def case_mm_nowrap():
    return _mm(50, 70, 37, wrap=False)


def case_mm_ta():
    return _mm(33, 65, 50, ta=True, act="leaky", bias=True)


def case_mm_tb():
    return _mm(33, 65, 50, tb=True, act="gelu", bias=True)


def case_mm_tc():
    return _mm(33, 65, 50, tc=True, tb=True)


def case_mm_tatb():
    return _mm(17, 31, 64, ta=True, tb=True, wrap=False)


def case_mm_bf16():
    return _mm(33, 65, 50, dt=torch.bfloat16)


def case_mm_fp16_tb():
    return _mm(33, 65, 50, dt=torch.float16, tb=True)


def case_mm_m1():
    return _mm(1, 65, 50)


def case_mm_111():
    return _mm(1, 1, 1)


def case_mm_k1():
    return _mm(20, 20, 1)


def case_mm_slices():
    base = torch.randn(60, 90)
    a = base[5:38, 3:53]
    bb = torch.randn(50, 100)
    b = bb[:, 10:75]
    cc = torch.zeros(40, 80)
    c = cc[2:35, 5:70]
    M, K = a.shape
    N = b.shape[1]
    mm[(triton.cdiv(M, 16) * triton.cdiv(N, 32),)](
        a, b, c, None, M, N, K, *a.stride(), *b.stride(), *c.stride(), ACT="", BM=16, BN=32, BK=16, G=3, WRAP=True
    )
    w = torch.zeros(40, 80, dtype=torch.float64)
    w[2:35, 5:70] = a.double() @ b.double()
    return [(cc, w, 1e-3)]


def case_mm_expanded_a():
    a = torch.randn(1, 40).expand(33, 40)
    b = torch.randn(40, 20)
    c = torch.empty(33, 20)
    mm[(3,)](
        a, b, c, None, 33, 20, 40, *a.stride(), *b.stride(), *c.stride(), ACT="", BM=16, BN=32, BK=16, G=3, WRAP=True
    )
    return [(c, a.double() @ b.double(), 1e-3)]


def case_mm_same():
    a = torch.randn(32, 32)
    c = torch.empty(32, 32)
    mm[(2,)](
        a,
        a,
        c,
        None,
        32,
        32,
        32,
        *a.stride(),
        a.stride(1),
        a.stride(0),
        *c.stride(),
        ACT="",
        BM=16,
        BN=32,
        BK=16,
        G=3,
        WRAP=True,
    )
    return [(c, a.double() @ a.double().T, 1e-3)]


@triton.jit
def i8mm(A, B, C, sa, sb, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        ok = k + tl.arange(0, BK)
        x = tl.load(A + om[:, None] * K + ok[None, :], mask=(om[:, None] < M) & (ok[None, :] < K), other=0)
        y = tl.load(B + ok[:, None] * N + on[None, :], mask=(ok[:, None] < K) & (on[None, :] < N), other=0)
        acc += tl.dot(x, y)
    s = tl.load(sa + om, mask=om < M)[:, None] * tl.load(sb + on, mask=on < N)[None, :]
    tl.store(C + om[:, None] * N + on[None, :], acc.to(tl.float32) * s, mask=(om[:, None] < M) & (on[None, :] < N))


def case_i8mm():
    M, N, K = 33, 40, 70
    a = torch.randint(-128, 128, (M, K), dtype=torch.int8)
    b = torch.randint(-128, 128, (K, N), dtype=torch.int8)
    sa, sb = torch.rand(M), torch.rand(N)
    c = torch.empty(M, N)
    i8mm[(3, 2)](a, b, c, sa, sb, M, N, K, 16, 32, 32)
    return [(c, (a.double() @ b.double()) * sa[:, None] * sb[None], 1e-4)]


@triton.jit
def w4mm(A, Bq, S, Z, C, M, N, K, GS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    ap = A + om[:, None] * K + ok[None, :]
    bp = Bq + (ok[:, None] // 8) * N + on[None, :]
    sh = (ok % 8) * 4
    zsh = (on % 8) * 4
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K // BK):
        a = tl.load(ap, mask=om[:, None] < M, other=0.0)
        b = tl.load(bp)
        g = k * BK // GS
        s = tl.load(S + g * N + on[None, :])
        z = tl.load(Z + g * (N // 8) + on[None, :] // 8)
        z = (z >> zsh[None, :]) & 0xF
        b = (b >> sh[:, None]) & 0xF
        b = (b - z) * s
        acc += tl.dot(a, b.to(a.dtype))
        ap += BK
        bp += (BK // 8) * N
    tl.store(C + om[:, None] * N + on[None, :], acc, mask=om[:, None] < M)


def case_w4mm():
    M, N, K, GS = 20, 64, 128, 64
    a = torch.randn(M, K)
    q = torch.randint(0, 16, (K, N))
    z = torch.randint(0, 16, (K // GS, N))
    s = torch.rand(K // GS, N)

    def pack(x, d):
        x = x.movedim(d, -1)
        x = x.reshape(*x.shape[:-1], -1, 8)
        r = (x.long() << (torch.arange(8) * 4)).sum(-1)
        r = torch.where(r >= 2**31, r - 2**32, r).int()
        return r.movedim(-1, d).contiguous()

    c = torch.empty(M, N)
    w4mm[(2, 2)](a, pack(q, 0), s, pack(z, 1), c, M, N, K, GS, 16, 32, 32)
    W = (q - z.repeat_interleave(GS, 0)).double() * s.repeat_interleave(GS, 0)
    return [(c, a.double() @ W, 1e-3)]


@triton.jit
def splitk(A, B, P, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SK: tl.constexpr):
    pm, pn, pk = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = pk * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK * SK)):
        rem = K - k * BK * SK
        a = tl.load(
            A + om[:, None] * K + (ok + k * BK * SK)[None, :], mask=(om[:, None] < M) & (ok[None, :] < rem), other=0.0
        )
        b = tl.load(
            B + (ok + k * BK * SK)[:, None] * N + on[None, :], mask=(ok[:, None] < rem) & (on[None, :] < N), other=0.0
        )
        acc += tl.dot(a, b)
    tl.store(P + pk * M * N + om[:, None] * N + on[None, :], acc, mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def reduce_sk(P, C, n, SK: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros([B], tl.float32)
    for s in tl.static_range(SK):
        acc += tl.load(P + s * n + i, mask=i < n, other=0.0)
    tl.store(C + i, acc, mask=i < n)


def case_splitk():
    M, N, K = 30, 40, 150
    a, b = torch.randn(M, K), torch.randn(K, N)
    P = torch.full((3, M, N), float("nan"))
    C = torch.empty(M, N)
    splitk[(2, 2, 3)](a, b, P, M, N, K, 16, 32, 16, 3)
    reduce_sk[(triton.cdiv(M * N, 64),)](P, C, M * N, 3, 64)
    return [(C, a.double() @ b.double(), 1e-3)]


@triton.jit
def streamk(A, B, P, M, N, K, total, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, NP: tl.constexpr):
    pid = tl.program_id(0)
    ipt = tl.cdiv(K, BK)
    per = tl.cdiv(total, NP)
    it = pid * per
    end = tl.minimum(it + per, total)
    slot = 0
    while it < end:
        tile = it // ipt
        pm = tile // tl.cdiv(N, BN)
        pn = tile % tl.cdiv(N, BN)
        k0 = it % ipt
        k1 = tl.minimum(ipt, k0 + end - it)
        om = pm * BM + tl.arange(0, BM)
        on = pn * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(k0, k1):
            ok = k * BK + tl.arange(0, BK)
            a = tl.load(A + om[:, None] * K + ok[None, :], mask=(om[:, None] < M) & (ok[None, :] < K), other=0.0)
            b = tl.load(B + ok[:, None] * N + on[None, :], mask=(ok[:, None] < K) & (on[None, :] < N), other=0.0)
            acc += tl.dot(a, b)
        tl.store(P + pid * M * N + om[:, None] * N + on[None, :], acc, mask=(om[:, None] < M) & (on[None, :] < N))
        it += k1 - k0


def case_streamk():
    M, N, K = 40, 50, 70
    a, b = torch.randn(M, K), torch.randn(K, N)
    NP = 5
    P = torch.zeros(NP, M, N)
    total = triton.cdiv(M, 16) * triton.cdiv(N, 16) * triton.cdiv(K, 16)
    streamk[(NP,)](a, b, P, M, N, K, total, 16, 16, 16, NP)
    return [(P.sum(0), a.double() @ b.double(), 1e-3)]


@triton.jit
def bmm_persist(A, B, C, NB, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    start = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    for t in tl.range(start, NB * nm * nn, tl.num_programs(0), flatten=True):
        b = t // (nm * nn)
        r = t % (nm * nn)
        pm = r // nn
        pn = r % nn
        om = pm * BM + tl.arange(0, BM)
        on = pn * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            ok = k + tl.arange(0, BK)
            x = tl.load(
                A + b * M * K + om[:, None] * K + ok[None, :], mask=(om[:, None] < M) & (ok[None, :] < K), other=0.0
            )
            y = tl.load(
                B + b * N * K + ok[:, None] * N + on[None, :], mask=(ok[:, None] < K) & (on[None, :] < N), other=0.0
            )
            acc += tl.dot(x, y)
        tl.store(C + b * M * N + om[:, None] * N + on[None, :], acc, mask=(om[:, None] < M) & (on[None, :] < N))


def case_bmm_persist():
    NB, M, N, K = 3, 40, 50, 37
    a, b = torch.randn(NB, M, K), torch.randn(NB, K, N)
    c = torch.zeros(NB, M, N)
    bmm_persist[(5,)](a, b, c, NB, M, N, K, 16, 32, 16)
    return [(c, a.double() @ b.double(), 1e-3)]


@triton.jit
def grouped(
    A,
    B,
    C,
    gs,
    go,
    NG: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    NSM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    tile = tl.program_id(0)
    last = 0
    for g in range(NG):
        m = tl.load(gs + g)
        off = tl.load(go + g)
        nt = tl.cdiv(m, BM) * tl.cdiv(N, BN)
        while tile >= last and tile < last + nt:
            t = tile - last
            pm = t // tl.cdiv(N, BN)
            pn = t % tl.cdiv(N, BN)
            om = pm * BM + tl.arange(0, BM)
            on = pn * BN + tl.arange(0, BN)
            ok = tl.arange(0, K)
            a = tl.load(A + (off + om)[:, None] * K + ok[None, :], mask=om[:, None] < m, other=0.0)
            b = tl.load(B + g * K * N + ok[:, None] * N + on[None, :], mask=on[None, :] < N, other=0.0)
            tl.store(
                C + (off + om)[:, None] * N + on[None, :], tl.dot(a, b), mask=(om[:, None] < m) & (on[None, :] < N)
            )
            tile += NSM
        last = last + nt


def case_grouped_gemm():
    gs = torch.tensor([5, 0, 40, 17], dtype=torch.int32)
    go = torch.cat([torch.zeros(1), gs.cumsum(0)[:-1]]).int()
    N, K = 40, 16
    T = int(gs.sum())
    a = torch.randn(T, K)
    b = torch.randn(4, K, N)
    c = torch.zeros(T, N)
    grouped[(3,)](a, b, c, gs, go, 4, N, K, 3, 16, 16)
    return [(c, torch.cat([x.double() @ b[i].double() for i, x in enumerate(a.split(gs.tolist()))]), 1e-3)]


@triton.jit
def moe(
    A,
    B,
    C,
    tw,
    sorted_ids,
    eids,
    npost,
    N,
    K,
    EM,
    nvalid,
    topk: tl.constexpr,
    MULW: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    pid = tl.program_id(0)
    pm = pid // tl.cdiv(N, BN)
    pn = pid % tl.cdiv(N, BN)
    np_ = tl.load(npost)
    if pm * BM >= np_:
        return
    oid = pm * BM + tl.arange(0, BM).to(tl.int64)
    tok = tl.load(sorted_ids + oid)
    tm = tok < nvalid
    e = tl.load(eids + pm).to(tl.int64)
    on = (pn * BN + tl.arange(0, BN).to(tl.int64)) % N
    ok = tl.arange(0, BK)
    if e == -1:
        cp = C + tok[:, None] * N + (pn * BN + tl.arange(0, BN))[None, :]
        tl.store(
            cp, tl.zeros((BM, BN), dtype=tl.float32), mask=tm[:, None] & ((pn * BN + tl.arange(0, BN))[None, :] < N)
        )
        return
    ap = A + (tok[:, None] // topk * K + ok[None, :])
    bp = B + e * N * K + (ok[:, None] + on[None, :] * K)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(ap, mask=tm[:, None] & (ok[None, :] < K - k * BK), other=0.0)
        b = tl.load(bp, mask=ok[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(a, b)
        ap += BK
        bp += BK
    if MULW:
        w = tl.load(tw + tok, mask=tm, other=0)
        acc = acc * w[:, None]
    oc = pn * BN + tl.arange(0, BN)
    tl.store(C + N * tok[:, None] + oc[None, :], acc, mask=tm[:, None] & (oc[None, :] < N))


def case_moe():
    T, topk, E, N, K, BM = 13, 2, 4, 40, 50, 16
    a = torch.randn(T, K)
    b = torch.randn(E, N, K)
    ti = torch.stack([torch.randperm(E)[:topk] for _ in range(T)])
    tw = torch.rand(T, topk)
    ti[ti == 2] = 3 if False else 2
    ids = []
    es = []
    for e in range(E):
        l = [i for i in range(T * topk) if ti.view(-1)[i] == e]
        while len(l) % BM:
            l.append(T * topk)
        ids += l
        es += [e if e != 2 else -1] * (len(l) // BM)
    n = len(ids)
    ids += [T * topk] * BM * 2
    es += [0, 0]
    c = torch.full((T, topk, N), 9.0)
    moe[(len(es) * 2,)](
        a,
        b,
        c,
        tw,
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(es, dtype=torch.int32),
        torch.tensor([n], dtype=torch.int32),
        N,
        K,
        len(ids),
        T * topk,
        topk,
        True,
        BM,
        32,
        16,
    )
    w = torch.einsum("tk,tjnk->tjn", a.double(), b[ti].double()) * tw[..., None]
    w[ti == 2] = 0
    return [(c, w, 1e-3)]


@triton.jit
def moe_align1(ti, cnts, E: tl.constexpr, n, per: tl.constexpr):
    pid = tl.program_id(0)
    st = pid * per
    oc = (pid + 1) * E
    for i in range(per):
        if st + i < n:
            idx = tl.load(ti + st + i)
            c = tl.load(cnts + oc + idx)
            tl.store(cnts + oc + idx, c + 1)


@triton.jit
def moe_align2(cnts, E: tl.constexpr):
    pid = tl.program_id(0)
    last = 0
    for i in range(1, E + 1):
        c = tl.load(cnts + i * E + pid)
        last = last + c
        tl.store(cnts + i * E + pid, last)


@triton.jit
def moe_align3(total, cnts, cums, E: tl.constexpr, BS: tl.constexpr):
    last = 0
    off = E * E
    for i in range(1, E + 1):
        c = tl.load(cnts + off + i - 1)
        last = last + tl.cdiv(c, BS) * BS
        tl.store(cums + i, last)
    tl.store(total, last)


@triton.jit
def moe_align4(ti, ids, eids, cnts, cums, E: tl.constexpr, BS: tl.constexpr, n, per: tl.constexpr):
    pid = tl.program_id(0)
    s = tl.load(cums + pid)
    e = tl.load(cums + pid + 1)
    for i in range(s, e, BS):
        tl.store(eids + i // BS, pid)
    st = pid * per
    oc = pid * E
    for i in range(st, tl.minimum(st + per, n)):
        x = tl.load(ti + i)
        c = tl.load(cnts + oc + x)
        r = c + tl.load(cums + x)
        tl.store(ids + r, i)
        tl.store(cnts + oc + x, c + 1)


def case_moe_align():
    E, BS, n = 4, 4, 23
    ti = torch.randint(0, E, (n,), dtype=torch.int32)
    per = triton.cdiv(n, E)
    cn = torch.zeros(E + 1, E, dtype=torch.int32)
    cu = torch.zeros(E + 1, dtype=torch.int32)
    tot = torch.zeros(1, dtype=torch.int32)
    ids = torch.full((n + E * BS,), n, dtype=torch.int32)
    ei = torch.full((12,), -1, dtype=torch.int32)
    moe_align1[(E,)](ti, cn, E, n, per)
    moe_align2[(E,)](cn, E)
    moe_align3[(1,)](tot, cn, cu, E, BS)
    moe_align4[(E,)](ti, ids, ei, cn, cu, E, BS, n, per)
    wi = []
    we = []
    for e in range(E):
        l = (ti == e).nonzero()[:, 0].tolist()
        while len(l) % BS:
            l.append(n)
        wi += l
        we += [e] * (len(l) // BS)
    W = torch.full_like(ids, n)
    W[: len(wi)] = torch.tensor(wi)
    V = torch.full_like(ei, -1)
    V[: len(we)] = torch.tensor(we)
    return [(ids, W), (ei, V), (tot, torch.tensor([len(wi)]))]


@triton.jit
def emb_bwd(dy, ids, order, starts, dW, D, n_unique, B: tl.constexpr):
    u = tl.program_id(0)
    col = tl.program_id(1) * B + tl.arange(0, B)
    m = col < D
    s = tl.load(starts + u)
    e = tl.load(starts + u + 1)
    acc = tl.zeros([B], tl.float32)
    for j in range(s, e):
        t = tl.load(order + j)
        acc += tl.load(dy + t * D + col, mask=m, other=0.0)
    row = tl.load(ids + u)
    tl.store(dW + row * D + col, acc, mask=m)


def case_emb_bwd():
    V, D, T = 20, 37, 50
    ids = torch.randint(0, V, (T,))
    dy = torch.randn(T, D)
    dW = torch.zeros(V, D)
    u, c = torch.unique(ids, return_counts=True)
    order = ids.argsort(stable=True)
    st = torch.cat([torch.zeros(1).long(), c.cumsum(0)])
    emb_bwd[(len(u), 2)](dy, u, order, st, dW, D, len(u), 32)
    return [(dW, torch.zeros(V, D, dtype=torch.float64).index_add_(0, ids, dy.double()))]


@triton.jit
def quant_fp8(X, Y, S, M, N, GS: tl.constexpr, eps):
    g = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, GS)
    x = tl.load(X + g * GS + c).to(tl.float32)
    am = tl.maximum(tl.max(tl.abs(x)), eps)
    s = am / 448.0
    tl.store(Y + g * GS + c, tl.clamp(x / s, -448.0, 448.0).to(Y.dtype.element_ty))
    tl.store(S + g, s)


def case_quant_fp8():
    x = torch.randn(8, 64)
    y = torch.empty(8, 64, dtype=torch.float8_e4m3fn)
    s = torch.empty(8, 2)
    quant_fp8[(16,)](x, y, s, 8, 64, 32, 1e-10)
    am = x.view(8, 2, 32).abs().amax(-1).clamp(min=1e-10) / 448.0
    return [
        (s, am, 1e-6),
        (y.float(), (x.view(8, 2, 32) / am[..., None]).to(torch.float8_e4m3fn).float().view(8, 64), 1e-6),
    ]


@triton.jit
def quant_i8_pack4(X, Y, S, N, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    x0 = tl.load(X + r * N + 2 * c, mask=2 * c < N, other=0.0)
    x1 = tl.load(X + r * N + 2 * c + 1, mask=2 * c + 1 < N, other=0.0)
    am = tl.maximum(tl.max(tl.abs(x0)), tl.max(tl.abs(x1)))
    s = am / 7.0
    q0 = tl.extra.cuda.libdevice.rint(x0 / s).to(tl.int8)
    q1 = tl.extra.cuda.libdevice.rint(x1 / s).to(tl.int8)
    tl.store(Y + r * (N // 2) + c, ((q1 & 0xF) << 4) | (q0 & 0xF), mask=c < N // 2)
    tl.store(S + r, s)


@triton.jit
def dequant_pack4(Y, S, O, N, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    y = tl.load(Y + r * (N // 2) + c, mask=c < N // 2, other=0)
    lo = (y << 4) >> 4
    hi = y >> 4
    o = tl.interleave(lo, hi).to(tl.float32) * tl.load(S + r)
    cc = tl.arange(0, 2 * B)
    tl.store(O + r * N + cc, o, mask=cc < N)


def case_pack4():
    R, N = 5, 50
    x = torch.randn(R, N)
    y = torch.zeros(R, N // 2, dtype=torch.int8)
    s = torch.empty(R)
    o = torch.empty(R, N)
    quant_i8_pack4[(R,)](x, y, s, N, 32)
    dequant_pack4[(R,)](y, s, o, N, 32)
    sc = x.abs().amax(1, keepdim=True) / 7
    q = (x / sc).round()
    return [(o, q * sc, 1e-6)]
