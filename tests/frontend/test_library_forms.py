"""Forms that public kernel libraries write, each reduced to a small kernel of our own, against torch."""

import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat.descriptors import TensorDescriptor


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


@triton.jit
def turn_pairs(x, table, rows, heads, SIGN: tl.constexpr, HALF: tl.constexpr):
    pid = tl.program_id(0)
    batch, row = pid // rows, pid % rows
    if batch >= 2 or row >= rows:
        return
    d = tl.arange(0, HALF)
    pair = tl.load(table + row * 2 * HALF + d[:, None] * 2 + tl.arange(0, 2)[None, :])
    real, imaginary = tl.split(pair)
    at = x + (batch * rows + row) * heads * 2 * HALF + tl.program_id(1) * 2 * HALF + d * 2
    a, b = tl.load(at), tl.load(at + 1)
    tl.store(at, a * real - b * imaginary * SIGN)
    tl.store(at + 1, b * real + a * imaginary * SIGN)


def test_a_program_id_beside_its_quotient_and_remainder_is_both_of_them():
    table = torch.randn(5, 8, 2)
    x = torch.randn(2, 5, 3, 8, 2)
    want = torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(table)[None, :, None])
    turn_pairs[(10, 3)](x, table, 5, 3, SIGN=1, HALF=8)
    torch.testing.assert_close(x, want)
    source = turn_pairs[(10, 3)].source(x, table, 5, 3, SIGN=1, HALF=8)
    assert "clip" not in source and ".at[" not in source  # no computed index, no scatter
    assert "where(" not in source.replace("jnp.where(jnp.arange(2) ==", "")  # the early return never happens


@triton.jit
def one_column(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + 3 * i + 1, tl.load(y + i, mask=i < n), mask=i < n)


def test_a_column_of_a_narrow_array_is_written_and_nothing_else():
    x, y = torch.randn(50, 3), torch.randn(50)
    want = x.clone()
    want[:, 1] = y
    one_column[(4,)](x, y, 50, BLOCK=16)
    assert torch.equal(x, want)


@triton.jit
def uneven(out, n, SPLIT: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(out + pid, (pid // SPLIT) * 100 + (pid % SPLIT) + n * pid)


def test_quotient_and_remainder_of_a_grid_that_does_not_divide():
    out = torch.empty(10, dtype=torch.int32)
    uneven[(10,)](out, 1000, SPLIT=4)
    assert out.tolist() == [(p // 4) * 100 + p % 4 + 1000 * p for p in range(10)]


def set_blocks(named):
    named["source"].block_shape = named["target"].block_shape = [named["ROWS"], 16]


@triton.autotune([triton.Config({"ROWS": rows}, pre_hook=set_blocks) for rows in (4, 8)], key=["n"])
@triton.jit
def doubled_blocks(target, source, n, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    target.store([row, 0], source.load([row, 0]) * 2)


def test_host_descriptors_are_tuned_on_copies_and_get_their_block_from_the_configuration():
    x, y = torch.randn(16, 16), torch.zeros(16, 16)
    source, target = (TensorDescriptor.from_tensor(t, [1, 1]) for t in (x, y))
    doubled_blocks[lambda meta: (16 // meta["ROWS"],)](target, source, 16)
    assert torch.equal(y, x * 2)
    assert target.block_shape == [doubled_blocks.best_config.kwargs["ROWS"], 16]
