"""Atomic additions beside stores: on a TPU, sums over the innermost axes of the grid."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import TranslationError
from frontend_triton_compat.offline import translate
from tests.frontend.on_tpu import against_cpu, results


@triton.jit
def weights(dx, dw, x, w, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v * tl.load(w + c, mask=c < n, other=0.0), mask=c < n)
    tl.atomic_add(dw + c, v * 2, mask=c < n)


@triton.jit
def rows_of_parts(dx, dh, x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a, b = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (a[:, None] < M) & (b[None, :] < N)
    v = tl.load(x + a[:, None] * N + b[None, :], mask=inside, other=0.0)
    tl.store(dx + a[:, None] * N + b[None, :], v * 2, mask=inside)
    tl.atomic_add(dh + a, tl.sum(v, axis=1), mask=a < M)


@triton.jit
def loss(dx, total, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(dx + i, v * 2, mask=i < n)
    tl.atomic_add(total, tl.sum(v * v))


@triton.jit
def counted(dx, count, some, x, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v + 1, mask=c < n)
    tl.atomic_add(count, 1)
    if r % 3 == 1:
        tl.atomic_add(some + c, v, mask=c < n)


@triton.jit
def unused_axis(dx, dw, x, n, W: tl.constexpr):
    r, c = tl.program_id(1), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v * 2, mask=c < n)
    tl.atomic_add(dw + c, v, mask=c < n)


@triton.jit
def turned(dx, dw, x, n, H: tl.constexpr, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v * 2, mask=c < n)
    tl.atomic_add(dw + (r % H) * n + c, v, mask=c < n)


@triton.jit
def parts_of_one(dx, dh, x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a, b = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (a[:, None] < M) & (b[None, :] < N)
    for s in tl.static_range(2):
        v = tl.load(x + (a[:, None] * 2 + s) * N + b[None, :], mask=inside, other=0.0)
        tl.store(dx + (a[:, None] * 2 + s) * N + b[None, :], v * 2, mask=inside)
        tl.atomic_add(dh + a * 2 + s, tl.sum(v, axis=1), mask=a < M)


@triton.jit
def swept(dx, dw, total, x, rows, n, EACH: tl.constexpr, W: tl.constexpr):
    first, c = tl.program_id(0) * EACH, tl.arange(0, W)
    acc = tl.zeros((W,), tl.float32)
    for r in range(first, min(first + EACH, rows)):
        v = tl.load(x + r * n + c, mask=c < n, other=0.0)
        tl.store(dx + r * n + c, v * 2, mask=c < n)
        tl.atomic_add(dw + c, v, mask=c < n)
        acc += v * v
    tl.store(total + tl.program_id(0) * n + c, acc, mask=c < n)


@triton.jit
def running(dx, dw, x, rows, n, W: tl.constexpr):
    p, c = tl.program_id(0), tl.arange(0, W)
    state = tl.zeros((W,), tl.float32)
    for r in range(rows):
        state = state * 0.5 + tl.load(x + (p * rows + r) * n + c, mask=c < n, other=0.0)
        tl.store(dx + (p * rows + r) * n + c, state, mask=c < n)
        tl.atomic_add(dw + c, state, mask=c < n)


@triton.jit
def product(out, bias, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(left, right, input_precision="ieee")
    tl.store(out + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))
    tl.atomic_add(bias + rn, tl.sum(acc, axis=0), mask=rn < N)


@triton.jit
def same_place(dx, total, x, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v, mask=c < n)
    tl.atomic_add(total + r + c * 0, v, mask=c < n)


def launches():
    torch.manual_seed(0)
    r, z = torch.randn, torch.zeros
    yield weights, (z(37, 300), r(300), r(37, 300), r(300), 300), {"W": 512}, (37,)
    yield weights, (z(3001, 300), r(300), r(3001, 300), r(300), 300), {"W": 512}, (3001,)
    yield rows_of_parts, (z(70, 300), r(70), r(70, 300), 70, 300), {"BM": 16, "BN": 128}, (5, 3)
    yield loss, (z(7000), r(1), r(7000), 7000), {"BLOCK": 1024}, (7,)
    yield counted, (z(3001, 130), torch.ones(1, dtype=torch.int32), r(130), r(3001, 130), 130), {"W": 256}, (3001,)
    yield unused_axis, (z(9, 130), r(130), r(9, 130), 130), {"W": 256}, (5, 9)
    yield turned, (z(60, 130), r(4, 130), r(60, 130), 130), {"H": 4, "W": 256}, (60,)
    yield parts_of_one, (z(70, 2, 256), r(70, 2), r(70, 2, 256), 70, 256), {"BM": 16, "BN": 128}, (5, 2)
    yield swept, (z(21, 130), r(130), z(3, 130), r(21, 130), 21, 130), {"EACH": 7, "W": 256}, (3,)
    yield running, (z(12, 130), r(130), r(12, 130), 4, 130), {"W": 256}, (3,)
    sizes = {"BM": 32, "BN": 128, "BK": 128}
    yield product, (z(70, 300), r(300), r(70, 260), r(260, 300), 70, 300, 260), sizes, (3, 3)
    yield same_place, (z(9, 130), r(9), r(9, 130), 130), {"W": 256}, (9,)


LAUNCHES = list(launches())


@pytest.mark.parametrize("kernel,args,meta,grid", LAUNCHES, ids=[x[0].fn.__name__ for x in LAUNCHES])
def test_the_sums_are_the_cpu_forms(kernel, args, meta, grid):
    against_cpu(kernel, args, meta, grid)


def test_sums_of_16_bit_numbers_round_once_a_step():
    dx, x = torch.zeros(21, 200).bfloat16(), torch.randn(21, 200).bfloat16()
    dw, w = torch.randn(200).bfloat16(), torch.randn(200).bfloat16()
    want = dw.double() + 2 * x.double().sum(0)
    got = results(weights, (dx, dw, x, w, 200), {"W": 256}, (21,))["dw"].double()
    torch.testing.assert_close(got, want, rtol=2**-8, atol=2**-8)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name", ["weights", "rows_of_parts", "swept", "product"])
def test_the_compiler_takes_them(name):
    kernel, args, meta, grid = next(x for x in reversed(LAUNCHES) if x[0].fn.__name__ == name)
    verdict = kernel[grid].check(*args, **meta, target="tpu:v5e")
    assert verdict.verdict == "ok", verdict.message


@triton.jit
def sums_alone(dw, x, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    tl.atomic_add(dw + c, tl.load(x + r * n + c, mask=c < n, other=0.0), mask=c < n)


@triton.jit
def looked_at(dx, order, x, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    tl.store(dx + r * n + c, tl.load(x + r * n + c, mask=c < n), mask=c < n)
    tl.store(order + 1 + r, tl.atomic_add(order, 1))


@triton.jit
def overlapping(dx, dw, x, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v, mask=c < n)
    tl.atomic_add(dw + r + c, v, mask=c < n)


@triton.jit
def where_told(dx, bins, x, at, n, W: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, W)
    v = tl.load(x + r * n + c, mask=c < n, other=0.0)
    tl.store(dx + r * n + c, v, mask=c < n)
    tl.atomic_add(bins + tl.load(at + r), tl.sum(v))


@triton.jit
def crossed(dx, rows, columns, x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a, b = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    v = tl.load(x + a[:, None] * N + b[None, :])
    tl.store(dx + a[:, None] * N + b[None, :], v)
    tl.atomic_add(rows + a, tl.sum(v, axis=1))
    tl.atomic_add(columns + b, tl.sum(v, axis=0))


@pytest.mark.parametrize(
    "kernel,shapes,more,meta,grid",
    [
        (sums_alone, [(130,), (9, 130)], (130,), {"W": 256}, (9,)),
        (overlapping, [(9, 130), (140,), (9, 130)], (130,), {"W": 256}, (9,)),
        (crossed, [(4096, 4096), (4096,), (4096,), (4096, 4096)], (4096, 4096), {"BM": 128, "BN": 128}, (32, 32)),
    ],
    ids=["nothing is stored", "places overlap", "a sum along each axis"],
)
def test_what_is_no_sum_over_inner_axes_is_refused(kernel, shapes, more, meta, grid):
    with pytest.raises(TranslationError, match="TPB231"):
        translate(kernel, [*(torch.zeros(s) for s in shapes), *more], meta, grid, "tpu:v5e")


def test_atomics_that_are_more_are_refused():
    x, ids = torch.zeros(9, 130), torch.zeros(9, dtype=torch.int32)
    for kernel, args in ((looked_at, (x, torch.zeros(10, dtype=torch.int32), x, 130)),
                         (where_told, (x, torch.zeros(40), x, ids, 130))):  # fmt: skip
        with pytest.raises(TranslationError, match="TPB231"):
            translate(kernel, args, {"W": 256}, (9,), "tpu:v5e")


@triton.jit
def two_passes(dx, dy, dw, x, rows, n, W: tl.constexpr):
    p, c = tl.program_id(0), tl.arange(0, W)
    first, second = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for r in range(0, rows):
        v = tl.load(x + (p * rows + r) * n + c, mask=c < n, other=0.0)
        tl.store(dx + (p * rows + r) * n + c, v * 2, mask=c < n)
        first += v
    for r in range(0, rows):
        v = tl.load(x + (p * rows + r) * n + c, mask=c < n, other=0.0)
        tl.store(dy + (p * rows + r) * n + c, v * 3, mask=c < n)
        second += v * v
    tl.store(dw + p * n + c, first + second, mask=c < n)


def test_loops_that_store_and_sum_one_after_the_other_see_all_rows():
    args = (torch.zeros(4096, 300), torch.zeros(4096, 300), torch.zeros(2, 300), torch.randn(4096, 300), 2048, 300)
    against_cpu(two_passes, args, {"W": 512}, (2,), rtol=1e-4, atol=2e-3)
