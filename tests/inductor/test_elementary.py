"""Elementary functions on the CPU: units in the last place against mpmath, special values against eager."""

import math

import mpmath
import numpy as np
import pytest
import torch
from inductor_checks import check

INF, NAN = math.inf, math.nan
#: Both sides of every branch, and more elements than the plain forms are kept for.
SPECIAL = [
    0.0,
    -0.0,
    1,
    -1,
    2,
    -2,
    0.5,
    -0.5,
    3,
    -3,
    2.5,
    -2.5,
    1e-4,
    -1e-4,
    20,
    -20,
    1e5,
    -1e5,
    3e30,
    -3e30,
    INF,
    -INF,
    NAN,
]


def ulps(got: torch.Tensor, want: list) -> float:
    """The largest distance of finite, normal results, in units of the last place of the wanted ones."""
    digits, least = (53, -1022) if got.dtype == torch.float64 else (24, -126)
    worst = mpmath.mpf(0)
    for value, exact in zip(got.tolist(), want, strict=True):
        if not math.isfinite(value) or not mpmath.isfinite(exact) or exact == 0:
            assert value == exact or abs(exact) > mpmath.mpf(2) ** (-least), (value, exact)
            continue
        exponent = max(int(mpmath.floor(mpmath.log(abs(exact), 2))), least)
        worst = max(worst, abs(mpmath.mpf(value) - exact) / mpmath.mpf(2) ** (exponent - digits + 1))
    return float(worst)


def spread(rng, count, low, high, both):
    """Numbers whose logarithms are uniform between two powers of two, of both signs or one."""
    return np.exp2(rng.uniform(low, high, count)) * (rng.choice([-1, 1], count) if both else 1)


def arguments(name: str, dtype: torch.dtype) -> np.ndarray:
    """Numbers all over the domain of a function, many of them where its branches meet."""
    rng = np.random.default_rng(0)
    double = dtype == torch.float64
    if name in ("sin", "cos", "tan"):
        limit = 19 if double else 12
        near = np.arange(-60, 60) * (np.pi / 4)
        return np.concatenate([spread(rng, 300, -40, limit, True), rng.uniform(-4, 4, 300), near])
    if name in ("asin", "acos", "atanh", "erfinv"):
        ends = 1 - spread(rng, 150, -23, -1, False)
        x = np.concatenate([rng.uniform(-1, 1, 400), ends, spread(rng, 150, -40, -1, True)])
        return x[np.abs(x.astype(np.float32)) < 1]
    if name in ("exp2",):
        return np.concatenate([rng.uniform(-1000, 1000, 400) * (1 if double else 0.12), spread(rng, 300, -30, 3, True)])
    if name == "erf":
        return np.concatenate([rng.uniform(-6.5, 6.5, 400), spread(rng, 300, -40, 1, True), [1.0, -1.0]])
    if name == "acosh":
        return 1 + np.concatenate(
            [spread(rng, 300, -20, 20, False), spread(rng, 300, 20, 1000 if double else 120, False)]
        )
    wide = spread(rng, 300, -1000, 1000, False) if double else spread(rng, 300, -120, 120, False)
    if name == "log1p":
        return np.concatenate(
            [wide, spread(rng, 300, -50, 2, True).clip(-0.99999), spread(rng, 50, -20, -1, False) - 1]
        )
    if name in ("asinh", "atan"):
        return np.concatenate([wide, -wide, rng.uniform(-4, 4, 300)])
    return np.concatenate([wide, rng.uniform(0.5, 2, 300), 1 + spread(rng, 200, -30, -2, True)])


EXACT = {
    "log2": lambda x: mpmath.log(x, 2), "exp2": lambda x: mpmath.power(2, x),
}  # fmt: skip
#: function -> (ulps in f64, in f32)
LIMITS = {
    "sin": (2, 2), "cos": (2, 2), "tan": (2, 2), "asin": (2, 2), "acos": (2, 2), "atan": (2, 2), "log": (2, 2),
    "log2": (2, None), "log10": (2, None), "log1p": (2, 2), "exp2": (2, 2), "asinh": (3, 3), "acosh": (3, 3),
    "atanh": (3, 3), "erf": (2, None), "erfinv": (None, 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LIMITS)
def test_distance_from_the_exact_value(name, dtype):
    limit = LIMITS[name][dtype == torch.float32]
    if limit is None:
        pytest.skip("XLA's own, or ATen's formula")
    function = getattr(torch, name)
    x = torch.from_numpy(arguments(name, dtype)).to(dtype)
    assert x.numel() >= 512
    got = torch.compile(function, backend="pallas")(x)
    with mpmath.workprec(160):
        exact = EXACT.get(name) or getattr(mpmath, name)
        assert ulps(got, [exact(mpmath.mpf(v)) for v in x.tolist()]) <= limit


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_distance_of_functions_of_two_numbers(dtype):
    rng = np.random.default_rng(1)
    size = 900 if dtype == torch.float64 else 100
    y = torch.from_numpy(spread(rng, 600, -size, size, True)).to(dtype)
    x = (y.double() * torch.from_numpy(spread(rng, 600, -5, 5, True))).to(dtype)
    got = torch.compile(torch.atan2, backend="pallas")(y, x)
    with mpmath.workprec(160):
        want = [mpmath.atan2(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(y.tolist(), x.tolist())]
        assert ulps(got, want) <= 2
        if dtype == torch.float32:
            x, y = y.abs().clamp(1e-9, 1e9), torch.from_numpy(rng.uniform(-3, 3, 600)).float()
            got = torch.compile(torch.pow, backend="pallas")(x, y)
            assert ulps(got, [mpmath.power(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(x.tolist(), y.tolist())]) <= 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_special_values(dtype):
    x = torch.tensor(SPECIAL * 30).to(dtype)
    functions = [getattr(torch, name) for name in LIMITS]
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-6
    got = check(lambda x: [f(x) for f in functions], x, rtol=tolerance, atol=0)
    for name, mine, theirs in zip(LIMITS, got, [f(x) for f in functions], strict=True):
        real = theirs == theirs
        assert torch.equal(torch.signbit(mine)[real], torch.signbit(theirs)[real]), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_special_values_of_two_numbers(dtype):
    x = torch.tensor(SPECIAL, dtype=dtype)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    got = check(lambda a, b: (torch.atan2(a, b), torch.pow(a, b), torch.logaddexp(a, b)), a, b, rtol=1e-5, atol=0)
    for mine, theirs in zip(got[:2], (torch.atan2(a, b), torch.pow(a, b))):
        real = theirs == theirs
        assert torch.equal(torch.signbit(mine)[real], torch.signbit(theirs)[real])


def test_large_angles():
    x = torch.cat([torch.linspace(-3e8, 3e8, 2000), torch.tensor([1e30, -3e38, INF])])
    for angles in (x, x.double(), x.double() * 1e200):
        check(lambda x: (x.sin(), x.cos(), x.tan()), angles, rtol=2e-5, atol=1e-6)


def test_remainders_are_exact():
    rng = np.random.default_rng(2)
    x, y = spread(rng, 2000, -30, 30, True), spread(rng, 2000, -30, 30, True)
    y[:600] = x[:600] / np.rint(np.exp2(rng.uniform(0, 27, 600)))  # quotients near whole numbers
    small = np.abs(x / y) < 2.0**27
    special = torch.tensor(SPECIAL)
    pairs = special.repeat_interleave(len(special)), special.repeat(len(special))
    for a, b in ((x[small], y[small]), (x, y), pairs):
        a, b = (torch.as_tensor(v).float() for v in (a, b))
        got = check(lambda a, b: (a.fmod(b), a.remainder(b), a // b), a, b, rtol=0, atol=0)
        real = got[0] == got[0]
        assert torch.equal(torch.signbit(got[0][real]), torch.signbit(a.fmod(b)[real]))
