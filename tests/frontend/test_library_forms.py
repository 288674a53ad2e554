"""Forms that public kernel libraries write, each reduced to a small kernel of our own, against torch."""

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.jit
def grouped_sums(sums, lanes, x, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    total = 0.0
    squares = 0.0
    acc = tl.zeros((BLOCK,), tl.float32)
    for row in range(g * ROWS, (g + 1) * ROWS):
        for i in tl.range(0, n, BLOCK):
            at = i + tl.arange(0, BLOCK)
            v = tl.load(x + row * n + at, mask=at < n, other=0.0)
            total += tl.sum(v)
            squares += tl.sum(v * v)
            acc += v
    tl.store(sums + 2 * g, total)
    tl.store(sums + 2 * g + 1, squares)
    tl.store(lanes + g * BLOCK + tl.arange(0, BLOCK), acc)


def test_totals_that_go_through_an_inner_loop_are_sums():
    x, sums, lanes = torch.randn(6, 50), torch.empty(2, 2), torch.empty(2, 16)
    grouped_sums[(2,)](sums, lanes, x, 50, ROWS=3, BLOCK=16)
    want = x.double().view(2, -1)
    torch.testing.assert_close(sums.double(), torch.stack([want.sum(1), want.square().sum(1)], 1), rtol=1e-5, atol=1e-5)
    padded = torch.nn.functional.pad(x.double(), (0, 14)).view(2, 3, 4, 16)
    torch.testing.assert_close(lanes.double(), padded.sum((1, 2)), rtol=1e-5, atol=1e-5)
    source = grouped_sums[(2,)].source(sums, lanes, x, 50, ROWS=3, BLOCK=16)
    assert "fori_loop" not in source  # neither loop is left


@triton.jit
def looked_at(out, seen, x, ROWS: tl.constexpr, STEPS: tl.constexpr):
    total = 0
    for row in range(ROWS):
        for i in range(STEPS):
            total += tl.load(x + row * STEPS + i)
            tl.store(seen + row * STEPS + i, total)
    tl.store(out, total)


def test_a_total_that_is_looked_at_on_the_way_stays_a_total():
    x = torch.randint(-100, 100, (3, 4), dtype=torch.int32)
    out, seen = torch.empty(1, dtype=torch.int32), torch.empty(12, dtype=torch.int32)
    looked_at[(1,)](out, seen, x, ROWS=3, STEPS=4)
    assert torch.equal(seen, x.flatten().cumsum(0).to(torch.int32))
    assert out.item() == x.sum().item()


@triton.jit
def roles(partial, starts, ends, counts, n, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    if pid < COUNT:
        c = tl.load(partial + pid * n + i, mask=i < n, other=0)
        tl.store(partial + pid * n + i, tl.cumsum(c, 0) - c, mask=i < n)
    elif pid == COUNT:
        c = tl.load(counts + i, mask=i < COUNT, other=0)
        tl.store(starts + i, tl.cumsum(c, 0) - c, mask=i < COUNT)
        tl.store(ends, 1)
    elif pid == COUNT + 1:
        tl.store(starts + COUNT, 77)


def test_programs_with_roles_all_run_though_the_first_role_has_a_bound():
    partial = torch.randint(0, 9, (5, 6), dtype=torch.int32)
    counts = torch.tensor([3, 1, 4, 1, 5], dtype=torch.int32)
    want = partial.cumsum(1) - partial
    starts, ends = torch.zeros(6, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    roles[(7,)](partial, starts, ends, counts, 6, COUNT=5, BLOCK=8)
    assert torch.equal(partial, want.to(torch.int32))
    assert starts.tolist() == [0, 3, 4, 8, 9, 77]
    assert ends.tolist() == [1]


@triton.jit
def first_program_counts(out, total, x, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    if pid == 0:
        tl.store(total, n)


def test_a_store_of_one_program_beside_those_of_all():
    x, out, total = torch.randn(100), torch.zeros(100), torch.zeros(1, dtype=torch.int32)
    first_program_counts[(4,)](out, total, x, 100, BLOCK=32)
    assert torch.equal(out, x * 2) and total.item() == 100
