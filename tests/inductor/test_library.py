"""Operators that run in ATen by choice: where it is faster than XLA on the CPU, and only there."""

import pytest
import torch
from inductor_checks import check, same
from torch import nn

import inductor_backend
from bridge.diagnostics import strict


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(8, 4, 1),
    )  # fmt: skip


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_convolutions_and_their_gradients(layout):
    mine, theirs = net(), net()
    compiled = torch.compile(mine, backend="pallas")
    for size in (32, 33):
        x = torch.randn(8, 3, size, size).to(memory_format=layout)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        with strict():  # a note would raise
            got = compiled(a)
        want = theirs(b)
        same(got, want, rtol=1e-4, atol=1e-5)
        weight = torch.randn_like(want)
        (got * weight).sum().backward()
        (want * weight).sum().backward()
        grads = lambda x, m: [x.grad, *(p.grad for p in m.parameters())]
        same(grads(a, mine), grads(b, theirs), rtol=1e-3, atol=1e-3)


def test_explain_names_library_calls_and_no_fallback():
    x = torch.randn(16, 16, 32, 32)
    report = inductor_backend.explain(nn.Sequential(nn.Conv2d(16, 16, 3), nn.ReLU()), x)
    assert not report.fallbacks and [c.operator for c in report.graphs[0].library] == ["aten.convolution.default"]
    assert "library aten.convolution.default: ATen is faster here" in str(report)


def test_small_work_stays_in_the_jitted_function():
    f = lambda x, w: (nn.functional.conv2d(x, w), x.cumsum(1), x.flatten().cumprod(0))
    report = inductor_backend.explain(f, torch.randn(1, 2, 8, 8), torch.randn(4, 2, 3, 3))
    assert not report.graphs[0].library and report.graphs[0].segments == 1


def test_library_calls_between_jitted_operators():
    torch.manual_seed(1)
    x = torch.randn(300, 400)
    x[3, 5], x[7, 9] = float("nan"), float("inf")
    values = lambda x: (
        x.cumsum(1) * 2,
        (x + 1).cumprod(0),
        x.cummax(0)[0].exp(),
        x.logcumsumexp(1),
        x.double().cumsum(0),
    )
    check(values, x, rtol=1e-5, atol=1e-5)
    whole = torch.randint(-50, 50, (300, 400))
    check(lambda x: (x.sort(dim=1, stable=True), x.cumsum(0) - 1, x.cummin(1)), whole)


def test_library_calls_of_every_size_of_a_dynamic_graph():
    f = torch.compile(lambda x: (x * 2).cumsum(0).sin(), backend="pallas", dynamic=True)
    for rows in (10, 400, 300, 11):
        x = torch.randn(rows, 200)
        same(f(x), (x * 2).cumsum(0).sin(), rtol=1e-4, atol=1e-4)
