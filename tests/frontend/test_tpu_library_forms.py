"""What libraries' kernels do, on a TPU: values against the CPU form and torch, verdicts of the compiler."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit(non_power_of_two=True)
def turn(q, cos, sin, stride, length, shared, heads, D: tl.constexpr, H: tl.constexpr):
    """Programs are numbered over sequences and positions; the angles ask for the position alone."""
    pid = tl.program_id(0).to(tl.int64)
    at = pid % length
    row = tl.where(shared == 1, at * D, (pid // length) * (length * D) + at * D)
    h, d = tl.arange(0, H)[:, None], tl.arange(0, D // 2)
    c, s = tl.load(cos + row + d), tl.load(sin + row + d)
    lo = q + pid * stride + h * D + d[None, :]
    a = tl.load(lo, mask=h < heads, other=0.0)
    b = tl.load(lo + D // 2, mask=h < heads, other=0.0)
    tl.store(lo, a * c - b * s, mask=h < heads)
    tl.store(lo + D // 2, b * c + a * s, mask=h < heads)


@triton.jit(non_power_of_two=True)
def moments(x, o, n, rows, share, W: tl.constexpr):
    """Each program sums over rows of its own and stores several numbers side by side."""
    pid = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, W)
    first = second = 0.0
    for i in range(pid * share, min((pid + 1) * share, rows)):
        v = tl.load(x + i * n + col, mask=col < n, other=0.0)
        first += tl.sum(v)
        second += tl.sum(v * v)
    tl.store(o + pid * 3 + 0, first)
    tl.store(o + pid * 3 + 1, second)
    tl.store(o + pid * 3 + 2, second - first)


@triton.jit
def gains(x, dy, dx, dg, rows, n, W: tl.constexpr):
    """Programs take every so-manieth row, counted in 64 bits."""
    first = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, W)
    total = tl.zeros([W], tl.float32)
    for row in range(first, rows, tl.num_programs(0)):
        v = tl.load(x + row * n + col, mask=col < n, other=0.0)
        g = tl.load(dy + row * n + col, mask=col < n, other=0.0)
        total += g * v
        tl.store(dx + row * n + col, g * (1.0 - v * v), mask=col < n)
    tl.store(dg + first * n + col, total, mask=col < n)


@triton.jit
def exponentials(x, sums, extremes, rows, n, W: tl.constexpr):
    """What a row that is not there would add is no zero."""
    pid = tl.program_id(0)
    col = tl.arange(0, W)
    acc, most = tl.zeros([W], tl.float32), -float("inf")
    for r in range(rows):
        v = tl.load(x + (pid * rows + r) * n + col, mask=col < n, other=0.0).to(tl.float32)
        acc += tl.exp(v)
        most = tl.maximum(most, tl.max(tl.where(col < n, v, -float("inf"))))
    tl.store(sums + pid * n + col, acc, mask=col < n)
    tl.store(extremes + pid, most)


@triton.jit
def product(x, y, o, n, M: tl.constexpr, K: tl.constexpr):
    """Both operands are computed, and neither is zero where the array ends."""
    i = tl.arange(0, M)
    acc = tl.zeros([M, M], tl.float32)
    for first in range(0, n, K):
        k = first + tl.arange(0, K)
        a = tl.load(x + i[:, None] * n + k[None, :], mask=k[None, :] < n, other=-float("inf"))
        b = tl.load(y + k[:, None] * M + i[None, :], mask=k[:, None] < n, other=0.0)
        acc += tl.dot(tl.exp(a), b + 1.0)
    tl.store(o + i[:, None] * M + i[None, :], acc)


@triton.jit
def classes(x, y, loss, stride, n, skipped, B: tl.constexpr):
    """Cross entropy with its gradient in place of the logits; one element is corrected behind the loop."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(y + row)
    x += row * stride
    if label == skipped:
        for i in range(0, n, B):
            col = i + tl.arange(0, B)
            tl.store(x + col, 0.0, mask=col < n)
        return
    here = tl.load(x + label).to(tl.float32)
    m, d = -float("inf"), 0.0
    for i in range(0, n, B):
        col = i + tl.arange(0, B)
        v = tl.load(x + col, mask=col < n, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(v))
        d = d * tl.exp(m - top) + tl.sum(tl.exp(v - top))
        m = top
    for i in range(0, n, B):
        col = i + tl.arange(0, B)
        v = tl.load(x + col, mask=col < n, other=-float("inf")).to(tl.float32)
        tl.store(x + col, tl.exp(v - m) / d, mask=col < n)
    tl.store(x + label, tl.exp(here - m) / d - 1.0)
    tl.store(loss + row, m + tl.log(d) - here)


@triton.jit
def distances(p, q, y, grad, loss, stride, n, skipped, B: tl.constexpr):
    """One loop clears what another one fills; they share their lanes."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, B)
    p, q, grad = p + row * stride, q + row * stride, grad + row * stride
    if tl.load(y + row) == skipped:
        for i in range(0, n, B):
            tl.store(grad + i + lane, 0.0, mask=i + lane < n)
        return
    total = 0.0
    for i in range(0, n, B):
        at = i + lane
        a, b = tl.load(p + at, mask=at < n, other=0.0), tl.load(q + at, mask=at < n, other=0.0)
        tl.store(grad + at, tl.where(a > b, 0.5, -0.5), mask=at < n)
        total += tl.sum(tl.abs(a - b), axis=0)
    tl.store(loss + row, total)


@triton.jit
def weighted(x, y, w, o, n, B: tl.constexpr):
    """A table that every program picks from, and goes over; and extremes over lanes and iterations."""
    row = tl.program_id(0)
    weight, most, least, total = tl.load(w + tl.load(y + row)), -float("inf"), float("inf"), 0.0
    for i in range(0, n, B):
        at = i + tl.arange(0, B)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0)
        total += tl.sum(v * tl.load(w + at, mask=at < n, other=0.0))
        most = tl.maximum(most, tl.max(tl.where(at < n, v, -float("inf"))))
        least = tl.minimum(least, tl.min(tl.where(at < n, v, float("inf"))))
    tl.store(o + row * 3, total * weight)
    tl.store(o + row * 3 + 1, most)
    tl.store(o + row * 3 + 2, least)


@triton.jit
def energies(x, r, o, n, B: tl.constexpr):
    """A sum in bf16 is rounded before it is squared in fp32."""
    row, col = tl.program_id(0), tl.arange(0, B)
    s = tl.load(x + row * n + col, mask=col < n, other=0.0) + tl.load(r + row * n + col, mask=col < n, other=0.0)
    wide = s.to(tl.float32)
    tl.store(o + row, tl.sum(wide * wide))


def turned(q, cos, sin, shared):
    c, s = (t.repeat(q.shape[0] if shared else 1, 1).reshape(q.shape[0], q.shape[1], 1, -1) for t in (cos, sin))
    half = q.shape[-1] // 2
    a, b, c, s = q[..., :half], q[..., half:], c[..., :half], s[..., :half]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


@pytest.mark.parametrize("shared", [True, False])
def test_angles_of_a_position(shared):
    batch, length, heads, width = 3, 5, 3, 24
    q = torch.randn(batch, length, heads, width)
    cos, sin = (torch.randn(length if shared else batch * length, width) for _ in range(2))
    args = (q, cos, sin, heads * width, length, 1 if shared else batch, heads)
    want = turned(q, cos, sin, shared)
    turn[(batch * length,)].verify(*args, D=width, H=4, target="tpu:v5e", reference={"q": want})


@pytest.mark.parametrize("programs", [1, 4])
def test_numbers_side_by_side(programs):
    rows, n = 13, 77
    x, share = torch.randn(rows, n), -(-rows // programs)
    parts = [p.sum() for p in x.split(share)], [(p * p).sum() for p in x.split(share)]
    want = torch.stack([torch.stack(parts[0]), torch.stack(parts[1]), torch.stack(parts[1]) - torch.stack(parts[0])], 1)
    moments[(programs,)].verify(
        x, torch.empty(programs, 3), n, rows, share, W=128, target="tpu:v5e", reference={"o": want}, atol=1e-5
    )


def test_rows_counted_in_64_bits():
    rows, n, programs = 13, 77, 4
    x, dy = torch.randn(rows, n), torch.randn(rows, n)
    sums = torch.stack([(x * dy)[p::programs].sum(0) for p in range(programs)])
    args = (x, dy, torch.empty(rows, n), torch.empty(programs, n), rows, n)
    gains[(programs,)].verify(*args, W=128, target="tpu:v5e", reference={"dx": dy * (1 - x * x), "dg": sums}, atol=1e-5)


@pytest.mark.parametrize("programs,rows,dtype", [(1, 9001, torch.float32), (13, 700, torch.bfloat16)])
def test_sums_over_rows_that_fill_no_block(programs, rows, dtype):
    x = -torch.rand(programs, rows, 130).to(dtype)
    want = {"sums": x.float().exp().sum(1), "extremes": x.float().amax((1, 2))}
    outs = torch.empty(programs, 130), torch.empty(programs)
    args = (x, *outs, rows, 130)
    assert "lax.broadcasted_iota" in exponentials[(programs,)].source(*args, W=256, target="tpu:v5e")
    exponentials[(programs,)].verify(*args, W=256, target="tpu:v5e", reference=want, rtol=1e-4)


def test_products_over_lanes_that_fill_no_block():
    x, y, n = torch.randn(32, 1300), torch.randn(1300, 32), 1300
    args = (x, y, torch.empty(32, 32), n)
    product[(1,)].verify(*args, M=32, K=64, target="tpu:v5e", reference={"o": x.exp() @ (y + 1)}, rtol=1e-4)


@pytest.mark.parametrize(
    "rows,n,block,dtype", [(13, 301, 512, torch.float32), (37, 301, 128, torch.bfloat16), (1, 77, 128, torch.float32)]
)
def test_one_element_of_a_row_is_stored(rows, n, block, dtype):
    logits, labels = torch.randn(rows, n).to(dtype), torch.randint(0, n, (rows,))
    labels[3:4] = -100
    exact = logits.double().requires_grad_()
    losses = torch.nn.functional.cross_entropy(exact, labels, ignore_index=-100, reduction="none")
    losses.sum().backward()
    close = {"rtol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    args = (logits, labels.int(), torch.zeros(rows), n, n, -100)
    want = {"x": exact.grad.to(dtype), "loss": losses.detach().float()}
    classes[(rows,)].verify(*args, B=block, target="tpu:v5e", reference=want, **close)


def test_every_sum_in_bf16_is_rounded():
    x, r = torch.randn(13, 77).bfloat16(), torch.randn(13, 77).bfloat16()
    want = {"o": (x + r).float().square().sum(1)}
    energies[(13,)].verify(x, r, torch.empty(13), 77, B=128, target="tpu:v5e", reference=want)


@pytest.mark.parametrize("rows,n,block", [(13, 301, 512), (37, 1301, 128)])
def test_weights_of_labels(rows, n, block):
    x, w, labels = -torch.rand(rows, n), torch.rand(n), torch.randint(0, n, (rows,), dtype=torch.int32)
    x[2, 5] = torch.nan  # which tl.max leaves out; its row's total is NaN
    low, high = x.nan_to_num(1.0).amin(1), x.nan_to_num(-2.0).amax(1)
    want = torch.stack([(x * w).sum(1) * w[labels.long()], high, low], 1)
    args = (x, labels, w, torch.empty(rows, 3), n)
    weighted[(rows,)].verify(*args, B=block, target="tpu:v5e", reference={"o": want})


@pytest.mark.parametrize("rows,n,block", [(13, 301, 512), (37, 301, 128)])
def test_loops_that_share_their_lanes(rows, n, block):
    p, q, labels = torch.randn(rows, n), torch.randn(rows, n), torch.randint(0, 3, (rows,), dtype=torch.int32)
    kept = (labels != 1).float()[:, None]
    want = {"grad": torch.where(p > q, 0.5, -0.5) * kept, "loss": (p - q).abs().sum(1) * kept[:, 0]}
    args = (p, q, labels, torch.zeros(rows, n), torch.zeros(rows), n, n, 1)
    distances[(rows,)].verify(*args, B=block, target="tpu:v5e", reference=want)


@triton.jit
def added(x, b, o, n, columns, B: tl.constexpr):
    """A flat launch: what is added is the column's, or the row's."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    by_column = tl.load(b + at % columns, mask=at < n)
    by_row = tl.load(b + at // columns, mask=at < n)
    tl.store(o + at, tl.load(x + at, mask=at < n) + by_column * 2 + by_row, mask=at < n)


@pytest.mark.parametrize("rows,n,block", [(10, 770, 1024), (16, 1024, 256), (3, 5, 16)])
def test_flat_launches_pick_by_column_and_by_row(rows, n, block):
    x, b = torch.randn(rows, n), torch.randn(n)
    args = (x, b, torch.empty(rows, n), x.numel(), n)
    want = {"o": x + b * 2 + b[:rows, None]}
    added[(triton.cdiv(x.numel(), block),)].verify(*args, B=block, target="tpu:v5e", reference=want)


@pytest.mark.tpu_offline
@pytest.mark.parametrize(
    "kernel,args,meta,grid",
    [
        (turn, [(4, 64, 8, 128), (64, 128), (64, 128), 1024, 64, 1, 8], {"D": 128, "H": 8}, (256,)),
        (exponentials, [(13, 700, 130), (13, 130), (13,), 700, 130], {"W": 256}, (13,)),
        (classes, [(64, 3200), (64,), (64,), 3200, 3200, -100], {"B": 4096}, (64,)),
        (moments, [(13, 77), (1, 3), 77, 13, 13], {"W": 128}, (1,)),
        (moments, [(13, 77), (4, 3), 77, 13, 4], {"W": 128}, (4,)),
        (gains, [(13, 77), (13, 77), (13, 77), (4, 77), 13, 77], {"W": 128}, (4,)),
    ],
    ids=["turn", "exponentials", "classes", "moments-1", "moments", "gains"],
)
def test_the_compiler_takes_it(kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    tensors = [torch.empty(a, device="meta") if isinstance(a, tuple) else a for a in args]
    if kernel is classes:
        tensors[1] = tensors[1].to(torch.int32)
    verdict = kernel[grid].check(*tensors, target="tpu:v5e", **meta)
    assert verdict.verdict == "ok", str(verdict)
