"""The launch as Triton's host code sees it: what it returns, compiling ahead, hooks, what was compiled."""

from __future__ import annotations

import gc
import tracemalloc
from collections import namedtuple

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import knobs


@triton.jit
def add(a, b, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.load(a + i) + tl.load(b + i))


@pytest.fixture(autouse=True)
def no_hooks_left():
    add.device_caches[0][0].clear()
    yield
    knobs.runtime.reset()


def three(n=32):
    return torch.randn(n), torch.randn(n), torch.zeros(n)


# -- what a launch returns


def test_a_launch_returns_what_was_compiled():
    a, b, o = three()
    handle = add[(1,)](a, b, o, N=32, num_warps=8)
    assert isinstance(handle, triton.compiler.CompiledKernel) and handle.name == "add"
    assert add[(1,)](a, b, o, N=32, num_warps=8) is handle
    assert handle.src.fn is add and handle.src.signature == {"a": "*fp32", "b": "*fp32", "o": "*fp32", "N": "constexpr"}
    assert handle.src.constants == {(3,): 32}
    assert handle.metadata.num_warps == 8 and handle.metadata.num_stages == 3 and handle.metadata.name == "add"
    assert handle.metadata.target.backend == "cpu" and handle.metadata.hash == handle.hash
    assert handle.n_spills == 0 and handle.n_regs > 0
    assert handle.asm["source"] == add[(1,)].source(a, b, o, N=32)
    assert "pallas_call" in handle.asm["source"] and handle.kernel.decode() == handle.asm["source"]
    assert "store" in handle.asm["tile_ir"] and "stablehlo.add" in handle.asm["stablehlo"]
    assert set(handle.asm) == {"tile_ir", "source", "stablehlo", "hlo"}
    assert "*fp32" in repr(handle)


def test_a_text_that_does_not_exist():
    handle = add.warmup(*three(), N=32, grid=(1,))
    with pytest.raises(Diagnostic) as caught:
        handle.asm["ptx"]
    assert caught.value.code == "TPB262" and "stablehlo" in caught.value.do[0] and caught.value.where.file == __file__
    with pytest.raises(KeyError):
        handle.asm["ttgir"]
    assert "ptx" not in handle.asm and handle.asm.get("ptx") is None


def test_a_handle_launches_over_another_grid():
    @triton.jit
    def rows(o, n, BLOCK: tl.constexpr):
        tl.store(o + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.full((BLOCK,), n, tl.float32))

    o = torch.zeros(32)
    handle = rows.warmup(o, 3, BLOCK=8, grid=(1,))
    handle._init_handles()
    handle[(2,)](o, 5, 8)
    assert o.tolist() == [5] * 16 + [0] * 16
    handle[(4, 1, 1)](o, 6)  # the constexpr is known
    assert o.tolist() == [6] * 32


def test_jax_arrays_still_come_back_new():
    a = jnp.arange(8.0)
    new = add[(1,)](a, a, jnp.zeros(8), N=8)
    assert isinstance(new, type(a)) and np.array_equal(new, 2 * np.arange(8))


# -- compiling ahead


def test_warmup_with_dtypes_tensors_and_mocks_is_one_form():
    forms = add.device_caches[0][0]
    first = add.warmup(torch.float32, torch.float32, torch.float32, 32, grid=(1,))
    assert len(forms) == 1 and list(first.asm) == ["tile_ir"] and first.function is None
    a, b, o = three()
    second = add.warmup(a, b, o, 32, grid=(1,))
    assert len(forms) == 1 and second.hash == first.hash and "source" in second.asm
    assert torch.equal(o, torch.zeros(32)), "nothing runs"
    mock = triton.MockTensor(torch.float32, [32])
    assert "source" in add.warmup(torch.empty(32, device="meta"), mock, mock, 32, grid=(1,)).asm or len(forms) == 1
    add[(1,)](a, b, o, 32)
    assert len(forms) == 1 and torch.equal(o, a + b)
    add.warmup(torch.float64, torch.float64, torch.float64, N=32, grid=(1,))
    assert len(forms) == 2


def test_a_mock_has_the_strides_of_a_contiguous_tensor():
    assert triton.MockTensor(torch.int8, [2, 3, 5]).stride() == (15, 5, 1) == torch.empty(2, 3, 5).stride()
    assert triton.MockTensor(torch.int8).shape == [1]


def test_warmup_refuses_what_a_launch_refuses():
    with pytest.raises(Diagnostic, match="TPB250"):
        add.warmup(torch.float32, torch.float32, torch.float32, grid=(1,))

    @triton.jit
    def bad(o):
        tl.store(o, missing)  # noqa: F821

    with pytest.raises(Diagnostic, match="TPB204"):
        bad.warmup(torch.float32, grid=(1,))


def test_a_dtype_as_a_constexpr_stays_one():
    @triton.jit
    def fill(o, D: tl.constexpr):
        tl.store(o, tl.full((), 1, D))

    assert fill.warmup(torch.float32, tl.float32, grid=(1,)).src.constants == {(1,): tl.float32}


# -- hooks


def test_launch_hooks_see_the_launch():
    seen: list = []

    @triton.jit(
        launch_metadata=lambda grid, kernel, args: {"grid": grid, "value": args["x"], "warps": kernel.num_warps}
    )
    def nothing(x):
        pass

    knobs.runtime.launch_enter_hook.add(lambda m: seen.append(("enter", m.get())))
    knobs.runtime.launch_exit_hook.add(lambda m: seen.append(("first", m.get())))
    knobs.runtime.launch_exit_hook.add(lambda m: seen.append(("last", m.get())))
    nothing[(1, 3, 2)](6, num_warps=2)
    assert [k for k, _ in seen] == ["enter", "last", "first"]
    assert all((m["grid"], m["value"], m["warps"], m["name"]) == ((1, 3, 2), 6, 2, "nothing") for _, m in seen)
    knobs.runtime.reset()
    nothing[(1, 3, 2)](6)
    assert len(seen) == 3


def test_load_hooks_run_once_a_form():
    seen: list = []
    hook = lambda module, function, name, metadata_group, hash: seen.append((name, hash))
    knobs.runtime.kernel_load_start_hook.add(hook)
    knobs.runtime.kernel_load_end_hook.add(hook)
    knobs.runtime.kernel_load_end_hook.add(hook)  # the same one twice is once
    a, b, o = three()
    handle = add[(1,)](a, b, o, N=32)
    add[(1,)](a, b, o, N=32)
    assert seen == [("add", handle.hash)] * 2 and torch.equal(o, a + b)
    knobs.runtime.kernel_load_end_hook.remove(hook)
    knobs.runtime.kernel_load_end_hook.remove(hook)


@pytest.mark.parametrize("options", [{"num_warps": 1}, {"enable_fp_fusion": False}, {"extern_libs": {"a": "b"}}])
def test_compile_hooks_are_called_for_new_options(options):
    before: list = []
    after: list = []
    knobs.runtime.jit_cache_hook = lambda **told: before.append(told)
    knobs.runtime.jit_post_compile_hook = lambda **told: after.append(told["compile"])
    a, b, o = three()
    for given, count in (({}, 1), (options, 2), (options, 2), ({}, 2)):
        add[(1,)](a, b, o, N=32, **given)
        assert len(before) == len(after) == count
    ((name, value),) = options.items()
    assert after[1][name] == (tuple(value.items()) if name == "extern_libs" else value)
    told = before[0]
    assert told["fn"].name == "add" and told["fn"].jit_function is add and told["fn"].module == __name__
    assert told["repr"].startswith("add[num_warps=4,") and "a: *fp32" in told["repr"]
    assert told["compile"]["key"] in add.device_caches[0][0] and not told["is_manual_warmup"]
    assert told["compile"]["constants"] == {(3,): 32}


@pytest.mark.parametrize(("which", "count"), [("plain", 3), ("names", 1), ("alignment", 2)])
def test_forms_are_counted_as_triton_counts_them(which, count):
    def store(o, i):
        tl.store(o, i)

    options = {"names": {"do_not_specialize": ["i"]}, "alignment": {"do_not_specialize_on_alignment": [1]}}
    kernel = triton.jit(store, **options.get(which, {}))
    counted: list = []
    knobs.runtime.jit_cache_hook = lambda **told: counted.append(told)
    o = torch.zeros(1, dtype=torch.int32)
    for i in (1, 2, 4, 8, 16, 32):
        kernel[(1,)](o, i)
        assert o.item() == i
    assert len(counted) == count


def test_a_cache_hook_may_stop_the_launch():
    knobs.runtime.jit_cache_hook = lambda **told: True
    a, b, o = three()
    assert add[(1,)](a, b, o, N=32) is None and torch.equal(o, torch.zeros(32))
    knobs.runtime.jit_cache_hook = None
    add[(1,)](a, b, o, N=32)
    assert torch.equal(o, a + b)


def test_hooks_of_stages_that_are_not_here_are_refused():
    for group, name in ((knobs.runtime, "add_stages_inspection_hook"), (knobs.compilation, "listener")):
        with pytest.raises(Diagnostic, match="TPB262"):
            setattr(group, name, print)


def test_hooks_end_with_their_scope():
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = print
    assert knobs.runtime.jit_cache_hook is None


def test_preload_compiles_what_was_recorded():
    told: list = []
    knobs.runtime.jit_cache_hook = lambda **given: told.append(given["compile"]["specialization_data"])
    first = add.warmup(torch.float32, torch.float32, torch.float32, 32, grid=(1,))
    add.device_caches[0][0].clear()
    again = add.preload(told[0])
    assert again.hash == first.hash and len(add.device_caches[0][0]) == 1
    count = len(told)
    add.warmup(torch.float32, torch.float32, torch.float32, 32, grid=(1,))
    assert len(told) == count

    @triton.jit
    def other(a):
        pass

    with pytest.raises(RuntimeError, match="Specialization data is for"):
        other.preload(told[0])


def test_pre_run_hooks_come_first_and_may_refuse():
    @triton.jit
    def one(o, n):
        tl.store(o, n)

    seen: list = []
    one.add_pre_run_hook(lambda *args, **kwargs: seen.append((len(args), kwargs)))
    o = torch.zeros(1)
    one[(1,)](o, n=3)
    assert seen == [(1, {"n": 3})] and o.item() == 3

    def refuse(*args, **kwargs):
        raise ValueError("not today")

    one.add_pre_run_hook(refuse)
    with pytest.raises(ValueError, match="not today"):
        one[(1,)](o, 4)
    assert o.item() == 3


# -- arguments


@triton.jit
def nested(o, pair, rest, flag, scale: tl.constexpr = 2):
    first, second = pair
    v = tl.load(first) + tl.load(second)
    for r in tl.static_range(len(rest)):
        v += rest[r]
    if flag:
        v *= scale
    tl.store(o, v)


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize("make", [lambda a, b: (a, b), Pair])
def test_tuples_of_tensors_and_numbers(make):
    a, b, o = torch.tensor([1.0]), torch.tensor([10.0]), torch.zeros(1)
    nested[(1,)](o, make(a, b), (3, 0.5), True)
    assert o.item() == 29
    nested[(1,)](o, make(a, b), (), False)
    assert o.item() == 11
    nested[(1,)](o, make(b, b), (1,), True, scale=tl.constexpr(4))
    assert o.item() == 84


@triton.jit
def put(o, v):
    tl.store(o, v)


@pytest.mark.parametrize(
    "value", [True, False, 2**31, -(2**31), -(2**40), 2**63, 2**64 - 1, np.int16(-3), np.uint8(200), np.bool_(True)]
)
def test_whole_numbers_keep_their_value(value):
    o = torch.zeros(1, dtype=torch.uint64 if int(value) >= 2**63 else torch.int64)
    for _ in range(2):
        put[(1,)](o, value)
        assert o.item() == int(value)


@pytest.mark.parametrize("value", [0.1, np.float32(0.1), np.float64(0.1), float("nan"), -0.0])
def test_real_numbers_are_single_precision(value):
    o = torch.zeros(1)
    put[(1,)](o, value)
    np.testing.assert_array_equal(o.numpy(), np.array([value], np.float32))


@triton.jit
def keyword_only(o, *, n, BLOCK: tl.constexpr = 8):
    tl.store(o + tl.arange(0, BLOCK), n)


def test_keyword_only_parameters():
    o = torch.zeros(8)
    keyword_only[(1,)](o, n=3)
    assert o.tolist() == [3] * 8


def test_a_tensor_of_a_class_of_ones_own():
    class Mine(torch.Tensor):
        pass

    a, b, o = three()
    add[(1,)](Mine(a), torch.nn.Parameter(b), o.as_subclass(Mine), N=32)
    assert torch.equal(o, a + b)

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    with pytest.raises(Diagnostic, match="TPB252"):
        add[(1,)](Wrapper(a), b, o, N=32)


def test_a_kernel_has_no_star_arguments():
    @triton.jit
    def starred(o, *rest):
        tl.store(o, 1)

    with pytest.raises(Diagnostic) as caught:
        starred[(1,)](torch.zeros(1), 2, 3)
    assert caught.value.code == "TPB250" and "*rest" in caught.value.what


def test_a_number_is_no_kernel():
    with pytest.raises(Diagnostic, match="TPB003"):
        triton.jit(3)


def test_launches_leave_nothing_behind():
    a, b, o = three()
    add[(1,)](a, b, o, N=32)
    tracemalloc.start()
    try:
        add[(1,)](a, b, o, N=32)
        gc.collect()
        begin, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            add[(1,)](a, b, o, N=32)
        gc.collect()
        end, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert end - begin < 20_000


# -- nothing to do


def test_an_empty_grid_does_nothing_where_programs_for_triton_run():
    from bridge.diagnostics import DiagnosticNote
    from frontend_triton_compat import shim

    a, b, o = three()
    with pytest.raises(Diagnostic, match="TPB251"):
        add[(0,)](a, b, o, N=32)
    with shim.installed(displace=True):
        with pytest.warns(DiagnosticNote, match="TPB275"):
            handle = add[(2, 0)](a, b, o, N=32)
        assert torch.equal(o, torch.zeros(32))
        handle[(1,)](a, b, o, 32)
        assert torch.equal(o, a + b)
        with pytest.raises(Diagnostic, match="TPB251"):
            add[(-1,)](a, b, o, N=32)
        with pytest.raises(Diagnostic, match="TPB251"):
            add[(0,)](jnp.ones(32), jnp.ones(32), jnp.ones(32), N=32)


# -- compiling for types


@pytest.mark.parametrize("by_index", [False, True])
def test_compile_for_types(by_index):
    @triton.jit
    def kernel(o, n, scale, pair, BLOCK: tl.constexpr, other=None):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        for _ in range(n):
            tl.store(o + i, scale * pair[1] + tl.load(pair[0] + i))

    signature = {"o": "*fp16", "n": "i32", "scale": "fp32", "pair": ("*i8", "i64"), "BLOCK": "constexpr"}
    constants: dict = {"BLOCK": 32}
    if by_index:
        signature, constants = dict(enumerate(signature.values())), {(4,): 32}
    source = triton.compiler.ASTSource(kernel, signature, constants)
    compiled = triton.compile(
        source, target=triton.runtime.driver.active.get_current_target(), options={"num_warps": 2}
    )
    assert compiled.metadata.num_warps == 2 and compiled.name == "kernel" and list(compiled.asm) == ["tile_ir"]
    spelled = ["*fp16", "i32", "fp32", ("*i8", "i64"), "constexpr", "constexpr"]
    assert compiled.src.signature == dict(zip(kernel.arg_names, spelled))
    assert "kernel(o: *fp16, n: int32, scale: fp32, pair: (*int8, int64)," in compiled.asm["tile_ir"]


def test_compile_refuses():
    with pytest.raises(Diagnostic, match="TPB262"):
        triton.compile("kernel.ttir")
    with pytest.raises(Diagnostic, match="TPB250") as caught:
        triton.compile(triton.compiler.ASTSource(add, {"a": "*fp32", "b": "*fp32", "o": "*fp32"}))
    assert "'N'" in caught.value.what
    with pytest.raises(Diagnostic, match="TPB253"):
        triton.compile(triton.compiler.ASTSource(add, {"a": "*fp3", "b": "*fp32", "o": "*fp32"}, {"N": 8}))
    with pytest.raises(Diagnostic, match="TPB003"):
        triton.compiler.ASTSource(len, {})
