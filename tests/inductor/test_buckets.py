"""The option `buckets`: few functions for many sizes, and eager's results at every one of them."""

import copy

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import same
from torch import nn

import inductor_backend
from bridge.diagnostics import BackendError, DiagnosticNote, strict

SIZES = (3, 5, 6, 8, 7)


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv, self.out, self.norm, self.causal = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8), causal

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = [a.view(batch, length, 2, 4).transpose(1, 2) for a in self.qkv(self.norm(x)).chunk(3, -1)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, 8))


class WrittenOut(nn.Module):
    def forward(self, q, keep):
        scores = q @ q.transpose(-1, -2) / 2
        scores = scores.masked_fill(~keep[:, None, :], -torch.inf).tril()
        return torch.softmax(scores, -1) @ q


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(11, 8), nn.Embedding(32, 8), nn.Linear(8, 11)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        logits = self.head(torch.tanh(x))
        return F.cross_entropy(logits[:, :-1].reshape(-1, 11), ids[:, 1:].reshape(-1)), logits[:, -1] * 2


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(sum(shape)))


def rn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


#: name -> (what is compiled, arguments for a size)
PROGRAMS = {
    "mlp": (mlp(), lambda n: (rn(n, 6),)),
    "rows": (nn.LayerNorm(6), lambda n: (rn(2, n, 6),)),
    "attention-batch": (Attention(True), lambda n: (rn(n, 4, 8),)),
    "attention-sequence": (Attention(False), lambda n: (rn(2, n, 8),)),
    "attention-causal": (Attention(True), lambda n: (rn(2, n, 8),)),
    "attention-both": (Attention(False), lambda n: (rn(n % 3 + 3, n, 8),)),
    "attention-written-out": (
        WrittenOut(),
        lambda n: (rn(2, n, 4), torch.arange(n)[None] < torch.tensor([[n], [2]])),
    ),
    "tokens": (Tokens(), lambda n: (ids(2, n),)),
    "convolution": (
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        lambda n: (rn(n, 2, 4, 4),),
    ),
    "reductions": (
        lambda x: (x.sum(), x.mean(0), x.amax(0), x.amin(1), x.prod(0), x.var(0), x.std(1), x.softmax(0), x.norm()),
        lambda n: (rn(n, 4),),
    ),
    "reductions-last": (
        lambda x: (x.sum(-1), x.mean(), x.max(-1), x.argmin(-1), x.logsumexp(-1), x.log_softmax(-1), x.cumsum(-1)),
        lambda n: (rn(3, n),),
    ),
    "whole": (
        lambda x: (x.sum(), x.amax(0), x.max(), x.min(), x.prod(), (x > 0).any(), (x > 5).all(0), x.argmax(0)),
        lambda n: (torch.arange(-n, n * 2).reshape(n, 3),),
    ),
    "half": (lambda x: (x.mean(0), x.sum(0), x.var(0), x @ x.t()), lambda n: (rn(n, 4, dtype=torch.bfloat16),)),
    "division": (lambda x, y: (x // y, x % y, x / y), lambda n: (torch.arange(n), torch.arange(n) + 1)),
    "sizes-as-numbers": (lambda x: (x * x.shape[0], x + x.numel(), x.sum() / x.shape[0]), lambda n: (rn(n, 3),)),
    "counting": (
        lambda x: (torch.arange(x.shape[0]) * 2, torch.ones_like(x), torch.full((2,), x.shape[0])),
        lambda n: (rn(n, 3),),
    ),
    "ends": (lambda x: (x[-1], x[:, -1], x[0], x[1:], x[:-1], x[:, 1:-1]), lambda n: (rn(n, n + 4),)),
    "borders": (lambda x: (F.pad(x, (1, 2), value=0.5), F.pad(x, (0, -1)).exp()), lambda n: (rn(2, n),)),
    "triangles": (lambda x: (x.tril(), x.triu(1).sum(0)), lambda n: (rn(n, n),)),
    "indexing": (
        lambda x, i: (x[i], x.index_select(0, i.abs()), x[i, i % 3], x.gather(0, i.abs()[:, None].expand(-1, 3))),
        lambda n: (rn(n, 3), torch.arange(n) - 2),
    ),
    "scattering": (
        lambda x, i: (
            torch.zeros(5, 3).index_put((i,), x, accumulate=True),
            torch.zeros_like(x).scatter(1, i[:, None] % 3, 1.0),
        ),
        lambda n: (rn(n, 3), torch.arange(n) % 5),
    ),
    "joined": (lambda x: torch.cat([x, x * 2], 1).chunk(2, 1), lambda n: (rn(n, 3),)),
    "appended": (
        lambda x, y: (torch.cat([x, y]), torch.cat([y, x]), torch.cat([y, x, y, x]), x.flip(0, 1), x[-2:]),
        lambda n: (rn(n, 4), rn(2, 4)),
    ),
    "flattened": (lambda x: (x.t().reshape(-1), x.t().reshape(-1).exp().sum()), lambda n: (rn(n, 4),)),
    "table": (lambda x, w: (x + w[: x.shape[0]], x * w[2 : 2 + x.shape[0]]), lambda n: (rn(n, 4), rn(11, 4))),
    "transposed": (lambda x: (x + 1, x.sum(0), (x * 2).t()), lambda n: (rn(4, n).t(),)),
    "views": (lambda x: (lambda y: (y, y.t(), y[1:], y.view(-1, 2)))(x * 2), lambda n: (rn(n, 4),)),
    "input-views": (lambda x: (x, x.t(), x.view(-1), x[1:], x.exp()), lambda n: (rn(n, 4),)),
    "expanded": (lambda x: (x[:, None].expand(-1, 3, -1) + 1, x.sum(0).expand(x.shape[0], 4)), lambda n: (rn(n, 4),)),
    "losses": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=1) + F.mse_loss(x, x * 2),
        lambda n: (rn(n, 4), torch.arange(n) % 4),
    ),
}  # fmt: skip


def run(fn, args, grad):
    """Results, and gradients of parameters and arguments."""
    args = [a.clone().requires_grad_() if grad and a.is_floating_point() else a for a in args]
    out = fn(*args)
    if not grad:
        return out, []
    outs = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
    params = list(fn.parameters()) if isinstance(fn, nn.Module) else []
    leaves = [*params, *[a for a in args if a.requires_grad]]
    if not outs or not leaves:
        return out, []
    total = sum((t.float() * torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape)).sum() for t in outs)
    return out, torch.autograd.grad(total, leaves, allow_unused=True)


#: The rest takes minutes.
QUICK = ("mlp", "attention-sequence", "reductions", "ends", "sizes-as-numbers", "indexing")
CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROGRAMS]


#: How many functions serve `SIZES`: 3 as it is and one for 5 to 8, forward and backward, are 4; a program of one graph
#: has 2, and one that Dynamo makes another graph of, where sizes are equal or not, has more.
FUNCTIONS = {
    "attention-both": 10, "reductions-last": 6, "whole": 3, "division": 2, "sizes-as-numbers": 6, "counting": 3,
    "ends": 2, "indexing": 8, "scattering": 6, "joined": 6,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_eager_at_every_size(name):
    fn, make = PROGRAMS[name]
    twin = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
    compiled = torch.compile(twin, backend="pallas", dynamic=True, options={"buckets": True})
    model = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
    half = name == "half"
    before = inductor_backend.executable_count()
    for n in SIZES:
        args = make(n)
        grad = any(a.is_floating_point() for a in args) or isinstance(fn, nn.Module)
        with strict():
            got = run(compiled, args, grad)
        want = run(model, args, grad)
        same(got, want, rtol=2e-2 if half else 2e-4, atol=2e-2 if half else 2e-5)
        if isinstance(fn, nn.Module):
            same(list(twin.state_dict().values()), list(model.state_dict().values()), rtol=1e-4, atol=1e-5)
    assert inductor_backend.executable_count() - before == FUNCTIONS.get(name, 4)


@pytest.mark.parametrize("name", ["mlp", pytest.param("attention-sequence", marks=pytest.mark.slow)])
def test_sixty_sizes_few_functions(name):
    fn, make = PROGRAMS[name]
    compiled = torch.compile(fn, backend="pallas", dynamic=True, options={"buckets": True})
    graphs, before = inductor_backend.compile_count(), inductor_backend.executable_count()
    with strict(), torch.no_grad():
        for n in range(3, 63):
            same(compiled(*make(n)), fn(*make(n)), rtol=1e-4, atol=1e-5)
    assert inductor_backend.compile_count() - graphs == 1
    assert inductor_backend.executable_count() - before == 6  # 3 as it is, 4, 8, 16, 32, 64


@pytest.mark.parametrize("buckets", [None, True])
def test_a_cache_that_grows(buckets):
    """Keys and values have a size each, which only the calls show to be one; as many graphs as for any backend."""
    project, out = nn.Linear(8, 24), nn.Linear(8, 8)

    def step(x, k, v, mask):
        q, new_k, new_v = (t.reshape(1, 1, 2, 4).transpose(1, 2) for t in project(x).chunk(3, -1))
        k, v = torch.cat([k, new_k], 2), torch.cat([v, new_v], 2)
        return out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(1, 1, 8)), k, v

    def run(f, tokens):
        x, k, v, seen = rn(1, 1, 8), rn(1, 2, 5, 4), rn(1, 2, 5, 4).cos(), []
        for i in range(tokens):
            x, k, v = f(x, k, v, torch.ones(1, 1, 1, 6 + i, dtype=torch.bool))
            seen.append(x)
        return seen, k, v

    compiled = torch.compile(step, backend="pallas", fullgraph=True, options={"buckets": buckets})
    graphs, before = inductor_backend.compile_count(), inductor_backend.executable_count()
    with strict(), torch.no_grad():
        same(run(compiled, 14), run(step, 14), rtol=1e-4, atol=1e-5)
    assert inductor_backend.compile_count() - graphs == 2
    # 5 is a graph of its own; then 6 as it is, 7 and 8, 9 to 16, 17 and 18.
    assert inductor_backend.executable_count() - before == (14 if buckets is None else 5)


def test_sizes_that_are_one_for_some_calls_only():
    f = lambda q, k, v, w: (F.scaled_dot_product_attention(q, torch.cat([k, q], 2), torch.cat([v, q], 2)), w.sum(0))
    compiled = torch.compile(f, backend="pallas", fullgraph=True, options={"buckets": True})
    before = inductor_backend.executable_count()
    with strict(), torch.no_grad():
        for n, m in ((3, 3), (5, 5), (6, 6), (7, 6), (8, 5), (7, 8)):
            args = rn(1, 2, 1, 4), rn(1, 2, n, 4), rn(1, 2, n, 4).cos(), rn(m, 3)
            same(compiled(*args), f(*args), rtol=1e-4, atol=1e-5)
    # 3 is a graph of its own; 5 as it is, 6 and 6 as one size, then 8 and 8 as two.
    assert inductor_backend.executable_count() - before == 4


def test_given_buckets():
    f = lambda x: x.softmax(0).sum(1)
    compiled = torch.compile(f, backend="pallas", dynamic=True, options={"buckets": [10, 100]})
    before = inductor_backend.executable_count()
    for n in (2, 7, 10, 11, 99, 100):
        same(compiled(rn(n, 3)), f(rn(n, 3)))
    assert inductor_backend.executable_count() - before == 3
    same(compiled(rn(101, 3)), f(rn(101, 3)))  # beyond the last: a size of its own
    assert inductor_backend.executable_count() - before == 4


@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_sizes(n):
    f = lambda x: (x.sum(0), x * 2, x.sum())
    compiled = torch.compile(f, backend="pallas", dynamic=True, options={"buckets": True})
    for m in (5, n, 6):
        same(compiled(rn(m, 3)), f(rn(m, 3)))


def test_marked_dimension_only():
    f = lambda x: (x.softmax(-1), x.mean(0))
    compiled = torch.compile(f, backend="pallas", options={"buckets": True})
    before = inductor_backend.compile_count()
    for n in (3, 4, 7):
        x = rn(n, 5)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
        same(compiled(x), f(x))
    assert inductor_backend.compile_count() - before == 1


def test_writes_reach_the_caller():
    def f(x, y, total):
        x.add_(1)
        y[:, 1:].mul_(2)
        total.add_(x.sum(0))
        return x, y.sum()

    def swap(a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    compiled = torch.compile(f, backend="pallas", dynamic=True, options={"buckets": True})
    swapped = torch.compile(swap, backend="pallas", dynamic=True, options={"buckets": True})
    for n in (3, 8, 5):
        mine, theirs = ([rn(n, 4), rn(4, n).t(), torch.zeros(4)] for _ in range(2))
        got, want = compiled(*mine), f(*theirs)
        same((got, mine), (want, theirs))
        assert got[0] is mine[0]
        mine, theirs = ([rn(n, 4), rn(n, 4) + 1] for _ in range(2))
        swapped(*mine)
        swap(*theirs)
        same(mine, theirs)


def test_outputs_share_memory_as_in_eager():
    f = lambda x: (lambda y: (y[1:], y.t(), y))(x + 1)
    compiled = torch.compile(f, backend="pallas", dynamic=True, options={"buckets": True})
    for n in (3, 4, 5):
        got, want = compiled(rn(n, 4)), f(rn(n, 4))
        assert len({t.untyped_storage().data_ptr() for t in got}) == 1
        assert got[0].untyped_storage().nbytes() == want[0].untyped_storage().nbytes()
        got[2].zero_()
        want[2].zero_()
        same(got, want)


def test_random_numbers_are_those_without_buckets():
    f = lambda x: (F.dropout(x, 0.5), torch.rand_like(x), torch.randn(x.shape[1], x.shape[0]), (x * 0).exp())
    plain = torch.compile(f, backend="pallas", dynamic=True)
    results = {}
    for name, options in (("plain", None), ("padded", {"buckets": True})):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="pallas", dynamic=True, options=options)
        results[name] = []
        for n in (5, 3, 8):
            torch.manual_seed(n)
            x = rn(n, 3).requires_grad_()
            out = compiled(x)
            (grad,) = torch.autograd.grad(out[0].sum(), x)
            assert torch.equal(grad != 0, out[0] != 0)  # the backward graph draws the same numbers again
            results[name].append((out, grad))
    del plain
    same(results["padded"], results["plain"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("fn", "good", "bad"),
    [(lambda x, i: F.embedding(i, x), 3, 5), (lambda x, i: x[i], -5, 5), (lambda x, i: x[i], 4, -6)],
)
def test_indices_beyond_the_own_size_are_refused(fn, good, bad):
    compiled = torch.compile(fn, backend="pallas", dynamic=True, options={"buckets": True})
    at = lambda n: torch.tensor([0, n, 0])
    same(compiled(rn(5, 4), at(good)), fn(rn(5, 4), at(good)))
    with pytest.raises(BackendError, match="TPB406"):
        compiled(rn(5, 4), at(bad))


@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
@pytest.mark.parametrize(
    ("fn", "operator"),
    [
        (lambda x: x.sort(0).values, r"aten\.sort"),
        (lambda x: x[::2] + 1, r"aten\.slice"),
        (lambda x: torch.linalg.svdvals(x), "_linalg_svd"),
        (lambda x: torch.fft.fft(x, dim=0).real, "_fft"),
    ],
)
def test_what_mixes_lines_is_not_padded(fn, operator):
    compiled = torch.compile(fn, backend="pallas", dynamic=True, options={"buckets": True})
    compiled(rn(6, 4))
    with pytest.warns(DiagnosticNote, match=rf"TPB409.*({operator})"):
        got = compiled(rn(5, 4))
    same(got, fn(rn(5, 4)), rtol=1e-4, atol=1e-5)
    same(compiled(rn(7, 4)), fn(rn(7, 4)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", ["yes", 4, [], [4, 2], [2, 2], [0, 3], [1.5], [True]])
def test_bad_buckets(given):
    with pytest.raises(BackendError, match="TPB404.*buckets"):
        torch.compile(lambda x: x + 1, backend="pallas", options={"buckets": given})(torch.ones(2))


def test_functions_of_old_sizes_are_forgotten(monkeypatch):
    from inductor_backend import compile as compiler

    monkeypatch.setattr(compiler, "_SPECIALISATIONS", 3)
    compiled = torch.compile(lambda x: x * 2, backend="pallas", dynamic=True)
    before = inductor_backend.executable_count()
    for n in (2, 3, 4, 2, 5, 2, 6, 2):
        same(compiled(torch.ones(n)), torch.full((n,), 2.0))
    assert inductor_backend.executable_count() - before == 5
    compiled(torch.ones(3))
    assert inductor_backend.executable_count() - before == 6
