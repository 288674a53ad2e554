"""TPU: partial and masked stores, numbers of rows, windows that are no blocks; values on the interpreter, verdicts."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def masked(x, o, w, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + r * w + c, mask=c < w, other=0.0)
    tl.store(o + r * w + c, v * 2, mask=(c < w) & (v > 0))


@triton.jit
def by_flag(x, flag, o, w, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    if tl.load(flag + r) > 0:
        tl.store(o + r * w + c, tl.load(x + r * w + c, mask=c < w, other=0.0) * 2, mask=c < w)
    else:
        tl.store(o + r * w + c, 1.0, mask=(c < w) & (c > 3))


@triton.jit
def labels(x, y, o, g, w, ignored, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    label = tl.load(y + r)
    v = tl.load(x + r * w + c, mask=c < w, other=0.0)
    if label == ignored:
        tl.store(g + r * w + c, 0.0, mask=c < w)
        tl.store(o + r, 0.0)
        return
    tl.store(o + r, tl.sum(tl.where(c == label, v, 0.0), 0))
    tl.store(g + r * w + c, v - tl.where(c == label, 1.0, 0.0), mask=c < w)


@triton.jit
def logit_of_label(x, y, o, w):
    r = tl.program_id(0)
    tl.store(o + r, tl.load(x + r * w + tl.load(y + r)))


@triton.jit
def cross_entropy(x, y, loss, w, ignored, scale, CHUNK: tl.constexpr):
    r = tl.program_id(0)
    x += r * w
    label = tl.load(y + r)
    if label == ignored:
        for k in range(0, w, CHUNK):
            c = k + tl.arange(0, CHUNK)
            tl.store(x + c, 0.0, mask=c < w)
        tl.store(loss + r, 0.0)
        return
    most, total = float("-inf"), 0.0
    wanted = tl.load(x + label).to(tl.float32)
    for k in range(0, w, CHUNK):
        c = k + tl.arange(0, CHUNK)
        z = tl.load(x + c, mask=c < w, other=float("-inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(z))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(z - new))
        most = new
    tl.store(loss + r, most + tl.log(total) - wanted)
    for k in range(0, w, CHUNK):
        c = k + tl.arange(0, CHUNK)
        z = tl.load(x + c, mask=c < w, other=float("-inf")).to(tl.float32)
        p = tl.exp(z - most) / total
        tl.store(x + c, tl.where(c == label, p - 1.0, p) * scale, mask=c < w)


@triton.jit
def read_again(x, s, w, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    if tl.load(s + r) > 0:
        tl.store(x + r * w + c, 0.0, mask=c < w)
    v = tl.load(x + r * w + c, mask=c < w, other=0.0)
    tl.store(x + r * w + c, v + 1, mask=(c < w) & (v < 0.5))


@triton.jit
def half(x, o, w, H: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, H)
    tl.store(o + r * w + 5 + c, tl.load(x + r * w + 3 + c) * 3)


@triton.jit
def pairs(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    a = tl.load(x + 2 * i, mask=m)
    b = tl.load(x + 2 * i + 1, mask=m)
    tl.store(o + 2 * i, a - b, mask=m)
    tl.store(o + 2 * i + 1, a + b, mask=m)


@triton.jit
def backwards(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + n - 1 - i, mask=i < n), mask=i < n)


@triton.jit
def stencil(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    a = tl.load(x + i - 1, mask=m & (i > 0), other=0.0)
    b = tl.load(x + i + 1, mask=m & (i + 1 < n), other=0.0)
    tl.store(o + i, a + b - 2 * tl.load(x + i, mask=m), mask=m)


@triton.jit
def conv(x, w, o, n, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    k = tl.arange(0, K)
    a = tl.load(x + i[:, None] * S + k[None, :], mask=(i < n)[:, None], other=0.0)
    tl.store(o + i, tl.sum(a * tl.load(w + k)[None, :], 1), mask=i < n)


@triton.jit
def partial_sums(x, o, n, B: tl.constexpr):
    p = tl.program_id(0)
    i = p * B + tl.arange(0, B)
    tl.store(o + p, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


r = torch.randn


def launches():
    yield "masked", masked, (r(37, 77), r(37, 77), 77), {"B": 128}, (37,)
    yield "masked-few-rows", masked, (r(21, 77), r(37, 77), 77), {"B": 128}, (21,)
    yield "masked-blocks", masked, (r(700, 1030), r(700, 1030), 1030), {"B": 2048}, (700,)
    flags = torch.randint(-1, 2, (37,), dtype=torch.int32)
    yield "by-flag", by_flag, (r(37, 77), flags, r(37, 77), 77), {"B": 128}, (37,)
    y = torch.randint(0, 77, (37,), dtype=torch.int32)
    yield "labels", labels, (r(37, 77), y, r(37), r(37, 77), 77, int(y[3])), {"B": 128}, (37,)
    y = torch.randint(0, 7000, (1000,), dtype=torch.int32)
    yield "labels-blocks", labels, (r(1000, 700), y, r(1000), r(1000, 700), 700, 5), {"B": 1024}, (1000,)
    y = torch.randint(0, 77, (37,), dtype=torch.int32)
    yield "logit-of-label", logit_of_label, (r(37, 77), y, r(37), 77), {}, (37,)
    y = torch.randint(0, 301, (37,), dtype=torch.int32)
    y[3] = y[30] = -100
    args = (r(37, 301) * 3, y, r(37), 301, -100, 0.25)
    yield "cross-entropy", cross_entropy, args, {"CHUNK": 128}, (37,)
    args = (r(21, 5001) * 3, y[:21].clone(), r(21), 5001, -100, 0.25)
    yield "cross-entropy-long", cross_entropy, args, {"CHUNK": 512}, (21,)
    yield "read-again", read_again, (r(37, 77), flags, 77), {"B": 128}, (37,)
    yield "half", half, (r(37, 77), r(37, 77), 77), {"H": 32}, (37,)
    yield "half-blocks", half, (r(300, 5700), r(300, 5700), 5700), {"H": 512}, (290,)
    yield "pairs", pairs, (r(2000), r(2000), 900), {"B": 128}, (8,)
    yield "backwards", backwards, (r(1000), r(1000), 1000), {"B": 128}, (8,)
    yield "stencil", stencil, (r(1000), r(1000), 1000), {"B": 128}, (8,)
    yield "conv", conv, (r(1000), r(8), r(497), 496), {"K": 8, "S": 2, "B": 64}, (8,)
    yield "partial-sums", partial_sums, (r(1000), r(8), 1000), {"B": 128}, (8,)


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


def test_only_partial_stores_read_the_old_values():
    _, kernel, args, meta, grid = next(x for x in LAUNCHES if x[0] == "labels")
    source = kernel[grid].source(*args, target="tpu:v5e", **meta)
    assert "g_ref" not in source, "a condition and its opposite write all of it"
    _, kernel, args, meta, grid = next(x for x in LAUNCHES if x[0] == "masked")
    assert "jnp.where(gt, mul, o_ref[...])" in kernel[grid].source(*args, target="tpu:v5e", **meta)
