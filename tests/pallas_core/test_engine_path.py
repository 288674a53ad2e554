"""Calls on tensors, which run on the engine in the calling thread: what a caller can tell."""

import jax
import jax.numpy as jnp
import torch

import pallas_core as pc
from bridge.diagnostics import DiagnosticNote
from bridge.engine import Engine


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def test_tensors_and_arrays_agree_with_both_numbers_of_threads():
    call = pc.pallas_call(add, out_shape=pc.spec((64,), "float32"))
    x, y = torch.randn(64), torch.randn(64)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            for _ in range(3):
                torch.testing.assert_close(call(x, y), x + y)
    finally:
        torch.set_num_threads(before)
    assert jnp.array_equal(call(jnp.ones(64), jnp.ones(64)), jnp.full(64, 2.0))


def test_results_are_memory_of_their_own():
    call = pc.pallas_call(add, out_shape=pc.spec((16,), "float32"))
    x = torch.ones(16)
    first = call(x, x)
    second = call(x, x)
    first.zero_()
    assert second.eq(2).all() and x.eq(1).all()


def test_an_operand_that_the_kernel_does_not_read():
    def second(x_ref, y_ref, o_ref):
        o_ref[...] = y_ref[...]

    call = pc.pallas_call(second, out_shape=pc.spec((16,), "float32"))
    y = torch.randn(16)
    torch.testing.assert_close(call(torch.zeros(4), y), y)
    torch.testing.assert_close(call(torch.zeros(4), y + 1), y + 1)


def test_strided_unaligned_and_64_bit_operands(recwarn):
    call = pc.pallas_call(add, out_shape=pc.spec((16,), "int64"))
    base = torch.arange(2**40, 2**40 + 64)
    for x in (base[1:17], base[::4], base[8:24]):
        for _ in range(2):
            torch.testing.assert_close(call(x, base[:16]), x + base[:16])
    assert all(isinstance(w.message, DiagnosticNote) for w in recwarn)


def test_a_kernel_that_prints(capfd):
    def shout(x_ref, o_ref):
        jax.debug.print("seen {}", x_ref[0])
        o_ref[...] = x_ref[...] * 2

    call = pc.pallas_call(shout, out_shape=pc.spec((8,), "float32"))
    assert call(torch.full((8,), 3.0)).eq(6).all()
    jax.effects_barrier()
    assert "seen 3.0" in capfd.readouterr().out


def test_a_program_is_found_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path))
    compiled = []
    real = Engine._compiled
    monkeypatch.setattr(Engine, "_compiled", lambda *a: compiled.append(1) or real(*a))
    for _ in range(2):
        call = pc.pallas_call(add, out_shape=pc.spec((32,), "float32"))
        assert call(torch.ones(32), torch.ones(32)).eq(2).all()
    assert compiled == [1]
