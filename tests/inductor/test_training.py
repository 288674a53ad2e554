"""Forward and backward, optimizers, buffers, dropout: against eager over several steps."""

import copy

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check, same
from torch import nn
from torch.utils.checkpoint import checkpoint

from bridge.diagnostics import strict


class Block(nn.Module):
    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.block, self.head = nn.Embedding(11, 16), Block(), nn.Linear(16, 11)

    def forward(self, ids):
        y = self.head(self.block(self.emb(ids[:, :-1])))
        return F.cross_entropy(y.reshape(-1, 11), ids[:, 1:].reshape(-1))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1),
            nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3),
        )  # fmt: skip

    def forward(self, x, t):
        return F.cross_entropy(self.body(x), t)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))

    def forward(self, x, t):
        return F.cross_entropy(self.net(x), t)


MODELS = {
    "mlp": (Mlp, lambda: (torch.randn(5, 6), torch.tensor([0, 1, 2, 1, 0]))),
    "cnn": (Cnn, lambda: (torch.randn(3, 2, 8, 8), torch.tensor([0, 1, 2]))),
    "gpt": (Gpt, lambda: (torch.randint(0, 11, (2, 7)),)),
}


def train(model, step, args, make_optimizer, compiled_step):
    optimizer = make_optimizer(model.parameters())
    advance = torch.compile(optimizer.step, backend="pallas") if compiled_step else optimizer.step
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = step(*args)
        loss.backward()
        advance()
        losses.append(loss.detach().clone())
    return losses, list(model.state_dict().values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiled_step", [False, True])
def test_three_steps(name, compiled_step):
    torch.manual_seed(0)
    make, args = MODELS[name]
    eager, args = make(), args()
    twin = copy.deepcopy(eager)
    # Adam turns a gradient that is 0 up to rounding (a bias before a norm) into a full step of either sign.
    adam = compiled_step and name == "mlp"
    optimizer = (
        (lambda p: torch.optim.AdamW(p, lr=1e-2)) if adam else (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    )
    want = train(eager, eager, args, optimizer, False)
    with strict():
        got = train(twin, torch.compile(twin, backend="pallas"), args, optimizer, compiled_step)
    same(got, want, rtol=1e-3, atol=1e-4)


def test_gradients_of_inputs_and_saved_views():
    def loss(a, b):
        return ((a.t() @ b).softmax(-1) * torch.arange(5.0)).sum() + (a[:, ::2] * 2).relu().sum()

    a, b = torch.randn(4, 3, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    loss(a, b).backward()
    want = a.grad.clone(), b.grad.clone()
    a.grad = b.grad = None
    torch.compile(loss, backend="pallas")(a, b).backward()
    same((a.grad, b.grad), want, rtol=1e-5, atol=1e-6)


def test_dropout_is_reproducible_and_its_backward_uses_the_same_mask():
    f = torch.compile(lambda x: F.dropout(x, 0.5, training=True), backend="pallas")
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(3)
    first = f(x)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())
    torch.manual_seed(3)
    again, next_draw = f(x), f(x)
    assert torch.equal(first, again) and not torch.equal(first, next_draw)
    assert 400 < int((first == 0).sum()) < 600


@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_draws_of_torch_are_in_eagers_order():
    """`fallback_random` leaves the draws to torch: one that needs nothing may not overtake one that waits."""

    def f(x):
        a = F.dropout(x * 2 + x.sum(), 0.5)
        return a, torch.rand(5), F.dropout(a.sin(), 0.3), torch.randn(3), torch.bernoulli(a.sigmoid())

    x = torch.randn(4, 4)
    with torch._inductor.config.patch(fallback_random=True):
        torch.manual_seed(0)
        want = f(x)
        torch.manual_seed(0)
        same(torch.compile(f, backend="pallas")(x), want)


def test_checkpointed_attention_draws_nothing():
    """Its operator is tagged as random, and the partitioner keeps the generator's state for it; the row applies."""

    def f(x, w):
        def body(x):
            q = (x @ w).view(2, 5, 2, 4).transpose(1, 2)
            return F.scaled_dot_product_attention(q, q * 2, q).transpose(1, 2).reshape(2, 5, 8) * x

        return checkpoint(body, checkpoint(body, x, use_reentrant=False), use_reentrant=False)

    torch.manual_seed(0)
    mine = [torch.randn(2, 5, 8), torch.randn(8, 8) / 4]
    theirs = [t.clone() for t in mine]
    with strict():
        got = torch.compile(f, backend="pallas", fullgraph=True)(*[t.requires_grad_() for t in mine])
        got.square().mean().backward()
    want = f(*[t.requires_grad_() for t in theirs])
    want.square().mean().backward()
    same([got, *(t.grad for t in mine)], [want, *(t.grad for t in theirs)], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
@pytest.mark.parametrize("exact", [True, False])
def test_checkpointed_dropout_has_one_mask(exact):
    def f(x):
        return checkpoint(lambda x: F.dropout(x.exp(), 0.5) * 2, x, use_reentrant=False) + torch.rand(8)

    x = torch.randn(4, 8)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    with torch._inductor.config.patch(fallback_random=exact):
        torch.manual_seed(0)
        got = torch.compile(f, backend="pallas")(mine)
        got.sum().backward()
    torch.manual_seed(0)
    want = f(theirs)
    want.sum().backward()
    if exact:
        same([got, mine.grad], [want, theirs.grad])
    kept = 4 * x.exp()
    assert torch.equal(mine.grad == 0, (got < 1) & (mine.grad == 0)) and 4 < int((mine.grad != 0).sum()) < 28
    torch.testing.assert_close(mine.grad[mine.grad != 0], kept[mine.grad != 0])


def test_random_distributions():
    f = torch.compile(
        lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 3, 9)), backend="pallas"
    )
    uniform, normal, whole = f(torch.empty(20000))
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    assert whole.min() == 3 and whole.max() == 8


def test_batch_norm_buffers():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    with torch.no_grad():
        check(net, torch.randn(6, 3), rtol=1e-5, atol=1e-6)


def test_no_grad_and_grad_graphs_are_separate():
    w = torch.randn(3, requires_grad=True)
    f = torch.compile(lambda x: (x * w).sum(), backend="pallas")
    assert f(torch.ones(3)).requires_grad
    with torch.no_grad():
        assert not f(torch.ones(3)).requires_grad


def test_a_second_derivative_is_refused_by_torch_and_exists_inside():
    """AOTAutograd has no backward of a backward; a function of both is one graph."""
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    f = torch.compile(lambda x: (x.sin() * x).sum(), backend="pallas")
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    torch.testing.assert_close(first, x.cos() * x + x.sin())
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()
    gradient = torch.func.grad(lambda x: (x.sin() * x).sum())
    second = torch.compile(torch.func.grad(lambda x: gradient(x).sum()), backend="pallas")
    torch.testing.assert_close(second(x.detach()), (2 * x.cos() - x * x.sin()).detach())


def test_double_use_of_retained_graph():
    x = torch.randn(4, requires_grad=True)
    y = torch.compile(lambda x: (x.sin() * x).sum(), backend="pallas")(x)
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    torch.testing.assert_close(x.grad, first * 2)


@pytest.mark.parametrize("scaled", [lambda s: s / 3, lambda s: torch.div(s, 3), lambda s: s.div(3), lambda s: s * 3])
def test_written_out_attention_is_scaled_by_a_whole_number(scaled):
    """Inductor's pattern takes the number for a size, and Dynamo's guards fail."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.rand(2, 3, 9, 8, generator=generator).requires_grad_() for _ in range(3))
    attention = lambda q, k, v: torch.softmax(scaled(q @ k.mT), -1) @ v
    torch._dynamo.reset()
    got, want = torch.compile(attention, backend="pallas")(q, k, v), attention(q, k, v)
    torch.testing.assert_close(got, want)
    for g, w in zip(torch.autograd.grad(got.sum(), (q, k, v)), torch.autograd.grad(want.sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(g, w)
