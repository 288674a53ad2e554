"""A module with Triton kernels in forward and backward, compiled whole: they are inlined in the jitted calls."""

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import inductor_backend


@triton.jit
def norm(y, x, inverse, n, eps, BLOCK: tl.constexpr):
    """One program a row: x / rms(x), and 1 / rms(x) for the backward."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(inverse + row, scale)
    tl.store(y + row * n + i, v * scale, mask=i < n)


@triton.jit
def norm_backward(dx, dy, x, inverse, n, BLOCK: tl.constexpr):
    """One program a row."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    g = tl.load(dy + row * n + i, mask=i < n, other=0.0)
    scale = tl.load(inverse + row)
    tl.store(dx + row * n + i, scale * (g - v * scale * scale * tl.sum(g * v, 0) / n), mask=i < n)


class Norm(torch.autograd.Function):
    """RMS norm of rows."""

    @staticmethod
    def forward(ctx, x, eps):
        """Launch `norm`."""
        y, inverse = torch.empty_like(x), torch.empty(x.shape[0])
        norm[(x.shape[0],)](y, x, inverse, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(x, inverse)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Launch `norm_backward`."""
        x, inverse = ctx.saved_tensors
        dx, n = torch.empty_like(x), x.shape[1]
        norm_backward[(x.shape[0],)](dx, dy.contiguous(), x, inverse, n, BLOCK=triton.next_power_of_2(n))
        return dx, None


class Net(torch.nn.Module):
    """A layer, the kernels, a layer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 100), torch.nn.Linear(100, 8)

    def forward(self, x):
        """Logits."""
        return self.last(torch.nn.functional.gelu(Norm.apply(self.first(x), 1e-6)))


def main() -> None:
    """Compile, compare with eager, and show what is inlined."""
    torch.manual_seed(0)
    net, x = Net(), torch.randn(32, 64)
    eager = net(x)
    eager.square().sum().backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()

    compiled = torch.compile(net, backend="pallas", fullgraph=True)
    logits = compiled(x)
    logits.square().sum().backward()
    torch.testing.assert_close(logits, eager, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close([p.grad for p in net.parameters()], expected, rtol=1e-3, atol=1e-4)
    print("logits and gradients equal eager's\n")
    print(inductor_backend.explain(net, x))


if __name__ == "__main__":
    main()
