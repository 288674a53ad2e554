"""Kernels whose atomics are reductions over programs, with a launch of each; and some whose atomics are more."""

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def split_k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """Tiles of c by axis 0, slices of K by axis 1."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    nt = tl.cdiv(N, BN)
    rm = (tile // nt) * BM + tl.arange(0, BM)
    rn = (tile % nt) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(part * BK, K, BK * SPLIT):
        rk = k + tl.arange(0, BK)
        ta = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        tb = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(ta, tb)
    tl.atomic_add(
        c + rm[:, None] * N + rn[None, :],
        acc,
        mask=(rm[:, None] < M) & (rn[None, :] < N),
        sem="relaxed",
    )


@triton.jit
def norm_backward(dx, dy, x, w, dw, db, mean, rstd, stride, rows, n, BLOCK: tl.constexpr):
    """Every program takes several rows; dw and db are sums over all of them."""
    col = tl.arange(0, BLOCK)
    ok = col < n
    gain = tl.load(w + col, mask=ok, other=0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        g = tl.load(dy + row * stride + col, mask=ok, other=0.0)
        hat = (tl.load(x + row * stride + col, mask=ok, other=0.0) - tl.load(mean + row)) * tl.load(rstd + row)
        hat = tl.where(ok, hat, 0.0)
        wg = gain * g
        c1 = tl.sum(hat * wg, axis=0) / n
        c2 = tl.sum(wg, axis=0) / n
        tl.store(dx + row * stride + col, (wg - hat * c1 - c2) * tl.load(rstd + row), mask=ok)
        tl.atomic_add(dw + col, g * hat, mask=ok)  # the gain's
        tl.atomic_add(db + col, g, mask=ok)


@triton.jit
def row_sums(x, out, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * n + col, mask=col < n, other=0.0)
    tl.atomic_add(out + row, tl.sum(v, axis=0))


@triton.jit
def histogram_of_blocks(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    off = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = off < n
    h = tl.histogram(tl.load(x + off, mask=ok, other=0), BINS, mask=ok)
    tl.atomic_add(out + tl.arange(0, BINS), h)


@triton.jit
def histogram_of_elements(x, out, n, BLOCK: tl.constexpr):
    off = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bin = tl.load(x + off, mask=off < n, other=0)
    tl.atomic_add(out + bin, 1, mask=off < n)


@triton.jit
def weighted_histogram(x, w, out, n, STEPS, BLOCK: tl.constexpr):
    for step in range(STEPS):
        off = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        bin = tl.load(x + off, mask=off < n, other=0)
        v = tl.load(w + off, mask=off < n, other=0.0)
        tl.atomic_add(bin + out, v, mask=off < n)


@triton.jit
def column_max(x, out, rows, n, BM: tl.constexpr, BLOCK: tl.constexpr):
    """The largest of every column."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = (i[:, None] < rows) & (col[None, :] < n)
    v = tl.load(x + i[:, None] * n + col[None, :], mask=ok, other=-(2**30))
    tl.atomic_max(out + col, tl.max(v, axis=0), mask=col < n)


@triton.jit
def groups(x, out, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Several programs share one row of out, so that all of them need a copy."""
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    tl.atomic_add(out + (row % GROUPS) * n + col, tl.load(x + row * n + col, mask=col < n), mask=col < n)


@triton.jit
def ticket(counter, out):
    mine = tl.atomic_add(counter, 1)
    tl.store(out + mine, tl.program_id(0))


@triton.jit
def adds_to_what_it_stores(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 1.0)
    tl.atomic_add(out + i, tl.load(x + i))


@triton.jit
def twice(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    tl.atomic_add(out + i, v)
    tl.atomic_add(out + i, v * v)


@triton.jit
def one_place(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i * 0, tl.load(x + tl.program_id(0) * BLOCK + i))


@triton.jit
def swapped(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    old = tl.atomic_xchg(out + i, v)
    tl.store(x + tl.program_id(0) * BLOCK + i, old)


def launches():
    """Name, kernel, arguments, constexprs, grid; outputs hold something before the launch."""
    r, ones = torch.randn, torch.ones
    yield "split-k", split_k, (r(40, 150), r(150, 50), ones(40, 50), 40, 50, 150), \
        {"BM": 16, "BN": 16, "BK": 16, "SPLIT": 3}, (12, 3)  # fmt: skip
    x = r(37, 100)
    rest = (ones(100), ones(100), x.mean(1), x.var(1).rsqrt(), 100, 37, 100)
    yield "norm-backward", norm_backward, (torch.zeros(37, 100), r(37, 100), x, r(100), *rest), {"BLOCK": 128}, (8,)
    yield "row-sums", row_sums, (r(6, 300), ones(6), 6, 300), {"BLOCK": 128}, (6, 3)
    bins = torch.randint(0, 16, (700,), dtype=torch.int32)
    yield "blocks", histogram_of_blocks, (bins, ones(16, dtype=torch.int32), 700), {"BINS": 16, "BLOCK": 256}, (3,)
    bins = torch.randint(0, 13, (700,), dtype=torch.int32)
    yield "elements", histogram_of_elements, (bins, ones(13, dtype=torch.int32), 700), {"BLOCK": 256}, (3,)
    yield "weighted", weighted_histogram, (bins, r(700), ones(13), 700, 2), {"BLOCK": 128}, (3,)
    x = torch.randint(-100, 100, (40, 100), dtype=torch.int32)
    out = torch.full((100,), -5, dtype=torch.int32)
    yield "column-max", column_max, (x, out, 40, 100), {"BM": 16, "BLOCK": 64}, (3, 2)
    yield "groups", groups, (r(12, 100), ones(4, 100), 100), {"GROUPS": 4, "BLOCK": 128}, (12,)


@triton.jit
def own_rows(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        col = start + tl.arange(0, BLOCK)
        tl.atomic_add(out + row * n + col, tl.load(x + row * n + col, mask=col < n), mask=col < n)


@triton.jit
def largest_so_far(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def apart():
    """As `launches`, for kernels in which no two programs update one place."""
    yield own_rows, (torch.randn(6, 100), torch.ones(6, 100), 100), {"BLOCK": 32}, (6,)
    x = torch.randint(-9, 9, (200,), dtype=torch.int32)
    yield largest_so_far, (x, torch.zeros(200, dtype=torch.int32), 200), {"BLOCK": 64}, (4,)


def refused():
    """As `launches`, for kernels that no rewrite is right for."""
    yield ticket, (torch.zeros(1, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)), {}, (8,)
    yield adds_to_what_it_stores, (torch.randn(128), torch.zeros(128)), {"BLOCK": 128}, (4,)
    yield one_place, (torch.randn(512), torch.zeros(128)), {"BLOCK": 128}, (4,)
    yield swapped, (torch.randn(512), torch.zeros(128)), {"BLOCK": 128}, (4,)
    yield twice, (torch.randn(512), torch.zeros(128)), {"BLOCK": 128}, (4,)
