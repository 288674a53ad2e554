"""Triton launches in functions compiled for a TPU: their TPU forms are part of the jitted function."""

import warnings
from typing import Any

import pytest
import test_launches as cpu
import torch
from tpu_cases import rand

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import inductor_backend
from bridge import jax_op
from bridge.diagnostics import Diagnostic
from bridge.diagnostics.errors import DiagnosticNote
from inductor_backend.kernels import target

OPTIONS: dict[str, Any] = {"target": "tpu:v5e", "kernels": "all"}


@triton.jit
def count(bins, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n), 1, mask=i < n)


@triton.jit
def shifted(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


class Norm(torch.autograd.Function):
    """A norm of rows: a kernel forward, a kernel backward."""

    @staticmethod
    def forward(ctx, x, weight):
        y, inverse = torch.empty_like(x), torch.empty(x.shape[0])
        cpu.norm[(x.shape[0],)](y, x, weight, inverse, x.shape[1], 1e-6, BLOCK=64)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, inverse = ctx.saved_tensors
        dx = torch.empty_like(x)
        cpu.norm_backward[(x.shape[0],)](dx, dy.contiguous(), x, weight, inverse, x.shape[1], BLOCK=64)
        return dx, (dy * x * inverse[:, None]).sum(0)


def inlined(emitted):
    return [name for assembly in emitted for source in assembly.sources for name in source.inlined]


@pytest.mark.parametrize(
    "name", ["of_intermediates", "through_a_view", "into_an_input", "transposed", "in_sequence", "in_place"]
)
def test_values_are_eagers_without_a_segment_of_its_own(name, interpreted, emitted):
    function = getattr(cpu, name)
    given, kept = [rand(100, 3), rand(100, 3, seed=1)], [rand(100, 3), rand(100, 3, seed=1)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*TPB403")
        got = torch.compile(function, backend="pallas", fullgraph=True, options=OPTIONS)(*given)
    torch.testing.assert_close(got, function(*kept), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(given, kept)
    assert inlined(emitted) and len(emitted[-1].sources) == 1
    assert "pl.BlockSpec" in emitted[-1].sources[0].text


def test_a_users_backward_is_a_kernel_too(interpreted, emitted):
    mine = [rand(12, 40).requires_grad_(), rand(40, seed=1).requires_grad_()]
    theirs = [t.detach().clone().requires_grad_() for t in mine]
    compiled = torch.compile(lambda x, w: Norm.apply(x * 2, w).sin(), backend="pallas", fullgraph=True, options=OPTIONS)
    compiled(*mine).sum().backward()
    Norm.apply(theirs[0] * 2, theirs[1]).sin().sum().backward()
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-5)
    assert [len(assembly.sources) for assembly in emitted] == [1, 1]
    assert len(inlined(emitted)) == 2


def test_half_precision_is_held_wider_in_the_kernel_only(interpreted, emitted):
    def f(x, y):
        out = torch.empty_like(x)
        cpu.add[cpu.programs(x.numel())](out, x, y, x.numel(), BLOCK=64)
        return out * 2

    given = [rand(100, dtype=torch.float16), rand(100, seed=1, dtype=torch.float16)]
    with pytest.warns(DiagnosticNote, match="fp16-on-tpu"):
        got = torch.compile(f, backend="pallas", options=OPTIONS)(*given)
    assert got.dtype == torch.float16 and torch.equal(got, f(*given))


def test_what_the_tpu_refuses_runs_on_the_cpu_for_its_reason(interpreted):
    def f(x):
        bins = torch.zeros(8, dtype=torch.int32)
        count[(2,)](bins, x * 2, x.numel(), BLOCK=64)
        return bins + 1

    x = torch.arange(100, dtype=torch.int32) % 4
    reason = r"tpu:v5e refuses the kernel: TPB2\d\d .*\(line \d+ of .*\): "
    with pytest.warns(DiagnosticNote, match=rf"TPB403.*the launch of count runs on tensors[^$]*{reason}"):
        got = torch.compile(f, backend="pallas", options=OPTIONS)(x)
    assert torch.equal(got, f(x))


def test_what_is_wrong_everywhere_is_the_users(interpreted):
    def f(x):
        out = torch.empty_like(x)
        cpu.misspelt[(1,)](out, x, BLOCK=64)
        return out

    with pytest.raises(Diagnostic, match="lod"):
        torch.compile(f, backend="pallas", options=OPTIONS)(rand(64))


def test_what_the_compiler_refuses_runs_on_the_cpu(interpreted, monkeypatch):
    """Not known before the real compiler is asked: the launch is planned again outside."""
    real = target.offline.compile_lowered
    monkeypatch.setattr(target, "COMPILE", True)

    def refusing(lowered, **kwargs):
        if any(call.name == "shifted" for call in lowered.program.calls):
            raise target.error("tpu-compile-failed", "not this one")
        return real(lowered, **kwargs)

    monkeypatch.setattr(target.offline, "compile_lowered", refusing)

    def f(x):
        out = torch.empty_like(x)
        shifted[(2,)](out, x * 2, x.numel(), BLOCK=64)
        return out * 3

    with pytest.warns(DiagnosticNote, match=r"TPB403[^$]*tpu:v5e refuses it: TPB\d\d\d not this one"):
        got = torch.compile(f, backend="pallas", options=OPTIONS)(rand(100))
    torch.testing.assert_close(got, f(rand(100)))


def test_explain_compiles_launches_with_the_rest():
    def f(x):
        out = torch.empty_like(x)
        shifted[(8,)](out, torch.sin(x), x.numel(), BLOCK=512)
        return out * 3

    report = inductor_backend.explain(f, rand(4096), options=OPTIONS)
    (graph,) = report.graphs
    assert [i.name for i in graph.inlined] == ["shifted[8]"] and not report.fallbacks
    assert graph.static.time_s > 0


def test_functions_of_jax_op_are_part_of_it(interpreted, emitted):
    @jax_op("tests_tpu::doubled")
    def doubled(x):
        return x * 2

    x = rand(40)
    got = torch.compile(lambda x: doubled(x.sin()) + 1, backend="pallas", options=OPTIONS)(x)
    torch.testing.assert_close(got, x.sin() * 2 + 1)
    assert inlined(emitted)
