"""Control flow, calls, tuples and Python in kernels: values against the real interpreter, and refusals."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import shim

KERNELS = Path(__file__).parent / "control_kernels.py"
NAMES = re.findall(r"@case\ndef (\w+)", KERNELS.read_text())


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("control") / "real.pt"
    env = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, KERNELS, path], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(path)


@pytest.fixture(scope="module")
def ours():
    with shim.installed(displace=True):
        spec = importlib.util.spec_from_file_location("control_kernels_on_ours", KERNELS)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module.CASES


@pytest.mark.parametrize("name", NAMES)
def test_values_are_the_real_interpreters(real, ours, name):
    got = ours[name]()
    assert len(got) == len(real[name])
    for mine, theirs in zip(got, real[name]):
        if mine.is_floating_point():
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(mine, theirs), (mine, theirs)


# -- what only we accept: Python around the tiles


def polynomial(x, *coefficients, start=0):
    out = start
    for c in coefficients:
        out = out * x + c
    return out


@triton.jit
def python_inside(o, n, x, W: tl.constexpr):
    v = tl.load(x)
    tl.store(o, 1 if 0 < v < 10 else 0)
    head, *rest = (1, v, 3)
    tl.store(o + 1, head + rest[0] * rest[1])
    table = {"a": v, "b": 3, **{"c": 5}}
    tl.store(o + 2, table["a"] + table["b"] * table["c"])
    large = [k * v for k in (10, 20, 30, 40) if k >= 30]
    tl.store(o + 3, len(large) + large[1])
    tl.store(o + 4, sum([v, n, 1]))

    def weighted(q, r=W):
        return q * r + n

    tl.store(o + 5, weighted(v) + weighted(v, r=v))
    tl.store(o + 6, (lambda q, k=2: q * k)(v))
    if (half := W // 2) > 1:
        tl.store(o + 7, half)
    tl.store(o + 8, polynomial(v, 1, 2, 3) + polynomial(v, n, start=1))
    tl.store(o + 9, max(v, 3, 5) + min(W, 2))
    acc = 0
    for j, (p, q) in enumerate(zip((1, 2), reversed((3, 4)))):
        acc += p * q + j * v
    tl.store(o + 10, acc)
    tl.store(o + 11, any([False, W == 4]) + all((True, W)) + abs(-W) + int(2.9) + 2**W)
    names = sorted({"b": 1, "a": 2}.keys())
    tl.store(o + 12, 7 if "".join(names) == "ab" else 8)
    pairs = {k: v + k for k in range(3)}
    tl.store(o + 13, pairs[2])
    stack = [v]
    for k in tl.static_range(3):
        stack.append(stack[-1] * 2 + k)
    tl.store(o + 14, stack.pop())


def test_python_evaluates_what_is_not_a_tile():
    o = torch.full((15,), -7)
    python_inside[(1,)](o, 6, torch.tensor([5]), W=4)
    want = [1, 16, 20, 202, 12, 20 + 6 + 25 + 6, 10, 2, 38 + 11, 7, 4 + 6 + 5, 24, 7, 7, 44]
    assert o.tolist() == want


@triton.jit
def found_or_not(o, x, n):
    p = tl.program_id(0)
    for i in range(n):
        if tl.load(x + i) == p:
            seen = i
            break
    else:
        seen = 50
    tl.store(o + p, seen)
    i = 90
    for i in range(p):
        pass
    tl.store(o + 4 + p, i)


def test_names_behind_loops():
    o = torch.full((8,), -7, dtype=torch.int32)
    found_or_not[(4,)](o, torch.tensor([2, 0, 3], dtype=torch.int32), 3)
    assert o.tolist() == [1, 50, 0, 2, 90, 0, 1, 2]


@triton.jit
def row_of(x, n, width, key):
    for i in range(n):
        if tl.load(x + i * width) == key:
            return x + i * width, i
    return x, -1


@triton.jit
def rows(o, x, n, W: tl.constexpr):
    p = tl.program_id(0)
    row, i = row_of(x, n, W, p)
    lane = tl.arange(0, W)
    if i >= 0:
        tl.store(o + p * W + lane, tl.load(row + lane))


def test_a_pointer_from_a_loop():
    x = torch.tensor([[2.0, 20.0], [0.0, 5.0], [1.0, 10.0]])
    o = torch.zeros(4, 2)
    rows[(4,)](o, x, 3, W=2)
    assert o.tolist() == [[0.0, 5.0], [1.0, 10.0], [2.0, 20.0], [0.0, 0.0]]


# -- Python containers in run-time regions


@triton.jit
def appends_in_branch(o, x):
    found = [1]
    if tl.load(x) > 0:
        found.append(2)
    tl.store(o, len(found))


@triton.jit
def appends_in_loop(o, x, n):
    found = ([1], 2)
    for i in range(n):
        found[0].append(i)
    tl.store(o, len(found[0]))


@triton.jit
def appends_from_inner(o, x):
    found = {}

    def note(key):
        if tl.load(x) > 0:
            found[key] = 1

    note("a")
    tl.store(o, len(found))


@triton.jit
def appends_before_break(o, x):
    found = [0]
    for i in tl.static_range(3):
        if tl.load(x + i) > 0:
            found.append(i)
            break
    tl.store(o, len(found))


@pytest.mark.parametrize(
    "kernel", [appends_in_branch, appends_in_loop, appends_from_inner, appends_before_break], ids=lambda k: k.__name__
)
def test_a_container_that_changes_on_one_path_is_refused(kernel):
    args = (3,) if kernel is appends_in_loop else ()
    with pytest.raises(Diagnostic, match="`found` in place") as refused:
        kernel[(1,)](torch.zeros(1), torch.ones(3), *args)
    assert refused.value.slug == "not-translated"


@triton.jit
def appends_on_the_way_out(o, x):
    p = tl.program_id(0)
    parts = [p]
    if tl.load(x + p) > 0:
        parts.append(100)
        tl.store(o + p, parts[0] + parts[1])
        return
    for k in tl.static_range(3):
        parts.append(parts[-1] + k)
    tl.store(o + p, parts[3])


def test_a_path_that_has_left_keeps_its_containers_to_itself():
    o = torch.zeros(2)
    appends_on_the_way_out[(2,)](o, torch.tensor([1.0, 0.0]))
    assert o.tolist() == [100.0, 4.0]


# -- refusals


@triton.jit
def one_branch(o, x):
    if tl.load(x) > 0:
        a = 1
    tl.store(o, a)


@triton.jit
def break_with_two_types(o, x, n):
    for i in range(n):
        a = 1.0
        if tl.load(x + i) > 0:
            a = 2
            break
    tl.store(o, a)


@triton.jit
def sometimes(x):
    if tl.load(x) > 0:
        return 1


@triton.jit
def value_on_some_paths(o, x):
    tl.store(o, sometimes(x))


@triton.jit
def forever(o, n):
    while n > -1:
        tl.store(o, n)


@triton.jit
def endless(o, x):
    while True:
        tl.store(o, tl.load(x))


@pytest.mark.parametrize(
    ("kernel", "more", "slug", "text"),
    [
        (one_branch, (), "undefined-name", "only one branch"),
        (break_with_two_types, (3,), "undefined-name", "int32"),
        (value_on_some_paths, (), "return-type", "None"),
        (endless, (), "loop-exit", "always true"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_refused(kernel, more, slug, text):
    with pytest.raises(Diagnostic, match=text) as refused:
        kernel[(1,)](torch.zeros(1), torch.ones(3), *more)
    assert refused.value.slug == slug
    assert refused.value.where.line > 0
    assert refused.value.do


# -- what random kernels found


@triton.jit
def bounded(v, low, high):
    if v < low:
        return low
    if v > high:
        return high
    return v


@triton.jit
def known_at_last(o, x, n):
    p = tl.program_id(0)
    zero = tl.load(x).to(tl.int32) * 0
    i = zero + 1
    j = p * 2 + zero
    if i > 0 and j < 4:  # both hold, which only the forms of the numbers say
        tl.store(o + 4 * p, 7)
        i = i + 1
    else:
        tl.store(o + 4 * p, 8)
    k = bounded(zero + 2, zero - 3, zero + 2)  # returns one and the same value on two ways
    k = k if p == 1 else k
    tl.store(o + 4 * p + 1, bounded(k, zero - 1, k) % 7 + i // 2)
    flag = i <= -2
    tl.store(o + 4 * p + 2, 5, mask=not flag)
    for m in range(0, n - n):
        while m < n:
            m += 1
            if tl.load(x + m) > p:
                tl.store(o, m)
    tl.store(o + 4 * p + 3, (zero + 2147483647) * 2 + 5)


def test_numbers_that_turn_out_to_be_known():
    o = torch.full((12,), -7, dtype=torch.int32)
    known_at_last[(3,)](o, torch.ones(4), 3)
    assert o.tolist() == [7, 3, 5, 3, 7, 3, 5, 3, 8, 2, 5, 3]


# -- prints


@triton.jit
def printing(x, n):
    p = tl.program_id(0)
    if p == 1:
        tl.device_print("one", p)
    for i in range(n):
        v = tl.load(x + i)
        if v > 0:
            print("turn", i, "value", v)
    tl.device_print("hex ", p + 254, hex=True)
    tl.device_print("tile", tl.arange(0, 4) * p)


def test_prints_come_from_the_programs_that_get_there(capfd):
    printing[(2,)](torch.tensor([1.5, -1.0, 2.5]), 3)
    lines = capfd.readouterr().out.splitlines()
    first = ["turn 0", "value 1.5", "turn 2", "value 2.5"]
    want = [(0, line) for line in [*first, "hex 0xfe", "tile: [0 0 0 0]"]]
    want += [(1, line) for line in ["one: 1", *first, "hex 0xff", "tile: [0 1 2 3]"]]
    assert sorted(lines) == sorted(f"({p}, 0, 0) {line}" for p, line in want)
    assert [line[1] for line in lines] == ["0"] * 6 + ["1"] * 7
