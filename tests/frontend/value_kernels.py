"""Kernels whose results are compared with the real Triton interpreter's; run as a script it writes its results.

Written against `triton` as an import, so that the same file runs on the real package and on ours. bf16 is left out:
the real interpreter's bf16 arithmetic is not to be trusted.
"""

import sys

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def integers(x, y, q, r, s, b, N: tl.constexpr):
    i = tl.arange(0, N)
    a, d = tl.load(x + i), tl.load(y + i)
    tl.store(q + i, a // d)
    tl.store(r + i, a % d)
    tl.store(s + i, (a >> (d & 7)) + (a << (d & 3)))
    tl.store(b + i, ((a & d) | (a ^ 5)) + (~a) - (-d) * tl.minimum(a, d) + tl.maximum(a, 3))


@triton.jit
def casts(x, o8, o32, ou8, of, o64, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(o8 + i, a.to(tl.int8))
    tl.store(o32 + i, a.to(tl.int32))
    tl.store(ou8 + i, a.to(tl.int32).to(tl.uint8))
    tl.store(of + i, a.to(tl.float16).to(tl.float32) + a.to(tl.int1).to(tl.float32) * 100)
    tl.store(o64 + i, a.to(tl.int32, bitcast=True).to(tl.int64) * 65536)


@triton.jit
def reductions(x, o, w, N: tl.constexpr, M: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    a = tl.load(x + i * M + j)
    col = tl.arange(0, M)
    tl.store(o + col, tl.sum(a, axis=0))
    tl.store(o + M + col, tl.max(a, axis=0))
    tl.store(o + 2 * M + col, tl.min(a, axis=0))
    tl.store(o + 3 * M + col, tl.argmax(a, axis=0).to(tl.float32))
    tl.store(o + 4 * M + col, tl.argmin(a, axis=0).to(tl.float32))
    v, k = tl.max(a, axis=0, return_indices=True)
    tl.store(o + 5 * M + col, v * 10 + k)
    tl.store(o + 6 * M + col, tl.sum(tl.cumsum(a, axis=1), axis=0))
    tl.store(o + 7 * M + col, tl.sum(tl.cumsum(a, axis=0, reverse=True), axis=0))
    tl.store(o + 8 * M + col, tl.xor_sum(a.to(tl.int32), axis=0).to(tl.float32))
    tl.store(w, tl.sum(a))
    tl.store(w + 1, tl.max(a))


@triton.jit
def small_integer_sums(x, u, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o, tl.sum(tl.load(x + i), axis=0))
    tl.store(o + 1, tl.sum(tl.load(u + i), axis=0).to(tl.int32))
    tl.store(o + 2, tl.sum((tl.load(x + i) > 0), axis=0).to(tl.int32))
    tl.store(o + 3, tl.max(tl.load(u + i), axis=0).to(tl.int32))


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def latest(a, ka, b, kb):
    return tl.where(kb > ka, b, a), tl.maximum(ka, kb)


@triton.jit
def user_combine(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(o, tl.reduce(a, 0, product))
    v, k = tl.reduce((a, (i * 7) % N), 0, latest)
    tl.store(o + 1, v)
    tl.store(o + 2, k.to(tl.float32))
    tl.store(o + N + i, tl.associative_scan(a, 0, product))
    two = tl.reshape(a, (2, N // 2))
    tl.store(o + 2 * N + tl.arange(0, N // 2), tl.reduce(two, 0, product))


@triton.jit
def movers(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    b = a * 10
    tl.store(o + tl.arange(0, 2 * N), tl.interleave(a, b))
    p, q = tl.split(tl.reshape(a, (N // 2, 2)))
    tl.store(o + 2 * N + tl.arange(0, N // 2), p - q)
    tl.store(o + 3 * N + i, tl.ravel(tl.trans(tl.reshape(a, (4, N // 4)))))
    tl.store(o + 4 * N + i, tl.flip(a, 0))
    tl.store(o + 5 * N + i, tl.sort(b - a * a, descending=True))
    tl.store(o + 6 * N + i, tl.gather(a, (i * 3) % N, 0))
    t = tl.permute(tl.reshape(a, (2, N // 4, 2)), (2, 0, 1))
    tl.store(o + 7 * N + i, tl.reshape(t, (N,)))
    tl.store(o + 8 * N + i, tl.reshape(tl.join(p, q), (N,)))


@triton.jit
def maths(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    p = tl.abs(a) + 0.25
    tl.store(o + i, tl.exp(a) + tl.log(p) + tl.sqrt(p) + tl.rsqrt(p))
    tl.store(o + N + i, tl.exp2(a) + tl.log2(p) + tl.sin(a) * tl.cos(a))
    tl.store(o + 2 * N + i, tl.floor(a) + tl.ceil(a) * 10 + tl.sigmoid(a))
    tl.store(o + 3 * N + i, tl.fma(a, p, a) + tl.clamp(a, -0.5, 0.5) + tl.erf(a))
    tl.store(o + 4 * N + i, tl.softmax(a))
    tl.store(o + 5 * N + i, a % 0.7 + tl.fdiv(a, p) + tl.div_rn(p, 3.0))
    tl.store(o + 6 * N + i, tl.where(a > 0, a, 7))


@triton.jit
def noise(o, k, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(k + i, tl.randint(seed, i))
    tl.store(k + N + i, tl.randint(seed, i.to(tl.int64) * 5000000000))
    tl.store(o + i, tl.rand(seed, i))
    tl.store(o + N + i, tl.randn(seed, i))
    a, b, c, d = tl.rand4x(seed, i)
    tl.store(o + 2 * N + i, a + b * 2 + c * 4 + d * 8)


@triton.jit
def flow(x, o, n, N: tl.constexpr):
    pid = tl.program_id(0)
    s = tl.load(x + pid)
    if s < -0.5:
        tl.store(o + pid, -100.0)
        return
    a = 0.0
    for j in range(n, 0, -2):
        if j % 3 == 0:
            a += j * s
        else:
            a -= s
    k = 1
    while k * k < n + pid:
        k += 1
    tl.store(o + pid, a + k if pid % 2 == 0 else a - k)


@triton.jit
def blocks(x, o, n, m, N: tl.constexpr):
    p = tl.make_block_ptr(x, (n, m), (m, 1), (-1, 2), (N, N), (1, 0))
    acc = tl.zeros((N, N), tl.float32)
    for j in range(3):
        acc += tl.load(p, boundary_check=(0, 1), padding_option="zero") * (j + 1)
        p = tl.advance(p, (1, 2))
    q = tl.make_block_ptr(o, (n, m), (m, 1), (1, 1), (N, N), (1, 0))
    tl.store(q, acc, boundary_check=(0, 1))


def results():
    """name -> tensor of every kernel's output."""
    torch.manual_seed(0)
    out = {}

    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype)

    for dtype in (torch.int32, torch.int64, torch.int16, torch.int8):
        x = torch.randint(-100, 100, (64,)).to(dtype)
        y = torch.randint(1, 9, (64,)).to(dtype) * torch.where(torch.rand(64) > 0.5, 1, -1).to(dtype)
        o = [zeros(64, dtype=dtype) for _ in range(4)]
        integers[(1,)](x, y, *o, N=64)
        out.update({f"integers_{dtype}_{i}": t for i, t in enumerate(o)})
    x = torch.cat([torch.randn(62) * 60, torch.tensor([-0.0, 0.0])])
    o = [zeros(64, dtype=d) for d in (torch.int8, torch.int32, torch.uint8, torch.float32, torch.int64)]
    casts[(1,)](x, *o, N=64)
    out.update({f"casts_{i}": t for i, t in enumerate(o)})
    x = torch.randint(-9, 9, (8, 16)).float()
    o, w = zeros(9, 16), zeros(2)
    reductions[(1,)](x, o, w, N=8, M=16)
    out.update(reductions=o, reductions_all=w)
    o = zeros(4, dtype=torch.int32)
    small_integer_sums[(1,)](
        torch.full((64,), 100, dtype=torch.int8), torch.full((64,), 200, dtype=torch.uint8), o, N=64
    )
    out["small_integer_sums"] = o
    o = zeros(3, 16)
    user_combine[(1,)](torch.rand(16) + 0.5, o, N=16)
    out["user_combine"] = o
    o = zeros(9, 16)
    movers[(1,)](torch.randint(-50, 50, (16,)).float(), o, N=16)
    out["movers"] = o
    o = zeros(7, 64)
    maths[(1,)](torch.randn(64), o, N=64)
    out["maths"] = o
    o, k = zeros(3, 64), zeros(2, 64, dtype=torch.int32)
    noise[(1,)](o, k, 123456789, N=64)
    out.update(noise=o, noise_bits=k)
    o = zeros(8)
    flow[(8,)](torch.linspace(-1, 1, 8), o, 11, N=8)
    out["flow"] = o
    o = zeros(7, 11)
    blocks[(1,)](torch.randn(7, 11), o, 7, 11, N=8)
    out["blocks"] = o
    return out


assert libdevice is not None
if __name__ == "__main__":
    torch.save(results(), sys.argv[1])
