"""Kernels about memory whose results are compared with the real Triton interpreter's; a script writes its results.

Written against `triton` as an import, so that the same file runs on the real package and on ours. A case is a function
named ``case_...`` that gives a tensor, or a list of them.
"""

import sys
import traceback

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
def update(z, x, SEM: tl.constexpr):
    v = tl.load(x + tl.program_id(0))
    tl.atomic_add(z[0], v, sem=SEM)
    tl.atomic_max(z[1], v, sem=SEM)
    tl.atomic_min(z[2], v, sem=SEM, scope="cta")
    if v.dtype.is_int():
        tl.atomic_and(z[3], v, sem=SEM)
        tl.atomic_or(z[4], v, sem=SEM)
        tl.atomic_xor(z[5], v, sem=SEM)
        tl.atomic_xchg(z[6], v, sem=SEM)  # the interpreter has no exchange of floats


@triton.jit
def update_old(z, x, o, n):
    p = tl.program_id(0)
    v = tl.load(x + p)
    tl.store(o + p, tl.atomic_add(z[0], v))
    if v.dtype != tl.float64:  # the interpreter gives the bits of the old value as a number
        tl.store(o + n + p, tl.atomic_max(z[1], v))
        tl.store(o + 2 * n + p, tl.atomic_min(z[2], v))
    if v.dtype.is_int():
        tl.store(o + 3 * n + p, tl.atomic_and(z[3], v))
        tl.store(o + 4 * n + p, tl.atomic_or(z[4], v))
        tl.store(o + 5 * n + p, tl.atomic_xor(z[5], v))
        tl.store(o + 6 * n + p, tl.atomic_xchg(z[6], v))


def case_scalar_updates():
    out = []
    for dtype, sem in zip((*INTS, *FLOATS), (None, "relaxed", "acquire", "release", "acq_rel", None)):
        z, x = tuple(mixed(1, dtype, i) for i in range(7)), mixed(9, dtype, 6)
        update[(9,)](z, x, SEM=sem)
        out += [plain(t) for t in z]
    return out


def case_scalar_updates_with_old_values():
    out = []
    for dtype in (*INTS, *FLOATS):
        z, x, o = tuple(mixed(1, dtype, i) for i in range(7)), mixed(9, dtype, 6), mixed(63, dtype, 7)
        update_old[(9,)](z, x, o, 9)
        out += [*(plain(t) for t in z), plain(o)]
    return out


def case_extremes_of_special_floats():
    out = []
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1e-40, -1e-40]
    for first in special:
        for old in (False, True):
            z, x, o = tuple(torch.tensor([first]) for _ in range(7)), torch.tensor(special), torch.zeros(63)
            if old:
                update_old[(9,)](z, x, o, 9)
            else:
                update[(9,)](z, x, SEM=None)
            out += [*(t.view(torch.int32) for t in z[1:3]), o.view(torch.int32)[9:]]
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


# -- descriptors and block pointers ----------------------------------------------------------------------------------


@triton.jit
def moved(src, dst, offsets, M, N, PLUS: tl.constexpr):
    tl.static_assert(len(src.shape) == 2)
    tl.static_assert(src.block_shape == dst.block_shape)
    block = src.load(offsets)
    dst.store(offsets, block + PLUS)


@triton.jit
def described(ptr, M, N, BM: tl.constexpr, BN: tl.constexpr, PAD: tl.constexpr):
    return tl.make_tensor_descriptor(ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN], padding_option=PAD)


@triton.jit
def describe_and_move(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    src, dst = described(x, M, N, BM, BN, "zero"), described(o, M, N, BM, BN, "zero")
    moved(src, dst, [tl.program_id(0) * BM, tl.program_id(1) * BN], M, N, PLUS=1)


@triton.jit
def padded(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr, PAD: tl.constexpr):
    src = described(x, M, N, BM, BN, PAD)
    block = tl.load_tensor_descriptor(src, [tl.program_id(0) * BM - 4, tl.program_id(1) * BN - 4])
    i, j = tl.arange(0, BM), tl.arange(0, BN)
    place = (tl.program_id(0) * 3 + tl.program_id(1)) * BM * BN
    tl.store(o + place + i[:, None] * BN + j[None, :], block)


def case_descriptors_made_in_helpers():
    out = []
    for dtype in (torch.float32, torch.int16, torch.float16):
        x = mixed(12 * 24, dtype, 20).reshape(12, 24)
        o = torch.full_like(x, 3)
        describe_and_move[(2, 2)](x, o, 12, 24, BM=8, BN=16)
        out.append(o)
    return out


def case_descriptors_pad():
    out = []
    for pad in ("zero", "nan"):
        x, o = mixed(10 * 20, torch.float32, 21), torch.ones(6 * 64 * 2)
        padded[(2, 3)](x, o, 10, 20, BM=8, BN=8, PAD=pad)
        out.append(o)
    return out


@triton.jit
def many_dimensions(x, o, shape, strides, BLOCK: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, shape=shape, strides=strides, block_shape=BLOCK)
    rank: tl.constexpr = len(BLOCK)
    block = desc.load((1,) * (rank - 1) + (4,))
    index = tl.full(BLOCK, 0, tl.int32)
    step = 1
    for k in tl.static_range(rank - 1, -1, -1):
        lane = tl.arange(0, BLOCK[k])
        for _ in tl.static_range(k):
            lane = tl.expand_dims(lane, 0)
        for _ in tl.static_range(k + 1, rank):
            lane = tl.expand_dims(lane, -1)
        index += lane * step
        step *= BLOCK[k]
    tl.store(o + index, block)


def case_one_to_five_dimensions():
    out = []
    for rank in range(1, 6):
        shape, block = (3, 2, 3, 5, 20)[-rank:], (2, 2, 2, 4, 16)[-rank:]
        n = 1
        for size in shape:
            n *= size
        x, o = mixed(n, torch.float32, 22).reshape(shape), torch.full(block, 7.0)
        many_dimensions[(1,)](x, o, tuple(shape), tuple(x.stride()), BLOCK=block)
        out.append(o)
    return out


@triton.jit
def carried(x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = BM * tl.program_id(0)
    desc = described(x, M, N, BM, BN, "zero")
    for i in range(0, N, BN):
        if i % (3 * BN) == 0:
            desc = described(x, M, N, BM, BN, "zero")
        desc.store([row, i], desc.load([row, i]) + 10)
    n = 0
    while n < N:
        if n % (3 * BN) == 0:
            desc = described(x, M, N, BM, BN, "zero")
        desc.store([row, n], desc.load([row, n]) * 2)
        n += BN


def case_descriptors_in_loops():
    x = mixed(16 * 64, torch.float32, 23)
    carried[(2,)](x, 16, 64, BM=8, BN=16)
    return x


@triton.jit
def batched(a, b, c, B, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    start = tl.program_id(0)
    tm, tn, tk = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    tiles = B * tm * tn // P
    if start < B * tm * tn % P:
        tiles += 1
    tile, k, at, row, col = start - P, -1, 0, 0, 0
    ad = tl.make_tensor_descriptor(a + at * (M * K), [M, K], [K, 1], [BM, BK])
    bd = tl.make_tensor_descriptor(b + at * (N * K), [N, K], [K, 1], [BN, BK])
    cd = tl.make_tensor_descriptor(c + at * (M * N), [M, N], [N, 1], [BM, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tk * tiles):
        k = tl.where(k == tk - 1, 0, k + 1)
        if k == 0:
            tile += P
            at = tile // (tm * tn)
            row, col = (tile // tn) % tm * BM, tile % tn * BN
            ad = tl.make_tensor_descriptor(a + at * (M * K), [M, K], [K, 1], [BM, BK])
            bd = tl.make_tensor_descriptor(b + at * (N * K), [N, K], [K, 1], [BN, BK])
            cd = tl.make_tensor_descriptor(c + at * (M * N), [M, N], [N, 1], [BM, BN])
        acc = tl.dot(ad.load([row, k * BK]), bd.load([col, k * BK]).T, acc, input_precision="ieee")
        if k == tk - 1:
            cd.store([row, col], acc)
            acc = tl.zeros((BM, BN), tl.float32)


def case_persistent_programs_with_descriptors():
    a, b, c = mixed(2 * 32 * 48, torch.float32, 24), mixed(2 * 16 * 48, torch.float32, 25), torch.zeros(2, 32, 16)
    batched[(3,)](a, b, c, 2, 32, 16, 48, BM=16, BN=16, BK=16, P=3)
    return c


@triton.jit
def rows(x, index, o, y, X: tl.constexpr, Y: tl.constexpr, BX: tl.constexpr, BY: tl.constexpr):
    i = tl.load(index + tl.arange(0, BX))
    src = tl.make_tensor_descriptor(x, [X, Y], [Y, 1], [1, BY])
    dst = tl.make_tensor_descriptor(o, [X, Y], [Y, 1], [1, BY])
    dst.scatter(src.gather(i, y), tl.arange(0, BX), y)


def case_rows_by_number():
    out = []
    for dtype in (torch.float32, torch.int8):
        x = mixed(20 * 48, dtype, 26).reshape(20, 48)
        index = torch.tensor([3, 19, 0, 25, 7, -1, 7, 2], dtype=torch.int32)
        o = torch.full_like(x, 5)
        rows[(1,)](x, index, o, 32, X=20, Y=48, BX=8, BY=32)
        out.append(o)
    return out


@triton.jit
def host_made(src, dst, extra):
    BM: tl.constexpr = src.block_shape[0]
    BN: tl.constexpr = dst.block_shape[1]
    total = tl.zeros((BM, BN), tl.float32)
    for j in range(0, tl.cdiv(src.shape[1], BN)):
        total += src.load([tl.program_id(0) * BM, j * BN])
    dst.store([tl.program_id(0) * BM, 0], total * extra[1] + extra[0].load([0, 0]))


def case_descriptors_from_the_host():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, o, one = mixed(20 * 40, torch.float32, 27).reshape(20, 40), torch.zeros(20, 16), mixed(128, torch.float32, 28)
    src = TensorDescriptor(x, x.shape, x.stride(), [8, 16])
    dst = TensorDescriptor.from_tensor(o, [8, 16])
    host_made[(3,)](src, dst, (TensorDescriptor.from_tensor(one.reshape(8, 16), [8, 16]), 2.0))
    padded_at_host = torch.zeros(8, 16)
    nan = TensorDescriptor.from_tensor(mixed(48, torch.float32, 29).reshape(6, 8), [8, 16], padding="nan")
    host_made[(1,)](nan, TensorDescriptor.from_tensor(padded_at_host, [8, 16]), (nan, 1.0))
    return [o, padded_at_host]


@triton.jit
def block_copy(a, b, N, B: tl.constexpr, PAD: tl.constexpr, AT: tl.constexpr):
    offset = tl.program_id(0) * B
    if AT == "before":
        offset = -N
    elif AT == "behind":
        offset = N
    src = tl.make_block_ptr(a, (N // 2,), (1,), (offset,), (B,), order=(0,))
    dst = tl.make_block_ptr(base=b, shape=(N,), strides=(1,), offsets=(offset,), block_shape=(B,), order=(0,))
    if PAD is None:
        v = tl.load(src, boundary_check=(0,))
    else:
        v = tl.load(src, boundary_check=(0,), padding_option=PAD)
    tl.store(dst, v, boundary_check=(0,))


def case_block_pointers_at_the_bounds():
    out = []
    for dtype, pads in (
        (torch.bool, ("zero",)),
        (torch.int16, (None,)),
        (torch.float16, ("nan",)),
        (torch.float32, (None, "zero")),
    ):
        for pad in pads:
            for at in ("inside", "before", "behind") if dtype is torch.float16 else ("inside",):
                a, b = mixed(96, torch.int32, 31).to(dtype), torch.full((96,), 1).to(dtype)
                block_copy[(3,)](a, b, 96, B=32, PAD=pad, AT=at)
                out.append(b)
    return out


@triton.jit
def block_3d(x, o, D0, D1, D2, s0, s1, s2, B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr):
    src = tl.make_block_ptr(x, (D0, D1, D2), (s0, s1, s2), (D0 - 1, 0, D2 - 2), (B0, B1, B2), (2, 1, 0))
    dst = tl.make_block_ptr(o, (D0, D1, D2), (s0, s1, s2), (D0 - 1, 0, D2 - 2), (B0, B1, B2), (2, 1, 0))
    dst = tl.advance(tl.advance(dst, (3, -2, 1)), (-3, 2, -1))
    tl.store(dst, tl.load(src, boundary_check=(0, 2), padding_option="zero"), boundary_check=(0, 2))


def case_block_pointers_in_three_dimensions():
    x = mixed(60, torch.float32, 32).reshape(3, 4, 5)
    o = torch.zeros_like(x)
    block_3d[(1,)](x, o, 3, 4, 5, *x.stride(), B0=2, B1=4, B2=4)
    return o


@triton.jit
def block_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    ap = tl.make_block_ptr(a, (M, K), (K, 1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    bp = tl.make_block_ptr(b, (K, N), (1, K), (0, tl.program_id(1) * BN), (BK, BN), (0, 1))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x, y = tl.load(ap, boundary_check=(0, 1)), tl.load(bp, boundary_check=(1, 0))
        acc += tl.dot(x, y, input_precision="ieee")
        ap, bp = tl.advance(ap, (0, BK)), bp.advance((BK, 0))
    cp = tl.make_block_ptr(c, (M, N), (N, 1), (tl.program_id(0) * BM, tl.program_id(1) * BN), (BM, BN), (1, 0))
    tl.store(cp, acc, boundary_check=(0, 1))


def case_block_pointers_that_advance():
    a, b, c = mixed(24 * 40, torch.float32, 33), mixed(40 * 20, torch.float32, 34), torch.zeros(24, 20)
    block_matmul[(2, 2)](a, b, c, 24, 20, 40, BM=16, BN=16, BK=16)
    return c


def results():
    """Every case's tensors by name, or what went wrong."""
    found = {}
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            try:
                value = case()
                found[name] = value if isinstance(value, list) else [value]
            except Exception:
                found[name] = traceback.format_exc()
    return found


if __name__ == "__main__":
    torch.save(results(), sys.argv[1])
