"""What a kernel says of itself: the text that is translated, its parameters, a key of what it depends on."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import textwrap

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import Diagnostic

SHIFT = tl.constexpr(5)


@triton.jit
def template(z, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    v = tl.load(x + i)  # noqa: F841
    r = FILLED_IN  # noqa: F821
    tl.store(z + i, r)


def line_of(mark):
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    return next(i for i, line in enumerate(lines, 1) if mark in line)


def by_text(expression):
    kernel = triton.JITFunction(template.fn)
    kernel._unsafe_update_src(kernel.src.replace("FILLED_IN", expression))
    return kernel


def by_exec(expression):
    text = textwrap.dedent(inspect.getsource(template.fn)).replace("FILLED_IN", expression)
    scope: dict = {}
    exec(text, globals(), scope)
    return scope["template"]


@pytest.mark.parametrize("fill", [by_text, by_exec])
def test_a_template_is_filled_in(fill):
    x = torch.arange(16.0)
    kernels = {e: fill(e) for e in ("v + 1", "v * v", "v + SHIFT")}
    for expression, kernel in kernels.items():
        z = torch.zeros(16)
        kernel[(1,)](z, x, SIZE=16)
        assert torch.equal(z, eval(expression, {"v": x, "SHIFT": 5}))
        assert expression in kernel.src and kernel.src.startswith("def template(")
    assert len({k.cache_key for k in kernels.values()}) == 3
    assert kernels["v + SHIFT"].used_global_vals == {("SHIFT", id(globals())): (SHIFT, globals())}
    assert not kernels["v + 1"].used_global_vals


@pytest.mark.parametrize(("fill", "line"), [(by_text, line_of("r = FILLED" + "_IN")), (by_exec, 5)])
def test_a_diagnostic_shows_the_filled_in_line(fill, line):
    with pytest.raises(Diagnostic) as caught:
        fill("v + missing")[(1,)](torch.zeros(16), torch.zeros(16), SIZE=16)
    assert caught.value.slug == "undefined-name" and caught.value.where.line == line
    assert "r = v + missing" in str(caught.value)


@pytest.mark.parametrize("text", ["def template(z, x, SIZE):\n    v = (\n", "x = 1\n", "def a():\n    pass\nb = 2\n"])
def test_a_text_that_is_no_function(text):
    kernel = triton.JITFunction(template.fn)
    kernel._unsafe_update_src(text)
    with pytest.raises(Diagnostic, match="TPB217"):
        kernel[(1,)](torch.zeros(16), torch.zeros(16), SIZE=16)


@triton.jit
def inner(v):
    return v + 1


@triton.jit
def outer(z, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(z + i, inner(tl.load(x + i)))


def test_a_helper_with_another_text_changes_its_callers():
    x, z = torch.arange(8.0), torch.zeros(8)
    outer[(1,)](z, x, SIZE=8)
    before, text = outer.cache_key, inner.src
    assert torch.equal(z, x + 1) and outer.hash == before
    try:
        inner._unsafe_update_src(text.replace("+ 1", "+ 3"))
        assert outer.hash is None and outer.cache_key != before
        outer[(1,)](z, x, SIZE=8)
        assert torch.equal(z, x + 3)
    finally:
        inner._unsafe_update_src(text)
    assert outer.cache_key == before
    outer[(1,)](z, x, SIZE=8)
    assert torch.equal(z, x + 1)


@triton.jit(do_not_specialize=["n", 3], do_not_specialize_on_alignment=["x"], noinline=True, repr=lambda s: "named")
def annotated(x, n: tl.int64, p: "*fp32", m, k: float, B: tl.constexpr = 4, q: "const int32*" = None):  # noqa: F722
    pass


def test_parameters():
    of = {p.name: p for p in annotated.params}
    assert annotated.arg_names == list(of) == list(annotated.signature.parameters)
    assert [p.num for p in annotated.params] == list(range(7))
    assert annotated.constexprs == [5] and of["B"].is_constexpr and of["B"].default == 4
    assert [n for n, p in of.items() if p.do_not_specialize] == ["n", "m"]
    assert [n for n, p in of.items() if p.do_not_specialize_on_alignment] == ["x"]
    assert of["n"].annotation == of["n"].annotation_type == "i64"
    assert of["p"].annotation == "*fp32" and of["q"].annotation == "*ki32" and of["q"].is_const
    assert of["k"].annotation_type == "" and of["x"].default is inspect.Parameter.empty and not of["x"].has_default
    assert annotated.noinline and annotated.repr(None) == "named" and not annotated.debug
    assert outer.repr(None) == f"{__name__}.outer"


def test_text_and_place():
    assert template.raw_src[0] == "@triton.jit\n" and template.raw_src[1].startswith("def template(")
    assert template.src == "".join(template.raw_src[1:])
    assert template.where.line == template.starting_line_number + 1 == line_of("def templ" + "ate(")
    assert template.parse().body[0].name == "template"


def load(path, text):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("a_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KERNEL = """
import frontend_triton_compat as triton
import frontend_triton_compat.language as tl

@triton.jit
def kernel(o):
    tl.store(o, 1)
"""


def test_the_line_is_part_of_the_key(tmp_path):
    first = load(tmp_path / "a.py", KERNEL).kernel.cache_key
    assert load(tmp_path / "b.py", KERNEL).kernel.cache_key == first
    assert load(tmp_path / "c.py", "# a comment\n" + KERNEL).kernel.cache_key != first


def test_a_file_that_is_edited_later_changes_nothing(tmp_path):
    import linecache

    module = load(tmp_path / "edited.py", KERNEL)
    (tmp_path / "edited.py").write_text(KERNEL.replace("tl.store(o, 1)", "tl.store(o, 2)") + "\n")
    linecache.checkcache()
    o = torch.zeros(1)
    module.kernel[(1,)](o)
    assert o.item() == 1


def test_a_kernel_on_the_command_line():
    text = KERNEL + "import torch\no = torch.zeros(1)\nkernel[(1,)](o)\nprint(o.item())\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.stdout == "1.0\n", done.stderr
