"""Cheaper forms on a TPU: fewer operations, the same numbers, NaN and infinities included."""

import math

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from tests.frontend.on_tpu import against_cpu


@triton.jit
def rounded_rows(x, q, total, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    z = tl.load(x + row * n + c, mask=c < n, other=0.0)
    s = tl.max(tl.abs(z)) / 127.0
    t = tl.clamp(z / s, -127.0, 127.0)
    r = tl.where(t >= 0, tl.floor(t + 0.5), tl.ceil(t - 0.5)).to(tl.int8)
    tl.store(q + row * n + c, r, mask=c < n)
    tl.store(total + row, tl.sum(r))


@triton.jit
def summed_wholes(x, total, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    z = tl.load(x + row * n + c, mask=c < n, other=0.0)
    r = tl.floor(tl.clamp(z, -100.0, 100.0)).to(tl.int32)
    tl.store(total + row, tl.sum(r))


@triton.jit
def softmax_in_turns(out, x, rows, n, WIDTH: tl.constexpr):
    c = tl.arange(0, WIDTH)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        z = tl.load(x + row * n + c, mask=c < n, other=-float("inf"))
        e = tl.exp(z - tl.max(z, axis=0))
        tl.store(out + row * n + c, e / tl.sum(e, axis=0), mask=c < n)


@triton.jit
def largest_in_chunks(x, value, index, n, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    best, at = float("-inf"), 0
    for start in range(0, n, CHUNK):
        c = start + tl.arange(0, CHUNK)
        z = tl.load(x + row * n + c, mask=c < n, other=float("-inf"))
        m, i = tl.max(z, axis=0, return_indices=True)
        at = tl.where(m > best, i + start, at)
        best = tl.maximum(best, m)
    tl.store(value + row, best)
    tl.store(index + row, at)


@triton.jit
def gradients(x, labels, loss, n, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    x += row * n
    label = tl.load(labels + row)
    if label == -100:
        for start in range(0, n, CHUNK):
            c = start + tl.arange(0, CHUNK)
            tl.store(x + c, 0.0, mask=c < n)
        tl.store(loss + row, 0.0)
        return
    picked = tl.load(x + label).to(tl.float32)
    total = 0.0
    for start in range(0, n, CHUNK):
        c = start + tl.arange(0, CHUNK)
        total += tl.sum(tl.exp(tl.load(x + c, mask=c < n, other=float("-inf")).to(tl.float32)))
    tl.store(loss + row, tl.log(total) - picked)
    for start in range(0, n, CHUNK):
        c = start + tl.arange(0, CHUNK)
        p = tl.exp(tl.load(x + c, mask=c < n, other=float("-inf")).to(tl.float32)) / total
        tl.store(x + c, tl.where(c == label, p - 1.0, p), mask=c < n)


def _odd(rows, n):
    """Ties, zeros of both signs, halves, infinities, NaN alone and in whole rows."""
    x = torch.randn(rows, n).mul(3).round() / 2
    x[1, ::3], x[1, 1::7] = -0.0, 0.0
    x[2, n // 2], x[3, n - 1], x[3, 2] = math.nan, math.inf, -math.inf
    x[4], x[5] = math.nan, -math.inf
    x[6, 5::9] = math.nan
    return x


@pytest.mark.parametrize("n", [130, 256, 384])
def test_rounded_rows_keep_their_numbers(n):
    x = _odd(9, n)
    block = triton.next_power_of_2(n)
    q, total = torch.zeros(9, n, dtype=torch.int8), torch.zeros(9, dtype=torch.int32)
    against_cpu(rounded_rows, (x, q, total, n), {"BLOCK": block}, (9,), rtol=0, atol=0)
    against_cpu(summed_wholes, (x, total, n), {"BLOCK": block}, (9,), rtol=0, atol=0)


def test_one_row_with_nan_leaves_the_others_alone():
    x = _odd(12, 200)
    x[5] = 0.5  # a row of -inf alone is NaN everywhere
    against_cpu(
        softmax_in_turns, (torch.zeros(12, 200), x, 12, 200), {"WIDTH": 256}, (4,), rtol=1e-6, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("n", [256, 700])
def test_first_of_the_largest(n):
    x = _odd(9, n)
    args = (x, torch.zeros(9), torch.zeros(9, dtype=torch.int32), n)
    against_cpu(largest_in_chunks, args, {"CHUNK": 256}, (9,), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype, n", [(torch.float32, 4224), (torch.bfloat16, 4224), (torch.float32, 4300)])
def test_a_label_is_looked_up_by_the_scalar_core(dtype, n):
    rows = 32
    x = torch.randn(rows, n).to(dtype)
    labels = torch.randint(0, n, (rows,), dtype=torch.int32)
    labels[3], labels[7], labels[8], labels[30] = -100, 0, n - 1, -100
    args = (x, labels, torch.zeros(rows), n)
    source = gradients[(rows,)].source(*args, CHUNK=1024, target="tpu:v5e")
    assert ("lanes_around(" in source) == (n % 128 == 0)
    assert "x_out[...] = x_ref[...]" not in source  # each place is written once
    against_cpu(gradients, args, {"CHUNK": 1024}, (rows,), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


@pytest.mark.tpu_offline
def test_the_compiler_takes_them():
    f32, i32, rows, n = torch.float32, torch.int32, 64, 8192
    x, row = torch.empty(rows, n, dtype=torch.bfloat16, device="meta"), torch.empty(rows, dtype=f32, device="meta")
    labels = torch.empty(rows, dtype=i32, device="meta")
    for target in ("tpu:v5e", "tpu:7x"):
        verdict = gradients[(rows,)].check(x, labels, row, n, CHUNK=2048, target=target)
        assert verdict.verdict == "ok", verdict.message
