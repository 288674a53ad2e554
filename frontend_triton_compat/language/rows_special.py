"""Rows of libdevice's less common functions, for the CPU: Bessel, gamma, inverses of erf, directed rounding, fma.

Law: one row a function; `reference` is a formula in NumPy that has nothing in common with the row's own code. On a TPU
they are refused: they compute in fp64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from frontend_triton_compat.language import functions_special as _functions  # noqa: F401 - what the rows call
from frontend_triton_compat.language.table import Row, register

_NOT_ON_TPU = {"tpu": "!tpu-no-form"}
_ANGLES = (np.arange(4000) + 0.5) * (np.pi / 4000)


def _each(fn: Callable[..., float]) -> Callable[..., Any]:
    """A NumPy function from one on single numbers, in fp64, rounded to the operand's type."""

    def apply(*operands: Any) -> Any:
        out = [fn(*(float(v) for v in values)) for values in zip(*(np.asarray(x).ravel() for x in operands))]
        first = np.asarray(operands[0])
        with np.errstate(over="ignore"):
            return np.array(out).astype(first.dtype).reshape(first.shape)

    return apply


def _bessel_j(order: int) -> Callable[..., Any]:
    return _each(lambda x: float(np.mean(np.cos(order * _ANGLES - x * np.sin(_ANGLES)))))


def _bessel_y(order: int) -> Callable[..., Any]:
    points, weights = np.polynomial.legendre.leggauss(100)

    def integral(fn: Callable[[Any], Any], end: float, parts: int) -> float:
        half = end / parts / 2
        starts = np.arange(parts)[:, None] * 2 * half
        return float(np.sum(fn(starts + half * (points + 1)) * weights) * half)

    def fn(x: float) -> float:
        wave = integral(lambda t: np.sin(x * np.sin(t) - order * t), math.pi, 2)
        grow = integral(
            lambda t: np.exp(-x * np.sinh(t)) * (2 if order == 0 else 2 * np.sinh(t)), math.asinh(60 / x + 60), 12
        )
        return (wave - grow) / math.pi

    return _each(fn)


def _bessel_i(order: int) -> Callable[..., Any]:
    return _each(lambda x: float(np.mean(np.exp(x * np.cos(_ANGLES)) * np.cos(order * _ANGLES))))


def _inverse(fn: Callable[[float], float], low: float, high: float) -> Callable[..., Any]:
    """The inverse of a rising function by bisection."""

    def inverse(y: float) -> float:
        a, b = low, high
        for _ in range(200):
            middle = (a + b) / 2
            a, b = (middle, b) if fn(middle) < y else (a, middle)
        return (a + b) / 2

    return _each(inverse)


def _directed(exact: Callable[..., Fraction], mode: str, to: Any = None) -> Callable[..., Any]:
    """What `exact` gives for the operands as fractions, rounded in a direction."""

    def apply(*operands: Any) -> Any:
        kind = to or np.asarray(operands[0]).dtype.type
        out = []
        for values in zip(*(np.asarray(x).ravel() for x in operands)):
            whole = exact(*(Fraction(float(v)) for v in values))
            near = kind(float(whole))
            down, up = (np.nextafter(near, kind(edge)) for edge in (-np.inf, np.inf))
            low = near if Fraction(float(near)) <= whole else down
            high = near if Fraction(float(near)) >= whole else up
            towards_zero = low if whole > 0 else high
            nearest = min((down, near, up), key=lambda v: (abs(Fraction(float(v)) - whole), v.tobytes()[0] & 1))
            out.append({"rd": low, "ru": high, "rz": towards_zero, "rn": nearest}[mode])
        return np.array(out, kind)

    return apply


def _narrowed(mode: str) -> Callable[..., Any]:
    to_fp32 = _directed(lambda a, b: a + b, mode, np.float32)
    return lambda a, b: to_fp32(a, b).astype(np.float64)


def _root(x: Fraction) -> Fraction:
    scale = 1 << 400
    return Fraction(math.isqrt(x.numerator * scale * scale // x.denominator), scale)


def _special(
    name: str, code: str, reference: Any, domain: tuple[float, float], doc: str, tpu: str = "!tpu-no-form"
) -> Row:
    cpu = code if code.startswith("exponent") else f"in_fp64({code}, {{0}})"
    return Row(
        name,
        "unary",
        cpu,
        accepts="wide",
        result="int32" if name == "ilogb" else "same",
        reference=reference,
        domain=domain,
        doc=doc,
        targets={"tpu": tpu},
    )


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


register(
    _special("j0", "lambda x: bessel_j(0, x)", _bessel_j(0), (-30.0, 30.0), "Bessel function of the first kind"),
    _special("j1", "lambda x: bessel_j(1, x)", _bessel_j(1), (-30.0, 30.0), "Bessel function of the first kind"),
    _special("y0", "lambda x: bessel_y(0, x)", _bessel_y(0), (0.1, 30.0), "Bessel function of the second kind"),
    _special("y1", "lambda x: bessel_y(1, x)", _bessel_y(1), (0.1, 30.0), "Bessel function of the second kind"),
    _special("i0", "lambda x: bessel_i(0, x)", _bessel_i(0), (-9.0, 9.0), "modified Bessel function"),
    _special("i1", "lambda x: bessel_i(1, x)", _bessel_i(1), (-9.0, 9.0), "modified Bessel function"),
    _special("tgamma", "gamma_function", _each(math.gamma), (-4.5, 12.0), "gamma function"),
    _special("erfinv", "lax.erf_inv", _inverse(math.erf, -7.0, 7.0), (-0.999, 0.999), "inverse of erf",
             "lax.erf_inv({0})"),
    _special(
        "erfcinv",
        "inverse_of_erfc",
        lambda y: -_inverse(lambda x: math.erfc(-x), -7.0, 7.0)(y),
        (0.001, 1.999),
        "inverse of erfc",
    ),
    _special(
        "erfcx",
        "scaled_erfc",
        _each(lambda x: math.exp(x * x) * math.erfc(x)),
        (-4.0, 5.0),
        "exp(x * x) * erfc(x)",
    ),
    _special("normcdf", "lambda x: complement_of_erf(x * -0.7071067811865476) / 2", _each(_normal), (-6.0, 6.0),
             "distribution function of the normal distribution", "complement_of_erf({0} * -0.7071067811865476) / 2"),
    _special("normcdfinv", "lambda x: -1.4142135623730951 * inverse_of_erfc(2 * x)", _inverse(_normal, -9.0, 9.0),
             (0.001, 0.999), "inverse of normcdf"),
    _special("sinpi", "sine_of_pi", _each(lambda x: math.sin(math.pi * x)), (-3.9, 3.9), "sin(pi * x)",
             "sine_of_pi({0})"),
    _special("cospi", "cosine_of_pi", _each(lambda x: math.cos(math.pi * x)), (-3.9, 3.9), "cos(pi * x)",
             "cosine_of_pi({0})"),
    _special("logb", "exponent_as_float({0})", lambda x: np.floor(np.log2(np.abs(x))).astype(np.asarray(x).dtype),
             (0.1, 9.0), "exponent, as a float", "exponent_as_float({0})"),
    _special("ilogb", "exponent_as_int({0})", lambda x: np.floor(np.log2(np.abs(x))).astype(np.int32),
             (0.1, 9.0), "exponent, as an integer", "exponent_as_int({0})"),
    Row("nextafter", "binary", "next_towards({0}, {1})", accepts="wide", reference=np.nextafter,
        doc="the next number after x towards y"),
    Row("ldexp", "binary", "times_power({0}, {1})", accepts="wide",
        reference=lambda x, n: np.ldexp(x, np.trunc(n).astype(np.int32)), doc="x * 2**n, n a whole number in x's type"),
    Row("remainder", "binary", "ieee_remainder({0}, {1})", accepts="wide",
        reference=_each(lambda x, y: math.remainder(x, y)), doc="x minus the nearest multiple of y"),
)  # fmt: skip
for _mode in ("rz", "rd", "ru"):
    register(
        Row(f"add_{_mode}", "binary", f"directed_sum({{0}}, {{1}}, '{_mode}')", accepts="wide",
            reference=_directed(lambda a, b: a + b, _mode), doc="sum, rounded in a direction", targets=_NOT_ON_TPU),
        Row(f"mul_{_mode}", "binary", f"directed_product({{0}}, {{1}}, '{_mode}')", accepts="wide",
            reference=_directed(lambda a, b: a * b, _mode), doc="product, rounded in a direction",
            targets=_NOT_ON_TPU),
        Row(f"div_{_mode}", "binary", f"directed_quotient({{0}}, {{1}}, '{_mode}')", accepts="wide",
            reference=_directed(lambda a, b: a / b, _mode), doc="quotient, rounded in a direction",
            targets=_NOT_ON_TPU),
        Row(f"sqrt_{_mode}", "unary", f"directed_root({{0}}, '{_mode}')", accepts="wide",
            reference=_directed(_root, _mode), domain=(0.0, 9.0), doc="square root, rounded in a direction",
            targets=_NOT_ON_TPU),
        Row(f"fma_{_mode}", "ternary", f"fused({{0}}, {{1}}, {{2}}, '{_mode}')", accepts="fp32",
            reference=_directed(lambda a, b, c: a * b + c, _mode), doc="x * y + z, rounded once, in a direction",
            targets=_NOT_ON_TPU),
        Row(f"fp32_{_mode}", "binary",
            f"directed(*exact_sum({{0}}, {{1}}), '{_mode}', jnp.float32).astype({{0}}.dtype)", accepts="fp64",
            reference=_narrowed(_mode), doc="a sum of two numbers as an fp32 number", targets=_NOT_ON_TPU),
        Row(f"fp64_{_mode}", "binary", f"directed(*exact_sum({{0}}, {{1}}), '{_mode}', jnp.float64)",
            accepts="fp64", reference=_directed(lambda a, b: a + b, _mode), doc="a sum of two numbers",
            targets=_NOT_ON_TPU),
    )  # fmt: skip
