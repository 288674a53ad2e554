"""TPU: kernels that loaded numbers steer, one program at a time; values on the interpreter, verdicts."""

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def segment_mean(vals, offs, out, dim, BR: tl.constexpr, BD: tl.constexpr):
    seg = tl.program_id(0)
    begin = tl.load(offs + seg)
    end = tl.load(offs + seg + 1)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    acc = tl.zeros((BD,), tl.float32)
    for r0 in range(begin, end, BR):
        r = r0 + tl.arange(0, BR)
        t = tl.load(vals + r[:, None] * dim + d[None, :], mask=(r[:, None] < end) & (d[None, :] < dim), other=0.0)
        acc += tl.sum(t.to(tl.float32), axis=0)
    tl.store(out + seg * dim + d, acc / tl.maximum(end - begin, 1), mask=d < dim)


@triton.jit
def bisect(table, query, out, n):
    pid = tl.program_id(0)
    key = tl.load(query + pid)
    lo = 0
    hi = n
    while lo < hi:
        mid = (lo + hi) // 2
        if tl.load(table + mid) < key:
            lo = mid + 1
        else:
            hi = mid
    tl.store(out + pid, lo)


@triton.jit
def walk_links(links, start, count, out, limit, ROWS: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    at = tl.load(start + row * ROWS + column)
    steps = 0
    while (at >= 0) & (steps < limit):
        at = tl.load(links + at)
        steps += 1
    tl.store(count + row * ROWS + column, steps)
    if steps > 2:
        tl.store(out + row * ROWS + column, at)


def offsets(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


r = torch.randn


def launches():
    few = offsets([3, 0, 17, 8, 1])
    yield "few", segment_mean, (r(29, 20), few, r(5, 20), 20), {"BR": 4, "BD": 16}, (5, 2)
    args = (r(290, 200), offsets([30, 0, 101, 159]), r(4, 200), 200)
    yield "segments", segment_mean, args, {"BR": 16, "BD": 128}, (4, 2)
    args = (r(53, 40).bfloat16(), offsets([7, 30, 16]), r(3, 40), 40)
    yield "segments-bf16", segment_mean, args, {"BR": 8, "BD": 64}, (3, 1)
    table = torch.sort(r(100)).values
    keys = torch.cat([r(20), table[:1], table[-1:], table[-1:] + 1])
    yield "bisect", bisect, (table, keys, torch.empty(23, dtype=torch.int32), 100), {}, (23,)
    links = torch.randint(-1, 50, (50,), dtype=torch.int32)
    starts = torch.randint(0, 50, (4, 3), dtype=torch.int32)
    args = (links, starts, torch.zeros(4, 3, dtype=torch.int32), torch.full((4, 3), -7, dtype=torch.int32), 9)
    yield "links", walk_links, args, {"ROWS": 3}, (4, 3)


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


def test_copies_run_a_turn_ahead():
    _, kernel, args, meta, grid = LAUNCHES[1]
    source = kernel[grid].source(*args, target="tpu:v5e", **meta)
    assert "fetch_vals(r0 + 1, 1 - slot).start()" in source
