"""`tl.device_assert` and `assert` on run-time values: checked with debug on, absent otherwise."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import knobs


@triton.jit
def positive(x, out, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + at, mask=at < n, other=1.0)
    tl.device_assert(v > 0, "negative input")
    tl.store(out + at, tl.sqrt(v), mask=at < n)


@triton.jit
def in_places(x, out, n, N: tl.constexpr):
    row = tl.program_id(0)
    total = tl.load(x + row * N)
    for i in range(1, N):
        v = tl.load(x + row * N + i)
        tl.device_assert(v != 13.0, "in a loop")
        total += v
    if row == 2:
        assert total < 100.0, "in a branch"
    tl.device_assert(total != 5.0, "behind a mask", mask=row == 1)
    tl.store(out + row, total)


def test_nothing_is_written_where_an_assertion_fails():
    x, out = torch.ones(100), torch.full((100,), -1.0)
    positive[(4,)](x, out, 100, N=32, debug=True)
    assert (out == 1).all()
    x[70] = -1
    with pytest.raises(Diagnostic) as caught:
        positive[(4,)](x, out.zero_(), 100, N=32, debug=True)
    assert caught.value.slug == "device-assert" and caught.value.what == "negative input"
    assert "device_assert(v > 0" in caught.value.where.text() and (out == 0).all()


def test_without_debug_assertions_are_left_out():
    x, out = -torch.ones(100), torch.zeros(100)
    positive[(4,)](x, out, 100, N=32)
    assert out.isnan().all()
    assert "failed" not in positive[(4,)].source(x, out, 100, N=32)


@pytest.mark.parametrize("how", ["jit", "environment", "knob"])
def test_ways_to_turn_debug_on(how, monkeypatch):
    kernel = positive
    if how == "jit":
        kernel = triton.jit(debug=True)(positive.fn)
    elif how == "environment":
        monkeypatch.setenv("TRITON_DEBUG", "1")
    else:
        knobs.runtime.debug = True
    try:
        refuse(kernel)
    finally:
        knobs.runtime.debug = None


def refuse(kernel):
    with pytest.raises(Diagnostic) as caught:
        kernel[(4,)](-torch.ones(100), torch.zeros(100), 100, N=32)
    assert caught.value.slug == "device-assert"


def test_assertions_in_loops_branches_and_behind_masks():
    def run(change):
        x = torch.zeros(4, 8)
        change(x)
        out = torch.full((4,), -1.0)
        in_places[(4,)](x, out, 4, N=8, debug=True)
        return out

    assert run(lambda x: x.fill_(2)).tolist() == [16.0] * 4
    run(lambda x: x[0].fill_(50))  # only program 2 looks at its total
    run(lambda x: x[0, 0].fill_(5))  # only program 1 is looked at
    for change, message, line in (
        (lambda x: x[3, 5].fill_(13), "in a loop", "v != 13.0"),
        (lambda x: x[2].fill_(50), "in a branch", "total < 100.0"),
        (lambda x: x[1, 0].fill_(5), "behind a mask", "total != 5.0"),
    ):
        with pytest.raises(Diagnostic) as caught:
            run(change)
        assert caught.value.what == message and line in caught.value.where.text()


def test_on_jax_arrays():
    assert (positive[(4,)](jnp.ones(100), jnp.zeros(100), 100, N=32, debug=True) == 1).all()
    with pytest.raises(Diagnostic) as caught:
        positive[(4,)](-jnp.ones(100), jnp.zeros(100), 100, N=32, debug=True)
    assert caught.value.slug == "device-assert"
