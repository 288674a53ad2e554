"""Sharing, mutation, layouts, lifetime, threads, dynamic sizes, fallbacks: what the runner promises."""

import gc
import linecache
import threading
import warnings
import weakref

import pytest
import torch
from inductor_checks import check, same
from torch import nn

import inductor_backend
from bridge.diagnostics import BackendError, Diagnostic, DiagnosticNote, strict


def compile_(fn, **options):
    return torch.compile(fn, backend="pallas", options=options or None)


def test_our_compiler_runs_although_inductor_has_cached_the_graph(emitted, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    f = lambda x: x * 3 + 1
    for _ in range(2):
        torch._dynamo.reset()
        compile_(f)(torch.ones(4))
    assert len(emitted) == 2
    assert "mul_Tensor" in emitted[0].sources[0].text


def test_one_segment_one_dispatch(emitted):
    compile_(lambda x, w: torch.softmax(x @ w, -1).sum(0))(torch.randn(4, 5), torch.randn(5, 6))
    assert len(emitted[0].sources) == 1
    assert emitted[0].text.count("segment_") + emitted[0].text.count("(frame): raise") == 1


def test_kernels_are_pallas_kernels_over_refs(emitted):
    compile_(lambda x: torch.softmax(x, -1))(torch.randn(4, 5))
    (kernel,) = emitted[0].sources[0].kernels
    assert "arg0_1_ref[...]" in kernel and "_out[...] = " in kernel
    assert "pallas(segment" in emitted[0].sources[0].text


def test_no_kernels_when_asked(emitted):
    compile_(lambda x: torch.softmax(x * 2, -1), kernels="none")(torch.randn(4, 5))
    assert emitted[0].sources[0].kernels == []


def test_dump_writes_the_source(tmp_path):
    compile_(lambda x: x.exp() + 1, dump=str(tmp_path / "deep"))(torch.ones(3))
    (file,) = (tmp_path / "deep").glob("*.py")
    assert "aten.exp(" in file.read_text()


def test_parameters_are_read_in_place_and_changes_are_seen():
    net = nn.Linear(3, 2)
    compiled, x = torch.compile(net, backend="pallas"), torch.randn(4, 3)
    with torch.no_grad():
        same(compiled(x), net(x))
        net.weight.add_(1.0)
        same(compiled(x), net(x))
        net.weight.data = torch.randn(2, 3)
        same(compiled(x), net(x))
        net.weight.set_(torch.randn(2, 3))
        same(compiled(x), net(x))


def test_import_cache_has_one_entry_per_address(emitted):
    w = torch.randn(64, 64)
    f = compile_(lambda x, w: (x @ w).sort(-1)[0])
    for _ in range(3):
        f(torch.randn(2, 64), w)
    caches = [v for k, v in emitted[0].scope.items() if k.startswith("cache")]
    assert any(list(c) == [w.data_ptr()] for c in caches)


def test_results_are_fresh_memory():
    x = torch.randn(4, 4)
    a, b, c = compile_(lambda x: (x.clone(), x + 0, x.reshape(16) * 1))(x)
    pointers = {t.data_ptr() for t in (a, b, c)}
    assert len(pointers) == 3 and x.data_ptr() not in pointers
    a.zero_()
    assert not torch.equal(x, a)


def test_unaligned_and_sliced_inputs():
    base = torch.randn(100)
    f = compile_(lambda x: x * 2)
    for offset in (0, 1, 3, 16):
        x = base[offset : offset + 40]
        same(f(x), x * 2)
        base.add_(1.0)
        same(f(x), x * 2)
    rows = torch.randn(6, 10)[:, 1:9:2]
    check(lambda x: (x + 1, x.sum(0), x.t() * 2), rows)


def test_overlapping_and_zero_size_inputs():
    check(lambda x: x + 1, torch.randn(1, 5).expand(3, 5))
    check(lambda x, y: (x + 1, y.sum(), torch.cat([x, x])), torch.empty(0, 3), torch.empty(3, 0))
    check(lambda x: x * 2, torch.tensor(3, dtype=torch.int64))


def test_negative_and_conjugate_views():
    z = torch.complex(torch.randn(4), torch.randn(4))
    f = compile_(lambda x: x * 2)
    same(f(z.conj()), z.conj() * 2)
    same(f(z.conj().imag), z.conj().imag * 2)


def inplace_chain(a, b):
    a.relu_()
    a.add_(1)
    a[1].mul_(10)
    b.t().copy_(a.sum(0)[:, None].expand(3, 2))
    return a * 2


def test_mutation_reaches_the_caller():
    check(inplace_chain, torch.randn(2, 3), torch.randn(2, 3))


def test_swap_of_two_inputs():
    def swap(a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    check(swap, torch.randn(3), torch.randn(3))


def test_mutation_of_a_noncontiguous_input():
    check(lambda x: x.mul_(2).sum(), torch.randn(4, 6)[:, ::2])
    check(lambda x: x.add_(1), torch.randn(3, 4).t())


def test_read_through_a_dtype_view_before_a_later_write():
    def f(x):
        y = x.view(torch.int32) + 1
        x[:, 1:3] = 7
        return y

    check(f, torch.arange(12).reshape(3, 4))


def test_returned_inputs_and_aliases():
    def f(x):
        y = x.view(-1)
        return x, y, y[1:], (x + 1).view(-1)

    x = torch.randn(2, 3)
    a, b, c, _ = compile_(f)(x)
    assert a is x or a.data_ptr() == x.data_ptr()
    assert b.data_ptr() == x.data_ptr() and c.data_ptr() == x.data_ptr() + 4
    check(f, torch.randn(2, 3))


def test_dynamic_sizes_build_one_graph():
    before = inductor_backend.compile_count()
    f = torch.compile(lambda x, y: (x * y).sum(-1), backend="pallas", dynamic=True)
    for n in (1, 2, 7, 1, 33):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        same(f(x, y), (x * y).sum(-1))
    assert inductor_backend.compile_count() - before <= 2


def test_dynamic_number_as_an_operand():
    f = torch.compile(lambda x, n: (x * n, x.view(-1, n), torch.arange(n)), backend="pallas", dynamic=True)
    for n in (2, 3, 6):
        same(f(torch.ones(12), n), (torch.ones(12) * n, torch.ones(12).view(-1, n), torch.arange(n)))


def test_threads():
    f = compile_(lambda x: torch.softmax(x * 2, -1))
    f(torch.randn(64, 32))
    failures = []

    def work():
        for _ in range(50):
            x = torch.randn(64, 32)
            if not torch.allclose(f(x), torch.softmax(x * 2, -1), atol=1e-6):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


@pytest.mark.parametrize("threads", [1, 2])
def test_both_engines(threads):
    torch.set_num_threads(threads)
    check(lambda x, w: torch.relu(x @ w).sum(0), torch.randn(300, 200), torch.randn(200, 100), rtol=1e-4, atol=1e-3)


# ------------------------------------------------------------------------------------------------------ fallbacks
def test_fallback_is_right_and_told_once(emitted):
    f = lambda x: (torch.linalg.svdvals(x + 1) * 2).exp()
    x = torch.randn(3, 3)
    compiled = compile_(f)
    with pytest.warns(DiagnosticNote, match="TPB403") as seen:
        got = compiled(x)
    same(got, f(x), rtol=1e-5, atol=1e-5)
    assert seen[0].message.where.file == __file__
    assert len(emitted[0].sources) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)


def test_fallback_is_an_error_when_notes_are():
    compiled = compile_(lambda x: torch.linalg.svdvals(x) * 2)
    with strict(), pytest.raises(BackendError, match="_linalg_svd"):
        compiled(torch.eye(3))


def test_operator_that_jax_refuses_runs_in_aten(monkeypatch):
    from inductor_backend.ops import ROWS

    def broken(*args, **kwargs):
        raise TypeError("no")

    monkeypatch.setitem(
        ROWS, "aten.tan.default", type(ROWS["aten.tan.default"])(**{**vars(ROWS["aten.tan.default"]), "fn": broken})
    )
    f = lambda x: (x + 1).tan() * 2
    with pytest.warns(DiagnosticNote, match=r"aten\.tan\.default"):
        got = compile_(f)(torch.ones(3))
    same(got, f(torch.ones(3)))


def test_custom_operator_runs_in_aten_without_a_graph_break():
    @torch.library.custom_op("tpb_test::scaled_add", mutates_args=("out",))
    def scaled_add(x: torch.Tensor, out: torch.Tensor, n: int) -> None:
        out.add_(x * n)

    def f(x, out):
        scaled_add(x + 1, out, 3)
        return out * 2

    a, b, x = torch.zeros(3), torch.zeros(3), torch.ones(3)
    want = f(x, a)
    with pytest.warns(DiagnosticNote, match="TPB403"):
        got = torch.compile(f, backend="pallas", fullgraph=True)(x, b)
    same((got, b), (want, a))


def test_nothing_is_written_when_a_fallback_raises():
    @torch.library.custom_op("tpb_test::refuse", mutates_args=())
    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("refused")

    refuse.register_fake(lambda x: torch.empty_like(x))

    def f(x, y):
        x.add_(1)
        return refuse(y) + x

    x = torch.zeros(3)
    with pytest.warns(DiagnosticNote), pytest.raises(ValueError, match="refused"):
        compile_(f)(x, torch.ones(3))
    assert torch.equal(x, torch.zeros(3))


# ------------------------------------------------------------------------------------------------- indices in range
@pytest.mark.parametrize(
    ("fn", "good", "bad"),
    [
        (lambda x, i: torch.nn.functional.embedding(i, x), [0, 4], [0, 5]),
        (lambda x, i: x[i] * 2, [-5, 4], [-6, 4]),
        (lambda x, i: x.gather(0, i[:, None]) + 1, [0, 4], [-1, 4]),
        (lambda x, i: x.index_select(0, i) + 1, [0, 4], [5, 0]),
        (lambda x, i: x.index_put((i,), x[:2] * 0), [1, -1], [1, 7]),
        (lambda x, i: x.scatter_add(0, i[:, None], x[:2, :1]), [0, 3], [0, 9]),
        (lambda x, i: x.scatter_reduce(0, i[:, None], x[:2, :1] + 9, "amax"), [0, 3], [0, 100]),
        (lambda x, i: x.index_select(0, i) + 1, [0, 4], [0, -1]),
        (lambda x, i: x.index_add(0, i, x[:2]), [0, 4], [0, -1]),
        (lambda x, i: x.clone().index_add_(0, i, x[:2], alpha=2), [2, 2], [0, -1]),
        (lambda x, i: x.index_copy(0, i, x[:2] * 9), [0, 4], [0, -1]),
        (lambda x, i: x.index_fill(0, i, 7), [-5, 4], [0, -6]),
        (lambda x, i: x.index_fill(0, i, x.sum()), [-1, 2], [0, 5]),
    ],
)
def test_indices_out_of_range_are_refused(fn, good, bad):
    def write_too(x, i, log):
        log.add_(1)
        return fn(x, i)

    x, log, compiled = torch.randn(5, 3), torch.zeros(1), compile_(write_too)
    same(compiled(x, torch.tensor(good), log), fn(x, torch.tensor(good)))
    with pytest.raises(BackendError, match="TPB406") as caught:
        compiled(x, torch.tensor(bad), log)
    assert caught.value.where.file == __file__
    assert log.item() == 1


@pytest.mark.parametrize(
    "fn",
    [lambda x, y: x // y, lambda x, y: x % y, torch.fmod, lambda x, y: torch.div(x, y, rounding_mode="trunc")],
    ids=["floor", "modulo", "fmod", "trunc"],
)
@pytest.mark.parametrize("kernels", ["profitable", "all"])
def test_whole_numbers_divided_by_zero_are_refused(fn, kernels):
    def write_too(x, y, log):
        log.add_(1)
        return fn(x * 2 + 1, y) - 1

    x, y, log = torch.tensor([4, -5]), torch.tensor([3, -2]), torch.zeros(1)
    compiled = compile_(write_too, kernels=kernels)
    same(compiled(x, y, log), fn(x * 2 + 1, y) - 1)
    y[1] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fn(x, y)
    with pytest.raises(BackendError, match="TPB407") as caught:
        compiled(x, y, log)
    assert caught.value.where.file == __file__
    assert log.item() == 1
    same(compiled(x.float(), y.float(), log), fn(x.float() * 2 + 1, y.float()) - 1)


def test_whole_numbers_divided_by_a_number(emitted):
    check(lambda x: (x // 3, x % 4, torch.fmod(x, -3)), torch.arange(-6, 6))
    assert not emitted[0].sources[0].checks
    with pytest.raises(BackendError, match="TPB407"):
        compile_(lambda x: x + x // 0)(torch.arange(3))
    check(lambda x, y: x // y, torch.empty(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))


def test_assertions_hold_or_raise():
    one_hot = compile_(lambda i: torch.nn.functional.one_hot(i, 4))
    same(one_hot(torch.tensor([3, 0])), torch.nn.functional.one_hot(torch.tensor([3, 0]), 4))
    for bad in (4, -1):
        with pytest.raises(BackendError, match="TPB408.*Class values must be"):
            one_hot(torch.tensor([3, bad]))

    def positive(x, log):
        log.add_(1)
        torch._assert_async(x.sum() > 0, "the sum is not positive")
        return log * 2

    f, log = compile_(positive), torch.zeros(1)
    same(f(torch.ones(3), log), torch.full((1,), 2.0))
    with pytest.raises(BackendError, match="TPB408.*the sum is not positive"):
        f(-torch.ones(3), log)
    assert log.item() == 1


# -------------------------------------------------------------------------------------------------------- options
@pytest.mark.parametrize(
    ("options", "slug"),
    [
        ({"kernel": "all"}, "backend-option"),
        ({"kernels": "some"}, "backend-option"),
        ({"dump": 3}, "backend-option"),
        ({"target": "cuda"}, "unknown-target"),
    ],
)
def test_bad_options(options, slug):
    with pytest.raises(Diagnostic) as caught:
        compile_(lambda x: x + 1, **options)(torch.ones(2))
    assert caught.value.slug == slug


def test_other_devices_are_refused():
    with pytest.raises(BackendError, match="TPB405"):
        compile_(lambda x: x + 1)(torch.ones(2, device="meta"))


def test_explain():
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))
    state, random = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    report = inductor_backend.explain(net, torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))
    assert [g.kind for g in report.graphs] == ["forward", "backward"] and not report.fallbacks
    assert len(report.graphs[0].kernels) == 1 and "1 Pallas kernel" in str(report)
    assert torch.equal(random, torch.get_rng_state())
    same(net.state_dict(), state)
    fallen = inductor_backend.explain(lambda x: torch.linalg.svdvals(x) * 2, torch.eye(3))
    assert [f.operator for f in fallen.fallbacks] == ["aten._linalg_svd.default"]


# ----------------------------------------------------------------------------- tensors whose memory is not their value
def tangent(fn, x, make):
    x = x.clone().requires_grad_()
    fn(x).backward(make(x.detach()))
    return x.grad


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x * (1 + 2j)).conj(),
        lambda x: torch._neg_view(x * (1 + 2j)),
        lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype),
        lambda x: (x[:1] * (1 + 2j)).conj().expand(x.shape),
    ],
    ids=["conjugate", "negative", "zero", "expanded"],
)
@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_lazy_complex_gradients(make):
    f, z = lambda x: x * x, torch.complex(torch.randn(4), torch.randn(4))
    same(tangent(compile_(f), z, make), tangent(f, z, make))


@pytest.mark.parametrize(
    "make",
    [torch._neg_view, lambda x: torch.complex(x, x).conj().imag, lambda x: torch._efficientzerotensor(x.shape)],
    ids=["negative", "imaginary", "zero"],
)
def test_lazy_real_gradients(make):
    f, x = lambda x: (x * 2).sin(), torch.randn(3, 5)
    same(tangent(compile_(f), x, make), tangent(f, x, make))


def test_zero_tensor_as_an_input():
    f = compile_(lambda x: x * 2 + 1)
    f(torch.randn(3))
    same(f(torch._efficientzerotensor(3)), torch.ones(3))


def test_freed_storage_is_refused():
    t = torch.ones(64)
    t.untyped_storage().resize_(0)
    with pytest.raises(Diagnostic, match="TPB115"):
        compile_(lambda x: x * 2)(t)


@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_write_through_a_lazy_conjugate():
    def f(z, w):
        z.mul_(2j)
        w.add_(1)
        return z + w

    def bases():
        return torch.complex(torch.arange(3.0), torch.ones(3)), torch.complex(torch.ones(3), torch.arange(3.0))

    (a, b), (c, d) = bases(), bases()
    same(compile_(f)(a.conj(), b.conj()), f(c.conj(), d.conj()))
    same((a, b), (c, d))


@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_lazy_conjugate_from_an_operator_in_aten():
    @torch.library.custom_op("tpb_test::conjugate", mutates_args=())
    def conjugate(x: torch.Tensor) -> torch.Tensor:
        return x.clone().conj()

    conjugate.register_fake(lambda x: torch.empty_like(x))
    z = torch.complex(torch.randn(3), torch.randn(3))
    same(compile_(lambda z: conjugate(z) * 2)(z), z.conj() * 2)


# ------------------------------------------------------------------------------------- outputs that share their memory
SHARING = {
    "rows": lambda y: (y[0], y[:, 1:], y.t()[1:], y.view(-1)[3:]),
    "chunk": lambda y: y.chunk(2, 1),
    "split": lambda y: torch.split(y, [1, 2, 1], 1),
    "unbind": lambda y: y.unbind(0),
    "diagonal": lambda y: (y.diagonal(), y.unfold(1, 2, 1), y.as_strided((2, 2), (1, 1), 1)),
    "no-op": lambda y: (y.contiguous(), y.detach(), y.reshape(4, 3)),
    "bits": lambda y: (y[1:], y.view(torch.int32), y[1:].view(torch.int16)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("lead", [True, False], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", SHARING)
@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_outputs_share_memory_as_in_eager(name, lead, grad):
    def f(x):
        y = x * 2 + 1
        return (y, *SHARING[name](y)) if lead else tuple(SHARING[name](y))

    x = torch.randn(3, 4, requires_grad=grad)
    got, want = compile_(f)(x), f(x)
    same(got, want)
    for g, w in zip(got, want, strict=True):
        assert g.storage_offset() == w.storage_offset()
        assert (g.untyped_storage().data_ptr() == got[0].untyped_storage().data_ptr()) == (
            w.untyped_storage().data_ptr() == want[0].untyped_storage().data_ptr()
        )
    with torch.no_grad():
        got[0].detach().zero_()
        want[0].detach().zero_()
    same(got, want)


@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_complex_outputs_and_values_of_aten_share_memory():
    for f in (
        lambda x: (lambda y: (y, y.real, y.imag[1:], torch.view_as_real(y)))(torch.complex(x, x + 1)),
        lambda x: (lambda y: (y, y[1:], y.t()))(torch.linalg.inv(x[:, :3] + 4 * torch.eye(3))),
        lambda x: (lambda y: (y[1:], y.t()[:2]))((x + 1).to(memory_format=torch.contiguous_format).t().contiguous()),
    ):
        x = torch.randn(3, 4)
        got, want = compile_(f)(x), f(x)
        same(got, want, rtol=1e-5, atol=1e-5)
        assert len({t.untyped_storage().data_ptr() for t in got}) == 1
        got[0].zero_()
        want[0].zero_()
        same(got, want, rtol=1e-5, atol=1e-5)


def test_a_lone_piece_keeps_no_more_memory_than_it_has():
    row = compile_(lambda x: (x + 1)[0])(torch.randn(100, 4))
    assert row.untyped_storage().nbytes() == 16


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore::bridge.diagnostics.DiagnosticNote")
def test_jagged_nested_tensors():
    f = lambda x: torch.nn.functional.linear((x * 2).cos(), torch.ones(5, 3))
    compiled = compile_(f)
    for lengths in ((2, 4), (3, 1), (5, 5)):
        x = torch.nested.nested_tensor([torch.randn(n, 3) for n in lengths], layout=torch.jagged)
        same(compiled(x).values(), f(x).values(), rtol=1e-5, atol=1e-5)
    x.requires_grad_()
    compiled(x).values().sum().backward()
    got, x.grad = x.grad.values(), None
    f(x).values().sum().backward()
    same(got, x.grad.values(), rtol=1e-5, atol=1e-5)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder in ("/proc/nope/x", str(tmp_path / "file"), tmp_path / "file" / "deeper"):
        with pytest.raises(BackendError, match=r"TPB404.*can't be written to"):
            compile_(lambda x: x.sin(), dump=folder)(torch.ones(3))
    # The folder that was there when compilation began, gone when the source is written.
    from pathlib import Path

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BackendError, match="no space left"):
        compile_(lambda x: x.cos(), dump=tmp_path)(torch.ones(3))


@pytest.mark.parametrize("model", [3, None, "x", torch.ones(2)])
def test_explain_refuses_what_is_not_a_model(model):
    with pytest.raises(Diagnostic, match="TPB003") as caught:
        inductor_backend.explain(model, torch.ones(3))
    assert caught.value.where.file == __file__


def test_explain_refuses_other_devices():
    for call in (lambda: inductor_backend.explain(lambda x: x + 1, torch.ones(3, device="meta")),):
        with pytest.raises(BackendError, match="TPB405"):
            call()


def test_what_is_compiled_is_freed_with_its_function(monkeypatch):
    """Neither the programs nor the graphs of a function outlive it: a process may compile any number of functions."""
    from bridge.engine import Engine
    from inductor_backend.compile import CompiledGraph

    graphs = []
    publish = CompiledGraph.publish
    monkeypatch.setattr(
        CompiledGraph, "publish", lambda self, made: (graphs.append(weakref.ref(self.gm)), publish(self, made))
    )

    def use(factor):
        x, y = torch.randn(7), torch.randn(3, 3, requires_grad=True)
        f = compile_(lambda x, y: (x.sin() * factor).sum() + (y @ y).exp().sum())
        f(x, y).backward()
        f(x, y.detach().clone())

    programs = Engine.current().client.live_executables
    use(0.5)  # what is made once for all functions
    torch._dynamo.reset()
    gc.collect()
    before, lines = programs(), {name for name in linecache.cache if name.startswith("<torch-pallas")}
    graphs.clear()
    for factor in (1.5, 2.5, 3.5):
        use(factor)
    torch._dynamo.reset()
    gc.collect()
    assert len(graphs) >= 6 and all(g() is None for g in graphs)
    assert not [p for p in programs() if not any(p is old for old in before)]  # of nine
    assert {name for name in linecache.cache if name.startswith("<torch-pallas")} <= lines


def test_machine_code_writes_inputs_when_all_else_is_done(emitted):
    def f(x, y, z):
        new_x, new_y = y.flip(0) + 1, x.flip(0) * 2
        z.add_(new_x.sum())
        x.copy_(new_x)
        y.copy_(new_y)
        return x * 3, z

    def inputs(offset):
        base = torch.arange(200.0)
        return base[offset : offset + 40], torch.randn(40, generator=torch.Generator().manual_seed(1)), torch.ones(2, 3)

    compiled = compile_(f)
    for offset in (0, 1, 16):
        ours, theirs = inputs(offset), inputs(offset)
        before = [t._version for t in ours]
        got, want = compiled(*ours), f(*theirs)
        for a, b in zip((*got, *ours), (*want, *theirs)):
            torch.testing.assert_close(a, b)
        assert got[1] is ours[2] and all(t._version > v for t, v in zip(ours, before))
        base, other = (t[0]._base for t in (ours, theirs))
        torch.testing.assert_close(base, other)  # nothing beside the input is written
    assert emitted[0].late and "move(" not in emitted[0].text


def test_a_refused_call_writes_nothing():
    def f(x, i):
        y = x[i] + 1
        x.add_(y.sum())
        return y

    x = torch.ones(8)
    with pytest.raises(BackendError):
        compile_(f)(x, torch.tensor([1, 9]))
    torch.testing.assert_close(x, torch.ones(8))


@pytest.mark.parametrize("many", [3, 60])
def test_compiled_optimisers_write_parameters_in_place(many):
    nets = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(*[torch.nn.Linear(7, 7) for _ in range(many)])
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        step = torch.compile(optimiser.step, backend="pallas") if compiled else optimiser.step
        pointers = [p.data_ptr() for p in net.parameters()]
        for turn in range(4):
            for i, p in enumerate(net.parameters()):
                p.grad = torch.full_like(p, 0.01 * (i + turn))
            step()
        assert pointers == [p.data_ptr() for p in net.parameters()]
        nets.append([p.detach() for p in net.parameters()] + [s["momentum_buffer"] for s in optimiser.state.values()])
    torch.testing.assert_close(nets[1], nets[0])
