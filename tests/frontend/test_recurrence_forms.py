"""Forms that kernels of linear attention are written in, each as a small kernel against NumPy or torch."""

from __future__ import annotations

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic


@triton.jit
def rows_meet_columns(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + i[None, :])
    b = tl.dot(a, tl.dot(a, a))
    b = tl.where(i[:, None] > i[None, :], b, 0.0)
    top = tl.reshape(tl.max(b, axis=0, keep_dims=True), (N,))
    tl.store(o + i, tl.sum(b, axis=1) - tl.sum(b, axis=0) + top)


def test_sums_of_rows_meet_sums_of_columns():
    x, o = torch.randn(16, 16) / 4, torch.zeros(16)
    rows_meet_columns[(1,)](x, o, 16)
    b = (x @ x @ x).tril(-1)
    torch.testing.assert_close(o, b.sum(1) - b.sum(0) + b.amax(0))


@triton.jit
def loop_of_uneven_length(o, n, EARLY: tl.constexpr, W: tl.constexpr):
    p = tl.program_id(0)
    first = (p * p) % 5 * 3
    if EARLY:
        if first >= n:
            return
    i = tl.arange(0, W)
    for j in range(0, min(W, n - first)):
        tl.store(o + p * W * W + j * W + i, i * j + p)


@pytest.mark.parametrize("early", [False, True])
def test_a_loop_that_programs_run_differently_often(early):
    o = torch.zeros(7, 16, 16, dtype=torch.int32)
    loop_of_uneven_length[(7,)](o, 10, early, 16)
    want = torch.zeros_like(o)
    for p in range(7):
        for j in range(min(16, 10 - p * p % 5 * 3)):
            want[p, j] = torch.arange(16) * j + p
    assert torch.equal(o, want)


@triton.jit
def ticket_and_uneven_loop(counter, o, W: tl.constexpr):
    p = tl.program_id(0)
    ticket = tl.atomic_add(counter, 1)
    for j in range(0, (p * p) % 5):
        tl.store(o + p * W + j, ticket + j + 10)


def test_programs_one_after_the_other_run_a_loop_as_often_as_they_should():
    o, counter = torch.zeros(9, 16, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    ticket_and_uneven_loop[(7,)](counter, o, 16)
    want = torch.zeros_like(o)
    for p in range(7):
        want[p, : p * p % 5] = torch.arange(p * p % 5) + p + 10
    assert torch.equal(o, want)


@triton.jit
def previous_decay(g, x, o, n, CHUNK: tl.constexpr, STEP: tl.constexpr):
    p = tl.program_id(0)
    total = tl.zeros([STEP], dtype=tl.float32)
    shift = 0.0
    for start in range(p * CHUNK - STEP, -STEP, -STEP):
        i = start + tl.arange(0, STEP)
        last = tl.load(g + min(start + STEP, n) - 1)
        before = tl.load(g + start - 1) if start % CHUNK > 0 else 0.0
        total += tl.load(x + i) * (last - shift)
        shift += last - before
    tl.store(o + p * STEP + tl.arange(0, STEP), total)


def test_a_load_under_a_condition_on_a_loop_counters_remainder():
    n, chunk, step, programs = 128, 32, 16, 4
    g, x, o = torch.rand(n), torch.randn(n), torch.zeros(programs, step)
    previous_decay[(programs,)](g, x, o, n, chunk, step)
    want = torch.zeros_like(o)
    for p in range(programs):
        shift = torch.tensor(0.0)
        for start in range(p * chunk - step, -step, -step):
            last = g[min(start + step, n) - 1]
            before = g[start - 1] if start % chunk > 0 else 0.0
            want[p] += x[start : start + step] * (last - shift)
            shift = shift + last - before
    torch.testing.assert_close(o, want)


@triton.jit
def outer_sums(k, v, g, o, T: tl.constexpr, K: tl.constexpr, V: tl.constexpr):
    """One state a program, from keys that all programs share."""
    p = tl.program_id(0)
    t, i, j = tl.arange(0, T), tl.arange(0, K), tl.arange(0, V)
    state = tl.zeros([K, V], dtype=tl.float32)
    for c in range(2):
        key = tl.load(k + c * T * K + i[:, None] + t[None, :] * K)
        value = tl.load(v + ((c * T + t[:, None]) * 2 + p) * V + j[None, :])
        gate = tl.load(g + (c * T + t) * 2 + p)
        state += tl.dot(key, (value * gate[:, None]).to(tl.bfloat16))
    tl.store(o + p * K * V + i[:, None] * V + j[None, :], state)


def test_bf16_products_of_shared_keys_with_every_programs_values():
    T, K, V = 32, 16, 16
    k, v, g = torch.randn(2 * T, K).bfloat16(), torch.randn(2 * T, 2, V).bfloat16(), torch.rand(2 * T, 2)
    o = torch.zeros(2, K, V)
    outer_sums[(2,)](k, v, g, o, T, K, V)
    gated = (v.float() * g[..., None]).bfloat16()
    torch.testing.assert_close(o, torch.einsum("tk,tpv->pkv", k.float(), gated.float()), rtol=1e-4, atol=1e-4)


@triton.jit
def name_with_two_uses(x, o, N: tl.constexpr, TURNS: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for turn in range(TURNS):
        row = tl.load(x + i[:, None] * N + i[None, :])
        total += tl.sum(row, 0) * turn
    for turn in range(TURNS):
        row = tl.sum(tl.where(i[:, None] == turn, tl.load(x + i[:, None] * N + i[None, :]), 0.0), 0)
        row = row + turn
        total += row
    tl.store(o + i, total)
    tl.store(o + N + i, row)


def test_a_name_that_one_loop_leaves_is_another_thing_in_the_next():
    x, o = torch.randn(8, 8), torch.zeros(16)
    name_with_two_uses[(1,)](x, o, 8, 3)
    torch.testing.assert_close(o[:8], x.sum(0) * 3 + x[:3].sum(0) + 3)
    torch.testing.assert_close(o[8:], x[2] + 2)


@triton.jit
def name_of_another_type(o, N: tl.constexpr):
    total = 0
    for _ in range(4):
        total = 1.0
    tl.store(o + tl.arange(0, N), total)


def test_a_name_from_before_the_loop_keeps_its_type():
    with pytest.raises(Diagnostic, match="loop-carried-type"):
        name_of_another_type[(1,)](torch.zeros(8), 8)


@triton.jit
def one_of_several(o, a, b, c, d, na, nb, nc, BLOCK: tl.constexpr):
    x, y = tl.program_id(0), tl.program_id(1)
    if y == 0:
        p = a
        n = na
        at = 0
    elif y == 1:
        p = b
        n = nb
        at = na
    elif y == 2:
        p = c + 1
        n = nc
        at = na + nb
    else:
        p = d
        n = nc
        at = na + nb + nc
    i = x * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at + i, tl.load(p + i, mask=i < n), mask=i < n)


def test_programs_that_each_copy_one_of_several_tensors():
    a, b, c, d = torch.randn(30), torch.randn(50), torch.randn(18), torch.randn(17)
    o = torch.zeros(114)
    one_of_several[(4, 4)](o, a, b, c, d, 30, 50, 17, BLOCK=16)
    assert torch.equal(o, torch.cat([a, b, c[1:], d]))


@triton.jit
def inner(x, lanes: tl.constexpr, scale: tl.constexpr):
    return tl.where(lanes % 2 == 0, x * scale, 0.0)


@triton.jit
def given_or_not(o, x, w, N: tl.constexpr):
    i = tl.arange(0, N)
    v = inner(tl.load(x + i), i, 3.0)
    if w:
        v = v * tl.load(w + i)
    if v.dtype is tl.float32:
        v = v + 1
    tl.store(o + i, v)


def test_a_pointer_as_a_condition_a_dtype_by_identity_and_a_helpers_constexpr_that_is_a_tile():
    x, w, o = torch.randn(16), torch.randn(16), torch.zeros(16)
    even = torch.arange(16) % 2 == 0
    given_or_not[(1,)](o, x, w, 16)
    torch.testing.assert_close(o, torch.where(even, x * 3, 0) * w + 1)
    given_or_not[(1,)](o, x, None, 16)
    torch.testing.assert_close(o, torch.where(even, x * 3, 0) + 1)


@triton.jit
def is_a_float(x):
    return (x + tl.zeros((1,), tl.int1)).dtype.is_floating()


@triton.jit
def larger(a, i, b, j):
    mask = a > b
    if is_a_float(a):
        mask |= (a != a) & (b == b)
    mask |= (a == b) & (i > j)
    return tl.where(mask, a, b), tl.where(mask, i, j)


@triton.jit
def running_max(v, at, x, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.associative_scan((tl.load(x + i), i), 0, larger)
    tl.store(v + i, a)
    tl.store(at + i, b)


def test_a_combine_function_that_asks_for_a_dtype_with_tiles():
    x = torch.tensor([3.0, 1, 3, 7, 2, 7, 9, 0])
    v, at = torch.zeros(8), torch.zeros(8, dtype=torch.int32)
    running_max[(1,)](v, at, x, 8)
    want = x.cummax(0)
    assert torch.equal(v, want.values) and torch.equal(at.long(), want.indices)
