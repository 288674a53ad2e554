"""Loops that carry values on a TPU: values on the interpreter at odd sizes, verdicts of the real compiler."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from tests.frontend.on_tpu import against_cpu


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


LAUNCHES = list(launches())


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values(name, kernel, args, meta, grid):
    against_cpu(kernel, args, meta, grid)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target="tpu:v6e", **meta)
    assert verdict.verdict == "ok", str(verdict)
