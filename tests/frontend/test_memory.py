"""Memory: atomics, aliases, block pointers, descriptors; against the real Triton interpreter."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bridge.diagnostics
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from frontend_triton_compat import shim
from frontend_triton_compat.descriptors import (
    atomic_add_ragged,
    create_ragged_descriptor,
    load_ragged,
    store_ragged,
)

FILES = {name: Path(__file__).parent / f"{name}.py" for name in ("memory_kernels", "access_kernels")}
CASES = [(f, c) for f, path in FILES.items() for c in re.findall(r"^def (case_\w+)", path.read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    pytest.importorskip("triton")
    env = os.environ | {"TRITON_INTERPRET": "1"}
    found = {}
    for name, kernels in FILES.items():
        path = tmp_path_factory.mktemp("memory") / "real.pt"
        done = subprocess.run([sys.executable, kernels, path], capture_output=True, text=True, timeout=240, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
        with shim.installed(displace=True):
            spec = importlib.util.spec_from_file_location(f"{name}_on_ours", kernels)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        found[name] = torch.load(path), module
    return found


@pytest.mark.parametrize("file,name", CASES, ids=lambda v: v)
def test_memory_is_the_real_interpreters(both, file, name):
    real, module = both[file]
    real = real[name]
    assert isinstance(real, list), real
    ours = getattr(module, name)()
    ours = ours if isinstance(ours, list) else [ours]
    assert len(ours) == len(real)
    for i, (a, b) in enumerate(zip(ours, real)):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.is_floating_point:
            torch.testing.assert_close(
                a, b, rtol=2e-6, atol=2e-6, equal_nan=True, msg=lambda m, i=i: f"{name} {i}: {m}"
            )
        else:
            assert torch.equal(a, b), (name, i, a, b)


@triton.jit
def ragged_copy(src, dst, total, starts, BM: tl.constexpr):
    first, end = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    for row in range(0, end - first, BM):
        block = load_ragged(src, first, end - first, [row, 0])
        store_ragged(dst, first, end - first, [row, 0], block * 2)
        atomic_add_ragged(total, first, end - first, [row, 0], block)


def test_ragged_descriptors_keep_to_their_part():
    """The interpreter can't store through one; the parts are rows 0-4, none, 5-15 and 16-19."""
    x = torch.arange(23.0 * 16).reshape(23, 16)
    o, total = torch.full((23, 16), -1.0), torch.ones(23, 16)
    starts = torch.tensor([0, 5, 5, 16, 20], dtype=torch.int32)
    ragged_copy[(4,)](*(create_ragged_descriptor(t, [4, 16]) for t in (x, o, total)), starts, BM=4)
    assert torch.equal(o[:20], x[:20] * 2) and (o[20:] == -1).all()
    assert torch.equal(total[:20], x[:20] + 1) and (total[20:] == 1).all()


@triton.jit
def one_block(x, SHAPE: tl.constexpr, STRIDES: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, AT: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, SHAPE, STRIDES, BLOCK, padding_option=PAD)
    desc.store(AT, tl.zeros(BLOCK, tl.float32))


@pytest.mark.parametrize(
    "shape,strides,block,pad,at,words",
    [
        ((8, 8), (8, 1), (8, 2), "zero", (0, 0), "at least 16 bytes in the last dimension, but got 2 * 4 = 8 bytes"),
        ((8, 8), (8, 2), (8, 4), "zero", (0, 0), "last dim must be 1 but got 2"),
        ((8, 8), (8,), (8, 4), "zero", (0, 0), "Expected 2 strides but got 1"),
        ((8,) * 6, (1,) * 6, (4,) * 6, "zero", (0,) * 6, "Expected 1 <= ndim <= 5 but got 6"),
        ((8, 8), (8, 1), (8, 4), "edge", (0, 0), "edge"),
        ((8, 8), (8, 1), (8, 4), "zero", (0,), "expected 2 offsets"),
    ],
)
def test_descriptors_that_triton_refuses(shape, strides, block, pad, at, words):
    x = torch.ones(8, 8)
    with pytest.raises(triton.CompilationError) as caught:
        one_block[(1,)](x, SHAPE=shape, STRIDES=strides, BLOCK=block, PAD=pad, AT=at)
    problem = caught.value
    assert problem.code == "TPB282" and words in str(problem.__cause__) and "one_block" in str(problem)
    assert x.eq(1).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: triton.runtime.TensorDescriptor(x, [8, 8], [8, 1], [8]),
        lambda x: triton.runtime.TensorDescriptor(x.T, [8, 8], [1, 8], [8, 8]),
        lambda x: triton.runtime.TensorDescriptor(x, [8, 8], [8, 1], [8, 6]),
        lambda x: triton.runtime.TensorDescriptor(x, [8, 0], [8, 1], [8, 8]),
        lambda x: triton.runtime.TensorDescriptor.from_tensor(x[:, :6].contiguous(), [8, 4]),
        lambda x: triton.runtime.TensorDescriptor.from_tensor(x[1:, 1:], [4, 4]),
        lambda x: triton.runtime.TensorDescriptor.from_tensor(x, [8, 8], padding="edge"),
        lambda x: triton.runtime.TensorDescriptor.from_tensor(x.int(), [8, 8], padding="nan"),
        lambda x: create_ragged_descriptor(x, [8, 8], ragged_dim=1),
    ],
)
def test_descriptors_on_the_host_that_triton_refuses(make):
    with pytest.raises(bridge.diagnostics.Diagnostic) as caught:
        make(torch.ones(8, 8))
    assert caught.value.code == "TPB282" and caught.value.where.file == __file__


@triton.jit
def any_atomic(x, OP: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    if OP == "cas":
        tl.atomic_cas(x, 0, 1, sem=SEM, scope=SCOPE)
    elif OP == "add":
        tl.atomic_add(x, 1, sem=SEM, scope=SCOPE)
    elif OP == "max":
        tl.atomic_max(x, 1, sem=SEM, scope=SCOPE)
    else:
        tl.atomic_or(x, 1, sem=SEM, scope=SCOPE)


@pytest.mark.parametrize(
    "dtype,op,sem,scope",
    [
        (torch.int16, "add", None, None),
        (torch.bool, "or", None, None),
        (torch.float16, "max", None, None),
        (torch.float32, "or", None, None),
        (torch.int8, "cas", None, None),
        (torch.int32, "add", "strong", None),
        (torch.int32, "cas", None, "warp"),
    ],
)
def test_atomics_that_triton_refuses(dtype, op, sem, scope):
    x = torch.zeros(1, dtype=dtype)
    with pytest.raises(triton.CompilationError) as caught:
        any_atomic[(2,)](x, OP=op, SEM=sem, SCOPE=scope)
    assert caught.value.code == "TPB280" and "atomic_" in str(caught.value) and not x.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_atomics_of_floats_that_the_interpreter_lacks(dtype):
    """16-bit sums and exchanges of floats; the programs run in order, so the last one's number stays."""
    z, x, o = torch.zeros(2, dtype=dtype), torch.arange(1, 6).to(dtype), torch.zeros(5, dtype=dtype)
    sums_and_exchanges[(5,)](z, x, o)
    assert z.tolist() == [15, 5] and o.tolist() == [0, 1, 3, 6, 10]


@triton.jit
def sums_and_exchanges(z, x, o):
    v = tl.load(x + tl.program_id(0))
    tl.store(o + tl.program_id(0), tl.atomic_add(z, v))
    if z.dtype.element_ty == tl.float64:
        tl.atomic_xchg(z + 1, v)
    else:
        tl.store(z + 1, v)


@triton.jit
def never_released(data, lock):
    turns = 0
    while tl.atomic_cas(lock, 0, 1) == 1:
        turns += 1
    tl.store(data, tl.load(data) + 1 + turns)


def test_a_lock_that_is_never_released_is_given_up():
    data, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    never_released[(1,)](data, lock)
    assert (data.item(), lock.item()) == (1, 1)
    with pytest.raises(bridge.diagnostics.Diagnostic) as caught:
        never_released[(3,)](data, lock)
    assert caught.value.code == "TPB281" and "while tl.atomic_cas" in str(caught.value)
    assert (data.item(), lock.item()) == (1, 1)


@triton.jit
def relay(flags, o):
    p = tl.program_id(0)
    before = tl.atomic_load(flags + p, mask=p > 0)
    tl.store(o + p, before)
    tl.atomic_store(flags + p + 1, before * 2 + 1)


def test_atomic_loads_and_stores_pass_values_on():
    flags, o = torch.full((5,), 9, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    relay[(4,)](flags, o)
    assert flags.tolist() == [9, 1, 3, 7, 15] and o.tolist() == [0, 1, 3, 7]
