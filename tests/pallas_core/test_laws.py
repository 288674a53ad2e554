"""The TPU's static laws: the block rule against the real lowering, and the VMEM budget."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pallas_core as pc
from bridge.diagnostics import Diagnostic
from pallas_core import compat, index_maps, laws


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


SHAPES = [
    *(((64, 512), b) for b in itertools.product((1, 4, 8, 12, 16, 64), (64, 128, 200, 256, 512))),
    *(((60, 100), b) for b in ((8, 100), (60, 100), (60, 64), (12, 100))),
    *(((2, 64, 512), b) for b in ((1, 8, 128), (2, 4, 512), (1, 64, 100))),
    *(((4096,), (b,)) for b in (64, 128, 200, 256, 384, 512, 1024, 2048, 3072, 4096)),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("array, block", SHAPES, ids=str)
def test_our_block_rule_is_the_lowerings(array, block, dtype):
    """Ours refuses exactly what Pallas' own TPU lowering refuses."""
    grid = tuple(-(-a // b) for a, b in zip(array, block))
    spec = pc.BlockSpec(block, lambda *ids: ids)
    f = pc.pallas_call(copy, out_shape=pc.spec(array, dtype), grid=grid, in_specs=[spec], out_specs=spec)
    program = pc.offline.trace_for(f, (pc.spec(array, dtype),), "tpu:v5e")
    try:
        laws.check_block_rule(program.calls[0])
        ours = True
    except Diagnostic as found:
        assert found.slug == "tpu-block-shape" and str(block) in str(found)
        ours = False
    with compat.x64(False), compat.abstract_tpu("TPU v5 lite"):
        try:
            program.traced.lower(lowering_platforms=("tpu",))
            theirs = True
        except ValueError:
            theirs = False
    assert ours == theirs


def test_budget_counts_buffers_padding_and_scratch():
    spec = pc.BlockSpec((64, 100), lambda i: (i, 0))
    f = pc.pallas_call(
        lambda x, o, s: None,
        out_shape=pc.spec((256, 100), torch.float32),
        grid=(4,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pc.VMEM((8, 128), torch.bfloat16)],
    )
    found = pc.vmem_budget(f, (pc.spec((256, 100), torch.float32),), "tpu:v5e")
    block = 64 * 128 * 4  # 100 lanes are padded to 128
    assert [(o.kind, o.block_bytes, o.buffers) for o in found.operands] == [
        ("input", block, 2),
        ("output", block, 2),
        ("scratch", 8 * 128 * 2, 1),
    ]
    assert found.bytes == 4 * block + 2048 and found.fits and found.diagnostic is None


def test_budget_refuses_before_any_compiling():
    spec = pc.BlockSpec((8192, 8192), lambda i: (i, 0))
    one = pc.spec((16384, 8192), torch.float32)
    f = pc.pallas_call(copy, out_shape=one, grid=(2,), in_specs=[spec], out_specs=spec)
    found = pc.vmem_budget(f, (one,), "tpu:v5e")
    assert found.bytes == 2 * 2 * 8192 * 8192 * 4 and not found.fits
    with pytest.raises(Diagnostic, match="2 buffers") as caught:
        f.lower(one, target="tpu:v5e")
    assert caught.value.slug == "vmem-budget"


def test_a_raised_limit_is_the_limit():
    one = pc.spec((4096, 2048), torch.float32)
    spec = pc.BlockSpec((1024, 2048), lambda i: (i, 0))
    f = pc.pallas_call(
        copy,
        out_shape=one,
        grid=(4,),
        in_specs=[spec],
        out_specs=spec,
        compiler_params=pc.compiler_params(vmem_limit_bytes=64 << 20),
    )
    found = pc.vmem_budget(f, (one,), "tpu:v5e")
    assert found.bytes == 32 << 20 and found.limit == 64 << 20 and found.fits
    assert not pc.vmem_budget(f, (one,), "tpu:v5e").diagnostic


@pytest.mark.parametrize("dtype", ["int64", "float64", "float16", "complex64"])
def test_dtypes_that_a_tpu_has_not(dtype):
    one = pc.spec((8, 128), dtype)
    with pytest.raises(Diagnostic, match=dtype) as caught:
        pc.pallas_call(copy, out_shape=one).lower(one, target="tpu:v5e")
    assert caught.value.slug == "tpu-dtype" and caught.value.where is not None


def test_laws_see_into_plain_jax_functions():
    from jax.experimental import pallas as pl

    def program(x):
        return pl.pallas_call(
            copy,
            out_shape=jax.ShapeDtypeStruct((16, 256), jnp.float32),
            grid=(4, 4),
            in_specs=[pl.BlockSpec((4, 64), lambda i, j: (i, j))],
            out_specs=pl.BlockSpec((4, 64), lambda i, j: (i, j)),
        )(x)

    with pytest.raises(Diagnostic) as caught:
        pc.compile_for(jax.jit(program), (pc.spec((16, 256), "float32"),), "tpu:v5e")
    assert caught.value.slug == "tpu-block-shape" and caught.value.where.file == __file__


@pytest.mark.parametrize(
    "index_map, points",
    [
        (lambda i, j: (i, j), [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (lambda i, j: (j, 1), [(0, 1), (1, 1), (0, 1), (1, 1)]),
        (lambda i, j: (i * 2 + j, 0), [(0, 0), (1, 0), (2, 0), (3, 0)]),
        (lambda i, j: (pc.cdiv(i * 3 + j, 2), (i - 5) // 4 + 2), [(0, 0), (1, 0), (2, 1), (2, 1)]),
        (lambda i, j: (jnp.where(i == j, 3, jax.lax.clz(j) - 31), (i - 5) % 2), [(3, 1), (0, 1), (1, 0), (3, 0)]),
        (lambda i, j: ((i + 1) % 2, jnp.minimum(i, j)), [(1, 0), (1, 0), (0, 0), (0, 1)]),
    ],
)
def test_index_maps_are_evaluated_at_every_grid_point(index_map, points):
    f = pc.pallas_call(
        copy,
        out_shape=pc.spec((32, 256), "float32"),
        grid=(2, 2),
        in_specs=[pc.BlockSpec((8, 128), index_map)],
        out_specs=pc.BlockSpec((8, 128), index_map),
    )
    program = pc.offline.trace_for(f, (pc.spec((32, 256), "float32"),), "tpu:v5e")
    operand = program.calls[0].of_kind("input")[0]
    axes = [a.ravel().astype(np.int32) for a in np.indices((2, 2))]
    assert list(zip(*(b.tolist() for b in index_maps.evaluate(operand.index_map, axes)))) == points
