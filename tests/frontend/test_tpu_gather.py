"""TPU: rows picked by numbers from memory; values on the interpreter at odd sizes, verdicts and times."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import TranslationError


@triton.jit
def lookup(ids, table, out, dim, pad, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    token = tl.load(ids + t)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(table + token * dim + col, mask=(col < dim) & (token != pad), other=0.0)
    tl.store(out + t * dim + col, row, mask=col < dim)


@triton.jit
def tile_of_rows(ids, table, out, n, dim, B: tl.constexpr, D: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    ok = (i < n)[:, None] & (d < dim)[None, :]
    token = tl.load(ids + i, mask=i < n, other=0)
    v = tl.load(table + token[:, None] * dim + d[None, :], mask=ok, other=0.0)
    tl.store(out + i[:, None] * dim + d[None, :], v * 2, mask=ok)


@triton.jit
def bag(ids, weights, table, out, dim, K: tl.constexpr, D: tl.constexpr):
    t = tl.program_id(0)
    d = tl.arange(0, D)
    acc = tl.zeros((D,), tl.float32)
    for k in range(K):
        row = tl.load(table + tl.load(ids + t * K + k) * dim + d, mask=d < dim, other=0.0)
        acc += row * tl.load(weights + t * K + k)
    tl.store(out + t * dim + d, acc, mask=d < dim)


@triton.jit
def two_tables(ids, a, b, out, dim, D: tl.constexpr):
    t = tl.program_id(0)
    d = tl.arange(0, D)
    i = tl.load(ids + t)
    x = tl.load(a + i * dim + d, mask=d < dim, other=0.0)
    y = tl.load(b + (i // 2 + 1) * dim + d, mask=(d < dim) & (i > 3), other=-1.0)
    tl.store(out + t * dim + d, x * y, mask=d < dim)


@triton.jit
def pages(ids, cache, out, H: tl.constexpr, D: tl.constexpr):
    p = tl.program_id(0)
    h = tl.arange(0, H)[:, None]
    d = tl.arange(0, D)[None, :]
    tl.store(out + p * H * D + h * D + d, tl.load(cache + tl.load(ids + p) * H * D + h * D + d))


def numbers(most, *shape):
    return torch.randint(0, most, shape, dtype=torch.int32)


r = torch.randn


def launches():
    yield "few", lookup, (numbers(37, 21), r(37, 50), r(21, 50), 50, 4), {"BLOCK": 32}, (21, 2)
    yield "steps", lookup, (numbers(9, 21), r(9, 60000), r(21, 60000), 60000, 4), {"BLOCK": 8192}, (21, 8)
    wild = numbers(37, 40)
    wild[5], wild[6] = 1 << 30, -9  # shut out by the mask: no copy may follow them
    yield "out-of-range", lookup_inside, (wild, r(37, 128), r(40, 128), 37, 128), {"BLOCK": 128}, (40,)
    half = (numbers(37, 60), r(37, 256).bfloat16(), r(60, 256).bfloat16(), 256, 4)
    yield "bf16-odd-rows", lookup, half, {"BLOCK": 128}, (60, 2)
    yield "tile", tile_of_rows, (numbers(37, 50), r(37, 200), r(50, 200), 50, 200), {"B": 32, "D": 256}, (2,)
    args = (numbers(37, 13 * 5), r(13 * 5), r(37, 200), r(13, 200), 200)
    yield "bag", bag, args, {"K": 5, "D": 256}, (13,)
    yield "two-tables", two_tables, (numbers(37, 51), r(37, 200), r(37, 200), r(51, 200), 200), {"D": 256}, (51,)
    yield "pages", pages, (numbers(37, 30), r(37, 8, 128), r(30, 8, 128)), {"H": 8, "D": 128}, (30,)


@triton.jit
def lookup_inside(ids, table, out, rows, dim, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    token = tl.load(ids + t)
    col = tl.arange(0, BLOCK)
    ok = (col < dim) & (token >= 0) & (token < rows)
    tl.store(out + t * dim + col, tl.load(table + token * dim + col, mask=ok, other=-2.0), mask=col < dim)


LAUNCHES = list(launches())


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_values_on_the_tpu_interpreter(name, kernel, args, meta, grid):
    kernel[grid].verify(*args, target="tpu:v5e", **meta)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_compiler_takes_it(name, kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    verdict = kernel[grid].check(*args, target="tpu:v5e", **meta)
    assert verdict.verdict == "ok", str(verdict)


@pytest.mark.tpu_offline
@pytest.mark.parametrize("target,best", [("tpu:v5e", 0.329), ("tpu:v6e", 0.165), ("tpu:7x", 0.073)])
def test_embedding_reaches_the_hand_written_form(target, best):
    """8192 rows of 32768 x 4096 fp32; only the rows that are copied count as traffic."""
    pytest.importorskip("libtpu")
    ids = torch.empty(8192, dtype=torch.int32, device="meta")
    table, out = torch.empty(32768, 4096, device="meta"), torch.empty(8192, 4096, device="meta")
    verdict = lookup[(8192, 4)].check(ids, table, out, 4096, 4, BLOCK=1024, target=target)
    assert verdict.verdict == "ok" and verdict.static["time_ms"] <= 1.05 * best


def test_too_many_numbers_are_refused():
    ids = torch.empty(200_000, dtype=torch.int32, device="meta")
    table, out = torch.empty(500, 128, device="meta"), torch.empty(200_000, 128, device="meta")
    with pytest.raises(TranslationError) as refused:
        lookup[(200_000, 1)].source(ids, table, out, 128, 4, BLOCK=128, target="tpu:v5e")
    assert refused.value.slug == "tpu-scalar-memory" and "token" in refused.value.where.text()
