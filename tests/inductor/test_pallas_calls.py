"""Functions of pallas_call in a compiled function: operators of its graph, in the jitted function."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.utils._pytree import tree_leaves
from tpu_cases import rand

import inductor_backend
import pallas_core as pc
from bridge.diagnostics import Diagnostic, strict


def softmax_kernel(x_ref, o_ref):
    o_ref[...] = jax.nn.softmax(x_ref[...], axis=-1)


def split_kernel(x_ref, low_ref, high_ref):
    low_ref[...] = jnp.floor(x_ref[...])
    high_ref[...] = (x_ref[...] * 10).astype(jnp.int32)


ROWS = pc.BlockSpec((8, 128), lambda i: (i, 0))
softmax = pc.pallas_call(
    softmax_kernel, out_shape=pc.spec((32, 128), "float32"), grid=(4,), in_specs=[ROWS], out_specs=ROWS
)
split = pc.pallas_call(split_kernel, out_shape=[pc.spec((4, 8), "float32"), pc.spec((4, 8), "int32")])


def f(x):
    return softmax(x.sin()) * 2 + x


def several(x):
    low, high = split(x * 3)
    return low + 1, high * 2


@pytest.mark.parametrize(("function", "shape"), [(f, (32, 128)), (several, (4, 8))])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_kernel_is_part_of_the_jitted_function(function, shape, dynamic, emitted):
    x = rand(*shape)
    compiled = torch.compile(function, backend="pallas", fullgraph=True, dynamic=dynamic)
    with strict():
        got = compiled(x)
    torch.testing.assert_close(got, function(x))
    assert [t.dtype for t in tree_leaves(got)] == [t.dtype for t in tree_leaves(function(x))]
    assert len(emitted) == 1 and len(emitted[0].sources) == 1 and emitted[0].sources[0].inlined


def test_it_is_a_kernel_of_a_tpu_there(interpreted, emitted):
    options: dict[str, Any] = {"target": "tpu:v5e", "kernels": "all"}
    x = rand(32, 128)
    torch.testing.assert_close(torch.compile(f, backend="pallas", fullgraph=True, options=options)(x), f(x))
    assert emitted[0].sources[0].inlined and len(emitted[0].sources) == 1


def test_explain_compiles_it_for_the_tpu():
    report = inductor_backend.explain(f, rand(32, 128), target="tpu:v5e")
    assert [i.name for i in report.graphs[0].inlined] == ["the kernel softmax_kernel"]
    assert not report.fallbacks and report.graphs[0].static.time_s > 0


def test_other_backends_call_it():
    x = rand(32, 128)
    torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(x), f(x))


def test_a_gradient_without_a_rule_is_said_as_in_eager():
    x = rand(32, 128).requires_grad_()
    with pytest.raises(Diagnostic) as eager:
        f(x)
    with pytest.raises(Diagnostic) as compiled:
        torch.compile(f, backend="pallas")(x)
    assert compiled.value.code == eager.value.code
    assert "bridge.jax_op" in str(compiled.value) and str(compiled.value.where).startswith(__file__)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(f, backend="pallas", fullgraph=True)(x), f(x))


def test_wrong_arguments_are_diagnosed():
    with pytest.raises(Diagnostic, match="operand-mismatch"):
        torch.compile(lambda x: softmax(x, x), backend="pallas")(rand(32, 128))


def test_a_kernel_made_inside_is_right_as_well():
    def inside(x):
        double = pc.pallas_call(lambda i, o: o.__setitem__(..., i[...] * 2), out_shape=pc.spec((4, 8), "float32"))
        return double(x.cos()) + 1

    x = rand(4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dynamo tells of what it can't trace
        torch.testing.assert_close(torch.compile(inside, backend="pallas")(x), x.cos() * 2 + 1)


def test_a_lost_gradient_names_the_line_of_the_call():
    def g(x):
        y = x.sin()
        return softmax(y).sum()

    with pytest.raises(Diagnostic, match="TPB103") as refused:
        torch.compile(g, backend="pallas")(rand(32, 128).requires_grad_()).backward()
    assert refused.value.where.text().strip() == "return softmax(y).sum()"


@pytest.mark.parametrize("in_dims", [0, 1, -1])
def test_a_captured_call_under_vmap(in_dims, emitted):
    x = rand(3, 4, 8).movedim(0, in_dims)
    batched = torch.vmap(split, in_dims=in_dims)
    with strict():
        got = torch.compile(lambda x: batched(x * 3), backend="pallas", fullgraph=True)(x)
    want = [torch.stack(parts) for parts in zip(*(split(part) for part in (x * 3).unbind(in_dims)))]
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert len(emitted[0].sources) == 1
