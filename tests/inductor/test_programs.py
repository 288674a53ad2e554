"""What surrounds a graph in users' programs, against eager: modes, random numbers, autograd, transforms, kinds of
tensors, results that are no tensors, sizes that depend on data."""

import copy
import dataclasses
import io
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import same
from torch import nn
from torch.utils.checkpoint import checkpoint

import inductor_backend
from bridge.diagnostics import DiagnosticNote

pytestmark = pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")


def compiled(fn, **options):
    torch._dynamo.reset()
    return torch.compile(fn, backend="pallas", **options)


def agree(fn, *args, **options):
    same(compiled(fn, **options)(*args), fn(*args), rtol=1e-4, atol=1e-5)


def gradients_agree(fn, x, **options):
    x = x.clone().requires_grad_()
    got, want = (torch.autograd.grad(f(x), x) for f in (compiled(fn, **options), fn))
    same(got, want, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------- random numbers
def test_random_numbers_follow_the_seed():
    draw = lambda x: (F.dropout(x, 0.5), torch.rand(3), torch.randn(2))
    f, x = compiled(draw), torch.ones(50)
    torch.manual_seed(1)
    first, second = f(x), f(x)
    torch.manual_seed(1)
    same(f(x), first)
    assert not torch.equal(first[0], second[0])


def test_fallback_random_is_eager_s():
    import torch._inductor.config as config

    draw = lambda x: (
        F.dropout(x, 0.5),
        torch.rand(3),
        torch.randn(2),
        torch.randint(0, 9, (4,)),
        torch.bernoulli(x / 2),
    )
    x = torch.ones(50)
    with config.patch(fallback_random=True):
        f = compiled(draw)
        torch.manual_seed(1)
        got = f(x)
    torch.manual_seed(1)
    same(got, draw(x))


# -------------------------------------------------------------------------------------------------- modes, autograd
def test_grad_modes_and_training():
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)).eval()
    f, x = compiled(net), torch.randn(4, 8)
    assert f(x).requires_grad
    with torch.no_grad():
        same(f(x), net(x), rtol=1e-4, atol=1e-5)
        assert not f(x).requires_grad
    with torch.inference_mode():
        assert f(x).is_inference()
    net.train()
    torch.manual_seed(0)
    assert not torch.equal(f(x), f(x))


def test_autocast():
    net, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(4, 8)
    f = compiled(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = f(x), net(x)
    same(got, want, rtol=2e-2, atol=2e-2)
    same(f(x), net(x), rtol=1e-4, atol=1e-5)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0) * 2


def test_custom_functions_and_checkpoints():
    block = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    gradients_agree(lambda x: (Doubled.apply(x) * 3).sum(), torch.randn(5), fullgraph=True)
    gradients_agree(lambda x: checkpoint(block, x, use_reentrant=False).sum(), torch.randn(2, 4), fullgraph=True)
    gradients_agree(lambda x: (x * x.conj()).real.sum() + x.abs().prod(), torch.randn(4, dtype=torch.complex64))


def test_hooks():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    net[0].register_forward_hook(lambda module, inputs, out: out * 2)
    agree(net, torch.randn(2, 3, requires_grad=True))
    x = torch.randn(3, requires_grad=True)
    out = compiled(lambda x: x * 2)(x)
    out.register_hook(lambda grad: grad * 3)
    out.sum().backward()
    same(x.grad, torch.full((3,), 6.0))


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids):
            return self.head(self.words(ids))

    net, ids = Tied(), torch.tensor([1, 2, 6])
    twin = copy.deepcopy(net)
    net(ids).square().sum().backward()
    compiled(twin)(ids).square().sum().backward()
    same(twin.words.weight.grad, net.words.weight.grad, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ transforms
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.func.vmap(torch.func.grad(lambda row: (row * row).sin().sum()))(x),
        lambda x: torch.func.jacrev(lambda v: (v * v).sum(1))(x),
        lambda x: torch.func.jvp(lambda v: v.sin(), (x,), (x,)),
    ],
    ids=["vmap-grad", "jacrev", "jvp"],
)
def test_transforms(fn):
    agree(fn, torch.randn(3, 2))


def test_functional_call_and_export():
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    agree(lambda params, x: torch.func.functional_call(net, params, (x,)), dict(net.named_parameters()), x)
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},)).module()
    f = compiled(exported)
    for n in (4, 3):
        same(f(torch.ones(n, 3)), net(torch.ones(n, 3)), rtol=1e-4, atol=1e-5)


# --------------------------------------------------------------------------------------------------- kinds of tensors
def test_sparse_quantised_and_subclasses():
    from torch.testing._internal.two_tensor import TwoTensor

    agree(lambda s, x: torch.sparse.mm(s, x) + 1, torch.eye(3).to_sparse(), torch.ones(3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own deprecation of quantised tensors
        agree(lambda q: q.dequantize() * 2, torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8))
    pair = TwoTensor(torch.randn(3), torch.randn(3))
    got = compiled(lambda v: v.sin() * 2)(pair)
    same((got.a, got.b), (pair.a.sin() * 2, pair.b.sin() * 2))


def test_inputs_that_overlap():
    def f(a, b):
        a.add_(1)
        b.mul_(2)
        return a + b

    mine, theirs = torch.arange(6.0), torch.arange(6.0)
    same(compiled(f)(mine[:4], mine[2:]), f(theirs[:4], theirs[2:]))
    same(compiled(f)(mine, mine), f(theirs, theirs))
    same(mine, theirs)


# ---------------------------------------------------------------------------------------------- objects and results
def test_copies_and_pickles_of_compiled_modules():
    net, x = nn.Linear(3, 2), torch.randn(2, 3)
    f = compiled(net)
    same(copy.deepcopy(f)(x), f(x))
    file, twin = io.BytesIO(), nn.Linear(3, 2)
    torch.save(net.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file))
    net.compile(backend="pallas")
    same(pickle.loads(pickle.dumps(net))(x), twin(x), rtol=1e-4, atol=1e-5)


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    count: int


def pieces(x):
    yield x * 2
    yield x + 1


class Scaled:
    factor = 2.0

    @torch.compile(backend="pallas")
    def __call__(self, x):
        return x * self.factor


def test_results_that_are_no_tensors():
    x = torch.ones(2)
    assert compiled(lambda x: x.add_(1) and None)(x.clone()[:1]) is None
    agree(lambda x: {"a": x * 2, "n": x.shape[0], "l": [x, None, "s"]}, x)
    got = compiled(lambda x: Result(x * 2, 3))(x)
    assert got.count == 3 and torch.equal(got.value, x * 2)
    same(list(compiled(pieces)(x)), list(pieces(x)))
    scaled = Scaled()
    same(scaled(x), x * 2)
    scaled.factor = 3.0
    same(scaled(x), x * 3)


def test_parameters_replaced_and_storages_resized():
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    f = compiled(net)
    f(x)
    net.weight, net.bias = nn.Parameter(torch.randn(5, 3)), nn.Parameter(torch.randn(5))
    same(f(x), net(x), rtol=1e-4, atol=1e-5)
    double, t = compiled(lambda t: t * 2), torch.randn(4)
    double(t)
    t.resize_(6).fill_(1)
    same(double(t), t * 2)
    t.untyped_storage().resize_(0)
    t.untyped_storage().resize_(24)
    t.fill_(3)
    same(double(t), t * 2)


# ------------------------------------------------------------------------------------------ sizes that depend on data
@pytest.fixture
def captured():
    import torch._dynamo.config as config

    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


DATA = {
    "mask": lambda x: ((x.sin() * 2)[x > 0] * 2, x.cos().sum()),
    "nonzero": lambda x: (torch.nonzero(x > 0), x.exp().sum()),
    "unique": lambda x: (x.round().unique(), x.exp().sum()),
    "item": lambda x: x.exp() * x.sum().item() + 1,
    "count": lambda x: torch.arange((x > 0).sum().item()) * 2,
}


@pytest.mark.parametrize("name", DATA)
def test_sizes_that_depend_on_data(name, captured, emitted):
    fn = DATA[name]
    f = compiled(fn, fullgraph=True)
    before = inductor_backend.executable_count()
    for seed in range(3):
        x = torch.randn(9, generator=torch.Generator().manual_seed(seed))
        same(f(x), fn(x), rtol=1e-4, atol=1e-5)
    assert inductor_backend.executable_count() - before == 1
    assert emitted[0].sources  # what does not depend on the size stays jitted


@pytest.mark.parametrize("name", ["nonzero", "item", "count"])
def test_sizes_that_depend_on_data_leave_the_rest_to_a_tpu(name, captured, emitted, interpreted):
    fn = DATA[name]
    f = compiled(fn, fullgraph=True, options={"target": "tpu:v5e"})
    for seed in range(2):
        x = torch.randn(9, generator=torch.Generator().manual_seed(seed))
        same(f(x), fn(x), rtol=1e-4, atol=1e-5)
    assert len(emitted) == 1 and emitted[0].sources


def test_operators_after_a_size_that_depends_on_data_are_told_of(captured):
    with pytest.warns(DiagnosticNote, match=r"TPB403.*aten\.index(.|\n)*a size depends on data"):
        compiled(lambda x: x[x > 0] * 3, fullgraph=True)(torch.randn(9))


def test_gradients_and_assertions_with_sizes_that_depend_on_data(captured):
    gradients_agree(lambda x: ((x.sin() * 2)[x > 0] * 2).sum() + x.exp().sum(), torch.randn(9), fullgraph=True)

    def zeros(x, log):
        log.add_(1)
        n = x.sum().int().item()
        torch._check(n >= 0)
        torch._check(n <= 3)
        return torch.zeros(n) + x.mean()

    f, log = compiled(zeros, fullgraph=True), torch.zeros(1)
    same(f(torch.ones(2), log), torch.ones(2))
    with pytest.raises(RuntimeError, match="u0 <= 3"):
        f(torch.full((2,), 4.0), log)
    assert log.item() == 1  # nothing is half written
