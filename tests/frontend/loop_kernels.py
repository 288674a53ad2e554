"""Kernels with loops that carry values, as libraries write them, and launches of them at odd sizes."""

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def row_argmax(x, val, idx, n, CH: tl.constexpr):
    row = tl.program_id(0)
    best = float("-inf")
    at = 0
    for k in range(0, n, CH):
        c = k + tl.arange(0, CH)
        v = tl.load(x + row * n + c, mask=c < n, other=float("-inf"))
        m, i = tl.max(v, axis=0, return_indices=True)
        at = tl.where(m > best, i + k, at)
        best = tl.maximum(best, m)
    tl.store(val + row, best)
    tl.store(idx + row, at)


@triton.jit
def online_softmax(x, y, n, CH: tl.constexpr):
    row = tl.program_id(0)
    top = float("-inf")
    total = 0.0
    for k in range(0, n, CH):
        c = k + tl.arange(0, CH)
        z = tl.load(x + row * n + c, mask=c < n, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(z))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(z - new))
        top = new
    for k in range(0, n, CH):
        c = k + tl.arange(0, CH)
        z = tl.load(x + row * n + c, mask=c < n, other=float("-inf")).to(tl.float32)
        tl.store(y + row * n + c, (tl.exp(z - top) / total).to(y.dtype.element_ty), mask=c < n)


@triton.jit
def decay(x, y, n, CH: tl.constexpr, BACK: tl.constexpr):
    row = tl.program_id(0)
    state = tl.zeros([CH], tl.float32)
    chunks = tl.cdiv(n, CH)
    for i in range(chunks):
        j = chunks - 1 - i if BACK else i
        c = j * CH + tl.arange(0, CH)
        state = state * 0.5 + tl.load(x + row * n + c, mask=c < n, other=0.0)
        tl.store(y + row * n + c, state, mask=c < n)


@triton.jit
def attention(q, k, v, o, scale, seq, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    qi = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * seq * D
    rq = qi * BQ + tl.arange(0, BQ)
    rd = tl.arange(0, D)
    tq = tl.load(q + base + rq[:, None] * D + rd[None, :], mask=rq[:, None] < seq, other=0.0)
    m = tl.full([BQ], float("-inf"), dtype=tl.float32)
    l = tl.zeros([BQ], dtype=tl.float32)
    acc = tl.zeros([BQ, D], dtype=tl.float32)
    end = tl.minimum((qi + 1) * BQ, seq) if CAUSAL else seq
    for start in range(0, end, BK):
        rk = start + tl.arange(0, BK)
        tk = tl.load(k + base + rk[:, None] * D + rd[None, :], mask=rk[:, None] < seq, other=0.0)
        s = tl.dot(tq, tl.trans(tk), input_precision="ieee") * scale
        keep = rk[None, :] < seq
        if CAUSAL:
            keep = keep & (rq[:, None] >= rk[None, :])
        s = tl.where(keep, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        fix = tl.exp2(m - new)
        l = l * fix + tl.sum(p, 1)
        tv = tl.load(v + base + rk[:, None] * D + rd[None, :], mask=rk[:, None] < seq, other=0.0)
        acc = acc * fix[:, None] + tl.dot(p.to(tv.dtype), tv, input_precision="ieee")
        m = new
    tl.store(
        o + base + rq[:, None] * D + rd[None, :], (acc / l[:, None]).to(o.dtype.element_ty), mask=rq[:, None] < seq
    )


@triton.jit
def layer_norm_chunks(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
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


@triton.jit
def welford(X, Mean, Var, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = tl.zeros([BLOCK], tl.float32)
    m2 = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        ok = cols < N
        x = tl.load(X + row * N + cols, mask=ok, other=0.0)
        new_count = count + ok.to(tl.float32)
        delta = x - mean
        new_mean = mean + tl.where(ok, delta / tl.maximum(new_count, 1.0), 0.0)
        m2 += tl.where(ok, delta * (x - new_mean), 0.0)
        mean = new_mean
        count = new_count
    total = tl.sum(count, 0)
    mu = tl.sum(mean * count, 0) / total
    d = mean - mu
    var = (tl.sum(m2, 0) + tl.sum(count * d * d, 0)) / total
    tl.store(Mean + row, mu)
    tl.store(Var + row, var)


@triton.jit
def scalar_while(X, O, n):
    i = tl.program_id(0)
    x = tl.load(X + i)
    steps = 0
    while x > 1.0:
        x = x * 0.5
        steps += 1
    tl.store(O + i, steps)


@triton.jit
def newton_block(X, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(X + i, mask=i < n, other=1.0)
    y = a
    err = 1.0
    while err > 1e-6:
        z = 0.5 * (y + a / y)
        err = tl.max(tl.abs(z - y))
        y = z
    tl.store(O + i, y, mask=i < n)


@triton.jit
def linear_attention(Q, K, V, O, T, D: tl.constexpr, E: tl.constexpr, BT: tl.constexpr):
    h = tl.program_id(0)
    state = tl.zeros([D, E], tl.float32)
    d = tl.arange(0, D)
    e = tl.arange(0, E)
    for t in range(0, T, BT):
        r = t + tl.arange(0, BT)
        ok = r < T
        q = tl.load(Q + h * T * D + r[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        k = tl.load(K + h * T * D + r[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        v = tl.load(V + h * T * E + r[:, None] * E + e[None, :], mask=ok[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k))
        s = tl.where(r[:, None] >= r[None, :], s, 0.0)
        o = tl.dot(s, v) + tl.dot(q, state)
        tl.store(O + h * T * E + r[:, None] * E + e[None, :], o, mask=ok[:, None])
        state += tl.dot(tl.trans(k), v)


@triton.jit
def recurrence(X, A, O, T, D, BD: tl.constexpr):
    b = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    ok = d < D
    h = tl.zeros([BD], tl.float32)
    for t in range(T):
        x = tl.load(X + b * T * D + t * D + d, mask=ok, other=0.0)
        a = tl.load(A + b * T * D + t * D + d, mask=ok, other=0.0)
        h = a * h + x
        tl.store(O + b * T * D + t * D + d, h, mask=ok)


@triton.jit
def mamba_like(X, DT, A, Bm, C, O, T, D, BD: tl.constexpr, N: tl.constexpr):
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, N)
    ok = d < D
    a = tl.load(A + d[:, None] * N + n[None, :], mask=ok[:, None], other=0.0)
    h = tl.zeros([BD, N], tl.float32)
    for t in range(T):
        x = tl.load(X + t * D + d, mask=ok, other=0.0)
        dt = tl.load(DT + t * D + d, mask=ok, other=0.0)
        b = tl.load(Bm + t * N + n)
        c = tl.load(C + t * N + n)
        h = h * tl.exp(dt[:, None] * a) + (dt * x)[:, None] * b[None, :]
        y = tl.sum(h * c[None, :], axis=1)
        tl.store(O + t * D + d, y, mask=ok)


@triton.jit
def attn_bwd_dkv(
    Q, K, V, DO, L, Delta, DK, DV, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    h = tl.program_id(1)
    n = tl.program_id(0)
    base = h * S * D
    rn = n * BN + tl.arange(0, BN)
    rd = tl.arange(0, D)
    k = tl.load(K + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < S, other=0.0)
    v = tl.load(V + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < S, other=0.0)
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, D], tl.float32)
    lo = n * BN if CAUSAL else 0
    for m in range(lo, S, BM):
        rm = m + tl.arange(0, BM)
        q = tl.load(Q + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
        do = tl.load(DO + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
        l = tl.load(L + h * S + rm, mask=rm < S, other=0.0)
        delta = tl.load(Delta + h * S + rm, mask=rm < S, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        p = tl.exp(s - l[:, None])
        if CAUSAL:
            p = tl.where(rm[:, None] >= rn[None, :], p, 0.0)
        p = tl.where(rm[:, None] < S, p, 0.0)
        dv += tl.dot(tl.trans(p), do)
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None]) * scale
        dk += tl.dot(tl.trans(ds), q)
    tl.store(DK + base + rn[:, None] * D + rd[None, :], dk, mask=rn[:, None] < S)
    tl.store(DV + base + rn[:, None] * D + rd[None, :], dv, mask=rn[:, None] < S)


@triton.jit
def attn_bwd_dq(Q, K, V, DO, L, Delta, DQ, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    h = tl.program_id(1)
    m = tl.program_id(0)
    base = h * S * D
    rm = m * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    q = tl.load(Q + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    do = tl.load(DO + base + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    l = tl.load(L + h * S + rm, mask=rm < S, other=0.0)
    delta = tl.load(Delta + h * S + rm, mask=rm < S, other=0.0)
    dq = tl.zeros([BM, D], tl.float32)
    for n in range(0, (m + 1) * BM, BN):
        rn = n + tl.arange(0, BN)
        k = tl.load(K + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < S, other=0.0)
        v = tl.load(V + base + rn[:, None] * D + rd[None, :], mask=rn[:, None] < S, other=0.0)
        p = tl.exp(tl.dot(q, tl.trans(k)) * scale - l[:, None])
        p = tl.where(rm[:, None] >= rn[None, :], p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None]) * scale
        dq += tl.dot(ds, k)
    tl.store(DQ + base + rm[:, None] * D + rd[None, :], dq, mask=rm[:, None] < S)


@triton.jit
def attn_bshd(q, k, v, o, S, H, scale, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr):
    qi = tl.program_id(0)
    b = tl.program_id(1) // H
    h = tl.program_id(1) % H
    base = b * S * H * D + h * D
    rq = qi * BQ + tl.arange(0, BQ)
    rd = tl.arange(0, D)
    tq = tl.load(q + base + rq[:, None] * H * D + rd[None, :], mask=rq[:, None] < S, other=0.0)
    m = tl.full([BQ], float("-inf"), tl.float32)
    l = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    for n in range(0, S, BK):
        rk = n + tl.arange(0, BK)
        tk = tl.load(k + base + rk[:, None] * H * D + rd[None, :], mask=rk[:, None] < S, other=0.0)
        tv = tl.load(v + base + rk[:, None] * H * D + rd[None, :], mask=rk[:, None] < S, other=0.0)
        s = tl.where(rk[None, :] < S, tl.dot(tq, tl.trans(tk)) * scale, float("-inf"))
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - mn[:, None])
        fix = tl.exp(m - mn)
        l = l * fix + tl.sum(p, 1)
        acc = acc * fix[:, None] + tl.dot(p, tv)
        m = mn
    tl.store(o + base + rq[:, None] * H * D + rd[None, :], acc / l[:, None], mask=rq[:, None] < S)


@triton.jit
def nested(x, o, n, m, CH: tl.constexpr):
    row = tl.program_id(0)
    best = 0.0
    for i in range(m):
        inner = 0.0
        for k in range(0, n, CH):
            c = k + tl.arange(0, CH)
            v = tl.load(x + row * m * n + i * n + c, mask=c < n, other=0.0)
            inner = inner * 0.5 + tl.sum(v)
        best = tl.maximum(best, inner)
    tl.store(o + row, best)


@triton.jit
def xent(logits, labels, loss, row_stride, vocab, ignore, scale, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    logits += row * row_stride
    y = tl.load(labels + row)
    if y == ignore:
        for k in range(0, vocab, CHUNK):
            c = k + tl.arange(0, CHUNK)
            tl.store(logits + c, 0.0, mask=c < vocab)
        tl.store(loss + row, 0.0)
        return
    top = float("-inf")
    tot = 0.0
    target = tl.load(logits + y).to(tl.float32)
    for k in range(0, vocab, CHUNK):
        c = k + tl.arange(0, CHUNK)
        z = tl.load(logits + c, mask=c < vocab, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(z))
        tot = tot * tl.exp(top - new) + tl.sum(tl.exp(z - new))
        top = new
    tl.store(loss + row, top + tl.log(tot) - target)
    for k in range(0, vocab, CHUNK):
        c = k + tl.arange(0, CHUNK)
        z = tl.load(logits + c, mask=c < vocab, other=float("-inf")).to(tl.float32)
        p = tl.exp(z - top) / tot
        p = tl.where(c == y, p - 1.0, p)
        tl.store(logits + c, p * scale, mask=c < vocab)


@triton.jit
def attn_block_pointers(Q, K, V, O, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    i = tl.program_id(0)
    h = tl.program_id(1)
    base = h * S * D
    qp = tl.make_block_ptr(Q + base, (S, D), (D, 1), (i * BM, 0), (BM, D), (1, 0))
    kp = tl.make_block_ptr(K + base, (D, S), (1, D), (0, 0), (D, BN), (0, 1))
    vp = tl.make_block_ptr(V + base, (S, D), (D, 1), (0, 0), (BN, D), (1, 0))
    op = tl.make_block_ptr(O + base, (S, D), (D, 1), (i * BM, 0), (BM, D), (1, 0))
    q = tl.load(qp, boundary_check=(0,), padding_option="zero")
    m = tl.full([BM], float("-inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for n in range(0, S, BN):
        k = tl.load(kp, boundary_check=(1,), padding_option="zero")
        v = tl.load(vp, boundary_check=(0,), padding_option="zero")
        s = tl.dot(q, k) * scale
        s = tl.where((n + tl.arange(0, BN))[None, :] < S, s, float("-inf"))
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - mn[:, None])
        f = tl.exp(m - mn)
        l = l * f + tl.sum(p, 1)
        acc = acc * f[:, None] + tl.dot(p, v)
        m = mn
        kp = tl.advance(kp, (0, BN))
        vp = tl.advance(vp, (BN, 0))
    tl.store(op, acc / l[:, None], boundary_check=(0,))


def launches():
    r, e = torch.randn, torch.empty
    ties = torch.randint(-5, 6, (70, 90)).float()
    yield "argmax", row_argmax, (ties, e(70), e(70, dtype=torch.int32), 90), {"CH": 32}, (70,)
    yield "online", online_softmax, (r(6, 90), e(6, 90), 90), {"CH": 32}, (6,)
    yield "online-aligned-steps", online_softmax, (r(11, 2700), e(11, 2700), 2700), {"CH": 128}, (11,)
    yield "online-groups", online_softmax, (r(9, 1100), e(9, 1100), 1100), {"CH": 64}, (9,)
    for back in (False, True):
        yield f"decay-{back}", decay, (r(6, 150), e(6, 150), 150), {"CH": 64, "BACK": back}, (6,)
        yield f"decay-groups-{back}", decay, (r(6, 1150), e(6, 1150), 1150), {"CH": 64, "BACK": back}, (6,)
    for causal in (False, True):
        args = (*(r(3, 75, 32) for _ in range(3)), e(3, 75, 32), 0.2, 75)
        yield f"attention-{causal}", attention, args, {"BQ": 32, "BK": 16, "D": 32, "CAUSAL": causal}, (3, 3)
    args = (r(9, 300), e(9, 300), r(300), r(300), e(9), e(9), 300, 300, 1e-5)
    yield "layer-norm", layer_norm_chunks, args, {"BLOCK": 64}, (9,)
    yield "welford", welford, (r(9, 300), e(9), e(9), 300), {"BLOCK": 64}, (9,)
    yield "while-scalar", scalar_while, (r(21).abs() * 50, e(21, dtype=torch.int32), 21), {}, (21,)
    yield "while-block", newton_block, (r(300).abs() + 0.1, e(300), 300), {"BLOCK": 128}, (3,)
    args = (r(3, 50, 16), r(3, 50, 16), r(3, 50, 32), e(3, 50, 32), 50)
    yield "linear-attention", linear_attention, args, {"D": 16, "E": 32, "BT": 16}, (3,)
    yield "recurrence", recurrence, (r(2, 37, 90), r(2, 37, 90) * 0.3, e(2, 37, 90), 37, 90), {"BD": 32}, (2, 3)
    args = (r(20, 70), r(20, 70).abs() * 0.1, -r(70, 16).abs(), r(20, 16), r(20, 16), e(20, 70), 20, 70)
    yield "mamba", mamba_like, args, {"BD": 32, "N": 16}, (3,)
    given = (*(r(2, 75, 32) for _ in range(4)), r(2, 75).abs() + 3, r(2, 75))
    for causal in (False, True):
        args = (*given, e(2, 75, 32), e(2, 75, 32), 75, 0.2)
        yield f"attention-dkv-{causal}", attn_bwd_dkv, args, {"BM": 16, "BN": 32, "D": 32, "CAUSAL": causal}, (3, 2)
    yield "attention-dq", attn_bwd_dq, (*given, e(2, 75, 32), 75, 0.2), {"BM": 32, "BN": 16, "D": 32}, (3, 2)
    args = (*(r(2, 75, 3, 32) for _ in range(3)), e(2, 75, 3, 32), 75, 3, 0.2)
    yield "attention-heads-inside", attn_bshd, args, {"BQ": 32, "BK": 16, "D": 32}, (3, 6)
    args = (*(r(2, 75, 32) for _ in range(3)), e(2, 75, 32), 75, 0.2)
    yield "attention-block-pointers", attn_block_pointers, args, {"BM": 32, "BN": 16, "D": 32}, (3, 2)
    yield "nested", nested, (r(5, 3, 90), e(5), 90, 3), {"CH": 32}, (5,)
    labels = torch.tensor([3, 17, -100, 5, 90, 299, 300], dtype=torch.int32)
    yield "cross-entropy", xent, (r(7, 301) * 3, labels, e(7), 301, 301, -100, 0.25), {"CHUNK": 128}, (7,)


LAUNCHES = list(launches())
