"""Which launches share a compiled form: the keys of specialisations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat.arguments import in_code


def test_constexprs_that_python_calls_equal():
    @triton.jit
    def kernel(out, V: tl.constexpr):
        tl.store(out + tl.arange(0, 2), 1.0 / tl.full([2], V, tl.float32))

    out = torch.empty(2)
    for value, want in [(0.0, float("inf")), (-0.0, float("-inf")), (0.0, float("inf"))]:
        kernel[(1,)](out, V=value)
        assert out[0] == want
    assert len(kernel.cache) == 2


def test_one_and_true_and_a_float():
    @triton.jit
    def kernel(out, V: tl.constexpr):
        if V is True:
            tl.store(out, 1.0)
        elif isinstance(V, int):
            tl.store(out, 2.0)
        else:
            tl.store(out, 3.0)

    out = torch.empty(1)
    for value, want in [(1, 2), (True, 1), (1.0, 3), (np.float64(1.0), 3), (1, 2), (True, 1)]:
        kernel[(1,)](out, V=value)
        assert out[0] == want, value


def test_inside_tuples():
    @triton.jit
    def kernel(out, V: tl.constexpr):
        tl.store(out, 1.0 if V[0] is True else 2.0)

    out = torch.empty(1)
    for value, want in [((True, 0), 1), ((1, 0), 2), ((True, 0), 1)]:
        kernel[(1,)](out, V=value)
        assert out[0] == want


def test_contents_that_change():
    @triton.jit
    def kernel(out, V: tl.constexpr):
        tl.store(out, float(V[0]))

    out, values = torch.empty(1), [1]
    for n in (1, 2, 3):
        values[0] = n
        kernel[(1,)](out, V=values)
        assert out[0] == n
    table = np.zeros(5000)
    for n in (4, 5):
        table[2500] = n
        kernel[(1,)](out, V=[table.sum()])
        assert out[0] == n


class Plain:
    __hash__ = None  # type: ignore[assignment]
    __repr__ = lambda self: "plain"  # the same in every process that collects tests


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0.0, -0.0),
        (1, True),
        (1, 1.0),
        (0, False),
        ((1,), (True,)),
        ([0.0], [-0.0]),
        ([1], (1,)),
        ({"a": 1}, {"a": 1.0}),
        (None, 0),
        ("1", 1),
        (np.float32(1), np.float64(1)),
        (np.array([1, 2]), np.array([1, 3])),
        (np.zeros(4), np.zeros((2, 2))),
        (np.concatenate([np.zeros(3000), [1], np.zeros(3000)]), np.concatenate([np.zeros(3000), [2], np.zeros(3000)])),
        (Plain(), Plain()),
        (torch.float32, torch.float64),
        (tl.float32, tl.float16),
        (1j, complex(-0.0, 1)),
        (tl.constexpr(1), tl.constexpr(True)),
    ],
    ids=str,
)
def test_apart(a, b):
    assert in_code(a) != in_code(b)


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: -0.0,
        lambda: [1, (2.0, "x")],
        lambda: np.arange(4),
        lambda: {"a": [1]},
        lambda: None,
    ],
)
def test_together(make):
    a, b = in_code(make()), in_code(make())
    assert a == b and hash(a) == hash(b)
    thing = SimpleNamespace(a=1)  # compared by contents, so without a hash
    assert in_code(thing) == in_code(thing)


def test_a_bool_is_no_length():
    @triton.jit
    def kernel(out, V):
        tl.store(out, 1.0 if V else 2.0)

    out = torch.empty(1)
    kernel[(1,)](out, False)
    assert out[0] == 2
    kernel[(1,)](out, True)
    assert out[0] == 1


def test_an_integer_that_only_bounds_masks():
    @triton.jit
    def softmax(out, x, stride, rows, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        c = tl.arange(0, BLOCK)
        inside = (c < columns) & (row < rows)
        v = tl.load(x + row * stride + c, mask=inside, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        e = e / tl.sum(e, axis=0) + (columns if columns > 30 else 0)
        tl.store(out + row * stride + c, e, mask=inside)

    x = torch.randn(6, 64)
    sizes = [*range(1, 64, 2), 64, 0, -3, 80, 31, 30, 2]
    for turn, columns in enumerate(sizes * 2):
        rows = 6 if turn < 12 else turn % 7
        out = torch.full((6, 64), -1.0)
        softmax[(6,)](out, x, 64, rows, columns, BLOCK=64)
        want, n = torch.full((6, 64), -1.0), max(0, min(columns, 64))
        want[:rows, :n] = torch.softmax(x[:rows, :n], 1) + (columns if columns > 30 else 0)
        torch.testing.assert_close(out, want)
    assert len(softmax.cache) <= 12


def test_an_integer_that_bounds_masks_in_place():
    @triton.jit
    def bump(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i, mask=i < n) + n, mask=i < n)

    memory = torch.arange(300, dtype=torch.int64)
    x, want = memory[10:266], memory.clone()
    for n in range(200, 257):
        bump[(4,)](x, n, BLOCK=64)
        want[10 : 10 + n] += n
        assert torch.equal(memory, want), n
    assert len(bump.cache) <= 6


def test_integers_that_bound_more_than_masks():
    @triton.jit
    def total(out, x, n, BLOCK: tl.constexpr):
        acc = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n, BLOCK):
            i = start + tl.arange(0, BLOCK)
            acc += tl.load(x + i, mask=i < n, other=0.0)
        tl.store(out, tl.sum(acc, axis=0))

    @triton.jit
    def behind(out, x, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n, other=7.0), mask=i < n)  # BLOCK is longer than the tensors

    @triton.jit
    def rows(out, x, stride, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i * stride))

    x = torch.randn(100)
    for n in range(1, 60, 7):
        out = torch.zeros(100)
        total[(1,)](out, x, n, BLOCK=16)
        torch.testing.assert_close(out[0], x[:n].sum())
        out = torch.zeros(100)
        behind[(1,)](out, x, n, BLOCK=128)
        assert torch.equal(out[:n], x[:n]) and not out[n:].any()
        rows[(1,)](out, x, n // 7 + 1, BLOCK=8)
        assert torch.equal(out[:8], x[:: n // 7 + 1][:8])
