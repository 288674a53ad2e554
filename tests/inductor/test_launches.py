"""Triton launches inside compiled functions: captured without a graph break, inlined in the jitted call."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import inductor_backend
from bridge.diagnostics import Diagnostic, strict


@triton.jit
def add(out, x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def scale(x, factor, n, stride, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(x + row * stride + i, tl.load(x + row * stride + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def norm(y, x, weight, inverse, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(inverse + row, scale)
    tl.store(y + row * n + i, v * scale * tl.load(weight + i, mask=i < n), mask=i < n)


@triton.jit
def norm_backward(dx, dy, x, weight, inverse, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    g = tl.load(dy + row * n + i, mask=i < n, other=0.0) * tl.load(weight + i, mask=i < n, other=0.0)
    scale = tl.load(inverse + row)
    tl.store(dx + row * n + i, scale * (g - v * scale * scale * tl.sum(g * v, 0) / n), mask=i < n)


@triton.jit
def noisy(out, x, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.rand(seed, i), mask=i < n)


@triton.jit
def counted(alone, among, x):
    i = tl.program_id(0)
    if tl.num_programs(0) == 2:
        tl.store(alone + i, tl.load(x + i) + 1)
    else:
        tl.store(among + i, tl.load(x + i) + 2)


@triton.jit
def misspelt(out, x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, lod(x + i))  # noqa: F821


@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def doubled(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.heuristics({"EVEN": lambda named: named["n"] % 32 == 0})
@triton.jit
def doubled_evenly(out, x, bias, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n)
    if bias is not None:
        v += tl.load(bias + i, mask=i < n)
    tl.store(out + i, v * 2, mask=i < n)


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


class RMSNorm(torch.autograd.Function):
    """Forward and backward are kernels."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        y, inverse = torch.empty_like(x), torch.empty(x.shape[0])
        n = x.shape[1]
        norm[(x.shape[0],)](y, x, weight, inverse, n, eps, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, inverse = ctx.saved_tensors
        dx, n = torch.empty_like(x), x.shape[1]
        norm_backward[(x.shape[0],)](dx, dy.contiguous(), x, weight, inverse, n, BLOCK=triton.next_power_of_2(n))
        return dx, (dy * x * inverse[:, None]).sum(0), None


def through_another_dtype(x, y):
    z = x.clone()
    scale[(100,)](z.view(torch.int32), 1, 3, 3, BLOCK=4)
    return z + 0


def tuned(x, y):
    out, n = torch.empty_like(x), x.numel()
    doubled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, x, n)
    return out


def with_heuristics(x, y):
    out = torch.empty_like(x)
    doubled_evenly[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, x, None, x.numel(), BLOCK=32)
    doubled_evenly[(triton.cdiv(x.numel(), 32),)](out, out, y, x.numel(), BLOCK=32, num_warps=2)
    return out


def mapped(x, y):
    def of_a_row(a):
        out = torch.empty_like(a)
        add[(1,)](out, a, a, 3, BLOCK=4)
        return out

    return torch.func.vmap(of_a_row)(x)


FUNCTIONS = [of_intermediates, through_a_view, into_an_input, transposed, in_sequence, in_place, into_a_part]
FUNCTIONS += [through_another_dtype, tuned, with_heuristics, mapped]


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


@pytest.mark.parametrize("backend", ["aot_eager", "pallas"])
def test_gradients_of_a_function_of_kernels(backend, emitted):
    def loss(x, weight):
        return (RMSNorm.apply(torch.tanh(x), weight, 1e-5) * 2).square().sum()

    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    mine, theirs = [], []
    torch.manual_seed(0)
    x, weight = torch.randn(8, 5), torch.randn(5)
    for f, grads in ((compiled, mine), (loss, theirs)):
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        with strict():
            f(*leaves).backward()
        grads += [t.grad for t in leaves]
    torch.testing.assert_close(mine, theirs)
    if backend == "pallas":
        assert [len(a.sources[0].inlined) for a in emitted] == [1, 1]


def test_a_checkpointed_launch_runs_again_in_the_backward():
    def f(x):
        def g(x):
            out = torch.empty_like(x)
            add[programs(300)](out, x, x, 300, BLOCK=64)
            return (out * x).sin()

        return torch.utils.checkpoint.checkpoint(g, x, use_reentrant=False).sum()

    mine, theirs = torch.randn(300, requires_grad=True), torch.zeros(300, requires_grad=True)
    theirs.data.copy_(mine)
    torch.compile(f, backend="pallas", fullgraph=True)(mine).backward()
    f(theirs).backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_map_in_eager_launches_once_an_element():
    x = torch.randn(4, 3)
    assert torch.equal(mapped(x, None), x * 2)


def test_numbers_that_are_data_vary_without_another_build(emitted):
    def f(x, seed, factor, limit):
        out = torch.empty_like(x)
        noisy[(1,)](out, x, seed, x.numel(), BLOCK=64)
        scale[(1,)](out, factor, 64, 64, BLOCK=64)
        scale[(1,)](out, 2.0, limit, 64, BLOCK=64)  # decides where the mask ends
        return out + seed

    compiled = torch.compile(f, backend="pallas", fullgraph=True, dynamic=True)
    x = torch.randn(64)
    for seed, factor in ((2, 0.5), (3, -1.5), (17, -0.0), (123456, float("inf")), (-5, 1e-3)):
        torch.testing.assert_close(compiled(x, seed, factor, 9), f(x, seed, factor, 9))
    assert len(emitted) == 1
    for seed, limit in ((4, 10), (2**40, 10), (2**40 + 1, 11), (5, 11)):
        torch.testing.assert_close(compiled(x, seed, 2.5, limit), f(x, seed, 2.5, limit))
    assert len(emitted) == 5  # wide seeds, and each limit


@pytest.mark.filterwarnings("ignore:TPB403")  # an empty tensor: the launch stays an operator, and refuses it
@pytest.mark.parametrize("backend", ["aot_eager", "pallas"])
def test_a_wrong_launch_or_kernel_is_a_diagnostic_with_the_users_line(backend):
    def misspells(x):
        out = torch.empty_like(x)
        misspelt[(1,)](out, x, BLOCK=64)
        return out

    def forgets(x):
        out = torch.empty_like(x)
        add[(1,)](out, x)  # no y
        return out

    def overlaps(x):
        out = torch.empty_like(x)
        add[(1,)](out.expand(3, 64), x, x, 3, BLOCK=64)
        return out

    def writes_nowhere(x):
        out = torch.empty(0)
        add[(1,)](out, x, x, 3, BLOCK=64)
        return out

    for f, code, text in (
        (misspells, "TPB204", "lod(x + i)"),
        (forgets, "TPB250", "no y"),
        (overlaps, "TPB255", "expand"),
        (writes_nowhere, "TPB254", "BLOCK=64"),
    ):
        with pytest.raises(Diagnostic, match=code) as caught:
            torch.compile(f, backend=backend, fullgraph=True)(torch.randn(64))
        assert text in caught.value.where.text() and caught.value.where.file == __file__


def test_tracers_see_a_launch_and_nothing_runs():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(100, 3)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(lambda x: of_intermediates(x, x), tracing_mode=mode)(x)
        assert "launch_1" in graph.code
        torch.testing.assert_close(graph(x), of_intermediates(x, x))
    with FakeTensorMode():
        assert of_intermediates(torch.randn(4, 3), torch.randn(4, 3)).shape == (4, 3)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize("strictly", [True, False], ids=["strict", "not strict"])
def test_exported_programs_hold_launches(strictly):
    class Model(torch.nn.Module):
        def forward(self, x):
            return of_intermediates(x, x)

    sizes = {"x": {0: torch.export.Dim("n", min=2, max=1000)}}
    exported = torch.export.export(Model(), (torch.randn(100, 3),), strict=strictly, dynamic_shapes=sizes)
    x = torch.randn(77, 3)
    torch.testing.assert_close(exported.module()(x), Model()(x))
    decomposed = exported.run_decompositions().module()
    torch.testing.assert_close(torch.compile(decomposed, backend="pallas")(x), Model()(x))


def test_explain_names_what_is_inlined_and_dump_shows_it(tmp_path):
    x, y = torch.randn(10, 3), torch.randn(10, 3)
    report = inductor_backend.explain(of_intermediates, x, y)
    (inlined,) = report.graphs[0].inlined
    assert inlined.name == "add[1]" and "of_intermediates" in inlined.where and "pl.pallas_call" in inlined.source
    assert "inlined add[1]" in str(report) and not report.fallbacks
    torch.compile(of_intermediates, backend="pallas", options={"dump": tmp_path})(x, y)
    (file,) = tmp_path.iterdir()
    assert "def add_kernel(" in file.read_text()


def test_what_is_stored_to_may_depend_on_the_number_of_programs():
    def f(x):
        alone, among = torch.zeros(8), torch.zeros(8)
        counted[(x.shape[0],)](alone, among, x)
        return alone, among

    for backend in ("aot_eager", "pallas"):
        compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
        for n in (3, 2, 4):
            torch.testing.assert_close(compiled(torch.ones(n)), f(torch.ones(n)))
