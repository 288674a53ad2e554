"""Bad launches are refused with their code before anything is written; unusual good ones work in place."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic, TranslationError


@triton.jit
def add_one(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def copy(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def two_outputs(x, a, b, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(a + i, v + 1, mask=i < n)
    tl.store(b + i, v * 2, mask=i < n)


@triton.jit
def strided_rows(x, o, sx, so, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * sx + i, mask=i < cols)
    tl.store(o + row * so + i, v * 2, mask=i < cols)


def x_and_o(n=64, dtype=torch.float32):
    return torch.arange(n).to(dtype), torch.full((n,), 7.0).to(dtype)


def refused(code, launch, *untouched):
    """The launch raises this code, points at this file, and leaves the tensors as they were."""
    before = [t.detach().clone() for t in untouched]
    with pytest.raises(Diagnostic) as caught:
        launch()
    problem = caught.value
    assert problem.code == code, problem
    assert problem.do, "a remedy is missing"
    assert problem.where is not None and problem.where.file == __file__
    for t, b in zip(untouched, before):
        assert torch.equal(t.detach(), b)
    return problem


# -- tensors


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_is_no_type_of_the_language(dtype):
    x, o = x_and_o()
    problem = refused("TPB253", lambda: add_one[(1,)](x.to(dtype), o, 64, BLOCK=64), o)
    assert "'x'" in problem.what and "complex" in problem.what


def test_meta_tensor_has_no_data():
    x, o = x_and_o()
    problem = refused("TPB252", lambda: add_one[(1,)](x.to("meta"), o, 64, BLOCK=64), o)
    assert "meta" in problem.what
    refused("TPB252", lambda: add_one[(1,)](x, torch.empty(64, device="meta"), 64, BLOCK=64), x)


def test_sparse_tensor_has_no_plain_memory():
    _, o = x_and_o()
    refused("TPB252", lambda: add_one[(1,)](torch.eye(8).to_sparse(), o, 64, BLOCK=64), o)


@pytest.mark.parametrize("empty", ["x", "o"])
def test_empty_tensor(empty):
    tensors = dict(zip("xo", x_and_o()))
    tensors[empty] = torch.empty(0)
    refused("TPB254", lambda: add_one[(1,)](*tensors.values(), 64, BLOCK=64), *tensors.values())


def test_empty_two_dimensional_tensor():
    x, o = x_and_o()
    refused("TPB254", lambda: add_one[(1,)](torch.empty(4, 0), o, 3, BLOCK=64), o)


@pytest.mark.parametrize("empty", ["x", "o", "xo"])
def test_empty_tensors_that_nothing_touches(empty):
    tensors = dict(zip("xo", x_and_o()))
    before = {name: t.clone() for name, t in tensors.items()}
    for name in empty:
        tensors[name] = before[name] = torch.empty(3, 0)
    for _ in range(2):
        add_one[(1,)](*tensors.values(), 0, BLOCK=64)
    assert all(torch.equal(tensors[name], before[name]) for name in tensors)
    one = torch.ones(1), torch.zeros(1)
    add_one[(1,)](*one, 1, BLOCK=64)  # what stands for an empty tensor is not what one element is
    assert one[1].item() == 2
    with pytest.raises(TranslationError, match="TPB254"):
        add_one[(1,)](torch.empty(0), one[1], 1, BLOCK=64)


@triton.jit
def add_two(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 2, mask=i < n)


def test_empty_tensors_are_judged_by_the_numbers_of_their_launch():
    """A bound that other launches left to run time is a number here: whether memory is touched depends on it."""
    _, o = x_and_o()
    for shape, n in [((4, 0), 3), ((3, 0), 0), ((3, 0), 0), ((4, 0), 2)]:
        before, empty = o.clone(), torch.empty(shape)
        if n:
            refused("TPB254", lambda: add_two[(1,)](empty, o, n, BLOCK=64), o)  # noqa: B023
        else:
            add_two[(1,)](empty, o, n, BLOCK=64)
        assert torch.equal(o, before)
    refused("TPB254", lambda: add_two[(1,)](torch.empty(0), torch.zeros(1), 1, BLOCK=64))


@triton.jit
def one_of_two(out, a, b, na, nb, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if tl.load(out) > 0:
        tl.store(out + i, tl.load(a + i, mask=i < na), mask=i < na)
    else:
        tl.store(out + i, tl.load(b + i, mask=i < nb), mask=i < nb)


def test_an_empty_tensor_behind_a_condition_of_run_time():
    out, b = torch.zeros(8), torch.arange(8.0)
    one_of_two[(1,)](out, torch.empty(0), b, 8, 8, BLOCK=8)
    assert torch.equal(out, b)


@triton.jit
def scatter_rows(out, index, x, row_stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n)
    tl.store(out + at * row_stride, tl.load(x + i, mask=i < n), mask=i < n)


def test_an_expanded_output_that_the_kernel_steps_through_itself():
    out, index, x = torch.zeros(6, 4), torch.tensor([3, 0, 5]), torch.rand(3)
    scatter_rows[(1,)](out[:, :1].as_strided((6, 3), (0, 1)), index, x, 4, 3, BLOCK=4)
    want = torch.zeros(6, 4)
    want[index, 0] = x
    assert torch.equal(out, want)


class Buffer:
    """A library's own kind of tensor: a typed address in a storage, with strides that torch does not have."""

    def __init__(self, base, shape, strides, offset):
        self.base_tensor, self.dtype, self.shape, self.strides, self.offset = base, base.dtype, shape, strides, offset

    def data_ptr(self):
        return self.base_tensor.data_ptr() + self.offset * self.dtype.itemsize

    def untyped_storage(self):
        return self.base_tensor.untyped_storage()

    def stride(self):
        return self.strides


@triton.jit
def strided_copy(o, x, so, sx, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i * so, tl.load(x + i * sx, mask=i < n), mask=i < n)


def test_a_typed_address_with_negative_strides():
    x, o = torch.arange(100.0), torch.zeros(200)
    for _ in range(2):
        strided_copy[(4,)](Buffer(o, (100,), (2,), 1), Buffer(x, (100,), (-1,), 99), 2, -1, 100, BLOCK=32)
    assert torch.equal(o[1::2], x.flip(0)) and not o[::2].any()


@triton.jit
def biased(x, bias, o, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    if HAS_BIAS:
        v += tl.load(bias + i)
    tl.store(o + i, v)


@pytest.mark.parametrize("holder", [lambda x: torch.empty(0), lambda x: torch.empty(3, 0), lambda x: x[64:]])
def test_empty_tensor_holds_a_place(holder):
    x, o = x_and_o()
    biased[(1,)](x, holder(x), o, HAS_BIAS=False, BLOCK=64)
    assert torch.equal(o, x)
    refused("TPB254", lambda: biased[(1,)](x, holder(x), o, HAS_BIAS=True, BLOCK=64), o)


def test_expanded_output_overlaps_itself():
    x, o = x_and_o()
    base = torch.zeros(1)
    refused("TPB255", lambda: add_one[(1,)](x, base.expand(64), 64, BLOCK=64), base)
    # A read of an expanded tensor is fine.
    add_one[(1,)](torch.ones(1).expand(1), o, 1, BLOCK=64)
    assert o[0] == 2 and o[1] == 7


def test_programs_that_write_one_place_do_so_in_order():
    base, x = torch.zeros(16), torch.arange(32.0).reshape(4, 8)
    strided_rows[(4,)](x, base.as_strided((4, 8), (2, 1)), 8, 2, 8, BLOCK=8)
    expected = torch.zeros(16)
    for row in range(4):
        expected[2 * row : 2 * row + 8] = 2 * x[row]
    assert torch.equal(base, expected)


def test_one_memory_under_two_dtypes():
    x = torch.arange(64, dtype=torch.float32)
    refused("TPB256", lambda: copy[(1,)](x, x.view(torch.int32), 64, BLOCK=64), x)


def test_torch_and_jax_in_one_launch():
    x, o = x_and_o()
    refused("TPB252", lambda: add_one[(1,)](jnp.ones(64), o, 64, BLOCK=64), o)
    refused("TPB252", lambda: add_one[(1,)](x, jnp.ones(64), 64, BLOCK=64), x)


# -- the grid


@pytest.mark.parametrize(
    "grid", [(0,), 0, (2, 0), (-1,), -3, (1, 1, 1, 1), (), (1.5,), ("4",), "4", None, (None,), lambda meta: (0,)]
)
def test_grid_is_one_to_three_positive_integers(grid):
    x, o = x_and_o()
    refused("TPB251", lambda: add_one[grid](x, o, 64, BLOCK=64), o)


def test_grid_function_that_asks_for_an_unknown_name():
    x, o = x_and_o()
    problem = refused("TPB251", lambda: add_one[lambda meta: (meta["BLOK"],)](x, o, 64, BLOCK=64), o)
    assert "'BLOK'" in problem.what and "BLOCK" in problem.why


@pytest.mark.parametrize(
    "grid", [1, (1,), [1], (1, 1, 1), (np.int64(1),), lambda meta: (triton.cdiv(64, meta["BLOCK"]),)]
)
def test_grids_that_are_fine(grid):
    x, o = x_and_o()
    add_one[grid](x, o, 64, BLOCK=64)
    assert torch.equal(o, x + 1)


# -- arguments


def test_missing_argument():
    x, o = x_and_o()
    problem = refused("TPB250", lambda: add_one[(1,)](x, o, BLOCK=64), o)
    assert "'n'" in problem.what


def test_missing_constexpr():
    x, o = x_and_o()
    problem = refused("TPB250", lambda: add_one[(1,)](x, o, 64), o)
    assert "'BLOCK'" in problem.what and "constexpr" in problem.what


def test_unknown_keyword():
    x, o = x_and_o()
    problem = refused("TPB250", lambda: add_one[(1,)](x, o, 64, BLOCK=64, BLOK=2), o)
    assert "'BLOK'" in problem.what


def test_launch_options_are_accepted():
    x, o = x_and_o()
    add_one[(1,)](x, o, 64, BLOCK=64, num_warps=8, num_stages=3)
    assert torch.equal(o, x + 1)


def test_too_many_arguments():
    x, o = x_and_o()
    refused("TPB250", lambda: add_one[(1,)](x, o, 64, 64, 5), o)


def test_argument_given_twice():
    x, o = x_and_o()
    refused("TPB250", lambda: add_one[(1,)](x, o, 64, n=64, BLOCK=64), o)


@pytest.mark.parametrize("value", [torch.tensor(64), jnp.asarray(64)], ids=["torch", "jax"])
def test_array_for_a_constexpr(value):
    x, o = x_and_o()
    problem = refused("TPB250", lambda: add_one[(1,)](x, o, 64, BLOCK=value), o)
    assert "'BLOCK'" in problem.what


@pytest.mark.parametrize("value", [object(), {1: 2}, 1j, np.ones(3), 2**70], ids=lambda v: type(v).__name__)
def test_argument_of_a_kind_that_kernels_do_not_take(value):
    x, o = x_and_o()
    refused("TPB250", lambda: add_one[(1,)](x, o, value, BLOCK=64), o)


def test_number_for_a_pointer():
    x, o = x_and_o()
    with pytest.raises(Diagnostic) as caught:
        add_one[(1,)](3, o, 64, BLOCK=64)
    assert caught.value.slug != "internal-error" and caught.value.where is not None
    assert torch.equal(o, torch.full((64,), 7.0))


def test_descriptor_in_the_place_of_a_pointer():
    x, o = x_and_o()
    descriptor = triton.runtime.TensorDescriptor.from_tensor(x, [64])
    problem = refused("TPB210", lambda: add_one[(1,)](descriptor, o, 64, BLOCK=64), o)
    assert "tensor_descriptor" in problem.what


def test_kernel_called_like_a_function():
    x, o = x_and_o()
    problem = refused("TPB213", lambda: add_one(x, o, 64, 64), o)
    assert "add_one[grid]" in problem.do[0]


def test_second_output_bad_leaves_the_first_untouched():
    x, a = x_and_o()
    b = torch.zeros(1)
    refused("TPB255", lambda: two_outputs[(1,)](x, a, b.expand(64), 64, BLOCK=64), a, b)


def test_errors_are_catchable_under_tritons_names():
    x, o = x_and_o()
    with pytest.raises(triton.CompilationError):
        add_one[(0,)](x, o, 64, BLOCK=64)
    assert issubclass(TranslationError, triton.TritonError)


# -- unusual launches that work


def test_leaf_that_requires_grad_is_written_in_place():
    x = torch.arange(64.0)
    w = torch.nn.Parameter(torch.zeros(64))
    pointer = w.data_ptr()
    add_one[(1,)](x, w, 64, BLOCK=64)
    assert torch.equal(w.detach(), x + 1) and w.requires_grad and w.data_ptr() == pointer


@pytest.mark.parametrize("layout", ["transposed", "every other", "offset"])
def test_non_contiguous_in_and_out(layout):
    def make(fill):
        if layout == "transposed":
            return torch.full((8, 4), fill).t(), (slice(None), slice(None))
        if layout == "every other":
            return torch.full((4, 16), fill)[:, ::2], None
        return torch.full((6, 12), fill)[1:5, 2:10], None

    @triton.jit
    def double(x, o, s0, s1, t0, t1, BLOCK: tl.constexpr):
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        tl.store(o + row * t0 + i * t1, tl.load(x + row * s0 + i * s1) * 2)

    x, _ = make(0.0)
    o, _ = make(-1.0)
    x.copy_(torch.arange(32.0).reshape(4, 8))
    base = o._base
    before = base.clone()
    double[(4,)](x, o, *x.stride(), *o.stride(), BLOCK=8)
    assert torch.equal(o, 2 * torch.arange(32.0).reshape(4, 8))
    # What lies between the elements of the view keeps its value.
    o.fill_(-1.0)
    assert torch.equal(base, before)


@pytest.mark.parametrize("offset", [0, 16], ids=["aligned", "an offset of 64 bytes"])
def test_same_tensor_in_and_out(offset):
    whole = torch.arange(96.0)
    x = whole[offset : offset + 64]
    add_one[(2,)](x, x, 64, BLOCK=32)
    expected = torch.arange(96.0)
    expected[offset : offset + 64] += 1
    assert torch.equal(whole, expected)


def test_views_of_the_output_see_the_result():
    x, o = x_and_o()
    view = o.view(8, 8)[2]
    add_one[(1,)](x, o, 64, BLOCK=64)
    assert torch.equal(view, x.view(8, 8)[2] + 1)


def test_elements_that_no_program_writes_keep_their_value():
    x, o = x_and_o()
    add_one[(1,)](x, o, 10, BLOCK=64)
    assert torch.equal(o[:10], x[:10] + 1) and torch.equal(o[10:], torch.full((54,), 7.0))


def test_zero_dimensional_tensors():
    @triton.jit
    def scalar(x, o):
        tl.store(o, tl.load(x) * 3)

    o = torch.tensor(0.0)
    scalar[(1,)](torch.tensor(2.0), o)
    assert o.item() == 6.0 and o.shape == ()


def test_one_element():
    o = torch.zeros(1)
    add_one[(1,)](torch.ones(1), o, 1, BLOCK=64)
    assert o.tolist() == [2.0]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ],
    ids=str,
)
def test_dtypes_keep_their_bits(dtype):
    raw = torch.randint(0, 2 if dtype == torch.bool else 100, (64 * dtype.itemsize,), dtype=torch.uint8)
    x, o = raw.view(dtype), torch.zeros(64 * dtype.itemsize, dtype=torch.uint8).view(dtype)
    if dtype.itemsize == 8 and not dtype.is_floating_point:
        x[0] = 2**62 + 1  # narrowing to 32 bits, or through a float, would show
    copy[(2,)](x, o, 64, BLOCK=32)
    assert torch.equal(o.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
def test_64_bit_arithmetic(dtype):
    x = torch.arange(64).to(dtype) + (2**40 if dtype == torch.int64 else 1e-12)
    o = torch.zeros_like(x)
    add_one[(1,)](x, o, 64, BLOCK=64)
    assert torch.equal(o, x + 1)


@triton.jit
def scaled(x, o, factor, flag, extra, n, BLOCK: tl.constexpr, MORE: tl.constexpr = 2):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if flag:
        v = v * factor
    if extra is not None:
        v += tl.load(extra + i, mask=i < n)
    tl.store(o + i, v * MORE, mask=i < n)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("factor", [3, 0.5, 1, -2.0, np.float32(1.5)])
def test_scalars_flags_none_and_defaults(flag, factor):
    x, o = x_and_o()
    scaled[(1,)](x, o, factor, flag, None, 64, BLOCK=64)
    assert torch.allclose(o, (x * float(factor) if flag else x) * 2)


def test_default_can_be_given_and_order_of_keywords_is_free():
    x, o = x_and_o()
    scaled[(1,)](BLOCK=64, MORE=5, n=64, extra=x, flag=False, factor=1.0, o=o, x=x)
    assert torch.equal(o, 10 * x)


def test_an_integer_beyond_32_bits():
    @triton.jit
    def fill(o, value):
        tl.store(o + tl.arange(0, 4), value)

    o = torch.zeros(4, dtype=torch.int64)
    for value in (5, 2**40 + 3, -(2**40)):
        fill[(1,)](o, value)
        assert o.tolist() == [value] * 4


def test_float_arguments_are_not_baked_in():
    x, o = x_and_o()
    for factor in (0.25, 4.0, float("inf")):
        scaled[(1,)](x, o, factor, True, None, 64, BLOCK=64)
        assert torch.equal(o.nan_to_num(1.0), (x * factor * 2).nan_to_num(1.0))


def test_tuple_of_tensors():
    @triton.jit
    def both(pair, o, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(o + i, tl.load(pair[0] + i) + tl.load(pair[1] + i))

    x, o = x_and_o()
    both[(1,)]((x, 2 * x), o, BLOCK=64)
    assert torch.equal(o, 3 * x)


def test_reinterpreted_tensor():
    x = torch.tensor([0, 1, 255, 128], dtype=torch.uint8)
    o = torch.zeros(4, dtype=torch.int32)
    copy[(1,)](triton.reinterpret(x, tl.int8), o, 4, BLOCK=4)
    assert o.tolist() == [0, 1, -1, -128]
    with pytest.raises(Diagnostic, match="TPB253"):
        triton.reinterpret(x, tl.float32)


@pytest.mark.parametrize("seen", [tl.uint16, tl.uint32, tl.uint64])
def test_a_tensor_made_like_a_reinterpreted_one(seen):
    x = torch.arange(4, dtype={16: torch.int16, 32: torch.int32, 64: torch.int64}[seen.primitive_bitwidth]) - 2
    wrapped = triton.reinterpret(x, seen)
    o = wrapped.new_empty((2, 2))
    assert o.shape == (2, 2) and o.dtype == seen and o.base.dtype == x.dtype
    copy[(1,)](wrapped, o, 4, BLOCK=4)
    assert torch.equal(o.base.flatten(), x)
    o.data.fill_(-1)
    assert torch.all(o.base == -1)
    o.data = o.data[:1]
    assert o.shape == (2, 2)


def test_the_allocator_can_be_taken_away():
    from frontend_triton_compat.runtime._allocation import NullAllocator

    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    triton.set_allocator(NullAllocator())
    x, o = x_and_o()
    copy[(1,)](x, o, x.numel(), BLOCK=64)
    with pytest.raises(RuntimeError, match="set_allocator"):
        NullAllocator()(128, 128, 0)


# -- jax


def test_jax_arrays_give_new_arrays():
    x, o = jnp.arange(64.0), jnp.full(64, 7.0)
    new = add_one[(1,)](x, o, 10, BLOCK=64)
    expected = np.full(64, 7.0, np.float32)
    expected[:10] = np.arange(10) + 1
    assert isinstance(new, jax.Array)
    np.testing.assert_array_equal(new, expected)
    np.testing.assert_array_equal(o, np.full(64, 7.0))


def test_several_outputs_are_a_tuple_in_the_order_of_the_parameters():
    x = jnp.arange(64.0)
    a, b = two_outputs[(1,)](x, jnp.zeros(64), jnp.zeros(64), 64, BLOCK=64)
    np.testing.assert_array_equal(a, np.arange(64) + 1)
    np.testing.assert_array_equal(b, np.arange(64) * 2)


def test_launch_inside_jax_jit():
    @jax.jit
    def f(x):
        return add_one[(2,)](x * 2, jnp.zeros_like(x), 64, BLOCK=32).sum()

    assert float(f(jnp.arange(64.0))) == float(np.arange(64).sum() * 2 + 64)


# -- threads


def test_threads_launch_one_kernel():
    @triton.jit
    def plus(x, o, k, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(o + i, tl.load(x + i, mask=i < n) + k, mask=i < n)

    failures = []

    def work(size):
        try:
            for k in range(8):
                x = torch.arange(float(size))
                o = torch.zeros(size)
                plus[(triton.cdiv(size, 32),)](x, o, k, size, BLOCK=32)
                assert torch.equal(o, x + k)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(size,)) for size in (64, 64, 100, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not failures, failures


@triton.jit
def store_wide(o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i[:, None], i[:, None] + i[None, :])


def test_a_value_wider_than_its_pointers_is_refused():
    o = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(TranslationError, match="memory-access"):
        store_wide[(1,)](o, B=8)
    assert not o.any()


@triton.jit
def fill(o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, 1.0, mask=i < n)


def test_a_grid_function_takes_the_arguments():
    with pytest.raises(TranslationError, match="launch-grid"):
        fill[lambda: (1,)](torch.zeros(8), 8, B=8)
    o = torch.zeros(8)
    fill[lambda meta, unused=None: (1,)](o, 8, B=8)
    fill[lambda *args: (1,)](o, 8, B=8)
    assert o.all()
