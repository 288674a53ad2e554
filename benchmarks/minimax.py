#!/usr/bin/env python
"""Coefficients of the polynomials in `inductor_backend/ops/elementary`: Remez exchange in 60 digits (mpmath).

Input: the name of a fit. Output: its coefficients, lowest first, and the largest weighted error as a power of two.
Law: the error is that of the polynomial whose coefficients were rounded to the dtype, evaluated exactly.

    python benchmarks/minimax.py [names]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Function = Callable[[Any], Any]


def remez(f: Function, weight: Function, low: float, high: float, count: int, turns: int = 12) -> list[Any]:
    """The polynomial p of `count` coefficients that minimises max |(p - f) weight| on [low, high]."""
    low, high = mp.mpf(low) or mp.mpf(high) * mp.mpf("1e-12"), mp.mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mp.cos(mp.pi * i / count) for i in range(count + 1)]
    grid = [middle - half * mp.cos(mp.pi * i / (40 * count)) for i in range(40 * count + 1)]
    values = [(f(x), weight(x)) for x in grid]
    coefficients: list[Any] = []
    for _ in range(turns):
        system, right = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
        for i, x in enumerate(points):
            for j in range(count):
                system[i, j] = x**j
            system[i, count] = (-1) ** i / weight(x)
            right[i] = f(x)
        solution = mp.lu_solve(system, right)
        coefficients = [solution[j] for j in range(count)]
        errors = [(mp.polyval(coefficients[::-1], x) - v) * w for x, (v, w) in zip(grid, values)]
        # The new points: the largest error between two changes of its sign.
        extremes, start = [], 0
        for i in range(1, len(grid) + 1):
            if i == len(grid) or mp.sign(errors[i]) != mp.sign(errors[start]):
                extremes.append(max(range(start, i), key=lambda k: abs(errors[k])))
                start = i
        if len(extremes) < count + 1:
            break
        while len(extremes) > count + 1:
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        points = [grid[i] for i in extremes]
    return coefficients


def rounded(
    f: Function, weight: Function, low: float, high: float, count: int, dtype: Any = np.float64
) -> tuple[list[float], float]:
    """(coefficients in the dtype, log2 of the largest weighted error); the others are fitted to the rounded first."""
    first = remez(f, weight, low, high, count)
    fixed = [float(dtype(float(first[0])))]
    start = mp.mpf(high) / 1000 if low >= 0 else low
    rest = (
        remez(lambda x: (f(x) - fixed[0]) / x, lambda x: weight(x) * abs(x), start, high, count - 1)
        if low >= 0
        else first[1:]
    )
    fixed += [float(dtype(float(c))) for c in rest]
    points = [low + (high - low) * mp.mpf(i) / 997 for i in range(1, 998)]
    worst = max(abs((mp.polyval(fixed[::-1], x) - f(x)) * weight(x)) for x in points if x)
    return fixed, float(mp.log(worst, 2))


ONE = lambda x: mp.mpf(1)


def relative(f: Function) -> Function:
    """The weight of a relative error."""
    return lambda x: 1 / abs(f(x)) if f(x) else mp.mpf(1)


def _sqrt_series(g: Function, at_zero: float) -> Function:
    """g(sqrt z) / sqrt z as a function of z."""
    return lambda z: g(mp.sqrt(z)) / mp.sqrt(z) if z else mp.mpf(at_zero)


def _tail(g: Function) -> Function:
    """(g(sqrt z) / sqrt z - 1) / z: what follows the first term of an odd series."""
    return lambda z: (g(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


_Z = (mp.pi / 4) ** 2 * mp.mpf("1.01")
_LOG = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)


def _inverse(w: Any) -> Any:
    """erfinv(x) / x for -log(1 - x^2) = w, by Newton's steps on log erfc, which keep their digits near 1."""
    w = mp.mpf(w)
    if abs(w) < mp.mpf("1e-20"):
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.exp(-w) / (1 + x)
    y = mp.sqrt(w) * mp.mpf("0.9") if w > 4 else mp.erfinv(x)
    for _ in range(40):
        step = mp.erfc(y) * (mp.log(mp.erfc(y)) - mp.log(rest)) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mp.mpf("1e-45"):
            break
    return y / x


#: name -> (function, weight, low, high, how many coefficients in f64, in f32)
FITS: dict[str, Any] = {
    # sin x = x + x^3 p(x^2), cos x = 1 - x^2 / 2 + x^4 p(x^2), |x| <= pi/4
    "sine": (_tail(mp.sin), ONE, 0, _Z, 6, 3),
    "cosine": (lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, ONE, 0, _Z, 6, 3),
    # atan x = x + x^3 p(x^2), |x| <= 1/2
    "arctangent": (_tail(mp.atan), ONE, 0, mp.mpf("0.2501"), 13, 6),
    # asin x = x + x^3 p(x^2), |x| <= 1/2
    "arcsine": (_tail(mp.asin), ONE, 0, mp.mpf("0.2501"), 13, 6),
    # log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2)
    "logarithm": (lambda z: (mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z))) / mp.sqrt(z) - 2) / z, ONE, 0, _LOG**2, 7, 4),
    # 2^x = 1 + x p(x), |x| <= 1/2
    # the last two of fewer digits: what is left of them after a rounding to f32
    "power_of_two": (lambda x: mp.expm1(x * mp.log(2)) / x if x else mp.log(2), ONE, -0.5, 0.5, 11, 6),
    "logarithm_of_f32": (
        lambda z: (mp.log((1 + mp.sqrt(z)) / (1 - mp.sqrt(z))) / mp.sqrt(z) - 2) / z,
        ONE,
        0,
        _LOG**2,
        5,
        4,
    ),
    "power_of_two_of_f32": (lambda x: mp.expm1(x * mp.log(2)) / x if x else mp.log(2), ONE, -0.5, 0.5, 7, 6),
    # erf x = x + x p(x^2), |x| <= 1
    "error_function": (lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, ONE, 0, 1, 14, 6),
    # exp(x^2) erfc x = p((x - 3) / (x + 3)), 1 <= x <= 6
    "scaled_complement": (
        lambda t: (lambda x: mp.exp(x * x) * mp.erfc(x))(3 * (1 + t) / (1 - t)),
        relative(lambda t: 1),
        -0.5,
        mp.mpf(1) / 3,
        16,
        8,
    ),
    # erfinv x = x p(w - 5/2), w = -log(1 - x^2) < 5, and x q(sqrt(w) - 3) beyond: for f32 numbers, in f64
    "inverse_error_function": (lambda u: _inverse(u + mp.mpf("2.5")), relative(lambda u: 1), -2.5, 2.5, 12, 9),
    "inverse_error_function_tail": (
        lambda u: _inverse((u + 3) ** 2),
        relative(lambda u: 1),
        mp.sqrt(5) - 3,
        mp.mpf("1.1"),
        12,
        9,
    ),
}


def main() -> None:
    for name in sys.argv[1:] or FITS:
        f, weight, low, high, *counts = FITS[name]
        for dtype, count in zip((np.float64, np.float32), counts):
            coefficients, error = rounded(f, weight, low, high, count, dtype)
            print(f"{name} {dtype.__name__}: largest error 2^{error:.1f}")
            print("    (" + ", ".join(repr(c) for c in coefficients) + ")")


if __name__ == "__main__":
    main()
