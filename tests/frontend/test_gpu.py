"""The Mosaic GPU dialect: its values on jax's GPU interpreter, its verdicts from the real compiler."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import pallas_core as pc
from bridge.diagnostics import Diagnostic
from frontend_triton_compat.language.extra import libdevice
from pallas_core.offline import gpu_tools

pytest.importorskip("absl", reason="Mosaic GPU needs absl-py: pip install 'torch-pallas[gpu]'")
LACKING = gpu_tools.missing()
compiled = pytest.mark.skipif(bool(LACKING), reason=f"the GPU compiler is not here: {', '.join(LACKING)}")


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
def transpose(src, dst, M, N, sm, sn, dm, dn, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    t = tl.load(src + i[:, None] * sm + j[None, :] * sn, mask=(i[:, None] < M) & (j[None, :] < N))
    tl.store(dst + j[:, None] * dm + i[None, :] * dn, tl.trans(t), mask=(j[:, None] < N) & (i[None, :] < M))


@triton.jit
def extremes(x, best, index, least, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + lane, mask=lane < n, other=-float("inf"))
    tl.store(best + row, tl.max(v, axis=0))
    tl.store(index + row, tl.argmax(v, axis=0))
    tl.store(least + row, tl.min(tl.where(lane < n, v, float("inf")), axis=0))


@triton.jit
def upper_half(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * 2 * BLOCK + BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, -tl.load(x + i))


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
    om = tm * BM + tl.arange(0, BM)
    on = tn * BN + tl.arange(0, BN)
    tl.store(c + om[:, None] * N + on[None, :], tl.maximum(acc, 0.0), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def square(a, b, c):
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def attention(q, k, v, o, stride, seq, scale, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * stride
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    rd = tl.arange(0, D)
    tq = tl.load(q + base + rq[:, None] * D + rd[None, :], mask=rq[:, None] < seq, other=0.0)
    m = tl.full([BQ], float("-inf"), dtype=tl.float32)
    l = tl.zeros([BQ], dtype=tl.float32)
    acc = tl.zeros([BQ, D], dtype=tl.float32)
    for start in range(0, tl.minimum((tl.program_id(0) + 1) * BQ, seq), BK):
        rk = start + tl.arange(0, BK)
        tk = tl.load(k + base + rk[:, None] * D + rd[None, :], mask=rk[:, None] < seq, other=0.0)
        s = tl.dot(tq, tl.trans(tk)) * scale
        s = tl.where((rq[:, None] >= rk[None, :]) & (rk[None, :] < seq), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        fix = tl.exp2(m - new)
        l = l * fix + tl.sum(p, 1)
        tv = tl.load(v + base + rk[:, None] * D + rd[None, :], mask=rk[:, None] < seq, other=0.0)
        acc = acc * fix[:, None] + tl.dot(p.to(tv.dtype), tv)
        m = new
    out = (acc / l[:, None]).to(o.dtype.element_ty)
    tl.store(o + base + rq[:, None] * D + rd[None, :], out, mask=rq[:, None] < seq)


@triton.jit
def where_positive(x, o):
    v = tl.load(x + tl.program_id(0))
    tl.store(o + tl.program_id(0), v * 2, mask=v > 0)


@triton.jit
def pick_rows(ids, table, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.load(ids + tl.program_id(0))
    tl.store(o + tl.program_id(0) * n + i, tl.load(table + at * n + i, mask=i < n), mask=i < n)


@triton.jit
def thirds(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n)
    tl.store(o + row * 3 * n + i, v + 1, mask=i < n)
    tl.store(o + row * 3 * n + 2 * n + i, v * 2, mask=i < n)


@triton.jit
def functions(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    a = tl.abs(v) + 0.01
    ok = i < n
    tl.store(o + i, tl.sqrt(a), mask=ok)
    tl.store(o + n + i, tl.floor(v), mask=ok)
    tl.store(o + 2 * n + i, tl.erf(v), mask=ok)
    tl.store(o + 3 * n + i, libdevice.expm1(v) + libdevice.log1p(a), mask=ok)
    tl.store(o + 4 * n + i, libdevice.round(v) + libdevice.trunc(v) + tl.ceil(v), mask=ok)
    tl.store(o + 5 * n + i, tl.where((v > 0) ^ ~(a > 1), v, libdevice.copysign(a, v)), mask=ok)
    tl.store(o + 6 * n + i, ((v * 10).to(tl.int8) * 9 + 7).to(tl.float32), mask=ok)  # wraps
    tl.store(o + 7 * n + i, v.to(tl.float8e5).to(tl.float32), mask=ok)


def f32(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("n", [1, 1000, 4099])
def test_elementwise_with_a_ragged_end(n):
    x, y = f32(n), f32(n)
    add[(triton.cdiv(n, 256),)].verify(
        x, y, torch.full_like(x, -7.0), n, BLOCK=256, target="gpu:sm90a", reference=lambda x, y: {"o": x + y}
    )


@pytest.mark.parametrize(("rows", "cols"), [(7, 5), (5, 130), (3, 256)])
def test_row_softmax_of_a_strided_view(rows, cols):
    x, o = f32(rows, cols + 3)[:, :cols], torch.empty(rows, cols)
    softmax[(min(rows, 4),)].verify(
        *(o, x, o.stride(0), x.stride(0), rows, cols),
        W=triton.next_power_of_2(cols),
        target="gpu:sm90a",
        reference=lambda x: {"o": torch.softmax(x, -1)},
    )


def test_rows_with_scalar_results_and_fp16():
    x, g = f32(5, 300).half(), f32(300).half()
    rms[(5,)].verify(torch.empty_like(x), x, g, torch.empty(5), 300, 300, 1e-5, BLOCK=512, target="gpu:sm90a")


def test_in_place():
    scale_in_place[(4,)].verify(f32(4, 77), 77, 77, 3.0, BLOCK=128, target="gpu:sm90a")


def test_what_is_not_stored_keeps_its_values():
    x = f32(4, 256)
    upper_half[(4,)].verify(x, 4, BLOCK=128, target="gpu:sm90a")


def test_functions_without_a_lowering_of_their_own():
    x = torch.linspace(-4, 4, 100)
    x[:3] = torch.tensor([0.0, -0.0, 0.5])
    functions[(1,)].verify(x, torch.empty(8, 100), 100, BLOCK=128, target="gpu:sm90a")


def test_a_masked_scalar_store_leaves_the_rest():
    x, o = f32(6), torch.full((6,), 7.0)
    where_positive[(6,)].verify(x, o, target="gpu:sm90a", reference=lambda x: {"o": torch.where(x > 0, 2 * x, 7.0)})


def test_rows_that_loaded_numbers_pick():
    ids = torch.tensor([3, 0, 3, 6], dtype=torch.int32)
    pick_rows[(4,)].verify(ids, f32(7, 100), torch.empty(4, 100), 100, BLOCK=128, target="gpu:sm90a")


def test_stores_to_parts_of_rows():
    x, o = f32(3, 100), torch.full((3, 300), -1.0)
    thirds[(3,)].verify(x, o, 100, BLOCK=128, target="gpu:sm90a")


@pytest.mark.parametrize("shape", [(45, 70), (64, 128)])
def test_transpose(shape):
    x = f32(*shape)
    o = torch.empty(shape[::-1])
    grid = tuple(triton.cdiv(n, 32) for n in shape)
    transpose[grid].verify(x, o, *shape, *x.stride(), *o.stride(), B=32, target="gpu:sm90a")


def test_extremes_and_their_index():
    x = f32(6, 100)
    x[1, 7] = x[1, 70] = 9.0
    x[2, 5] = x[3, 99] = float("nan")
    x[4, :] = -float("inf")
    out = torch.empty(6), torch.empty(6, dtype=torch.int32), torch.empty(6)
    extremes[(6,)].verify(x, *out, 100, BLOCK=128, target="gpu:sm90a")


@pytest.mark.parametrize(
    ("shape", "dtype", "column_major"),
    [
        ((70, 45, 51), torch.float16, True),
        ((130, 70, 150), torch.bfloat16, False),  # a pipeline of three steps, a tile and a bit of rows
        ((70, 64, 150), torch.float32, True),
    ],
)
def test_matmul(shape, dtype, column_major):
    m, n, k = shape
    a, b = f32(m, k).to(dtype), f32(n, k).to(dtype).t()
    b = b if column_major else b.contiguous()
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32),)
    matmul[grid].verify(
        *(a, b, torch.empty(m, n), m, n, k, *a.stride(), *b.stride()),
        **{"BM": 32, "BN": 32, "BK": 16, "GROUP": 2},
        target="gpu:sm90a",
        reference=lambda a, b: {"c": torch.relu(a.float() @ b.float())},
        **{"rtol": 1e-4, "atol": 1e-4},
    )


@pytest.mark.parametrize(
    ("seq", "dtype"), [pytest.param(75, torch.float32, marks=pytest.mark.slow), (64, torch.bfloat16)]
)
def test_causal_attention(seq, dtype):
    q, k, v = (f32(1, 2, seq, 32 + i)[..., :32].contiguous().to(dtype) for i in range(3))
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    right = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    attention[(triton.cdiv(seq, 32), 2)].verify(
        *(q, k, v, torch.empty_like(q), q.stride(1), seq, 1.44269504 / 32**0.5),
        **{"BQ": 32, "BK": 16, "D": 32},
        target="gpu:sm90a",
        reference={"o": right.to(dtype)},
        **close,
    )


def test_a_product_under_one_pair_of_names():
    a, b = f32(64, 64).bfloat16(), f32(64, 65)[:, :64].contiguous().bfloat16()
    square[(1,)].verify(
        *(a, b, torch.empty(64, 64)),
        target="gpu:sm90a",
        reference=lambda a, b: {"c": a.float() @ b.float()},
        **{"rtol": 1e-4, "atol": 1e-4},
    )
    assert "tcgen05_mma" in square[(1,)].source(a, b, torch.empty(64, 64), target="gpu:sm100a")
    with pytest.raises(Diagnostic) as caught:
        square[(1,)].verify(a, b, torch.empty(64, 64), target="gpu:sm100a")
    assert caught.value.slug == "not-interpreted"


@compiled
@pytest.mark.parametrize(("target", "unit"), [("gpu:sm90a", "HGMMA"), ("gpu:sm100a", "UTCMMA")])
def test_matrix_units(target, unit):
    a, c = pc.spec((4096, 4096), torch.bfloat16), pc.spec((4096, 4096), torch.float32)
    sizes = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}
    verdict = matmul.check(a, a, c, *(4096,) * 4, 1, 4096, 1, grid=(1024,), target=target, **sizes)
    assert verdict.verdict == "ok", verdict.message
    assert verdict.static["spills"] == 0
    assert "plgpu.emit_pipeline" in verdict.source
    t = pc.spec((1, 8, 4096, 128), torch.bfloat16)
    sizes = {"BQ": 64, "BK": 64, "D": 128}
    attended = attention.check(t, t, t, t, 4096 * 128, 4096, 0.1, grid=(64, 8), target=target, **sizes)
    assert attended.verdict == "ok", attended.message
    if gpu_tools.find().disassembler:
        assert verdict.static["instructions"][unit] >= 4
        assert attended.static["instructions"][unit] >= 8


SPEC = {
    "add": (add, (triton.cdiv(2**26 - 1, 1024),), [(2**26 - 1,)] * 3, (2**26 - 1,), {"BLOCK": 1024}),
    "softmax": (softmax, (256,), [(8192, 4096)] * 2, (4096, 4096, 8192, 4096), {"W": 4096}),
    "functions": (functions, (1,), [(1024,), (8, 1024)], (1024,), {"BLOCK": 1024}),
    "transpose": (transpose, (128, 128), [(8192, 8192)] * 2, (8192, 8192, 8192, 1, 8192, 1), {"B": 64}),
}


@compiled
@pytest.mark.parametrize("target", ["gpu:sm90a", "gpu:sm100a"])
@pytest.mark.parametrize("name", SPEC)
def test_compiles_to_machine_code(name, target):
    kernel, grid, shapes, numbers, meta = SPEC[name]
    tensors = [pc.spec(shape, torch.float32) for shape in shapes]
    verdict = kernel.check(*tensors, *numbers, grid=grid, target=target, **meta)
    assert verdict.verdict == "ok", verdict.message
    assert verdict.static["spills"] == 0 and verdict.static["registers"] < 168
    assert 0 < verdict.static["smem_bytes"] < 64 * 1024
    assert verdict.static["instructions"]["UTMA"] >= 2 or not gpu_tools.find().disassembler


@pytest.mark.parametrize(
    ("body", "slug"),
    [
        ("tl.store(o + i, tl.cumsum(tl.load(x + i), axis=0))", "gpu-unsupported-op"),
        ("tl.store(o + i, tl.sort(tl.load(x + i)))", "gpu-unsupported-op"),
        ("tl.atomic_add(o + i, tl.load(x + i))", "atomic-add"),
    ],
)
def test_what_has_no_form_is_refused(body, slug, tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(
        "import frontend_triton_compat as triton\nimport frontend_triton_compat.language as tl\n\n\n@triton.jit\n"
        f"def f(x, o, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n    {body}\n"
    )
    scope = {"__name__": "kernels"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(Diagnostic) as caught:
        scope["f"][(1,)].source(torch.zeros(128), torch.zeros(128), BLOCK=128, target="gpu:sm90a")
    assert caught.value.slug == slug


def test_without_the_compiler_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(gpu_tools.VARIABLE, str(tmp_path))
    if not gpu_tools.missing():
        pytest.skip("the compiler is in the environment itself")
    x = pc.spec((128,), torch.float32)
    verdict = add.check(x, x, x, 128, BLOCK=128, grid=(1,), target="gpu:sm90a")
    assert (verdict.verdict, verdict.slug) == ("diagnosed", "missing-dependency")
    assert "pip install --no-deps --target" in verdict.message
