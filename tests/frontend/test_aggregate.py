"""Objects of user's classes as values in kernels: made, passed, carried by loops, with methods of their own."""

from __future__ import annotations

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.aggregate
class Pair:
    first: tl.tensor
    second: tl.tensor
    factor: tl.constexpr = 3

    @triton.jit
    def total(self, scale):
        return (self.first + self.second) * scale * self.factor

    def plain(self):
        return self.first


@triton.aggregate
class Shifted:
    values: tl.tensor
    shift: tl.constexpr

    @triton.constexpr_function
    def __init__(self, values, shift):
        self.values = values
        self.shift = tl.constexpr(shift)

    @triton.jit
    def load(self, offsets):
        return tl.load(self.values + offsets) + self.shift


@triton.aggregate
class Twice(Shifted):
    @triton.jit
    def load(self, offsets):
        return 2 * tl.load(self.values + offsets) + self.shift


@triton.aggregate
class Made:
    value: tl.tensor

    @triton.jit
    def __init__(self, value):
        self.value = value + 1


@triton.jit
def step(pair, x):
    return Pair(pair.first + x, pair.second * 2)


@triton.jit
def kernel(o, x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    pair = Pair(v, v)
    for _ in range(n):
        pair = step(pair, v)
    if n > 2:
        pair = Pair(pair.first + 100, pair.second)
    total = pair.total(2.0) + pair.plain()
    tl.store(o + i, total + Shifted(x, 2).load(i) + Twice(x, 5).load(i) + Made(v).value)


def test_objects_in_a_kernel():
    x, o = torch.arange(8.0), torch.zeros(8)
    for n in (1, 3):
        kernel[(1,)](o, x, n, BLOCK=8)
        first, second = x * (n + 1) + 100 * (n > 2), x * 2**n
        assert torch.equal(o, (first + second) * 6 + first + (x + 2) + (2 * x + 5) + (x + 1))


def test_names_of_compound_types():
    pair = tl.tuple_type([tl.int32, tl.float32], ["a", "b"])
    assert str(pair) == "[a:int32,b:fp32]" and pair[1] == tl.float32 and list(pair) == [tl.int32, tl.float32]
    assert pair != tl.tuple_type([tl.int32, tl.float32]) and str(tl.tuple_type([tl.int32])) == "[int32]"
    block = tl.block_type(tl.float32, [4, 8])
    assert tl.tensor_descriptor_type(block, None, None) == tl.tensor_descriptor_type(block, None, None)
