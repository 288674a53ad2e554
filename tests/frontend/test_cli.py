"""The command line: exit codes, tables, JSON, files that are whole or absent, scripts that run as under python."""

from __future__ import annotations

import html.parser
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bridge.diagnostics import entries
from frontend_triton_compat import shim
from frontend_triton_compat.cli import doctor, main, verdicts
from frontend_triton_compat.cli.files import Usage, write_whole
from frontend_triton_compat.offline import Verdict

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "kernels"

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def twice(x):
    return x * 2


@triton.jit
def scale(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, twice(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def count(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0), sem="strong")  # ATOMIC


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def clear(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 0.0, mask=i < n)


def run(triton, tl, torch, device):
    print("this is not part of the table")
    for n in (100, 1000, 10):
        x = torch.randn(n, device=device)
        scale[(triton.cdiv(n, 128),)](x, torch.empty_like(x), n, BLOCK=128)
    clear[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](torch.randn(512), 512)
    count[(8,)](torch.randn(1000), torch.zeros(1), 1000, BLOCK=128)
    raise AssertionError("the launches before this one are known all the same")
"""


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def line_of(path, text):
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def table_rows(out):
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.startswith("  ") and "cpu" in line]


# -- usage


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nope"],
        ["check"],
        ["check", "gone.py"],
        ["check", "FILE", "--target", "tpu:v99"],
        ["check", "FILE", "--target", ","],
        ["check", "FILE", "--args", "scale(x=f32[4"],
        ["check", "FILE", "--args", "gone.json"],
        ["check", "FILE", "--args", "nobody(x=f32[4], grid=1)"],
        ["check", "FILE", "--kernel", "nobody"],
        ["check", "FILE", "--json", "no/such/folder/out.json"],
        ["check", "FILE", "--typo"],
        ["port", "FILE"],
        ["port", "FILE", "-o", "no/such/folder/out.py"],
        ["port", "FILE", "-o", "out.py", "--target", "cpu,tpu:v5e", "--kernel", "scale"],
        ["run"],
        ["run", "gone.py"],
        ["record", "FILE"],
        ["record", "gone.py", "-o", "out.json"],
        ["explain", "TPB999"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_2_and_says_why(argv, kernels, capsys, monkeypatch):
    monkeypatch.chdir(kernels.parent)
    assert main([str(kernels) if a == "FILE" else a for a in argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.strip() and "Traceback" not in err
    assert sorted(p.name for p in kernels.parent.iterdir() if p.name != "__pycache__") == ["kernels.py"]


@pytest.mark.parametrize(
    "command", [[], ["run"], ["check"], ["verify"], ["port"], ["record"], ["explain"], ["doctor"]], ids=str
)
def test_help(command, capsys):
    assert main([*command, "--help"]) == 0
    assert "torch-pallas" in capsys.readouterr().out


# -- explain


def test_explain_prints_the_page_of_a_code_or_a_name(capsys):
    assert main(["explain", "tpb231"]) == 0
    by_code = capsys.readouterr().out
    assert main(["explain", "atomic-add"]) == 0
    assert capsys.readouterr().out == by_code and by_code.startswith("# TPB231 atomic-add")


def test_explain_lists_all_codes(capsys):
    assert main(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [e.code for e in entries()]


def test_explain_names_what_was_probably_meant(capsys):
    assert main(["explain", "atomic-ad"]) == 2
    assert "atomic-add" in capsys.readouterr().err


# -- doctor


def test_doctor(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("torch", "jax", "jaxlib", "libtpu", "triton", "tpu:v5e", "right"):
        assert name in out


def test_doctor_names_what_is_wrong(monkeypatch, capsys):
    versions = {"jax": "0.4.1", "numpy": None, "libtpu": None}
    real = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: versions.get(name, real(name)))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert 'pip install "jax>=0.10.2,<0.13"' in out and 'pip install "numpy>=1.26"' in out
    assert 'pip install "torch-pallas[tpu]"' in out and "2 problems" in out


# -- check


def test_check_every_kernel_on_every_target(kernels, tmp_path, capsys):
    json_file, html_file = tmp_path / "out.json", tmp_path / "out.html"
    argv = ["check", str(kernels), "--target", "cpu", "--json", str(json_file), "--html", str(html_file)]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert err == f"{json_file} is written\n{html_file} is written\n" and "not part of the table" not in out
    rows = {row[0]: row for row in table_rows(out)}
    assert list(rows) == ["scale", "count", "clear"]  # the helper is no kernel of its own
    assert rows["scale"][3] == rows["clear"][3] == "ok"
    assert rows["count"][3] == "diagnosed" and rows["count"][-1] == "TPB280"
    assert "tl.atomic_add" in out and "explain TPB280" in out and "2 ok, 1 diagnosed" in out

    found = json.loads(json_file.read_text())
    assert [set(row) for row in found] == [
        {"kernel", "file", "line", "target", "verdict", "code", "slug", "message", "where", "static"}
        | {"launch", "config", "values"}
    ] * 3
    count = found[1]
    assert count["file"] == str(kernels) and count["slug"] == "atomic-operands" and count["static"] is None
    assert count["where"]["line"] == line_of(kernels, "# ATOMIC") and count["where"]["col"] == 5
    assert set(found[0]["static"]) == {"time_ms", "bound", "mxu", "hbm_bytes", "vmem_bytes", "spills"}

    page = html_file.read_text()
    html.parser.HTMLParser().feed(page)
    assert "TPB280" in page and "pallas_call" in page and "<mark>" in page and "BLOCK=128" in page
    assert not re.search(r"<script|<link|src=|https?://", page), "the page must be self-contained"


def test_verify_compares_the_values_of_the_files_own_launches(kernels, tmp_path, capsys):
    json_file = tmp_path / "out.json"
    argv = ["verify", str(kernels), "--target", "tpu:v5e", "--kernel", "scale", "--json", str(json_file)]
    assert main(argv) == 0
    assert "equal (3 launches" in capsys.readouterr().out
    (row,) = json.loads(json_file.read_text())
    assert row["values"] == {"verdict": "equal", "launches": 3, "largest": 0.0} and row["static"] is None
    assert row["launch"].startswith("scale(x=f32[1000], o=f32[1000], n=1000")
    assert main(["check", str(kernels), "--target", "cpu", "--verify", "--kernel", "clear"]) == 0
    assert "equal (1 launch, 0)" in capsys.readouterr().out
    large = "scale(x=f32[10000000], o=f32[10000000], n=10000000, BLOCK=128, grid=cdiv(n, BLOCK))"
    assert main(["verify", str(kernels), "--target", "cpu", "--args", large, "--kernel", "scale"]) == 1
    assert "small enough" in capsys.readouterr().out
    small = "scale(x=f32[100], o=f32[100], n=100, BLOCK=128, grid=cdiv(n, BLOCK))"
    assert main(["verify", str(kernels), "--target", "cpu,tpu:v6e", "--args", small, "--kernel", "scale"]) == 0
    capsys.readouterr()


def test_verify_with_the_genuine_interpreter(kernels, capsys):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("the genuine package is not installed")
    small = "scale(x=f32[100], o=f32[100], n=100, BLOCK=128, grid=1)"
    argv = [
        "verify",
        str(kernels),
        "--target",
        "tpu:v5e",
        "--kernel",
        "scale",
        "--args",
        small,
        "--reference",
        "triton",
    ]
    assert main(argv) == 0, capsys.readouterr()
    assert "equal (1 launch, 0)" in capsys.readouterr().out


def test_verify_of_a_wrong_form_fails(kernels, monkeypatch, capsys):
    from frontend_triton_compat import verified

    real = verified.put_back
    monkeypatch.setattr(verified, "put_back", lambda m, results, call: real(m, [r + 1 for r in results], call))
    assert main(["verify", str(kernels), "--target", "tpu:v5e", "--kernel", "scale"]) == 1
    out = capsys.readouterr().out
    assert "failed" in out and "TPB322" in out and "'o' differs at [0]" in out and "tl.store(o + i" in out


def test_rows_say_which_launch_and_which_configuration(kernels, monkeypatch, capsys):
    specs = [f"scale(x=f32[{n}], o=f32[{n}], n={n}, BLOCK=64, grid=cdiv({n}, 64))" for n in (64, 128)]
    argv = ["check", str(kernels), "--kernel", "scale", "--kernel", "clear", "--no-run"]
    argv += [a for s in specs for a in ("--args", s)] + ["--args", "clear(x=f32[512], n=512, grid=8)"]
    assert main([*argv, "--target", "cpu"]) == 0
    out = capsys.readouterr().out
    assert [row[0] for row in table_rows(out)] == ["scale#1", "scale#2", "clear"]
    assert "scale#2: scale(x=f32[128], o=f32[128], n=128, BLOCK=64, grid=(2,))" in out
    assert "clear on cpu: all configurations of autotune give the same code" in out

    def check(self, *args, grid, target, BLOCK, **kwargs):
        static = {"time_ms": 100.0 / BLOCK, "bound": "hbm", "registers": 40, "instructions": {"HGMMA": 4, "UTMA": 0}}
        return Verdict("clear", "", 0, target, "ok", static=static, source=f"for blocks of {BLOCK}")

    monkeypatch.setattr("frontend_triton_compat.launch.JITFunction.check", check)
    assert main(["check", str(kernels), "--kernel", "clear", "--target", "cpu"]) == 0
    out = capsys.readouterr().out
    rows = table_rows(out)
    assert [row[0] for row in rows] == ["clear [BLOCK=128]", "clear [BLOCK=64]"]
    assert rows[0][4:] == ["0.7812", "HBM", "40", "HGMMA 4", "-"]
    assert "clear on cpu: the best configuration is BLOCK=128 (0.7812 ms)" in out


def test_check_for_amd_is_a_diagnostic(kernels, capsys):
    assert main(["check", str(kernels), "--target", "rocm,amd,hip", "--kernel", "scale"]) == 1
    out = capsys.readouterr().out
    assert out.count("Pallas has no ROCm backend") == 3 and "3 diagnosed" in out


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    from bridge import progress

    monkeypatch.setattr(progress, "_TICK", 0.01)
    with progress.doing("nothing"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.doing("[1/2] scale on tpu:v5e"), progress.doing("compiling"):
        time.sleep(1.1)
    err = capsys.readouterr().err
    assert "[1/2] scale on tpu:v5e: compiling ..." in err and "compiling, 1 s" in err and err.endswith("\r\x1b[K")
    assert not any(t.name == "torch-pallas progress" for t in threading.enumerate())


def test_check_json_on_stdout(kernels, capsys):
    assert main(["check", str(kernels), "--target", "cpu", "--kernel", "scale", "--json", "-"]) == 0
    assert [row["verdict"] for row in json.loads(capsys.readouterr().out)] == ["ok"]


def test_check_takes_the_largest_launch(kernels, monkeypatch, capsys):
    asked: list = []
    monkeypatch.setattr(verdicts, "judged", spy(asked))
    main(["check", str(kernels), "--target", "cpu,tpu:v5e"])
    capsys.readouterr()
    launched = [(s.name, target, s.record["args"]["n"]) for s, target in asked]
    assert launched == [
        (k, t, n) for k, n in (("scale", 1000), ("count", 1000), ("clear", 512)) for t in ("cpu", "tpu:v5e")
    ]


def spy(asked):
    def judged(subject, target, wish):
        asked.append((subject, target))
        return [Verdict(subject.name, subject.file, subject.line, target, "ok")]

    return judged


def test_check_with_given_arguments_runs_nothing(tmp_path, monkeypatch, capsys):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("raise AssertionError", "open('ran', 'w'); raise AssertionError"))
    monkeypatch.chdir(tmp_path)
    asked: list = []
    monkeypatch.setattr(verdicts, "judged", spy(asked))
    specs = ["scale(x=f32[64], o=f32[64], n=64, BLOCK=64, grid=1)", "count(x=f32[8], out=f32[1], n=8, BLOCK=8, grid=1)"]
    specs += ["clear(x=f32[64], n=64, grid=1)", "scale(x=f32[32], o=f32[32], n=32, BLOCK=32, grid=(1,))"]
    assert main(["check", str(path), "--target", "cpu", *(a for s in specs for a in ("--args", s))]) == 0
    capsys.readouterr()
    assert not (tmp_path / "ran").exists()
    assert sorted((s.name, s.record["args"]["n"]) for s, _ in asked) == [
        ("clear", 64), ("count", 8), ("scale", 32), ("scale", 64)
    ]  # fmt: skip


def test_check_uses_the_files_own_launches(tmp_path, capsys):
    path = tmp_path / "kernels.py"
    declared = 'CHECK = ["scale(x=f32[64], o=f32[64], n=64, BLOCK=64, grid=1)"]'
    path.write_text(KERNELS.split("def run(")[0] + declared)
    assert main(["check", str(path), "--target", "cpu"]) == 1
    out = capsys.readouterr().out
    assert [row[3] for row in table_rows(out)] == ["ok", "diagnosed", "diagnosed"]
    assert (
        "TPB263" in out
        and "--args" in out
        and "count(x=f32[4096], out=f32[4096], n=4096, BLOCK=256, grid=(16,))" in out
    )
    path.write_text(KERNELS.split("def run(")[0] + 'CHECK = ["scale(x"]')
    assert main(["check", str(path), "--target", "cpu"]) == 2
    assert "CHECK" in capsys.readouterr().err


def test_a_chip_without_its_kind_is_guessed(kernels, capsys):
    assert main(["check", str(kernels), "--target", "v5e"]) == 2
    assert "did you mean 'tpu:v5e'?" in capsys.readouterr().err


def test_more_programs_than_can_be_numbered_are_refused(kernels, capsys):
    spec = "scale(x=f32[64], o=f32[64], n=64, BLOCK=64, grid=(1000000000,))"
    assert main(["check", str(kernels), "--target", "cpu", "--kernel", "scale", "--args", spec]) == 1
    assert "TPB251" in capsys.readouterr().out


def test_check_no_run(kernels, capsys):
    assert main(["check", str(kernels), "--target", "cpu", "--no-run"]) == 1
    assert [row[-1] for row in table_rows(capsys.readouterr().out)] == ["TPB263"] * 3


def test_check_says_why_a_run_showed_no_launch(tmp_path, capsys):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.split("def run(")[0] + "def main():\n    raise RuntimeError('no GPU here')\n")
    assert main(["check", str(path), "--target", "cpu", "--kernel", "scale"]) == 1
    assert "RuntimeError: no GPU here" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["import not_there_at_all\n", "x = 1 / 0\n", "def f(:\n", "raise SystemExit(3)\n"])
def test_check_of_a_file_that_can_not_be_imported(tmp_path, text, capsys):
    path = tmp_path / "broken.py"
    path.write_text("import triton\n@triton.jit\ndef k(x):\n    pass\n" + text)
    json_file = tmp_path / "out.json"
    assert main(["check", str(path), "--target", "cpu", "--json", str(json_file)]) == 1
    (row,) = json.loads(json_file.read_text())
    assert row["code"] == "TPB264" and row["where"]["line"] == 5 and row["kernel"] in ("k", "broken")
    capsys.readouterr()


def test_check_of_a_file_in_a_package(tmp_path, capsys):
    package = tmp_path / "lib" / "ops"
    package.mkdir(parents=True)
    (tmp_path / "lib" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "blocks.py").write_text("BLOCK = 64\n")
    body = KERNELS.split("@triton.jit\ndef count")[0]
    body += 'CHECK = [f"scale(x=f32[64], o=f32[64], n=64, BLOCK={BLOCK}, grid=1)"]'
    (package / "scale.py").write_text("from .blocks import BLOCK\n" + body)
    assert main(["check", str(package / "scale.py"), "--target", "cpu"]) == 0
    capsys.readouterr()
    assert not [m for m in sys.modules if m == "lib" or m.startswith("lib.")]


def test_check_leaves_the_process_as_it_was(kernels, capsys):
    before = (list(sys.path), list(sys.meta_path), list(sys.argv), set(sys.modules), shim.is_installed())
    main(["check", str(kernels), "--target", "cpu", "--kernel", "clear"])
    capsys.readouterr()
    after = (list(sys.path), list(sys.meta_path), list(sys.argv), set(sys.modules), shim.is_installed())
    assert (before[:3], before[4]) == (after[:3], after[4])
    assert not [m for m in after[3] - before[3] if m.startswith(("triton", "torch_pallas_checked"))]


def test_a_defect_of_ours_is_a_row(kernels, monkeypatch, capsys):
    from frontend_triton_compat.launch import JITFunction

    def broken(self, **kwargs):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(JITFunction, "check", broken)
    assert main(["check", str(kernels), "--target", "cpu", "--kernel", "scale", "--kernel", "count"]) == 1
    rows = table_rows(capsys.readouterr().out)
    assert [(row[3], row[-1]) for row in rows] == [("failed", "TPB004")] * 2


# -- port, record, run


def load(path):
    scope: dict = {"__name__": "ported"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


def test_port_writes_a_module_that_stands_alone(kernels, tmp_path, capsys):
    out = tmp_path / "scale_pallas.py"
    assert main(["port", str(kernels), "-o", str(out), "--target", "cpu", "--kernel", "scale"]) == 0
    assert str(out) in capsys.readouterr().out
    text = out.read_text()
    assert set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) == {"jax"}
    assert "kernels.py" in text and str(tmp_path) not in text
    script = """
import sys, numpy as np
import scale_pallas
x = np.random.default_rng(0).normal(size=1000).astype("float32")
(o,) = scale_pallas.scale(x)
np.testing.assert_array_equal(o, 2 * x)
assert not [m for m in sys.modules if m.startswith(("torch", "frontend_triton_compat", "bridge"))]
"""
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, check=True, timeout=120)


def test_port_of_several_kernels_into_a_folder(kernels, tmp_path, capsys):
    out = tmp_path / "ported"
    assert main(["port", str(kernels), "-o", f"{out}/", "--target", "cpu"]) == 1  # one of them is diagnosed
    assert sorted(p.name for p in out.iterdir()) == ["clear.py", "scale.py"]
    assert "TPB280" in capsys.readouterr().err


def test_port_of_several_kernels_into_one_module(kernels, tmp_path, capsys):
    out = tmp_path / "all.py"
    assert main(["port", str(kernels), "-o", str(out), "--target", "cpu"]) == 1  # one of them is diagnosed
    told = capsys.readouterr()
    assert "scale, clear for cpu" in told.out and "TPB280" in told.err
    x = np.arange(1000, dtype=np.float32)
    scope = load(out)
    np.testing.assert_array_equal(scope["scale"](x)[0], 2 * x)
    np.testing.assert_array_equal(scope["clear"]()[0], np.zeros(512))


def test_port_of_a_refused_kernel_leaves_the_output_as_it_was(kernels, tmp_path, capsys):
    out = tmp_path / "out.py"
    out.write_text("precious\n")
    assert main(["port", str(kernels), "-o", str(out), "--target", "cpu", "--kernel", "count"]) == 1
    assert "TPB280" in capsys.readouterr().err and out.read_text() == "precious\n"


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    out = tmp_path / "out.txt"
    out.write_text("before")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(Usage, match="No space"):
        write_whole(out, "after")
    assert out.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["out.txt"]


SCRIPT = (
    KERNELS.split("def run(")[0]
    + """
import os
import sys

import helper_beside

if __name__ == "__main__":
    n = int(sys.argv[1])
    x, o = torch.randn(n), torch.empty(n)
    scale[(triton.cdiv(n, 64),)](x, o, n, BLOCK=64)
    assert torch.equal(o, 2 * x) and helper_beside.HERE
    assert sys.modules["__main__"].scale is scale
    print(triton.__name__, sys.argv[1:], os.path.basename(__file__))
    if len(sys.argv) > 2:
        exec(sys.argv[2])
"""
)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "helper_beside.py").write_text("HERE = True\n")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        ("", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('a message')", 1, "a message"),
        ("sys.exit()", 0, ""),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_run_gives_the_scripts_exit_code(script, last, code, said, capsys):
    argv, modules = list(sys.argv), set(sys.modules)
    assert main(["run", str(script), "100", *([last] if last else [])]) == code
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"frontend_triton_compat {['100', *([last] if last else [])]} script.py"
    assert said in err
    if "Traceback" in err:  # it begins at the script, not in our or Python's machinery
        assert "script.py" in err.splitlines()[1]
    assert sys.argv == argv
    for added in set(sys.modules) - modules & {"helper_beside"}:
        sys.modules.pop(added, None) if added == "helper_beside" else None


def test_the_scripts_options_are_its_own(tmp_path, capsys):
    path = tmp_path / "args.py"
    path.write_text("import sys; print(sys.argv[1:])")
    assert main(["run", str(path), "--help", "-o", "x", "--target", "y"]) == 0
    assert capsys.readouterr().out.strip() == "['--help', '-o', 'x', '--target', 'y']"
    out = tmp_path / "out.json"
    assert main(["record", str(path), "-o", str(out), "a", "--epochs", "3"]) == 0
    assert capsys.readouterr().out.strip() == "['a', '--epochs', '3']"
    assert json.loads(out.read_text()) == []
    assert main(["record", "-o", str(out), str(path), "--", "-o", "theirs"]) == 0
    assert capsys.readouterr().out.strip() == "['-o', 'theirs']"


def test_record_then_check_and_port(script, kernels, tmp_path, capsys, monkeypatch):
    args = tmp_path / "args.json"
    assert main(["record", str(script), "-o", str(args), "300", "sys.exit(5)"]) == 5
    assert "1 launch of scale" in capsys.readouterr().err
    (one,) = json.loads(args.read_text())
    assert one["args"]["x"] == {"shape": [300], "strides": [1], "dtype": "float32"}
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["check", str(script), "--target", "cpu", "--args", str(args), "--kernel", "scale"]) == 0
    out = tmp_path / "out.py"
    argv = ["port", str(script), "-o", str(out), "--target", "cpu", "--args", str(args), "--kernel", "scale"]
    assert main(argv) == 0
    capsys.readouterr()
    x = np.arange(300, dtype=np.float32)
    np.testing.assert_array_equal(load(out)["scale"](x)[0], 2 * x)
    args.write_text('[{"kernel": 1}]')
    assert main(["check", str(script), "--args", str(args)]) == 2
    assert "record" in capsys.readouterr().err


def test_module_and_console_script_are_one():
    done = subprocess.run(
        [sys.executable, "-m", "frontend_triton_compat", "explain", "TPB231"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("# TPB231") and done.stderr == ""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'torch-pallas = "frontend_triton_compat.__main__:main"' in text


# -- the real compiler


@pytest.mark.tpu_offline
def test_check_for_a_tpu(kernels, tmp_path, capsys):
    json_file = tmp_path / "out.json"
    argv = ["check", str(kernels), "--target", "tpu:v5e,cpu", "--kernel", "scale", "--json", str(json_file)]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    tpu, cpu = json.loads(json_file.read_text())
    assert (tpu["target"], cpu["target"]) == ("tpu:v5e", "cpu")
    assert tpu["static"]["time_ms"] > 0 and tpu["static"]["vmem_bytes"] > 0 and cpu["static"]["time_ms"] is None
    assert "static figures" in out and err == f"{json_file} is written\n"


@pytest.mark.tpu_offline
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared kernels are not in this checkout")
def test_check_of_the_shared_kernels(tmp_path, capsys):
    json_file = tmp_path / "out.json"
    files = [str(SHARED / f"{name}.py") for name in ("s01_vector_add", "s14_histogram_atomic")]
    assert main(["check", *files, "--json", str(json_file)]) == 1
    capsys.readouterr()
    add, histogram = json.loads(json_file.read_text())
    assert (add["kernel"], add["verdict"]) == ("add_tail", "ok")
    assert (histogram["kernel"], histogram["verdict"], histogram["slug"]) == ("hist", "diagnosed", "atomic-add")
    assert histogram["where"]["line"] == line_of(Path(files[1]), "# DIAG")
