"""Compiled graphs on disk: a second process builds nothing, and every file may be broken, foreign or gone."""

import os
import pickle
import subprocess
import sys
import textwrap

import pytest

#: Runs `body` with the cache in `folder`, and prints what was planned and compiled, and what `body` leaves in `out`.
_FRAME = """
import json
import torch
torch.set_num_threads({threads})
import inductor_backend
import inductor_backend.compile as compiler
import bridge.engine as engine

counts = {{"planned": 0, "compiled": 0}}
before = compiler.CompiledGraph.__init__, engine.Engine._compiled

def planned(self, *args, **kwargs):
    counts["planned"] += 1
    return before[0](self, *args, **kwargs)

def compiles(self, *args, **kwargs):
    counts["compiled"] += 1
    return before[1](self, *args, **kwargs)

compiler.CompiledGraph.__init__, engine.Engine._compiled = planned, compiles
torch.manual_seed(0)
{body}
print(json.dumps([counts["planned"], counts["compiled"], inductor_backend.compile_count(), out]))
"""

TRAINING = """
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3))
optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
compiled, step = torch.compile(net, backend="pallas"), torch.compile(optimiser.step, backend="pallas")
x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 1, 0])
out = []
for _ in range(3):
    optimiser.zero_grad()
    loss = torch.nn.functional.cross_entropy(compiled(x), y)
    loss.backward()
    step()
    out.append(loss.item())
"""

INFERENCE = """
def f(x, i, y):
    y.add_(1)
    return (x.t() + y).softmax(-1), x[i], torch.nn.functional.dropout(x, 0.5), x.t()

x, y = torch.randn(4, 6), torch.randn(6, 4)
results = torch.compile(f, backend="pallas")(x, torch.tensor([3, 0]), y)
assert results[3].data_ptr() == x.data_ptr()
out = [t.tolist() for t in (*results, y)] + [results[0].stride()]
"""

REFUSED = """
f = torch.compile(lambda x, i: x[i] * 2, backend="pallas")
f(torch.ones(4), torch.tensor([3]))
try:
    f(torch.ones(4), torch.tensor([4]))
    out = "nothing"
except Exception as refused:
    out = str(refused)
"""


def run(folder, body, threads=1, **environment):
    """[graphs planned, programs compiled, compile_count(), out] of a process of its own."""
    import json

    script = folder / "script.py"
    script.write_text(_FRAME.format(body=textwrap.dedent(body), threads=threads))
    env = os.environ | {"TORCH_PALLAS_CACHE_DIR": str(folder / "cache"), **environment}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def files(folder, kind="graphs"):
    return sorted((folder / "cache" / kind).glob("*"))


@pytest.mark.parametrize(("body", "graphs"), [(TRAINING, 3), (INFERENCE, 1), (REFUSED, 1)])
def test_a_second_process_builds_nothing(tmp_path, body, graphs):
    first, second = run(tmp_path, body), run(tmp_path, body)
    assert first[0] == first[2] == graphs and first[1] >= graphs
    assert second[:3] == [0, 0, graphs]
    assert second[3] == first[3]


def test_broken_files_are_compiled_again(tmp_path):
    first = run(tmp_path, INFERENCE)
    (graph,), (program,) = files(tmp_path), files(tmp_path, "programs")
    whole = graph.read_bytes()
    for broken in (whole[:100], b"", whole[:-3] + b"\0\0\0"):
        graph.write_bytes(broken)
        assert run(tmp_path, INFERENCE)[3] == first[3]
    program.write_bytes(b"nothing")
    again = run(tmp_path, INFERENCE)
    assert again[0] == 0 and again[1] == 1 and again[3] == first[3]


def test_foreign_entries_are_compiled_again(tmp_path, monkeypatch):
    from bridge import diskcache

    first = run(tmp_path, INFERENCE)
    (graph,) = files(tmp_path)
    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path / "cache"))
    for content in (b"no pickle", pickle.dumps({"of": "others"}), pickle.dumps(None)):
        diskcache.put("graphs", "other", content)
        other = next(path for path in files(tmp_path) if path != graph)
        os.replace(other, graph)
        found = run(tmp_path, INFERENCE)
        assert found[0] == 1 and found[3] == first[3]


def test_other_threads_options_and_lines_are_other_graphs(tmp_path):
    body = "out = torch.compile(lambda x: x.softmax(-1), backend='pallas'{})(torch.ones(4, 8)).tolist()"
    plain = body.format("")
    run(tmp_path, plain)
    assert run(tmp_path, body.format(", options={'kernels': 'none'}"))[0] == 1
    assert run(tmp_path, "\n" + plain)[:2] == [1, 0]  # its diagnostics name another line; the program is the same
    assert run(tmp_path, plain, threads=2)[1] == 1
    assert run(tmp_path, plain)[:2] == [0, 0]
    assert run(tmp_path, plain, TORCH_PALLAS_CACHE="0")[:2] == [1, 1]


def test_what_is_not_torchs_is_not_kept(tmp_path):
    body = """
    @torch.library.custom_op("kept_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * {factor}

    twice.register_fake(lambda x: torch.empty_like(x))
    out = torch.compile(lambda x: twice(x) + 1, backend="pallas")(torch.ones(3)).tolist()
    """
    assert run(tmp_path, body.format(factor=2))[3] == [3.0] * 3
    assert run(tmp_path, body.format(factor=5))[3] == [6.0] * 3
    assert not files(tmp_path)


def test_inputs_that_share_memory_are_not_mistaken_for_others(tmp_path):
    body = """
    def f(x, y):
        x.add_(1)
        return y * 2

    base = torch.zeros(8)
    pair = {pair}
    out = torch.compile(f, backend="pallas")(*pair).tolist()
    """
    assert run(tmp_path, body.format(pair="(base[:4], torch.zeros(8)[:4])"))[3] == [0.0] * 4
    assert run(tmp_path, body.format(pair="(base[:4], base[:4].view(4))"))[3] == [2.0] * 4


def test_two_processes_at_once(tmp_path):
    env = os.environ | {"TORCH_PALLAS_CACHE_DIR": str(tmp_path / "cache")}
    script = tmp_path / "both.py"
    script.write_text(_FRAME.format(body=INFERENCE, threads=1))
    both = [subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    results = [p.communicate()[0].splitlines()[-1] for p in both]
    assert results[0] == results[1]
    assert len(files(tmp_path)) == 1


def test_torch_is_left_as_it_was(tmp_path, monkeypatch):
    import torch
    import torch._functorch.config as functorch_config
    from torch._functorch._aot_autograd import graph_compile
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache
    from torch._inductor import codecache

    monkeypatch.setenv("TORCH_PALLAS_CACHE_DIR", str(tmp_path))
    look = lambda: (
        dict(vars(AOTAutogradCache)),
        dict(vars(codecache.CacheBase)),
        codecache.torch_key,
        graph_compile._cache_autograd_info,
        functorch_config.bundled_autograd_cache,
        functorch_config.enable_autograd_cache,
        torch.compiler.config.cache_key_tag,
    )
    before = look()
    torch.compile(lambda x: x * 2, backend="pallas")(torch.ones(3))
    assert look() == before
    # Inductor's own cache is not touched: the same graph, compiled by it, is its own.
    torch._dynamo.reset()
    assert torch.equal(torch.compile(lambda x: x * 2)(torch.ones(3)), torch.full((3,), 2.0))
