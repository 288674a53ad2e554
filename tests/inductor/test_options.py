"""Options and modes: what is accepted, and what a bad one says."""

import os
import re
import subprocess
import sys
import warnings

import jax
import pytest
import torch
import torch.nn.functional as F
from tpu_cases import rand

import inductor_backend
from bridge import compat
from bridge.diagnostics import Diagnostic, strict
from bridge.diagnostics.errors import DiagnosticNote
from bridge.engine import Engine


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_torchs_modes_are_accepted(mode):
    assert torch.equal(torch.compile(lambda x: x + 1, backend="pallas", mode=mode)(rand(3)), rand(3) + 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "max-autotun"}, "no mode 'max-autotun'[^$]*why: [^$]*do:  mode='max-autotune'"),
        ({"options": {"kernel": "all"}}, "no option 'kernel'[^$]*do:  options={'kernels': 'all'}"),
        ({"options": {"max-autotune": True}}, "no option 'max-autotune'[^$]*do:  options={'max_autotune': True}"),
        ({"options": {"kernels": "profit"}}, "kernels='profit'[^$]*why: [^$]*do:  options={'kernels': 'profitable'}"),
        ({"options": {"kernels": 3}}, "kernels=3[^$]*why: [^$]*do: "),
        ({"options": {"dump": 3}}, "dump=3[^$]*why: [^$]*do: "),
        ({"options": {"max_autotune": "yes"}}, "max_autotune='yes'[^$]*why: [^$]*do: "),
        ({"options": {"target": "tpu:v9"}}, "v9[^$]*do: "),
    ],
)
def test_a_bad_option_says_why_what_to_do_and_where(given, says):
    with pytest.raises(Diagnostic, match=says) as caught:
        torch.compile(lambda x: x + 1, backend="pallas", **given)(rand(3))
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_explain_takes_one_target():
    f = lambda x: x + 1
    with pytest.raises(Diagnostic, match="TPB404[^$]*for one target"):
        inductor_backend.explain(f, rand(3), target="tpu:v5e", options={"target": "tpu:v6e"})
    assert inductor_backend.explain(f, rand(3), target="cpu", options={"target": "cpu"}).graphs


def test_explain_shows_the_backward_of_training_and_leaves_gradients_alone():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    report = inductor_backend.explain(net, rand(3, 4))
    assert [g.kind for g in report.graphs] == ["forward", "backward"] and report.graphs[1].source
    inductor_backend.explain(lambda x: net(x).sum(), rand(3, 4))  # not a copy: a function holds it
    assert all(p.grad is None for p in net.parameters())


def test_explain_raises_its_diagnostics_as_they_are():
    with pytest.raises(Diagnostic, match="TPB425.*computes in float64"):
        inductor_backend.explain(lambda x: x.double() + 1, rand(3), target="tpu:v5e")


def test_notes_of_library_modules_name_the_line_that_calls(interpreted):
    net = torch.compile(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh()), backend="pallas", options={"target": "tpu:v5e"}
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        net(rand(3, 4))
    (note,) = [w for w in told if "TPB424" in str(w.message)]
    assert note.filename == __file__ and "net(rand(3, 4))" in str(note.message)


def test_strict_notes_reach_the_caller_as_they_are():
    f = torch.compile(lambda x: torch.linalg.svdvals(x) * 2, backend="pallas")
    for _ in range(2):
        with strict(), pytest.raises(Diagnostic, match="TPB403"):
            f(torch.eye(3))
    with pytest.warns(DiagnosticNote, match="TPB403"):
        torch.testing.assert_close(f(torch.eye(3)), 2 * torch.ones(3))


def test_a_note_of_the_build_does_not_stay_an_error(interpreted):
    """What is noted while a graph is compiled is told by every call, as that caller wants it."""
    f = torch.compile(lambda x, y: torch.gcd(x, y), backend="pallas", options={"target": "tpu:v5e"})
    given = [torch.tensor([12, 18]), torch.tensor([8, 27])]
    with strict(), pytest.raises(Diagnostic, match="TPB425"):
        f(*given)
    with pytest.warns(DiagnosticNote, match="TPB425"):
        assert f(*given).tolist() == [4, 9]


#: name -> (function, arguments): every kernels mode gives eager's values.
PROGRAMS = {
    "pointwise": (lambda x, y: torch.where(x > 0, torch.sigmoid(x) * y, torch.exp(-x.abs())), [rand(8, 32)] * 2),
    "softmax": (lambda x: torch.softmax(x * 2, -1), [rand(8, 32)]),
    "layer norm": (lambda x, w: F.layer_norm(x + 1, (32,), w), [rand(8, 32), rand(32)]),
    "loss": (lambda x: F.cross_entropy(x, torch.arange(8)), [rand(8, 32)]),
    "product": (lambda x, w: F.gelu(x @ w) + 1, [rand(8, 32), rand(32, 16)]),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [rand(2, 3, 8, 16)]),
    "convolution": (lambda x, w: F.relu(F.conv2d(x, w, padding=1)).mean((2, 3)), [rand(2, 3, 8, 8), rand(4, 3, 3, 3)]),
    "sort and gather": (lambda x: x.sort(-1)[0].gather(1, torch.zeros(8, 1, dtype=torch.long)) * 2, [rand(8, 32)]),
    "whole numbers": (lambda x: (x * 5).int().cumsum(1) // 3, [rand(8, 32)]),
    "in place": (lambda x: x.add_(1).mul_(2).sum(), [rand(8, 32)]),
}


@pytest.mark.parametrize("kernels", ["all", "profitable", "none"])
def test_every_kernels_mode_gives_eagers_values(kernels, emitted):
    def everything(*given):
        each = iter(given)
        return [function(*[next(each) for _ in args]) for function, args in PROGRAMS.values()]

    mine, theirs = ([t.clone() for _, args in PROGRAMS.values() for t in args] for _ in range(2))
    got = torch.compile(everything, backend="pallas", options={"kernels": kernels})(*mine)
    for name, a, b in zip(PROGRAMS, got, everything(*theirs)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(mine, theirs)
    formed = sum(len(source.kernels) for assembly in emitted for source in assembly.sources)
    assert (formed == 0) == (kernels == "none")


def test_a_kernel_on_the_cpu_is_the_program_that_plain_code_is(monkeypatch):
    """Why there is nothing to measure there: XLA makes the same instructions of both."""
    compiled = []
    real = Engine.compile

    def recorded(self, function, avals, text, lanes):
        compiled.append((function, avals))
        return real(self, function, avals, text, lanes)

    def f(x, w):
        return F.gelu(torch.softmax(x @ w, -1) * 2 + 1).sum(0), F.layer_norm(x, (64,))

    monkeypatch.setattr(Engine, "compile", recorded)
    programs = []
    for kernels in ("all", "none"):
        torch._dynamo.reset()
        torch.compile(f, backend="pallas", options={"kernels": kernels})(rand(32, 64), rand(64, 64))
        function, avals = compiled[-1]
        with compat.x64():
            text = jax.jit(function).lower(*avals).compile().as_text()
        text = re.sub(r"%?[\w.\-]+\.\d+|%[\w.\-]+", "%", re.sub(r", metadata=\{[^}]*\}", "", text))
        programs.append(sorted(line for line in text.split("\n") if " = " in line and "file_name" not in line))
    assert programs[0] == programs[1] and len(programs[0]) > 20


@pytest.mark.parametrize("kernels", ["all", "none"])
def test_kernels_modes_agree_in_training(kernels):
    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
        )

    mine, theirs = net(), net()
    compiled = torch.compile(mine, backend="pallas", options={"kernels": kernels})
    for f in (compiled, theirs):
        F.cross_entropy(f(rand(6, 8)), torch.arange(6) % 4).backward()
    for p, q in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)


def test_torch_logs_show_the_emitted_source():
    """TORCH_LOGS=output_code, as a user sets it: in the environment."""
    code = "import torch, inductor_backend\n"
    code += "torch.compile(lambda x: torch.softmax(x, -1) * 2, backend='pallas')(torch.ones(4, 8))"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TORCH_LOGS": "output_code"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "def segment_0" in run.stderr and "aten.mul_Tensor" in run.stderr


def test_pallas_is_listed():
    assert "pallas" in torch._dynamo.list_backends()


def test_a_gpu_is_no_target():
    f = torch.compile(lambda x: x + 1, backend="pallas", options={"target": "gpu:sm90a"})
    with pytest.raises(Diagnostic, match="unknown-target"):
        f(rand(3))


def test_a_name_is_proposed_only_where_one_is_near():
    with pytest.raises(Diagnostic) as near:
        torch.compile(lambda x: x + 1, backend="pallas", options={"kernel": "all"})(rand(3))
    assert near.value.do == ("options={'kernels': 'all'}, if that is what was meant",)
    with pytest.raises(Diagnostic) as far:
        torch.compile(lambda x: x + 1, backend="pallas", options={"fullgraph": True})(rand(3))
    assert far.value.do == ("leave it out, or name one of these",)


def test_dump_is_a_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(Diagnostic, match="TPB404(.|\n)*(it is a file|Not a directory)") as refused:
            torch.compile(lambda x: x + 1, backend="pallas", options={"dump": path})(rand(3))
        assert refused.value.where is not None
    assert file.read_text() == "mine"


def test_an_option_where_explain_has_the_models_arguments():
    with pytest.raises(Diagnostic, match="TPB404") as refused:
        inductor_backend.explain(torch.nn.Linear(3, 3), rand(2, 3), kernels="all")
    assert refused.value.do == ("explain(model, *args, options={'kernels': 'all'})",)
    taken = lambda x, kernels: x * kernels
    assert inductor_backend.explain(taken, rand(3), kernels=rand(3)).graphs
