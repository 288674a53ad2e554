"""Reductions in lanes against float64: as accurate as eager's, of rows and columns of any length, NaN and all."""

import jax
import numpy as np
import pytest
import torch

import bridge.engine
from bridge.engine import Engine
from inductor_backend.ops import lanes

#: Lengths that divide into lanes, that don't, primes, and those of several levels.
SHAPES = [
    ((3, 1024), (1,)), ((3, 1000), (1,)), ((5, 197), (1,)), ((2, 196), (1,)), ((2, 47), (1,)), ((1, 70001), (1,)),
    ((300, 512), (0, 1)), ((513, 7), (0,)), ((4099, 3), (0,)), ((4, 3, 17, 19), (0, 2, 3)), ((4, 65, 5), (1,)),
    ((130, 2, 64), (0, 2)), ((2, 3, 4), (0, 1, 2)), ((64,), (0,)),
]  # fmt: skip


def computed(fn, *tensors):
    """`fn` of arrays, compiled as graphs are."""
    engine = Engine.current()
    avals = [jax.ShapeDtypeStruct(t.shape, str(t.dtype).removeprefix("torch.")) for t in tensors]
    program = engine.compile(fn, avals, lanes=True)
    return [np.asarray(r) for r in program([engine.share(t.clone()) for t in tensors])]


@pytest.mark.parametrize("shape, axes", SHAPES)
def test_a_sum_is_as_accurate_as_eagers(shape, axes):
    worst = {"ours": 0.0, "eager": 0.0}
    for seed in range(4):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.5
        exact = (x.double() * x.double()).sum(axes).numpy()
        (found,) = computed(lambda v: [lanes.total(v * v, axes)], x)
        assert found.dtype == np.float32 and found.shape == exact.shape
        for name, values in (("ours", found), ("eager", (x * x).sum(axes).numpy())):
            worst[name] = max(worst[name], float(np.max(np.abs(values - exact) / exact)))
    # Rounding is a matter of luck: a unit of the last place more is allowed.
    assert worst["ours"] <= worst["eager"] + 2**-23


@pytest.mark.parametrize("length", [1000, 4096, 100_003])
def test_long_sums_dont_lose_digits(length):
    x = torch.full((2, length), 0.1)
    (rows,) = computed(lambda v: [lanes.total(v, 1)], x)
    (columns,) = computed(lambda v: [lanes.total(v, 0)], x.t().contiguous())
    exact = float(np.float32(0.1)) * length
    for found in (rows, columns):
        np.testing.assert_allclose(found, exact, rtol=5e-7)


@pytest.mark.parametrize("shape, axes", SHAPES)
@pytest.mark.parametrize("place", ["first", "last", "none"])
def test_extremes_are_nan_where_a_number_is(shape, axes, place):
    x = torch.randn(shape)
    if place != "none":
        x.view(-1)[0 if place == "first" else -1] = torch.nan
    for axis in axes:
        highest, lowest = computed(
            lambda v, a=axis: [lanes.highest(v, a), lanes.reduced(v, a, jax.numpy.min, jax.numpy.minimum)], x
        )
        np.testing.assert_array_equal(highest, x.amax(axis).numpy())
        np.testing.assert_array_equal(lowest, x.amin(axis).numpy())


@pytest.mark.parametrize("shape, axes", SHAPES)
def test_whole_numbers_are_exact(shape, axes):
    x = torch.randint(-(2**40), 2**40, shape)
    (found,) = computed(lambda v: [lanes.total(v, axes)], x)
    np.testing.assert_array_equal(found, x.sum(axes).numpy())


def test_nothing_is_taken_apart_elsewhere():
    assert not bridge.engine.plain.get()
    text = str(jax.make_jaxpr(lambda v: lanes.total(v, 1))(np.ones((4, 1024), np.float32)))
    assert "optimization_barrier" not in text
