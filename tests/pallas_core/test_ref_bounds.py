"""What is known of an index when a kernel is traced is checked against the Ref, the same on every target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl

import pallas_core as pc
from bridge.diagnostics import Diagnostic

X = torch.arange(16 * 128.0).reshape(16, 128)


def load(read):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + jnp.sum(read(x_ref))

    return kernel


def store(at):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        o_ref[at()] = jnp.zeros_like(o_ref[at()])

    return kernel


def guarded(x_ref, o_ref):
    o_ref[...] = x_ref[...]

    @pl.when(x_ref[0, 0] > 0)
    def _():
        o_ref[0] = x_ref[17]


def inside_a_jit(x_ref, o_ref):
    o_ref[...] = x_ref[...] + x_ref[jax.jit(lambda a, b: jnp.where(a > b, a, b))(jnp.int32(3), jnp.int32(16))]


NEGATIVE, PAST = "negative-ref-index", "ref-index-out-of-bounds"
BAD = {
    "past": (load(lambda x: x[16]), PAST),
    "far past": (load(lambda x: x[1 << 20, 0]), PAST),
    "past in the second dimension": (load(lambda x: x[3, 128]), PAST),
    "store past": (store(lambda: 20), PAST),
    "numpy": (load(lambda x: x[np.int32(-1)]), NEGATIVE),
    "numpy past": (load(lambda x: x[np.int64(16)]), PAST),
    "jax": (load(lambda x: x[jnp.int32(-1)]), NEGATIVE),
    "computed": (load(lambda x: x[jnp.int32(3) - 5]), NEGATIVE),
    "computed past": (load(lambda x: x[jnp.int32(3) * 6]), PAST),
    "slice before": (load(lambda x: x[pc.ds(-8, 8)]), NEGATIVE),
    "store slice before": (store(lambda: pc.ds(-8, 8)), NEGATIVE),
    "slice past": (load(lambda x: x[pc.ds(12, 8)]), PAST),
    "slice from a jax number": (load(lambda x: x[pc.ds(jnp.int32(-8), 8)]), NEGATIVE),
    "slice to past, from a jax number": (load(lambda x: x[pc.ds(jnp.int32(9), 8)]), PAST),
    "strided slice": (load(lambda x: x[pc.ds(jnp.int32(2), 8, 2)]), PAST),
    "table": (load(lambda x: x[jnp.arange(17)]), PAST),
    "table before": (load(lambda x: x[jnp.arange(8) - 1]), NEGATIVE),
    "in a branch": (guarded, PAST),
    "in a jitted helper": (inside_a_jit, PAST),
    "in a view": (load(lambda x: x.at[pc.ds(8, 8)][8]), PAST),
}


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
@pytest.mark.parametrize("name", BAD)
def test_outside(name, target):
    kernel, slug = BAD[name]
    f = pc.pallas_call(kernel, pc.like(X))
    with pytest.raises(Diagnostic) as caught:
        f(X) if target == "cpu" else pc.compile_for(f, (X,), target)
    assert caught.value.slug == slug, caught.value
    assert caught.value.where.file == __file__ and caught.value.where.line > 20


INSIDE = {
    "last": (lambda x: x[15], X[15]),
    "numpy": (lambda x: x[np.int32(15)], X[15]),
    "corner": (lambda x: x[15, 127], X[15, 127]),
    "last slice": (lambda x: x[pc.ds(jnp.int32(8), 8)], X[8:]),
    "strided slice": (lambda x: x[pc.ds(jnp.int32(1), 8, 2)], X[1::2]),
    "slices clip as python's": (lambda x: x[-2:40], X[-2:]),
    "table": (lambda x: x[jnp.arange(8) * 2 + 1], X[1::2]),
    "view": (lambda x: x.at[pc.ds(8, 8)][7], X[15]),
    "loop": (lambda x: jax.lax.fori_loop(0, 16, lambda i, s: s + jnp.sum(x[i]), 0.0), X),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside(name):
    read, right = INSIDE[name]

    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref) + jnp.sum(read(x_ref))

    out = pc.pallas_call(kernel, pc.spec((8, 128), torch.float32))(X)
    torch.testing.assert_close(out, right.sum().expand(8, 128))
