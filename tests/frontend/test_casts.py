"""Conversions of every element type to every other: all bit patterns of narrow types, the hard ones of wide types."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic

from . import numbers_of as of

LARGEST = {"float8e4nv": 448, "float8e5": 57344, "float8e4b8": 240, "float8e5b16": 57344}


@triton.jit
def convert(x, out, T: tl.constexpr, ROUNDING: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(T, fp_downcast_rounding=ROUNDING))


@triton.jit
def reread(x, out, T: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(T, bitcast=True))


def padded(x):
    size = 1 << (len(x) - 1).bit_length()
    return np.concatenate([x, np.zeros(size - len(x), x.dtype)])


def run(x, source, target, rounding=None):
    out = of.empty(len(x), target)
    convert[(1,)](of.to_torch(x, source), out, T=getattr(tl, target), ROUNDING=rounding, N=len(x))
    return of.to_numpy(out, target)


def expected(x, source, target):
    """The converted numbers, and where they are defined."""
    t = of.numpy_type(target)
    with np.errstate(all="ignore"):
        value = x.astype(np.float32) if source in of.FP8 else x
        if t.kind in "iu" and source not in (*of.INTS, *of.UINTS, "int1"):
            info = np.iinfo(t if t.itemsize >= 4 else np.int32)  # narrow integers are cut from 32 bits
            whole = np.trunc(value.astype(np.float64))
            defined = (whole >= info.min) & (whole <= np.nextafter(float(info.max) + 1, 0))
            whole = np.where(defined, whole, 0)
            return whole.astype(info.dtype).astype(t) if t.itemsize < 8 else exact_int64(whole, t), defined
        if target in LARGEST:
            value = np.clip(value.astype(np.float64), -LARGEST[target], LARGEST[target])
        if value.dtype == np.float64 and target in (*LARGEST, "bfloat16", "float16"):
            return once(value, t), np.ones(len(x), bool)
        return (value != 0) if target == "int1" else value.astype(t), np.ones(len(x), bool)


def exact_int64(whole, t):
    return np.array([int(v) for v in whole], dtype=t)


def once(value, t):
    """fp64 rounded once, where NumPy rounds to fp32 first: that loses only what decides between two neighbours."""
    near = value.astype(np.float32)
    off = np.where(np.isfinite(value) & (near.astype(np.float64) != value), near.astype(np.float64) - value, 0)
    bits = near.view(np.int32)
    toward = np.where((off != 0) & (bits & 1 == 0), np.where(np.sign(off) == np.sign(value), -1, 1), 0)
    return (bits + toward.astype(np.int32)).view(np.float32).astype(t)


EVERY = (*of.ALL, "int1", *of.FP8)
PAIRS = [(a, b) for a in EVERY for b in EVERY if a != b and not (b in of.FP8 and a in (*of.INTS, *of.UINTS, "int1"))]
SAMPLE = [
    ("float32", "float64"), ("bfloat16", "float64"), ("float64", "float32"), ("float64", "bfloat16"),
    ("float64", "float16"), ("float32", "bfloat16"), ("float32", "float16"), ("float16", "bfloat16"),
    ("float32", "float8e4nv"), ("bfloat16", "float8e5"), ("float16", "float8e4b8"), ("float64", "float8e5b16"),
    ("float8e5", "float8e4nv"), ("float8e4nv", "bfloat16"), ("float8e5b16", "float32"), ("float8e4b8", "int1"),
    ("float32", "int8"), ("float64", "uint16"), ("float16", "int64"), ("bfloat16", "uint64"), ("float32", "uint32"),
    ("int64", "float32"), ("uint64", "float64"), ("uint64", "bfloat16"), ("int32", "float16"), ("int64", "int8"),
    ("uint8", "int64"), ("int8", "uint32"), ("int1", "bfloat16"), ("int1", "int64"), ("int16", "int1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "target"), [pytest.param(*p, marks=() if p in SAMPLE else pytest.mark.slow) for p in PAIRS]
)
def test_cast(source, target):
    x = padded(of.patterns(source))
    want, defined = expected(x, source, target)
    if target == "int1" and source in ("float32", "float64"):  # comparisons take these for 0, as the machine does
        defined &= ~((np.abs(x) < np.finfo(x.dtype).tiny) & (x != 0))
    wrong = of.differ(run(x, source, target), want) & defined
    assert not wrong.any(), of.show(wrong, x, run(x, source, target), want)


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "float16"), ("float32", "bfloat16"), ("float32", "float8e5"), ("float32", "float8e4nv"),
     ("float64", "float32"), ("float64", "bfloat16"), ("float16", "float8e5")],
)  # fmt: skip
@np.errstate(invalid="ignore")
def test_cast_towards_zero(source, target):
    x = padded(of.patterns(source))
    out = run(x, source, target, "rtz")
    wide, got = x.astype(np.float64), out.astype(np.float64)
    largest = float(LARGEST[target]) if target in LARGEST else float(of.ml_dtypes.finfo(of.numpy_type(target)).max)
    nan = np.isnan(wide)
    assert np.isnan(got[nan]).all() and not np.isnan(got[~nan]).any()
    inside = ~nan & (np.abs(wide) <= largest)
    assert (np.abs(got) <= np.abs(wide))[inside].all() and (np.signbit(got) == np.signbit(wide))[~nan].all()
    above = (np.abs(out).view(f"u{out.itemsize}") + 1).view(out.dtype).astype(np.float64)  # the next larger number
    assert ((above > np.abs(wide)) | np.isnan(above))[inside].all()
    assert (np.abs(got) == largest)[~nan & np.isfinite(wide) & ~inside].all()


def e4b15(byte):
    """The number that a byte of Triton's format stands for."""
    exponent, fraction = (byte >> 3) & 15, byte & 7
    size = Fraction(8 * (exponent > 0) + fraction, 8) * Fraction(2) ** (max(exponent, 1) - 15)
    return -float(size) if byte >> 7 else float(size)


def test_e4b15_is_tritons_own_format():
    raw = of.patterns("float8e4b15")
    numbers = np.array([e4b15(int(b)) for b in raw])
    for target in ("float16", "float32", "float64"):
        np.testing.assert_array_equal(run(raw, "float8e4b15", target), numbers.astype(of.numpy_type(target)))
    for source in ("float16", "float32"):
        x = numbers.astype(of.numpy_type(source))
        back = run(x, source, "float8e4b15")
        np.testing.assert_array_equal(back, np.where(raw & 127 == 127, raw - 1, raw))  # +-1.75 is the largest
    x = np.array([2.0, 1e30, np.inf, np.nan, -5.0, 1 + 1 / 16, 1 + 3 / 16, 0.0], np.float32)
    assert run(x, "float32", "float8e4b15").tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x79, 0x7A, 0]


@triton.jit
def absolute(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.abs(tl.load(x + at)))


@pytest.mark.parametrize("name", [*of.FP8, "float8e4b15"])
def test_abs_of_8_bit_floats(name):
    x, out = of.patterns(name), of.empty(256, name)
    absolute[(1,)](of.to_torch(x, name), out, N=256)
    raw = x.view(np.uint8)
    no_zero = raw == 128 if name in ("float8e4b8", "float8e5b16") else raw > 255  # there it is NaN
    np.testing.assert_array_equal(of.to_numpy(out, name).view(np.uint8), np.where(no_zero, raw, raw & 127))


@triton.jit
def added(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + tl.load(x + at))


def test_arithmetic_in_e4b15_is_refused():
    with pytest.raises(Diagnostic) as caught:
        added[(1,)](of.empty(8, "float8e4b15"), of.empty(8, "float8e4b15"), N=8)
    assert caught.value.slug == "operand-type" and "added" in caught.value.where.function


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "int32"), ("int64", "float64"), ("uint16", "bfloat16"), ("bfloat16", "float16"), ("int8", "uint8"),
     ("float8e5", "int8"), ("uint8", "float8e4nv"), ("uint64", "int64"), ("float64", "uint64")],
)  # fmt: skip
def test_bitcast_keeps_the_bits(source, target):
    x = padded(of.patterns(source))
    out = of.empty(len(x), target)
    reread[(1,)](of.to_torch(x, source), out, T=getattr(tl, target), N=len(x))
    np.testing.assert_array_equal(of.to_numpy(out, target).view(np.uint8), x.view(np.uint8))


@triton.jit
def masked(x, keep, out, N: tl.constexpr):
    at = tl.arange(0, N)
    m = tl.load(keep + at) != 0
    tl.store(out + at, tl.load(x + at) * m)
    tl.store(out + N + at, tl.load(x + at) * m.to(tl.float32))


def test_a_mask_is_a_factor_not_a_choice():
    x = np.array([np.nan, np.inf, -1.0, 2.0], np.float32)
    keep = np.array([0, 0, 0, 1], np.int8)
    out = of.empty(8, "float32")
    masked[(1,)](of.to_torch(x, "float32"), of.to_torch(keep, "int8"), out, N=4)
    with np.errstate(invalid="ignore"):
        want = np.tile(x * keep.astype(np.float32), 2)
    assert not of.differ(of.to_numpy(out, "float32"), want).any()


@triton.jit
def constants(out, T: tl.constexpr, VALUE: tl.constexpr, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.full((N,), VALUE, T))


@pytest.mark.parametrize("target", [*of.ALL, "int1", *of.FP8])
def test_full_of_every_type(target):
    for value in (1, 2.5) if target in (*of.FLOATS, *of.FP8) else (1,):
        out = of.empty(8, target)
        constants[(1,)](out, T=getattr(tl, target), VALUE=value, N=8)
        assert (of.to_numpy(out, target).astype(np.float64) == value).all()


def test_refused_casts():
    for source, target, rounding in (
        ("int32", "float8e5", None), ("float32", "int32", "rtz"), ("float32", "float64", "rtne"),
        ("float32", "float16", "up"),
    ):  # fmt: skip
        with pytest.raises(Diagnostic) as caught:
            run(np.zeros(4, of.numpy_type(source)), source, target, rounding)
        assert caught.value.slug == "operand-type"
