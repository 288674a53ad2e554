"""How far elementwise functions are from the truth, in units of the last place: bounds that must not grow.

Truth: NumPy in fp64 for fp32; mpmath with 120 bits for fp64.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat.language.extra import libdevice

from . import numbers_of as of

# name -> (lowest, highest, ulps allowed in fp32, in fp64)
BOUNDS = {
    "exp": (-87, 88, 1.1, 1.5),
    "exp2": (-125, 127.9, 1, 1),
    "log": (1e-30, 1e30, 1.3, 1),
    "log2": (1e-30, 1e30, 2, 2),
    "sqrt": (0.1, 1e30, 0.5, 0.5),
    "rsqrt": (1e-30, 1e30, 1.2, 1.5),
    "sin": (-100, 100, 1, 1),
    "cos": (-100, 100, 1, 1),
    "erf": (-5, 5, 2, 1.5),
    "tanh": (-12, 12, 1.5, 3),
    "expm1": (-20, 88, 0.51, 3.5),
    "log1p": (-0.99, 1e30, 2, 1.5),
    "sinh": (-88, 88, 0.51, 4),
    "cosh": (-88, 88, 0.51, 4),
    "atanh": (-0.999, 0.999, 0.51, 2.5),
    "cbrt": (-1e30, 1e30, 0.51, 3.5),
    "erfc": (-5, 9, 0.51, 10),
    "lgamma": (1e-10, 1e10, 0.51, 8),
    "tgamma": (-4.9, 19, 0.51, 12),  # by its logarithm above: some hundred
}
MP = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "lgamma": mpmath.loggamma,
    "tgamma": mpmath.gamma,
}
LANGUAGE = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf")


@triton.jit
def apply(x, out, FN: tl.constexpr, LANGUAGE: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    r = getattr(tl, FN)(v) if LANGUAGE else getattr(libdevice, FN)(v)
    tl.store(out + at, r)


def points(low, high, n, rng):
    """Uniform, and of every size."""
    size = np.exp(rng.uniform(np.log(1e-6 if low <= 0 else low), np.log(max(abs(low), high)), n // 2))
    x = np.concatenate([rng.uniform(low, high, n // 2), size * np.where(rng.random(n // 2) < 0.5, 1, -1)])
    return np.where((x < low) | (x > high), 1.0, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BOUNDS)
def test_ulps(name, dtype):
    low, high, *allowed = BOUNDS[name]
    wide = dtype == "float64"
    x = points(low, high, 256 if wide else 4096, np.random.default_rng(2)).astype(dtype)
    out = of.empty(len(x), dtype)
    apply[(1,)](of.to_torch(x, dtype), out, FN=name, LANGUAGE=name in LANGUAGE, N=len(x))
    got = of.to_numpy(out, dtype)
    with mpmath.workprec(120):
        fn = MP.get(name) or getattr(mpmath, name)
        every = slice(None) if wide else slice(None, None, 8)
        right = [fn(mpmath.mpf(float(v))) for v in x[every]]
        off = [
            float(abs(mpmath.mpf(float(g)) - r) / mpmath.mpf(float(np.spacing(np.abs(np.asarray(float(r), dtype))))))
            for g, r in zip(got[every], right)
            if abs(r) > np.finfo(dtype).tiny
        ]
    assert max(off) <= allowed[wide], (name, max(off), x[every][int(np.argmax(off))])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values(dtype):
    x = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 300.0, -1e5, 1e5, 0.5, 2.0, -0.5, 3.0, 4.0], dtype
    )
    numpy = {"erf": np.vectorize(lambda v: float(mpmath.erf(v)) if np.isfinite(v) else np.sign(v))}
    for name in ("exp2", "expm1", "log1p", "sinh", "cosh", "tanh", "atanh", "cbrt", "erf"):
        out = of.empty(len(x), dtype)
        apply[(1,)](of.to_torch(x, dtype), out, FN=name, LANGUAGE=name in LANGUAGE, N=len(x))
        fn = numpy.get(name) or getattr(np, {"atanh": "arctanh"}.get(name, name))
        with np.errstate(all="ignore"):
            right = np.asarray(fn(x.astype(np.float64))).astype(dtype)
        right[np.abs(right) < np.finfo(dtype).tiny] *= 0
        got = of.to_numpy(out, dtype)
        wrong = of.differ(got, right, 4)
        assert not wrong.any(), (name, of.show(wrong, x, got, right))


@triton.jit
def as_written(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, (v + 12582912.0) - 12582912.0)
    moved = v - 1.0
    moved += 1.0
    tl.store(out + N + at, moved)
    tl.store(out + 2 * N + at, tl.log(tl.exp(v)))
    tl.store(out + 3 * N + at, tl.exp(v) * tl.exp(-v * 0.5))


def test_sums_with_constants_are_rounded_as_written():
    x = np.linspace(-100, 100, 1024, dtype=np.float32) ** 3 * np.float32(1e-4)
    out = of.empty(4 * len(x), "float32")
    as_written[(1,)](of.to_torch(x, "float32"), out, N=len(x))
    nearest, moved, log, product = out.numpy().reshape(4, -1)
    np.testing.assert_array_equal(nearest, np.rint(x))  # the usual way to round to a whole number
    np.testing.assert_array_equal(moved, (x - np.float32(1)) + np.float32(1))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        assert ((log == np.inf) == (np.exp(x) == np.inf)).all() and (product[x > 89] == np.inf).all()


@triton.jit
def by_symbol(x, out, whole, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    known = {(tl.float32,): ("__nv_expf", tl.float32), (tl.float64,): ("__nv_exp", tl.float64)}
    tl.store(out + at, tl.extern_elementwise("", "", [v], known, is_pure=True))
    r = tl.extern_elementwise("libdevice", "", [v], {(tl.float32,): ("__nv_float2int_rd", tl.int32)}, is_pure=True)
    tl.store(whole + at, r)


@triton.jit
def unknown_symbol(x, out):
    tl.store(out, tl.extern_elementwise("mine", "mine.bc", [tl.load(x)], {(tl.float32,): ("my_fn", tl.float32)}))


@triton.jit
def other_type(x, out):
    tl.store(out, tl.extern_elementwise("", "", [tl.load(x)], {(tl.float64,): ("__nv_exp", tl.float64)}))


def test_functions_by_their_symbols():
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    out, whole = of.empty(64, "float32"), of.empty(64, "int32")
    by_symbol[(1,)](of.to_torch(x, "float32"), out, whole, N=64)
    np.testing.assert_allclose(out.numpy(), np.exp(x), rtol=2e-7)
    np.testing.assert_array_equal(whole.numpy(), np.floor(x).astype(np.int32))
    for kernel, slug, word in ((unknown_symbol, "not-translated", "my_fn"), (other_type, "operand-type", "fp64")):
        with pytest.raises(triton.CompilationError) as caught:
            kernel[(1,)](of.to_torch(x, "float32"), out)
        assert caught.value.slug == slug and word in str(caught.value)
