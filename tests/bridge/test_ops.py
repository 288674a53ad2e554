"""jax_op against torch's own functions: values, gradients, batching, compilation, and torch's opcheck."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.library import opcheck

import bridge
from bridge.diagnostics import Diagnostic

pytestmark = pytest.mark.filterwarnings("ignore:.*(custom op|aliasing).*:UserWarning")


@bridge.jax_op("tpb_tests::scaled_sin")
def scaled_sin(x, scale: float = 2.0):
    return jnp.sin(x) * scale


@bridge.jax_op("tpb_tests::mixed")
def mixed(
    x: jax.Array, y: jax.Array, i: jax.Array, flag: bool = True, z: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    product = (x @ y) * i
    if z is not None:
        product = product + z
    return (product if flag else -product), jnp.argmax(product)


@bridge.jax_op("tpb_tests::named")
def named(x, how: str = 'a"b', times: int = 2):
    return x * times if how == 'a"b' else x


X = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
INDEX = torch.arange(4)


def test_values_and_constants():
    x = torch.rand(5, 7)
    assert torch.allclose(scaled_sin(x), torch.sin(x) * 2)
    assert torch.allclose(scaled_sin(x, 3.0), torch.sin(x) * 3)
    assert torch.allclose(scaled_sin(x, scale=-1.0), -torch.sin(x))
    assert torch.equal(named(x), x * 2) and torch.equal(named(x, "no"), x) and torch.equal(named(x, times=5), x * 5)
    out, at = mixed(X, X, INDEX, False, X)
    expected = X @ X * INDEX + X
    assert torch.allclose(out, -expected) and at == expected.argmax()


def test_64_bits_are_computed_in_64_bits():
    x = torch.tensor([1e300, 2.0**40 + 0.5], dtype=torch.float64)
    assert torch.equal(named(x), x * 2)
    assert torch.equal(named(torch.tensor([2**40])), torch.tensor([2**41]))
    assert scaled_sin(torch.ones(3)).dtype is torch.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(8, 8).t(),
        lambda: torch.rand(8, 8)[::2, 1:],
        lambda: torch.rand(3).expand(4, 3),
        lambda: torch.rand(33)[1:],
        lambda: torch.rand(()),
        lambda: torch.empty(0, 3),
        lambda: torch.randn(6, dtype=torch.complex64).conj(),
        lambda: bridge.to_torch(jnp.ones(8)),
    ],
)
def test_any_layout_is_taken_without_a_note(make):
    x = make()
    with bridge.diagnostics.strict():
        out = scaled_sin(x)
    assert torch.allclose(out, torch.sin(x) * 2) and type(out) is torch.Tensor
    out.add_(1)


def test_results_are_memory_of_their_own():
    @bridge.jax_op("tpb_tests::identity")
    def identity(x) -> tuple[jax.Array, jax.Array]:
        return x, x

    x = torch.ones(64)
    first, second = identity(x)
    first.fill_(2)
    second.fill_(3)
    assert x.tolist() == [1.0] * 64 and first.tolist() == [2.0] * 64


def test_gradients_once_and_twice():
    x, y = X.clone().requires_grad_(), X.t().clone().requires_grad_()
    assert torch.autograd.gradcheck(scaled_sin, (x,))
    assert torch.autograd.gradgradcheck(scaled_sin, (x,))
    assert torch.autograd.gradcheck(lambda a, b: mixed(a, b, INDEX, True, a)[0], (x, y))
    assert torch.autograd.gradgradcheck(lambda a, b: mixed(a, b, INDEX)[0], (x, y))


def test_complex_gradients_follow_torchs_convention():
    z = torch.randn(5, dtype=torch.complex128, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(scaled_sin, (z,))


def test_a_third_derivative_is_a_diagnostic():
    x = X.clone().requires_grad_()
    first = torch.autograd.grad(scaled_sin(x).sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
    with pytest.raises(Diagnostic, match="TPB114"):
        torch.autograd.grad(second.sum(), x)


@pytest.mark.parametrize("in_dims", [0, 1, -1])
def test_vmap(in_dims):
    assert torch.allclose(torch.vmap(scaled_sin, in_dims)(X), torch.vmap(lambda v: torch.sin(v) * 2, in_dims)(X))


def test_vmap_of_some_operands_and_nested():
    batch = torch.randn(5, 4, 4, dtype=torch.float64)
    out, at = torch.vmap(lambda a: mixed(a, X, INDEX))(batch)
    assert torch.allclose(out, batch @ X * INDEX) and torch.equal(at, (batch @ X * INDEX).flatten(1).argmax(1))
    assert torch.allclose(torch.vmap(torch.vmap(scaled_sin))(batch), torch.sin(batch) * 2)
    x = batch.clone().requires_grad_()
    torch.vmap(scaled_sin)(x).sum().backward()
    assert torch.allclose(x.grad, torch.cos(batch) * 2)


def test_torchs_opcheck():
    opcheck(scaled_sin, (torch.rand(4, 4, requires_grad=True),))
    opcheck(mixed, (X.float().clone().requires_grad_(), X.float(), INDEX))


def test_compiles_in_one_graph_forward_and_backward():
    def f(x):
        return scaled_sin(x * 2, 3.0).relu().sum()

    results = []
    for function in (f, torch.compile(f, backend="aot_eager", fullgraph=True)):
        x = X.clone().requires_grad_()
        value = function(x)
        value.backward()
        results.append((value.detach(), x.grad))
    assert torch.allclose(results[0][0], results[1][0]) and torch.allclose(results[0][1], results[1][1])


def test_the_jax_function_is_kept():
    assert np.allclose(scaled_sin.jax(jnp.ones(3)), np.sin(1) * 2)


# Bad input -------------------------------------------------------------------------------------------------------


def star(*x):
    return x


def keyword_only(x, *, k):
    return x


def bare_default(x, k=3):
    return x


def odd_annotation(x, k: dict):
    return x


def unknown_annotation(x, k: "Nowhere"):  # noqa: F821
    return x


@pytest.mark.parametrize("function", [star, keyword_only, bare_default, odd_annotation, unknown_annotation])
def test_parameters_that_no_operator_has(function):
    with pytest.raises(Diagnostic, match="TPB003") as caught:
        bridge.jax_op("tpb_tests::bad")(function)
    assert caught.value.where.line == function.__code__.co_firstlineno


@pytest.mark.parametrize(
    "name", ["plain", "a::b::c", "a::", "::b", "a b::c", 3, "a.b::c", "ns::class", "if::x", "aten::addx"]
)
def test_names_that_no_operator_has(name):
    with pytest.raises(Diagnostic, match="TPB003"):
        bridge.jax_op(name)


def test_an_undeclared_number_of_results():
    @bridge.jax_op("tpb_tests::two")
    def two(x):
        return x, x

    with pytest.raises(Diagnostic, match=r"-> tuple\[jax.Array, jax.Array\]"):
        two(X)


def nothing(x):
    return None


def a_dict(x):
    return {"a": x}


def four_bits(x):
    return x.astype(jnp.int4)


@pytest.mark.parametrize(
    "function, slug", [(nothing, "bad-argument"), (a_dict, "bad-argument"), (four_bits, "dtype-cannot-cross")]
)
def test_results_that_no_operator_has(function, slug):
    op = bridge.jax_op(f"tpb_tests::{function.__name__}")(function)
    for call in (op, torch.compile(op, backend="aot_eager")):
        with pytest.raises(Exception, match=slug) as caught:
            call(torch.ones(2))
        if call is op:
            assert caught.value.slug == slug and caught.value.where.line == function.__code__.co_firstlineno


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((jnp.ones(3),), {}),
        (([1.0, 2.0],), {}),
        ((None,), {}),
        ((), {}),
        ((X, 2.0, 3), {}),
        ((X,), {"nope": 1}),
        ((X, torch.ones(3)), {}),
    ],
    ids=str,
)
def test_arguments_of_another_kind(args, kwargs):
    with pytest.raises(Diagnostic) as caught:
        scaled_sin(*args, **kwargs)
    assert caught.value.slug == "bad-argument" and caught.value.where.file == __file__


def test_functional_derivatives_are_refused_in_words():
    with pytest.raises(Diagnostic, match="TPB114"):
        torch.func.grad(lambda x: scaled_sin(x).sum())(X)


def test_what_is_no_function():
    with pytest.raises(Diagnostic, match="TPB003"):
        bridge.jax_op("tpb_tests::three")(3)


def test_operands_that_cannot_cross():
    with pytest.raises(Diagnostic, match="TPB107"):
        scaled_sin(torch.eye(3).to_sparse())


def test_a_callable_object_is_asked_to_be_wrapped():
    import functools

    import pallas_core as pc

    f = pc.pallas_call(lambda x, o: None, out_shape=pc.spec((4,), torch.float32))
    for thing in (f, functools.partial(jnp.add, 1)):
        with pytest.raises(Diagnostic, match="wrap it"):
            bridge.jax_op("tested::wrapped")(thing)
