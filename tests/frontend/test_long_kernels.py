"""Long unrolled kernels are translated in linear time; facts about values hold in loops."""

from __future__ import annotations

import sys

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat import ir
from frontend_triton_compat.access import Memory
from frontend_triton_compat.emit import cpu
from frontend_triton_compat.parse import parse
from frontend_triton_compat.schedule import schedule
from frontend_triton_compat.types import FP32, INT32


@triton.jit
def loads(o, x, n, W: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    lane = tl.arange(0, W)
    acc = tl.zeros((W,), tl.float32)
    for i in tl.static_range(N):
        acc = acc * 0.5 + tl.load(x + p * n + lane + i * W, mask=lane + i * W < n, other=0.0) * i
    tl.store(o + p, tl.sum(acc, 0))


@triton.jit
def remainders(o, x, n, W: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    i = p * n + tl.arange(0, W)
    for k in tl.static_range(N):
        i = (i + i // 3 + k) % 97
        i = tl.minimum(i, n - k % 7)
    at = i[:, None] * 0 + tl.arange(0, W)[None, :]
    tl.store(o + p, tl.sum(tl.sum(tl.load(x + at), 0) + tl.load(x + i), 0))


@triton.jit
def leaving(o, x, n, W: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    acc = 0.0
    for i in tl.static_range(N):
        v = tl.load(x + p * n + i)
        if v > 2.5:
            break
        if v < -1.5:
            continue
        if v > 2.0:
            acc = clipped(acc, v)
        acc += v
    tl.store(o + p, acc)


@triton.jit
def clipped(a, b):
    if a > b:
        return b
    return a


@triton.jit
def conditions(o, x, n, W: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    lane = tl.arange(0, W)
    fits = lane < n
    for k in tl.static_range(N):
        fits = fits & (lane + k * p < n + k)
    for j in range(tl.load(x + p).to(tl.int32) + 4):
        value = tl.load(x + lane + j, mask=fits, other=0.0)
        for k in tl.static_range(N):
            value = tl.where(value > k, value - 1.0, value * 0.5)
        tl.store(o + p * W + lane, value, mask=fits)


@triton.jit
def stores(o, x, n, W: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    lane = tl.arange(0, W)
    for i in tl.static_range(N):
        tl.store(o + (p * N + i) * W + lane, tl.load(x + p * n + lane + i) + 1)


def steps(kernel, count):
    """Python calls from text to source for an unrolled loop of `count` turns: the same number on any machine."""
    values = {"n": 400, "W": 16, "N": count}
    params = {"o": ir.Param("o", 0, "pointer", FP32), "x": ir.Param("x", 1, "pointer", FP32)}
    params["n"] = ir.Param("n", 2, "int", INT32, values["n"])
    params |= {k: ir.Param(k, 3 + i, "constexpr", value=values[k]) for i, k in enumerate("WN")}
    memories = {p: Memory(p, (1 << 16,), (1,), 0, 1 << 16) for p in ("o", "x")}
    calls, before = 0, sys.getprofile()

    def tally(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(tally)
    try:
        cpu.emit(schedule(parse(kernel, params, (8, 1, 1)), memories, chunked=True))
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kernel", [loads, remainders, leaving, conditions, stores], ids=lambda k: k.__name__)
def test_unrolled_loops_take_linear_work(kernel):
    steps(kernel, 8)
    short, long = steps(kernel, 24), steps(kernel, 192)
    assert long < 12 * short, (short, long)  # 8 times as much; 64 times if it were quadratic


# -- facts about values


@triton.jit
def swapped(o, x, y, n, B: tl.constexpr):
    p = tl.program_id(0)
    lane = tl.arange(0, B)
    v = tl.load(x + p * B + lane)
    w = tl.load(y + lane)
    for _ in range(n):
        v, w = w, v
    tl.store(o + 2 * p, tl.sum(v, 0))
    tl.store(o + 2 * p + 1, tl.sum(w, 0))


@pytest.mark.parametrize("n", [0, 2, 3])
def test_values_swapped_in_a_loop_depend_on_both(n):
    x, y, o = torch.randn(32), torch.randn(8), torch.zeros(4, 2)
    swapped[(4,)](o, x, y, n, B=8)
    want = torch.stack([x.reshape(4, 8).sum(1), y.sum().expand(4)], 1)
    torch.testing.assert_close(o, want.flip(1) if n % 2 else want)


@triton.jit
def walks(o, x, first, n, B: tl.constexpr):
    lane = tl.arange(0, B)
    i = tl.load(first)
    for _ in range(3):
        after = i + 1
        mask = (i >= 0) & (lane >= 0) & (i < n)
        tl.store(o + lane, tl.load(o + lane) + tl.load(x + i + lane * 0, mask=mask, other=100.0))
        mask = (after >= 0) & (lane >= 0)
        tl.store(o + B + lane, tl.load(o + B + lane) + tl.load(x + after + lane * 0, mask=mask, other=100.0))
        i = tl.where(after > 100, after, i - 2)


def test_a_lower_bound_that_fails_later_stays():
    x = torch.arange(8.0)
    o = torch.zeros(2, 4)
    walks[(1,)](o, x, torch.tensor([2], dtype=torch.int32), 8, B=4)
    assert o[:, 0].tolist() == [2.0 + 0.0 + 100.0, 3.0 + 1.0 + 100.0]


@triton.jit
def wraps(o, x, u, step):
    p = tl.program_id(0)
    at = tl.load(u + p).to(tl.int32)
    tl.store(o + p, tl.load(x + at, mask=(at >= 0) & (p >= 0), other=-1.0))
    for i in range(1, -4, tl.load(step)):
        tl.store(o + 2 + 2 - i, tl.load(x + i, mask=(i >= 0) & (p >= 0), other=-1.0))


def test_numbers_that_become_negative():
    o = torch.zeros(8)
    u = torch.tensor([3, 2**32 - 2], dtype=torch.uint32)
    wraps[(2,)](o, torch.arange(8.0), u, torch.tensor([-2], dtype=torch.int32))
    assert o.tolist() == [3.0, -1.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0]
