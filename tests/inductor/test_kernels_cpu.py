"""Kernels on the CPU: traced by Pallas, then evaluated as the one program that they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inductor_backend.kernels import pallas
from inductor_backend.ops import Out


def outs(*shapes):
    return [Out(shape, jnp.float32, ()) for shape in shapes]


def two_results(x_ref, y_ref, sum_out, soft_out):
    x, y = x_ref[...], y_ref[...]
    total = x + y
    sum_out[...] = total
    soft_out[...] = jax.nn.softmax(total * x_ref[...], axis=-1)


def read_back(x_ref, out):
    out[...] = x_ref[...] * 2
    out[...] = out[...] + 1


def by_rows(x_ref, out):
    for row in range(4):
        out[row, :] = x_ref[3 - row, :]


def in_a_loop(x_ref, out):
    def turn(i, carry):
        out[i] = x_ref[i] * 2
        return carry

    jax.lax.fori_loop(0, 4, turn, 0)


def constant_result(x_ref, out):
    out[...] = jnp.full((4, 8), 3.0)


KERNELS = {
    two_results: (lambda x, y: [x + y, jax.nn.softmax((x + y) * x, axis=-1)], 2),
    read_back: (lambda x: [x * 2 + 1], 1),
    by_rows: (lambda x: [x[::-1]], 1),
    in_a_loop: (lambda x: [x * 2], 1),
    constant_result: (lambda x: [jnp.full((4, 8), 3.0)], 1),
}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_values(kernel):
    plain, count = KERNELS[kernel]
    args = [jnp.asarray(np.random.default_rng(i).standard_normal((4, 8)), jnp.float32) for i in range(count)]
    want = plain(*args)
    for found, expected in zip(jax.jit(pallas(kernel, outs(*[(4, 8)] * len(want))))(*args), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("kernel", [two_results, read_back, constant_result], ids=lambda k: k.__name__)
def test_no_loop_around_whole_arrays(kernel):
    plain, count = KERNELS[kernel]
    args = [jnp.ones((4, 8), jnp.float32)] * count
    results = len(plain(*args))
    text = str(jax.make_jaxpr(pallas(kernel, outs(*[(4, 8)] * results)))(*args))
    assert "while" not in text and "dynamic_slice" not in text


def test_what_pallas_refuses_is_refused():
    captured = jnp.arange(8.0)

    def kernel(x_ref, out):
        out[...] = x_ref[...] + captured

    with pytest.raises(ValueError, match="captures constants"):
        pallas(kernel, outs((4, 8)))(jnp.ones((4, 8), jnp.float32))


def test_a_result_of_the_wrong_shape_is_refused():
    def kernel(x_ref, out):
        out[...] = x_ref[...].sum(-1)

    with pytest.raises((TypeError, ValueError)):
        pallas(kernel, outs((4, 8)))(jnp.ones((4, 8), jnp.float32))
