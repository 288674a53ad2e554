"""Atomics that are reductions over programs: the diagnostic prints the kernel without them, and it is right."""

import importlib.util

import pytest
import torch

import frontend_triton_compat as triton
import frontend_triton_compat.language as tl
from bridge.diagnostics import TranslationError
from frontend_triton_compat.measure import copy_arguments
from tests.frontend import atomic_kernels

LAUNCHES = list(atomic_kernels.launches())
HEAD = "import frontend_triton_compat as triton\nimport frontend_triton_compat.language as tl\n\n\n"


def refusal(kernel, args, meta, grid, target="tpu:v5e"):
    with pytest.raises(TranslationError) as refused:
        kernel[grid].source(*args, target=target, **meta)
    return refused.value


def code_of(remedy):
    """The kernel and the lines around its launch, of a remedy."""
    lines = [line[4:] for line in remedy.split("\n") if line.startswith("    ") or not line.strip()]
    kernel, _, around = "\n".join(lines).partition("# in place of the launch:\n")
    return kernel, around


def imported(text, folder):
    path = folder / "suggested.py"
    path.write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location("suggested", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name,kernel,args,meta,grid", LAUNCHES, ids=[x[0] for x in LAUNCHES])
def test_the_suggested_kernel_gives_what_the_atomics_give(name, kernel, args, meta, grid, tmp_path):
    problem = refusal(kernel, args, meta, grid)
    assert problem.slug in ("atomic-add", "atomic-other") and "tl.atomic_" in problem.where.text()
    text, around = code_of(problem.do[0])
    assert "atomic" not in text and around and str(problem).count("@triton.jit") == 1
    module = imported(text, tmp_path)

    named = kernel._signature.bind(args, meta)
    by_atomics, by_copies = copy_arguments(named), copy_arguments(named)
    kernel[grid](**by_atomics)
    fn = kernel.fn.__name__
    exec(around, {"torch": torch, fn: getattr(module, fn), **by_copies})  # our own text
    for key, value in by_atomics.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(by_copies[key], value, rtol=1e-5, atol=1e-5)
    assert any(isinstance(v, torch.Tensor) and not torch.equal(v, named[key]) for key, v in by_copies.items()), (
        "the launch does nothing"
    )


@pytest.mark.parametrize(
    "kernel,args,meta,grid", list(atomic_kernels.apart()), ids=lambda v: getattr(v, "__name__", "")
)
def test_programs_that_do_not_meet_load_and_store(kernel, args, meta, grid, tmp_path):
    text, around = code_of(refusal(kernel, args, meta, grid).do[0])
    assert not around and "atomic" not in text
    module = imported(text, tmp_path)
    named = kernel._signature.bind(args, meta)
    by_atomics, by_stores = copy_arguments(named), copy_arguments(named)
    kernel[grid](**by_atomics)
    getattr(module, kernel.fn.__name__)[grid](**by_stores)
    torch.testing.assert_close(by_stores["out"], by_atomics["out"])
    assert not torch.equal(by_stores["out"], named["out"])


def test_programs_that_share_a_copy_do_not_meet():
    """Tiles by axis 0 need no copies; where several programs update one part, all of them have one."""
    by_name = {name: rest for name, *rest in LAUNCHES}
    assert "the 3 programs along it" in refusal(*by_name["split-k"]).do[0]
    assert "axis 1 of the grid" in refusal(*by_name["split-k"]).do[0]
    assert "the 12 programs along it" in refusal(*by_name["groups"]).do[0]
    assert "axis 1 of the grid" in refusal(*by_name["row-sums"]).do[0]


@pytest.mark.parametrize(
    "kernel,args,meta,grid", list(atomic_kernels.refused()), ids=lambda v: getattr(v, "__name__", "")
)
def test_atomics_that_are_more_get_no_kernel(kernel, args, meta, grid):
    problem = refusal(kernel, args, meta, grid)
    assert problem.slug in ("atomic-add", "atomic-other") and "@triton.jit" not in str(problem) and problem.do


@triton.jit
def count_if(x, out, n, flag, BLOCK: tl.constexpr = 64):
    """A parameter with a default, a condition, a comment."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    if flag > 0:
        tl.atomic_add(out, tl.sum(v, axis=0))  # how many


def test_defaults_conditions_and_comments_stay(tmp_path):
    x, out = torch.ones(300, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    text, around = code_of(refusal(count_if, (x, out, 300, 1), {}, (5,)).do[0])
    assert "def count_if(x, out, n, flag, out_size, BLOCK: tl.constexpr = 64):" in text and "# how many" in text
    module = imported(text, tmp_path)
    exec(around, {"torch": torch, "count_if": module.count_if, "x": x, "out": out, "n": 300, "flag": 1})
    assert out.item() == 300
