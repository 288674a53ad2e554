"""Values at corners: what XLA's algebra, conversions and approximations would get wrong, against eager and float64.

Each test compiles one function that holds many operators.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check

pytestmark = pytest.mark.filterwarnings("ignore::bridge.diagnostics.errors.DiagnosticNote")
NAN, INF = float("nan"), float("inf")
CORNERS = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 7.0, -7.0, 1e-3, 100.0, 1e30, -1e30, 1e-30]


def corners(dtype=torch.float32):
    """All pairs of special values; infinite where they don't fit into the dtype."""
    x = torch.tensor(CORNERS, dtype=torch.float64).to(dtype)
    return x.repeat_interleave(len(x)), x.repeat(len(x))


def exactly(fn, *args):
    check(fn, *args, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_with_masks_and_zeros_keep_nan(dtype):
    def masked(a, b):
        mask = b > 0
        products = a * mask, a * mask.to(a.dtype), a * mask.double(), (~mask).float() * a, a * 0, a * (b * 0)
        return products, 0 / a, torch.zeros_like(a) / a, torch.zeros_like(a) * a, F.softshrink(a), F.softshrink(b, 0.3)

    exactly(masked, *corners(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arithmetic_is_done_in_its_order(dtype):
    def chains(a, b):
        quotients = a / (b / a), (a / b) / a, (a / b) / (b / a), a / 1e30 / 1e30, a * 1e-30 * 1e-30 * 1e30
        rounded = (a + 12582912.0) - 12582912.0, (a * 1e4) * 1e4 * 1e-8, a * 2 + b * 2
        joined = (
            torch.log(torch.pow(a, b)).isnan(),
            torch.log(a**5).isnan(),
            torch.exp(a) - a.clamp(min=1),
            a - a,
            a / a,
        )
        sums = torch.addcdiv(a, a, b, value=-0.5), torch.addcmul(a, a, b), torch.exp2(a) - a.clamp(min=1)
        return quotients, rounded, joined, a - a, a / a, [s.isnan() | s.isinf() for s in sums]

    a, b = corners(dtype)
    here = (a.abs() != 1e30) | (b.abs() < 1e30)
    check(chains, a[here], b[here], rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_divisions_round_once(dtype):
    x = torch.arange(2000).to(dtype)

    def divisions(x, row):
        table = x.view(40, 50)
        many = [x / 3, x / 49, 1 / x, x / x[7], table / row, table.t() / row[:, None], torch.floor(x / 0.1)]
        many += [torch.div(x, 3, rounding_mode="trunc"), torch.div(x, 0.7, rounding_mode="floor"), x // 7]
        many += [torch.div(x, row.repeat(40), rounding_mode=m) for m in ("trunc", "floor")]
        return many, F.avg_pool1d(table[None], 7), table[:, :7].mean(1), torch.arange(100) / 7

    exactly(divisions, x, torch.arange(1, 51).to(dtype))


def test_division_by_what_is_broadcast_is_division():
    x, row = torch.randn(64, 64), torch.rand(64) + 0.5
    exactly(lambda x, row: (x / row, x / row[:, None], x / row[3], x / 7, 7 / x), x, row)


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_conversions_of_what_does_not_fit(source):
    kinds = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16]
    kinds += [torch.float8_e4m3fn, torch.float8_e5m2]
    values = [*CORNERS, 300.0, -300.0, 255.9, 65536.0, 3e9, -3e9, 1e10, 1e19, 448.0, 464.0, 480.0, 57344.0, 61441.0]

    def convert(x):
        return [x.to(k).float() if k.itemsize == 1 and k.is_floating_point else x.to(k) for k in kinds]

    exactly(convert, torch.tensor(values, dtype=torch.float64).to(source))


def test_a_conversion_by_way_of_half_precision_rounds_there():
    exactly(lambda x: (x.half().bfloat16(), x.bfloat16().half().float()), torch.tensor([1e5, 1.2345678, 3e-8, 70000.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_reductions_of_half_precision_accumulate_in_single(dtype):
    x = torch.full((1000,), 100.0).add(torch.arange(1000) % 7).to(dtype)

    def reduce(x):
        means = x.mean(), x.mean(0), F.avg_pool1d(x[None, None], 500)
        return (
            means,
            x.sum(),
            x.var(),
            x.std(),
            x.norm(),
            x.cumsum(0),
            (x / 100).logcumsumexp(0),
            F.layer_norm(x, (1000,)),
            x**0.5,
            (-x) ** -0.5,
        )

    check(reduce, x)
    check(
        lambda x: (x**0.5, x**-0.5, torch.round(x, decimals=2)), torch.tensor([0.0, -0.0, INF, -INF, 1000.0]).to(dtype)
    )


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 4e-7), (torch.float64, 2e-15)])
def test_elementary_functions_at_large_and_small_numbers(dtype, bound):
    x = torch.tensor([1e-20, 1e-4, 0.3, 1.0, 1.1, 5.5, 9.9, 10.1, 33.0, 60.3, 85.0, 88.0, 88.7], dtype=dtype)
    x = torch.cat([x, -x])

    def functions(x):
        whole = torch.round(x)
        return [torch.exp2(x), torch.sinh(x), torch.cosh(x), torch.ldexp(x, whole.to(torch.int64)), 2**whole]

    got = torch.compile(functions, backend="pallas")(x)
    for value, reference in zip(got, functions(x.double()), strict=True):
        assert value.dtype == dtype
        torch.testing.assert_close(value.double(), reference, rtol=bound, atol=0)
    check(torch.erfc, torch.tensor([-3.0, 0.5, 3.0, 6.0, 9.0]), rtol=1e-6, atol=0)
    check(torch.lgamma, torch.tensor([1.0, 2.0, 1.5, -2.5, -3.5, 0.7]), rtol=1e-6, atol=0)


def test_powers_of_two_are_exact():
    n = torch.arange(-126, 129)
    exactly(lambda x, n: (torch.exp2(n.float()), torch.ldexp(x, n), torch.ldexp(x.half() * 0, n)), torch.ones(255), n)
    whole = lambda x: [torch.ldexp(x, torch.tensor(n)) for n in (100, -100, 200, 17)]
    exactly(whole, torch.tensor([0.0, 1.0, -3.0, 1e-7], dtype=torch.float16))
    exactly(whole, torch.tensor([0.0, 1.0, -3.0, 1e-30, 3e38, INF, NAN]))
    exactly(lambda x: torch.ldexp(x, x), torch.tensor([0.0, 1.0, -3.0, 127.0, INF, NAN]))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_deviation_of_numbers_whose_squares_overflow():
    x = torch.tensor([[1e30, -1e30, 0.0], [1e-30, 3e-30, 5e-30], [1.0, 1.0, 1.0]])
    check(lambda x: (x.std(1), x.std(1, correction=0), x.std(1, correction=3), x[:, 0].std()), x)


@pytest.mark.parametrize("right", [False, True])
def test_search_beside_nan(right):
    values = torch.tensor([*CORNERS, 2.0, 3.0])

    def search(values, edges):
        return torch.bucketize(values, edges, right=right), torch.searchsorted(edges, values, right=right)

    for edges in ([-1.0, 0.0, 1.0, NAN], [-INF, 0.0, 0.0, 2.0, INF], [], [NAN], [1.0]):
        exactly(search, values, torch.tensor(edges))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_complex_functions_on_both_sides_of_their_cuts(dtype):
    parts = torch.tensor([0.0, -0.0, 0.5, -0.5, 2.5, -2.5], dtype=dtype)
    z = torch.complex(parts.repeat_interleave(6), parts.repeat(6))
    names = [
        "sqrt",
        "log",
        "asin",
        "acos",
        "asinh",
        "acosh",
        "atan",
        "atanh",
        "exp",
        "sinh",
        "cosh",
        "tanh",
        "abs",
        "angle",
    ]
    whole = torch.tensor([complex(INF, NAN), complex(NAN, -INF), complex(3, -4)])
    check(
        lambda z, w: ([torch.view_as_real(getattr(z, n)() + 0j) for n in names], w.abs()),
        z,
        whole,
        rtol=2e-6,
        atol=1e-6,
    )

    def sides(z):
        values = [getattr(z, n)() for n in names[:-2]]
        return [torch.signbit(v.real) & (v.real.abs() > 1e-3) for v in values], [
            torch.signbit(v.imag) & (v.imag.abs() > 1e-3) for v in values
        ]

    check(sides, z)


def test_functions_of_nothing():
    def functions(x):
        wide, high = x[:, :0], x[:0]
        softmax = [torch.softmax(y, 1) for y in (wide, high)] + [torch.log_softmax(y, 1) for y in (wide, high)]
        return softmax, torch.logsumexp(wide, 1), wide.sum(1), high.prod(0), high @ x.t(), wide @ wide.t(), high + 1

    exactly(functions, torch.ones(3, 4))


@pytest.mark.parametrize("extreme", [torch.max, torch.min])
def test_no_extreme_of_nothing(extreme):
    with pytest.raises(RuntimeError, match="reduction dim"):
        torch.compile(extreme, backend="pallas")(torch.ones(0, 3))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_smallest_whole_number_has_divisors(dtype):
    """Its magnitude needs one more bit than its dtype has."""
    kind = getattr(torch, dtype)
    least, most = torch.iinfo(kind).min, torch.iinfo(kind).max
    pairs = [(least, 3), (least, 0), (0, least), (least, 6), (12, least), (least, most), (most, 7), (-12, 18)]
    x, y = (torch.tensor(column, dtype=kind) for column in zip(*pairs))
    got = torch.compile(lambda x, y: torch.gcd(x, y), backend="pallas")(x, y).tolist()
    assert [abs(n) for n in got] == [math.gcd(a, b) for a, b in pairs]
    assert got == torch.gcd(x, y).tolist()  # some of them negative, as C's remainders are
