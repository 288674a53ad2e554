"""Formulations chosen for speed on the CPU: right at every size, in every dtype, at NaN, infinities and zeros."""

import numpy as np
import pytest
import torch
from inductor_checks import check, same

NAN, INF = float("nan"), float("inf")


def run(fn, *args):
    """`fn` compiled, beside eager, and no operator of it in ATen."""
    return check(fn, *args, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8])
def test_extremes_of_long_rows(dtype):
    torch.manual_seed(0)
    arrays = [(torch.randn(shape) * 50).to(dtype) for shape in ((3, 127), (5, 128), (4, 1000), (1, 4099), (2, 3, 200))]
    if dtype.is_floating_point:
        for x in arrays[1:]:
            rows = x.flatten(0, -2)
            rows[0, -1], rows[-1, 0] = NAN, INF
            rows[rows.shape[0] // 2] = -INF

    def extremes(*xs):
        rows = [(x.amax(-1), x.amin(-1), x.argmax(-1), x.min(-1), x.amax(), x.argmin()) for x in xs]
        return rows, [x.amax(0) for x in xs], xs[-1].amax((1, 2)), xs[-1].amin((0, 1))

    run(extremes, *arrays)


def test_ties_of_long_rows_take_the_first():
    x = torch.zeros(3, 300)
    x[1, 70:] = 1
    run(lambda x: (x.argmax(-1), x.argmin(-1), x.max(-1)), x)


def test_any_and_all():
    x = torch.zeros(4, 200)
    x[1, 150], x[2] = NAN, 1
    run(lambda x: (x.any(), x.all(), x.any(-1), x.all(-1), x.any(0), x.all(0), x[:, :0].any(-1), x[:, :0].all(-1)), x)
    run(lambda x: (x.any(), x.all(), x.any(-1, keepdim=True)), torch.randint(0, 2, (3, 70), dtype=torch.bool))


def test_reciprocal_square_root():
    x = torch.tensor([0.0, -0.0, 1.2e-38, 0.25, 2.0, 3.4e38, INF, -1.0, -INF, NAN])
    x = torch.cat([x, torch.logspace(-37, 38, 4000)])
    got = check(lambda x: (x.rsqrt(), x.pow(-0.5)), x, rtol=3e-7, atol=0)[0].double().numpy()
    with np.errstate(all="ignore"):
        want = 1 / np.sqrt(x.double().numpy())
        error = np.abs(got / want - 1)
    assert error[np.isfinite(error)].max() < 2**-22
    assert check(lambda x: x.rsqrt(), x.double(), rtol=4e-16, atol=0).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8])
def test_whole_division(dtype):
    info = torch.iinfo(dtype)
    numbers = [info.min, info.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, info.max - 1, info.max]
    numbers = torch.tensor([n for n in numbers if n >= info.min], dtype=dtype)
    a, b = numbers.repeat_interleave(len(numbers)), numbers.repeat(len(numbers))
    keep = (b != 0) & ~((a == info.min) & (b == -1) & (info.min < 0))  # the last is undefined in C, and so in eager
    run(lambda a, b: (a // b, a % b, torch.div(a, b, rounding_mode="trunc"), torch.fmod(a, b)), a[keep], b[keep])


def test_writes_as_moves_are_seen_by_autograd():
    buffer, other = torch.zeros(4, 6).t(), torch.zeros(3)

    def step(buffer, other, x):
        buffer.add_(x)
        other.copy_(x[0, :3])
        return x * 2

    compiled = torch.compile(step, backend="pallas")
    x = torch.arange(24.0).reshape(6, 4)
    for count in (1, 2):
        before = buffer._version, other._version
        same(compiled(buffer, other, x), x * 2)
        same((buffer, other), (x * count, x[0, :3]), strides=False)
        assert buffer._version > before[0] and other._version > before[1]
    weight = torch.ones(3, requires_grad=True)
    saved = weight * other
    compiled(buffer, other, x)
    with pytest.raises(RuntimeError, match="inplace operation"):
        saved.sum().backward()


def test_inputs_that_are_copied_or_repeated():
    def f(a, b, c, d):
        return a + b, c * 2, d.sum(0) + b, a @ d

    for start in (0, 1):
        wide = torch.arange(200.0)
        a = wide[start : start + 36].view(6, 6)
        run(
            f, a, torch.arange(6.0).expand(6, 6), wide[3:7].view(2, 1, 2).expand(2, 5, 2), wide[::2][:36].view(6, 6).t()
        )
    compiled, x = torch.compile(lambda x: x + 1, backend="pallas"), torch.arange(40.0)
    first = compiled(x[1:9])
    second = compiled(x[3:11])
    same((first, second), (x[1:9] + 1, x[3:11] + 1))


def test_saved_values_are_handed_over_and_users_see_plain_tensors(emitted):
    from inductor_backend.runtime import HELD

    # A convolution is not called directly. The gradient of a bias in front of a norm would be rounding alone.
    net = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3, bias=False), torch.nn.LayerNorm(38), torch.nn.Tanh())
    compiled = torch.compile(net, backend="pallas")
    for _ in range(3):
        x = torch.randn(9, 1, 40, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        got, want = compiled(x), net(twin)
        assert not hasattr(got, HELD)
        got.sum().backward()
        mine = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        want.sum().backward()
        same([got, x.grad, *mine], [want, twin.grad, *(p.grad for p in net.parameters())], rtol=1e-5, atol=1e-5)
        assert not any(hasattr(p.grad, HELD) for p in (x, *net.parameters()))
        net.zero_grad()
    assert any(HELD in assembly.text for assembly in emitted)
