"""Launches that were seen before take a short way: it gives what the long way gives, and is taken for nothing else."""

import threading

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import express, hooks, launch

SHIFT = tl.constexpr(1.0)


def make_scale():
    @triton.jit
    def scale(out, x, n, factor, _add=0, BLOCK: tl.constexpr = 64):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) * factor + _add, mask=i < n)

    return scale


def test_the_way_is_taken(monkeypatch):
    kernel = make_scale()
    x = torch.randn(100)
    out = torch.empty(100)
    first = kernel[(2,)](out, x, 100, 2.0)

    def never(*_):
        raise AssertionError("the long way")

    monkeypatch.setattr(type(kernel), "_launch", never)
    for factor in (3.0, -0.5, float("inf")):
        other = torch.empty(100)
        assert kernel[(2,)](other, n=100, factor=factor, x=x) is first
        torch.testing.assert_close(other, x * factor, rtol=0, atol=0)
    assert kernel[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](out, x, 100, 4.0) is first
    torch.testing.assert_close(out, x * 4.0, rtol=0, atol=0)
    with pytest.raises(AssertionError):
        kernel[(2,)](out, x, 100, 1)  # an integer for a float


def test_numbers_that_python_calls_equal():
    @triton.jit
    def kernel(out, a, B: tl.constexpr):
        if B is True:
            tl.store(out, 1.0)
        elif isinstance(B, int):
            tl.store(out, 2.0)
        else:
            tl.store(out + tl.arange(0, 1), 1.0 / tl.full([1], B, tl.float32))
        tl.store(out + 1, (~a).to(tl.float32))

    out = torch.empty(2)
    for _ in range(3):
        for a, b, want in [
            (1, 1, [2, -2]),
            (True, True, [1, 0]),
            (1, 0.0, [float("inf"), -2]),
            (1, -0.0, [float("-inf"), -2]),
            (1, 1.0, [1, -2]),
            (True, 1, [2, 0]),
            (3, 1, [2, -4]),
        ]:
            kernel[(1,)](out, a, b)
            assert out.tolist() == want, (a, b)


def test_tensors_that_share_memory():
    @triton.jit
    def running(out, x, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
        tl.store(out + i, tl.load(out + i, mask=i < n) + tl.load(x + i, mask=i < n), mask=i < n)

    def want(out, x):  # one store after the other, as the kernel has them
        out.copy_(x.clone() + 1)
        out.copy_(out.clone() + x.clone())

    for _ in range(3):
        for out_at, x_at in [(0, 64), (0, 0), (0, 5), (5, 0), (64, 0), (0, 16)]:
            memory = torch.arange(128, dtype=torch.float32)
            truth = memory.clone()
            running[(1,)](memory[out_at : out_at + 16], memory[x_at : x_at + 16], 16, BLOCK=16)
            want(truth[out_at : out_at + 16], truth[x_at : x_at + 16])
            assert torch.equal(memory, truth), (out_at, x_at)


def test_layouts_and_dtypes_of_the_same_name():
    kernel = make_scale()
    base = torch.arange(256, dtype=torch.float32)
    for _ in range(2):
        for x in (base[:50], base[100:150], base[:100:2], base[7:57], base.double()[:50], base.half()[:50]):
            out = torch.empty(50, dtype=torch.float64)
            reads = x if x.is_contiguous() else x.contiguous()
            kernel[(1,)](out, reads, 50, 2.0)
            torch.testing.assert_close(out, x.double() * 2, rtol=0, atol=0)


def test_what_changes_between_launches(monkeypatch):
    @triton.jit
    def kernel(out, x):
        tl.store(out + tl.arange(0, 16), tl.load(x + tl.arange(0, 16)) + SHIFT)

    x, out = torch.randn(16), torch.empty(16)
    for value in (1.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "SHIFT", tl.constexpr(value))
        for _ in range(2):
            kernel[(1,)](out, x)
            torch.testing.assert_close(out, x + value, rtol=0, atol=0)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append("pre"))
    kernel[(1,)](out, x)
    kernel.pre_run_hooks.clear()
    monkeypatch.setattr(launch, "observers", [lambda *_: seen.append("observer")])
    kernel[(1,)](out, x)
    monkeypatch.setattr(launch, "observers", [])
    enter = lambda _: seen.append("enter")
    hooks.hooks.launch_enter_hook.add(enter)
    kernel[(1,)](out, x)
    hooks.hooks.launch_enter_hook.remove(enter)
    kernel[(1,)](out, x)
    assert seen == ["pre", "observer", "enter"]
    x.untyped_storage().resize_(0)
    with pytest.raises(Diagnostic, match="launch-device"):
        kernel[(1,)](out, x)


def test_bad_launches_of_a_known_kernel():
    kernel = make_scale()
    x, out = torch.randn(100), torch.empty(100)
    calls = []

    def grid(meta):
        calls.append(meta["n"])
        return [2]

    for _ in range(3):
        kernel[grid](out, x, 100, 2.0)
    assert calls == [100] * 3
    for given, args, named, code in [
        ((2,), (out, x, 100), {}, "launch-arguments"),
        ((2,), (out, x, 100, 2.0), {"n": 1}, "launch-arguments"),
        ((2,), (out, x, 100, 2.0), {"depth": 1}, "launch-arguments"),
        ((2,), (out, x, 100, 2.0, 0, 64, 1), {}, "launch-arguments"),
        ((2,), (out, x, 100, object()), {}, "launch-arguments"),
        ((0,), (out, x, 100, 2.0), {}, "launch-grid"),
        ((2.5,), (out, x, 100, 2.0), {}, "launch-grid"),
        (lambda: (2,), (out, x, 100, 2.0), {}, "launch-grid"),
        (lambda meta: (meta["m"],), (out, x, 100, 2.0), {}, "launch-grid"),
        ((2,), (out, x.to("meta"), 100, 2.0), {}, "launch-device"),
    ]:
        with pytest.raises(Diagnostic, match=code):
            kernel[given](*args, **named)
    kernel[(2.0,)](out, x, 100, 3.0)
    torch.testing.assert_close(out, x * 3, rtol=0, atol=0)


def test_an_integer_that_outgrows_its_type():
    kernel = make_scale()
    x, out = torch.zeros(4, dtype=torch.int64), torch.empty(4, dtype=torch.int64)
    for add in (1, 2, 3, 2**31 - 1, 2**31, 2**40, -(2**31), -(2**31) - 1, 2**62, 7):
        kernel[(1,)](out, x, 4, 1, add)
        assert out.tolist() == [add] * 4


def test_a_negative_view_is_refused():
    z = torch.randn(16, dtype=torch.complex64)
    negative = z.conj().imag
    assert negative.is_neg()
    plain, out = torch.randn(16), torch.zeros(16)
    kernel = make_scale()
    for read in (negative, torch._neg_view(plain)):
        for _ in range(2):
            with pytest.raises(Diagnostic, match="lazy-conj-or-neg"):
                kernel[(1,)](out, read, 16, 1.0)
            with pytest.raises(Diagnostic, match="lazy-conj-or-neg"):
                kernel[(1,)](read, plain, 16, 1.0)
            kernel[(1,)](out, plain, 16, 1.0)
    kernel[(1,)](out, negative.resolve_neg(), 16, 1.0)
    torch.testing.assert_close(out, -z.imag, rtol=0, atol=0)


def test_routes_are_bounded(monkeypatch):
    monkeypatch.setattr(express, "LIMIT", 8)
    kernel = make_scale()
    memory, out = torch.randn(400), torch.empty(32)
    for start in [*range(3, 60), 3, 4]:
        kernel[(1,)](out, memory[start : start + 32], 32, 2.0)
        torch.testing.assert_close(out, memory[start : start + 32] * 2, rtol=0, atol=0)
    assert len(kernel._specialised.express._routes) <= 8


def test_threads_that_launch_one_kernel():
    kernel = make_scale()
    barrier, wrong = threading.Barrier(6), []

    def work(mine):
        inputs = [torch.randn(n) for n in (40, 64, 40)]
        barrier.wait()
        for turn in range(150):
            x = inputs[turn % 3]
            out = torch.empty_like(x)
            kernel[(1,)](out, x, len(x), float(mine), mine + turn)
            if not torch.allclose(out, x * mine + (mine + turn), atol=1e-4):
                wrong.append((mine, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
