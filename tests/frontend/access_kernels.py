"""Loads and stores whose results are compared with the real Triton interpreter's; a script writes its results.

Written against `triton` as an import, so that the same file runs on the real package and on ours. A case is a function
named ``case_...`` that gives a tensor, or a list of them. Several of the kernels race, as Triton sees it: their
programs touch each other's elements, and the interpreter's order decides.
"""

import sys
import traceback

import torch
import triton
import triton.language as tl

KINDS = (torch.bool, torch.int8, torch.int16, torch.int64, torch.uint8, torch.float16, torch.float64, torch.float32)


@triton.jit
def constants(o, n, B: tl.constexpr, WHAT: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if WHAT == "value":
        value = 1
        v = tl.full([B], value=value, dtype=value.dtype)
        mask = at < n
    else:
        v = at < n
        mask = False
    for k in tl.static_range(len(o)):
        tl.store(o[k] + at, v, mask=mask)


def case_constants():
    out = []
    for what in ("value", "mask"):
        o = tuple(torch.zeros(16, dtype=dtype) for dtype in KINDS)
        constants[(1,)](o, 11, B=16, WHAT=what)
        out += o
    return out


@triton.jit
def masked(x, o, n: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    for k in tl.static_range(len(x)):
        tl.store(o[k] + i, tl.load(x[k] + i, mask=i < n, other=0))
        tl.store(o[k] + B + i, tl.load(x[k] + i, mask=i < n, other=1))
        tl.store(o[k] + 2 * B + i, tl.load(x[k] + i % n, None))


def case_masked_loads_of_every_type():
    x = tuple(torch.arange(13).remainder(2).to(dtype) for dtype in KINDS)
    o = tuple(torch.zeros(48, dtype=dtype) for dtype in KINDS)
    masked[(1,)](x, o, 13, 16)
    return list(o)


@triton.jit
def one_mask(x, o, flags, B: tl.constexpr, MASK: tl.constexpr, OTHER: tl.constexpr):
    i, p = tl.arange(0, B), tl.program_id(0)
    f = tl.load(flags + p)
    a = tl.load(x + i, mask=MASK, other=OTHER) + tl.load(x, mask=MASK, other=OTHER)
    b = tl.load(x + p * B + i, mask=f != 0, other=7) + tl.load(x + p, mask=f > 1, other=2.5)
    tl.store(o + p * B + i, a + b, mask=f < 3)
    tl.store(o + 4 * B, 5.0, mask=MASK)


def case_one_mask_for_a_whole_tile():
    out = []
    for mask in (True, False):
        o = torch.full((33,), -1.0)
        one_mask[(4,)](torch.arange(32.0), o, torch.tensor([0, 1, 2, 3]), B=8, MASK=mask, OTHER=1)
        out.append(o)
    return out


@triton.jit
def others(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i, mask=i < n, other=i.to(tl.float32) * 0.5) + tl.load(x + i, mask=i < n, other=i)
    c = tl.load(x + i[:, None] + i[None, :], mask=(i < n)[:, None], other=-1.0)
    tl.store(o + i, a)
    tl.store(o + B + i[:, None] * B + i[None, :], c)


def case_other_as_a_tile():
    o = torch.zeros(72)
    others[(1,)](torch.arange(16.0), o, 5, B=8)
    return o


@triton.jit
def repeated_values(o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i[:, None] * B + i[None, :], i[None, :])
    tl.store(o + B * B + i[:, None] * B + i[None, :], 3, mask=i[:, None] > 2)
    tl.store(o + 2 * B * B, 9)
    tl.store(o + 2 * B * B + 1 + tl.arange(0, 4), tl.full((1,), 5, tl.int32))


def case_stored_values_are_repeated():
    o = torch.zeros(136, dtype=torch.int32)
    repeated_values[(1,)](o, B=8)
    return o


@triton.jit
def backwards(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x - 1 - i))
    tl.store(o + B + i, tl.load(x + (i - B)))
    p = x + i * 2
    p -= 3
    tl.store(o + 2 * B + i, tl.load(p))
    at = tl.program_id(0) * B + i
    tl.store(o + 3 * B + n - 1 - at, tl.load(x + at, mask=at < n), mask=at < n)


def case_before_the_pointer_and_backwards():
    o = torch.zeros(44)
    backwards[(3,)](torch.arange(64.0)[20:], o, 20, B=8)
    return o


@triton.jit
def shifted(a, b, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(b + i, tl.load(a + i, mask=i < n) * 2 + 1, mask=i < n)


def case_arguments_that_alias():
    out = []
    for programs, block in ((5, 8), (1, 64)):
        for a, b in ((0, 0), (0, 1), (1, 0), (3, 0)):
            x = torch.arange(44.0) % 5
            shifted[(programs,)](x[a : a + 40], x[b : b + 40], 40, B=block)
            out.append(x)
    return out


@triton.jit
def into_a_view(o, s0, s1, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    tl.store(o + r[:, None] * s0 + c[None, :] * s1, r[:, None] * 10 + c[None, :])


@triton.jit
def out_of_a_view(x, o, s0, s1, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    tl.store(o + r[:, None] * C + c[None, :], tl.load(x + r[:, None] * s0 + c[None, :] * s1))


def case_views():
    out = []
    for view in (
        lambda t: t[1:5, 2:6],
        lambda t: t.t()[2:6, 1:5],
        lambda t: t[::2, ::2][:4, :4],
        lambda t: t[0:8:2, 1:5],
    ):
        t = torch.full((12, 12), -1, dtype=torch.int32)
        into_a_view[(1,)](view(t), *view(t).stride(), R=4, C=4)
        out.append(t)
    for v in (
        torch.arange(4.0).expand(4, 4),
        torch.arange(4.0)[:, None].expand(4, 4),
        torch.arange(9.0).unfold(0, 3, 2),
    ):
        o = torch.zeros(4, 2)
        out_of_a_view[(1,)](v, o, *v.stride(), R=4, C=2)
        out.append(o)
    return out


@triton.jit
def beyond(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))


def case_beyond_the_tensor_in_its_storage():
    o = torch.zeros(24)
    beyond[(1,)](torch.arange(64.0)[10:14], o[4:6], B=16)
    return o


@triton.jit
def same_places(o, v, index, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + tl.load(index + i, mask=i < n, other=0), tl.load(v + i, mask=i < n), mask=i < n)
    last = o + 10
    tl.store(last, tl.program_id(0) * 100 + tl.program_id(1))
    lane = tl.arange(0, B)
    tl.store(last + 1 + lane, tl.program_id(1) * 100 + tl.program_id(0), mask=lane >= tl.program_id(0))
    tl.store(last + 1 + B + lane // 2, lane + tl.program_id(0))


def case_the_last_write_to_a_place_stays():
    index = torch.randint(0, 9, (70,), generator=torch.Generator().manual_seed(0))
    o = torch.full((40,), -1.0)
    same_places[(5, 3)](o, torch.arange(70.0), index, 70, B=16)
    return o


@triton.jit
def overlapping_blocks(o, w, n, B: tl.constexpr):
    i, p = tl.arange(0, B), tl.program_id(0)
    tl.store(o + p * 4 + i, i + 100 * p)
    for k in range(0, n):
        tl.store(w + k * 3 + i + p, k * 10 + i + 1000 * p)


def case_blocks_that_overlap():
    o, w = torch.full((40,), -1, dtype=torch.int32), torch.full((40,), -1, dtype=torch.int32)
    overlapping_blocks[(5,)](o, w, 6, B=8)
    return [o, w]


@triton.jit
def iterations(x, y, z, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for k in range(0, n):
        tl.store(x + k + i, tl.load(x + k + i) * 2)
    for k in range(1, n):
        tl.store(y + k, tl.load(y + k) + tl.load(y + k - 1))
    for k in range(0, n):
        tl.store(z + k * B + i, tl.load(z + k * B + i) + k, mask=i < B - 1)


def case_iterations_see_each_other():
    x, y, z = torch.ones(20), torch.arange(10.0), torch.zeros(80)
    iterations[(1,)](x, y, z, 10, B=8)
    return [x, y, z]


@triton.jit
def neighbours(x, y, z, o, B: tl.constexpr):
    p, i = tl.program_id(0), tl.arange(0, B)
    tl.store(x + p + 1, tl.load(x + p) + tl.load(x + p + 1))
    tl.store(y + i, p)
    tl.store(y + p * 2 + tl.arange(0, 2), 100 + p)
    tl.store(z + p * B + i, i + p)
    tl.store(o + p * B + i, tl.load(z + (p + 3) % 4 * B + i))


def case_programs_see_each_other():
    x, y, z, o = torch.arange(10.0), torch.zeros(8, dtype=torch.int32), torch.zeros(32), torch.zeros(32)
    neighbours[(4,)](x, y, z, o, B=8)
    return [x, y, z, o]


@triton.jit
def twice(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    tl.debug_barrier()
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def case_stored_and_loaded_again():
    x = torch.arange(100.0)
    twice[(4,)](x, 100, B=32)
    return x


@triton.jit
def hinted(x, o, start, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B) + tl.load(start)
    tl.max_contiguous(tl.multiple_of(i, 8), 8)
    v = tl.load(x + i, mask=i < n, cache_modifier=".cg", eviction_policy="evict_last", volatile=True)
    tl.store(o + i, v, mask=i < n, cache_modifier=".cs", eviction_policy="evict_first")


@triton.jit
def bools_and_bytes(x, y, o, w, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, v & (i % 2 == 0))
    tl.store(o + B + i, tl.where(v, i, -i))
    tl.store(w + i, tl.load(y + i, mask=i < 5, other=1.5).to(tl.float32))


def case_hints_and_small_types():
    o, w, h = torch.zeros(16, dtype=torch.bool), torch.zeros(8), torch.zeros(16)
    hinted[(2,)](torch.arange(16.0), h, torch.tensor([3], dtype=torch.int32), 16, B=8)
    bools_and_bytes[(1,)](torch.arange(8) % 3 == 0, torch.arange(8.0).to(torch.float8_e5m2), o, w, B=8)
    return [h, o, w]


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
