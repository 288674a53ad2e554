"""Compiled graphs on disk: a second process builds nothing, and every file may be broken, foreign or gone."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

import inductor_backend
from bridge import diskcache
from bridge.diagnostics import Diagnostic, DiagnosticNote
from bridge.engine import Engine
from inductor_backend.compile import CompiledGraph
from inductor_backend.kept import compat

TRAINING = """
import json
import torch
torch.set_num_threads(1)
import inductor_backend.compile as compiler
from bridge.engine import Engine

counts = [0, 0]
planned, compiled = compiler.CompiledGraph.__init__, Engine._compiled

def plan(self, *args, **kwargs):
    counts[0] += 1
    return planned(self, *args, **kwargs)

def compile_(self, *args, **kwargs):
    counts[1] += 1
    return compiled(self, *args, **kwargs)

compiler.CompiledGraph.__init__, Engine._compiled = plan, compile_
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3))
optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
model, step = torch.compile(net, backend="pallas"), torch.compile(optimiser.step, backend="pallas")
x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 1, 0])
losses = []
for _ in range(3):
    optimiser.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    step()
    losses.append(loss.item())
print(json.dumps([*counts, compiler.compile_count(), losses]))
"""


def test_processes_share_what_they_compile(tmp_path):
    """Two at once, with nothing there; then a third."""
    script = tmp_path / "script.py"
    script.write_text(TRAINING)
    env = os.environ | {"TORCH_PALLAS_CACHE_DIR": str(tmp_path / "cache")}
    start = lambda: subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True)
    results = [json.loads(p.communicate()[0].splitlines()[-1]) for p in (start(), start())]
    results.append(json.loads(start().communicate()[0].splitlines()[-1]))
    losses = [r.pop() for r in results]
    assert losses[0] == losses[1] == losses[2] and losses[0][2] < losses[0][0]
    assert results[0][0] == 3 and results[0][2] == 3
    assert results[2] == [0, 0, 3]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder of the test's own, and what was planned and compiled since `anew` made this process a new one."""

    class Seen:
        folder = tmp_path
        counts = (0, 0)

        def anew(self):
            compat._own.clear()
            torch._dynamo.reset()
            Seen.counts = (0, 0)

        def files(self, kind="graphs"):
            return sorted((tmp_path / kind).glob("*"))

    def counting(before, place):
        def call(*args, **kwargs):
            Seen.counts = tuple(n + (i == place) for i, n in enumerate(Seen.counts))
            return before(*args, **kwargs)

        return call

    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(CompiledGraph, "__init__", counting(CompiledGraph.__init__, 0))
    monkeypatch.setattr(Engine, "_compiled", counting(Engine._compiled, 1))
    seen = Seen()
    seen.anew()
    return seen


def mixed(x, i, y):
    y.add_(1)
    return (x.t() + y).softmax(-1), x[i], torch.nn.functional.dropout(x, 0.5), x.t()


def run_mixed():
    """Values, strides and aliasing of `mixed`, and what it wrote."""
    torch.manual_seed(0)
    x, y = torch.randn(4, 6), torch.randn(6, 4)
    results = torch.compile(mixed, backend="pallas")(x, torch.tensor([3, 0]), y)
    assert results[3].data_ptr() == x.data_ptr()
    return [t.tolist() for t in (*results, y)] + [r.stride() for r in results]


def test_values_strides_writes_and_random_numbers(cache):
    first = run_mixed()
    assert cache.counts == (1, 1)
    cache.anew()
    before = inductor_backend.compile_count()
    assert run_mixed() == first
    assert cache.counts == (0, 0) and inductor_backend.compile_count() == before + 1


def test_gradients(cache):
    x = torch.randn(3, 5, requires_grad=True)

    def gradient():
        f = torch.compile(lambda x: (x.exp() * x.softmax(-1)).sum(), backend="pallas")
        return torch.autograd.grad(f(x), x)[0]

    first = gradient()
    assert cache.counts[0] == 2
    cache.anew()
    assert torch.equal(gradient(), first)
    assert cache.counts == (0, 0)


def test_refusals_name_the_line(cache):
    def refused():
        f = torch.compile(lambda x, i: x[i] * 2, backend="pallas")
        f(torch.ones(4), torch.tensor([3]))
        with pytest.raises(Diagnostic) as caught:
            f(torch.ones(4), torch.tensor([4]))
        return str(caught.value)

    first = refused()
    cache.anew()
    assert refused() == first and "x[i] * 2" in first
    assert cache.counts == (0, 0)


def test_broken_and_foreign_files_are_compiled_again(cache):
    first = run_mixed()
    (graph,), (program,) = cache.files(), cache.files("programs")
    whole = graph.read_bytes()
    foreign = []
    for content in (b"no pickle", pickle.dumps({"of": "others"}), pickle.dumps(None)):
        diskcache.put("graphs", "other", content)
        (other,) = (path for path in cache.files() if path != graph)
        foreign.append(other.read_bytes())
        other.unlink()
    for broken in (whole[:100], b"", whole[:-3] + b"\0\0\0", *foreign):
        graph.write_bytes(broken)
        cache.anew()
        assert run_mixed() == first
        assert cache.counts == (1, 0)
    program.write_bytes(b"nothing")
    cache.anew()
    assert run_mixed() == first
    assert cache.counts == (0, 1)


def test_threads_and_options_are_part_of_the_key(cache):
    def softmax(**options):
        cache.anew()
        torch.compile(lambda x: x.softmax(-1), backend="pallas", **options)(torch.ones(4, 8))
        return cache.counts

    assert softmax() == (1, 1)
    assert softmax(options={"kernels": "none"})[0] == 1
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert softmax()[1] == 1
    finally:
        torch.set_num_threads(threads)
    assert softmax() == (0, 0)


def test_a_line_that_moved_is_another_graph_of_the_same_program(cache):
    for moved, counts in (("", (1, 1)), ("\n", (1, 0)), ("", (0, 0))):
        scope = {}
        exec(compile(f"{moved}f = lambda x: x.softmax(-1)", "moved.py", "exec"), scope)
        cache.anew()
        torch.compile(scope["f"], backend="pallas")(torch.ones(4, 8))
        assert cache.counts == counts


def test_switched_off(cache, monkeypatch):
    monkeypatch.setenv("TORCH_PALLAS_CACHE", "0")
    run_mixed()
    cache.anew()
    run_mixed()
    assert cache.counts == (1, 1) and not cache.files()


def test_what_is_not_torchs_is_not_kept(cache):
    @torch.library.custom_op("kept_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    with pytest.warns(DiagnosticNote, match="TPB403"):
        torch.compile(lambda x: twice(x) + 1, backend="pallas")(torch.ones(3))
    assert not cache.files()


def test_inputs_that_share_memory_are_not_mistaken_for_others(cache):
    def f(x, y):
        x.add_(1)
        return y * 2

    def run(shared):
        cache.anew()
        base = torch.zeros(8)
        pair = (base[:4], base[:4].view(4)) if shared else (base[:4], torch.zeros(8)[:4])
        return torch.compile(f, backend="pallas")(*pair).tolist()

    for shared in (False, True, True, False):
        assert run(shared) == [2.0 if shared else 0.0] * 4


def test_torch_is_left_as_it_was(cache):
    import torch._functorch.config as functorch_config
    from torch._functorch._aot_autograd import graph_compile
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
    from torch._inductor import codecache

    def look():
        classes = dict(vars(AOTAutogradCache)), dict(vars(codecache.CacheBase))
        settings = functorch_config.bundled_autograd_cache, functorch_config.enable_autograd_cache
        functions = codecache.torch_key, graph_compile._cache_autograd_info
        return classes, settings, functions, torch.compiler.config.cache_key_tag

    before = look()
    run_mixed()
    assert look() == before
