"""Forward mode is Pallas' own; reverse mode is a diagnostic, inside jit and outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_core as pc
from bridge.diagnostics import Diagnostic

X = jnp.linspace(-1, 1, 16 * 128).reshape(16, 128)
ROWS = pc.BlockSpec((8, 128), lambda i: (i, 0))


def sine(x_ref, o_ref):
    o_ref[...] = jnp.sin(x_ref[...])


def scaled(x_ref, n_ref, o_ref, count_ref):
    o_ref[...] = jnp.sin(x_ref[...]) * n_ref[...].astype(jnp.float32)
    count_ref[...] = n_ref[...] + 1


WHOLE = pc.pallas_call(sine, pc.spec((16, 128), jnp.float32))
GRID = pc.pallas_call(sine, pc.spec((16, 128), jnp.float32), grid=(2,), in_specs=[ROWS], out_specs=ROWS)


@pytest.mark.parametrize("f", [WHOLE, GRID, jax.jit(GRID)])
def test_reverse_mode_is_refused(f):
    for take in (
        lambda: jax.grad(lambda x: f(x).sum())(X),
        lambda: jax.jit(jax.grad(lambda x: f(x * 2).sum()))(X),
        lambda: jax.vjp(f, X)[1](X),
        lambda: jax.value_and_grad(lambda x: jax.vmap(f)(x[None]).sum())(X),
    ):
        with pytest.raises(Diagnostic) as caught:
            take()
        assert caught.value.slug == "kernel-not-differentiable" and caught.value.where.file == __file__


@pytest.mark.parametrize("f", [WHOLE, GRID, jax.jit(GRID)])
def test_forward_mode_and_batching_are_right(f):
    value, slope = jax.jvp(f, (X,), (2 * X,))
    np.testing.assert_allclose(value, np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(slope, np.cos(X) * 2 * X, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(jax.vmap(f)(jnp.stack([X, 2 * X]))[1], np.sin(2 * X), rtol=1e-5, atol=1e-7)


def test_a_jacobian_by_forward_mode():
    f = pc.pallas_call(sine, pc.spec((4,), jnp.float32))
    x = jnp.arange(4.0)
    np.testing.assert_allclose(jax.jacfwd(f)(x), np.diag(np.cos(x)), rtol=1e-6)
    with pytest.raises(Diagnostic, match="TPB328"):
        jax.jacrev(f)(x)


def test_what_jax_cannot_push_forward_is_refused_too():
    n = jnp.full((16, 128), 3, jnp.int32)
    mixed = pc.pallas_call(scaled, [pc.spec((16, 128), jnp.float32), pc.spec((16, 128), jnp.int32)])
    aliased = pc.pallas_call(sine, pc.spec((16, 128), jnp.float32), input_output_aliases={0: 0})
    for f in (lambda x: mixed(x, n)[0], aliased):
        np.testing.assert_allclose(jax.jit(f)(X), (3 if f is not aliased else 1) * np.sin(X), rtol=1e-6)
        with pytest.raises(Diagnostic, match="TPB328"):
            jax.jvp(f, (X,), (X,))
        with pytest.raises(Diagnostic, match="TPB328"):
            jax.grad(lambda x: f(x).sum())(X)


def test_a_derivative_of_ones_own_is_used():
    @jax.custom_vjp
    def f(x):
        return GRID(x)

    f.defvjp(lambda x: (GRID(x), x), lambda x, g: (jnp.cos(x) * g,))
    np.testing.assert_allclose(jax.grad(lambda x: f(x).sum())(X), np.cos(X), rtol=1e-6)
