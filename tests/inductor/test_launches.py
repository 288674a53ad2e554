"""Triton launches inside compiled functions: captured without a graph break, inlined in the jitted call."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import strict


@triton.jit
def add(out, x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def scale(x, factor, n, stride, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(x + row * stride + i, tl.load(x + row * stride + i, mask=i < n) * factor, mask=i < n)


def programs(n, block=64):
    return (triton.cdiv(n, block),)


def of_intermediates(x, y):
    x = torch.nn.functional.gelu(x)
    out = torch.empty_like(x)
    n = x.numel()
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, x, y, n, BLOCK=64)
    return out + 1


def through_a_view(x, y):
    z = torch.cat([x, y], 1)
    left, right = z[:, :3], z[:, 3:]
    scale[(z.shape[0],)](right, 2.0, 3, right.stride(0), BLOCK=4)
    return z + 1, left, right


def into_an_input(x, y):
    part = x[10:20]
    scale[(10,)](part, 3.0, 3, part.stride(0), BLOCK=4)
    return x.sum() + y


def transposed(x, y):
    z = (x * 2).t()
    scale[(100,)](z, 3.0, 3, z.stride(1), BLOCK=4)
    return z


def in_sequence(x, y):
    out = torch.empty_like(x)
    for _ in range(3):
        add[programs(x.numel())](out, x, y, x.numel(), 64)
        add[(*programs(x.numel()), 1)](y, out, x, n=x.numel(), BLOCK=64)
    return out


def in_place(x, y):
    z = x.clone()
    add[programs(300)](z, z, y, 300, BLOCK=64)
    return z


def into_a_part(x, y):
    out = torch.zeros(x.shape[0] * 2, 3)
    scale[x.shape[:1]](x, 0.5, 3, 3, BLOCK=4)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]), 1, 1)](out[100:], x, y, x.numel(), BLOCK=64)
    return out


FUNCTIONS = [of_intermediates, through_a_view, into_an_input, transposed, in_sequence, in_place, into_a_part]


def agree(f, backend, dynamic=False, make=lambda: (torch.randn(100, 3), torch.randn(100, 3)), calls=2):
    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)
    for _ in range(calls):
        mine = make()
        theirs = tuple(t.clone() for t in mine)
        with strict():
            got = compiled(*mine)
        torch.testing.assert_close(got, f(*theirs))
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_launch_in_a_compiled_function_does_as_in_eager(f, dynamic, emitted):
    agree(f, "pallas", dynamic)
    assert emitted and all(len(a.sources) == 1 and a.sources[0].inlined for a in emitted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_other_backends_hold_it_as_an_operator(f, backend):
    agree(f, backend, dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_inductor_holds_it_as_an_operator(f):
    agree(f, "inductor", dynamic=True)


def test_arguments_that_are_one_tensor_share_their_memory():
    def f(x, y):
        add[programs(300)](x, y, y, 300, BLOCK=64)
        return y * 1

    for backend in ("aot_eager", "pallas"):
        x = torch.arange(300.0)
        assert torch.equal(torch.compile(f, backend=backend, fullgraph=True)(x, x), torch.arange(300.0) * 2)


def test_sizes_vary_without_another_trace(emitted):
    compiled = torch.compile(of_intermediates, backend="pallas", fullgraph=True, dynamic=True)
    for n in (5, 64, 100, 5):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, y), of_intermediates(x, y))
    assert len(emitted) == 3
