"""Philox and what is made from it, bit by bit against the published rounds in Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic

from . import numbers_of as of

N = 32
MULTIPLIERS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
INCREMENTS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def rounds(counter, key, bits, count):
    """The generator of Salmon et al., SC'11, on four words and two."""
    mask = (1 << bits) - 1
    (a, b, c, d), (k, m) = counter, key
    for _ in range(count):
        first, second = MULTIPLIERS[bits][0] * a, MULTIPLIERS[bits][1] * c
        a, b, c, d = (second >> bits) ^ b ^ k, second & mask, (first >> bits) ^ d ^ m, first & mask
        k, m = (k + INCREMENTS[bits][0]) & mask, (m + INCREMENTS[bits][1]) & mask
    return a, b, c, d


@triton.jit
def draw(off, seed, words, uniform, normal, fours, T: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    o = tl.load(off + at).to(T)
    a, b, c, d = tl.randint4x(seed, o, R)
    tl.store(words + at, a)
    tl.store(words + N + at, b)
    tl.store(words + 2 * N + at, c)
    tl.store(words + 3 * N + at, d)
    tl.store(words + 4 * N + at, tl.randint(seed, o, R))
    tl.store(uniform + at, tl.rand(seed, o, R))
    tl.store(uniform + N, tl.rand(seed, 7, R))
    tl.store(normal + at, tl.randn(seed, o, R))
    e, f, g, h = tl.randn4x(seed, o, R)
    tl.store(fours + at, e)
    tl.store(fours + N + at, f)
    tl.store(fours + 2 * N + at, g)
    tl.store(fours + 3 * N + at, h)


def to_uniform(words):
    x = words.astype(np.int32)
    return np.where(x < 0, -x - 1, x).astype(np.float32) * np.float32(4.6566127342e-10)


def to_normal(u, v):
    radius = np.sqrt(-2 * np.log(np.maximum(u.astype(np.float64), 1e-7)))
    return radius * np.cos(2 * np.pi * v.astype(np.float64)), radius * np.sin(2 * np.pi * v.astype(np.float64))


@pytest.mark.parametrize(
    ("seed", "dtype", "count"),
    [
        (0, "int32", 10),
        (-5, "int64", 10),
        (2**31 - 1, "uint32", 6),
        (2**40 + 3, "int64", 7),
        (0xFFFFFFFF, "uint64", 10),
    ],
)
def test_streams(seed, dtype, count):
    off = np.random.default_rng(1).integers(-(2**62), 2**62, N)
    off[:4] = 0, 1, 2, -1
    outs = [of.empty(n, t) for n, t in ((5 * N, "uint32"), (N + 1, "float32"), (N, "float32"), (4 * N, "float32"))]
    draw[(1,)](of.to_torch(off, "int64"), seed, *outs, T=getattr(tl, dtype), R=count, N=N)
    words, uniform, normal, fours = (o.numpy() for o in outs)
    wide = "64" in dtype
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    counters = [(int(o) & 0xFFFFFFFF, int(o) >> 32 & 0xFFFFFFFF if wide else 0, 0, 0) for o in off]
    right = np.array([rounds(c, key, 32, count) for c in counters], np.uint32).T
    np.testing.assert_array_equal(words.reshape(5, N), [*right, right[0]])
    u = [to_uniform(w) for w in right]
    seventh = to_uniform(np.array(rounds((7, 0, 0, 0), key, 32, count), np.uint32))[0]
    np.testing.assert_array_equal(uniform, np.append(u[0], seventh))
    first, second = to_normal(u[0], u[1]), to_normal(u[2], u[3])
    np.testing.assert_allclose(normal, first[0], rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(fours.reshape(4, N), [*first, *second], rtol=2e-5, atol=2e-6)


@triton.jit
def wide_words(off, seed, words, uniform, N: tl.constexpr):
    at = tl.arange(0, N)
    o = tl.load(off + at)
    a, b, c, d = tl.philox(seed, o, o + 1, o * 0, o * 0)
    tl.store(words + at, a)
    tl.store(words + N + at, d)
    tl.store(uniform + at, tl.random.uint_to_uniform_float(c))


def test_64_bit_words():
    off = np.arange(N, dtype=np.uint64) * np.uint64(0x123456789ABCDEF)
    words, uniform = of.empty(2 * N, "uint64"), of.empty(N, "float32")
    wide_words[(1,)](of.to_torch(off, "uint64"), 2**40 + 9, words, uniform, N=N)
    right = np.array([rounds((int(o), int(o) + 1, 0, 0), (2**40 + 9, 0), 64, 10) for o in off], np.uint64).T
    np.testing.assert_array_equal(words.numpy().reshape(2, N), [right[0], right[3]])
    x = right[2].astype(np.int64)
    expected = np.where(x < 0, -x - 1, x).astype(np.float32) * np.float32(1.0842020432385337e-19)
    np.testing.assert_array_equal(uniform.numpy(), expected)


@triton.jit
def bad_seed(out, seed):
    tl.store(out + tl.arange(0, 1), tl.rand(seed, tl.arange(0, 1)))


@triton.jit
def only_reads(x: tl.const, out, WRITE: tl.constexpr):
    v = tl.load(x)
    tl.store(out, v)
    if WRITE:
        tl.store(x, v)


def test_refused():
    for seed in (2.3, of.empty(1, "int32")):
        with pytest.raises(Diagnostic) as caught:
            bad_seed[(1,)](of.empty(1, "float32"), seed)
        assert caught.value.slug == "operand-type"


def test_a_constant_pointer_is_only_read():
    x, out = of.to_torch(np.ones(1, np.float32), "float32"), of.empty(1, "float32")
    only_reads[(1,)](x, out, WRITE=False)
    assert out.item() == 1
    with pytest.raises(Diagnostic) as caught:
        only_reads[(1,)](x, out, WRITE=True)
    assert "constant pointer" in str(caught.value) and "constant pointer" in str(caught.value.__cause__)
