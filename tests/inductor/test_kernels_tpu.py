"""torch.compile for a TPU that is not here: kernels formed, and right under the TPU interpreter."""

import pytest
import torch
import torch.nn.functional as F
from tpu_cases import Net, rand

from bridge.diagnostics import Diagnostic
from inductor_backend.kernels import layout, target, tile
from inductor_backend.kernels.axes import Apart, Atom, Axes


def masked_attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / 5.0
    n = scores.shape[-1]
    scores = scores.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), float("-inf"))
    return torch.softmax(scores, -1) @ v


#: name -> (function, arguments, kernels that it takes at most).
FORWARD = {
    "softmax": (lambda x: torch.softmax(x, -1), [rand(37, 200)], 1),
    "softmax of columns": (lambda x: torch.softmax(x, 0), [rand(24, 300)], 1),
    "layer norm": (
        lambda x, r, w, b: F.layer_norm(x + r, (200,), w, b),
        [rand(37, 200), rand(37, 200, seed=1), rand(200, seed=2), rand(200, seed=3)],
        1,
    ),
    "rms norm, bf16": (
        lambda x, w: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w,
        [rand(37, 256, dtype=torch.bfloat16), rand(256, seed=1, dtype=torch.bfloat16)],
        1,
    ),
    "pointwise chain": (
        lambda x, y: torch.where(x > 0, torch.sigmoid(x) * torch.sin(y), torch.exp(-x.abs())) + torch.rsqrt(y * y + 1),
        [rand(40, 300), rand(40, 300, seed=1)],
        1,
    ),
    "broadcasts": (
        lambda x, b, s: F.relu(x * s[:, None] + b) + 1,
        [rand(3, 20, 130), rand(20, 130, seed=1), rand(3, seed=2).reshape(3, 1)],
        1,
    ),
    "one dimension": (lambda x: torch.tanh(x) * 2 + x, [rand(4096)], 1),
    "one dimension, odd": (lambda x: torch.tanh(x) * 2 + x, [rand(1000)], 1),
    "group norm": (lambda x, w, b: F.group_norm(x, 4, w, b), [rand(3, 8, 5, 9), rand(8, seed=1), rand(8, seed=2)], 2),
    "log softmax and loss": (
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        [rand(40, 131), torch.arange(40) * 3],
        1,
    ),
    "argmax": (lambda x: (x.argmax(-1), x.max(-1)), [rand(37, 200)], 2),
    "sums over rows": (lambda x: (x * 2 + 1).sum(0), [rand(301, 130)], 1),
    "sums over all": (lambda x: (x * x).sum(), [rand(301, 130)], 2),
    "bf16 sums over rows": (lambda x: (x * 2).sum(0), [rand(301, 130, dtype=torch.bfloat16)], 1),
    "product with bias and gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2,
        [rand(70, 64), rand(300, 64, seed=1), rand(300, seed=2)],
        1,
    ),
    "batched product, residual": (
        lambda x, y, r: torch.bmm(x * 2, y) + r,
        [rand(3, 20, 40), rand(3, 40, 130, seed=1), rand(3, 20, 130, seed=2)],
        1,
    ),
    "attention": (masked_attention, [rand(2, 3, 40, 16, seed=i) for i in range(3)], 1),
    "limits and NaN": (
        lambda x, y: (
            torch.relu(x),
            x.clamp(-0.5, 0.5),
            torch.maximum(x, y),
            x.amax(-1),
            torch.nn.functional.hardtanh(x),
        ),
        [torch.where(rand(20, 200, seed=4) > 1, torch.nan, rand(20, 200)), rand(20, 200, seed=1)],
        5,
    ),
    "bf16 limits": (
        lambda x, y: torch.maximum(torch.relu(x), y.clamp(max=0.5)),
        [rand(40, 200, dtype=torch.bfloat16), rand(40, 200, seed=1, dtype=torch.bfloat16)],
        1,
    ),
    "whole numbers": (
        lambda a, b: ((a // b) + (a % b)) * 2,
        [torch.arange(600).reshape(20, 30) - 300, torch.arange(30) + 1],
        1,
    ),
}


def test_values_of_kernels_are_eagers(interpreted, places):
    def everything(args):
        return [function(*given) for (function, _, _), given in zip(FORWARD.values(), args)]

    args = [given for _, given, _ in FORWARD.values()]
    compiled = torch.compile(everything, backend="pallas", options={"target": "tpu:v5e", "kernels": "all"})
    for name, given, got, want in zip(FORWARD, args, compiled(args), everything(args)):
        close = 2e-2 if any(a.dtype == torch.bfloat16 for a in given) else 2e-5
        say = lambda text, name=name: f"{name}: {text}"
        torch.testing.assert_close(got, want, rtol=close, atol=close, equal_nan=True, msg=say)
    (place,) = places
    kernels = [k for program in place.programs for k in program.kernels.values()]
    assert not place.refused
    assert len(FORWARD) <= len(kernels) <= sum(most for _, _, most in FORWARD.values())
    assert sum(bool(k.layout.grid) for k in kernels) >= len(FORWARD) - 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_kernels_are_eagers(dtype, interpreted, places):
    mine, theirs = Net(dtype), Net(dtype)
    x, t = rand(33, 40, dtype=dtype), torch.arange(33)
    compiled = torch.compile(mine, backend="pallas", options={"target": "tpu:v6e", "kernels": "all"})
    F.cross_entropy(compiled(x).float(), t).backward()
    F.cross_entropy(theirs(x).float(), t).backward()
    close = 1e-5 if dtype == torch.float32 else 2e-2
    for p, q in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=close, atol=close)
    assert len(places) == 2 and all(p.kernels for place in places for p in place.programs)


@pytest.mark.parametrize(
    ("causal", "mask", "dtype", "shared"),
    [
        (True, None, torch.float32, 2),
        (False, torch.bool, torch.float32, 4),
        (False, torch.float32, torch.bfloat16, 4),
    ],
)
def test_attention_forward_and_backward(causal, mask, dtype, shared, interpreted, places, monkeypatch):
    monkeypatch.setattr(layout, "TILES_ELSEWHERE", (16, 16))
    heads = (4, shared, shared)
    mine = [rand(2, n, 40, 16, seed=i, dtype=dtype).requires_grad_() for i, n in enumerate(heads)]
    theirs = [t.detach().clone().requires_grad_() for t in mine]
    given = (
        None if mask is None else (rand(40, 40, seed=5) > -0.5 if mask == torch.bool else rand(2, 1, 40, 40).to(dtype))
    )

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=causal, enable_gqa=shared < 4)

    gradient = rand(2, 4, 40, 16, seed=3, dtype=dtype)
    compiled = torch.compile(attend, backend="pallas", options={"target": "tpu:v5e", "kernels": "all"})
    got, want = compiled(*mine), attend(*theirs)
    got.backward(gradient)
    want.backward(gradient)
    close = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, want, rtol=close, atol=close)
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a.grad, b.grad, rtol=close, atol=close)
    assert [sum(len(p.kernels) for p in place.programs) for place in places] == [1, 1]


@pytest.mark.parametrize("pieces", [1, 2, 40])
def test_causal_attention_leaves_out_the_keys_that_nobody_sees(pieces, interpreted, places, monkeypatch):
    """All keys in one piece of code; groups of blocks of queries with code of their own; a branch for each block."""
    monkeypatch.setitem(layout.TILES, "v6e", (8, 128))
    monkeypatch.setattr(tile, "_MOST_PIECES", pieces)
    q, k, v = (rand(1, 2, 40, 16, seed=i) for i in range(3))

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    got = torch.compile(attend, backend="pallas", options={"target": "tpu:v6e", "kernels": "all"})(q, k, v)
    torch.testing.assert_close(got, attend(q, k, v), rtol=1e-5, atol=1e-5)
    (kernel,) = [k for place in places for p in place.programs for k in p.kernels.values()]
    assert 5 in [axis.steps for axis in kernel.layout.grid] and "rows=40" in kernel.text


def test_random_numbers_follow_the_seed_as_on_the_cpu(interpreted):
    def draw(x):
        return F.dropout(x, 0.5) + torch.rand_like(x)

    results = []
    for where in ("cpu", "tpu:v5e", "tpu:v5e"):
        torch._dynamo.reset()
        torch.manual_seed(3)
        results.append(torch.compile(draw, backend="pallas", options={"target": where})(torch.ones(8, 128)))
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(results[1], results[2])


def test_what_takes_too_long_is_refused(interpreted, monkeypatch):
    monkeypatch.setattr(target, "MOST_STEPS", 2)
    f = torch.compile(lambda x: torch.softmax(x, -1), backend="pallas", options={"target": "tpu:v5e", "kernels": "all"})
    with pytest.raises(Diagnostic, match="TPB315") as refused:
        f(rand(64, 256))
    assert "torch.softmax(x, -1)" in refused.value.where.text()


def test_axes_are_split_by_views_and_refused_otherwise():
    axes = Axes()
    a, b, c = Atom(6), Atom(2), Atom(3)
    axes.unify([a], [b, c])
    assert axes.expand([a]) == [b, c]
    d = Atom(6)
    axes.unify([d], [a])
    assert axes.expand([d]) == [b, c]
    with pytest.raises(Apart):
        axes.unify([Atom(6)], [Atom(4), Atom(3)])
