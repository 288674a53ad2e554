"""verify: the TPU form, the CPU form and a reference of a launch, on copies; what differs is named."""

import dataclasses
import importlib.util
import json
import re
import warnings
from pathlib import Path

import jax.numpy as jnp
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic
from frontend_triton_compat import verified
from frontend_triton_compat.cli import main

SHARED = Path(__file__).parents[2].parent / "shared" / "kernels"


@triton.jit
def add_some(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def halves(x, o, p, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i)
    tl.store(o + row * stride + i, v * 0.5)
    tl.store(p + row, tl.sum(v, axis=0))  # SUMS


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def scale_view(x, o, sx, so, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(o + row * so + i, tl.load(x + row * sx + i) * 0.5)


def launch(n=1000):
    return (torch.randn(n), torch.randn(n), torch.full((n,), -7.0), n)


def test_three_forms_agree_and_nothing_of_the_callers_is_written():
    args = launch()
    before = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    found = add_some[(8,)].verify(*args, BLOCK=128, reference=lambda x, y: x + y)
    assert all(torch.equal(a, b) for a, b in zip(args, before) if isinstance(a, torch.Tensor))
    (output,) = found.outputs
    assert (output.name, output.shape, output.written) == ("o", (1000,), 1000)
    assert output.to_cpu == output.to_reference == 0.0 and found.races is False and found.max_error == 0.0
    assert "the tpu:v5e form, the CPU form and the reference (a function) agree" in str(found)


@pytest.mark.parametrize(
    "reference",
    [
        lambda x, y: x + y,
        lambda x, y, o, n, BLOCK: (o.copy_(x + y), None)[1],
        lambda *launched, **named: launched[0] + launched[1],
        lambda x, y, *, n: {"o": x + y},
        lambda x, y, o: [x + y],
        lambda x, y, o: (o.copy_(x), o.add_(y), None)[-1],
    ],
)
def test_the_forms_of_a_reference(reference):
    args = launch(100)
    assert triton.verify(add_some, args, {"BLOCK": 128}, grid=(1,), target="cpu", reference=reference).outputs


def test_tensors_and_names_and_jax_arrays():
    x, y, o, n = launch(100)
    named = {"x": x, "y": y, "o": o, "n": n, "BLOCK": 128}
    assert triton.verify(add_some, named, grid=(1,), target="tpu:v6e", reference=x + y).target == "tpu:v6e"
    arrays = [jnp.asarray(t.numpy()) for t in (x, y, o)]
    assert add_some[(1,)].verify(*arrays, n, BLOCK=128, reference=lambda x, y: jnp.add(x, y)).races is False
    assert tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)].verify(x, o, n, reference=2 * x).outputs


def test_the_grid_of_the_last_launch():
    args = launch(100)
    add_some[(1,)](*args, BLOCK=128)
    assert add_some.verify(*args, BLOCK=128).outputs


def test_a_reference_that_differs_is_told_by_element_and_line():
    x, y, o, n = launch()
    wrong = x + y
    wrong[[37, 900]] += 1
    with pytest.raises(Diagnostic) as caught:
        add_some[(8,)].verify(x, y, o, n, BLOCK=128, reference=wrong)
    problem = caught.value
    assert problem.slug == "verify-mismatch" and "'o' differs at [37]" in problem.what
    assert f"{(x + y)[37].item():g} in the tpu:v5e form, {wrong[37].item():g} in the reference" in problem.what
    assert "2 of 1000 elements differ" in problem.why and "the CPU form has" in problem.why
    assert "tl.store(o + i" in problem.where.text()


def test_the_store_of_the_element_is_named():
    x = torch.randn(16, 128)
    args = (x, torch.empty_like(x), torch.empty(16), 128)
    with pytest.raises(Diagnostic, match=r"'p' differs at \[3\]") as caught:
        halves[(16,)].verify(*args, BLOCK=128, reference=lambda x: {"p": x.sum(1) + (torch.arange(16) == 3)})
    assert "# SUMS" in caught.value.where.text()


def rewritten(pattern, replacement):
    """`translate`, with a mistake in what it writes."""
    real = verified.translate

    def translate(*args):
        module = real(*args)
        source, count = re.subn(pattern, replacement, module.source)
        assert count
        return dataclasses.replace(module, source=source)

    return translate


def test_a_wrong_form_is_caught(monkeypatch):
    """What the target's form gets wrong is a difference to the CPU form."""
    monkeypatch.setattr(verified, "translate", rewritten(r"(o_out\[.*\]) = (.*)", r"\1 = 1 + (\2)"))
    with pytest.raises(Diagnostic, match="in the tpu:v5e form, .* in the CPU form") as caught:
        add_some[(8,)].verify(*launch(), BLOCK=128)
    assert "tl.store(o + i" in caught.value.where.text() and "report it" in caught.value.do[0]


def test_memory_that_nobody_wrote_is_nan(monkeypatch):
    monkeypatch.setattr(verified, "translate", rewritten(r"\n *p_out\[.*\] = .*", ""))
    x = torch.randn(16, 128)
    with pytest.raises(Diagnostic, match=r"'p' differs at \[0\]: nan") as caught:
        halves[(16,)].verify(x, torch.empty_like(x), torch.empty(16), 128, BLOCK=128)
    assert "memory that nothing wrote" in caught.value.why


def test_what_no_program_writes_is_compared_too():
    x, o = torch.randn(16, 128), torch.zeros(20, 128)
    known = o.clone()
    known[:16] = x * 0.5
    assert halves[(16,)].verify(x, o, torch.empty(16), 128, BLOCK=128, target="cpu", reference={"o": known}).outputs
    with pytest.raises(Diagnostic, match=r"'o' differs at \[16, 0\]"):
        halves[(16,)].verify(
            x,
            o,
            torch.empty(16),
            128,
            BLOCK=128,
            target="cpu",
            reference={"o": known + (torch.arange(20) > 15)[:, None]},
        )


@pytest.mark.parametrize(
    ("options", "slug"),
    [
        ({"rtol": -1.0}, "bad-argument"),
        ({"atol": True}, "bad-argument"),
        ({"reference": "torch"}, "bad-argument"),
        ({"reference": lambda nobody: nobody}, "bad-argument"),
        ({"reference": lambda x, y: (x, y)}, "verify-mismatch"),
        ({"reference": lambda x, y: {"x": x}}, "verify-mismatch"),
        ({"reference": lambda x, y: (x + y)[:5]}, "verify-mismatch"),
        ({"target": "tpu:v99"}, "unknown-target"),
        ({"target": "gpu"}, "unknown-target"),
    ],
)
def test_bad_requests(options, slug):
    with pytest.raises(Diagnostic) as caught:
        add_some[(1,)].verify(*launch(100), **{"BLOCK": 128, "target": "cpu", **options})
    assert caught.value.slug == slug


def test_values_are_needed():
    x = torch.empty(100, device="meta")
    with pytest.raises(Diagnostic, match="'x' has no data"):
        add_some[(1,)].verify(x, x, x, 100, BLOCK=128)


KERNELS = """
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl


@triton.autotune([triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def shift(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


def test_the_genuine_interpreter_is_a_reference(tmp_path):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("the genuine package is not installed")
    path = tmp_path / "shifting.py"
    path.write_text(KERNELS)
    spec = importlib.util.spec_from_file_location("shifting", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, o = torch.randn(200), torch.zeros(300)[50:250]
    found = module.shift[(2,)].verify(x, o, 200, reference="triton")
    assert [c.name for c in found.outputs] == ["o"] and found.reference == "triton"
    path.write_text(KERNELS.replace("+ 1", "+ 2"))  # the genuine interpreter imports the file anew
    with pytest.raises(Diagnostic, match=r"'o' differs at \[0\].* in the reference"):
        module.shift[(2,)].verify(x, o, 200, reference="triton", target="cpu")


def test_fp16_and_views():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.randn(16, 256).half()[:, :128]
        out = torch.zeros(16, 128).half()
        found = scale_view[(16,)].verify(x, out, 256, 128, BLOCK=128, target="tpu:v5e")
    assert found.outputs[0].written == 16 * 128


#: Shared kernels that a TPU takes, by name: each has the target's values equal to the CPU's.
ON_TPU = {
    "add_tail", "softmax_rows", "rms_fwd", "rope", "glu_fwd", "glu_bwd", "xent", "mm", "attn_fwd", "lookup", "drop",
    "prefix", "row_argmax", "quant", "seg_mean", "flip_axes", "mm_bp", "bisect", "standardise",
}  # fmt: skip


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared kernels are not in this checkout")
def test_every_shared_kernel_that_a_tpu_takes_verifies(capsys):
    """Also those that become translatable later: none may be translated wrongly."""
    files = [str(path) for path in sorted(SHARED.glob("s*_*.py"))]
    main(["verify", *files, "--target", "tpu:v5e", "--json", "-"])
    rows = json.loads(capsys.readouterr().out)
    assert not [row["message"] for row in rows if row["verdict"] == "failed"]
    assert {row["kernel"] for row in rows if row["verdict"] == "ok"} >= ON_TPU
    assert all(row["values"]["launches"] >= 1 for row in rows if row["verdict"] == "ok")
