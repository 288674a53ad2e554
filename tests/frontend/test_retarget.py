"""Kernels of the genuine package as ours, however they are stacked, with what they were told."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import frontend_triton_compat as ours
from bridge.diagnostics import Diagnostic

genuine = pytest.importorskip("triton")
tl = genuine.language


def ragged(x, o, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr = 2):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(o + i, tl.load(x + i) * TWICE)
    else:
        tl.store(o + i, tl.load(x + i, mask=i < n) * TWICE, mask=i < n)


def grid(meta):
    return (genuine.cdiv(meta["n"], meta["BLOCK"]),)


CONFIGS = [genuine.Config({"BLOCK": b}, num_warps=2, maxnreg=64) for b in (32, 64)]


def stacks():
    tune = genuine.autotune(configs=CONFIGS, key=["n"], restore_value=["o"], reset_to_zero=["o"])
    even = genuine.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
    more = genuine.heuristics({"TWICE": lambda args: 2})
    fixed = genuine.heuristics({"BLOCK": lambda args: 64})
    kernel = genuine.jit(ragged, do_not_specialize=["n"], noinline=True, repr=lambda s: "named")
    return {
        "autotune over heuristics": tune(even(kernel)),
        "heuristics over autotune": even(tune(kernel)),
        "heuristics over heuristics": fixed(more(even(kernel))),
        "three deep": more(tune(even(kernel))),
    }


@pytest.mark.parametrize("name", list(stacks()))
@pytest.mark.parametrize("n", [128, 100])
def test_stacks(name, n):
    kernel = ours.retarget(stacks()[name])
    x, o = torch.arange(float(n)), torch.zeros(n)
    kernel[grid](x, o, n)
    assert torch.equal(o, 2 * x)
    assert kernel.base_fn is ragged and kernel.arg_names[:3] == ["x", "o", "n"]
    assert kernel.kernel.noinline and kernel.kernel.repr(None) == "named"
    assert [p.name for p in kernel.kernel.params if p.do_not_specialize] == ["n"]


def test_what_autotune_was_told():
    def bench(fn, quantiles):
        fn()
        return [1.0, 1.0, 1.0]

    told = genuine.autotune(configs=CONFIGS, key=["n"], restore_value=["o"], do_bench=bench, cache_results=True)
    kernel = ours.retarget(told(genuine.jit(ragged)))
    assert kernel.restore_value == ["o"] and kernel.do_bench is bench and kernel.cache_results
    assert [(c.kwargs, c.num_warps, c.maxnreg) for c in kernel.configs] == [({"BLOCK": b}, 2, 64) for b in (32, 64)]


def test_a_text_that_was_replaced_stays_replaced():
    kernel = genuine.jit(ragged)
    kernel._unsafe_update_src(kernel.src.replace("TWICE", "(TWICE + 1)", 2).replace("(TWICE + 1):", "TWICE:", 1))
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(len(args)))
    seen: list = []
    x, o = torch.arange(64.0), torch.zeros(64)
    ours.retarget(kernel)[(1,)](x, o, 64, 64, True)
    assert torch.equal(o, 3 * x) and seen == [5]


INTERPRETED = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import torch
    import test_retarget as t
    from triton.runtime.interpreter import InterpretedFunction
    import frontend_triton_compat as ours
    for name, kernel in t.stacks().items():
        inner = kernel
        while hasattr(inner, "fn") and not isinstance(inner, InterpretedFunction):
            inner = inner.fn
        assert isinstance(inner, InterpretedFunction)
        x, o = torch.arange(100.0), torch.zeros(100)
        ours.retarget(kernel)[t.grid](x, o, 100)
        assert torch.equal(o, 2 * x), name
    print("right")
"""


def test_interpreted_kernels():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERPRETED), os.path.dirname(__file__)],
        capture_output=True, text=True, timeout=240, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.stdout.strip() == "right", done.stderr[-2000:]


@pytest.mark.parametrize("other", [len, 3, ragged, None])
def test_anything_else_is_refused(other):
    with pytest.raises(Diagnostic, match="TPB003"):
        ours.retarget(other)
