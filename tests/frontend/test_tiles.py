"""Operations on whole tiles against the real Triton interpreter, and against NumPy where it has no answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import shim

from . import tile_cases
from .tile_cases import CASES

SAMPLE = [n for n, c in CASES.items() if c.sample]
REST = [n for n, c in CASES.items() if not c.sample]


def run_both(names, folder):
    pytest.importorskip("triton")
    path, saved, wanted = (folder / n for n in ("kernels.py", "real.pt", "names.json"))
    tile_cases.write(path, names)
    wanted.write_text(json.dumps(names))
    command = [sys.executable, "-W", "ignore", tile_cases.__file__, path, saved, wanted]
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    with shim.installed(displace=True):
        ours = tile_cases.results(path, names)
    return torch.load(saved), ours


def compare(real, ours):
    assert real.keys() == ours.keys()
    wrong = []
    for key, outs in ours.items():
        case = CASES[key.split("@")[0]]
        for (name, _, dtype), mine, theirs in zip(case.outputs, outs, real[key], strict=True):
            loose = max(case.tolerance, 8e-3) if dtype == "bfloat16" else case.tolerance
            if mine.dtype.is_floating_point:
                mine, theirs = mine.double(), theirs.to(mine.dtype).double()
            try:
                torch.testing.assert_close(mine, theirs, rtol=loose, atol=loose, equal_nan=True)
            except AssertionError as problem:
                wrong.append(f"{key} {name}: {problem}")
    assert not wrong, "\n".join(wrong)


def test_sample_is_the_real_interpreters(tmp_path):
    compare(*run_both(SAMPLE, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_are_the_real_interpreters(part, tmp_path):
    compare(*run_both(REST[part::8], tmp_path))


# -- what the interpreter has no answer for --------------------------------------------------------------


@triton.jit
def elu(x, alpha):
    if x > 0:
        return x
    else:
        return alpha * (tl.exp(x) - 1)


@triton.jit
def sum_and_difference(x, y):
    return x + y, x - y


@triton.jit
def neighbours(a, b, c, d):
    return a + c, b * d


@triton.jit
def maps(x, y, o, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + i)
    b = tl.load(y + tl.arange(0, M)[:, None])
    step = 4 * M * N
    tl.store(o + i, tl.map_elementwise(elu, a, 1.5))
    s, d = tl.map_elementwise(sum_and_difference, a, b)
    tl.store(o + step + i, s)
    tl.store(o + 2 * step + i, d)
    (p,) = tl.map_elementwise(neighbours, a, s, pack=2)
    tl.store(o + 3 * step + i, p)
    tl.store(o + 4 * step + i, tl.flip(a))


def test_map_elementwise_and_flip_of_the_last_dimension():
    x, y, o = torch.randn(4, 4, 8), torch.randn(4, 1), torch.zeros(5, 4, 4, 8)
    maps[(4,)](x, y, o, M=4, N=8)
    s = x + y
    packed = torch.stack([x[..., 0::2] + s[..., 0::2], x[..., 1::2] * s[..., 1::2]], -1).reshape(x.shape)
    want = torch.stack([torch.where(x > 0, x, 1.5 * torch.expm1(x)), s, x - y, packed, x.flip(-1)])
    torch.testing.assert_close(o, want, rtol=1e-5, atol=1e-6)


@triton.jit
def ordered(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(o + i, tl.sort(a))
    tl.store(o + N + i, tl.sort(a, descending=True))
    tl.store(o + 2 * N + i, tl.topk(a, N))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_sort_puts_nan_last_and_keeps_infinities(dtype):
    x = torch.tensor([1, float("nan"), -float("inf"), 3, -0.0, float("inf"), -float("nan"), -2], dtype=dtype)
    o = torch.zeros(3, 8, dtype=dtype)
    ordered[(1,)](x, o, N=8)
    up = x.sort()[0]
    assert torch.equal(o.nan_to_num(nan=9e4), torch.stack([up, up.flip(0), up.flip(0)]).nan_to_num(nan=9e4))


@triton.jit
def running(x, o, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(o + i, tl.cumsum(tl.load(x + i)))


def test_running_sum_of_long_rows_with_infinities():
    x = torch.randn(4, 16384)
    x[1, 77], x[2, 5], x[3, 9] = float("inf"), float("nan"), -float("inf")
    o = torch.empty_like(x)
    running[(4,)](x, o, N=16384)
    torch.testing.assert_close(o, x.double().cumsum(1).float(), rtol=1e-4, atol=1e-3, equal_nan=True)


@triton.jit
def bins(x, o, N: tl.constexpr):
    tl.store(o + tl.arange(0, 256), tl.histogram(tl.load(x + tl.arange(0, N)), 256))


def test_histogram_leaves_out_what_is_no_bin():
    x = torch.randint(-128, 127, (512,)).to(torch.int8)
    o = torch.empty(256, dtype=torch.int32)
    bins[(1,)](x, o, N=512)
    assert torch.equal(o.long(), torch.bincount(x[x >= 0].long(), minlength=256))


# -- microscaling formats --------------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@triton.jit
def scaled(a, sa, b, sb, o, M: tl.constexpr, N: tl.constexpr, A: tl.constexpr, B: tl.constexpr, G: tl.constexpr,
           FA: tl.constexpr, FB: tl.constexpr):  # fmt: skip
    m, n, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, G)
    x = tl.load(a + m[:, None] * A + tl.arange(0, A)[None, :])
    y = tl.load(b + tl.arange(0, B)[:, None] * N + n[None, :])
    if sa is not None:
        sa = tl.load(sa + m[:, None] * G + g[None, :])
    if sb is not None:
        sb = tl.load(sb + n[:, None] * G + g[None, :])
    tl.store(o + m[:, None] * N + n[None, :], tl.dot_scaled(x, sa, FA, y, sb, FB))


def operand(fmt, rows, k, seed):
    """Bits of a (rows, k) operand packed along k, and its numbers."""
    rng = np.random.RandomState(seed)
    if fmt == "e2m1":
        codes = rng.randint(0, 16, (rows, k))
        return torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)), E2M1[codes]
    if fmt in ("bf16", "fp16"):
        x = torch.from_numpy(rng.normal(0, 1, (rows, k))).to(torch.bfloat16 if fmt == "bf16" else torch.float16)
        return x, x.double().numpy()
    kind = torch.float8_e4m3fn if fmt == "e4m3" else torch.float8_e5m2
    x = torch.from_numpy(rng.normal(0, 4, (rows, k))).to(kind)
    return x.view(torch.uint8), x.double().numpy()


PAIRS = [("e2m1", "e2m1"), ("e4m3", "e5m2"), ("e2m1", "bf16"), ("fp16", "e4m3"), ("e5m2", "e2m1")]
MORE = [(a, b) for a in ("e2m1", "e4m3", "e5m2", "bf16", "fp16") for b in ("e2m1", "e4m3", "e5m2", "bf16", "fp16")]
FORMATS = [*PAIRS, *(pytest.param(*p, marks=pytest.mark.slow) for p in MORE if p not in PAIRS)]


@pytest.mark.parametrize("fa,fb", FORMATS)
def test_scaled_products_are_exact_before_they_are_rounded_once(fa, fb):
    m, n, k, rng = 16, 8, 64, np.random.RandomState(3)
    (a, va), (bt, vb) = operand(fa, m, k, 1), operand(fb, n, k, 2)
    b = bt.T.contiguous()
    half = "fp16" in (fa, fb)
    low, high = (120, 130) if half else (100, 150)
    sa, sb = (
        rng.randint(low, high, (m, k // 32)).astype(np.uint8),
        rng.randint(low, high, (n, k // 32)).astype(np.uint8),
    )
    kind = torch.float16 if half else torch.bfloat16
    for one, two in ((sa, sb), (None, sb), (sa, None)):
        grow = lambda s: 1.0 if s is None else np.repeat(2.0 ** (s.astype(float) - 127), 32, axis=1)
        left, right = (torch.from_numpy(v * grow(s)).to(kind).double() for v, s in ((va, one), (vb, two)))
        given = [None if s is None else torch.from_numpy(s) for s in (one, two)]
        o = torch.empty(m, n)
        scaled[(1,)](
            a, given[0], b, given[1], o, M=m, N=n, A=a.shape[1], B=b.shape[0], G=k // 32, FA=fa, FB=fb
        )  # fmt: skip
        want = left @ right.T
        torch.testing.assert_close(o.double(), want, rtol=1e-5, atol=float(want.abs().max()) * 1e-6)


def test_every_scale_and_every_element_of_mxfp4():
    # 256 scales times 16 elements; one row holds one element 32 times, and is multiplied by a single 1
    codes = np.repeat(np.arange(16), 16)  # 256 rows
    a = torch.from_numpy((np.repeat(codes[:, None], 16, 1) * 17).astype(np.uint8))
    one = torch.zeros(32, 16, dtype=torch.bfloat16)
    one[0] = 1
    for start in range(0, 256, 16):
        scales = np.tile(np.arange(start, start + 16, dtype=np.uint8), 16)[:, None]
        o = torch.empty(256, 16)
        scaled[(1,)](a, torch.from_numpy(scales), one, None, o, M=256, N=16, A=16, B=32, G=1, FA="e2m1", FB="bf16")
        exact = E2M1[codes] * 2.0 ** (scales[:, 0].astype(float) - 127)
        exact = torch.from_numpy(exact).to(torch.bfloat16)
        tiny = exact.abs() < 2.0**-126  # flushed to zero by the machine
        got = o[:, 0]
        known = torch.from_numpy(scales[:, 0] != 255) & exact.isfinite()  # an infinity times 0 is NaN
        assert torch.equal(got[known & ~tiny], exact[known & ~tiny].float())
        assert got[~known].isnan().all() and (got[known & tiny].abs() <= 2.0**-126).all()


@triton.jit
def packed_outside(a, b, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    k = tl.arange(0, K)
    x = tl.load(a + tl.arange(0, M // 2)[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :])
    z = tl.dot_scaled(x, None, "e2m1", y, None, "e2m1", lhs_k_pack=False, rhs_k_pack=False)
    tl.store(o + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], z)


def test_operands_packed_along_their_outer_dimension():
    (a, va), (b, vb) = operand("e2m1", 32, 16, 5), operand("e2m1", 32, 16, 6)  # (k, m) and (k, n)
    o = torch.empty(16, 16)
    packed_outside[(1,)](a.T.contiguous(), b, o, M=16, N=16, K=32)
    torch.testing.assert_close(o.double(), torch.from_numpy(va.T @ vb))


# -- refusals --------------------------------------------------------------

BAD = {
    "combine-function": ["tl.reduce(a, 0, lambda x, y: x + y * n)", "tl.reduce(a, 0, lambda x, y: x + tl.load(p))"],
    "return-type": ["tl.reduce((a, a), 0, lambda x, y, u, v: x)", "tl.map_elementwise(lambda x, y: x + y, a, pack=2)"],
    "shape-mismatch": [
        "tl.reduce((a, tl.sum(a, 1)), 0, lambda x, y, u, v: (x, y))",
        "tl.associative_scan(n, 0, lambda x, y: x)",
        "tl.topk(a, 64)",
        "tl.dot(tl.zeros((2, 16, 16), tl.float32), tl.zeros((4, 16, 16), tl.float32))",
        "tl.map_elementwise(lambda x, y, z: x, a, pack=3)",
        'tl.dot_scaled(u, None, "e2m1", u, None, "e4m3")',
        'tl.dot_scaled(u, u, "e4m3", tl.trans(u), None, "e4m3")',
    ],
    "operand-type": [
        'tl.dot_scaled(a, None, "e2m1", a, None, "e4m3")',
        'tl.dot_scaled(u, None, "e3m2", u, None, "e2m1")',
    ],
    "not-translated": ["tl.sort(a, 0)", "tl.topk(a, 2, dim=0)", "tl.bitonic_merge(a, dim=0)"],
}


@pytest.mark.parametrize("slug,text", [(s, t) for s, texts in BAD.items() for t in texts])
def test_what_does_not_fit_is_refused(slug, text, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef bad(p):\n    n = tl.load(p)\n"
        "    a = tl.load(p + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])\n    u = a.to(tl.uint8)\n"
        f"    r = {text}\n    tl.store(p, 0.0)\n"
    )
    with shim.installed(displace=True):
        scope = {"__name__": "bad", "__file__": str(path)}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        with pytest.raises(Diagnostic) as caught:
            scope["bad"][(1,)](torch.zeros(256))
    assert caught.value.slug == slug and caught.value.where.line == 10 and caught.value.do
