"""Operators of `bridge.jax_op` in a compiled function: part of the jitted segment, forward and backward."""

import jax
import jax.numpy as jnp
import pytest
import torch

import bridge
from bridge.diagnostics import strict


@bridge.jax_op("tests_inductor::scaled_sine")
def scaled_sine(x, scale: float = 2.0):
    return jnp.sin(x) * scale


@bridge.jax_op("tests_inductor::product_and_count")
def product_and_count(x, y, n: int) -> tuple[jax.Array, jax.Array]:
    return x @ y * n, jnp.arange(3) + x[0, 0].astype(int)


def f(x, y):
    a = scaled_sine(torch.tanh(x), 3.0)
    product, count = product_and_count(a, y, 3)
    return (product.relu() + scaled_sine(product)).sum() + count.sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_jax_operator_is_part_of_the_jitted_segment(dtype, emitted):
    torch.manual_seed(0)
    mine = [torch.randn(4, 5, dtype=dtype, requires_grad=True), torch.randn(5, 6, dtype=dtype, requires_grad=True)]
    theirs = [t.detach().clone().requires_grad_() for t in mine]
    with strict():
        got = torch.compile(f, backend="pallas", fullgraph=True)(*mine)
        got.backward()
    want = f(*theirs)
    want.backward()
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close([t.grad for t in mine], [t.grad for t in theirs], rtol=1e-4, atol=1e-4)
    forward, backward = emitted
    assert len(forward.sources) == len(backward.sources) == 1
    assert [i.title for i in forward.sources[0].inlined.values()][:1] == ["the function of tests_inductor::scaled_sine"]


def test_results_have_the_dtypes_that_the_operator_has_in_eager():
    x, y = torch.ones(2, 3), torch.ones(3, 2)
    compiled = torch.compile(lambda x, y: product_and_count(x * 1, y, 2), backend="pallas", fullgraph=True)
    got, want = compiled(x, y), product_and_count(x, y, 2)
    assert [t.dtype for t in got] == [t.dtype for t in want] == [torch.float32, torch.int32]
    assert all(torch.equal(g, w) for g, w in zip(got, want))
