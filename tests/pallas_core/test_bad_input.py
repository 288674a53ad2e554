"""Whatever is wrong with a call is a diagnostic with a place, before anything runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pallas_core as pc
from bridge.diagnostics import Diagnostic

X = torch.zeros(16, 128)
ROWS = pc.BlockSpec((8, 128), lambda i: (i, 0))
TABLE = jnp.arange(128.0)
TENSOR = torch.arange(128.0)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def call(kernel=copy, out=None, args=(X,), **kwargs):
    return pc.pallas_call(kernel, out_shape=pc.like(X) if out is None else out, **kwargs)(*args)


def captures(x_ref, o_ref):
    o_ref[...] = x_ref[...] + TABLE


def captures_tensor(x_ref, o_ref):
    o_ref[...] = x_ref[...] + TENSOR


def misspelt(x_ref, o_ref):
    o_ref[...] = x_ref[...] + nothing_of_that_name  # noqa: F821


def negative(x_ref, o_ref):
    o_ref[...] = x_ref[...] + x_ref[-1, :]


def wrong_shape(x_ref, o_ref):
    o_ref[...] = x_ref[...].T


BAD = {
    "kernel is no function": (lambda: call(kernel=3), "bad-argument"),
    "no out_shape": (lambda: pc.pallas_call(copy), "bad-argument"),
    "out_shape is no spec": (lambda: call(out="f32"), "bad-argument"),
    "negative shape": (lambda: pc.spec((-1,), torch.float32), "bad-argument"),
    "dtype is no dtype": (lambda: pc.spec((1,), "float31"), "bad-argument"),
    "unknown target": (lambda: call(target="tpu:v9"), "unknown-target"),
    "kernel takes too few": (lambda: call(kernel=lambda x_ref: None), "kernel-arity"),
    "kernel takes too many": (lambda: call(kernel=lambda a, b, c: None), "kernel-arity"),
    "grid is no grid": (lambda: call(grid="4"), "bad-grid"),
    "grid is a float": (lambda: call(grid=(2.0,)), "bad-grid"),
    "grid is negative": (lambda: call(grid=(-1,)), "bad-grid"),
    "zero grid": (lambda: call(grid=(0,), in_specs=[ROWS], out_specs=ROWS), "output-not-covered"),
    "grid too small": (lambda: call(grid=(1,), in_specs=[ROWS], out_specs=ROWS), "output-not-covered"),
    "grid too large": (lambda: call(grid=(3,), in_specs=[ROWS], out_specs=ROWS), "block-out-of-bounds"),
    "spec is no spec": (lambda: call(in_specs=[(8, 128)]), "bad-block-spec"),
    "block rank": (lambda: call(grid=(2,), in_specs=[pc.BlockSpec((8,), lambda i: (i,))]), "bad-block-spec"),
    "block of zero": (lambda: call(grid=(2,), out_specs=pc.BlockSpec((0, 128), lambda i: (i, 0))), "bad-block-spec"),
    "out block rank": (lambda: call(grid=(2,), out_specs=pc.BlockSpec((8,), lambda i: (i,))), "bad-block-spec"),
    "index map arity": (
        lambda: call(grid=(2,), in_specs=[pc.BlockSpec((8, 128), lambda i, j: (i, j))]),
        "bad-block-spec",
    ),
    "index map rank": (lambda: call(grid=(2,), in_specs=[pc.BlockSpec((8, 128), lambda i: i)]), "bad-block-spec"),
    "too many out_specs": (lambda: call(out_specs=[pc.BlockSpec(), pc.BlockSpec()]), "bad-block-spec"),
    "too many arguments": (lambda: call(args=(X, X), in_specs=[pc.BlockSpec()]), "operand-mismatch"),
    "no array": (lambda: call(args=(3,)), "operand-mismatch"),
    "numpy": (lambda: call(args=(np.zeros((16, 128), np.float32),)), "operand-mismatch"),
    "meta tensor": (lambda: call(args=(torch.zeros(16, 128, device="meta"),)), "operand-mismatch"),
    "mixed": (lambda: call(kernel=lambda a, b, o: None, args=(X, jnp.zeros((16, 128)))), "mixed-frameworks"),
    "requires grad": (lambda: call(args=(torch.zeros(16, 128, requires_grad=True),)), "grad-would-be-lost"),
    "empty operand": (lambda: call(args=(torch.zeros(0, 128),)), "empty-operand"),
    "alias of another shape": (lambda: call(args=(X[:8],), input_output_aliases={0: 0}), "bad-alias"),
    "alias of no output": (lambda: call(input_output_aliases={0: 1}), "bad-alias"),
    "grid_spec and grid": (lambda: call(grid=(1,), grid_spec=pc.GridSpec((1,))), "bad-argument"),
    "captured array": (lambda: call(kernel=captures), "captured-array"),
    "captured tensor": (lambda: call(kernel=captures_tensor), "captured-array"),
    "name error": (lambda: call(kernel=misspelt), "kernel-trace-failed"),
    "negative index": (lambda: call(kernel=negative), "negative-ref-index"),
    "wrong value shape": (lambda: call(kernel=wrong_shape), "kernel-trace-failed"),
    "target not here": (lambda: call(target="tpu:v5e"), "target-not-here"),
    "gpu": (lambda: pc.compile_for(pc.pallas_call(copy, out_shape=pc.like(X)), (X,), "gpu:sm90a"), "unknown-target"),
    "no chip": (lambda: pc.compile_for(pc.pallas_call(copy, out_shape=pc.like(X)), (X,), "tpu"), "unknown-target"),
    "args is no tuple": (
        lambda: pc.compile_for(pc.pallas_call(copy, out_shape=pc.like(X)), X, "tpu:v5e"),
        "bad-argument",
    ),
    "nothing to compile": (lambda: pc.compile_for(3, (X,), "tpu:v5e"), "bad-argument"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    run, slug = BAD[name]
    with pytest.raises(Diagnostic) as caught:
        run()
    found = caught.value
    assert found.slug == slug, str(found)
    assert found.do, "every diagnostic has a remedy"


@pytest.mark.parametrize(
    "kernel, text, where",
    [
        (captures, "TABLE", "TABLE"),
        (captures_tensor, "TENSOR", "TENSOR"),
        (negative, "-1", "x_ref[-1, :]"),
        (misspelt, "nothing", "nothing"),
    ],
)
def test_the_place_is_the_users(kernel, text, where):
    with pytest.raises(Diagnostic) as caught:
        call(kernel=kernel)
    place = caught.value.where
    assert place.file == __file__ and text in str(caught.value)
    line = place.text()
    assert line[place.col - 1 :].startswith(where), (line, place)


def test_a_captured_array_that_does_no_harm_is_fine():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * TENSOR.shape[0]

    assert call(kernel=kernel, args=(X + 1,))[0, 0].item() == 128


def test_the_forgotten_index_map_names_the_first_missing_block():
    with pytest.raises(Diagnostic, match=r"first that no program writes is \(1, 0\)"):
        call(grid=(2,), in_specs=[ROWS], out_specs=pc.BlockSpec((8, 128), lambda i: (0, 0)))


def test_nothing_is_written_before_a_refusal():
    x = X.clone()
    with pytest.raises(Diagnostic):
        call(args=(x,), grid=(1,), in_specs=[ROWS], out_specs=ROWS, input_output_aliases=None)
    assert torch.equal(x, X)


def test_laws_hold_inside_jit_too():
    f = pc.pallas_call(copy, out_shape=pc.spec((16, 128), jnp.float32), grid=(1,), in_specs=[ROWS], out_specs=ROWS)
    with pytest.raises(Diagnostic) as caught:
        jax.jit(f)(jnp.zeros((16, 128)))
    assert caught.value.slug == "output-not-covered"


def test_axes_declared_parallel_may_not_share_a_block():
    def kernel(x_ref, o_ref):
        o_ref[...] += x_ref[...]

    with pytest.raises(Diagnostic) as caught:
        call(
            kernel=kernel,
            out=pc.spec((8, 128), torch.float32),
            grid=(2,),
            in_specs=[ROWS],
            out_specs=pc.BlockSpec((8, 128), lambda i: (0, 0)),
            compiler_params=pc.compiler_params(dimension_semantics=("parallel",)),
        )
    assert caught.value.slug == "kernel-race"
