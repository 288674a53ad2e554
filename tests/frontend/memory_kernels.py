"""Kernels about memory whose results are compared with the real Triton interpreter's; a script writes its results.

Written against `triton` as an import, so that the same file runs on the real package and on ours. A case is a function
named ``case_...`` that gives a tensor, or a list of them.
"""

import sys

import torch
import triton
import triton.language as tl

INTS = (torch.int32, torch.uint32, torch.int64, torch.uint64)
FLOATS = (torch.float32, torch.float64)


def mixed(n, dtype, seed=0):
    """Numbers of both signs where there are such, large and small, with repetitions."""
    g = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return (torch.randint(-64, 64, (n,), generator=g) / 8).to(dtype)
    if dtype in (torch.uint32, torch.uint64):
        wide = torch.randint(0, 2**31, (n,), generator=g) * 2 + 1
        return wide.to(torch.int64).view(dtype) if dtype is torch.uint64 else wide.to(torch.uint32)
    return torch.randint(-(2**30), 2**30, (n,), generator=g).to(dtype)


def plain(t):
    """The bits as something that can be compared."""
    same = {torch.uint32: torch.int32, torch.uint64: torch.int64, torch.uint16: torch.int16}
    return t.view(same[t.dtype]) if t.dtype in same else t


# -- atomics ---------------------------------------------------------------------------------------------------------


@triton.jit
def update(z, x, OP: tl.constexpr, SEM: tl.constexpr):
    v = tl.load(x + tl.program_id(0))
    if OP == "add":
        tl.atomic_add(z, v, sem=SEM)
    elif OP == "max":
        tl.atomic_max(z, v, sem=SEM)
    elif OP == "min":
        tl.atomic_min(z, v, sem=SEM)
    elif OP == "and":
        tl.atomic_and(z, v, sem=SEM)
    elif OP == "or":
        tl.atomic_or(z, v, sem=SEM)
    elif OP == "xor":
        tl.atomic_xor(z, v, sem=SEM)
    else:
        tl.atomic_xchg(z, v, sem=SEM)


@triton.jit
def update_old(z, x, o, OP: tl.constexpr):
    pid = tl.program_id(0)
    v = tl.load(x + pid)
    if OP == "add":
        old = tl.atomic_add(z, v)
    elif OP == "max":
        old = tl.atomic_max(z, v)
    elif OP == "min":
        old = tl.atomic_min(z, v)
    elif OP == "and":
        old = tl.atomic_and(z, v)
    elif OP == "or":
        old = tl.atomic_or(z, v)
    elif OP == "xor":
        old = tl.atomic_xor(z, v)
    else:
        old = tl.atomic_xchg(z, v)
    tl.store(o + pid, old)


def ops_of(dtype):  # the interpreter has no exchange of floats
    return ("add", "max", "min") if dtype.is_floating_point else ("add", "max", "min", "xchg", "and", "or", "xor")


def case_scalar_updates():
    out = []
    for k, dtype in enumerate((*INTS, *FLOATS)):
        for i, op in enumerate(ops_of(dtype)):
            if k and (i + k) % 3:
                continue
            z, x = mixed(1, dtype, 5), mixed(9, dtype, 6)
            update[(9,)](z, x, OP=op, SEM={"add": "relaxed", "max": "acquire", "min": "release"}.get(op, "acq_rel"))
            out.append(plain(z))
    return out


def case_scalar_updates_with_old_values():
    out = []
    for dtype in (*INTS, *FLOATS):
        for op in ops_of(dtype):
            if dtype is torch.float64 and op != "add":  # the interpreter gives the bits of the old value as a number
                continue
            z, x, o = mixed(1, dtype, 5), mixed(9, dtype, 6), mixed(9, dtype, 7)
            update_old[(9,)](z, x, o, OP=op)
            out += [plain(z), plain(o)]
    return out


def case_extremes_of_special_floats():
    out = []
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1e-40, -1e-40]
    for first in special:
        for op in ("max", "min"):
            for old in (False, True):
                z, x, o = torch.tensor([first]), torch.tensor(special), torch.zeros(9)
                if old:
                    update_old[(9,)](z, x, o, OP=op)
                else:
                    update[(9,)](z, x, OP=op, SEM=None)
                out += [z.view(torch.int32), o.view(torch.int32)]
    return out


@triton.jit
def tile_update(z, x, index, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    where, v = tl.load(index + i, mask=i < n, other=0), tl.load(x + i, mask=i < n)
    if OP == "add":
        old = tl.atomic_add(z + where, v, mask=i < n)
    elif OP == "max":
        old = tl.atomic_max(z + where, v, mask=i < n)
    elif OP == "min":
        old = tl.atomic_min(z + where, v, mask=i < n)
    elif OP == "xor":
        old = tl.atomic_xor(z + where, v, mask=i < n)
    elif OP == "or":
        old = tl.atomic_or(z + where, v, mask=i < n)
    else:
        old = tl.atomic_xchg(z + where, v, mask=i < n)
    tl.store(o + i, old, mask=i < n)


@triton.jit
def tile_update_quietly(z, x, index, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    where, v = tl.load(index + i, mask=i < n, other=0), tl.load(x + i, mask=i < n)
    if OP == "add":
        tl.atomic_add(z + where, v, mask=i < n)
    elif OP == "max":
        tl.atomic_max(z + where, v, mask=i < n)
    elif OP == "min":
        tl.atomic_min(z + where, v, mask=i < n)
    elif OP == "xor":
        tl.atomic_xor(z + where, v, mask=i < n)
    elif OP == "or":
        tl.atomic_or(z + where, v, mask=i < n)
    else:
        tl.atomic_xchg(z + where, v, mask=i < n)


def case_computed_places_that_meet():
    out = []
    index = torch.randint(0, 6, (50,), generator=torch.Generator().manual_seed(1))
    for dtype, ops in (
        (torch.int32, ("add", "min", "or")),
        (torch.float32, ("add", "max")),
        (torch.int64, ("xor", "xchg")),
    ):
        for op in ops:
            z, x, o = mixed(6, dtype, 2), mixed(50, dtype, 3), mixed(50, dtype, 4)
            tile_update[(4,)](z, x, index, o, 50, OP=op, B=16)
            quiet = mixed(6, dtype, 2)
            tile_update_quietly[(4,)](quiet, x, index, 50, OP=op, B=16)
            out += [z, o, quiet]
    return out


@triton.jit
def columns(z, x, rows, n, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    ok = (r[:, None] < rows) & (c[None, :] < n)
    v = tl.load(x + r[:, None] * n + c[None, :], mask=ok, other=0)
    tl.atomic_add(z + c, tl.sum(v, 0), mask=c < n)
    tl.atomic_max(z + n + c, tl.max(v, 0), mask=c < n)
    tl.atomic_xor(z + 2 * n + c, 3, mask=(c < n) & (tl.program_id(0) != 1))


def case_sums_over_programs():
    x = mixed(11 * 19, torch.int32, 8).reshape(11, 19)
    z = torch.zeros(3, 19, dtype=torch.int32)
    columns[(3, 3)](z[0], x, 11, 19, R=4, C=8)
    return z


@triton.jit
def counters(z, B: tl.constexpr):
    tl.atomic_add(z, 1)
    tl.atomic_add(z + 1 + tl.arange(0, B), 2)
    if tl.program_id(1) < 2:
        tl.atomic_add(z + B + 1, 5)
    if tl.program_id(0) == 1:
        return
    tl.atomic_add(z + B + 2, tl.program_id(1))
    for _ in range(3):
        tl.atomic_add(z + B + 3, 1)


def case_constants_once_a_program():
    z = torch.zeros(8, dtype=torch.int64)
    counters[(3, 5)](z, B=4)
    return z


@triton.jit
def compare_and_swap(z, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    zero, two = tl.full((B,), 0, tl.int64), tl.full((B,), 2, tl.int64)
    tl.store(o + i, tl.atomic_cas(z + i, zero, two, sem="acquire", scope="cta"))
    first = tl.atomic_cas(z + B * 2, tl.full((), 7, tl.int64), tl.program_id(0).to(tl.int64))
    tl.store(o + B * 2 + tl.program_id(0), first)


def case_compare_and_swap():
    z, o = torch.tensor([0, 1] * 4 + [7]), torch.full((10,), -1)
    compare_and_swap[(2,)](z, o, B=4)
    return [z, o]


@triton.jit
def locked(data, lock):
    places = data + tl.arange(0, 16)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(places, tl.load(places) * 1.5 + tl.program_id(0))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def case_a_lock():
    data, lock = torch.arange(16.0), torch.zeros(1, dtype=torch.int32)
    locked[(7,)](data, lock)
    return [data, lock]


@triton.jit
def tickets(counter, seats, B: tl.constexpr):
    seat = tl.atomic_add(counter, B)
    tl.store(seats + seat + tl.arange(0, B), tl.program_id(0) * 100 + tl.program_id(1) * 10 + tl.program_id(2))


def case_tickets_in_the_order_of_programs():
    counter, seats = torch.zeros(1, dtype=torch.int32), torch.full((48,), -1, dtype=torch.int32)
    tickets[(2, 3, 4)](counter, seats, B=2)
    return [counter, seats]


@triton.jit
def last_one_sums(x, partial, count, total, n, B: tl.constexpr, P: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    tl.store(partial + pid, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
    done = tl.atomic_add(count, 1)
    if done == tl.num_programs(0) - 1:
        lane = tl.arange(0, P)
        tl.store(total, tl.sum(tl.load(partial + lane, mask=lane < tl.num_programs(0), other=0.0), 0))


def case_the_last_program_combines():
    x, partial, total = mixed(100, torch.float32, 9), torch.zeros(7), torch.zeros(1)
    count = torch.zeros(1, dtype=torch.int32)
    last_one_sums[(7,)](x, partial, count, total, 100, B=16, P=8)
    return [partial, count, total]


@triton.jit
def chained_scan(x, o, flag, n, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    ready = tl.atomic_add(flag + 2 * pid, 0)
    while ready == 0 and pid > 0:
        ready = tl.atomic_add(flag + 2 * pid, 0)
    before = tl.load(flag + 2 * pid + 1)
    s = tl.cumsum(v, 0) + before
    tl.store(o + i, s, mask=i < n)
    tl.store(flag + 2 * pid + 3, before + tl.sum(v, 0))
    tl.atomic_xchg(flag + 2 * pid + 2, 1)


def case_a_scan_that_waits_for_its_neighbour():
    x = mixed(75, torch.int32, 10) // 1000
    o, flag = torch.zeros_like(x), torch.zeros(12, dtype=torch.int32)
    chained_scan[(5,)](x, o, flag, 75, B=16)
    return [o, flag]


@triton.jit
def split_k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * SPLIT):
        kk = k + tl.arange(0, BK)
        ta = tl.load(a + m[:, None] * K + kk[None, :], mask=(m[:, None] < M) & (kk[None, :] < K), other=0.0)
        tb = tl.load(b + kk[:, None] * N + n[None, :], mask=(kk[:, None] < K) & (n[None, :] < N), other=0.0)
        acc += tl.dot(ta, tb, input_precision="ieee")
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def case_split_k():
    a, b, c = mixed(24 * 70, torch.float32, 11), mixed(70 * 20, torch.float32, 12), mixed(480, torch.float32, 13)
    split_k[(2, 2, 3)](a, b, c, 24, 20, 70, BM=16, BN=16, BK=16, SPLIT=3)
    return c


def results():
    """Every case's tensors by name."""
    found = {name: fn() for name, fn in list(globals().items()) if name.startswith("case_")}
    return {name: value if isinstance(value, list) else [value] for name, value in found.items()}


if __name__ == "__main__":
    torch.save(results(), sys.argv[1])
