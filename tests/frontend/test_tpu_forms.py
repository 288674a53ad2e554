"""Forms that are cheap on a TPU: bounds that are numbers, argmax by lanes, casts of clamped floats; a kernel's name."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat.offline import translate
from tests.frontend.on_tpu import against_cpu, results


@triton.jit
def running_sum(x, o, n, CHUNK: tl.constexpr):  # a function of the op table is called so too
    row = tl.program_id(0)
    before = 0.0
    for start in range(0, n, CHUNK):
        c = start + tl.arange(0, CHUNK)
        z = tl.load(x + row * n + c, mask=c < n, other=0.0)
        tl.store(o + row * n + c, tl.cumsum(z, axis=0) + before, mask=c < n)
        before += tl.sum(z, axis=0)


@triton.jit
def bounded(x, o, p, q, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, tl.clamp(v, -1.5, 2.0), mask=i < n)
    tl.store(p + i, tl.maximum(tl.minimum(0.5, v * 2), -0.5), mask=i < n)
    tl.store(q + i, tl.maximum(v, 0.0), mask=i < n)


@triton.jit
def rounded(x, o, s, n, BLOCK: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    t = tl.clamp(tl.load(x + row * n + c, mask=c < n, other=0.0), LOW, HIGH)
    r = tl.where(t >= 0, tl.floor(t + 0.5), tl.ceil(t - 0.5)).to(tl.int8)
    tl.store(o + row * n + c, r, mask=c < n)
    tl.store(s + row, tl.sum(r))


@triton.jit
def extremes(x, a, b, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, mask=c < n, other=-float("inf"))
    top, at = tl.max(v, axis=0, return_indices=True)
    tl.store(a + row, at)
    tl.store(m + row, top)
    tl.store(b + row, tl.argmin(v, axis=0))


def test_a_kernel_may_have_a_name_of_the_table():
    x = torch.randn(3, 200)
    against_cpu(running_sum, (x, torch.empty_like(x), 200), {"CHUNK": 64}, (3,), rtol=1e-5, atol=1e-4)
    out = torch.empty_like(x)
    running_sum[(3,)](x, out, 200, CHUNK=64)
    torch.testing.assert_close(out, x.cumsum(1))


def test_bounds_that_are_numbers():
    nan, inf = float("nan"), float("inf")
    x = torch.cat([torch.tensor([nan, inf, -inf, 0.0, -0.0, 2.0, -1.5]), torch.randn(1500) * 3])
    made = [torch.empty_like(x) for _ in range(3)]
    got = results(bounded, (x, *made, len(x)), {"BLOCK": 256}, (6,))
    clamp = torch.fmin(torch.fmax(x, torch.tensor(-1.5)), torch.tensor(2.0))
    other = torch.fmax(torch.fmin(torch.tensor(0.5), x * 2), torch.tensor(-0.5))
    want = {"o": clamp, "p": other, "q": torch.fmax(x, torch.tensor(0.0))}
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=0, atol=0, msg=name)
    assert (
        "jnp.where(v > -1.5, v, -1.5)" in translate(bounded, (x, *made, len(x)), {"BLOCK": 256}, (6,), "tpu:v5e").source
    )


@pytest.mark.parametrize("low,high,wraps", [(-127.0, 127.0, False), (-127.0, 127.5, True), (-300.0, 300.0, True)])
def test_clamped_floats_need_no_wrapping(low, high, wraps):
    x = torch.randn(5, 200) * 200
    x[0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    args = (x, torch.zeros(5, 200, dtype=torch.int8), torch.zeros(5, dtype=torch.int32), 200)
    meta = {"BLOCK": 256, "LOW": low, "HIGH": high}
    assert ("<< 24" in translate(rounded, args, meta, (5,), "tpu:v5e").source) == wraps
    got = results(rounded, args, meta, (5,))
    t = torch.fmin(torch.fmax(x, torch.tensor(low)), torch.tensor(high))
    r = torch.where(t >= 0, torch.floor(t + 0.5), torch.ceil(t - 0.5)).to(torch.int32).to(torch.int8)
    torch.testing.assert_close(got["o"], r)
    torch.testing.assert_close(got["s"], r.sum(1, dtype=torch.int32))


def test_argmax_by_lanes():
    x = torch.randint(-3, 4, (9, 512)).float()  # many ties
    x[1] = -float("inf")
    x[2, 300:] = float("inf")
    x[3, 77], x[3, 400] = float("nan"), float("nan")
    x[4, 5] = x[4, 133] = 9.0
    x[5] = float("nan")
    x[6, :500] = -float("inf")
    args = (x, torch.zeros(9, dtype=torch.int32), torch.zeros(9, dtype=torch.int32), torch.zeros(9), 512)
    got = results(extremes, args, {"BLOCK": 512}, (9,))
    assert got["a"].tolist() == x.numpy().argmax(1).tolist()
    assert got["b"].tolist() == x.numpy().argmin(1).tolist()
    torch.testing.assert_close(got["m"], torch.from_numpy(x.numpy().max(1)), equal_nan=True)
