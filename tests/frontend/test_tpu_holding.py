"""Element types and whole-tile operations on a TPU: what is held as something else, what is made of rolls and products.

Each kernel's TPU form runs on Pallas' TPU interpreter and is held against the CPU form, at sizes with ragged edges; the
real compiler sees all of them.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import bridge
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic

N, B = 90, 128


@triton.jit
def arithmetic(x, y, o, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    ok = c < n
    a = tl.load(x + row * n + c, mask=ok, other=1)
    b = tl.load(y + row * n + c, mask=ok, other=1)
    z = (a + b) * a - b
    z = tl.where(z > a, z, -b)
    z = (z << 1) ^ (a & b) | (~b)
    d = tl.where(b == 0, 1, b).to(b.dtype)
    z = z + a // d + a % d + (a >> 2) + tl.maximum(a, b) - tl.minimum(a, b)
    tl.store(o + row * n + c, z, mask=ok)


@triton.jit
def conversions(x, o8, o16, ou, of, ob, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    ok = c < n
    a = tl.load(x + row * n + c, mask=ok, other=0)
    tl.store(o8 + row * n + c, a.to(tl.int8), mask=ok)
    tl.store(o16 + row * n + c, a.to(tl.int16), mask=ok)
    tl.store(ou + row * n + c, a.to(tl.int32).to(tl.uint8), mask=ok)
    tl.store(of + row * n + c, a.to(tl.bfloat16), mask=ok)
    tl.store(ob + row * n + c, a > 0, mask=ok)


@triton.jit
def reductions(x, total, most, at, least, odd, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    a = tl.load(x + row * n + c, mask=c < n, other=0)
    tl.store(total + row, tl.sum(a, axis=0))
    tl.store(most + row, tl.max(a, axis=0))
    tl.store(least + row, tl.min(a, axis=0))
    tl.store(at + row, tl.argmax(a, axis=0))
    if not a.dtype.is_floating():
        tl.store(odd + row, tl.xor_sum(a, axis=0))


@triton.jit
def labels(x, y, o, w, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    label = tl.load(y + row)
    a = tl.load(x + row * n + c, mask=c < n, other=0.0)
    tl.store(o + row, tl.where(label == -100, 0.0, tl.sum(tl.where(c == label, a, 0.0), axis=0)))
    tl.store(w + row, tl.where(label < 0, 0, label) + 1)


@triton.jit
def squares(y, w, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(y + i, mask=i < n, other=0)
    tl.store(w + i, a * a, mask=i < n)


@triton.jit
def bits(x, y, o, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    ok = c < n
    a, b = tl.load(x + row * n + c, mask=ok, other=0), tl.load(y + row * n + c, mask=ok, other=0)
    tl.store(o + row * n + c, tl.where(a, b, ~b) & (a | b), mask=ok)


@triton.jit
def quantise(x, q, scale, total, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + c, mask=c < n, other=0.0)
    s = tl.max(tl.abs(v), axis=0) / 127.0
    t = tl.clamp(v / s, -127.0, 127.0)
    r = tl.where(t >= 0, tl.floor(t + 0.5), tl.ceil(t - 0.5)).to(tl.int8)
    tl.store(q + row * n + c, r, mask=c < n)
    tl.store(scale + row, s)
    tl.store(total + row, tl.sum(r, axis=0))


@triton.jit
def moves(x, back, order, best, sums, W: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, W)
    a = tl.load(x + row * W + c)
    tl.store(back + row * W + c, tl.flip(a, 0))
    tl.store(order + row * W + c, tl.sort(a))
    tl.store(best + row * 8 + tl.arange(0, 8), tl.topk(a, 8))
    tl.store(sums + row * W + c, tl.cumsum(a, 0, reverse=True))


@triton.jit
def woven(x, y, o, p, q, W: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, W)
    z = tl.interleave(tl.load(x + row * W + c), tl.load(y + row * W + c))
    tl.store(o + row * 2 * W + tl.arange(0, 2 * W), z)
    even, odd = tl.split(tl.reshape(z * 2, (W, 2)))
    tl.store(p + row * W + c, even)
    tl.store(q + row * W + c, odd)


@triton.jit
def picks(x, i, o, h, W: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, W)
    j = tl.load(i + row * W + c)
    tl.store(o + row * W + c, tl.gather(tl.load(x + row * W + c), j, 0))
    tl.store(h + row * 16 + tl.arange(0, 16), tl.histogram(j, 16))


@triton.jit
def _larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def _affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def combined(x, o, s1, s2, v, i, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    ok = c < n
    a = tl.load(x + row * n + c, mask=ok, other=0.0)
    tl.store(o + row, tl.reduce(a, 0, _larger))
    p, q = tl.associative_scan((a, a * 0.5), 0, _affine)
    tl.store(s1 + row * n + c, p, mask=ok)
    tl.store(s2 + row * n + c, q, mask=ok)
    most, at = tl.max(tl.where(ok, a, -float("inf")), 0, return_indices=True)
    tl.store(v + row, most)
    tl.store(i + row, at)


@triton.jit
def sums(x, o, n, REVERSE: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    a = tl.load(x + row * n + c, mask=c < n, other=0.0)
    tl.store(o + row * n + c, tl.cumsum(a, 0, reverse=REVERSE), mask=c < n)


@triton.jit
def product(a, b, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x, y = tl.load(a + i * K + k[None, :]), tl.load(b + k[:, None] * N + j)
    tl.store(o + i * N + j, tl.dot(x, y))


def integers(dtype, *shape):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=torch.int64).to(dtype)


def numbers(dtype, *shape):
    if dtype == torch.bool:
        return torch.randn(shape) > 0
    return (torch.randn(shape) * 300).to(dtype) if dtype.is_floating_point else integers(dtype, *shape)


def special():
    x, inf, nan = torch.randn(9, 300), float("inf"), float("nan")
    x[1, 40], x[2, 200], x[3, 10], x[4, 5], x[4, 250], x[5, ::7] = inf, -inf, nan, inf, -inf, -inf
    x[6], x[7, 3], x[8, 5] = x[6].abs() * 1e35, torch.finfo(torch.float32).min, 3e38
    return x


def launches():
    torch.manual_seed(5)
    new = torch.zeros
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.uint16):
        args = integers(dtype, 7, N), integers(dtype, 7, N), new(7, N, dtype=dtype), N
        yield f"arithmetic-{dtype}", arithmetic, args, {"B": B}, (7,)
    outs = (torch.int8, torch.int16, torch.uint8, torch.bfloat16, torch.bool)
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.float32, torch.bool):
        yield f"to-{dtype}", conversions, (numbers(dtype, 7, N), *(new(7, N, dtype=d) for d in outs), N), {"B": B}, (7,)
    for dtype in (torch.int8, torch.uint8, torch.float32, torch.bfloat16):
        o = torch.float32 if dtype.is_floating_point else torch.int32
        outs = new(7, dtype=o), new(7, dtype=o), new(7, dtype=torch.int64), new(7, dtype=o), new(7, dtype=o)
        yield f"reduced-{dtype}", reductions, (numbers(dtype, 7, N), *outs, N), {"B": B}, (7,)
    y = torch.randint(0, N, (7,))
    y[2] = -100
    yield "labels", labels, (torch.randn(7, N), y, new(7), new(7, dtype=torch.int64), N), {"B": B}, (7,)
    yield "bits", bits, (torch.randn(7, N) > 0, torch.randn(7, N) > 0, new(7, N, dtype=torch.bool), N), {"B": B}, (7,)
    x = torch.randn(5, N)
    x[3, 7] = float("nan")
    outs = new(5, N, dtype=torch.int8), new(5), new(5, dtype=torch.int32)
    yield "quantised", quantise, (x, *outs, N), {"B": B}, (5,)
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        x = (torch.randn(5, 64) * 8).to(dtype)
        wide = new(5, 64, dtype=torch.float32 if dtype.is_floating_point else dtype)
        yield f"moved-{dtype}", moves, (x, x * 0, x * 0, new(5, 8, dtype=dtype), wide), {"W": 64}, (5,)
    x = torch.randn(5, 64).bfloat16()
    yield "woven", woven, (x, x + 1, new(5, 128, dtype=x.dtype), x * 0, x * 0), {"W": 64}, (5,)
    at = torch.randint(0, 64, (5, 64), dtype=torch.int32)
    yield "picked", picks, (torch.randn(5, 64), at, new(5, 64), new(5, 16, dtype=torch.int32)), {"W": 64}, (5,)
    x = torch.randn(5, N)
    x[2, 30], x[2, 60], x[3, 5] = float("inf"), float("nan"), float("nan")
    outs = new(5), new(5, N), new(5, N), new(5), new(5, dtype=torch.int32)
    yield "combined", combined, (x, *outs, N), {"B": B}, (5,)
    for reverse in (False, True):
        yield f"sums-{reverse}", sums, (special(), new(9, 300), 300), {"REVERSE": reverse, "B": 512}, (9,)
    sizes = {"M": 32, "N": 128, "K": 64}
    a, b = integers(torch.int8, 32, 64), integers(torch.int8, 64, 128)
    yield "int8-product", product, (a, b, new(32, 128, dtype=torch.int32)), sizes, (1,)
    a, b = torch.randn(32, 64).bfloat16(), torch.randn(64, 128).bfloat16()
    yield "bf16-product", product, (a, b, new(32, 128, dtype=torch.bfloat16)), sizes, (1,)


LAUNCHES = list(launches())


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bridge.diagnostics.DiagnosticNote)
        yield


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values(name, kernel, args, meta, grid):
    loose = {"rtol": 1e-5, "atol": 1e-4} if name.startswith(("sums", "moved")) else {}
    kernel.verify(*args, grid=grid, target="tpu:v5e", **meta, **loose)


@pytest.mark.tpu_offline
@pytest.mark.parametrize(
    "target", ["tpu:v5e"] + [pytest.param(t, marks=pytest.mark.slow) for t in ("tpu:v6e", "tpu:7x")]
)
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid, target):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target=target, **meta)
    assert verdict.verdict == "ok", str(verdict)


def test_sums_keep_infinities_in_their_places():
    """NumPy is the truth: what stands before an infinity or a NaN is a number."""
    x, got = special(), torch.empty(9, 300)
    args = (x, got, 300)
    sums.verify(
        *args,
        grid=(9,),
        target="tpu:v5e",
        REVERSE=False,
        B=512,
        reference=lambda x, o, n: x.cumsum(1),
        rtol=1e-4,
        atol=1e-3,
    )


def test_64_bits_that_may_not_fit_are_refused():
    with pytest.raises(Diagnostic) as refused:
        squares[(1,)].source(torch.arange(100), torch.zeros(100, dtype=torch.int64), 100, B=128, target="tpu:v5e")
    assert refused.value.slug == "tpu-dtype" and "a * a" in refused.value.where.text()


def test_int64_is_a_note_and_a_number_too_large_is_refused():
    y, w = torch.tensor([5, 1 << 40]), torch.zeros(2, dtype=torch.int64)
    args = (torch.randn(2, N), y, torch.zeros(2), w, N)
    with bridge.diagnostics.strict(), pytest.raises(Diagnostic) as noted:
        labels[(2,)].source(*args, B=B, target="tpu:v5e")
    assert noted.value.slug == "int64-on-tpu"
    with pytest.raises(Diagnostic) as refused:
        labels.verify(*args, grid=(2,), target="tpu:v5e", B=B)
    assert refused.value.slug == "tpu-dtype" and "1099511627776" in str(refused.value)


def test_fp16_is_held_as_the_user_says(monkeypatch):
    x = torch.randn(4, N).half()
    args = (x, torch.zeros(4, N, dtype=torch.float16), N)
    assert "bfloat16" not in sums[(4,)].source(*args, REVERSE=False, B=B, target="tpu:v5e").partition("def sums")[2]
    monkeypatch.setenv("TORCH_PALLAS_TPU_FP16", "bf16")
    assert "jnp.bfloat16)" in sums[(4,)].source(*args, REVERSE=False, B=B, target="tpu:v5e").partition("def sums")[2]
    monkeypatch.setenv("TORCH_PALLAS_TPU_FP16", "fp8")
    with pytest.raises(Diagnostic) as refused:
        sums[(4,)].source(*args, REVERSE=False, B=B, target="tpu:v5e")
    assert refused.value.slug == "bad-argument"


@pytest.mark.parametrize("length,slug", [(2048, "tpu-tile-too-long"), (1024, "")])
def test_a_sort_is_as_long_as_it_may_be(length, slug):
    x = torch.randn(2, length)
    args = (x, x * 0, x * 0, torch.zeros(2, 8), x * 0)
    if not slug:
        moves[(2,)].source(*args, W=length, target="tpu:v5e")
        return
    with pytest.raises(Diagnostic) as refused:
        moves[(2,)].source(*args, W=length, target="tpu:v5e")
    assert refused.value.slug == slug and "tl.sort" in refused.value.where.text()
