"""The dtype table: complete on both sides, and every row true when the dtype really crosses."""

import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import bridge
from bridge import compat
from bridge.diagnostics import Diagnostic
from bridge.dtypes import TABLE, by_jax, by_torch

CROSSING = [row for row in TABLE if row.crosses]
TORCH_ONLY = [row for row in TABLE if not row.crosses and row.torch is not None]
JAX_ONLY = [row for row in TABLE if not row.crosses and row.jax is not None]


def name(row):
    return row.name


def sample(row) -> torch.Tensor:
    """64 aligned elements with every byte pattern, so that a wrong dtype or a narrowing shows."""
    size = torch.empty(0, dtype=row.torch).element_size()
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 256, (64 * size,), dtype=torch.uint8, generator=generator)
    return (raw % 2 if row.torch is torch.bool else raw).view(row.torch)


def test_every_torch_dtype_has_a_row():
    dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    assert dtypes == {row.torch for row in TABLE if row.torch is not None}


def test_every_dtype_that_jax_can_hold_has_a_row():
    held = set()
    with jax.enable_x64(True):
        for candidate in [*vars(ml_dtypes).values(), *np.sctypeDict.values()]:
            if isinstance(candidate, type):
                try:
                    held.add(np.dtype(jnp.zeros(2, dtype=candidate).dtype))
                except (TypeError, ValueError, jax.errors.JaxRuntimeError):
                    continue
    assert len(held) > 20
    assert held <= {row.jax for row in TABLE if row.jax is not None}


def test_lookup_goes_both_ways():
    for row in CROSSING:
        assert by_torch(row.torch) is row and by_jax(row.jax) is row and by_jax(row.jax.name) is row
    with pytest.raises(KeyError):
        by_jax(np.dtype("S3"))


def test_wide_is_eight_bytes_a_component():
    for row in CROSSING:
        component = row.jax.itemsize // (2 if row.jax.kind == "c" else 1)
        assert row.wide == (component == 8)


def test_rows_that_do_not_cross_say_why_and_what_to_do():
    for row in TABLE:
        assert bool(row.why) == bool(row.do) == (not row.crosses), row.name
        assert "cpu" in row.targets or row.jax is None


@pytest.mark.parametrize("row", CROSSING, ids=name)
def test_crosses_both_ways_bit_for_bit_and_shares(row):
    t = sample(row)
    with compat.x64():
        a = bridge.to_jax(t)
    assert a.unsafe_buffer_pointer() == t.data_ptr() and a.dtype == row.jax
    assert np.asarray(a).tobytes() == t.view(torch.uint8).numpy().tobytes()
    back = bridge.to_torch(a)
    assert back.data_ptr() == t.data_ptr() and back.dtype is row.torch


@pytest.mark.parametrize("row", CROSSING, ids=name)
def test_copies_both_ways_bit_for_bit(row):
    t = sample(row)
    with compat.x64():
        a = bridge.to_jax(t, copy=True)
    assert a.unsafe_buffer_pointer() != t.data_ptr() and a.dtype == row.jax
    back = bridge.to_torch(a, copy=True)
    assert back.data_ptr() != a.unsafe_buffer_pointer()
    assert back.view(torch.uint8).numpy().tobytes() == t.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("row", TORCH_ONLY, ids=name)
def test_torch_only_dtypes_are_refused_with_their_reason(row):
    with warnings.catch_warnings():
        # torch warns that quantised tensors are on their way out and that complex32 is experimental.
        warnings.simplefilter("ignore")
        if row.name in ("quint8", "qint8", "qint32"):
            t = torch.quantize_per_tensor(torch.rand(64), 0.1, 0, row.torch)
        else:
            t = torch.empty(64, dtype=row.torch)
    for copy in (None, False, True):
        with pytest.raises(Diagnostic, match="TPB106") as caught:
            bridge.to_jax(t, copy=copy)
        assert row.why in caught.value.why and caught.value.do == (row.do,)
        assert bridge.crossing(t, copy).code == "TPB106"


@pytest.mark.parametrize("row", JAX_ONLY, ids=name)
def test_jax_only_dtypes_are_refused_with_their_reason(row):
    try:
        a = jnp.zeros(64, dtype=row.jax)
    except (TypeError, ValueError, jax.errors.JaxRuntimeError):
        pytest.skip(f"this jax has no array of {row.name}")
    for copy in (None, True):
        with pytest.raises(Diagnostic, match="TPB106") as caught:
            bridge.to_torch(a, copy=copy)
        assert caught.value.do == (row.do,)


def test_a_prng_key_is_refused_with_the_way_out():
    key = jax.random.key(0)
    with pytest.raises(Diagnostic, match="key_data"):
        bridge.to_torch(key)
    assert bridge.to_torch(jax.random.key_data(key)).dtype is torch.uint32
