"""Norms, activations, losses and optimisers, forward and backward, as training libraries write them."""

import torch
import torch.nn.functional as F

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def rms_bwd(
    dY, dys, X, xs, W, RSTD, dW, dws, dX, n_rows, n_cols, rows_per_program, offset, CAST: tl.constexpr, B: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    row_start = pid * rows_per_program
    row_end = min((pid + 1) * rows_per_program, n_rows)
    col = tl.arange(0, B)
    mask = col < n_cols
    dW_row = tl.zeros((B,), dtype=tl.float32)
    w = tl.load(W + col, mask=mask, other=0.0) + offset
    for row in range(row_start, row_end):
        dy = tl.load(dY + row * dys + col, mask=mask, other=0.0)
        x = tl.load(X + row * xs + col, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(RSTD + row)
        m = (dy * w).to(tl.float32)
        dx = r * m
        dx += r * (-(1 / n_cols) * r * r * tl.sum(m * x, axis=0) * x)
        dW_row += dy * (x * r)
        tl.store(dX + row * xs + col, dx, mask=mask)
    tl.store(dW + pid * dws + col, dW_row, mask=mask)


def _rms(R, N, P, dt=torch.float32):
    x = torch.randn(R, N, dtype=torch.float64, requires_grad=True)
    w = torch.randn(N, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(R, N, dtype=torch.float64)
    rstd = torch.rsqrt((x * x).mean(1) + 1e-6)
    y = x * rstd[:, None] * w
    y.backward(dy)
    rp = (R + P - 1) // P
    dW = torch.full((P, N), 7.0)
    dX = torch.empty(R, N)
    rms_bwd[(P,)](
        dy.float(),
        N,
        x.detach().float(),
        N,
        w.detach().float(),
        rstd.detach().float(),
        dW,
        N,
        dX,
        R,
        N,
        rp,
        0.0,
        CAST=1,
        B=triton.next_power_of_2(N),
    )
    return [(dX, x.grad), (dW.sum(0), w.grad)]


def case_rms_bwd():
    return _rms(37, 100, 4)


def case_rms_bwd_more_programs():
    return _rms(5, 33, 4)


def case_rms_bwd_inplace():
    R, N, P = 10, 40, 3
    x = torch.randn(R, N, dtype=torch.float64, requires_grad=True)
    w = torch.randn(N, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(R, N, dtype=torch.float64)
    rstd = torch.rsqrt((x * x).mean(1) + 1e-6)
    y = x * rstd[:, None] * w
    y.backward(dy)
    dW = torch.full((P, N), 7.0)
    dX = dy.float()
    rms_bwd[(P,)](
        dX, N, x.detach().float(), N, w.detach().float(), rstd.detach().float(), dW, N, dX, R, N, 4, 0.0, CAST=1, B=64
    )
    return [(dX, x.grad), (dW.sum(0), w.grad)]


@triton.jit
def ln_fwd(X, Y, W, Bi, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
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
        b = tl.load(Bi + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


def _ln(R, N, dt, BL):
    x = torch.randn(R, N).to(dt)
    w, b = torch.randn(N).to(dt), torch.randn(N).to(dt)
    y = torch.empty_like(x)
    m = torch.empty(R)
    r = torch.empty(R)
    ln_fwd[(R,)](x, y, w, b, m, r, x.stride(0), N, 1e-5, BLOCK=BL)
    ref = F.layer_norm(x.double(), (N,), w.double(), b.double(), 1e-5)
    tol = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dt]
    return [(y, ref, tol), (m, x.double().mean(1), 1e-4)]


def case_ln_multi():
    return _ln(7, 300, torch.float32, 128)


def case_ln_fp16():
    return _ln(3, 1, torch.float16, 16)


def case_ln_bf16():
    return _ln(5, 257, torch.bfloat16, 64)


@triton.jit
def xent(
    X,
    xs,
    Y,
    Wt,
    loss,
    zloss,
    V,
    ignore_index,
    ls: tl.constexpr,
    lse_sq,
    softcap,
    weight_sum,
    n_non_ignore,
    HAS_W: tl.constexpr,
    HAS_CAP: tl.constexpr,
    RED: tl.constexpr,
    RETZ: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    Y += pid
    y = tl.load(Y)
    X += pid * xs
    if y == ignore_index:
        for i in range(0, V, BLOCK):
            o = i + tl.arange(0, BLOCK)
            tl.store(X + o, 0.0, mask=o < V)
        return
    loss += pid
    if RETZ:
        zloss += pid
    if HAS_W:
        wy = tl.load(Wt + y).cast(tl.float32)
    m = float("-inf")
    d = 0.0
    ori = tl.load(X + y).cast(tl.float32)
    if HAS_CAP:
        ori = softcap * tl.extra.cuda.libdevice.tanh(ori / softcap)
    ssum = 0.0
    eps = ls / V
    for i in range(0, V, BLOCK):
        o = i + tl.arange(0, BLOCK)
        xb = tl.load(X + o, mask=o < V, other=float("-inf")).cast(tl.float32)
        if HAS_CAP:
            xb = softcap * tl.extra.cuda.libdevice.tanh(xb / softcap)
        bm = tl.max(xb)
        if ls > 0:
            if HAS_W:
                wb = tl.load(Wt + o, mask=o < V)
                ssum += tl.sum(tl.where(o < V, -eps * xb * wb, 0.0))
            else:
                ssum += tl.sum(tl.where(o < V, -eps * xb, 0.0))
        mn = tl.maximum(m, bm)
        d = d * tl.exp(m - mn) + tl.sum(tl.exp(xb - mn))
        m = mn
    lse = m + tl.log(d)
    for i in range(0, V, BLOCK):
        o = i + tl.arange(0, BLOCK)
        xb = tl.load(X + o, mask=o < V, other=float("-inf")).cast(tl.float32)
        if HAS_CAP:
            inter = tl.extra.cuda.libdevice.tanh(xb / softcap)
            xb = softcap * inter
        p = tl.exp(xb - m) / d
        p += 2 * lse_sq * lse * p
        p += -eps
        p = tl.where(o != y, p, p - (1 - ls))
        if RED == "mean":
            p = p / n_non_ignore
        if HAS_CAP:
            p = p * (1 - inter * inter)
        tl.store(X + o, p, mask=o < V)
    tl.debug_barrier()
    l = lse - ori
    if ls > 0:
        smooth = ssum + ls * lse
        l = l * (1 - ls) + smooth
    z = lse_sq * lse * lse
    l += z
    if RED == "mean":
        l = l / n_non_ignore
    tl.store(loss, l)
    if RETZ:
        tl.store(zloss, z / n_non_ignore)


def _xent(R, V, BL, ls, cap, z, dt=torch.float32):
    x = (torch.randn(R, V) * 3).to(dt)
    lab = torch.randint(0, V, (R,))
    lab[1] = -100
    xr = x.double().requires_grad_()
    xc = xr if not cap else cap * torch.tanh(xr / cap)
    nn = (lab != -100).sum().item()
    l = F.cross_entropy(xc, lab, ignore_index=-100, label_smoothing=ls, reduction="none")
    lse = torch.logsumexp(xc, 1)
    zz = torch.where(lab != -100, z * lse * lse, 0.0)
    tot = (l + zz) / nn
    tot.sum().backward()
    loss = torch.zeros(R)
    zl = torch.zeros(R)
    xent[(R,)](
        x,
        V,
        lab,
        None,
        loss,
        zl,
        V,
        -100,
        ls,
        z,
        cap or 0.0,
        0.0,
        nn,
        HAS_W=False,
        HAS_CAP=bool(cap),
        RED="mean",
        RETZ=True,
        BLOCK=BL,
    )
    return [(loss, tot), (zl, zz / nn), (x, xr.grad, 1e-4 if dt == torch.float32 else 1e-2)]


def case_xent_plain():
    return _xent(6, 301, 128, 0.0, None, 0.0)


def case_xent_all():
    return _xent(6, 301, 512, 0.1, 30.0, 1e-3)


def case_xent_loop_all_bf16():
    return _xent(9, 77, 32, 0.1, 5.0, 1e-3, torch.bfloat16)


@triton.jit
def kl(y_ptr, ys, gt, gs, loss, lst, n, eps, BLOCK: tl.constexpr, LOG: tl.constexpr, RED: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    y_ptr += pid * ys
    gt += pid * gs
    loss += pid * lst
    base = tl.arange(0, BLOCK)
    s = 0.0
    for i in range(0, n, BLOCK):
        o = i + base
        mask = o < n
        y = tl.load(y_ptr + o, mask=mask, other=0.0)
        t = tl.load(gt + o, mask=mask, other=0.0)
        if not LOG:
            l = t * (tl.log(tl.maximum(t, eps)) - y)
        else:
            l = tl.exp(t) * (t - y)
        if RED == 0:
            tl.store(loss + o, l, mask=mask)
        else:
            s += tl.sum(l, axis=0)
    if RED != 0:
        tl.store(loss, s)


def case_kl():
    out = []
    for LOG in (False, True):
        for red in (0, 1):
            y = torch.log_softmax(torch.randn(5, 70), 1)
            t = torch.softmax(torch.randn(5, 70), 1)
            t = t.log() if LOG else t
            l = torch.empty(5, 70) if red == 0 else torch.empty(5)
            kl[(5,)](y, 70, t, 70, l, l.stride(0), 70, 1e-10, BLOCK=32, LOG=LOG, RED=red)
            ref = F.kl_div(y.double(), t.double(), reduction="none", log_target=LOG)
            out.append((l, ref if red == 0 else ref.sum(1)))
    return out


@triton.jit
def jsd(
    X,
    xs,
    Y,
    ys,
    loss,
    lss,
    dX,
    dxs,
    label,
    beta: tl.constexpr,
    nni,
    ignore_index: tl.constexpr,
    n,
    BLOCK: tl.constexpr,
    HAS: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    X += pid * xs
    dX += pid * dxs
    Y += pid * ys
    loss += pid * lss
    label += pid
    if HAS:
        lab = tl.load(label)
        if lab == ignore_index:
            for i in range(0, n, BLOCK):
                o = i + tl.arange(0, BLOCK)
                tl.store(dX + o, 0.0, mask=o < n)
            return
    for i in range(0, n, BLOCK):
        o = i + tl.arange(0, BLOCK)
        mask = o < n
        x = tl.load(X + o, mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.load(Y + o, mask=mask, other=float("-inf")).to(tl.float32)
        if beta == 0.0:
            ymax = tl.max(y, axis=0)
            ys_ = y - ymax
            yp = tl.exp(ys_) * tl.exp(ymax)
            l = yp * (y - x)
            dx = -yp
        else:
            mv = tl.maximum(tl.max(x, axis=0), tl.max(y, axis=0))
            em = tl.exp(mv)
            Q = tl.exp(x - mv) * em
            P = tl.exp(y - mv) * em
            M = beta * P + (1 - beta) * Q
            lm = tl.log(M)
            l = beta * P * y + (1 - beta) * Q * x - M * lm
            dx = (1 - beta) * Q * (x - lm)
        sc = 1.0 / nni
        tl.store(loss + o, l * sc, mask=mask)
        tl.store(dX + o, dx * sc, mask=mask)


def case_jsd():
    out = []
    for beta in (0.0, 0.5, 0.3):
        x = torch.log_softmax(torch.randn(6, 50), 1)
        y = torch.log_softmax(torch.randn(6, 50), 1)
        lab = torch.tensor([1, 2, -100, 4, 5, -100])
        l = torch.zeros(6, 50)
        dx = torch.full((6, 50), 9.0)
        jsd[(6,)](x, 50, y, 50, l, 50, dx, 50, lab, beta, 4, -100, 50, BLOCK=32, HAS=True)
        xr = x.double().requires_grad_()
        yd = y.double()
        if beta == 0:
            L = yd.exp() * (yd - xr)
        else:
            P, Q = yd.exp(), xr.exp()
            M = beta * P + (1 - beta) * Q
            L = beta * P * yd + (1 - beta) * Q * xr - M * M.log()
        L = torch.where((lab != -100)[:, None], L / 4, 0.0)
        out.append((l, L))
        if beta == 0:
            L.sum().backward()
            out.append((dx, xr.grad))
    return out


@triton.jit
def gn_fwd(Y, yrs, ycs, X, xrs, xcs, Mean, Rstd, hs, cpg, W, Bi, eps, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    g = tl.program_id(1)
    X += b * xrs + g * xcs
    Y += b * yrs + g * ycs
    br = tl.arange(0, BLOCK)
    s = 0.0
    ss = 0.0
    for i in tl.range(0, hs, BLOCK):
        o = i + br
        x = tl.load(X + o, mask=o < hs, other=0.0)
        s += tl.sum(x)
        ss += tl.sum(x * x)
    m = s / hs
    var = (ss / hs) - (m * m)
    rstd = tl.rsqrt(var + eps)
    hpc = hs // cpg
    for c in tl.range(g * cpg, (g + 1) * cpg):
        w = tl.load(W + c)
        bb = tl.load(Bi + c)
        for i in range(0, hpc, BLOCK):
            o = i + br
            mask = o < hpc
            x = tl.load(X + o, mask=mask, other=m)
            tl.store(Y + o, (x - m) * rstd * w + bb, mask=mask)
        X += hpc
        Y += hpc
    tl.store(Mean + b * tl.num_programs(1) + g, m)
    tl.store(Rstd + b * tl.num_programs(1) + g, rstd)


def case_groupnorm():
    Bn, C, H, G = 3, 12, 35, 4
    x = torch.randn(Bn, C, H)
    w, b = torch.randn(C), torch.randn(C)
    y = torch.empty_like(x)
    m = torch.empty(Bn, G)
    r = torch.empty(Bn, G)
    hs = C // G * H
    gn_fwd[(Bn, G)](y, C * H, hs, x, C * H, hs, m, r, hs, C // G, w, b, 1e-5, BLOCK=16)
    return [(y, F.group_norm(x.double(), G, w.double(), b.double())), (m, x.double().view(Bn, G, -1).mean(2))]


@triton.jit
def tvd(
    P,
    ps,
    Q,
    qs,
    loss,
    dP,
    label,
    ignore: tl.constexpr,
    n,
    nni,
    BLOCK: tl.constexpr,
    HAS: tl.constexpr,
    RED: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    P += pid * ps
    Q += pid * qs
    loss += pid * ps
    dP += pid * ps
    if HAS:
        y = tl.load(label + pid)
        if y == ignore:
            for i in range(0, n, BLOCK):
                o = i + tl.arange(0, BLOCK)
                tl.store(dP + o, 0.0, mask=o < n)
                tl.store(loss + o, 0.0, mask=o < n)
            return
    for i in range(0, n, BLOCK):
        o = i + tl.arange(0, BLOCK)
        mask = o < n
        p = tl.load(P + o, mask=mask, other=0.0)
        q = tl.load(Q + o, mask=mask, other=0.0)
        l = 0.5 * tl.abs(p - q)
        g = tl.where(p > q, 0.5, -0.5)
        tl.store(loss + o, l, mask=mask)
        tl.store(dP + o, g / nni, mask=mask)


def case_tvd():
    p, q = torch.rand(4, 37), torch.rand(4, 37)
    lab = torch.tensor([0, -100, 3, 2])
    l = torch.empty(4, 37)
    d = torch.empty(4, 37)
    tvd[(4,)](p, 37, q, 37, l, d, lab, -100, 37, 3, BLOCK=16, HAS=True, RED="none")
    k = (lab != -100)[:, None]
    return [(l, torch.where(k, (p - q).abs() / 2, 0)), (d, torch.where(k, torch.where(p > q, 0.5, -0.5) / 3, 0))]


@triton.jit
def dyt_bwd(DY, DX, DA, DG, X, A, G, N: tl.constexpr, B: tl.constexpr, M):
    start = tl.program_id(0)
    np_ = tl.num_programs(0)
    col = tl.arange(0, B)
    mask = col < N
    a = tl.load(A).to(tl.float32)
    da = 0.0
    gamma = tl.load(G + col, mask=mask, other=0.0).to(tl.float32)
    dg = tl.zeros((B,), dtype=tl.float32)
    for r in tl.range(start, M, np_):
        x = tl.load(X + r * N + col, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + r * N + col, mask=mask, other=0.0).to(tl.float32)
        t = tl.extra.libdevice.tanh(x * a)
        dg += dy * t
        tmp = (1 - t * t) * dy * gamma
        da += tl.sum(x * tmp, 0)
        tl.store(DX + r * N + col, a * tmp, mask=mask)
    tl.store(DG + start * N + col, dg, mask=mask)
    tl.store(DA + start, da)


def case_dyt_bwd():
    M, N, P = 11, 50, 3
    x = torch.randn(M, N, dtype=torch.float64, requires_grad=True)
    a = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    g = torch.randn(N, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(M, N, dtype=torch.float64)
    (g * torch.tanh(a * x)).backward(dy)
    dx = torch.empty(M, N)
    da = torch.empty(P)
    dg = torch.empty(P, N)
    dyt_bwd[(P,)](dy.float(), dx, da, dg, x.detach().float(), a.detach().float(), g.detach().float(), N, 64, M)
    return [(dx, x.grad), (da.sum(0, keepdim=True), a.grad), (dg.sum(0), g.grad)]


@triton.jit
def sparsemax(X, xs, S, ss, O, os, n, B: tl.constexpr, W: tl.constexpr):
    pid = tl.program_id(0)
    X += pid * xs
    S += pid * ss
    O += pid * os
    o = tl.arange(0, B)
    mask = o < n
    z = tl.load(S + o, mask=mask, other=-float("inf")).to(tl.float32)
    zv = tl.where(mask, z, 0.0)
    cs = tl.cumsum(zv, 0)
    r = (o + 1).to(tl.float32)
    t = (cs - 1.0) / r
    sup = (z > t) & mask
    k = tl.sum(sup.to(tl.int32), 0)
    kc = tl.maximum(k, 1).to(tl.float32)
    s = tl.sum(tl.where(sup, z, 0.0), 0)
    tau = (s - 1.0) / kc
    x = tl.load(X + o, mask=mask, other=-float("inf")).to(tl.float32)
    tl.store(O + o, tl.maximum(x - tau, 0.0), mask=mask)


def case_sparsemax():
    x = torch.randn(5, 37)
    s = x.sort(1, descending=True)[0]
    o = torch.empty(5, 37)
    sparsemax[(5,)](x, 37, s, 37, o, 37, 37, B=64, W=4)
    c = s.double().cumsum(1)
    k = ((s * torch.arange(1, 38) + 1) > c).sum(1)
    tau = (c.gather(1, (k - 1)[:, None]) - 1) / k[:, None]
    return [(o, (x.double() - tau).clamp(min=0))]


@triton.jit
def sparsemax_sort(X, O, n, B: tl.constexpr):
    pid = tl.program_id(0)
    o = tl.arange(0, B)
    mask = o < n
    x = tl.load(X + pid * n + o, mask=mask, other=-float("inf"))
    z = tl.sort(x, descending=True)
    cs = tl.cumsum(tl.where(mask, z, 0.0), 0)
    sup = (z > (cs - 1.0) / (o + 1)) & mask
    k = tl.sum(sup.to(tl.int32), 0)
    tau = (tl.sum(tl.where(sup, z, 0.0), 0) - 1.0) / k
    tl.store(O + pid * n + o, tl.maximum(x - tau, 0.0), mask=mask)


def case_sparsemax_sort():
    x = torch.randn(5, 37)
    s = x.sort(1, descending=True)[0]
    o = torch.empty(5, 37)
    sparsemax_sort[(5,)](x, o, 37, B=64)
    c = s.double().cumsum(1)
    k = ((s * torch.arange(1, 38) + 1) > c).sum(1)
    tau = (c.gather(1, (k - 1)[:, None]) - 1) / k[:, None]
    return [(o, (x.double() - tau).clamp(min=0))]


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_bwd(dc, a, b, stride, n: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    dc += p * stride
    a += p * stride
    b += p * stride
    o = tl.arange(0, B)
    m = o < n
    d = tl.load(dc + o, mask=m, other=0)
    av = tl.load(a + o, mask=m, other=0).to(tl.float32)
    bv = tl.load(b + o, mask=m, other=0)
    sig = tl.sigmoid(av)
    s = av * sig
    tl.store(a + o, d * (s * (1 - sig) + sig) * bv, mask=m)
    tl.store(b + o, d * s, mask=m)


def case_swiglu_bwd_packed_views():
    R, N = 5, 33
    ab = torch.randn(R, 2 * N)
    av, bv = ab[:, :N], ab[:, N:]
    a = av.double().clone().requires_grad_()
    b = bv.double().clone().requires_grad_()
    dc = torch.randn(R, 2 * N)
    (F.silu(a) * b).backward(dc[:, :N].double())
    swiglu_bwd[(R,)](dc, av, bv, 2 * N, N, B=64)
    return [(ab, torch.cat([a.grad, b.grad], 1))]


@triton.jit
def rope(
    q,
    qs,
    k,
    ks,
    cos,
    cs,
    sin,
    sn,
    sl,
    bs: tl.constexpr,
    cbs: tl.constexpr,
    nq: tl.constexpr,
    nk: tl.constexpr,
    hd: tl.constexpr,
    pq: tl.constexpr,
    pk: tl.constexpr,
    phd: tl.constexpr,
    BACK: tl.constexpr = False,
):
    pid = tl.program_id(0).to(tl.int64)
    q = q + pid * qs
    k = k + pid * ks
    bi = pid // sl
    ri = pid % sl
    cos = cos + tl.where(cbs == 1, ri * cs, bi * (sl * cs) + ri * cs)
    sin = sin + tl.where(cbs == 1, ri * sn, bi * (sl * sn) + ri * sn)
    co = tl.arange(0, phd // 2)
    cm = co < hd // 2
    c = tl.load(cos + co, mask=cm, other=0)
    s = tl.load(sin + co, mask=cm, other=0)
    fq = tl.arange(0, pq)[:, None] * hd + tl.arange(0, phd // 2)[None, :]
    fk = tl.arange(0, pk)[:, None] * hd + tl.arange(0, phd // 2)[None, :]
    mq = (tl.arange(0, pq)[:, None] < nq) & (tl.arange(0, phd // 2)[None, :] < hd // 2)
    mk = (tl.arange(0, pk)[:, None] < nk) & (tl.arange(0, phd // 2)[None, :] < hd // 2)
    q1 = tl.load(q + fq, mask=mq, other=0).to(s.dtype)
    k1 = tl.load(k + fk, mask=mk, other=0).to(s.dtype)
    sq = fq + (hd // 2)
    sk = fk + (hd // 2)
    q2 = tl.load(q + sq, mask=mq, other=0).to(s.dtype)
    k2 = tl.load(k + sk, mask=mk, other=0).to(s.dtype)
    if not BACK:
        tl.store(q + fq, q1 * c - q2 * s, mask=mq)
        tl.store(q + sq, q2 * c + q1 * s, mask=mq)
        tl.store(k + fk, k1 * c - k2 * s, mask=mk)
        tl.store(k + sk, k2 * c + k1 * s, mask=mk)
    else:
        tl.store(q + fq, q1 * c + q2 * s, mask=mq)
        tl.store(q + sq, q2 * c - q1 * s, mask=mq)
        tl.store(k + fk, k1 * c + k2 * s, mask=mk)
        tl.store(k + sk, k2 * c - k1 * s, mask=mk)


def _rope(cbs):
    Bn, S, nq, nk, hd = 2, 5, 6, 3, 20
    q = torch.randn(Bn, S, nq, hd)
    k = torch.randn(Bn, S, nk, hd)
    th = torch.randn(cbs, S, hd // 2)
    th = torch.cat([th, th], -1)
    c, s = th.cos(), th.sin()
    rot = lambda x: torch.cat([-x[..., hd // 2 :], x[..., : hd // 2]], -1)
    f = lambda x: x * c[:, :, None] + rot(x) * s[:, :, None]
    wq, wk = f(q.double()), f(k.double())
    rope[(Bn * S,)](q, nq * hd, k, nk * hd, c, hd, s, hd, S, Bn, cbs, nq, nk, hd, 8, 4, 32)
    return [(q, wq), (k, wk)]


def case_rope1():
    return _rope(1)


def case_rope2():
    return _rope(2)


@triton.jit
def softmax_mb(X, O, n, stride, B: tl.constexpr):
    r = tl.program_id(0)
    m = tl.full([B], -float("inf"), tl.float32)
    for s in range(0, n, B):
        o = s + tl.arange(0, B)
        m = tl.maximum(m, tl.load(X + r * stride + o, mask=o < n, other=-float("inf")))
    mm = tl.max(m, 0)
    acc = tl.zeros([B], tl.float32)
    for s in range(0, n, B):
        o = s + tl.arange(0, B)
        acc += tl.exp(tl.load(X + r * stride + o, mask=o < n, other=-float("inf")) - mm)
    d = tl.sum(acc)
    for s in range(0, n, B):
        o = s + tl.arange(0, B)
        tl.store(O + r * stride + o, tl.exp(tl.load(X + r * stride + o, mask=o < n) - mm) / d, mask=o < n)


def case_softmax_mb():
    x = torch.randn(4, 101)
    o = torch.empty_like(x)
    softmax_mb[(4,)](x, o, 101, 101, B=32)
    return [(o, x.double().softmax(1))]


def case_softmax_mb_inplace_t():
    base = torch.randn(4, 120)
    x = base[:, 7:108]
    w = x.double().softmax(1)
    b0 = base.clone()
    softmax_mb[(4,)](x, x, 101, 120, B=32)
    b0[:, 7:108] = w.float()
    return [(base, b0)]


def case_softmax_inf_nan():
    x = torch.randn(4, 101)
    x[1, 3] = float("inf")
    x[2, :] = -float("inf")
    x[3, 50] = float("nan")
    o = torch.empty_like(x)
    softmax_mb[(4,)](x, o, 101, 101, B=32)
    w = x.double().softmax(1)
    return [(o, w)]


@triton.jit
def adamw(p, g, m, v, lr, b1, b2, eps, wd, step, n, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    k = i < n
    pv = tl.load(p + i, mask=k)
    gv = tl.load(g + i, mask=k)
    mv = tl.load(m + i, mask=k)
    vv = tl.load(v + i, mask=k)
    pv *= 1 - lr * wd
    mv = b1 * mv + (1 - b1) * gv
    vv = b2 * vv + (1 - b2) * gv * gv
    c1 = 1 - tl.exp(step * tl.log(b1))
    c2 = 1 - tl.exp(step * tl.log(b2))
    tl.store(p + i, pv - lr * (mv / c1) / (tl.sqrt(vv / c2) + eps), mask=k)
    tl.store(m + i, mv, mask=k)
    tl.store(v + i, vv, mask=k)


def case_adamw():
    p = torch.randn(100)
    g = torch.randn(100)
    pp = torch.nn.Parameter(p.double().clone())
    opt = torch.optim.AdamW([pp], lr=1e-2, weight_decay=0.1)
    m, v = torch.zeros(100), torch.zeros(100)
    for s in range(1, 4):
        pp.grad = g.double()
        opt.step()
        adamw[(4,)](p, g, m, v, 1e-2, 0.9, 0.999, 1e-8, 0.1, s, 100, B=32)
    return [(p, pp)]
