"""Shared pieces of the tests of torch.compile for a TPU: reproducible numbers, a small network."""

import torch
import torch.nn.functional as F


def rand(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Net(torch.nn.Module):
    """Two products with what surrounds them."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.n = torch.nn.Linear(40, 96), torch.nn.Linear(96, 40), torch.nn.LayerNorm(40)
        self.to(dtype)

    def forward(self, x):
        return self.n(x + self.b(F.gelu(self.a(x), approximate="tanh")))
