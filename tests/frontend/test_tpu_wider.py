"""Attention over small blocks of keys takes several of them a turn on a TPU: values, and which loops may not."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat.aliases import aliases_of, memory_of
from frontend_triton_compat.launch_grid import grid_of
from frontend_triton_compat.parse import parse
from frontend_triton_compat.schedule import wider
from frontend_triton_compat.spec import check
from tests.frontend.on_tpu import against_cpu
from tests.frontend.test_tpu_loops import LAUNCHES


@triton.jit
def windowed(
    q, k, v, o, lse, slopes, scale, seq, WINDOW: tl.constexpr, FORM: tl.constexpr,
    BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Keys of a window, in one of the forms that kernels guard empty rows with."""
    tile = tl.program_id(0)
    base = tl.program_id(1) * seq * D
    rq = tile * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    tq = tl.load(q + base + rq[:, None] * D + d[None, :], mask=rq[:, None] < seq, other=0.0)
    slope = tl.load(slopes + tl.program_id(1))
    top = tl.full([BQ], float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    for start in range(0, tl.minimum((tile + 1) * BQ, seq), BK):
        rk = start + tl.arange(0, BK)
        tk = tl.load(k + base + rk[None, :] * D + d[:, None], mask=rk[None, :] < seq, other=0.0)
        s = tl.dot(tq, tk, input_precision="ieee") * scale
        s += slope * (rk[None, :] - rq[:, None]).to(tl.float32)
        seen = (rq[:, None] >= rk[None, :]) & (rq[:, None] - rk[None, :] < WINDOW) & (rk[None, :] < seq)
        if FORM == "finite":
            s += tl.where(seen, 0.0, -1.0e6)
            new = tl.maximum(top, tl.max(s, 1))
            kept = new
        else:
            s = tl.where(seen, s, float("-inf"))
            new = tl.maximum(top, tl.max(s, 1))
            kept = tl.where(new == float("-inf"), 0.0, new) if FORM == "eq" else tl.where(new > float("-inf"), new, 0.0)
        p = tl.exp(s - kept[:, None])
        shrink = tl.exp(top - kept)
        tv = tl.load(v + base + rk[:, None] * D + d[None, :], mask=rk[:, None] < seq, other=0.0)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(tv.dtype), tv, acc * shrink[:, None], input_precision="ieee")
        top = new
    tl.store(lse + tl.program_id(1) * seq + rq, top + tl.log(total), mask=rq < seq)
    tl.store(o + base + rq[:, None] * D + d[None, :], acc / total[:, None], mask=rq[:, None] < seq)


@triton.jit
def _keys(acc, total, top, tq, kp, vp, tile, scale, STAGE: tl.constexpr, SEQ: tl.constexpr, BQ: tl.constexpr,
          BK: tl.constexpr):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, tile * BQ
    elif STAGE == 2:
        lo, hi = tile * BQ, (tile + 1) * BQ
        kp = tl.advance(kp, (0, lo))
        vp = tl.advance(vp, (lo, 0))
    else:
        lo, hi = 0, SEQ
    for start in range(lo, hi, BK):
        s = tl.dot(tq, tl.load(kp), input_precision="ieee")
        if STAGE == 2:
            seen = (tile * BQ + tl.arange(0, BQ))[:, None] >= (start + tl.arange(0, BK))[None, :]
            s = s * scale + tl.where(seen, 0, -1.0e6)
            new = tl.maximum(top, tl.max(s, 1))
            s -= new[:, None]
        else:
            new = tl.maximum(top, tl.max(s, 1) * scale)
            s = s * scale - new[:, None]
        p = tl.math.exp2(s)
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(tl.float32), tl.load(vp), acc, input_precision="ieee")
        top = new
        kp = tl.advance(kp, (0, BK))
        vp = tl.advance(vp, (BK, 0))
    return acc, total, top


@triton.jit
def staged(q, k, v, o, m, scale, STAGE: tl.constexpr, RAW: tl.constexpr, SEQ: tl.constexpr, BQ: tl.constexpr,
           BK: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """Blocks without a mask first, those on the diagonal after them."""
    tile = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * SEQ * D
    qp = tl.make_block_ptr(q + base, (SEQ, D), (D, 1), (tile * BQ, 0), (BQ, D), (1, 0))
    kp = tl.make_block_ptr(k + base, (D, SEQ), (1, D), (0, 0), (D, BK), (0, 1))
    vp = tl.make_block_ptr(v + base, (SEQ, D), (D, 1), (0, 0), (BK, D), (1, 0))
    op = tl.make_block_ptr(o + base, (SEQ, D), (D, 1), (tile * BQ, 0), (BQ, D), (1, 0))
    top = tl.zeros([BQ], tl.float32) - float("inf")
    total = tl.zeros([BQ], tl.float32) + 1.0
    acc = tl.zeros([BQ, D], tl.float32)
    tq = tl.load(qp)
    if STAGE & 1:
        acc, total, top = _keys(acc, total, top, tq, kp, vp, tile, scale, 4 - STAGE, SEQ, BQ, BK)
    if STAGE & 2:
        acc, total, top = _keys(acc, total, top, tq, kp, vp, tile, scale, 2, SEQ, BQ, BK)
    rows = tl.program_id(1) * SEQ + tile * BQ + tl.arange(0, BQ)
    tl.store(m + rows, top if RAW else top + tl.math.log2(total))
    tl.store(op, acc / total[:, None])


@triton.jit
def pointers(q, k, v, o, seq, groups, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr):
    """Tiles of pointers that move on; several heads of queries share keys; turns are counted."""
    head = tl.program_id(1)
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    n, d = tl.arange(0, BK), tl.arange(0, D)
    tq = tl.load(q + head * seq * D + rq[:, None] * D + d[None, :], mask=rq[:, None] < seq, other=0.0)
    kp = k + head // groups * seq * D + n[:, None] * D + d[None, :]
    vp = v + head // groups * seq * D + n[:, None] * D + d[None, :]
    top = tl.full([BQ], -1e30, tl.float32)
    total = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    for i in range(tl.cdiv(seq, BK)):
        inside = i * BK + n < seq
        s = tl.dot(tq, tl.trans(tl.load(kp, mask=inside[:, None], other=0.0)), input_precision="ieee") * 0.25
        s = tl.where(inside[None, :], s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        shrink = tl.exp(top - new)
        total = tl.fma(total, shrink, tl.sum(p, 1))
        acc *= shrink[:, None]
        acc += tl.dot(p, tl.load(vp, mask=inside[:, None], other=0.0), input_precision="ieee")
        top = new
        kp += BK * D
        vp += BK * D
    tl.store(o + head * seq * D + rq[:, None] * D + d[None, :], acc / total[:, None], mask=rq[:, None] < seq)


@triton.jit
def biased(q, k, v, bias, o, seq, LAW: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr):
    """Recurrences whose turns can't be taken together: an infinite bias, a decay, a turn's number, a norm a turn."""
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    tq = tl.load(q + rq[:, None] * D + d[None, :], mask=rq[:, None] < seq, other=0.0)
    top = tl.full([BQ], float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    for start in range(0, seq, BK):
        rk = start + tl.arange(0, BK)
        tk = tl.load(k + rk[:, None] * D + d[None, :], mask=rk[:, None] < seq, other=0.0)
        tv = tl.load(v + rk[:, None] * D + d[None, :], mask=rk[:, None] < seq, other=0.0)
        s = tl.where(rk[None, :] < seq, tl.dot(tq, tl.trans(tk), input_precision="ieee"), float("-inf"))
        if LAW == "bias":
            s += tl.load(bias + rk, mask=rk < seq, other=0.0)[None, :]
        if LAW == "turn":
            s += start * 0.01
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        shrink = tl.exp(top - new)
        if LAW == "decay":
            shrink = shrink * 0.9
        if LAW == "base":
            shrink = tl.exp2(top - new)
        if LAW == "late":
            p = tl.exp(s - top[:, None])
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p, tv, input_precision="ieee")
        if LAW == "norm":
            acc = acc / total[:, None]
        top = new
    tl.store(o + rq[:, None] * D + d[None, :], acc / total[:, None], mask=rq[:, None] < seq)


def kernel_of(kernel, args, meta, grid, from_zero=False):
    """The tile IR of a launch, and whether its loops take several chunks a turn."""
    call = kernel._signature.call(args, meta, placeless=True)
    params = {p.name: p for p in call.params}
    ir = parse(kernel.__translated__, params, grid_of(grid, call.meta, None))
    memories = {name: memory_of(name, a, exact=True) for name, a in call.arrays.items()}
    changed = wider(ir, memories, aliases_of(call).same, from_zero)
    check(ir)  # what is written keeps the law of the IR
    return ir, changed


def widens(kernel, args, meta, grid):
    return kernel_of(kernel, args, meta, grid)[1]


def qkv(heads, seq, d, kv=None):
    torch.manual_seed(seq)
    return [torch.randn(n, seq, d) for n in (heads, kv or heads, kv or heads)] + [torch.empty(heads, seq, d)]


@pytest.mark.parametrize("form,window,seq", [("eq", 40, 203), ("gt", 7, 150), ("finite", 33, 170)])
def test_windows(form, window, seq):
    lse, slopes = torch.empty(2, seq), torch.tensor([0.1, 0.02])
    meta = {"WINDOW": window, "FORM": form, "BQ": 32, "BK": 16, "D": 32}
    args = (*qkv(2, seq, 32), lse, slopes, 0.2, seq)
    grid = (triton.cdiv(seq, 32), 2)
    assert widens(windowed, args, meta, grid)
    against_cpu(windowed, args, meta, grid)
    q, k, v = args[:3]
    i = torch.arange(seq)
    gap = i[:, None] - i[None, :]
    s = q.double() @ k.double().mT * 0.2 - slopes.double()[:, None, None] * gap
    s = s.masked_fill((gap < 0) | (gap >= window), float("-inf"))
    torch.testing.assert_close(args[3].double(), s.softmax(-1) @ v.double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse.double(), s.logsumexp(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stage,raw", [(1, False), (3, False), (1, True)])
def test_stages(stage, raw):
    """The extreme times a scale of either sign: fine where only quotients and logarithms of sums are stored."""
    meta = {"STAGE": stage, "RAW": raw, "SEQ": 160, "BQ": 32, "BK": 16, "D": 32}
    args = (*qkv(2, 160, 32), torch.empty(2, 160), 0.3)
    assert widens(staged, args, meta, (5, 2)) == (not raw)
    against_cpu(staged, args, meta, (5, 2))


def test_pointers_that_move_on():
    args = (*qkv(4, 75, 32, 2), 75, 2)
    meta = {"BQ": 32, "BK": 16, "D": 32}
    assert widens(pointers, args, meta, (3, 4))
    against_cpu(pointers, args, meta, (3, 4))
    k, v = (x.repeat_interleave(2, 0) for x in args[1:3])
    want = torch.nn.functional.scaled_dot_product_attention(args[0], k, v, scale=0.25)
    torch.testing.assert_close(args[3], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("law", ["bias", "turn", "decay", "base", "late", "norm"])
def test_other_recurrences_stay(law):
    q, k, v, o = (x[0] for x in qkv(1, 75, 32))
    args = (q, k, v, torch.randn(75), o, 75)
    meta = {"LAW": law, "BQ": 32, "BK": 16, "D": 32}
    assert not widens(biased, args, meta, (3,))
    assert widens(biased, args, {**meta, "LAW": ""}, (3,))


def test_which_loops_of_other_kernels():
    found = {name for name, kernel, args, meta, grid in LAUNCHES if widens(kernel, args, meta, grid)}
    assert found == {
        "attention-False", "attention-True", "attention-heads-inside", "attention-block-pointers",
    }  # fmt: skip


@pytest.mark.parametrize("form,window", [("eq", 700), ("finite", 2000)])
def test_steps_with_statements_of_their_own(form, window):
    """Where few turns are run in all, every step along the queries knows how many are its own."""
    seq = 1300
    meta = {"WINDOW": window, "FORM": form, "BQ": 32, "BK": 128, "D": 16}
    args = (*qkv(1, seq, 16), torch.empty(1, seq), torch.tensor([0.01]), 0.2, seq)
    grid = (triton.cdiv(seq, 32), 1)
    source = windowed[grid].source(*args, target="tpu:v6e", **meta)
    assert "== 1)" in source and "fori_loop" not in source
    assert "fori_loop" in windowed[grid].source(*args, target="tpu:7x", **meta)
    for target in ("tpu:v6e", "tpu:7x"):
        against_cpu(windowed, args, meta, grid, target)


@triton.jit
def sliding(
    q, k, v, o, scale, seq, WINDOW: tl.constexpr, FORM: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
    D: tl.constexpr,
):  # fmt: skip
    """The loop begins at the window's first key, wherever that is."""
    tile = tl.program_id(0)
    base = tl.program_id(1) * seq * D
    rq = tile * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    tq = tl.load(q + base + rq[:, None] * D + d[None, :], mask=rq[:, None] < seq, other=0.0)
    top = tl.full([BQ], float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    begin = tl.maximum(tile * BQ - WINDOW + (2 if FORM == "late" else 1), 0)
    if FORM == "aligned":
        begin = begin // BK * BK
    for start in range(begin, tl.minimum((tile + 1) * BQ, seq), BK):
        rk = start + tl.arange(0, BK)
        tk = tl.load(k + base + rk[None, :] * D + d[:, None], mask=rk[None, :] < seq, other=0.0)
        s = tl.dot(tq, tk, input_precision="ieee") * scale
        seen = (rq[:, None] >= rk[None, :]) & (rq[:, None] - rk[None, :] < WINDOW) & (rk[None, :] < seq)
        s = tl.where(seen, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        kept = new if FORM == "bare" else tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(s - kept[:, None])
        shrink = tl.exp(top - kept)
        tv = tl.load(v + base + rk[:, None] * D + d[None, :], mask=rk[:, None] < seq, other=0.0)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(tv.dtype), tv, acc * shrink[:, None], input_precision="ieee")
        top = new
    tl.store(o + base + rq[:, None] * D + d[None, :], acc / total[:, None], mask=rq[:, None] < seq)


@pytest.mark.parametrize(
    "form,seq,window", [("any", 203, 45), ("aligned", 203, 45), ("any", 75, 1), ("any", 2100, 600)]
)
def test_windows_that_slide(form, seq, window):
    long = seq > 1000
    meta = {"WINDOW": window, "FORM": form, "BQ": 32, "BK": 128 if long else 16, "D": 16}
    args = (*qkv(1, seq, 16), 0.3, seq)
    grid = (triton.cdiv(seq, 32), 1)
    for target in ("tpu:v6e", "tpu:7x") if long else ("tpu:v5e",):
        against_cpu(sliding, args, meta, grid, target)
    i = torch.arange(seq)
    gap = i[:, None] - i[None, :]
    s = (args[0].double() @ args[1].double().mT * 0.3).masked_fill((gap < 0) | (gap >= window), float("-inf"))
    torch.testing.assert_close(args[3].double(), s.softmax(-1) @ args[2].double(), rtol=1e-4, atol=1e-4)


def test_which_windows_may_begin_at_zero():
    """Not where a row sees keys that the loop leaves out, nor where an empty row becomes NaN."""
    args = (*qkv(1, 203, 16), 0.3, 203)
    for form, may in (("any", True), ("aligned", True), ("late", False), ("bare", False)):
        meta = {"WINDOW": 45, "FORM": form, "BQ": 32, "BK": 16, "D": 16}
        assert kernel_of(sliding, args, meta, (7, 1), from_zero=True)[1] == may


@pytest.mark.tpu_offline
def test_the_compiler_takes_it():
    pytest.importorskip("libtpu")
    meta = {"WINDOW": 40, "FORM": "eq", "BQ": 32, "BK": 16, "D": 128}
    args = (*qkv(2, 700, 128), torch.empty(2, 700), torch.empty(2), 0.2, 700)
    verdict = windowed[(22, 2)].check(*args, target="tpu:v6e", **meta)
    assert verdict.verdict == "ok", str(verdict)
