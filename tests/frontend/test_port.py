"""Ported modules: they stand alone, quote the user's lines, and give what the launch gives."""

import ast
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
import pallas_core as pc
from frontend_triton_compat import ported, verified
from frontend_triton_compat.cli import main
from frontend_triton_compat.cli.port import _named
from frontend_triton_compat.compiled import load_source
from frontend_triton_compat.measure import copy_arguments
from frontend_triton_compat.offline import specs_of, translate
from frontend_triton_compat.verified import operands_of, put_back
from tests.frontend.test_tpu import LAUNCHES, matmul, rope, softmax

RUN = """
import sys
import jax, jax.numpy as jnp, numpy as np
import kernels
given = np.load("given.npz")
out = {}
for name in sys.argv[1:]:
    operands = [given[f"{name}:{i}"] for i in range(sum(k.startswith(f"{name}:") for k in given))]
    for i, result in enumerate(getattr(kernels, name)(*map(jnp.asarray, operands), interpret=True)):
        out[f"{name}:{i}"] = np.asarray(result)
np.savez("found.npz", **out)
ours = ("torch", "triton", "frontend_triton_compat", "bridge", "pallas_core")
assert not [m for m in sys.modules if m.startswith(ours)]
"""


@triton.jit
def drop(x, o, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > p
    tl.store(o + i, tl.where(keep, tl.load(x + i, mask=i < n), 0.0), mask=i < n)


DROP = ("drop", drop, (torch.randn(1000), torch.empty(1000), 1000, 0.3, 20771), {"BLOCK": 256}, (4,))


def parts_of(launches, target="tpu:v5e"):
    parts, bound = [], []
    for _, kernel, args, meta, grid in launches:
        named = kernel._signature.bind(args, meta)
        parts.append(_named(ported.port(kernel, named, grid, target, "its launch"), parts))
        bound.append((kernel, named, grid))
    return parts, bound


def test_ported_modules_give_what_the_launches_give(tmp_path):
    """In a process that has neither torch nor this package, on Pallas' plain interpreter."""
    parts, bound = parts_of([*LAUNCHES, DROP])
    (tmp_path / "kernels.py").write_text(ported.module_of(parts))
    given, calls, modules = {}, {}, {}
    for part, (kernel, named, grid) in zip(parts, bound):
        modules[part.name] = translate(kernel, (), named, grid, "tpu:v5e")
        calls[part.name] = kernel._signature.call((), copy_arguments(named))
        for i, operand in enumerate(operands_of(modules[part.name], calls[part.name])):
            given[f"{part.name}:{i}"] = np.asarray(operand)
    np.savez(tmp_path / "given.npz", **given)
    subprocess.run([sys.executable, "-c", RUN, *modules], cwd=tmp_path, check=True, timeout=300)
    found = np.load(tmp_path / "found.npz")
    for part, (kernel, named, grid) in zip(parts, bound):
        results = [found[f"{part.name}:{i}"] for i in range(len(modules[part.name].results))]
        put_back(modules[part.name], results, calls[part.name])
        ours = copy_arguments(named)
        kernel[grid](**ours)
        for name, value in calls[part.name].arrays.items():
            torch.testing.assert_close(value, ours[name], rtol=1e-4, atol=1e-4)


def test_the_text_of_a_module():
    """Imports of jax alone, the user's lines above what was made of them, a name a launch, an example."""
    chosen = [x for x in LAUNCHES if x[0] in ("softmax", "softmax-view", "rope", "matmul-33-45-2100")]
    text = ported.module_of(parts_of([DROP])[0])
    assert "lambda a" not in text and "\ndef umulhi_of(" in text  # a function of its own, called by name
    parts, _ = parts_of(chosen)
    text = ported.module_of(parts)
    assert set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)) == {"jax"}
    names = [n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    assert {"softmax", "softmax_2", "softmax_2_kernel", "rope", "matmul"} <= set(names) and len(names) == len(
        set(names)
    )
    for quoted in (
        'v = tl.load(x + r * sx + lane, mask=lane < cols, other=-float("inf"))',
        "tl.store(lo, a * c - b * s, mask=m)",
        "acc = tl.dot(ta, tb, acc)",
    ):
        assert re.search(rf"# line \d+: {re.escape(quoted)}\n", text), quoted
        assert re.search(rf"# \w+_(ref|out), line \d+: {re.escape(quoted)}\n +pl.BlockSpec", text) or "tl.dot" in quoted
    assert "* c[:, None, :] - b * s" in text  # one statement, as it was written
    assert max(map(len, text.splitlines())) <= 120
    assert "softmax_2(*arguments, interpret=interpret)" in text and "# line 0" not in text
    assert "the memory of the launch's [40, 100] with strides (130, 1)" in text


SHARED = Path(__file__).parents[2].parent / "shared" / "kernels"


def few_by_default(names, few):
    return [pytest.param(n, marks=() if n[:3] in few else pytest.mark.slow) for n in names]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared kernels are not in this checkout")
@pytest.mark.parametrize(
    "name", few_by_default(sorted(p.stem for p in SHARED.glob("s[0-9]*.py")), ("s04", "s09", "s10"))
)
def test_ported_shared_kernels_are_right(name, monkeypatch, capsys):
    """On the TPU interpreter, by `verify`: the ported text in place of the emitted one."""

    def translated(kernel, args, named, grid, target):
        module = translate(kernel, args, named, grid, target)
        if target == "cpu":
            return module
        part = ported.port(kernel, named, grid, target)
        return dataclasses.replace(module, source=ported.module_of([part]))

    monkeypatch.setattr(verified, "translate", translated)
    main(["verify", str(SHARED / f"{name}.py"), "--target", "tpu:v6e", "--json", "-"])
    rows = json.loads(capsys.readouterr().out)
    assert rows and all(row["verdict"] == "ok" or row["slug"].startswith("atomic") for row in rows), rows


@triton.jit
def shared_twice(x, o, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    w = tl.exp(v) + 1
    tl.store(o + i, w * w, mask=i < n)
    tl.store(x + i, v - 1, mask=i < n)


def test_values_are_written_where_they_are_used_once_only():
    x = torch.randn(300)
    named = shared_twice._signature.bind((x, torch.empty(300), 300), {"BLOCK": 512})
    text = ported.module_of([ported.port(shared_twice, named, (1,), "tpu:v5e")])
    assert "w = jnp.exp(v) + 1.0" in text and re.search(r"o_out\[\.\.\.\] = w \* w", text)


@pytest.mark.tpu_offline
@pytest.mark.parametrize(
    ("kernel", "args", "meta", "grid"),
    [
        (softmax, ((8192, 4096), (8192, 4096), 4096, 4096, 8192, 4096), {"W": 4096}, (256,)),
        (matmul, ((512, 512), (512, 512), (512, 512), 512, 512, 512, 512, 1, 512, 1), {}, (16,)),
        (rope, ((512, 8, 256), (512, 128), (512, 128), 8 * 256, 8), {"D": 256, "H": 8}, (512,)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_compiler_takes_a_ported_module_for_the_same_program(kernel, args, meta, grid):
    pytest.importorskip("libtpu")
    if kernel is matmul:
        meta = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 4}
    arrays = [torch.empty(a, device="meta") if isinstance(a, tuple) else a for a in args]
    named = kernel._signature.bind(arrays, meta)
    part = ported.port(kernel, named, grid, "tpu:v5e")
    module = translate(kernel, (), named, grid, "tpu:v5e")
    specs = specs_of(module, kernel._signature.call((), named, placeless=True))
    mine = pc.schedule_report(load_source(ported.module_of([part]), part.name), specs, "tpu:v5e")
    own = pc.schedule_report(load_source(module.source, module.entry), specs, "tpu:v5e")
    assert mine.time_s == own.time_s and mine.hbm_bytes == own.hbm_bytes


def test_the_example_runs(tmp_path):
    parts, _ = parts_of([x for x in LAUNCHES if x[0] == "add"])
    (tmp_path / "add.py").write_text(ported.module_of(parts))
    env = {"JAX_PLATFORMS": "cpu", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "add.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "o float32 (5000,)\n", done.stderr[-2000:]
    assert jax.default_backend() == "cpu"
