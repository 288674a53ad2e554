"""libdevice in kernels: operand and result types, conversions, integers; values where no row says them."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat.language.extra import libdevice
from frontend_triton_compat.language.table import ROWS

from . import numbers_of as of

N = 64
HEADER = "@triton.jit\ndef kernel({}, N: tl.constexpr):\n    at = tl.arange(0, N)\n"


def call(cases):
    """Run {key: (expression in x, y, z, operands, result type)} in one kernel; the results by key."""
    names, lines, arguments = [], "", {}
    for i, (expression, operands, result) in enumerate(cases.values()):
        for letter, (x, dtype) in zip("xyzw", operands):
            arguments[f"{letter}{i}"] = of.to_torch(x, dtype)
            lines += f"    {letter} = tl.load({letter}{i} + at)\n"
            names.append(f"{letter}{i}")
        arguments[f"o{i}"] = of.empty(N, result)
        names.append(f"o{i}")
        lines += f"    r = {expression}\n    tl.static_assert(r.dtype == tl.{result}, '{expression}')\n"
        lines += f"    tl.store(o{i} + at, r)\n"
    text = HEADER.format(", ".join(names)) + lines
    scope = {"triton": triton, "tl": tl, "lib": libdevice}
    exec(text, scope)
    scope["kernel"][(1,)](**arguments, N=N)
    results = [c[2] for c in cases.values()]
    return {k: of.to_numpy(arguments[f"o{i}"], results[i]) for i, k in enumerate(cases)}


def floats(dtype, low=-4.0, high=4.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, N).astype(dtype)


def words(dtype, seed=0):
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    x[:4] = info.min, info.max, 0, 1
    return x


FLOAT_ROWS = {n: r for n, r in (libdevice._UNARY | libdevice._BINARY).items() if n not in ("sub_rn", "ilogb")}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_floats(dtype):
    cases, expected = {}, {}
    for name, row_name in FLOAT_ROWS.items():
        row = ROWS[row_name]
        operands = [floats(dtype, *row.domain, seed=s) for s in range(2 if row.family == "binary" else 1)]
        letters = ", ".join("xy"[: len(operands)])
        cases[name] = (f"lib.{name}({letters})", [(x, dtype) for x in operands], dtype)
        with np.errstate(all="ignore"):
            right = row.reference or (lambda a, b, code=row.code: eval(code.format("a", "b")))
            expected[name] = np.asarray(right(*operands))
    keys = list(cases)
    for part in (keys[i : i + 24] for i in range(0, len(keys), 24)):
        for key, got in call({k: cases[k] for k in part}).items():
            near = {"rtol": 32 * np.finfo(dtype).eps, "atol": 4e-6 if dtype == "float32" else 1e-14}
            np.testing.assert_allclose(got, expected[key], **near, err_msg=key)


def rounded(value: Fraction, kind, mode):
    """A fraction as a float type or an integer type, rounded in a direction; integers saturate."""
    if np.dtype(kind).kind in "iu":
        whole = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode](value)
        return min(max(whole, int(np.iinfo(kind).min)), int(np.iinfo(kind).max))
    near = kind(float(value)) if kind is np.float64 else kind(float(value))
    exact = Fraction(float(near))
    if mode == "rd" or (mode == "rz" and value > 0):
        return near if exact <= value else np.nextafter(near, kind(-np.inf))
    if mode in ("ru", "rz"):
        return near if exact >= value else np.nextafter(near, kind(np.inf))
    return near


def conversions():
    kinds = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64"}
    for name in libdevice.__all__:
        for wide, dtype in (("float", "float32"), ("double", "float64")):
            for short, whole in kinds.items():
                if name.startswith(f"{wide}2{short}_"):
                    yield name, dtype, whole
                elif name.startswith(f"{short}2{wide}_"):
                    yield name, whole, dtype
    yield from ((f"double2float_{mode}", "float64", "float32") for mode in ("rn", "rz", "rd", "ru"))


def test_conversions():
    cases, expected = {}, {}
    for name, source, target in conversions():
        if source.startswith("float"):
            x = floats(source, -40, 40) * np.float32(10) ** np.random.default_rng(1).integers(0, 9, N).astype(source)
            x[:6] = 0.5, -0.5, 2.5, 1e30, -1e30, -2.0
        else:
            x = words(source)
        result = target.replace("uint", "int")
        cases[name] = (f"lib.{name}(x)", [(x, source)], result)
        kind = np.dtype(target).type
        right = np.array([rounded(Fraction(v.item()), kind, name[-2:]) for v in x], target)
        expected[name] = right.view(result)
    assert len(cases) == 62
    keys = list(cases)
    for part in (keys[i : i + 28] for i in range(0, len(keys), 28)):
        for key, got in call({k: cases[k] for k in part}).items():
            np.testing.assert_array_equal(got, expected[key], err_msg=key)


def test_integers():
    a, b, c = words("int32"), words("int32", 1), words("int32", 2)
    u, v = words("uint32"), words("uint32", 1)
    k, m = words("int64"), words("int64", 1)
    p, q = words("uint64"), words("uint64", 1)

    def big(x):
        return [int(e) for e in x]

    def low(values, dtype):
        bits = 8 * np.dtype(dtype).itemsize
        return np.array([x & ((1 << bits) - 1) for x in values], f"uint{bits}").view(dtype)

    def reverse(x, bits):
        return low([int(f"{e & ((1 << bits) - 1):0{bits}b}"[::-1], 2) for e in big(x)], x.dtype)

    def permute(x, y, s):
        both = [(e & 0xFFFFFFFF) | (f & 0xFFFFFFFF) << 32 for e, f in zip(big(x), big(y))]
        picked = [[w >> 8 * (t >> 4 * i & 7) & 255 for i in range(4)] for w, t in zip(both, big(s))]
        return low([sum(byte << 8 * i for i, byte in enumerate(four)) for four in picked], "int32")

    def part24(x, signed):
        return [((e & 0xFFFFFF) ^ 0x800000) - 0x800000 if signed else e & 0xFFFFFF for e in big(x)]

    def first(x):
        return np.array([(e & -e).bit_length() for e in big(x)], "int32")

    pairs = list(zip(big(a), big(b)))
    unsigned = list(zip(big(u), big(v)))
    cases = {
        "mulhi i": ("lib.mulhi(x, y)", [(a, "int32"), (b, "int32")], low([x * y >> 32 for x, y in pairs], "int32")),
        "mulhi l": ("lib.mulhi(x, y)", [(k, "int64"), (m, "int64")],
                    low([x * y >> 64 for x, y in zip(big(k), big(m))], "int64")),
        "mulhi u": ("lib.mulhi(x, y)", [(u, "uint32"), (v, "uint32")],
                    low([x * y >> 32 for x, y in unsigned], "uint32")),
        "mulhi U": ("lib.mulhi(x, y)", [(p, "uint64"), (q, "uint64")],
                    low([x * y >> 64 for x, y in zip(big(p), big(q))], "uint64")),
        "mul24 i": ("lib.mul24(x, y)", [(a, "int32"), (b, "int32")],
                    low([x * y for x, y in zip(part24(a, True), part24(b, True))], "int32")),
        "mul24 u": ("lib.mul24(x, y)", [(u, "uint32"), (v, "uint32")],
                    low([x * y for x, y in zip(part24(u, False), part24(v, False))], "uint32")),
        "brev i": ("lib.brev(x)", [(a, "int32")], reverse(a, 32)),
        "brev l": ("lib.brev(x)", [(k, "int64")], reverse(k, 64)),
        "ffs i": ("lib.ffs(x)", [(a, "int32")], first(a)),
        "ffs l": ("lib.ffs(x)", [(k, "int64")], first(k)),
        "popc": ("lib.popc(x)", [(k, "int64")],
                 np.array([bin(e & (2**64 - 1)).count("1") for e in big(k)], "int32")),
        "clz": ("lib.clz(x)", [(a, "int32")],
                np.array([32 - (e & (2**32 - 1)).bit_length() for e in big(a)], "int32")),
        "byte_perm": ("lib.byte_perm(x, y, z)", [(a, "int32"), (b, "int32"), (c, "int32")], permute(a, b, c)),
        "sad i": ("lib.sad(x, y, z)", [(a, "int32"), (b, "int32"), (c, "int32")],
                  low([abs(x - y) + z for (x, y), z in zip(pairs, big(c))], "int32")),
        "sad u": ("lib.sad(x, y, z)", [(u, "uint32"), (v, "uint32"), (v, "uint32")],
                  low([abs(x - y) + y for x, y in unsigned], "uint32")),
        "hadd i": ("lib.hadd(x, y)", [(a, "int32"), (b, "int32")], low([x + y >> 1 for x, y in pairs], "int32")),
        "hadd u": ("lib.hadd(x, y)", [(u, "uint32"), (v, "uint32")], low([x + y >> 1 for x, y in unsigned], "uint32")),
        "rhadd": ("lib.rhadd(x, y)", [(a, "int32"), (b, "int32")], low([x + y + 1 >> 1 for x, y in pairs], "int32")),
        "abs": ("lib.abs(x)", [(k, "int64")], np.abs(k)),
    }  # fmt: skip
    got = call({n: (e, ops, right.dtype.name) for n, (e, ops, right) in cases.items()})
    for name, (_, _, right) in cases.items():
        np.testing.assert_array_equal(got[name], right, err_msg=name)


def test_bits_tests_and_norms():
    x, y, z = (floats("float32", seed=s) for s in range(3))
    x[:5] = np.nan, np.inf, -np.inf, -0.0, 0.0
    d = floats("float64", seed=4)
    whole = words("int32", 5)
    far = floats("float32", 1, 2) * np.float32(1e30)
    length = np.sqrt(sum(v.astype(np.float64) ** 2 for v in (y, z, far)))
    cases = {
        "isnan": ("lib.isnan(x)", [(x, "float32")], np.isnan(x)),
        "isinf": ("lib.isinf(x)", [(x, "float32")], np.isinf(x)),
        "finitef": ("lib.finitef(x)", [(x, "float32")], np.isfinite(x)),
        "isfinited": ("lib.isfinited(x)", [(d, "float64")], np.isfinite(d)),
        "signbit": ("lib.signbit(x)", [(x, "float32")], np.signbit(x).astype("int32")),
        "ilogb": ("lib.ilogb(x)", [(y, "float32")], np.floor(np.log2(np.abs(y))).astype("int32")),
        "saturatef": ("lib.saturatef(x)", [(x, "float32")], np.clip(np.nan_to_num(x, nan=0), 0, 1) + 0),
        "int_as_float": ("lib.int_as_float(x)", [(y.view("int32"), "int32")], y),
        "float_as_int": ("lib.float_as_int(x)", [(y, "float32")], y.view("int32")),
        "float_as_uint": ("lib.float_as_uint(x)", [(y, "float32")], y.view("int32")),
        "uint_as_float": ("lib.uint_as_float(x)", [(y.view("uint32"), "uint32")], y),
        "longlong_as_double": ("lib.longlong_as_double(x)", [(d.view("int64"), "int64")], d),
        "double_as_longlong": ("lib.double_as_longlong(x)", [(d, "float64")], d.view("int64")),
        "hi": ("lib.double2hiint(x)", [(d, "float64")], (d.view("int64") >> 32).astype("int32")),
        "lo": ("lib.double2loint(x)", [(d, "float64")], d.view("int64").astype("int32")),
        "both": ("lib.hiloint2double(lib.double2hiint(x), lib.double2loint(x))", [(d, "float64")], d),
        "llrint": ("lib.llrint(x)", [(y, "float32")], np.rint(y).astype("int64")),
        "llround": ("lib.llround(x)", [(d, "float64")], np.copysign(np.floor(np.abs(d) + 0.5), d).astype("int64")),
        "ldexp": ("lib.ldexp(x, y)", [(y, "float32"), (whole % 20, "int32")], np.ldexp(y, whole % 20)),
        "scalbn": ("lib.scalbn(x, y)", [(d, "float64"), (whole % 90, "int32")], np.ldexp(d, whole % 90)),
        "powi": ("lib.pow(x, y)", [(y, "float32"), (whole % 3, "int32")], np.power(y, (whole % 3).astype("float32"))),
        "fdim": ("lib.fdim(x, y)", [(y, "float32"), (z, "float32")], np.maximum(y - z, 0)),
        "max": ("lib.max(x, y)", [(x, "float32"), (y, "float32")], np.fmax(x, y)),
        "min": ("lib.min(x, y)", [(x, "float32"), (y, "float32")], np.fmin(x, y)),
        "sub_rn": ("lib.sub_rn(x, y)", [(y, "float32"), (z, "float32")], y - z),
        "rcp": ("lib.rcp_rn(x)", [(y, "float32")], np.float32(1) / y),
        "rcbrt": ("lib.rcbrt(x)", [(y, "float32")], 1 / np.cbrt(y)),
        "rhypot": ("lib.rhypot(x, y)", [(y, "float32"), (z, "float32")], (1 / np.hypot(y, z)).astype("float32")),
        "norm3d": ("lib.norm3d(x, y, z)", [(y, "float32"), (z, "float32"), (far, "float32")], length.astype("f4")),
        "rnorm3d": ("lib.rnorm3d(x, y, z)", [(y, "float32"), (z, "float32"), (far, "float32")],
                    (1 / length).astype("f4")),
        "norm4d": ("lib.norm4d(x, y, z, z)", [(d, "float64"), (d, "float64"), (d, "float64")], 2 * np.abs(d)),
        "rnorm4d": ("lib.rnorm4d(x, y, z, z)", [(d, "float64"), (d, "float64"), (d, "float64")], 0.5 / np.abs(d)),
        "fma": ("lib.fma(x, y, z)", [(d, "float64"), (d, "float64"), (-d * d, "float64")],
                np.array([float(Fraction(e) ** 2 + Fraction(f)) for e, f in zip(d, -d * d)])),
        "rcp64h": ("lib.rcp64h(x)", [(d, "float64")], ((1 / d).view("int64") & -(2**32)).view("float64")),
    }  # fmt: skip
    names = {n: "int1" if right.dtype == bool else right.dtype.name for n, (_, _, right) in cases.items()}
    got = call({n: (e, ops, names[n]) for n, (e, ops, _) in cases.items()})
    near = ("powi", "rcbrt", "rhypot", "norm3d", "rnorm3d", "norm4d", "rnorm4d")
    for name, (_, _, right) in cases.items():
        if name in near:
            np.testing.assert_allclose(got[name], right, rtol=4 * np.finfo(right.dtype).eps, err_msg=name)
        else:
            assert not of.differ(got[name], right).any(), (name, of.show(of.differ(got[name], right), got[name], right))


def test_rounding_in_a_direction_keeps_the_exact_result_between():
    y, z = floats("float32", seed=1), floats("float32", seed=2)
    cases = {}
    for op in ("sub", "rcp", "fma"):
        for mode in ("rz", "rd", "ru"):
            letters = {"sub": "x, y", "rcp": "x", "fma": "x, y, x"}[op]
            cases[op, mode] = (f"lib.{op}_{mode}({letters})", [(y, "float32"), (z, "float32")], "float32")
    exact = {
        "sub": lambda a, b: a - b,
        "rcp": lambda a, b: 1 / a,
        "fma": lambda a, b: a * b + a,
    }
    for (op, mode), got in call(cases).items():
        right = [rounded(exact[op](Fraction(float(a)), Fraction(float(b))), np.float32, mode) for a, b in zip(y, z)]
        np.testing.assert_array_equal(got, np.array(right, "float32"), err_msg=f"{op}_{mode}")


def test_every_name_of_the_real_library_is_here():
    genuine = pytest.importorskip("triton")
    text = (Path(genuine.__file__).parent / "language/extra/cuda/libdevice.py").read_text()
    names = {line[4:].split("(")[0] for line in text.splitlines() if line.startswith("def ")}
    assert names <= set(libdevice.__all__)
    symbols = {part.split('"')[0] for part in text.split('"__nv_')[1:]}
    assert not [s for s in symbols if libdevice.symbol(f"__nv_{s}") is None]
    for name in names:
        assert inspect.signature(getattr(libdevice, name)) is not None and getattr(libdevice, name).__doc__


@triton.jit
def order_as_data(x, out):
    tl.store(out, libdevice.jn(2, tl.load(x)))


def test_what_has_no_formula_says_so():
    with pytest.raises(Diagnostic) as caught:
        order_as_data[(1,)](of.empty(1, "float32"), of.empty(1, "float32"))
    assert caught.value.slug == "not-translated" and "j0" in str(caught.value)
