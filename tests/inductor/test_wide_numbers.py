"""Whole numbers on a TPU: 32 bits wide, and never wrong without a word."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bridge.diagnostics import Diagnostic
from bridge.diagnostics.errors import DiagnosticNote
from inductor_backend.ops import ROWS
from inductor_backend.ops.whole import INT32, Known, Range

INT = torch.tensor
MOST = 2**31 - 1
OPTIONS: dict[str, Any] = {"target": "tpu:v5e", "kernels": "all"}


def test_wide_numbers_are_refused(interpreted):
    f = torch.compile(lambda x: x + 1, backend="pallas", options={"target": "tpu:v5e"})
    assert f(torch.tensor([1, 2])).tolist() == [2, 3]
    with pytest.raises(Diagnostic, match="TPB425"):
        f(torch.tensor([1, 1 << 40]))


def test_double_precision_is_refused_and_never_halved(interpreted):
    for function in (lambda x: x.double() + 1e-9, lambda x: x.to(torch.complex128) * 2):
        torch._dynamo.reset()
        with pytest.raises(Diagnostic, match="TPB425.*computes in"):
            torch.compile(function, backend="pallas", options=OPTIONS)(torch.ones(3))


#: name -> (function, numbers that fit, numbers of which a result doesn't).
GROWING = {
    "add": (lambda x: x + 1, [INT([1, -2])], [INT([MOST])]),
    "add scaled": (lambda x, y: torch.add(x, y, alpha=3), [INT([1, 2]), INT([4, -5])], [INT([1]), INT([2**30])]),
    "sub": (lambda x, y: x - y, [INT([1, 2]), INT([4, 5])], [INT([-MOST]), INT([2])]),
    "sub from": (lambda x: 5 - x, [INT([1, 2])], [INT([-MOST])]),
    "mul": (lambda x: x * x, [INT([46340, -46340])], [INT([46341])]),
    "mul back to 0": (lambda x: x * 4, [INT([3])], [INT([2**30])]),
    "pow": (lambda x: x**3, [INT([1, 2, -3])], [INT([1300])]),
    "neg": (lambda x: -x, [INT([1, 2])], [INT([-(2**31)])]),
    "abs": (lambda x: x.abs(), [INT([1, -2])], [INT([-(2**31)])]),
    "shift": (lambda x: x << 3, [INT([1, -2])], [INT([2**28])]),
    "sum": (lambda x: x.sum(-1), [INT([[1, -2], [5, 6]])], [INT([[2**30, 2**30]])]),
    "sum of either sign": (lambda x: x.sum(), [INT([MOST, -MOST, MOST])], [INT([-(2**31), -1])]),
    "cumsum": (lambda x: x.cumsum(-1), [INT([[1, -2], [5, 6]])], [INT([[2**30, 2**30]])]),
    "prod": (lambda x: x.prod(-1), [INT([[1, -2], [5, 6]])], [INT([[2**16, 2**16]])]),
    "floats": (lambda x: (x * 2).long(), [torch.tensor([1.5, -7.0])], [torch.tensor([3e9])]),
    "no number": (lambda x: (x * 2).long(), [torch.tensor([1.5, -7.0])], [torch.tensor([float("nan")])]),
    "product": (lambda x, y: x @ y, [INT([[1, 2], [3, 4]])] * 2, [INT([[2**20, 2], [3, 4]])] * 2),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(0, i, s),
        [INT([1, 2]), INT([0, 0]), INT([3, 4])],
        [INT([1, 2]), INT([0, 0]), INT([2**30, 2**30])],
    ),
    "index_add": (
        lambda x, i, s: x.index_add(0, i, s),
        [INT([1, 2]), INT([0, 0]), INT([3, 4])],
        [INT([1, 2]), INT([1, 1]), INT([2**30, 2**30])],
    ),
    "index_put": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        [INT([1, 2]), INT([0, 0]), INT([3, 4])],
        [INT([1, 2]), INT([0, 0]), INT([2**30, 2**30])],
    ),
    "scatter_reduce": (
        lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
        [INT([1, 2]), INT([0, 0]), INT([3, 4])],
        [INT([1, 2]), INT([0, 0]), INT([2**30, 2**30])],
    ),
    "floor_divide": (lambda x, y: x // y, [INT([7, -7]), INT([2, 2])], [INT([-(2**31)]), INT([-1])]),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y, value=2), [INT([7, -7])] * 2, [INT([7]), INT([2**15])]),
    "counter": (lambda x: x.add_(1), [INT(5)], [INT(MOST)]),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_number_beyond_32_bits_is_refused_at_its_line(name, interpreted):
    """Not told of, and not wrapped: the numbers that fit are eager's, and those that don't reach nobody."""
    function, fitting, beyond = GROWING[name]
    compiled = torch.compile(function, backend="pallas", options=OPTIONS)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*TPB425")
        assert torch.equal(compiled(*[t.clone() for t in fitting]), function(*[t.clone() for t in fitting]))
    kept = [t.clone() for t in beyond]
    with pytest.raises(Diagnostic, match=r"TPB425.*beyond 32 bits[^$]*test_wide_numbers.py"):
        compiled(*kept)
    torch.testing.assert_close(kept, beyond, rtol=0, atol=0, equal_nan=True)


#: Numbers whose range is known.
PROVEN = {
    "places": lambda x, m: (x.argmax(-1) + 1, x.sort()[1] * 2, x.topk(2)[1] - 5, torch.arange(8) * 8 + torch.arange(8)),
    "counts": lambda x, m: (m.sum(), (x > 0).long().cumsum(-1) - 1, F.one_hot(m.long()[0], 2).sum() * 100),
    "limited": lambda x, m: ((x.clamp(-5, 5) * 1000).argmin() % 7 * 4, torch.where(m, 3, -3) ** 2, m.long() << 4),
    "resized": lambda x, m: F.interpolate(x[None], scale_factor=2.0),
    "loss": lambda x, m: F.cross_entropy(x, m.long().argmax(1)),
    "rolled": lambda x, m: (torch.arange(4).roll(1).flip(0), torch.cat([m.long(), 1 - m.long()]).max()),
}


@pytest.mark.parametrize("name", PROVEN)
def test_what_can_be_proved_is_neither_told_of_nor_checked(name, interpreted, emitted):
    given = [torch.linspace(-1, 1, 32).reshape(4, 8), torch.arange(32).reshape(4, 8) % 3 > 0]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*TPB425")
        got = torch.compile(PROVEN[name], backend="pallas", options=OPTIONS)(*given)
    torch.testing.assert_close(got, PROVEN[name](*given))
    assert not any("wraps." in source.text for assembly in emitted for source in assembly.sources)


def test_a_number_of_the_code_beyond_32_bits_runs_in_aten(interpreted):
    def f(x):
        return x + 1, x + 2**40

    with pytest.warns(DiagnosticNote, match="TPB403.*runs in ATen[^$]*1099511627776 needs more than the 32 bits"):
        got = torch.compile(f, backend="pallas", options=OPTIONS)(INT([1, 2]))
    assert [t.tolist() for t in got] == [[2, 3], [2**40 + 1, 2**40 + 2]]


def test_64_bits_looked_at_as_something_else_stay_64(interpreted):
    f = torch.compile(lambda x: x.view(torch.int32) + 1, backend="pallas", options=OPTIONS)
    with pytest.warns(DiagnosticNote, match=r"TPB\d+.*aten.view.dtype runs in ATen"):
        assert f(INT([1, -1])).tolist() == [2, 1, 0, 0]


def test_sorting_is_part_of_the_jitted_function(interpreted, emitted):
    x = torch.tensor([[3.0, -0.0, torch.nan, 0.0, 2.0], [1.0, 1.0, -5.0, 2.0, 3.0]])

    def g(x):
        return x.sort(), x.sort(descending=True), x.topk(2), x.median(1), x.argsort(stable=True)

    got = torch.compile(g, backend="pallas", options=OPTIONS)(x)
    torch.testing.assert_close(got, g(x), equal_nan=True)
    assert all(not assembly.plan.aten for assembly in emitted)


def test_ranges_hold_what_eager_gives():
    """Every rule against eager, on numbers drawn from the operands' ranges."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda low, high: torch.randint(low, high + 1, (64,), generator=generator)
    aten = torch.ops.aten
    bounds = [(-9, 14), (1, 6), (-3, -1), (0, 5), (-(2**20), 2**20)]
    for op in (
        aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.floor_divide.default, aten.remainder.Tensor,
        aten.fmod.Tensor, aten.maximum.default, aten.minimum.default, aten.bitwise_and.Tensor, aten.bitwise_or.Tensor,
        aten.bitwise_xor.Tensor, aten.gcd.default, aten.bitwise_right_shift.Tensor, aten.clamp.default,
    ):  # fmt: skip
        for a in bounds:
            for b in bounds:
                x, y = draw(*a), draw(*b)
                if op in (aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor):
                    y = torch.where(y == 0, torch.ones_like(y), y)
                if op is aten.bitwise_right_shift.Tensor and (b[0] < 0 or b[1] > 60):
                    continue
                if op is aten.clamp.default:
                    got, found = x.clamp(*b), ROWS[str(op)].grows.range(Known(Range(*a), (64,), x.dtype), *b)
                else:
                    known = [Known(Range(*r), (64,), torch.int64) for r in (a, b)]
                    got, found = op(x, y), ROWS[str(op)].grows.range(*known)
                assert found.low <= got.min() and got.max() <= found.high, (op, a, b)
    for op in (aten.neg, aten.abs, aten.sign, aten.bitwise_not, aten.relu, aten.square):
        for a in bounds:
            got, found = op.default(draw(*a)), ROWS[str(op.default)].grows.range(Known(Range(*a), (64,), torch.int64))
            assert found.low <= got.min() and got.max() <= found.high, (op, a)


def test_nothing_unknown_is_called_proved():
    unknown = Known(INT32, (4,), torch.int64)
    for name in ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor"):
        assert not ROWS[name].grows.range(unknown, unknown) <= INT32
    for name in ("aten.neg.default", "aten.abs.default", "aten.sum.default"):
        assert not ROWS[name].grows.range(unknown) <= INT32
