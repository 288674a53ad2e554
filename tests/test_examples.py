"""Every example runs, and says what it claims."""

import importlib.util
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WITH_TPU = importlib.util.find_spec("libtpu") is not None


def run(name: str, **arguments):
    """Load an example and call its main()."""
    torch._dynamo.reset()
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](**arguments)


def test_every_example_is_tested():
    assert {p.stem for p in EXAMPLES.glob("*.py")} == {
        "quickstart",
        "triton_softmax",
        "pallas_on_torch",
        "dlpack_sharing",
        "compiled_kernels",
    }


def test_quickstart(capsys):
    pytest.importorskip("sklearn")
    result = run("quickstart")
    out = capsys.readouterr().out
    assert result["accuracy"] >= 0.97 and result["accuracy_eager"] >= 0.97
    # The same maths in another order of summation: the curves part by rounding only.
    assert len(result["curve"]) == len(result["curve_eager"]) == 25
    assert max(abs(a - b) for a, b in zip(result["curve"], result["curve_eager"])) < 1e-3
    assert result["curve"][-1] < 0.05 * result["curve"][0]
    assert result["shared"]
    assert f"{result['accuracy']:.2%}" in out
    verdicts = result["verdicts"]
    assert (verdicts["atomic"].verdict, verdicts["atomic"].slug) == ("diagnosed", "atomic-add")
    assert "TPB231 atomic-add" in out and "total_loss" in out and "why:" in out and "do:" in out
    if not WITH_TPU:
        assert "pip install" in out and set(verdicts) == {"atomic"}
        return
    assert verdicts["forward"].verdict == verdicts["backward"].verdict == "ok", verdicts
    # Every logit is read once (8192 x 1024 float32 = 32 MiB), and the backward writes as much.
    assert 32 * 2**20 <= verdicts["forward"].static["hbm_bytes"] < 34 * 2**20
    assert 64 * 2**20 <= verdicts["backward"].static["hbm_bytes"] < 68 * 2**20


def test_triton_softmax(capsys):
    run("triton_softmax")
    out = capsys.readouterr().out
    assert "pl.pallas_call" in out
    assert ("ok, the compiler took it" in out) == WITH_TPU


def test_pallas_on_torch(capsys):
    run("pallas_on_torch")
    out = capsys.readouterr().out
    assert "fits" in out
    assert ("HBM traffic" in out) == WITH_TPU


def test_compiled_kernels(capsys):
    run("compiled_kernels")
    out = capsys.readouterr().out
    assert "equal eager's" in out and "norm" in out


def test_dlpack_sharing(capsys):
    run("dlpack_sharing")
    out = capsys.readouterr().out
    assert "shared: True, jax sees torch's write: 7.0" in out
    for line in ("misaligned     copied   TPB102", "requires grad  refused  TPB103", "TPB109 read-only-share"):
        assert line in out
