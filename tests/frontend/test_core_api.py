"""Small promises that programs written for Triton rely on: causes of errors, formats of dtypes, sums of one bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (-4, "invalid axis -4"),
        (3, "invalid axis 3"),
        ((0, 4), "invalid axis 4"),
        ((1, 1), r"duplicate axes, normalized axes = \[1, 1\]"),
        ((0, -4), r"duplicate axes, normalized axes = \[0, 0\]"),
    ],
)
def test_wrong_new_axes_are_refused_with_tritons_cause(axes: object, words: str) -> None:
    @triton.jit
    def widen(out, AXES: tl.constexpr):
        x = tl.arange(0, 16)[:, None]
        tl.store(out, tl.sum(tl.expand_dims(x, AXES)))

    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(triton.TritonError) as caught:
        widen[(1,)](out, axes)
    with pytest.raises(ValueError, match=words):
        raise caught.value.__cause__ or AssertionError("no cause")


def test_slices_are_refused_in_tritons_words() -> None:
    @triton.jit
    def cut(x):
        x[2:]

    with pytest.raises(triton.TritonError, match="unsupported tensor index"):
        cut[(1,)](torch.zeros(8))


@pytest.mark.parametrize(
    ("name", "finfo"), [("float16", torch.float16), ("bfloat16", torch.bfloat16), ("float32", None), ("float64", None)]
)
def test_a_float_format_is_described(name: str, finfo: object) -> None:
    t = getattr(tl, name)
    info = torch.finfo(finfo or getattr(torch, name))
    assert info.eps == 2.0**-t.fp_mantissa_width
    assert info.tiny == 2.0 ** (1 - t.exponent_bias)
    assert repr(t) == f"triton.language.{name}"


@pytest.mark.parametrize("name", ["float8e4nv", "float8e5", "float8e4b8", "float8e5b16"])
def test_an_eight_bit_format_is_described(name: str) -> None:
    t = getattr(tl, name)
    info = ml_dtypes.finfo(t.numpy_name)
    assert info.nmant == t.fp_mantissa_width
    assert float(info.smallest_normal) == 2.0 ** (1 - t.exponent_bias)
    assert repr(t) == f"triton.language.{name}"


def test_names_of_dtypes_are_known() -> None:
    assert all(map(tl.dtype.is_dtype, ["int1", "fp8e4b15", "bf16", "void"]))
    assert not any(map(tl.dtype.is_dtype, ["float32", "*fp32", "int128"]))


@pytest.mark.parametrize("name", ["int8", "int16", "uint8"])
def test_atomics_on_narrow_integers_have_tritons_cause(name: str) -> None:
    @triton.jit
    def bump(x):
        tl.atomic_add(x, 1)

    x = torch.zeros(1, dtype=getattr(torch, name))
    with pytest.raises(triton.TritonError) as caught:
        bump[(1,)](x)
    assert str(caught.value.__cause__) == f"atomic_add does not support {name}"
    assert x.item() == 0


def test_a_scalar_pointer_grows_dimensions_to_meet_a_kept_reduction() -> None:
    @triton.jit
    def total(x, flat, deep):
        tile = tl.load(x + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :])
        tl.store(flat[None, None, :], tl.sum(tile, keep_dims=True))
        tl.store(deep[None, None, None, :], tl.max(tl.reshape(tile, (8, 2, 4)), keep_dims=True))

    x = torch.arange(64, dtype=torch.float32)
    flat, deep = torch.zeros(1), torch.zeros(1)
    total[(1,)](x, flat, deep)
    assert flat.item() == 64 * 63 / 2 and deep.item() == 63


def test_a_new_dimension_beyond_the_others_is_refused() -> None:
    @triton.jit
    def far(out):
        x = tl.arange(0, 8)[:, :, None]
        tl.store(out + x, x)

    with pytest.raises(triton.TritonError) as caught:
        far[(1,)](torch.zeros(8, dtype=torch.int32))
    assert "invalid axis 2" in str(caught.value.__cause__)


def test_one_bit_sums_and_products() -> None:
    @triton.jit
    def bits(x, sums, products, back, total, N: tl.constexpr):
        lane = tl.arange(0, N)
        b = tl.load(x + lane) != 0
        tl.store(sums + lane, tl.cumsum(b, 0, dtype=tl.int1).to(tl.int32))
        tl.store(products + lane, tl.cumprod(b, 0).to(tl.int32))
        tl.store(back + lane, tl.cumsum(b, 0, reverse=True, dtype=tl.int1).to(tl.int32))
        tl.store(total, tl.sum(b, dtype=tl.int1).to(tl.int32))
        tl.store(total + 1, tl.sum(b).to(tl.int32))

    x = np.array([1, 1, 0, 1, 1, 1, 0, 0], np.int32)
    sums, products, back, total = (torch.full((n,), -1, dtype=torch.int32) for n in (8, 8, 8, 2))
    bits[(1,)](torch.from_numpy(x), sums, products, back, total, 8)
    np.testing.assert_array_equal(sums, np.cumsum(x) % 2)
    np.testing.assert_array_equal(products, np.cumprod(x))
    np.testing.assert_array_equal(back, np.cumsum(x[::-1])[::-1] % 2)
    np.testing.assert_array_equal(total, [x.sum() % 2, x.sum()])
