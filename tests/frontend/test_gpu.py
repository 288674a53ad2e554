"""The Mosaic GPU dialect: its values on jax's GPU interpreter, its verdicts from the real compiler."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import pallas_core as pc
from bridge.diagnostics import Diagnostic
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


SPEC = {
    "add": (add, (triton.cdiv(2**26 - 1, 1024),), [(2**26 - 1,)] * 3, (2**26 - 1,), {"BLOCK": 1024}),
    "softmax": (softmax, (256,), [(8192, 4096)] * 2, (4096, 4096, 8192, 4096), {"W": 4096}),
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
    assert verdict.static["spills"] == 0 and verdict.static["registers"] < 128
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
