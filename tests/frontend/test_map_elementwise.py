"""`tl.map_elementwise`: scalar functions with branches, loops and returns, element by element, against Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic

from . import numbers_of as of

N = 64


@triton.jit
def selu(x, alpha):
    if x > 0:
        return x
    else:
        return alpha * (tl.exp(x) - 1)


@triton.jit
def nested(x, y):
    if x > 1.0:
        r = x * y
        if y < 0.0:
            r = r - 100.0
    elif x < -1.0:
        r = x + y
    else:
        if y > 0.5:
            return y, 7
        r = 0.0
    return r, 3


@triton.jit
def collatz(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@triton.jit
def power(x, n):
    result = 1.0
    for _ in range(n):
        result *= x
        if result > 1000.0:
            break
    return result


@triton.jit
def swapped(a, b):
    if a > b:
        return b, a
    return a, b


@triton.jit
def kernel(x, y, n, out, whole, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, k = tl.load(x + at), tl.load(y + at), tl.load(n + at)
    tl.store(out + at, tl.map_elementwise(selu, a, 1.7))
    r, tag = tl.map_elementwise(nested, a, b)
    tl.store(out + N + at, r)
    tl.store(whole + at, tag)
    tl.store(whole + N + at, tl.map_elementwise(collatz, k))
    tl.store(out + 2 * N + at, tl.map_elementwise(power, a, k % 20))
    tl.store(out + 3 * N + at, tl.map_elementwise(swapped, a, pack=2)[0])
    grid = tl.map_elementwise(selu, a[:, None], b[None, :])
    tl.store(out + 4 * N + at, tl.sum(grid, axis=1))


def test_scalar_functions():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(0, 2, N).astype(np.float32) for _ in range(2))
    n = rng.integers(1, 60, N).astype(np.int32)
    out, whole = of.empty(5 * N, "float32"), of.empty(2 * N, "int32")
    arguments = [of.to_torch(v, d) for v, d in ((x, "float32"), (y, "float32"), (n, "int32"))]
    kernel[(1,)](*arguments, out, whole, N=N)
    got, tags = out.numpy().reshape(5, N), whole.numpy().reshape(2, N)

    def plain_nested(a, b):
        if a > 1:
            return a * b - (100 if b < 0 else 0), 3
        if a < -1:
            return a + b, 3
        return (b, 7) if b > 0.5 else (0.0, 3)

    def plain_collatz(v):
        steps = 0
        while v > 1:
            v, steps = (v // 2 if v % 2 == 0 else 3 * v + 1), steps + 1
        return steps

    def plain_power(a, k):
        r = np.float32(1)
        for _ in range(k):
            r *= np.float32(a)
            if r > 1000:
                break
        return r

    def plain_selu(a, alpha):
        return a if a > 0 else alpha * (math.exp(a) - 1)

    np.testing.assert_allclose(got[0], [plain_selu(a, 1.7) for a in x], rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(got[1], [plain_nested(a, b)[0] for a, b in zip(x, y)], rtol=1e-6)
    np.testing.assert_array_equal(tags[0], [plain_nested(a, b)[1] for a, b in zip(x, y)])
    np.testing.assert_array_equal(tags[1], [plain_collatz(int(v)) for v in n])
    np.testing.assert_allclose(got[2], [plain_power(a, k % 20) for a, k in zip(x, n)], rtol=1e-5)
    np.testing.assert_array_equal(got[3], np.sort(x.reshape(-1, 2), axis=1).ravel())
    right = [sum(plain_selu(a, b) for b in y) for a in x]
    np.testing.assert_allclose(got[4], right, rtol=1e-4, atol=1e-4)


@triton.jit
def makes_a_tile(x):
    return x + tl.sum(tl.arange(0, 4), 0)


@triton.jit
def apply_tile(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.map_elementwise(makes_a_tile, tl.load(x + at)))


@triton.jit
def apply_pack(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.map_elementwise(selu, tl.load(x + at), 1.0, pack=3))


@pytest.mark.parametrize(("fn", "slug"), [(apply_tile, "combine-function"), (apply_pack, "shape-mismatch")])
def test_refused(fn, slug):
    with pytest.raises(Diagnostic) as caught:
        fn[(1,)](of.empty(N, "float32"), N=N)
    assert caught.value.slug == slug
