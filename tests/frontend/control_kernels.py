"""Control flow, calls, tuples and constexprs: kernels that run in the real interpreter and here.

`results()` gives name -> tensors. Run as a script under TRITON_INTERPRET=1 it writes them to a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl

CASES: dict[str, Callable[[], list[torch.Tensor]]] = {}
SCALE = tl.constexpr(3)
SIZES = tl.constexpr((2, 4, 8))


def case(fn):
    """Decorator: a function that launches kernels and gives their tensors."""
    CASES[fn.__name__] = fn
    return fn


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def blank(n: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.full((n,), -7, dtype=dtype)


# -- ways out of loops and functions


@triton.jit
def prefix(o, x, n):
    p = tl.program_id(0)
    total = 0
    at = -1
    for i in range(n):
        v = tl.load(x + p * n + i)
        if v == 0:
            continue
        if v < 0:
            break
        total += v
        at = i
        tl.store(o + 10 + p * n + i, v * 2)
    else:
        total += 1000
    tl.store(o + 2 * p, total)
    tl.store(o + 2 * p + 1, at)


@case
def break_and_continue():
    rows = ints(1, 2, 3, 4, 0, 5, 0, 6, 7, -1, 8, 9, -1, 1, 1, 1, 0, 0, 0, 0)
    o = blank(30)
    prefix[(5,)](o, rows, 4)
    return [o]


@triton.jit
def collatz(o, start, limit):
    p = tl.program_id(0)
    v = tl.load(start + p)
    steps = 0
    while True:
        if v == 1:
            break
        steps += 1
        if v % 2 == 0:
            v = v // 2
            continue
        v = 3 * v + 1
        if steps > limit:
            steps = -1
            break
    tl.store(o + p, steps)


@case
def while_true():
    o = blank(5)
    collatz[(5,)](o, ints(1, 6, 7, 27, 97), 115)
    return [o]


@triton.jit
def position(x, n, key):
    for i in range(n):
        if tl.load(x + i) == key:
            return i
    return -1


@triton.jit
def pair_position(x, n, key):
    for i in range(n):
        for j in range(i):
            if tl.load(x + i) + tl.load(x + j) == key:
                return i, j
    return -1, -1


@triton.jit
def searches(o, x, n):
    p = tl.program_id(0)
    tl.store(o + 4 * p, position(x, n, p))
    i, j = pair_position(x, n, p)
    tl.store(o + 4 * p + 1, i)
    tl.store(o + 4 * p + 2, j)
    k = 0
    while k < n:
        if tl.load(x + k) > p:
            tl.store(o + 4 * p + 3, k)
            return
        k += 1
    tl.store(o + 4 * p + 3, 99)


@case
def returns_from_loops():
    o = blank(32)
    searches[(8,)](o, ints(3, 1, 4, 1, 5), 5)
    return [o]


@triton.jit
def grade(v):
    if v > 10:
        if v > 100:
            return 3
        v -= 200
    if v < 0:
        return v
    elif v == 0:
        return 0
    return 1


@triton.jit
def grades(o, x):
    p = tl.program_id(0)
    v = tl.load(x + p)
    tl.store(o + p, grade(v))
    if v > 20:
        if v > 30:
            tl.store(o + 10 + p, 1)
            return
        tl.store(o + 10 + p, 2)
    if v > 10:
        if v != 15:
            tl.store(o + 10 + p, 3)
            return
    tl.store(o + 20 + p, v)


@case
def partial_returns():
    o = blank(30)
    grades[(7,)](o, ints(200, 25, 15, 12, 5, 0, -5))
    return [o]


@triton.jit
def unrolled(o, x):
    p = tl.program_id(0)
    total = 0
    for i in tl.static_range(12):
        v = tl.load(x + (p + i) % 6)
        if v == 0:
            continue
        if v < 0:
            break
        if v == 9:
            tl.store(o + p, -i)
            return
        total = total * 2 + v
    tl.store(o + p, total)


@case
def exits_of_unrolled_loops():
    out = []
    for row in ((1, 2, 0, 3, 4, 5), (1, 0, -1, 2, 0, 3), (1, 2, 3, 0, 9, 1)):
        o = blank(6)
        unrolled[(6,)](o, ints(*row))
        out.append(o)
    return out


@triton.jit
def nested(o, x, n, m):
    total = 0
    for i in range(n):
        for j in range(m):
            v = tl.load(x + i * m + j)
            if v == 9:
                break
            if v == 8:
                continue
            total += v
        else:
            total += 100
        if total > 300:
            break
    tl.store(o, total)


@case
def nested_exits():
    out = []
    for row in ((1, 2, 3, 1, 9, 3, 8, 8, 1, 4, 5, 6), (200, 50, 60, 1, 1, 1, 1, 1, 1, 1, 1, 1)):
        o = blank(1)
        nested[(1,)](o, ints(*row), 4, 3)
        out.append(o)
    return out


# -- loops


@triton.jit
def ranges(o, low, high, step):
    p = tl.program_id(0)
    a = tl.load(low + p)
    b = tl.load(high + p)
    c = tl.load(step + p)
    mixed = tl.full((), 1, tl.int64)
    last = tl.full((), -77, tl.int64)
    for i in range(a, b, c):
        mixed = mixed * 3 + i
        last = last * 0 + i
    tl.store(o + 4 * p, mixed)
    tl.store(o + 4 * p + 1, last)
    count = 0
    for i in range(b, a, -2):
        count += 1
    tl.store(o + 4 * p + 2, count)
    for i in tl.range(a, b, num_stages=2, loop_unroll_factor=4, disallow_acc_multi_buffer=True):
        mixed += i
    tl.store(o + 4 * p + 3, mixed)


@case
def run_time_ranges():
    o = blank(24, torch.int64)
    ranges[(6,)](o, ints(0, 10, 10, 3, -4, 7), ints(10, 0, 0, 20, 4, 7), ints(1, -3, -1, 7, 2, 1))
    o64 = blank(24, torch.int64)
    wide = [torch.tensor(v) for v in ([2**40, 5], [2**40 + 9, -5], [2, -3])]
    ranges[(2,)](o64, *wide)
    return [o, o64]


@triton.jit
def fixed_ranges(o, low, high, step: tl.constexpr):
    total = tl.zeros((), tl.int64)
    for i in range(low, high, step):
        total = total * 3 + i
    tl.store(o, total)
    for i in range(4):
        i += 10
        tl.store(o + 1 + i - 10, i)
    i = 55
    for i in range(low, low):
        total += 1
    tl.store(o + 5, i)
    for i in range(high, low, -step):
        pass
    tl.store(o + 6, i)
    for j in range(3):
        first = j * 2
    tl.store(o + 7, first)
    tl.store(o + 8, j)


@case
def known_ranges():
    out = []
    for low, high, step in (
        (2**35, 2**35 + 20, 3),
        (15, -16, -1),
        (15, -16, -4),
        (-18, -22, -1),
        (18, 22, -1),
        (3, 9, 2),
    ):
        o = blank(9, torch.int64)
        fixed_ranges[(1,)](o, low, high, step)
        out.append(o)
    return out


@triton.jit
def ragged(o, counts, x, WIDTH: tl.constexpr):
    p = tl.program_id(0)
    lane = tl.arange(0, WIDTH)
    n = tl.load(counts + p)
    acc = tl.zeros((WIDTH,), tl.float32)
    best = tl.full((WIDTH,), -1.0, tl.float32)
    steps = 0
    for i in range(n):
        for j in range(i, n):
            acc += tl.load(x + lane + i + j)
            steps += j
        if i % 2 == 1:
            acc = acc * 0.5
            k = i
            while k > 0:
                best = tl.maximum(best, acc - k)
                k -= 2
    tl.store(o + p * (WIDTH + 1) + lane, acc + best)
    tl.store(o + p * (WIDTH + 1) + WIDTH, steps)


@case
def ragged_nests():
    o = torch.zeros(25)
    ragged[(5,)](o, ints(0, 3, 5, 1, 4), torch.arange(32.0), 4)
    return [o]


@triton.jit
def halve(o, x, WIDTH: tl.constexpr):
    p = tl.program_id(0)
    lane = tl.arange(0, WIDTH)
    v = tl.load(x + p * WIDTH + lane)
    total = tl.zeros((WIDTH,), tl.float32)
    a, b = 0, 1
    while (tl.max(v, 0) > 1.0) and (a < 50):
        v = v * 0.5
        total += v
        a, b = b, a + b
    tl.store(o + p * WIDTH + lane, total + a + b)


@case
def while_with_tiles():
    o = torch.zeros(12)
    halve[(3,)](o, torch.arange(12.0) ** 2, 4)
    return [o]


@triton.jit
def whiles(o, n):
    i = n
    total = 0
    while i:
        i -= 1
        total += 1
    while not (i >= 4):
        i += 1
    while i < 10 and total > 0:
        i += 3
        total -= 2
    else:
        total += 70
    tl.store(o, total)
    tl.store(o + 1, i)


@case
def while_conditions():
    o = blank(2)
    whiles[(1,)](o, ints(7)[0].item())
    return [o]


@triton.jit
def counters(o, x, WIDTH: tl.constexpr):
    acc = tl.full((WIDTH,), 0, tl.int32)
    for i in range(WIDTH):
        if i == 0:
            extra = tl.full((WIDTH,), 2, tl.int32)
            acc = extra
        else:
            acc += tl.load(x + i)
        extra = tl.full((WIDTH,), 1, tl.int32)
        acc += extra
    tl.store(o + tl.arange(0, WIDTH), acc)
    reversed_sum = 0
    for i in tl.static_range(WIDTH, 0, -SCALE):
        reversed_sum = reversed_sum * 10 + i
    for k in tl.static_range(3):
        reversed_sum += SIZES[k]
    tl.store(o + WIDTH, reversed_sum)


@case
def names_bound_again():
    o = blank(9)
    counters[(1,)](o, ints(*range(8)), 8)
    return [o]


# -- branches


@triton.jit
def choices(o, a, b, extra):
    p = tl.program_id(0)
    x = tl.load(a + p)
    y = tl.load(b + p)
    if (x > 0 and y > 0) or (x < 0 and not (y < 0)):
        r = 1
    elif x == 0 or (y == 0 and extra is not None):
        r = 2
    else:
        r = 3
    tl.store(o + 4 * p, r)
    tl.store(o + 4 * p + 1, x if x > y else y if y > 3 else 7)
    tl.store(o + 4 * p + 2, 5) if p % 2 == 0 else tl.store(o + 4 * p + 3, 6)
    if x:
        if y != 0:
            r = r + 10
            x = y
        else:
            r = r + 20
    r += x
    tl.store(o + 40 + p, r)


@case
def conditions():
    o = blank(50)
    grid = [(x, y) for x in (-1, 0, 2) for y in (-1, 0, 5)]
    choices[(9,)](o, ints(*(x for x, _ in grid)), ints(*(y for _, y in grid)), 1)
    return [o]


@triton.jit
def early(o, x, n, MODE: tl.constexpr):
    p = tl.program_id(0)
    if MODE == "none":
        return
    if MODE == "run time":
        if tl.load(x + p) < 0:
            tl.store(o + p, 1)
            return
        elif tl.load(x + p) == 0:
            tl.store(o + p, 2)
        else:
            if p > 2:
                return
    tl.store(o + n + p, 3)


@case
def early_returns():
    out = []
    for mode in ("none", "run time", "other"):
        o = blank(12)
        early[(6,)](o, ints(0, -1, 4, 5, -2, 0), 6, mode)
        out.append(o)
    return out


# -- calls


@triton.jit
def total(*values):
    acc = values[0]
    for i in tl.static_range(1, len(values)):
        acc = acc * 10 + values[i]
    return acc


@triton.jit
def options(a, b=10, *, c=100):
    return a + b * c


@triton.jit(noinline=True)
def separate(x, k):
    return x * k, x - k


@triton.jit
def nothing():
    pass


@triton.jit
def twice(x, fn: tl.constexpr):
    return fn(fn(x))


@triton.jit
def one_more(x):
    return x + 1


@triton.jit
def negative(x):
    if x < 0:
        return 1
    else:
        return 0


@triton.jit
def fixed():
    return tl.constexpr(42)


@triton.jit
def calls(o, n, t, fns: tl.constexpr):
    tl.store(o, total(n, 1, 2, 3))
    tl.store(o + 1, total(*t))
    tl.store(o + 2, options(n) + options(n, c=1) + options(n, 2, c=n) + options(b=n, a=1))
    a, b = separate(n, 3)
    tl.store(o + 3, a * b)
    nothing()
    tl.store(o + 4, twice(n, one_more) + twice(-n, negative))
    for i in tl.static_range(len(fns)):
        n = fns[i](n)
    tl.store(o + 5, n)
    known: tl.constexpr = fixed()
    tl.static_assert(known == 42)
    tl.store(o + 6 + tl.arange(0, known // 21), known)
    acc = 0
    for i in range(4):
        acc = total(acc, i)
    tl.store(o + 8, acc)


@case
def calling():
    o = blank(9)
    calls[(1,)](o, 7, (3, 4, 5), (one_more, negative, one_more))
    return [o]


@triton.jit
def factorial(n: tl.constexpr):
    if n <= 1:
        return 1
    else:
        return n * factorial(n - 1)


@triton.jit
def tree_sum(x):
    if x.shape[0] == 1:
        return x
    else:
        a, b = x.reshape((x.shape[0] // 2, 2)).split()
        return tree_sum(a) + tree_sum(b)


@triton.constexpr_function
def padded(n, to=4):
    return -(-n // to) * to


@triton.constexpr_function
def halves(n):
    return (n // 2, n - n // 2)


@triton.jit
def compile_time(o, n: tl.constexpr, T: tl.constexpr, NAME: tl.constexpr):
    tl.store(o, factorial(5))
    tl.store(o + 1 + tl.arange(0, 1), tree_sum(tl.arange(0, 16)))
    wide: tl.constexpr = padded(n, to=8)
    parts: tl.constexpr = halves(wide)
    tl.store(o + 2, padded(parts[0]) + parts[1] + wide)
    half: tl.constexpr = wide // 2
    tl.static_assert(half == parts[0], f"{half} of {wide}")
    tl.store(o + 3 + tl.arange(0, half), half)
    if T == tl.float16:
        tl.store(o + 20, 16)
    elif T.is_floating():
        tl.store(o + 20, T.primitive_bitwidth)
    else:
        tl.store(o + 20, 1)
    if NAME in ("add", "mul") and len(NAME) == 3:
        tl.store(o + 21, 5)
    tl.store(o + 22, (tl.arange(0, 4).to(T).dtype == T) + 2)
    tl.static_assert(isinstance(NAME, str))
    assert n > 0, "n"


@case
def constexprs():
    out = []
    for n, t, name in ((5, tl.float16, "add"), (8, tl.bfloat16, "sub"), (3, tl.int8, "mul")):
        o = blank(24)
        compile_time[(1,)](o, n, t, name)
        out.append(o)
    return out


# -- tuples


class View(NamedTuple):
    ptr: any
    shape: tuple
    steps: tuple


class Closure(NamedTuple):
    fn: tl.constexpr
    captured: tuple


@triton.jit
def scaled(x, k, shift):
    return x * tl.load(k) + shift


@triton.jit
def shrink(view, n):
    return View(ptr=view.ptr, shape=(view.shape[0] - n, view.shape[1]), steps=view.steps)


@triton.jit
def offsets(view, N: tl.constexpr):
    i = tl.arange(0, N)
    rows, columns = view.shape
    mask = (i[:, None] < rows) & (i[None, :] < columns)
    return view.ptr + i[:, None] * view.steps[0] + i[None, :] * view.steps[1], mask


@triton.jit
def views(closure, source, target, N: tl.constexpr):
    target = shrink(target, 1)
    at, mask = offsets(source, N)
    to, fits = offsets(target, N)
    tl.store(to, closure.fn(tl.load(at, mask=mask, other=1.0), *closure.captured), mask=fits)


@case
def named_tuples():
    x, y = torch.arange(35.0).reshape(5, 7), torch.zeros(8, 8).t()
    closure = Closure(scaled, (torch.tensor([2.5]), 1.0))
    views[(1,)](closure, View(x, x.shape, x.stride()), View(y, tuple(y.shape), y.stride()), 8)
    return [y.contiguous()]


@triton.jit
def deep(o, none, t, last):
    tl.static_assert(none is None)
    tl.static_assert(t[1][1] is None)
    a, (b, _, c), d = t
    tl.store(o, tl.load(a) + b)
    tl.store(o + 1, tl.load(c) * d)
    tl.store(o + 2 + tl.arange(0, last[0]), last[1])


@case
def tuples_of_tuples():
    o = blank(6)
    deep[(1,)](o, None, (ints(8), (1, None, ints(12)), 5), (tl.constexpr(4), 9))
    return [o]


@triton.jit
def plus_one(values):
    return tl.tuple([v + 1 for v in values])


@triton.jit
def handling(o, t, ptrs):
    n = len(t)
    middle = t[1:-1]
    back = t[::-1] + (100,)
    tl.store(o, middle[0] + middle[-1] * 10)
    tl.store(o + 1, back[0] + back[-1])
    tl.store(o + 2, len(t[2:2]) + n)
    tl.store(o + 3, (1, 2) == (1, 2))
    tl.store(o + 4, tl.tuple((1, 2)) == (1, 3))
    tl.static_assert(((3, 4) or (5, 6)) == (3, 4))
    tl.static_assert(((3, 4) and ()) == ())
    at = 5
    for v in plus_one(t):
        tl.store(o + at, v)
        at += 1
    for i in tl.static_range(len(ptrs)):
        tl.store(ptrs[i], t[i] * 2)
    x, y = ptrs
    tl.store(x + 1, tl.load(y) + 1)


@case
def tuple_operations():
    out = []
    for values in ((3, 4, 5, 6), (7, 8, 9)):
        o, ptrs = blank(10), (blank(2), blank(2))
        handling[(1,)](o, values, ptrs)
        out += [o, *ptrs]
    return out


@triton.jit
def carried(o, x, n):
    state = View(x, (0, 1), (0.0, tl.zeros((4,), tl.float32)))
    pair = (n, n + 1)
    for i in range(n):
        moved = (state.steps[0] + 1.0, state.steps[1] + tl.load(state.ptr))
        state = View(state.ptr + 1, (state.shape[1], state.shape[0] + 1), moved)
        pair = (pair[1], pair[0] + pair[1])
        if i == 2:
            pair = (pair[1], pair[0])
    tl.store(o, state.shape[0] + state.shape[1] * 10)
    tl.store(o + 1, state.steps[0] + tl.load(state.ptr))
    tl.store(o + 2, pair[0])
    tl.store(o + 3, pair[1])
    tl.store(o + 4 + tl.arange(0, 4), state.steps[1])


@case
def carried_tuples():
    out = []
    for n in (0, 1, 6):
        o = torch.zeros(8)
        carried[(1,)](o, torch.arange(16.0) ** 2, n)
        out.append(o)
    return out


@triton.jit
def scalars(o, flag, f, none, big):
    if flag:
        tl.store(o, 1)
    if not flag:
        tl.store(o, 2)
    if none is None:
        tl.store(o + 1, f)
    tl.store(o + 2, big)
    tl.store(o + 3, tl.num_programs(0) * 100 + tl.num_programs(1) * 10 + tl.num_programs(2))


@case
def scalar_arguments():
    out = []
    for flag, big in ((1, 2**40), (0, 2**33), (5, -(2**31))):
        o = blank(4, torch.int64)
        scalars[(2, 3, 4)](o, flag, 2.5, None, big)
        out.append(o)
    return out


@triton.jit
def checks_only(n, T: tl.constexpr):
    x = tl.zeros((4,), T)
    tl.static_assert(x.dtype == T)


@case
def kernels_without_stores():
    for name in tl.dtype.SINT_TYPES + tl.dtype.UINT_TYPES + tl.dtype.STANDARD_FP_TYPES:
        checks_only[(2,)](3, tl.dtype(name))
    checks_only.warmup(3, tl.float32, grid=(1,))
    return []


def results() -> dict[str, list[torch.Tensor]]:
    """Every case's tensors."""
    return {name: run() for name, run in CASES.items()}


if __name__ == "__main__":
    torch.save(results(), sys.argv[1])
