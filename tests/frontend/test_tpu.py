"""The TPU dialect: its values on Pallas' TPU interpreter, its verdicts from the real compiler."""

import warnings

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental.pallas import tpu as pltpu

import bridge
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import TranslationError
from frontend_triton_compat.compiled import load_source
from frontend_triton_compat.offline import translate


@triton.jit
def add(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(o, x, so, sx, rows, cols, W: tl.constexpr):
    lane = tl.arange(0, W)
    for r in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + r * sx + lane, mask=lane < cols, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(o + r * so + lane, e / tl.sum(e, axis=0), mask=lane < cols)


@triton.jit
def rms(y, x, g, inv, stride, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    ok = col < width
    v = tl.load(x + row * stride + col, mask=ok, other=0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, axis=0) / width + eps)
    tl.store(inv + row, r)
    tl.store(y + row * stride + col, v * r * tl.load(g + col, mask=ok, other=0), mask=ok)


@triton.jit
def scale_in_place(x, stride, n, s, BLOCK: tl.constexpr):
    off = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    ok = tl.arange(0, BLOCK) < n
    tl.store(x + off, tl.load(x + off, mask=ok) * s, mask=ok)


@triton.jit
def matmul(a, b, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    band = GROUP * tiles_n
    first = pid // band * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    tm = first + (pid % band) % height
    tn = (pid % band) // height
    rm = (tm * BM + tl.arange(0, BM)) % M
    rn = (tn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * am + rk[None, :] * ak
    pb = b + rk[:, None] * bk + rn[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        ta = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
        tb = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(ta, tb, acc)
        pa += BK * ak
        pb += BK * bk
    om, on = tm * BM + tl.arange(0, BM), tn * BN + tl.arange(0, BN)
    tl.store(c + om[:, None] * N + on[None, :], tl.maximum(acc, 0.0), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def transpose(x, o, M, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    t = tl.load(x + i[:, None] * N + j[None, :], mask=(i[:, None] < M) & (j[None, :] < N))
    tl.store(o + j[:, None] * M + i[None, :], tl.trans(t), mask=(j[:, None] < N) & (i[None, :] < M))


@triton.jit
def layer_norm(x, w, b, o, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    ok = col < n
    v = tl.load(x + row * n + col, mask=ok, other=0.0)
    mean = tl.sum(v, axis=0) / n
    d = tl.where(ok, v - mean, 0.0)
    r = tl.rsqrt(tl.sum(d * d, axis=0) / n + eps)
    y = d * r * tl.load(w + col, mask=ok) + tl.load(b + col, mask=ok)
    tl.store(o + row * n + col, y, mask=ok)


@triton.jit
def bias_gelu(x, b, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    ok = (i < M) & (j < N)
    v = tl.load(x + i * N + j, mask=ok) + tl.load(b + j, mask=j < N)
    tl.store(o + i * N + j, v * tl.sigmoid(1.702 * v), mask=ok)


@triton.jit
def causal_bias(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + col, mask=col < n, other=0.0)
    tl.store(o + row * n + col, tl.where(col <= row, v, -1.0), mask=col < n)


@triton.jit
def mean_pool(x, o, n, D: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, D)
    acc = tl.zeros([D], tl.float32)
    for t in range(0, n, BLOCK):
        i = t + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(x + row * n * D + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0), axis=0)
    tl.store(o + row * D + d, acc / n)


@triton.jit
def rope(q, cos, sin, stride, heads, D: tl.constexpr, H: tl.constexpr):
    t = tl.program_id(0)
    h = tl.arange(0, H)[:, None]
    d = tl.arange(0, D // 2)[None, :]
    m = h < heads
    c = tl.load(cos + t * (D // 2) + d)
    s = tl.load(sin + t * (D // 2) + d)
    lo = q + t * stride + h * D + d
    a = tl.load(lo, mask=m, other=0.0)
    b = tl.load(lo + D // 2, mask=m, other=0.0)
    tl.store(lo, a * c - b * s, mask=m)
    tl.store(lo + D // 2, b * c + a * s, mask=m)


def launches():
    r = torch.randn
    yield "add", add, (r(5000), r(5000), torch.empty(5000), 5000), {"BLOCK": 1024}, (5,)
    yield "softmax", softmax, (torch.empty(1000, 300), r(1000, 300), 300, 300, 1000, 300), {"W": 512}, (37,)
    yield "softmax-view", softmax, (torch.empty(40, 100), r(40, 130)[:, :100], 100, 130, 40, 100), {"W": 128}, (4,)
    yield (
        "rms",
        rms,
        (torch.empty(300, 200), r(300, 200), r(200), torch.empty(300), 200, 200, 1e-5),
        {"BLOCK": 256},
        (300,),
    )
    yield "in-place", scale_in_place, (r(20, 77), 77, 77, 2.5), {"BLOCK": 128}, (20,)
    for m, n, k, t in ((64, 64, 64, False), (600, 130, 1500, True), (33, 45, 2100, False)):
        a, b = r(m, k), r(n, k).t() if t else r(k, n)
        args = (a, b, torch.empty(m, n), m, n, k, *a.stride(), *b.stride())
        grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32),)
        yield f"matmul-{m}-{n}-{k}", matmul, args, {"BM": 32, "BN": 32, "BK": 16, "GROUP": 4}, grid
    yield "rope", rope, (r(12, 8, 256), r(12, 128), r(12, 128), 8 * 256, 8), {"D": 256, "H": 8}, (12,)
    yield "layer-norm", layer_norm, (r(50, 200), r(200), r(200), torch.empty(50, 200), 200, 1e-5), {"BLOCK": 256}, (50,)
    args = (r(600, 300), r(300), torch.empty(600, 300), 600, 300)
    yield "bias-gelu", bias_gelu, args, {"BM": 32, "BN": 64}, (19, 5)
    yield "causal-bias", causal_bias, (r(150, 150), torch.empty(150, 150), 150), {"BLOCK": 256}, (150,)
    yield "mean-pool", mean_pool, (r(24, 50, 128), torch.empty(24, 128), 50), {"D": 128, "BLOCK": 16}, (24,)
    yield "transpose", transpose, (r(300, 140), torch.empty(140, 300), 300, 140), {"B": 32}, (10, 5)


LAUNCHES = list(launches())


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values_on_the_tpu_interpreter(name, kernel, args, meta, grid):
    module = translate(kernel, args, meta, grid, "tpu:v5e")
    entry = load_source(module.source, module.entry)
    names = dict(zip(kernel.arg_names, args))
    operands = []
    for operand in module.operands:
        value = names[operand.param]
        if operand.scalar:
            operands.append(jnp.array([value], jnp.float32))
        else:
            flat = torch.as_strided(
                value, operand.shape, _compact(operand.shape), value.storage_offset() + operand.start
            )
            operands.append(jnp.asarray(flat.numpy().copy()))
    params = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan")
    got = jax.jit(lambda *a: entry(*a, interpret=params))(*operands)
    kernel[grid](*args, **meta)  # the CPU form, itself tested against eager
    for result, value in zip(module.results, got):
        want = names[result.param]
        torch.testing.assert_close(torch.tensor(jax.device_get(value)), want, rtol=1e-4, atol=1e-4)


def _compact(shape):
    return torch.empty(shape, device="meta").stride()


@pytest.mark.tpu_offline
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:v6e", "tpu:7x"])
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid, target):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target=target, **meta)
    assert verdict.verdict == "ok", str(verdict)
    assert verdict.static["time_ms"] > 0 and verdict.static["vmem_bytes"] > 0


@pytest.mark.tpu_offline
def test_static_times_reach_the_hand_written_forms():
    """Softmax at 8192x4096 fp32: both passes over HBM take 0.328 ms on a v5e, and nothing else may show."""
    pytest.importorskip("libtpu")
    x = torch.empty(8192, 4096, device="meta")
    verdict = softmax[(256,)].check(x, x, 4096, 4096, 8192, 4096, W=4096, target="tpu:v5e")
    assert verdict.verdict == "ok" and verdict.static["bound"] == "hbm"
    assert verdict.static["time_ms"] <= 0.328 * 1.02
    n = 4096
    a = torch.empty(n, n, dtype=torch.bfloat16, device="meta")
    grid = (triton.cdiv(n, 128) ** 2,)
    verdict = matmul[grid].check(a, a, a, n, n, n, n, 1, n, 1, BM=128, BN=128, BK=32, GROUP=8, target="tpu:v5e")
    assert verdict.verdict == "ok" and verdict.static["mxu"] >= 0.90


def test_fp16_is_a_note():
    x = torch.empty(16, 128, dtype=torch.float16, device="meta")
    with bridge.diagnostics.strict(), pytest.raises(TranslationError) as refused:
        scale_in_place[(16,)].source(x, 128, 128, 2.0, BLOCK=128, target="tpu:v5e")
    assert refused.value.slug == "fp16-on-tpu"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bridge.diagnostics.DiagnosticNote)
        source = scale_in_place[(16,)].source(x, 128, 128, 2.0, BLOCK=128, target="tpu:v5e")
    assert "float16" not in source.replace("bfloat16", "")


@triton.jit
def count(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def gather(x, index, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + tl.load(index + i, mask=i < n, other=0), mask=i < n), mask=i < n)


@pytest.mark.parametrize(
    "kernel,args,slug,line",
    [
        (count, (torch.zeros(100), torch.zeros(1), 100), "atomic-add", "tl.atomic_add"),
        (
            gather,
            (torch.zeros(1 << 18), torch.zeros(100, dtype=torch.int32), torch.zeros(100), 100),
            "indirect-access",
            "tl.load(x",
        ),
    ],
)
def test_refusals_point_at_the_line(kernel, args, slug, line):
    with pytest.raises(TranslationError) as refused:
        kernel[(1,)].source(*args, BLOCK=128, target="tpu:v5e")
    assert refused.value.slug == slug and refused.value.do
    assert line in refused.value.where.text()
