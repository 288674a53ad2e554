"""Operators on every pair of element types: result type and bits; tiles, scalars and Python numbers on either side.

The rules are written down again here, from NumPy's operations in the type that C's promotion gives.
"""

from __future__ import annotations

import operator

import numpy as np
import pytest

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic

from . import numbers_of as of

N = 64
ARITHMETIC = {"+": np.add, "-": np.subtract, "*": np.multiply}
BITS = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def unsigned(t):
    return t[0] == "u" or t == "int1"


def whole(t):
    return t[0] in "iu"


def width(t):
    return 1 if t == "int1" else of.numpy_type(t).itemsize * 8


def promoted(a, b, division):
    for t in ("float64", "float32"):
        if t in (a, b):
            return t
    if "float16" in (a, b):
        return "float32" if division else "float16"
    if a == b == "bfloat16":
        return "float32" if division else a
    if "bfloat16" in (a, b):
        return "float32"
    if unsigned(a) == unsigned(b):
        return a if width(a) > width(b) else b
    first, second = (a, b) if unsigned(a) else (b, a)
    return first if width(first) >= width(second) else second


def quotient(a, b):
    q = a // b
    rest = a - q * b
    return (q + ((rest != 0) & ((rest < 0) != (a < 0)) if a.dtype.kind == "i" else 0)).astype(a.dtype)


@np.errstate(all="ignore")
def expected(op, x, y, a, b):
    """Result type and values of `x op y` for element types a and b."""
    t = promoted(a, b, op in ("/", "//", "%"))
    kind = of.numpy_type(t)
    u, v = x.astype(kind), y.astype(kind)
    if op in COMPARE:
        return "int1", COMPARE[op](u, v)
    if t == "int1" and op in ARITHMETIC:
        return t, u & v if op == "*" else u ^ v
    if op in ARITHMETIC:
        return t, ARITHMETIC[op](u, v)
    if op in BITS:
        return t, BITS[op](u, v)
    if op == "/":
        if whole(t):
            return "float32", u.astype("float32") / v.astype("float32")
        return t, u / v
    if op == "//":
        return t, quotient(u, v)
    if op == "%":
        return t, u - quotient(u, v) * v if whole(t) else np.fmod(u, v)
    signed = f"{'uint' if unsigned(a) else 'int'}{width(t)}"  # >> follows the left operand
    return t, (u << v if op == "<<" else (u.view(signed) >> v.view(signed)).view(kind))


def operands(op, a, b):
    """Numbers for which the result is defined."""
    x, y = of.edges(a, N), of.edges(b, N, seed=3)
    if not (whole(a) and whole(b)):
        return x, y
    t = promoted(a, b, True)
    kind = of.numpy_type(t)
    if op in ("/", "//", "%"):
        y[y == 0] = 1
        if kind.kind == "i":
            y[y.astype(kind) == -1] = 1
    if op in ("<<", ">>"):
        y = (y.astype("uint64") % np.uint64(min(width(t), 127))).astype(y.dtype)
    return x, y


def cases(a, b):
    for op in (*ARITHMETIC, "/", "%", *COMPARE, "//", *BITS, "<<", ">>"):
        integers = whole(a) and whole(b)
        if not integers and op in ("//", *BITS, "<<", ">>"):
            continue
        if integers and unsigned(a) != unsigned(b) and op in ("/", "%", "//"):
            continue
        if a == b == "int1" and op in ("/", "%", "//", "<<", ">>"):
            continue
        yield op


def run(lines, arguments):
    names = ", ".join(arguments)
    text = f"@triton.jit\ndef kernel({names}, N: tl.constexpr):\n    at = tl.arange(0, N)\n" + "".join(lines)
    scope = {"triton": triton, "tl": tl}
    exec(text, scope)
    scope["kernel"][(1,)](**arguments, N=N)


def check_pair(a, b):
    lines, arguments, right = [], {}, {}
    for i, op in enumerate(cases(a, b)):
        x, y = operands(op, a, b)
        sides = {"t": (x, y, "", ""), "l": (x[9:10], y, "one", ""), "r": (x, y[9:10], "", "one")}
        for side, (u, v, _, _) in sides.items():
            n = f"{i}{side}"
            t, values = expected(op, u, v, a, b)
            arguments |= {f"x{n}": of.to_torch(u, a), f"y{n}": of.to_torch(v, b), f"z{n}": of.empty(N, t)}
            left, other = (f"tl.load({name}{n}{' + at' if len(w) > 1 else ''})" for name, w in (("x", u), ("y", v)))
            lines += [
                f"    z = {left} {op} {other}\n",
                f"    tl.static_assert(z.dtype == tl.{t}, 'type of {op}')\n",
                f"    tl.store(z{n} + at, z)\n",
            ]
            right[n] = (f"{a} {op} {b} ({side})", t, np.broadcast_to(values, (N,)), u, v)
    run(lines, arguments)
    for n, (what, t, values, u, v) in right.items():
        got = of.to_numpy(arguments[f"z{n}"], t)
        wrong = of.differ(got, np.ascontiguousarray(values))
        both = (np.broadcast_to(w, (N,)) for w in (u, v))
        assert not wrong.any(), (what, of.show(wrong, *both, got, values))


TYPES = (*of.ALL, "int1")
SAMPLE = {
    ("int8", "int8"), ("uint8", "int16"), ("int32", "uint32"), ("int64", "uint8"), ("uint64", "uint64"),
    ("float16", "int32"), ("bfloat16", "bfloat16"), ("bfloat16", "float16"), ("float32", "int1"), ("int64", "float64"),
    ("uint16", "bfloat16"), ("int1", "int1"), ("float64", "float32"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b"),
    [pytest.param(a, b, marks=() if (a, b) in SAMPLE else pytest.mark.slow) for a in TYPES for b in TYPES],
)
def test_operators(a, b):
    check_pair(a, b)


NUMBERS = [
    True,
    0,
    1,
    -1,
    3,
    -7,
    127,
    200,
    -128,
    40000,
    2**31,
    2**33,
    2**63,
    0.5,
    -2.5,
    1e-3,
    float("inf"),
    float("nan"),
]


def number_type(v):
    if isinstance(v, bool):
        return "int1"
    if isinstance(v, float):
        return "float32"
    for t, low, high in (("int32", -(2**31), 2**31), ("uint32", 2**31, 2**32), ("int64", -(2**63), 2**63)):
        if low <= v < high:
            return t
    return "uint64"


def with_number(op, x, a, value):
    """Result type and values of a tile and a number; None where Triton refuses it."""
    b = number_type(value)
    rank = {True: 0, False: 1}
    kinds = [2 if not whole(t) else rank[t == "int1"] for t in (a, b)]
    if op in COMPARE:
        return expected(op, x, np.full(N, value).astype(of.numpy_type(b)), a, b)
    t = promoted(a, b, op == "/")
    if kinds[1] <= kinds[0]:
        t = "float32" if op == "/" and a in ("float16", "bfloat16") else a
    if whole(t):
        low, high = (0, 1) if t == "int1" else (np.iinfo(t).min, np.iinfo(t).max)
        if not low <= value <= high:
            return None
    with np.errstate(all="ignore"):
        return expected(op, x.astype(of.numpy_type(t)), np.full(N, value).astype(of.numpy_type(t)), t, t)


@pytest.mark.parametrize(
    "a", [pytest.param(t, marks=() if t in ("int8", "uint32", "bfloat16") else pytest.mark.slow) for t in of.ALL]
)
def test_operators_with_numbers(a):
    x = of.edges(a, N)
    if not whole(a):
        x[x == 0] = 1  # XLA takes x + 0 for x, which keeps the sign of a zero
    lines, arguments, right, refused = [], {"X": of.to_torch(x, a)}, {}, []
    for i, value in enumerate(NUMBERS):
        text = repr(value) if abs(value) < float("inf") else f"float('{value}')"
        for j, op in enumerate(("+", "-", "*", "/", "<", "==")):
            if op == "/" and value == 0:
                continue
            found = with_number(op, x, a, value)
            if found is None:
                refused.append(f"x {op} {text}")
                continue
            t, values = found
            n = f"{i}_{j}"
            arguments[f"z{n}"] = of.empty(N, t)
            lines += [
                f"    z = tl.load(X + at) {op} {text}\n",
                f"    tl.static_assert(z.dtype == tl.{t}, 'type')\n",
                f"    tl.store(z{n} + at, z)\n",
            ]
            right[n] = (f"{op} {text}", t, values)
    run(lines, arguments)
    for n, (what, t, values) in right.items():
        wrong = of.differ(of.to_numpy(arguments[f"z{n}"], t), values)
        assert not wrong.any(), (what, of.show(wrong, x, of.to_numpy(arguments[f"z{n}"], t), values))
    for expression in refused[:: max(1, len(refused) // 4)]:
        with pytest.raises(Diagnostic) as caught:
            run([f"    x = tl.load(X + at)\n    z = {expression}\n"], {"X": of.to_torch(x, a)})
        assert caught.value.slug == "scalar-out-of-range"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("u // i", "because they have different signedness"),
        ("u / i", "because they have different signedness"),
        ("i % u", "because they have different signedness"),
        ("i & f", "invalid operands of type"),
        ("f << i", "invalid operands of type"),
        ("f // f", "floor division"),
        ("~f", "~ of fp32"),
        ("X + f", "invalid operands of type"),
        ("i + 0xFFFFFFFFFFFF", "out of range"),
        ("u + (-1)", "negative"),
        ("tl.exp(h)", "Expected dtype ['fp32', 'fp64'] but got fp16"),
    ],
)
def test_refused(expression, words):
    text = (
        "    i = tl.load(X + at)\n    u = i.to(tl.uint32)\n    f = i.to(tl.float32)\n    h = i.to(tl.float16)\n"
        f"    z = {expression}\n"
    )
    with pytest.raises(triton.TritonError) as caught:
        run([text], {"X": of.empty(N, "int32")})
    assert words in str(caught.value) and caught.value.where.text().strip() == f"z = {expression}"


@triton.jit
def other_axis(x):
    tl.store(x, tl.program_id(20))


def test_tritons_own_words_are_the_cause():
    with pytest.raises(triton.TritonError) as caught:
        other_axis[(1,)](of.empty(1, "int32"))
    assert str(caught.value.__cause__) == "program_id axis must be 0, 1, or 2 but got 20"


@triton.jit
def choose_pointers(c, a, b, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    picked = tl.where(tl.load(c + at) != 0, a + at, b + at * 2)
    tl.store(picked, tl.load(picked, mask=at < n, other=-1) + 1, mask=at < n)
    first = a if tl.load(c) > 0 else b
    tl.store(out + at, tl.load(first + at))


def test_a_pointer_may_be_one_arguments_or_anothers():
    c = np.array([1, 0, 1, 0, 0, 1, 1, 0], np.int32)
    a, b, out = np.arange(8, dtype=np.float32), 10 * np.arange(16, dtype=np.float32), of.empty(8, "float32")
    tensors = of.to_torch(a, "float32"), of.to_torch(b, "float32")
    choose_pointers[(1,)](of.to_torch(c, "int32"), *tensors, out, 6, N=8)
    for i in range(6):
        if c[i]:
            a[i] += 1
        else:
            b[2 * i] += 1
    np.testing.assert_array_equal(tensors[0].numpy(), a)
    np.testing.assert_array_equal(tensors[1].numpy(), b)
    np.testing.assert_array_equal(out.numpy(), a)


@triton.jit
def addresses(a, b, c, out, N: tl.constexpr):
    at = tl.arange(0, N)
    first, second = tl.load(a + at).to(tl.pi32_t), tl.load(b + at).to(tl.pi32_t)
    tl.store(out + at, tl.where(tl.load(c + at), first, second))


@pytest.mark.parametrize("use", ["p + 1", "tl.load(p)", "-p", "p if tl.load(x) > 0 else q", "tl.maximum(p, p)"])
def test_what_needs_to_know_where_an_integer_points_is_refused(use):
    text = f"    x = X\n    p = tl.load(x).to(tl.pi32_t)\n    q = tl.load(x + 1).to(tl.pi32_t)\n    z = {use}\n"
    with pytest.raises(triton.TritonError) as caught:
        run([text], {"X": of.empty(N, "int64")})
    assert caught.value.slug == "not-translated" and "made from an integer" in str(caught.value)


def test_integers_as_pointers_can_be_chosen_and_stored():
    a, b, c = of.edges("int64", N), of.edges("int64", N, 1), of.edges("int1", N)
    out = of.empty(N, "int64")
    addresses[(1,)](of.to_torch(a, "int64"), of.to_torch(b, "int64"), of.to_torch(c, "int1"), out, N=N)
    np.testing.assert_array_equal(out.numpy(), np.where(c, a, b))
