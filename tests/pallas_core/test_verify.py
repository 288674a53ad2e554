"""verify: the TPU form against a reference on the interpreter; and the kernels that come with the package."""

import jax.numpy as jnp
import pytest
import torch

import pallas_core as pc
from bridge.diagnostics import Diagnostic
from pallas_core.kernels import matmul, softmax

ROWS = pc.BlockSpec((8, 128), lambda i: (i, 0))
X = torch.randn(32, 128, generator=torch.Generator().manual_seed(0))


def rows(kernel):
    return pc.pallas_call(kernel, out_shape=pc.like(X), grid=(4,), in_specs=[ROWS], out_specs=ROWS)


def test_agreement():
    found = pc.verify(rows(lambda x, o: o.__setitem__(..., x[...] * 2)), (X,), "tpu:v5e", reference=lambda x: x * 2)
    assert found.max_error == 0.0 and found.outputs == 1 and found.races is False


def test_the_first_differing_element():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + jnp.where(pc.program_id(0) == 2, 1.0, 0.0)

    with pytest.raises(Diagnostic, match=r"at \(16, 0\)") as caught:
        pc.verify(rows(kernel), (X,), "tpu:v5e", reference=lambda x: x)
    assert caught.value.slug == "verify-mismatch"


def test_memory_that_nothing_wrote_is_nan():
    def kernel(x_ref, o_ref):
        o_ref[0:4, :] = x_ref[0:4, :]

    with pytest.raises(Diagnostic, match="nothing wrote") as caught:
        pc.verify(rows(kernel), (X,), "tpu:v5e", reference=lambda x: x)
    assert caught.value.slug == "verify-mismatch"


def test_laws_come_first():
    f = pc.pallas_call(lambda x, o: None, out_shape=pc.like(X), grid=(2,), in_specs=[ROWS], out_specs=ROWS)
    with pytest.raises(Diagnostic) as caught:
        pc.verify(f, (X,), "tpu:v5e", reference=lambda x: x)
    assert caught.value.slug == "output-not-covered"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_softmax(dtype):
    x = torch.randn(40, 256, dtype=dtype, generator=torch.Generator().manual_seed(1)) * 10
    for f in (softmax(x), softmax(x, rows=16)):
        torch.testing.assert_close(f(x), torch.softmax(x.double(), -1).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
def test_matmul(dtype):
    make = torch.Generator().manual_seed(2)
    x = torch.randn(128, 256, generator=make).mul(4).to(dtype)
    y = torch.randn(256, 384, generator=make).mul(4).to(dtype)
    want = x.double() @ y.double()
    out = torch.int32 if dtype is torch.int8 else dtype
    for f in (matmul(x, y, out_dtype=out), matmul(x, y, blocks=(64, 128, 128), out_dtype=out)):
        got = f(x, y)
        assert got.dtype == out
        error = (got.double() - want).abs().max() / want.abs().max()
        assert error <= {torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float64: 1e-15, torch.int8: 0}[dtype]


def test_tpu_forms_of_the_kernels():
    make = torch.Generator().manual_seed(3)
    x, y = torch.randn(128, 256, generator=make), torch.randn(256, 128, generator=make)
    f = matmul(x, y, target="tpu:v5e", blocks=(64, 128, 128))
    assert pc.verify(f, (x, y), "tpu:v5e", reference=torch.matmul, atol=1e-4).races is False
    assert pc.verify(softmax(x, target="tpu:v6e"), (x,), "tpu:v6e", reference=lambda v: v.softmax(-1)).races is False


def test_shapes_that_do_not_multiply():
    with pytest.raises(Diagnostic) as caught:
        matmul(pc.spec((8, 16), "float32"), pc.spec((8, 16), "float32"))
    assert caught.value.slug == "operand-mismatch"
    with pytest.raises(Diagnostic) as caught:
        matmul(pc.spec((100, 100), "float32"), pc.spec((100, 100), "float32"), blocks=(64, 64, 64))
    assert caught.value.slug == "bad-argument"
    with pytest.raises(Diagnostic) as caught:
        softmax(pc.spec((8,), "float32"))
    assert caught.value.slug == "operand-mismatch"


def test_targets_say_what_is_here():
    found = {t.name: t for t in pc.targets()}
    assert found["cpu"].runs and set(found) >= {
        "tpu:v4",
        "tpu:v5e",
        "tpu:v5p",
        "tpu:v6e",
        "tpu:7x",
        "gpu:sm90a",
        "gpu:sm100a",
    }
    assert "tpu:v5e" in str(pc.targets())


def test_a_prefetched_index_outside_the_array():
    """The CPU clamps such a block silently (documented); verify sees the data and refuses it."""

    def kernel(s_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]

    x = torch.arange(16 * 128.0).reshape(16, 128)
    spec = pc.PrefetchScalarGridSpec(
        1,
        grid=(2,),
        in_specs=[pc.BlockSpec((8, 128), lambda i, s: (s[i], 0))],
        out_specs=pc.BlockSpec((8, 128), lambda i, s: (i, 0)),
    )
    f = pc.pallas_call(kernel, pc.like(x), grid_spec=spec)
    swapped = torch.tensor([1, 0], dtype=torch.int32)
    assert pc.verify(f, (swapped, x), "tpu:v5e", reference=lambda s, x: torch.cat([x[8:], x[:8]])).max_error == 0
    outside = torch.tensor([0, 7], dtype=torch.int32)
    assert torch.equal(f(outside, x)[8:], x[8:])
    with pytest.raises(Diagnostic, match=r"block \(7, 0\)") as caught:
        pc.verify(f, (outside, x), "tpu:v5e", reference=lambda s, x: x)
    assert caught.value.slug == "block-out-of-bounds" and caught.value.where.file == __file__
