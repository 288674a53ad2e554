"""Whatever is wrong with a call is a diagnostic with a place, before anything runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from torch.autograd import forward_ad

import pallas_core as pc
from bridge.diagnostics import Diagnostic

X = torch.zeros(16, 128)
ROWS = pc.BlockSpec((8, 128), lambda i: (i, 0))
TABLE = jnp.arange(128.0)
TENSOR = torch.arange(128.0)
COMPLEX = torch.ones(4, dtype=torch.complex64)


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


def deleted():
    a = jnp.ones((16, 128)) + 0
    a.delete()
    return a


def dual():
    return forward_ad.make_dual(X, X)


def two_semantics(x):
    rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    params = pltpu.CompilerParams(dimension_semantics=("parallel", "parallel"))
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    return pl.pallas_call(copy, out, grid=(2,), in_specs=[rows], out_specs=rows, compiler_params=params)(x)


def verify(args=(X,), reference=torch.clone, **tolerances):
    return pc.verify(pc.pallas_call(copy, pc.like(X)), args, "tpu:v5e", reference=reference, **tolerances)


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
    "keyword": (lambda: pc.pallas_call(copy, pc.like(X))(x=X), "operand-mismatch"),
    "deleted array": (lambda: call(args=(deleted(),)), "deleted-array"),
    "inside torch.vmap": (lambda: torch.vmap(pc.pallas_call(copy, pc.like(X)))(X[None]), "not-a-plain-tensor"),
    "sparse": (lambda: call(args=(X.to_sparse(),)), "not-a-plain-tensor"),
    "nested": (lambda: call(args=(torch.nested.nested_tensor([X]),)), "not-a-plain-tensor"),
    "complex output": (lambda: call(out=pc.spec(4, "complex64"), args=(COMPLEX,)), "complex-result"),
    "complex32": (lambda: pc.spec(4, torch.complex32), "bad-argument"),
    "complex32 operand": (lambda: call(args=(COMPLEX.to(torch.complex32),)), "dtype-cannot-cross"),
    "int4 result for torch": (lambda: call(kernel=lambda x, o: None, out=pc.spec(4, "int4")), "dtype-cannot-cross"),
    "forward-mode tangent": (lambda: call(args=(dual(),)), "grad-would-be-lost"),
    "shape of floats": (lambda: pc.spec((2.5,), "float32"), "bad-argument"),
    "no outputs": (lambda: call(kernel=lambda x: None, out=[]), "bad-argument"),
    "name": (lambda: call(name=3), "bad-argument"),
    "grid_spec": (lambda: call(grid_spec=3), "bad-argument"),
    "prefetch is a word": (lambda: call(grid_spec=pc.PrefetchScalarGridSpec("a", grid=(2,))), "bad-argument"),
    "prefetch is negative": (lambda: call(grid_spec=pc.PrefetchScalarGridSpec(-1, grid=(2,))), "bad-argument"),
    "aliases are a list": (lambda: call(input_output_aliases=[0]), "bad-alias"),
    "aliases are a number": (lambda: call(input_output_aliases=3), "bad-alias"),
    "alias of two inputs": (
        lambda: call(kernel=lambda a, b, o: None, args=(X, X), input_output_aliases={0: 0, 1: 0}),
        "bad-alias",
    ),
    "scratch is a number": (lambda: call(scratch_shapes=3), "bad-argument"),
    "scratch is one buffer": (lambda: call(scratch_shapes=pc.VMEM((8, 128), "float32")), "bad-argument"),
    "scratch has no shape": (lambda: call(scratch_shapes=[pc.VMEM]), "bad-argument"),
    "scratch of negative size": (lambda: pc.VMEM((-8, 128), "float32"), "bad-argument"),
    "block is a number": (lambda: pc.BlockSpec(8, lambda: 0), "bad-block-spec"),
    "block of floats": (lambda: pc.BlockSpec((2.5, 128), lambda: (0, 0)), "bad-block-spec"),
    "index map is a number": (lambda: pc.BlockSpec((8, 128), 3), "bad-block-spec"),
    "memory space": (lambda: pc.BlockSpec((8, 128), lambda: (0, 0), memory_space="nope"), "bad-block-spec"),
    "pipeline mode": (lambda: pc.BlockSpec((8, 128), lambda: (0, 0), pipeline_mode=3), "bad-block-spec"),
    "unknown parameter": (lambda: call(compiler_params=dict(foo=1)), "bad-argument"),
    "unknown parameter, by name": (lambda: pc.compiler_params(vmem_limit=1), "bad-argument"),
    "parameters are a number": (lambda: call(compiler_params=3), "bad-argument"),
    "unknown semantics": (lambda: call(compiler_params=dict(dimension_semantics=("nope",))), "bad-argument"),
    "semantics are a word": (lambda: call(compiler_params=dict(dimension_semantics="parallel")), "bad-argument"),
    "more semantics than axes": (
        lambda: call(grid=(2,), compiler_params=dict(dimension_semantics=("parallel", "parallel"))),
        "bad-grid",
    ),
    "more semantics than axes, plain Pallas": (lambda: pc.compile_for(two_semantics, (X,), "tpu:v5e"), "bad-grid"),
    "program_id outside": (lambda: pc.program_id(0), "outside-pallas-kernel"),
    "num_programs outside": (lambda: pc.num_programs(0), "outside-pallas-kernel"),
    "reference is no function": (lambda: verify(reference=3), "bad-argument"),
    "tolerance": (lambda: verify(rtol="a"), "bad-argument"),
    "verify of one tensor": (lambda: verify(args=X), "bad-argument"),
    "empty operand offline": (
        lambda: pc.compile_for(pc.pallas_call(copy, pc.like(X)), (X[:0],), "tpu:v5e"),
        "empty-operand",
    ),
    "timeout": (
        lambda: pc.compile_for(pc.pallas_call(copy, pc.like(X)), (X,), "tpu:v5e", timeout="a"),
        "bad-argument",
    ),
    "pipeline": (lambda: pc.emit_pipeline(3, grid=3), "bad-argument"),
    "nothing to compile": (lambda: pc.compile_for(3, (X,), "tpu:v5e"), "bad-argument"),
}


@pytest.mark.filterwarnings("ignore:.*(nested tensors|ComplexHalf).*:UserWarning")
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    run, slug = BAD[name]
    with forward_ad.dual_level(), pytest.raises(Diagnostic) as caught:
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
