"""to_jax, to_torch, crossing: pointers prove sharing, numpy proves values, codes prove the rest."""

import os
import subprocess
import sys
import textwrap
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bridge
from bridge import Crossing
from bridge.diagnostics import Diagnostic, DiagnosticNote, strict


def pointer(a):
    return a.unsafe_buffer_pointer()


def refused(slug, thunk):
    """The diagnostic that `thunk` raises, checked for its slug and for the line of this file."""
    with pytest.raises(Diagnostic) as caught:
        thunk()
    problem = caught.value
    assert problem.slug == slug, problem
    assert problem.where is not None and problem.where.file == __file__
    return problem


def noted(slug, thunk):
    """The value of `thunk`, which must issue one note of this slug; strict() turns the same note into an error."""
    refused_in_strict(slug, thunk)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        value = thunk()
    assert [w.message.slug for w in seen if isinstance(w.message, DiagnosticNote)] in ([slug], [])
    return value


def refused_in_strict(slug, thunk):
    with strict(), pytest.raises(Diagnostic) as caught:
        thunk()
    assert caught.value.slug == slug


# Sharing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(64),
        lambda: torch.rand(4, 5, 6),
        lambda: torch.rand(64)[0],
        lambda: torch.rand(3, 1, 6, 2).as_strided((3, 1, 6, 2), (12, 7, 2, 1)),
        lambda: torch.rand(64, 64)[16:],
        lambda: torch.nn.Parameter(torch.rand(64)).detach(),
        lambda: torch.rand(64, requires_grad=True).detach(),
        lambda: torch.view_as_real(torch.rand(64, dtype=torch.complex64)),
        lambda: torch.rand(64).share_memory_(),
    ],
)
@pytest.mark.parametrize("copy", [None, False])
def test_dense_aligned_tensors_are_shared_both_ways(make, copy):
    t = make()
    assert bridge.crossing(t, copy) == Crossing("shared")
    with strict():
        a = bridge.to_jax(t, copy)
        back = bridge.to_torch(a, copy)
    assert pointer(a) == t.data_ptr() == back.data_ptr()
    assert a.shape == back.shape == t.shape and back.is_contiguous()
    assert np.array_equal(np.asarray(a), t.numpy())


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0, 2)])
def test_empty_tensors_cross(shape):
    t = torch.empty(shape)
    with strict():
        assert bridge.to_jax(t).shape == shape
        assert bridge.to_torch(jnp.zeros(shape)).shape == shape


def test_a_shared_array_sees_later_writes_and_a_copy_does_not():
    t = torch.ones(64)
    shared, copied = bridge.to_jax(t), bridge.to_jax(t, copy=True)
    t.fill_(5)
    assert (float(shared[3]), float(copied[3])) == (5.0, 1.0)
    assert pointer(copied) != t.data_ptr()


def test_a_shared_parameter_follows_the_optimiser():
    p = torch.nn.Parameter(torch.ones(64))
    a = bridge.to_jax(p.detach())
    p.sum().backward()
    torch.optim.SGD([p], lr=0.5).step()
    assert a.tolist() == [0.5] * 64


def test_many_views_of_one_tensor_are_shared_at_once():
    t = torch.arange(4096.0)
    arrays = [bridge.to_jax(t[i * 1024 :].view(-1, 32)) for i in range(4)] + [bridge.to_jax(t.view(torch.int32))]
    t.add_(1)
    for i, a in enumerate(arrays[:4]):
        assert pointer(a) == t.data_ptr() + i * 4096
        assert np.array_equal(np.asarray(a).ravel(), t.numpy()[i * 1024 :])
    assert np.array_equal(np.asarray(arrays[4]), t.view(torch.int32).numpy())


def test_inference_tensors_cross():
    with torch.inference_mode():
        t = torch.rand(64)
        assert pointer(bridge.to_jax(t)) == t.data_ptr()
    assert pointer(bridge.to_jax(t)) == t.data_ptr()


def test_results_of_jitted_functions_cross_back():
    t = torch.rand(8, 16)
    out = bridge.to_torch(jax.jit(lambda x: x.T * 2)(bridge.to_jax(t)))
    assert torch.equal(torch.as_tensor(out.numpy().copy()), t.t() * 2)


def test_threads_share_one_tensor():
    t, arrays = torch.rand(1024), []
    barrier = threading.Barrier(8)

    def share():
        barrier.wait()
        for _ in range(50):
            arrays.append(bridge.to_jax(t))

    threads = [threading.Thread(target=share) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(arrays) == 400 and {pointer(a) for a in arrays} == {t.data_ptr()}


# 64 bits ---------------------------------------------------------------------------------------------------------

WIDE = [
    (torch.int64, [1, 2**40]),
    (torch.uint64, [1, 2**63]),
    (torch.float64, [1e300, 0.1]),
    (torch.complex128, [1e300, 0.1]),
]


@pytest.mark.parametrize(("dtype", "values"), WIDE)
@pytest.mark.parametrize("copy", [None, False, True])
def test_64_bits_are_kept_with_a_note_while_x64_is_off(dtype, values, copy):
    t = torch.tensor(values, dtype=dtype)
    a = noted("int64-needs-x64", lambda: bridge.to_jax(t, copy))
    assert a.dtype == t.numpy().dtype and np.array_equal(np.asarray(a), t.numpy())
    assert (pointer(a) == t.data_ptr()) == (copy is not True)
    assert not jax.config.jax_enable_x64
    if not copy:
        assert bridge.crossing(t, copy).how == "shared" and bridge.crossing(t, copy).code == "TPB101"


@pytest.mark.parametrize(("dtype", "values"), WIDE)
def test_64_bits_are_silent_in_x64_mode_and_compute_right(dtype, values):
    t = torch.tensor(values, dtype=dtype)
    with jax.enable_x64(True), strict():
        assert bridge.crossing(t) == Crossing("shared")
        a = bridge.to_jax(t)
        assert np.array_equal(np.asarray(a + 1), t.numpy() + np.ones((), t.numpy().dtype))
        assert np.array_equal(bridge.to_torch(a).numpy(), t.numpy())


def test_64_bit_arrays_of_jax_are_exported_whole():
    with jax.enable_x64(True):
        a = jnp.array([1, 2**40])
    t = bridge.to_torch(a)
    assert t.dtype is torch.int64 and t.tolist() == [1, 2**40]


# Copies and refusals ---------------------------------------------------------------------------------------------


def table():
    return torch.arange(4096.0).view(64, 64)


COPIED = {
    "transposed": (lambda: table().t(), "strided-import"),
    "permuted": (lambda: torch.arange(4096.0).view(16, 16, 16).permute(2, 0, 1), "strided-import"),
    "channels_last": (lambda: torch.rand(2, 3, 4, 8).to(memory_format=torch.channels_last), "strided-import"),
    "row step": (lambda: table()[::2], "strided-import"),
    "columns": (lambda: table()[:, 16:32], "strided-import"),
    "column step": (lambda: table()[:, ::2], "strided-import"),
    "expanded": (lambda: torch.arange(64.0).expand(8, 64), "strided-import"),
    "overlapping": (lambda: table().as_strided((4, 4), (1, 1)), "strided-import"),
    "misaligned": (lambda: torch.arange(33.0)[1:], "misaligned-zero-copy"),
    "conj": (lambda: torch.randn(64, dtype=torch.complex64).conj(), "lazy-conj-or-neg"),
    "neg": (lambda: torch.randn(64, dtype=torch.complex64).conj().imag, "lazy-conj-or-neg"),
    "dense neg": (lambda: torch._neg_view(torch.randn(64)), "lazy-conj-or-neg"),
    "zero": (lambda: torch._efficientzerotensor(64), "lazy-conj-or-neg"),
}


@pytest.mark.parametrize("case", COPIED)
def test_what_cannot_be_shared_is_copied_with_a_note(case):
    make, slug = COPIED[case]
    t = make()
    verdict = bridge.crossing(t)
    assert (verdict.how, verdict.code) == ("copied", bridge.diagnostics.lookup(slug).code) and verdict.reason
    a = noted(slug, lambda: bridge.to_jax(t))
    expected = t.resolve_conj().resolve_neg().numpy(force=True)
    assert np.array_equal(np.asarray(a), expected)
    assert np.array_equal(np.asarray(a + 0), expected)
    with strict():
        assert np.array_equal(np.asarray(bridge.to_jax(t, copy=True)), np.asarray(a))


@pytest.mark.parametrize("case", [c for c in COPIED if c not in ("transposed", "permuted", "channels_last")])
def test_copy_false_refuses_what_cannot_be_shared(case):
    make, slug = COPIED[case]
    t = make()
    assert bridge.crossing(t, copy=False).how == "refused"
    refused(slug, lambda: bridge.to_jax(t, copy=False))


@pytest.mark.parametrize("case", ["transposed", "permuted", "channels_last"])
def test_copy_false_shares_a_permutation_with_its_layout(case):
    t = COPIED[case][0]()
    assert bridge.crossing(t, copy=False) == Crossing("shared")
    with strict():
        a = bridge.to_jax(t, copy=False)
    assert pointer(a) == t.data_ptr()
    assert np.array_equal(np.asarray(a), t.numpy())
    assert np.array_equal(np.asarray(jax.jit(lambda x: x + 1)(a)), t.numpy() + 1)
    back = bridge.to_torch(a)
    assert back.data_ptr() == t.data_ptr() and back.stride() == t.stride()


def test_the_copy_of_a_permutation_fits_a_compiled_executable():
    t = table().t()
    compiled = jax.jit(lambda x: x + 1).lower(jnp.zeros((64, 64))).compile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiagnosticNote)
        assert np.array_equal(np.asarray(compiled(bridge.to_jax(t))), t.numpy() + 1)


def test_the_misaligned_message_gives_both_alignments():
    problem = refused("misaligned-zero-copy", lambda: bridge.to_jax(torch.arange(33.0)[1:], copy=False))
    assert "4 bytes past a multiple of 64" in str(problem) and "copy=None" in str(problem)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_view_crosses_with_the_right_values(data):
    base = torch.arange(6 * 8 * 16, dtype=torch.float32).view(6, 8, 16)
    t = base.permute(data.draw(st.permutations(range(3))))
    for dim in range(3):
        start = data.draw(st.integers(0, t.shape[dim] - 1))
        stop = data.draw(st.integers(start, t.shape[dim]))
        step = data.draw(st.integers(1, 3))
        t = t[(slice(None),) * dim + (slice(start, stop, step),)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiagnosticNote)
        verdict, a = bridge.crossing(t), bridge.to_jax(t)
    assert np.array_equal(np.asarray(a), t.numpy())
    assert np.array_equal(bridge.to_torch(a).numpy(), t.numpy())
    if t.numel():
        assert (pointer(a) == t.data_ptr()) == (verdict.how == "shared")


# Gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda: torch.nn.Parameter(torch.ones(64)), lambda: torch.ones(64, requires_grad=True) * 2]
)
@pytest.mark.parametrize("copy", [None, False, True])
def test_a_gradient_is_not_lost(make, copy):
    t = make()
    problem = refused("grad-would-be-lost", lambda: bridge.to_jax(t, copy))
    assert "detach()" in problem.do[0]
    with torch.no_grad(), strict():
        assert (pointer(bridge.to_jax(t, copy)) == t.data_ptr()) == (not copy)
    with strict():
        assert pointer(bridge.to_jax(t.detach())) == t.data_ptr()


def test_a_forward_mode_tangent_is_not_lost():
    import torch.autograd.forward_ad as forward

    with forward.dual_level():
        dual = forward.make_dual(torch.ones(64), torch.ones(64))
        refused("grad-would-be-lost", lambda: bridge.to_jax(dual))
        assert pointer(bridge.to_jax(torch.ones(64))) != 0


# What has no memory ----------------------------------------------------------------------------------------------


class Subclass(torch.Tensor):
    pass


def fake():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(4).to_sparse(),
        lambda: torch.eye(4).to_sparse_csr(),
        lambda: torch.eye(4).to_mkldnn(),
        lambda: torch.empty(4, device="meta"),
        lambda: torch.zeros(64).as_subclass(Subclass),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        fake,
    ],
    ids=["sparse", "csr", "mkldnn", "meta", "subclass", "nested", "fake"],
)
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.filterwarnings("ignore:.*(nested|[Ss]parse|beta state).*:UserWarning")
def test_tensors_without_plain_memory_are_refused(make, copy):
    t = make()
    problem = refused("not-a-plain-tensor", lambda: bridge.to_jax(t, copy))
    assert problem.do and problem.why
    assert bridge.crossing(t, copy).how == "refused"


@pytest.mark.parametrize("transform", [torch.vmap, lambda f: torch.func.grad(lambda x: f(x).sum())])
def test_stand_ins_of_torch_func_are_refused(transform):
    def f(x):
        refused("not-a-plain-tensor", lambda: bridge.to_jax(x))
        return x

    transform(f)(torch.ones(3))


@pytest.mark.parametrize("value", [[1, 2], np.ones(3), 1.0, None, "x"])
def test_other_things_are_refused(value):
    refused("bad-argument", lambda: bridge.to_jax(value))
    refused("bad-argument", lambda: bridge.to_torch(value))
    assert bridge.crossing(value).how == "refused"


def test_the_wrong_direction_is_refused():
    refused("bad-argument", lambda: bridge.to_jax(jnp.ones(3)))
    refused("bad-argument", lambda: bridge.to_torch(torch.ones(3)))
    refused("bad-argument", lambda: bridge.to_jax(torch.ones(3), copy="yes"))
    refused("bad-argument", lambda: bridge.to_torch(jnp.ones(3), copy=2))
    refused("bad-argument", lambda: bridge.to_jax(torch.ones(3), copy=np.array([True, False])))
    refused("bad-argument", lambda: bridge.to_torch(jnp.ones(3), copy=torch.tensor([1, 2])))
    refused("bad-argument", lambda: bridge.crossing(torch.ones(3), copy=torch.tensor([1, 2])))
    refused("bad-argument", lambda: bridge.to_torch(jnp.ones(3), mutable="no"))


# jax -> torch ----------------------------------------------------------------------------------------------------


def test_deleted_and_donated_arrays_are_refused():
    a = jnp.ones(8)
    a.delete()
    refused("deleted-array", lambda: bridge.to_torch(a))
    b = jnp.ones(8)
    jax.jit(lambda x: x + 1, donate_argnums=0)(b)
    assert b.is_deleted()
    refused("deleted-array", lambda: bridge.to_torch(b))
    assert bridge.crossing(b).code == "TPB111"


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())])
def test_traced_values_are_refused(transform):
    def f(x):
        refused("tracer-export", lambda: bridge.to_torch(x))
        return x

    transform(f)(jnp.ones(8))


def test_a_pending_result_is_waited_for():
    slow = jax.jit(lambda x: jnp.linalg.matrix_power(x, 3).sum())
    a = slow(jnp.eye(200))
    assert float(bridge.to_torch(a)) == 200.0


def test_the_source_may_go_first():
    a = jnp.arange(1024.0) * 2
    t, u = bridge.to_torch(a), bridge.to_torch(a)
    del a
    junk = [jnp.full((1024,), -1.0) + i for i in range(8)]
    assert float(t[3]) == 6.0 and float(u[1023]) == 2046.0
    del t
    assert float(u[1]) == 2.0 and len(junk) == 8


def test_an_array_on_several_devices_is_refused_and_gathered_on_request():
    code = """
        import jax, jax.numpy as jnp, numpy as np, bridge
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        mesh = Mesh(jax.devices("cpu")[:2], ("x",))
        a = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("x")))
        try:
            bridge.to_torch(a)
        except bridge.diagnostics.Diagnostic as problem:
            assert problem.slug == "sharded-array" and "2 devices" in str(problem)
        else:
            raise AssertionError("shared a part")
        assert bridge.to_torch(a, copy=True).tolist() == list(range(8))
        assert bridge.to_torch(a.addressable_data(1)).tolist() == [4, 5, 6, 7]
        other = jax.device_put(jnp.arange(4.0), jax.devices("cpu")[1])
        assert bridge.to_torch(other).data_ptr() == other.unsafe_buffer_pointer()
    """
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env=env
    )
    assert done.returncode == 0, done.stderr


def test_crossing_of_an_array():
    assert bridge.crossing(jnp.ones(3)) == Crossing("shared")
    assert bridge.crossing(jnp.ones(3), copy=True) == Crossing("copied", "", "a copy was asked for")


def test_inside_a_compiled_function_the_calls_are_graph_breaks_with_a_reason():
    def f(x):
        return bridge.to_torch(bridge.to_jax(x * 2), mutable=True) * 3

    x = torch.rand(64)
    torch._dynamo.utils.counters.clear()
    assert torch.equal(torch.compile(f, backend="eager")(x), x * 2 * 3)
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert breaks and all("bridge hands memory to jax" in reason for reason in breaks)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"bridge\.jax_op"):
        torch.compile(f, backend="eager", fullgraph=True)(x)
